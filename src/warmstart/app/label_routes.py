"""The HTTP application of ``warmstart label``: routes over a ``LabelSession``, and the page that uses them.

    GET  /              the page
    GET  /health        200 once it answers
    GET  /openapi.json  a description of all of this
    POST /api/join      a person begins, or comes back: their name, and the first text; taken: another browser has that name
    POST /api/answer    an answer to a text; the next text comes back once the answer is on disk
    POST /api/undo      takes a person's last answer back: its text and comment again
    POST /api/next      the text that a person has before them
    POST /api/labels    adds, renames or merges labels
    GET  /api/labels    the labels that stand now
    GET  /api/texts     the texts that were answered: searched, by label, person, or doubt; with all answers
    POST /api/correct   another answer of a person to one of them
    POST /api/tried     the label of a text that a model was tried on, which may be new: stored as an answer
    GET  /api/status    progress, people, accuracy, target, outlook and price
    GET  /api/history   changes of the labels
    POST /api/task      writes the task of an export into the project's folder: where, and the command that learns from it
    POST /api/train     begins to train a model from the labels so far, quickly or thoroughly; its state is in the status
    GET  /api/export    the texts that have a label, with it, as a file: csv or ndjson
    GET  /verdict       the first screen of the report of the last training, as a part of a page
    GET  /report        the report of the last training
    *    /model/        all of ``warmstart serve``, for the model of the last training

The session computes in threads, so that one person's answer never waits for the loop.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import FastAPI, Query
from fastapi.responses import HTMLResponse, Response
from markupsafe import Markup
from pydantic import Field
from starlette.exceptions import HTTPException

from warmstart.app.answered import AnsweredQuery, Kind
from warmstart.app.answers import PAGE, Fields, Text, Unicode, add_files, make_api
from warmstart.app.exchange import as_bytes
from warmstart.app.guard import AccessRules, App, Guard
from warmstart.app.training import THOROUGH, NewestModel
from warmstart.errors import ConfigError
from warmstart.report.templates import COMMON_STYLE, VERDICT_STYLE, page_template, verdict_html, with_code

if TYPE_CHECKING:
    from warmstart.app.session import LabelSession
    from warmstart.app.training import Training

LABEL_PAGE = Path(__file__).parent / "label_page"
SHARED = ("page.css", "elements.js", "api.js", "person.js")
"""files of the page of models that this page uses, too"""
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; sandbox allow-scripts"
"""a report holds all that it needs, and may ask this server for nothing"""
TRY, NEXT = '<a class="step" href="model/">Use the model</a>', {"label": "#work", "serve": None}
"""links in place of the commands of a verdict"""
MOST_TAGS = 1_000_000
"""words of a text"""

Person = Annotated[Unicode, Field(min_length=1, max_length=100)]
LabelId = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
ExportForm = Annotated[Literal["csv", "ndjson"], Query()]
MEDIA = {"csv": "text/csv; charset=utf-8", "ndjson": "application/x-ndjson"}


class PersonBody(Fields):
    """``POST /api/next``."""

    person: Person
    """name of the person; no password"""


class JoinBody(PersonBody):
    """``POST /api/join``."""

    browser: Annotated[Unicode, Field(max_length=100)] = ""
    """mark of a browser, by which two people of one name are told apart: the second is asked (``taken``)"""
    same: bool = False
    """true if they are one person, in two browsers"""


class UndoBody(PersonBody):
    """``POST /api/undo``."""

    draw: int | None = Field(None, gt=0, lt=2**63)
    """the showing whose answer is taken back, as ``last`` says; a request that comes twice then does no more than one"""


class AnswerBody(PersonBody):
    """``POST /api/answer``."""

    draw: int = Field(gt=0, lt=2**63)
    """the showing of a text that is answered"""
    value: LabelId | Annotated[list[LabelId], Field(max_length=MOST_TAGS, fail_fast=True)] | None
    """a label; for tagging a label for each word; null: skipped"""
    seconds: float = Field(ge=0, le=1e7)
    """time for which the text was looked at"""
    comment: Annotated[Unicode, Field(max_length=10_000)] = ""


class TextsQuery(Fields):
    """``GET /api/texts``; as in ``AnsweredQuery``."""

    words: Annotated[Unicode, Field(max_length=1_000)] = ""
    label: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    person: Annotated[Unicode, Field(max_length=100)] = ""
    kind: Kind = "all"
    start: int = Field(0, ge=0, lt=2**31)
    count: int = Field(20, ge=1, le=200)


class CorrectBody(PersonBody):
    """``POST /api/correct``."""

    text: int = Field(ge=0, lt=2**31)
    """``text_id`` of it"""
    value: LabelId | None
    """a label; null: none fits"""


class TriedBody(JoinBody):
    """``POST /api/tried``."""

    text: Text
    value: LabelId


class TrainBody(Fields):
    """``POST /api/train``."""

    thorough: bool = False
    """true for a training in which every method has time"""


class LabelBody(PersonBody):
    """``POST /api/labels``."""

    action: Literal["add", "rename", "merge"]
    label: LabelId | None = None
    """the label that is renamed or merged"""
    name: Annotated[Unicode, Field(max_length=1_000)] | None = None
    """name of the label that is added, or the new name"""
    into: LabelId | None = None
    """the label that it becomes"""


def make_label_app(session: LabelSession, rules: AccessRules) -> App:
    """The whole application, guarded."""
    return Guard(labels_api(session, rules), rules)


def labels_api(session: LabelSession, rules: AccessRules, models: str = "") -> FastAPI:
    """The routes, which a guard must stand before; they close the session when the server ends.

    ``models`` is the address of the page that tries models; empty: here, that of the last training.
    """
    newest = NewestModel(session.training, rules)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(newest.close)
        await asyncio.to_thread(session.close)

    app = make_api(rules, title="warmstart label", lifespan=lifespan)
    _add_work(app, session)
    _add_answered(app, session)
    _add_labels(app, session)
    _add_facts(app, session, models)
    _add_training(app, session.training)
    app.mount("/model", newest)
    add_files(app, [COMMON_STYLE, VERDICT_STYLE, *(PAGE / name for name in SHARED), *LABEL_PAGE.iterdir()])
    return app


def _add_work(app: FastAPI, session: LabelSession) -> None:
    """Routes of a person's work. Answers hold ``item``, the text to look at, and ``last``, the draw that undo would open again."""

    def turn(person: str, item: dict[str, Any] | None) -> dict[str, Any]:
        return {"item": item, "last": session.last(person)}

    @app.post("/api/join")
    async def join(body: JoinBody) -> dict[str, Any]:
        def begin() -> dict[str, Any]:
            joined = session.join(body.person, body.browser, same=body.same)
            return joined if joined["taken"] else joined | turn(body.person, session.next(body.person))

        return await asyncio.to_thread(begin)

    @app.post("/api/answer")
    async def answer(body: AnswerBody) -> dict[str, Any]:
        def store() -> dict[str, Any]:
            value = tuple(body.value) if isinstance(body.value, list) else body.value
            session.answer(body.person, body.draw, value, body.seconds, body.comment)
            return turn(body.person, session.next(body.person))

        return await asyncio.to_thread(store)

    @app.post("/api/undo")
    async def undo(body: UndoBody) -> dict[str, Any]:
        return await asyncio.to_thread(lambda: turn(body.person, session.undo(body.person, body.draw)))

    @app.post("/api/next")
    async def following(body: PersonBody) -> dict[str, Any]:
        return await asyncio.to_thread(lambda: turn(body.person, session.next(body.person)))


