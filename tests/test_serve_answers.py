"""What a server answers is what the library computes, in the form that ``/openapi.json`` describes; so are its refusals."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from helpers.models import SENTENCES
from helpers.restarts import adapt_record
from helpers.served import HELD_OUT, asked, asked_until_ready, client_of, cups_task, events_of, served, server_of
from helpers.served import models as models
from helpers.served import server as server
from helpers.served_page import serving_app
from helpers.workbook import workbook
from warmstart.app import answers
from warmstart.app.answers import MOST_PROBLEMS, Fields, PredictBody, TextsBody, problems
from warmstart.app.batches import BusyError, Computer, make_way
from warmstart.app.guard import AccessRules, Guard, network_of
from warmstart.app.models import ServedModel
from warmstart.app.replies import Ended, GeneratedToken, predictions_for
from warmstart.app.routes import STREAMS, Server, make_app
from warmstart.app.running import SPARE_FILES, Connections, OnceAMinute
from warmstart.errors import DataError
from warmstart.stats.calibration import expected_calibration_error
from warmstart.tasks.predict import predict
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("socket_enabled")  # of the event loop with itself
TEXTS = ["She holds the cat", "a river", "dogs and cats and " * 12]
PAIRS = [[one, SENTENCES[i]] for i, one in enumerate(TEXTS)]
INPUTS: dict[str, list[Any]] = {
    "labels": TEXTS, "lora": PAIRS, "sure": TEXTS, "stack": TEXTS, "many": TEXTS, "number": TEXTS,
    "tags": [one.split() for one in TEXTS], "answers": TEXTS[:2],
}  # fmt: skip
"""model -> inputs of its task"""


def predicted_at_once(server: Server, bodies: list[dict[str, Any]]) -> list[Any]:
    """The answers to several requests that come together."""

    async def ask() -> list[Any]:
        async with client_of(make_app(server, AccessRules())) as client:
            return await asyncio.gather(*(client.post("/api/predict", json=body) for body in bodies))

    return asyncio.run(ask())


def test_every_task_type_is_answered_as_by_the_library(
    server: Server, models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values to the last digits that are given; requests at once, each of some of the inputs, in another order."""
    batches = list[int]()

    def predict_and_note(model: Any, inputs: Sequence[Any], *settings: Any) -> Any:
        batches.append(len(inputs))
        return predictions_for(model, inputs, *settings)

    monkeypatch.setattr("warmstart.app.routes.predictions_for", predict_and_note)
    for name, inputs in INPUTS.items():
        expected = predict(models[name], [one if isinstance(one, str) else tuple(one) for one in inputs], top=2)
        requests = [[i] for i in range(len(inputs))] + [list(reversed(range(len(inputs))))]
        bodies = [{"model": name, "inputs": [inputs[i] for i in places], "top": 2} for places in requests]
        for places, answer in zip(requests, predicted_at_once(server, bodies), strict=True):
            assert answer.status_code == 200, (name, answer.text)
            for i, found in zip(places, answer.json()["predictions"], strict=True):
                assert {*found} - {*expected[i]} <= {"confidence", "abstained", "unknown"}, name
                for key, value in expected[i].items():
                    numbers = isinstance(value, float | dict) or key == "probabilities"
                    assert found[key] == (pytest.approx(value, abs=2e-4) if numbers else value), (name, key)
    assert len(batches) < sum(len(inputs) + 1 for inputs in INPUTS.values()), "requests at once are computed together"


def test_a_blank_text_gets_no_label(server: Server) -> None:
    """As from the command ``predict``; the texts beside it keep theirs."""
    for name, what in (("labels", "label"), ("labels", "abstained"), ("many", "labels"), ("number", "number")):
        found = asked(server, "/api/predict", {"model": name, "inputs": ["", TEXTS[0], " \n"]}).json()["predictions"]
        assert [one[what] in (None, True) for one in found] == [True, False, True], (name, what)


