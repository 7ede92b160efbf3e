"""What a server answers is what the library computes, in the form that ``/openapi.json`` describes; so are its refusals."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from helpers.models import SENTENCES
from helpers.restarts import adapt_record
from warmstart.errors import DataError
from warmstart.model.bundle import Bundle
from warmstart.model.history import FindingRecord
from warmstart.stack.stack import Stack
from warmstart.stats.calibration import expected_calibration_error, reliability_bins
from warmstart.stats.proportions import wilson_interval
from warmstart.tasks.predict import predict
from warmstart.tokenizer.tokenizer import Tokenizer

pytest.importorskip("httpx", reason="the server needs the extra 'serve', and its tests httpx")
pytest.importorskip("fastapi", reason="the server needs the extra 'serve'")

from helpers.served import HELD_OUT, asked, asked_for, asked_until_ready, client_of, cups_task, one_of_each, served
from warmstart.serve.app import STREAMS, Server, make_app
from warmstart.serve.evidence import calibration_of, evidence_of
from warmstart.serve.forms import EVENTS
from warmstart.serve.guard import AccessRules
from warmstart.serve.served import ServedModel, ServedModels

pytestmark = pytest.mark.usefixtures("socket_enabled")  # of the event loop with itself
TEXTS = ["She holds the cat", "a river", "dogs and cats and " * 12]
PAIRS = [[one, SENTENCES[i]] for i, one in enumerate(TEXTS)]
INPUTS: dict[str, list[Any]] = {
    "labels": TEXTS, "lora": PAIRS, "sure": TEXTS, "stack": TEXTS, "many": TEXTS, "number": TEXTS,
    "choice": [[one, "the river", "the cat"] for one in TEXTS], "tags": [one.split() for one in TEXTS],
    "span": [["what?", one] for one in SENTENCES], "answers": TEXTS[:2],
}  # fmt: skip
"""model -> inputs of its task"""


@pytest.fixture(scope="module")
def models(tokenizer: Tokenizer) -> dict[str, Bundle | Stack]:
    return one_of_each(tokenizer)


@pytest.fixture
def server(models: dict[str, Bundle | Stack]) -> Iterator[Server]:
    made = served(models)
    yield made
    made.close()


@pytest.mark.parametrize("name", INPUTS)
def test_every_task_type_is_answered_as_by_the_library(name: str, server: Server, models: dict[str, Bundle | Stack]) -> None:
    """Values to the last digits that are given; requests at once, each of some of the inputs, in another order."""
    inputs = INPUTS[name]
    expected = predict(models[name], [one if isinstance(one, str) else tuple(one) for one in inputs], top=2)
    requests = [[i] for i in range(len(inputs))] + [list(reversed(range(len(inputs))))]

    async def ask() -> list[Any]:
        async with client_of(make_app(server, AccessRules())) as client:
            bodies = [{"model": name, "inputs": [inputs[i] for i in places], "top": 2} for places in requests]
            return await asyncio.gather(*(client.post("/api/predict", json=body) for body in bodies))

    for places, answer in zip(requests, asyncio.run(ask()), strict=True):
        assert answer.status_code == 200, answer.text
        for i, found in zip(places, answer.json()["predictions"], strict=True):
            assert {*found} - {*expected[i]} <= {"confidence", "abstained"}
            for key, value in expected[i].items():
                numbers = isinstance(value, float | dict) or key == "probabilities"
                assert found[key] == (pytest.approx(value, abs=2e-4) if numbers else value), key


def test_texts_and_pairs_of_several_clients_do_not_meet(server: Server, models: dict[str, Bundle | Stack]) -> None:
    """Each client gets its own answers, whatever the others send; one that sends both is told which input differs."""
    inputs = [one for pair in zip(TEXTS, PAIRS, strict=True) for one in pair]

    async def ask() -> list[Any]:
        async with client_of(make_app(server, AccessRules())) as client:
            return await asyncio.gather(*(client.post("/api/predict", json={"model": "labels", "inputs": [one]}) for one in inputs))

    for one, answer in zip(inputs, asyncio.run(ask()), strict=True):
        (expected,) = predict(models["labels"], [one if isinstance(one, str) else tuple(one)])
        (found,) = answer.json()["predictions"]
        assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=2e-4)
    for path in ("predict", "compare"):
        body = {"model": "labels", "other": "lora", "labels": [None] * 3, "inputs": [TEXTS[0], TEXTS[1], PAIRS[0]]}
        body = body if path == "compare" else {"model": "labels", "inputs": body["inputs"]}
        refused = asked(server, f"/api/{path}", body)
        assert (refused.status_code, "input 2 is a pair" in refused.text) == (422, True)
    with pytest.raises(DataError, match="the first are pairs and input 1 is a text"):
        predict(models["labels"], [("a", "b"), "c"])


# ------------------------------------------------------------------------------------------------ the description


@pytest.fixture(scope="module")
def description(tokenizer: Tokenizer) -> dict[str, Any]:
    """``/openapi.json``, in which an object may hold nothing that is not described."""
    made = served({})
    found: dict[str, Any] = asked_for(made, "/openapi.json").json()
    made.close()
    for schema in found["components"]["schemas"].values():
        schema.setdefault("additionalProperties", False)
    return found


def fits(value: Any, schema: dict[str, Any], description: dict[str, Any]) -> None:
    """Raises unless a value fits a part of the description."""
    Draft202012Validator(schema | {"components": description["components"]}).validate(value)


def form(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


ASKED: list[tuple[str, dict[str, Any] | None]] = [
    ("/health", None),
    ("/api/models", None),
    ("/api/guarantees?model=sure", None),
    *[("/api/predict", {"model": name, "inputs": inputs}) for name, inputs in INPUTS.items()],
    ("/api/predict", {"model": "sure", "inputs": TEXTS, "target_error": 0.1}),
    ("/api/predict", {"model": "answers", "inputs": TEXTS, "target_error": 0.1}),
    ("/api/generate", {"model": "causal", "max_new_tokens": 4, "seed": 3}),
    ("/api/embed", {"model": "vectors", "texts": TEXTS}),
    ("/api/explain", {"model": "labels", "text": TEXTS[0]}),
    ("/api/tokens", {"model": "labels", "texts": TEXTS}),
]


@pytest.mark.parametrize(("path", "body"), ASKED)
def test_answers_fit_their_description(path: str, body: dict[str, Any] | None, server: Server, description: dict[str, Any]) -> None:
    """Every field is described, and has the type that is."""
    answer = asked_for(server, path) if body is None else asked(server, path, body)
    assert answer.status_code == 200, answer.text
    (operation,) = description["paths"][path.split("?")[0]].values()
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert "$ref" in schema
    fits(answer.json(), schema, description)


def test_training_texts_fit_their_description(models: dict[str, Bundle | Stack], description: dict[str, Any]) -> None:
    """Once the server has read them; it says 503 before, which is described, too."""
    labels = models["labels"]
    assert isinstance(labels, Bundle)
    made = Server(ServedModels([ServedModel.of(labels, "cups", tasks=[cups_task()])]), 1024, 0.005, 64)
    answer = asked_until_ready(made, {"inputs": TEXTS})
    made.close()
    fits(answer.json(), form("Nearest"), description)
    assert "503" in description["paths"]["/api/nearest"]["post"]["responses"]


def test_events_fit_their_description(server: Server, description: dict[str, Any]) -> None:
    """Those of a stream; the description names them, with the form of their data."""
    content = description["paths"]["/api/generate"]["post"]["responses"]["200"]["content"]
    assert "token (#/components/schemas/GeneratedToken), done" in content["text/event-stream"]["schema"]["description"]
    answer = asked(server, "/api/generate", {"model": "causal", "max_new_tokens": 4, "stream": True})
    kinds = set()
    for event in answer.text.strip().split("\n\n"):
        kind, data = (line.split(": ", 1)[1] for line in event.split("\n"))
        fits(json.loads(data), form(EVENTS[kind].__name__), description)
        kinds.add(kind)
    assert kinds == {"token", "done"}


REFUSED: list[tuple[str, Any, dict[str, str], int]] = [
    ("/api/predict", {"inputs": []}, {}, 422),
    ("/api/predict", {"inputs": ["a"], "model": "nobody"}, {}, 404),
    ("/api/predict", {"inputs": ["a"]}, {"origin": "http://evil.example"}, 403),
    ("/api/predict", {"inputs": ["a"]}, {"host": "evil.example"}, 421),
    ("/api/predict", {"inputs": ["a"]}, {"content-length": "9" * 12}, 413),
    ("/api/nearest", {"inputs": ["a"], "model": "labels"}, {}, 422),
    ("/api/generate", {"model": "labels"}, {}, 422),
    ("/api/card?model=nobody", None, {}, 404),
]


@pytest.mark.parametrize(("path", "body", "headers", "status"), REFUSED)
def test_refusals_fit_their_description(
    path: str, body: Any, headers: dict[str, str], status: int, server: Server, description: dict[str, Any]
) -> None:
    """Their statuses are named, all hold an error, and nothing of FastAPI's own errors is left."""

    async def ask() -> Any:
        async with client_of(make_app(server, AccessRules())) as client:
            return await client.request("POST" if body else "GET", path, json=body, headers=headers)

    answer = asyncio.run(ask())
    assert answer.status_code == status, answer.text
    (operation,) = description["paths"][path.split("?")[0]].values()
    assert operation["responses"][str(status)] == {"$ref": f"#/components/responses/{status}"}
    for response in (operation["responses"]["default"], description["components"]["responses"][str(status)]):
        fits(answer.json(), response["content"]["application/json"]["schema"], description)
    assert "ValidationError" not in json.dumps(description)


