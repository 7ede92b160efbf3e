"""The HTTP application: routes, and how our errors become answers.

    GET  /                  the page for people
    GET  /health            200 once the models are loaded
    GET  /openapi.json      a description of all of this
    GET  /api/models        what is served, and what each model can do
    GET  /api/card          a model card, in Markdown
    GET  /api/guarantees    error rates that can be guaranteed, and the share of texts that is then labelled
    GET  /api/checks        what ``warmstart doctor`` finds
    GET  /api/evidence      what the audit of the data found, and whether confidence is calibrated, from a model's record
    POST /api/predict       predictions with calibrated probabilities; abstains for a guarantee
    POST /api/nearest       the training texts that are nearest to texts
    POST /api/generate      a continuation with the probable tokens at every step; whole, or as server-sent events
    POST /api/embed         vectors
    POST /api/explain       the importance of each word
    POST /api/tokens        how texts are split
    POST /api/table         the cells of a workbook (.xlsx), which the page cannot read itself
    POST /api/reload        load a model again from its folder
    *    /label/            all of ``warmstart label``, if the server has a project open

``replies.py`` describes the answers. A request that is wrong gets a status from 400 to 422 and ``{"error": "…"}`` with the words of
the command line; too many get 429.
No name or path in a request reaches the disk. The page is a template filled on the server, a style
sheet, and scripts without a build step, in ``page/``; nothing comes from elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from threading import Event
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from warmstart.app.answers import (
    PAGE,
    Body,
    ExplainBody,
    GenerateBody,
    NearestBody,
    PredictBody,
    TextsBody,
    Unicode,
    add_files,
    make_api,
)
from warmstart.app.background import BackgroundReader, NotReadyError
from warmstart.app.batches import BusyError, Computer
from warmstart.app.guard import AccessRules, App, Guard
from warmstart.app.models import ServedModel, ServedModels, checks_of, evidence_of, guarantees_of
from warmstart.app.replies import (
    Cells,
    Embedded,
    Explained,
    Generated,
    Guarantees,
    ModelAnswer,
    Models,
    Nearest,
    Predicted,
    Tokenized,
    explanation_of,
    predictions_for,
    rows_of_workbook,
    tokens_of,
    unread_of,
    vectors_of,
    write_on,
)
from warmstart.errors import WarmstartError
from warmstart.report.templates import COMMON_STYLE, VERDICT_STYLE, page_template
from warmstart.tasks.predict import Unread

ModelName = Annotated[str | None, Query(max_length=1_000)]
"""in the address of a request; none: the first"""
EVENTS = {
    "text/event-stream": {
        "schema": {
            "type": "string",
            "description": "server-sent events, each with data in JSON: token (#/components/schemas/GeneratedToken), "
            "done (text, ended), error (#/components/schemas/Error)",
        }
    }
}
"""form of the answers of ``/api/generate`` with ``stream``"""
STREAMS = 8
"""texts that are generated at once; further requests get 429"""


class _Markdown(PlainTextResponse):
    media_type = "text/markdown"


class _LeftError(Exception):
    """The client is gone."""


class Server:
    """Models, and the threads that compute with them."""

    def __init__(self, models: ServedModels, batch_tokens: int, wait_seconds: float, queue: int, own_texts: bool = False) -> None:
        self.models = models
        self.computer = Computer(batch_tokens, wait_seconds, queue)
        self.training_texts = BackgroundReader(self.computer)
        self.training_texts.start_all(models, own=own_texts)
        self.generating = ThreadPoolExecutor(STREAMS, thread_name_prefix="generation")
        self.streams = 0

    def model(self, name: str | None, ability: str) -> ServedModel:
        """The model that a request names. Raises 404 if there is none, and ``ModelError`` if it cannot do that."""
        model = self.models.get(name)
        if model is None:
            names = ", ".join(model.name for model in self.models)
            raise HTTPException(404, f"there is no such model; served are {names}")
        model.require(ability)
        return model

    async def compute(
        self, what: str, model: ServedModel, inputs: Sequence[Any], compute: Callable[[Sequence[Any]], Sequence[Any]], *key: Any
    ) -> Sequence[Any]:
        """Answers to inputs, perhaps computed together with those of other requests of the same ``what`` and ``key``.

        Texts are not computed together with pairs, which a network reads otherwise.
        """
        with self.computer.request():
            key = (id(model), what, isinstance(inputs[0], str), *key)
            future = self.computer.submit(key, inputs, model.count_tokens(inputs), compute)
            return await asyncio.wrap_future(future)

    async def alone(self, what: str, model: ServedModel, text: str, compute: Callable[[str], Any], *key: Any) -> Any:
        """The answer to one text, which takes long: only requests of the same text and ``key`` share it."""
        answers = await self.compute(what, model, [text], lambda texts: [compute(text)] * len(texts), text, *key)
        return answers[0]

    async def unread(self, model: ServedModel, inputs: Sequence[Any]) -> Unread:
        """How much of the inputs does not fit into the model; of several, beside the loop that answers everybody."""
        return unread_of(model, inputs) if len(inputs) == 1 else await asyncio.to_thread(unread_of, model, inputs)

    def close(self) -> None:
        """Finish what has begun."""
        self.generating.shutdown(cancel_futures=True)
        self.training_texts.close()
        self.computer.stop()
        for model in self.models:
            if model.recorder:
                model.recorder.end()


def make_app(server: Server, rules: AccessRules, labelling: FastAPI | None = None) -> App:
    """The whole application, guarded, with ``labelling`` (``labels_api``) under ``/label/``; it closes both when it ends."""
    return Guard(models_api(server, rules, "label/" if labelling else "", labelling), rules)


def models_api(server: Server, rules: AccessRules, labels: str = "", labelling: FastAPI | None = None) -> FastAPI:
    """The routes, which a guard must stand before; ``labels`` is the address of the page on which people label, if there is one."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with labelling.router.lifespan_context(labelling) if labelling else nullcontext():
            yield
        server.close()

    app = make_api(rules, title="warmstart", lifespan=lifespan)
    _add_busy(app)
    _add_facts(app, server)
    _add_predictions(app, server)
    _add_tables(app)
    _add_generation(app, server)
    add_page(app, server.models, labels, server.training_texts.looked)
    if labelling:
        app.mount("/label", labelling)
    return app