def test_texts_and_pairs_of_several_clients_do_not_meet(server: Server, models: dict[str, Any]) -> None:
    """Each client gets its own answers, whatever the others send; one that sends both is told which input differs."""
    inputs = [one for pair in zip(TEXTS, PAIRS, strict=True) for one in pair]
    bodies = [{"model": "labels", "inputs": [one]} for one in inputs]
    for one, answer in zip(inputs, predicted_at_once(server, bodies), strict=True):
        (expected,) = predict(models["labels"], [one if isinstance(one, str) else tuple(one)])
        (found,) = answer.json()["predictions"]
        assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=2e-4)
    refused = asked(server, "/api/predict", {"model": "labels", "inputs": [TEXTS[0], TEXTS[1], PAIRS[0]]})
    assert (refused.status_code, "input 2 is a pair" in refused.text) == (422, True)
    with pytest.raises(DataError, match="the first are pairs and input 1 is a text"):
        predict(models["labels"], [("a", "b"), "c"])


@pytest.mark.parametrize(("pairs", "given", "wanted"), [(False, PAIRS, "a text"), (True, TEXTS, "a list of two texts")])
def test_a_model_reads_what_it_learned_from(pairs: bool, given: list[Any], wanted: str, models: dict[str, Any]) -> None:
    """Single texts or pairs, as its record says; the other kind is refused in words."""
    record = adapt_record(0.7, 6)
    recorded = record.model_copy(update={"data": (record.data[0].model_copy(update={"pairs": pairs}),)})
    made = served({"labels": replace(models["labels"], history=(recorded,))})
    assert asked(made, "/api/models").json()["models"][0]["several_texts"] is pairs
    refused = asked(made, "/api/predict", {"inputs": given})
    assert (refused.status_code, f"each input must be {wanted}, since the model learned from" in refused.text) == (422, True)
    assert asked(made, "/api/predict", {"inputs": PAIRS if pairs else TEXTS}).status_code == 200
    made.close()


# ------------------------------------------------------------------------------------------------ the description


@pytest.fixture(scope="module")
def description(tokenizer: Tokenizer) -> dict[str, Any]:
    """``/openapi.json``, in which an object may hold nothing that is not described."""
    made = served({})
    found: dict[str, Any] = asked(made, "/openapi.json").json()
    made.close()
    for schema in found["components"]["schemas"].values():
        schema.setdefault("additionalProperties", False)
    return found


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


def test_answers_fit_their_description(server: Server, models: dict[str, Any], description: dict[str, Any]) -> None:
    """Every field is described, and has the type that is; the nearest texts, once they are read, and what is said before."""
    for path, body in ASKED:
        answer = asked(server, path, body)
        assert answer.status_code == 200, (path, answer.text)
        (operation,) = description["paths"][path.split("?")[0]].values()
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert "$ref" in schema, path
        fits(answer.json(), schema, description)
    made = server_of(ServedModel.of(models["labels"], "cups", tasks=[cups_task()]))
    fits(asked_until_ready(made, {"inputs": TEXTS}).json(), form("Nearest"), description)
    made.close()
    assert "503" in description["paths"]["/api/nearest"]["post"]["responses"]


def fits(value: Any, schema: dict[str, Any], description: dict[str, Any]) -> None:
    """Raises unless a value fits a part of the description."""
    Draft202012Validator(schema | {"components": description["components"]}).validate(value)