def _add_answered(app: FastAPI, session: LabelSession) -> None:
    @app.get("/api/texts")
    async def texts(query: Annotated[TextsQuery, Query()]) -> dict[str, Any]:
        return await asyncio.to_thread(session.find, AnsweredQuery(**query.model_dump()))

    @app.post("/api/correct")
    async def correct(body: CorrectBody) -> dict[str, Any]:
        counts = await asyncio.to_thread(session.correct, body.person, body.text, body.value)
        return {"last": await asyncio.to_thread(session.last, body.person), "label": counts}

    @app.post("/api/tried")
    async def tried(body: TriedBody) -> dict[str, Any]:
        def store() -> dict[str, Any]:
            if session.join(body.person, body.browser, same=body.same)["taken"]:
                raise ConfigError(f"somebody else has joined as '{body.person}'; take another name, or join on the page Label")
            return session.label_tried(body.person, body.text, body.value)

        return await asyncio.to_thread(store)


def _add_labels(app: FastAPI, session: LabelSession) -> None:
    @app.get("/api/labels")
    async def labels() -> dict[str, Any]:
        return {"labels": await asyncio.to_thread(session.labels)}

    @app.post("/api/labels")
    async def change(body: LabelBody) -> dict[str, Any]:
        await asyncio.to_thread(_change_label, session, body)
        return {"labels": await asyncio.to_thread(session.labels)}

    @app.get("/api/history")
    async def history() -> dict[str, Any]:
        changes = await asyncio.to_thread(session.project.history)
        return {"history": [asdict(change) for change in changes]}