def _add_busy(app: FastAPI) -> None:
    @app.exception_handler(NotReadyError)
    async def later(_: Request, error: NotReadyError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 503, {"retry-after": "1"})

    @app.exception_handler(BusyError)
    async def busy(_: Request, error: BusyError) -> JSONResponse:
        return JSONResponse({"error": "too many requests wait; try again soon"}, 429, {"retry-after": "1"})


def _add_facts(app: FastAPI, server: Server) -> None:
    @app.get("/api/models", response_model=Models)
    async def models() -> dict[str, Any]:
        return {"models": [model.describe() for model in server.models]}

    @app.get("/api/card", response_class=_Markdown)
    async def card(model: ModelName = None) -> _Markdown:
        return _Markdown(server.model(model, "card").card().encode(errors="backslashreplace"))

    @app.get("/api/guarantees", response_model=Guarantees)
    async def guarantees(model: ModelName = None) -> dict[str, Any]:
        served = server.model(model, "predict")
        return {"model": served.name, "guarantees": guarantees_of(served)}

    @app.get("/api/checks")
    async def checks(model: ModelName = None) -> dict[str, Any]:
        served = server.model(model, "card")
        return {"model": served.name, "checks": await server.alone("checks", served, "", lambda _: checks_of(served))}

    @app.get("/api/evidence")
    async def evidence(model: ModelName = None) -> dict[str, Any]:
        served = server.model(model, "card")
        return {"model": served.name} | await server.alone("evidence", served, "", lambda _: evidence_of(served.model, served.path))

    @app.post("/api/reload", response_model=ModelAnswer)
    async def reload(body: Body) -> dict[str, Any]:
        name = server.model(body.model, "card").name
        await asyncio.to_thread(server.models.reload, name)
        return {"model": name}


def _add_predictions(app: FastAPI, server: Server) -> None:
    @app.post("/api/predict", response_model=Predicted, response_model_exclude_unset=True)
    async def predict(body: PredictBody) -> dict[str, Any]:
        model = server.model(body.model, "predict")
        inputs = model.check_inputs(body.inputs)
        threshold = None if body.target_error is None else model.threshold(body.target_error, body.confidence_level)
        key = (body.top, body.target_error, body.confidence_level)
        unread = await server.unread(model, inputs)
        predictions = await server.compute(
            "predict", model, inputs, lambda all_: predictions_for(model, all_, body.top, threshold), *key
        )
        return {
            "model": model.name,
            "predictions": predictions,
            "guarantee": threshold.sentence() if threshold else None,
            "threshold": threshold.threshold if threshold and math.isfinite(threshold.threshold) else None,
            "cut": unread.sentence or None,
            "unread": unread.tokens,
        }

    @app.post("/api/nearest", response_model=Nearest)
    async def nearest(body: NearestBody) -> dict[str, Any]:
        model = server.model(body.model, "nearest")
        inputs, texts = model.check_inputs(body.inputs), server.training_texts.of(model)
        rows = await server.compute("nearest", model, inputs, lambda all_: texts.nearest(all_, body.count), body.count)
        return {"model": model.name, "nearest": rows, "random_pairs": round(texts.random_pairs, 4)}

    @app.post("/api/embed", response_model=Embedded)
    async def embed(body: TextsBody) -> dict[str, Any]:
        model = server.model(body.model, "embed")
        return {"model": model.name, "vectors": await server.compute("embed", model, body.texts, partial(vectors_of, model))}

    @app.post("/api/tokens", response_model=Tokenized)
    async def tokens(body: TextsBody) -> dict[str, Any]:
        model = server.model(body.model, "tokens")
        return {"model": model.name, "tokens": await server.compute("tokens", model, body.texts, partial(tokens_of, model))}

    @app.post("/api/explain", response_model=Explained)
    async def explain(body: ExplainBody) -> dict[str, Any]:
        model = server.model(body.model, "explain")
        explanation = await server.alone(
            "explain", model, body.text, lambda text: explanation_of(model, text, body.target), body.target
        )
        return {"model": model.name} | explanation


