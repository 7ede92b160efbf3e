"""Models for a server, one of each kind, and requests to an application without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers.models import SENTENCES, make_backbone
from helpers.mutants import LABELS, bases
from warmstart.app.guard import AccessRules, App
from warmstart.app.models import ServedModel, ServedModels
from warmstart.app.routes import Server, make_app
from warmstart.data.task import Split, Task
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.per_text import MultilabelHeadConfig
from warmstart.heads.per_token import TaggingHeadConfig
from warmstart.heads.settings import HeadConfig
from warmstart.model.bundle import Bundle, Calibration, Language
from warmstart.model.model import Model, fresh_head
from warmstart.model.stack import Member, Stack
from warmstart.tokenizer.tokenizer import Tokenizer

httpx = pytest.importorskip("httpx", reason="the server needs the extra 'app', and its tests httpx")
HOME = "http://127.0.0.1"
HELD_OUT = tuple((0.3 + i / 300, i % 20 != 0) for i in range(200))
"""confidence and correctness of held-out predictions, of which one in twenty is wrong"""
HEADS: dict[str, HeadConfig] = {
    "vectors": EmbeddingHeadConfig(),
    "many": MultilabelHeadConfig(classes=3),
    "tags": TaggingHeadConfig(classes=3),
}


@pytest.fixture(scope="module")
def models(tokenizer: Tokenizer) -> dict[str, Any]:
    """Models of every kind, by name; those of ``bases``, and more."""
    found: dict[str, Bundle | Stack] = dict(bases(tokenizer))
    labels, causal = found["labels"], found["causal"]
    found["sure"] = replace(labels, calibration=Calibration(temperature=1.5, held_out=HELD_OUT))
    found["stack"] = Stack((Member("one", labels), Member("two", labels, 2.0)), "classification", labels.labels)
    for name, head in HEADS.items():
        backbone = make_backbone(vocab_size=tokenizer.vocab_size)
        model = Model(backbone, fresh_head(head, backbone, 0), causal=False).eval()
        found[name] = Bundle(model, tokenizer, LABELS if hasattr(head, "classes") else ())
    language = Language(max_answer_tokens=4)
    found["answers"] = replace(causal, calibration=Calibration(held_out=HELD_OUT), language=language)
    return found


def server_of(*models: ServedModel, queue: int = 64) -> Server:
    """A server; who makes it closes it."""
    return Server(ServedModels([*models]), 1024, 0.005, queue)


def served(models: dict[str, Any], queue: int = 64) -> Server:
    """A server of models by their names."""
    return server_of(*(ServedModel.of(model, name) for name, model in models.items()), queue=queue)


@pytest.fixture
def server(models: dict[str, Any]) -> Iterator[Server]:
    """A server of models of every kind."""
    made = served(models)
    yield made
    made.close()


@asynccontextmanager
async def client_of(app: App, **named: Any) -> AsyncIterator[Any]:
    """A client that talks to an application."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=HOME, **named) as client:
        yield client


def asked(server: Server, path: str, body: Any = None, rules: AccessRules = AccessRules(), **request: Any) -> Any:  # noqa: B008
    """The answer to one request, which is a GET if it has no content."""

    async def ask() -> Any:
        async with client_of(make_app(server, rules)) as client:
            if body is None and "content" not in request:
                return await client.get(path, **request)
            return await client.post(path, **({} if body is None else {"json": body}), **request)

    return asyncio.run(ask())


def asked_until_ready(server: Server, body: Any) -> Any:
    """The nearest training texts, once the server has read them."""
    while (answer := asked(server, "/api/nearest", body)).status_code == 503:
        assert "of 40; try again soon" in answer.json()["error"]
        assert answer.headers["retry-after"] == "1"
    return answer


def events_of(answer: Any) -> list[tuple[str, Any]]:
    """Kind and data of the events of a stream."""
    lines = ([line.split(": ", 1)[1] for line in event.split("\n")] for event in answer.text.strip().split("\n\n"))
    return [(kind, json.loads(data)) for kind, data in lines]


def cups_task(labels: tuple[str, ...] = LABELS) -> Task:
    """Training texts for the models that label cups; more than are embedded at once."""
    texts = tuple(f"{SENTENCES[i % 4]} {i} {'cats' * (i % 3)}" for i in range(40))
    train = Split(texts, np.arange(40) % len(labels))
    return Task("cups", labels, train, train.take(np.arange(0)), train)