def test_the_token_is_described_where_one_is_needed(server: Server) -> None:
    """By its schemes, for all but the health."""
    rules = AccessRules(token="0123456789abcdef")

    async def ask() -> Any:
        async with client_of(make_app(server, rules)) as client:
            return await client.get("/openapi.json", headers={"authorization": f"Bearer {rules.token}"})

    found = asyncio.run(ask()).json()
    needed = {path: "security" in operation for path, one in found["paths"].items() for operation in one.values()}
    assert [path for path, token in needed.items() if not token] == ["/health"]
    assert "401" in found["paths"]["/api/predict"]["post"]["responses"]
    assert found["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}
    assert "security" not in asked_for(server, "/openapi.json").json()["paths"]["/api/predict"]["post"]


# ------------------------------------------------------------------------------------------------ evidence


def test_evidence_is_what_the_record_keeps(models: dict[str, Bundle | Stack]) -> None:
    """The findings of the audit, and accuracy by confidence on texts that chose nothing; null where there is neither."""
    sure = models["sure"]
    assert isinstance(sure, Bundle)
    found = FindingRecord(severity="note", sentence="3 texts are empty.")
    audited = replace(sure, history=(adapt_record(True, 0.7, 6).model_copy(update={"audit": (found,)}),))
    server = served({**models, "audited": audited})
    answers = {name: asked_for(server, f"/api/evidence?model={name}").json() for name in ("audited", "answers", "labels", "stack")}
    server.close()
    assert answers["audited"]["audit"] == [{"severity": "note", "sentence": "3 texts are empty."}]
    for name in ("audited", "answers"):
        shown = answers[name]["calibration"]
        confidence, right = np.array(HELD_OUT, dtype=float).T
        bins = reliability_bins(confidence, right, 10)
        assert [one["count"] for one in shown["bins"]] == [one.count for one in bins] == [20] * 10
        assert [one["accuracy"] for one in shown["bins"]] == [one.accuracy for one in bins] == [0.95] * 10
        assert shown["bins"][0]["low"] == wilson_interval(0.95, 20).low
        assert (shown["texts"], shown["accuracy"]) == (200, pytest.approx(0.95))
        assert shown["error"] == expected_calibration_error(confidence, right) > 2 * shown["error_of_chance"]
    for name in ("labels", "stack"):
        assert (answers[name]["audit"], answers[name]["calibration"]) == (None, None)


def test_questions_that_chose_a_model_are_no_evidence(models: dict[str, Bundle | Stack]) -> None:
    """Those of older versions did; and a few held-out texts are one bin."""
    answers = models["answers"]
    assert isinstance(answers, Bundle)
    record = answers.answers_record
    assert record is not None
    old = replace(answers, history=(record.model_copy(update={"chose_nothing": False}),))
    assert evidence_of(old)["calibration"] is None
    assert [one["count"] for one in (calibration_of(HELD_OUT[:19]) or {})["bins"]] == [19]


# ------------------------------------------------------------------------------------------------ guarantees, and too many requests


@pytest.mark.parametrize("name", ["sure", "answers"])
def test_the_threshold_of_a_guarantee_is_a_number(name: str, server: Server) -> None:
    """The one that the sentence rounds; null where the model always abstains, and where nothing is guaranteed."""
    model = server.models.get(name)
    assert model is not None
    for target, given in ((0.15, True), (0.3, True), (0.1, False)):
        answer = asked(server, "/api/predict", {"model": name, "inputs": TEXTS, "target_error": target}).json()
        threshold = model.threshold(target, 0.95).threshold
        assert answer["threshold"] == (threshold if given else None)
        for one in answer["predictions"]:
            assert one["abstained"] == (one["confidence"] < threshold)
    assert asked(server, "/api/predict", {"model": name, "inputs": TEXTS}).json()["threshold"] is None


def test_a_full_queue_is_429(models: dict[str, Bundle | Stack]) -> None:
    """At once, with the time to wait; what waits is answered, and so is who asks again."""
    server, go = served(models, queue=1), threading.Event()
    busy = server.computer.submit("slow", ["a"], 1, lambda inputs: go.wait() and inputs)
    while server.computer.waiting:
        pass
    waiting = server.computer.submit("slow", ["b"], 1, lambda inputs: inputs)
    body = {"model": "labels", "inputs": ["tea"]}
    refused = asked(server, "/api/predict", body)
    go.set()
    assert (refused.status_code, refused.headers["retry-after"], list(refused.json())) == (429, "1", ["error"])
    assert [list(one.result(10)) for one in (busy, waiting)] == [["a"], ["b"]]
    assert asked(server, "/api/predict", body).status_code == 200
    server.close()


def test_more_texts_at_once_than_may_be_generated_is_429(server: Server) -> None:
    """Streamed or whole; those that have begun end, and then there is room again."""
    body = {"model": "causal", "max_new_tokens": 3}

    async def ask() -> tuple[list[Any], list[Any], Any]:
        async with client_of(make_app(server, AccessRules())) as client:
            with server.computer.turns:  # nobody computes meanwhile
                begun = [asyncio.create_task(client.post("/api/generate", json=body | {"stream": True})) for _ in range(STREAMS)]
                while server.streams < STREAMS:
                    await asyncio.sleep(0.001)
                refused = [await client.post("/api/generate", json=body | {"stream": stream}) for stream in (True, False)]
            return await asyncio.gather(*begun), refused, await client.post("/api/generate", json=body)

    begun, refused, after = asyncio.run(ask())
    assert [one.status_code for one in begun] == [200] * STREAMS
    assert all(one.text.count("event: token") <= 3 and "event: done" in one.text for one in begun)
    assert [(one.status_code, one.headers["retry-after"]) for one in refused] == [(429, "1")] * 2
    assert after.status_code == 200