def _add_tables(app: FastAPI) -> None:
    reading = asyncio.Lock()  # a workbook may expand to much memory: one at a time
    binary = {"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}}

    @app.post("/api/table", response_model=Cells, openapi_extra=binary)
    async def table(request: Request, name: Annotated[Unicode, Query(max_length=255)]) -> dict[str, Any]:
        async with reading:
            return {"rows": await asyncio.to_thread(rows_of_workbook, await request.body(), name)}


def _add_generation(app: FastAPI, server: Server) -> None:
    @app.post("/api/generate", response_model=Generated, responses={200: {"content": EVENTS}})
    async def generate(body: GenerateBody) -> Response | dict[str, Any]:
        model = server.model(body.model, "generate")
        generation = _Generation(server, model, body)
        if body.stream:
            return _EventStream(generation)
        steps: list[Any] = []
        try:
            async for kind, value in generation.events():
                if kind == "error":
                    raise value
                if kind == "done":
                    return {"model": model.name, "steps": steps} | value
                steps.append(value)
        finally:
            generation.close()
        raise AssertionError("events end with done or error")


class _Generation:
    """A text that is generated in a thread, as events. It counts as one of ``STREAMS`` until it is closed."""

    def __init__(self, server: Server, model: ServedModel, body: GenerateBody) -> None:
        if server.streams >= STREAMS:
            raise BusyError
        server.streams += 1
        self.server, self.model, self.body, self.left = server, model, body, False
        self.loop, self.told = asyncio.get_running_loop(), asyncio.Queue[tuple[str, Any]]()
        self.future = server.generating.submit(self._work)

    async def events(self) -> AsyncIterator[tuple[str, Any]]:
        """``("token", …)`` for each token as it comes, then ``("done", …)`` or ``("error", exception)``."""
        kind = "token"
        while kind == "token":
            kind, value = await self.told.get()
            yield kind, value

    def close(self) -> None:
        """Nobody listens any more: the thread stops at the next token."""
        if not self.left:
            self.left = True
            self.server.streams -= 1

    def _tell(self, kind: str, value: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server has ended
            self.loop.call_soon_threadsafe(self.told.put_nowait, (kind, value))

    def _on_token(self, token: dict[str, Any]) -> None:
        if self.left:
            raise _LeftError
        self._tell("token", token)
        self.server.computer.turns.offer()

    def _work(self) -> None:
        try:
            with self.server.computer.turns:
                body = self.body
                text, ended = write_on(self.model, body.prompt, body.settings(), body.candidates, self._on_token)
            self._tell("done", {"text": text, "ended": ended})
        except _LeftError:
            pass
        except BaseException as error:
            self._tell("error", error)


class _EventStream(StreamingResponse):
    """Server-sent events; closes the generation when the client has gone, too."""

    def __init__(self, generation: _Generation) -> None:
        super().__init__(_as_sent(generation), media_type="text/event-stream")
        self.generation = generation

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.generation.close()


async def _as_sent(generation: _Generation) -> AsyncIterator[str]:
    async for kind, value in generation.events():
        if kind == "error":
            value = {"error": str(value) if isinstance(value, WarmstartError) else "the server failed; its log says why"}
        yield f"event: {kind}\ndata: {json.dumps(value)}\n\n"


PANELS = {
    "classify": ("Classify", ("predict",)),
    "write": ("Write", ("generate",)),
    "checks": ("File checks", ("card",)),
}
"""id of a panel -> its title, and the abilities of which a model needs one"""
LOOKING = 2.0
"""seconds that a page waits until the server has looked for training texts"""


def add_page(app: FastAPI, models: ServedModels, labels: str, looked: Event) -> None:
    """Routes of the page and its files; ``labels`` is the address of the page on which people label.

    A page that is asked for before the server has ``looked`` for training texts waits for it a little.
    """
    template = page_template("page.html.jinja", PAGE)

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        if not looked.is_set():
            await asyncio.to_thread(looked.wait, LOOKING)
        described = [model.describe() for model in models]
        panels = {
            panel: (title, fitting)
            for panel, (title, needed) in PANELS.items()
            if (fitting := [facts for facts in described if set(needed) & set(facts["abilities"])])
        }
        content = template.render(panels=panels, verdict=models.verdict, labels=labels)
        return HTMLResponse(content.encode(errors="backslashreplace"))

    add_files(app, [COMMON_STYLE, VERDICT_STYLE, *PAGE.iterdir()])