def form(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def test_a_workbook_is_read_and_what_is_none_refused(server: Server) -> None:
    """In words for the name it has at its sender, which reaches no disk here; never with the way of a terminal."""
    for content, name, status, words in (
        (workbook([["id", "text"], [1, "tea"]]), "a.xlsx", 200, "['id', 'text'], ['1', 'tea']"),
        (b"PK\x03\x04", "../etc/passwd", 422, "../etc/passwd cannot be read as xlsx"),
        (b"", "a.xlsx", 422, "save the sheet with the texts as csv"),
        (
            workbook([["a"], [1]], [["b"], [2]]),
            "two.xlsx",
            422,
            "two.xlsx must have one sheet with rows, but has S1, S2; save the sheet",
        ),
        (b"", "a" * 256, 422, "name has"),
    ):
        answer = asked(server, f"/api/table?name={name}", content=content)
        assert answer.status_code == status, answer.text
        assert words in str(answer.json()), answer.text
        assert "--sheet" not in answer.text


def test_events_fit_their_description(server: Server, description: dict[str, Any]) -> None:
    """Events of a stream; the description names the form of their data."""
    content = description["paths"]["/api/generate"]["post"]["responses"]["200"]["content"]
    assert "token (#/components/schemas/GeneratedToken), done" in content["text/event-stream"]["schema"]["description"]
    answer = asked(server, "/api/generate", {"model": "causal", "max_new_tokens": 4, "stream": True})
    for kind, data in (events := events_of(answer)):
        (GeneratedToken if kind == "token" else Ended).model_validate(data)
    assert {kind for kind, _ in events} == {"token", "done"}


A = ["a"]
OF_PYTHON = r"function|validator|constrained|\bstr\b|pydantic|<|0x|valid string|Input|Traceback"
WRONG: list[tuple[str, Any, int]] = [
    ("predict", {"inputs": []}, 422),
    ("predict", {"inputs": "a"}, 422),
    ("predict", {"inputs": A, "model": "nobody"}, 404),
    ("predict", {"inputs": A, "model": "../../etc/passwd"}, 404),
    ("predict", {"inputs": A, "model": "causal"}, 422),
    ("predict", {"inputs": [["a", "b", "c"]], "model": "labels"}, 422),
    ("predict", {"inputs": A, "model": "tags"}, 422),
    ("predict", {"inputs": A, "model": "labels", "target_error": 1.5}, 422),
    ("generate", {"model": "masked", "prompt": "a"}, 422),
    ("generate", {"model": "causal", "temperature": 0}, 422),
    ("generate", {"model": "causal", "max_new_tokens": 10**9}, 422),
    ("generate", {"model": "causal", "seed": -1}, 422),
    ("nearest", {"inputs": A, "model": "labels"}, 422),
    ("embed", {"model": "labels", "texts": A}, 422),
    ("explain", {"model": "labels", "text": ""}, 422),
    ("explain", {"model": "labels", "text": "a " * 500}, 422),
    ("explain", {"model": "labels", "text": "a b", "target": "no such label"}, 422),
    ("reload", {"model": "nobody"}, 404),
    ("card?model=nobody", None, 404),
    ("nothing", {}, 404),
]
RAW = [
    b"{", b"1", b"", b"[]", b"[" * 100_000, b"\xff\xfe", b'{"inputs": ["\\ud800"], "model": "labels"}',
    b'{"inputs": ["a"], "top": ' + b"9" * 5000 + b"}", b'{"model": "causal", "temperature": NaN}',
    b'{"model": "causal", "temperature": 1e999}', b'{"inputs": ["a"], "inputs": 3}', b'{"inputs": ["a"], "model": "\\u0000"}',
]  # fmt: skip
FOREIGN: list[tuple[dict[str, str], int]] = [
    ({"host": "evil.example"}, 421),
    ({"host": "127.0.0.1.evil.example"}, 421),
    ({"host": "[::1"}, 421),
    ({"host": "localhost:8000"}, 422),
    *[({"origin": one}, 403) for one in ("http://evil.example", "null", "http://[", "http://[::1", "http://]", "")],
    ({"host": "", "origin": "http://["}, 421),
    ({"host": "localhost:8000", "origin": "http://localhost:9000"}, 403),
    ({"host": "localhost:8000", "origin": "http://localhost:8000"}, 422),
    ({"content-length": "99999999999999999999"}, 413),
]


def test_a_wrong_request_is_told_what_is_wrong(server: Server, description: dict[str, Any]) -> None:
    """With the status and the words for it, as described, and nothing of our code, of Python's, or of its libraries' errors."""
    for name, body, status in WRONG:
        answer = asked(server, f"/api/{name}", body)
        assert answer.status_code == status, (name, str(body)[:200], answer.text)
        assert not re.search(OF_PYTHON, said := answer.json()["error"]), said
        assert said, (name, body)
        for operation in description["paths"].get(f"/api/{name}".split("?")[0], {}).values():
            for response in (operation["responses"]["default"], operation["responses"][str(status)]):
                fits(answer.json(), response["content"]["application/json"]["schema"], description)
    assert "ValidationError" not in json.dumps(description)
    for content in RAW:
        for path in ("/api/predict", "/api/generate", "/api/reload"):
            answer = asked(server, path, content=content, headers={"content-type": "application/json"})
            assert 400 <= answer.status_code < 500, (content[:80], path, answer.text)
            assert answer.json()["error"], (content[:80], path)


IN_WORDS: list[tuple[str, Any, str]] = [
    ("predict", {"inputs": [5]}, "inputs[0] must be a text or a list"),
    ("predict", {"inputs": ["a", ["b", 5]]}, "inputs[1][1] must be a text"),
    ("predict", {"inputs": ["a" * 100_003]}, "inputs[0] has 100,003 characters, and at most 100,000 are read of a text"),
    ("predict", {"inputs": A * 1001}, "inputs must have at most 1,000 entries, but has 1,001; send them in several requests"),
    ("predict", {}, "inputs is missing"),
    ("predict", {"inputs": A, "more": 1, "top": 1.5}, "top must be a whole number; more is not a field"),
    ("generate", {"temperature": "warm", "stream": 7}, "temperature must be a number; stream must be true or false"),
    ("generate", {"temperature": 1000}, "temperature must be at most 100"),
    ("explain", {"text": "\ud800"}, "text must be Unicode"),
    ("explain", {"text": "a", "\ud800": 1}, "the body must be Unicode"),
    ("explain", {"text": "a", "k" * 70: 1}, f"{'k' * 60}… is not a field that it has"),
    (
        "explain",
        {"text": "a"} | {f"k{i}": 1 for i in range(8)},
        "; ".join([*(f"k{i} is not a field that it has" for i in range(5)), "and 3 more"]),
    ),
    ("predict", [], "the body must be an object, sent with content-type: application/json"),
]
"""endpoint, a body, and what is said of it"""


def test_what_is_wrong_with_a_body_is_said_in_words(server: Server) -> None:
    """Which value, and what it must be."""
    for name, body, words in IN_WORDS:
        answer = asked(server, f"/api/{name}", content=json.dumps(body), headers={"content-type": "application/json"})
        assert f"describes it, but {words}" in (said := answer.json()["error"])
        assert (answer.status_code, re.search(OF_PYTHON, said)) == (422, None), said


MANY = 100_000
LARGE: list[tuple[type[Fields], dict[str, Any], str]] = [
    (PredictBody, {f"k{i}": 1 for i in range(MANY)}, "the body has 100,000 unknown fields, the first of which is k0"),
    (PredictBody, {"inputs": [1] * MANY}, "inputs[0] must be a text or a list"),
    (PredictBody, {"inputs": [[1] * 500] * 500}, "inputs[0][0] must be a text"),
    (TextsBody, {"texts": [1] * MANY}, "texts[0] must be a text"),
]
"""bodies with many problems, and what is said of them"""


def test_a_body_full_of_problems_holds_nobody_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """pydantic finds few of them, at most 20 are looked at, and the number of the others is said; others are answered."""
    for form, body, words in LARGE:
        with pytest.raises(ValidationError) as error:
            form.model_validate(body)
        assert error.value.error_count() <= 3
        assert f"describes it, but {words}" in problems(error.value)

    look_at, looked_at = answers._place, list[str]()
    monkeypatch.setattr(answers, "_place", lambda loc: looked_at.append(loc) or look_at(loc))
    wrong = [{"type": "missing", "loc": ("body", f"k{i}"), "input": None} for i in range(MANY)]
    said = problems(SimpleNamespace(errors=lambda: wrong))
    assert said.endswith("but " + "; ".join([*(f"k{i} is missing" for i in range(5)), "and 99,995 more"]))
    assert len(looked_at) <= MOST_PROBLEMS
    answer = asked(server, "/api/predict", LARGE[0][1])
    assert (answer.status_code, LARGE[0][2] in answer.json()["error"]) == (422, True)
    assert asked(server, "/health").status_code == 200


def test_every_list_in_a_request_is_read_up_to_its_first_mistake() -> None:
    """Whatever the request: each further mistake would cost time in which nobody else is answered."""
    forms, lists = [*Fields.__subclasses__()], 0
    for form in forms:  # grows while it is gone through
        forms += form.__subclasses__()
        schema = str(form.__pydantic_core_schema__)
        assert schema.count("'type': 'list'") == schema.count("'fail_fast': True"), form
        lists += schema.count("'type': 'list'")
    assert lists > 3


ODD = (
    "", " \n ", "\x00\x01\x1b\x7f\u202e\u200b\ufeff", "\r\n\x85\u2028", "ß" * 400, "ß" * 400 + " cat dog river", "\u0301" * 300,
)  # fmt: skip
"""texts without a word, or whose words lie behind the context"""
OF_TEXTS: dict[str, list[Callable[[str], dict[str, Any]]]] = {
    "predict": [
        lambda text: {"model": "labels", "inputs": [text, ["a", text]]},
        lambda text: {"model": "tags", "inputs": [[text], ["a", text]]},
        lambda text: {"model": "answers", "inputs": [text]},
        lambda text: {"model": "stack", "inputs": [text]},
    ],
    "nearest": [lambda text: {"model": "cups", "inputs": [text]}],
    "embed": [lambda text: {"model": "vectors", "texts": [text]}],
    "tokens": [lambda text: {"model": "labels", "texts": [text]}],
    "explain": [lambda text: {"model": "labels", "text": text}, lambda text: {"model": "causal", "text": text}],
    "generate": [lambda text: {"model": "causal", "prompt": text, "max_new_tokens": 2}],
}  # fmt: skip
"""endpoint -> bodies of a text"""


def test_no_text_is_a_fault_of_the_server(models: dict[str, Any]) -> None:
    """Empty ones, control characters, and words that lie behind the context: an answer, or what is wrong with the text."""
    each = (ServedModel.of(model, name) for name, model in models.items())
    made = server_of(*each, ServedModel.of(models["labels"], "cups", tasks=[cups_task()]))
    asked_until_ready(made, {"model": "cups", "inputs": ["tea"]})
    for path, bodies in OF_TEXTS.items():
        for body in (make(text) for make in bodies for text in ODD):
            answer = asked(made, f"/api/{path}", body)
            assert answer.status_code in (200, 422), (path, body, answer.text)
    made.close()


def test_other_hosts_and_origins_are_refused(server: Server, description: dict[str, Any]) -> None:
    """So that no page of another site can ask in somebody's name."""
    for headers, status in FOREIGN:
        answer = asked(server, "/api/predict", content=b"{}", headers=headers)
        assert answer.status_code == status, headers
        assert "access-control-allow-origin" not in answer.headers
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        content = description["paths"]["/api/predict"]["post"]["responses"][str(status)]["content"]
        fits(answer.json(), content["application/json"]["schema"], description)


def test_a_token_is_needed_where_there_is_one(server: Server) -> None:
    """For all but the health, whatever the name it is asked by, as the description says; a wrong one is no use."""
    rules, basic = AccessRules(token="0123456789abcdef"), base64.b64encode(b"me:0123456789abcdef").decode()
    for given, status in {"": 401, "Bearer no": 401, "Bearer 0123456789abcdef": 422, f"Basic {basic}": 422}.items():
        headers = {"authorization": given} if given else {}
        assert asked(server, "/api/predict", {}, rules, headers=headers).status_code == status, given
    assert [asked(server, path, None, rules).status_code for path in ("/health", "/openapi.json")] == [200, 401]
    assert asked(server, "/health", None, rules, headers={"host": "10.0.0.7:8000"}).status_code == 200, "a probe asks by address"
    found = asked(server, "/openapi.json", None, rules, headers={"authorization": f"Bearer {rules.token}"}).json()
    needed = {path: "security" in operation for path, one in found["paths"].items() for operation in one.values()}
    assert [path for path, token in needed.items() if not token] == ["/health"]
    assert "401" in found["paths"]["/api/predict"]["post"]["responses"]
    assert found["components"]["securitySchemes"]["token"] == {"type": "http", "scheme": "bearer"}
    assert "security" not in asked(server, "/openapi.json").json()["paths"]["/api/predict"]["post"]


def test_too_many_requests_are_refused(server: Server) -> None:
    """A client that waits may ask again; all addresses of a network are one client."""
    now = 0.0

    async def ask() -> list[int]:
        nonlocal now
        async with client_of(Guard(make_app(server, AccessRules()), AccessRules(rate=10), lambda: now)) as client:
            found = [(await client.get("/health")).status_code for _ in range(11)]
            now = 0.11
            return [*found, (await client.get("/health")).status_code]

    assert asyncio.run(ask()) == [*[200] * 10, 429, 200]
    assert [network_of(one) for one in ("1.2.3.4", "::ffff:1.2.3.4", "")] == ["1.2.3.4", "1.2.3.4", ""]
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")


@pytest.mark.parametrize("framing", ["content-length", "chunked"])
def test_the_answer_to_a_body_that_is_too_long_arrives(framing: str) -> None:
    """At a client that sends all of 10 MB before it reads, whether it says how long the body is or not."""

    async def never(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("a body that is too long reaches no application")

    length, lead = (10 << 20, b"") if framing == "content-length" else ("chunked", b"%x\r\n" % (10 << 20))
    name, end = (framing, b"") if framing == "content-length" else ("transfer-encoding", b"\r\n0\r\n\r\n")
    head = f"POST /api/predict HTTP/1.1\r\nhost: 127.0.0.1\r\n{name}: {length}\r\n\r\n".encode()
    with serving_app(Guard(never, AccessRules())) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 60) as client:
            client.sendall(head + lead + b" " * (10 << 20) + end)
            answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer
    assert b'{"error": "a body must have at most 2,097,152 bytes"}' in answer


def test_a_refused_body_is_read_no_further_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it never ends, or its client falls silent; whether it says how long it is or not."""
    monkeypatch.setattr("warmstart.app.guard.LINGER_BYTES", 100)
    monkeypatch.setattr("warmstart.app.guard.SILENT_SECONDS", 0.01)
    received, sent = 0, list[Any]()

    async def endless() -> Any:
        nonlocal received
        received += 10
        return {"type": "http.request", "body": b"x" * 10, "more_body": True}

    async def silent() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    length = (b"content-length", b"9999999")
    for receive, headers, read in ((endless, [length], 100), (silent, [length], 0), (endless, [], 160)):
        scope = {"type": "http", "path": "/", "headers": [(b"host", b"127.0.0.1"), *headers]}
        asyncio.run(Guard(make_app, AccessRules(most_bytes=50))(scope, receive, send))  # type: ignore[arg-type]
        assert (sent[0]["status"], sent[-1], received) == (413, {"type": "http.response.body", "body": b""}, read)
        received = 0
        sent.clear()


def test_an_address_has_a_share_of_the_connections() -> None:
    """The oldest one that asks for nothing makes room for the next; of one address, and where all are taken."""
    connections = Connections(SPARE_FILES + 8)
    busy, idle = ([Mock(idle=one) for _ in range(9)] for one in (False, True))
    first, second = idle[0], busy[0]
    assert all(connections.admit(one, "a") for one in busy[1:4])
    assert connections.admit(first, "a")
    assert connections.admit(second, "a")
    assert first.close.called
    assert not connections.admit(idle[1], "a")
    assert all(connections.admit(one, name) for one, name in zip(busy[4:], "bcde", strict=False))
    assert not connections.admit(busy[8], "f")
    connections.forget(second, "a")
    assert connections.admit(idle[2], "f")


def test_a_line_is_logged_once_a_minute() -> None:
    """Whatever may be sent, the log does not fill the disk; another line is logged at once."""
    once = OnceAMinute(iter((0, 1, 1, 59, 60)).__next__)
    lines = ("no files", "no files", "other", "no files", "no files")
    passed = [once.filter(logging.LogRecord("asyncio", logging.ERROR, "", 0, line, (), None)) for line in lines]
    assert passed == [True, False, True, False, True]


# ------------------------------------------------------------------------------------------------ evidence


def test_evidence_is_what_the_record_keeps(models: dict[str, Any]) -> None:
    """Findings, and how well confidence fits texts that chose nothing; null where there is neither."""
    audited = replace(models["sure"], history=(adapt_record(0.7, 6, {}, ("note", "3 texts are empty.")),))
    server = served({**models, "audited": audited})
    answers = {name: asked(server, f"/api/evidence?model={name}").json() for name in ("audited", "answers", "labels", "stack")}
    server.close()
    assert answers["audited"]["audit"] == [{"severity": "note", "sentence": "3 texts are empty."}]
    for name in ("audited", "answers"):
        shown = answers[name]["calibration"]
        confidence, right = np.array(HELD_OUT, dtype=float).T
        assert (shown["texts"], shown["accuracy"]) == (200, pytest.approx(0.95))
        assert shown["error"] == expected_calibration_error(confidence, right) > 2 * shown["error_of_chance"]
    for name in ("labels", "stack"):
        assert (answers[name]["audit"], answers[name]["calibration"]) == (None, None)
        assert answers[name]["accuracy"].startswith("No record says how often it is right on new texts")
    assert answers["answers"]["accuracy"] == "Right on 95 of 100 new texts (likely 91 to 97), by 200 held-out texts."


# ------------------------------------------------------------------------------------------------ guarantees, and too many requests


def test_a_guarantee_lets_the_model_abstain(server: Server) -> None:
    """Below a threshold, which is null where it always abstains or nothing is guaranteed; without texts for it, it says so."""
    for name in ("sure", "answers"):
        model, body = server.models.get(name), {"model": name, "inputs": TEXTS}
        for target, given in ((0.15, True), (0.3, True), (0.05, False)):
            answer = asked(server, "/api/predict", body | {"target_error": target}).json()
            threshold = model.threshold(target, 0.95).threshold
            assert answer["threshold"] == (threshold if given else None), (name, target)
            said = f"at most {target:.0%} of the predictions that reach it are wrong"
            assert said in answer["guarantee"] or "always abstains" in answer["guarantee"], (name, target)
            assert all(one["abstained"] == (one["confidence"] < threshold) for one in answer["predictions"]), (name, target)
            assert name == "answers" or all((one["label"] is None) == one["abstained"] for one in answer["predictions"]), target
        assert asked(server, "/api/predict", body).json()["threshold"] is None, name
    refused = asked(server, "/api/predict", {"model": "labels", "inputs": TEXTS, "target_error": 0.1})
    assert (refused.status_code, "--calibration-fraction" in refused.json()["error"]) == (422, True)


def test_a_full_queue_is_429(models: dict[str, Any]) -> None:
    """At once, with the time to wait; what waits is answered, and so is who asks again; after its end nobody is."""
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
    with pytest.raises(BusyError):
        server.computer.submit("slow", ["d"], 1, lambda inputs: inputs)


def test_the_fault_of_one_request_is_not_that_of_others() -> None:
    """A batch that fails is computed again request by request; who left meanwhile is not computed for."""
    go, computer, seen = threading.Event(), Computer(100, 0, 10), list[int]()

    def inverse(inputs: Sequence[int]) -> list[float]:
        go.wait()
        seen.extend(inputs)
        return [1 / one for one in inputs]

    busy = computer.submit("first", [5], 1, inverse)
    while computer.waiting:
        pass
    futures = [computer.submit("inverse", [one], 1, inverse) for one in (1, 2, 0, 4, 7)]
    futures[4].cancel()
    go.set()
    assert [one.result(10) for one in (busy, futures[0], futures[1], futures[3])] == [[0.2], [1], [0.5], [0.25]]
    with pytest.raises(ZeroDivisionError):
        futures[2].result(10)
    computer.stop()
    assert 7 not in seen


def test_a_text_waits_for_a_part_of_a_batch_only() -> None:
    """Large requests are computed in parts, in turn with each other and with small ones; their answers come whole, in order."""
    computer, go, seen = Computer(100, 0, 10), threading.Event(), list[tuple[str, int]]()

    def slow(name: str, inputs: Sequence[int]) -> list[int]:
        go.wait()
        time.sleep(0.002)  # as a network, which lets other threads run
        seen.append((name, len(inputs)))
        return [-one for one in inputs]

    large = [computer.submit("key", range(100), 1_000, partial(slow, name)) for name in ("one", "other")]
    small = [computer.submit("key", [number], 50, partial(slow, f"text {number}")) for number in (1, 2, 3)]
    go.set()
    assert [[*one.result(60)] for one in large] == [[-one for one in range(100)]] * 2
    assert [one.result(0) for one in small] == [[-1], [-2], [-3]]
    computer.stop()
    assert {count for name, count in seen if "text" not in name} == {2}, "a quarter of a batch of 100 tokens, in texts of 10"
    assert {number for number, (name, _) in enumerate(seen) if "text" in name} <= set(range(6)), "a part after each small batch"
    parts = [name for name, _ in seen if "text" not in name]
    assert max(abs(parts[:number].count("one") - parts[:number].count("other")) for number in range(len(parts))) <= 1


def test_a_text_waits_for_a_product_of_a_part_only() -> None:
    """Between the products of a network, a large request lets go first who waits."""
    computer, begun, answered = Computer(100, 0, 10), threading.Event(), threading.Event()

    def blocks(inputs: Sequence[str]) -> Sequence[str]:
        begun.set()
        while not answered.is_set():
            make_way()
        return inputs

    large = computer.submit("large", ["long"] * 2, 60, blocks)
    begun.wait()
    assert [*computer.submit("small", ["short"], 1, lambda inputs: inputs).result(10)] == ["short"]
    assert not large.done()
    answered.set()
    assert [*large.result(10)] == ["long", "long"]
    computer.stop()


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
