"""What clients ask of a server under load, and whether its answers are those of the library, computed before."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.inference import folder_of, texts
from benchmarks.served_models import NEW_TOKENS, causal_model, continuation_of

from warmstart.data.task import Split, Task
from warmstart.generation.settings import GenerateConfig
from warmstart.generation.trace import trace
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.interop.convert import from_huggingface
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle, save
from warmstart.model.inference import embed
from warmstart.model.model import swap_head
from warmstart.seeding import rng
from warmstart.tasks.load import save_task
from warmstart.tasks.predict import predict

LABELS = tuple(f"LABEL_{i}" for i in range(6))
EMBEDDED, PROMPTS, TRAINING = 50, 40, 200
"""texts with a known vector, prompts with a known continuation, training texts of the task"""
ROUNDING, MARGIN = 3e-4, 1e-3
"""by which probabilities may differ from the library's; by which the most probable token must lead"""
Check = Callable[[str], bool]
"""whether the text of an answer is right"""
Question = tuple[str, dict[str, Any], Check]
"""name of the request, its body, and the check of its answer"""


@dataclass(frozen=True)
class SoakedModels:
    """The models of a server: two that label texts, one that gives vectors, one that writes."""

    place: Path
    width: int = 384
    """of the first"""

    def build(self) -> SoakedModels:
        """Write their folders, and the task of their labels."""
        folder_of(self.place / "bert", self.width)
        folder_of(self.place / "other", width=96, seed=1)
        causal_model(self.place / "writer")
        bundle = from_huggingface(self.place / "bert")
        save(Bundle(swap_head(bundle.model, EmbeddingHeadConfig(), 0).eval(), bundle.tokenizer), self.place / "vectors")
        labels = rng(0, "labels").integers(0, len(LABELS), 2 * TRAINING).astype(np.int64)
        known = texts()[: 2 * TRAINING]
        train, held = (Split(tuple(known[part]), labels[part]) for part in (slice(TRAINING), slice(TRAINING, None)))
        save_task(Task("topics", LABELS, train, held, held), self.place / "task")
        return self

    @property
    def words(self) -> list[str]:
        """As ``warmstart serve`` takes them."""
        foreign = [f"{name}=hf:{self.place / name}" for name in ("bert", "other", "writer")]
        return [*foreign, f"vectors={self.place / 'vectors'}"]

    @property
    def names(self) -> list[str]:
        """By which requests call them."""
        return [one.partition("=")[0] for one in self.words]

    @property
    def task(self) -> Path:
        """The manifest of the labelled texts."""
        return self.place / "task" / "task.yaml"


class RightAnswers:
    """Requests, and what the library answers to them."""

    def __init__(self, models: SoakedModels, count: int | None = None) -> None:
        self.texts = texts()[:count]
        loaded = {name: from_huggingface(models.place / name) for name in ("bert", "other", "writer")}
        self.labelled: dict[str, Sequence[Mapping[str, Any]]] = {
            name: predict(loaded[name], self.texts, top=len(LABELS)) for name in ("bert", "other")
        }
        self.vectors = embed(load_bundle(models.place / "vectors"), self.texts[:EMBEDDED]).numpy()
        self.continued = dict(_continuations(loaded["writer"], self.texts[:PROMPTS]))
        plain = {"predict": 10, "tokens": 2, "explain": 1, "generate": 2, "stream": 2, "embed": 2}
        self.weights = {False: plain, True: plain | {"nearest": 2}}
        """whether the server knows training texts -> kinds of requests, and how often each is chosen"""

    def question(self, draw: random.Random, *, texts_known: bool) -> tuple[str, Question]:
        """A kind of request, and one of it."""
        weights = self.weights[texts_known]
        (kind,) = draw.choices([*weights], [*weights.values()])
        question: Question = getattr(self, f"_{kind}")(draw)
        return kind, question

    def _some(self, draw: random.Random, most: int = 40) -> list[int]:
        return draw.choices(range(len(self.texts)), k=1 if draw.random() < 0.5 else draw.randrange(1, most))

    def are_right(self, model: str, places: Sequence[int], found: Sequence[Mapping[str, Any]]) -> bool:
        """Whether predictions for the texts at these places are the library's, up to rounding: among equals any label is right."""
        if len(found) != len(places):
            return False
        for place, one in zip(places, found, strict=True):
            known = self.labelled[model][place]["probabilities"]
            if any(abs(known[label] - probability) > ROUNDING for label, probability in one["probabilities"].items()):
                return False
            if known[one["label"]] < max(known.values()) - 2 * ROUNDING:
                return False
        return True

    def _predict(self, draw: random.Random) -> Question:
        model, places = draw.choice([*self.labelled]), self._some(draw)
        body = {"model": model, "inputs": [self.texts[i] for i in places]}
        return "predict", body, lambda text: self.are_right(model, places, json.loads(text)["predictions"])

    def _embed(self, draw: random.Random) -> Question:
        places = draw.choices(range(len(self.vectors)), k=draw.randrange(1, 10))
        body = {"model": "vectors", "texts": [self.texts[i] for i in places]}
        return "embed", body, lambda text: bool(np.allclose(json.loads(text)["vectors"], self.vectors[places], atol=1e-3))

    def _generate(self, draw: random.Random) -> Question:
        given = draw.choice([*self.continued])
        body = {"model": "writer", **continuation_of(given)}
        return "generate", body, lambda text: json.loads(text)["text"] == self.continued[given]

    def _stream(self, draw: random.Random) -> Question:
        name, body, _ = self._generate(draw)
        expected = next(text for given, text in self.continued.items() if continuation_of(given)["prompt"] == body["prompt"])

        def check(text: str) -> bool:
            *steps, last = text.strip().split("\n\n")
            kind, data = last.split("\n")
            return (
                len(steps) == NEW_TOKENS and kind == "event: done" and json.loads(data.removeprefix("data: "))["text"] == expected
            )

        return name, body | {"stream": True}, check

    def _tokens(self, draw: random.Random) -> Question:
        given = draw.choice(self.texts)
        return "tokens", {"texts": [given]}, lambda text: [one["token"] for one in json.loads(text)["tokens"][0]] == given.split()

    def _explain(self, draw: random.Random) -> Question:
        given = _short(draw.choice(self.texts))
        return "explain", {"text": given}, lambda text: [one.strip() for one in json.loads(text)["words"]] == given.split()

    def _nearest(self, draw: random.Random) -> Question:
        def check(text: str) -> bool:
            cosines = [one["cosine"] for one in json.loads(text)["nearest"][0]]
            return len(cosines) == 5 and cosines == sorted(cosines, reverse=True)

        return "nearest", {"inputs": [draw.choice(self.texts)]}, check


def _short(text: str) -> str:
    return " ".join(text.split()[:8])


def _continuations(writer: Bundle, given: Sequence[str]) -> list[tuple[str, str]]:
    """Texts and their continuations, of which every token leads by ``MARGIN``: whatever rounding does, there is no other."""
    found = []
    for text in given:
        told = trace(writer, continuation_of(text)["prompt"], GenerateConfig(max_new_tokens=NEW_TOKENS, greedy=True), k=2)
        if all(one.candidates[0][1] - one.candidates[1][1] > MARGIN for one in told.steps):
            found.append((text, told.text))
    if not found:
        raise RuntimeError("no continuation is beyond doubt; spread the writer's weights wider")
    return found