def _change_label(session: LabelSession, body: LabelBody) -> None:
    needed = {"add": ("name",), "rename": ("label", "name"), "merge": ("label", "into")}[body.action]
    missing = [name for name in needed if getattr(body, name) is None]
    if missing:
        raise ConfigError(f"to {body.action} a label, the request must also hold {' and '.join(missing)}")
    values = [getattr(body, name) for name in needed]
    changes: dict[str, Callable[..., None]] = {
        "add": session.add_label, "rename": session.rename_label, "merge": session.merge_labels,
    }  # fmt: skip
    changes[body.action](body.person, *values)


def _add_facts(app: FastAPI, session: LabelSession, models: str) -> None:
    project = session.project
    template = page_template("label.html.jinja", LABEL_PAGE, PAGE)

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        words = {"name": project.name, "type": project.type, "guidelines": guidelines_html(project.guidelines)}
        return HTMLResponse(template.render(project=words, thorough=THOROUGH, models=models).encode(errors="backslashreplace"))

    @app.get("/api/status")
    async def status() -> dict[str, Any]:
        return await asyncio.to_thread(session.status)

    @app.get("/api/export")
    async def export(form: ExportForm = "csv") -> Response:
        content = await asyncio.to_thread(as_bytes, project, form)
        return Response(content, media_type=MEDIA[form], headers={"content-disposition": f'attachment; filename="labels.{form}"'})


def _add_training(app: FastAPI, training: Training) -> None:
    @app.post("/api/task")
    async def task(_: Fields) -> dict[str, str]:
        return await asyncio.to_thread(training.export)

    @app.post("/api/train")
    async def train(body: TrainBody) -> dict[str, Any]:
        await asyncio.to_thread(training.start, thorough=body.thorough)
        return {"training": await asyncio.to_thread(training.status)}

    @app.get("/verdict", include_in_schema=False)
    async def verdict() -> HTMLResponse:
        latest = await asyncio.to_thread(lambda: training.verdict)
        return HTMLResponse(verdict_html(latest, box=TRY, actions=NEXT).encode(errors="backslashreplace") if latest else b"")

    @app.get("/report", include_in_schema=False)
    async def report() -> HTMLResponse:
        if (content := await asyncio.to_thread(lambda: training.report)) is None:
            raise HTTPException(404, "there is no report yet; train a model on the page of the labels")
        return HTMLResponse(content, headers={"content-security-policy": REPORT_POLICY})


_HEADING, _ITEM = re.compile(r"#{1,6}\s+(.*?)\s*#*$"), re.compile(r"\s*[-*+]\s+(.*)")
_NUMBERED = re.compile(r"\s*(\d{1,6})[.)]\s+(.*)")


def guidelines_html(text: str) -> Markup:
    """Headings, lists, stressed words and code of Markdown; all else escaped, for an element with ``white-space: pre-wrap``."""
    parts = list[str]()
    for kind, lines in groupby(text.strip().splitlines(), _kind):
        some = [*lines]
        if kind == "item":
            parts.append("<ul>" + "".join(f"<li>{_inline(_ITEM.match(line)[1])}</li>" for line in some) + "</ul>")  # type: ignore[index]
        elif kind == "numbered":
            rows = [_NUMBERED.match(line).groups() for line in some]  # type: ignore[union-attr]
            parts.append("<ol>" + "".join(f'<li value="{int(number)}">{_inline(words)}</li>' for number, words in rows) + "</ol>")
        elif kind == "heading":
            parts += [f"<h3>{_inline(_HEADING.match(line)[1])}</h3>" for line in some]  # type: ignore[index]
        elif kind:
            parts.append("<p>" + "\n".join(map(_inline, some)) + "</p>")
    return Markup("".join(parts))


def _kind(line: str) -> str:
    if not line.strip():
        return ""
    kinds = {"heading": _HEADING, "item": _ITEM, "numbered": _NUMBERED}
    return next((kind for kind, pattern in kinds.items() if pattern.match(line)), "text")


def _inline(text: str) -> str:
    strong = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(with_code(text)))
    return re.sub(r"(?<![\w*])\*([^\s*<](?:[^*<]*[^\s*<])?)\*(?![\w*])", r"<em>\1</em>", strong)
