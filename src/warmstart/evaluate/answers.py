"""Written answers: what a model answers to questions, how sure it is, and whether that is right to the letter."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from warmstart.data.answers import Answered, question_rows
from warmstart.generation import GenerateConfig, write
from warmstart.model import Model
from warmstart.tokenizer import Tokenizer


@dataclass(frozen=True)
class Answer:
    """One written answer."""

    text: str
    confidence: float
    """the model's probability of this very answer, its end included; 0 where it did not end"""


def room_for(tokenizer: Tokenizer, answers: Sequence[str], max_tokens: int) -> int:
    """How many tokens an answer may take: twice the longest of ``answers``, but never more than half a row."""
    return min(2 * max(map(len, tokenizer.encode(answers))) + 1, max_tokens // 2)


def answer(model: Model, tokenizer: Tokenizer, questions: Sequence[str], longest: int) -> list[Answer]:
    """The likeliest answer of at most ``longest`` tokens to each question, token by token (greedily)."""
    specials = tokenizer.specials
    rows = question_rows(tokenizer, questions, model.backbone.config.max_tokens - longest)
    banned = torch.tensor(sorted(specials.all() - {specials.mask}))
    written = write(model, rows, GenerateConfig(tokens=longest, greedy=True), banned=banned, stop={specials.mask})
    return [Answer(tokenizer.decode(w.ids).strip(), math.exp(sum(w.log_probabilities)) if w.stopped else 0.0) for w in written]


def confidences(answers: Iterable[Answer]) -> np.ndarray:
    """(N,) how sure each answer is."""
    return np.array([one.confidence for one in answers])


def exact(answers: Iterable[Answer], examples: Answered) -> np.ndarray:
    """(N,) bool: the answer is the right one, letter by letter, white space at its ends left out."""
    return np.array([one.text == right.strip() for one, right in zip(answers, examples.answers, strict=True)])


def names(question: str) -> list[str]:
    """The names in a question: runs of words with a capital, the sentence's first word left out.

    ``"Where was Ada King Lovelace born?"`` -> ``["Ada King Lovelace"]``
    """
    words = question.split()[1:]
    runs, run = list[str](), list[str]()
    for word in [*words, ""]:
        if word[:1].isupper():
            run.append(word)
        elif run:
            runs.append(re.sub(r"\W+$", "", " ".join(run)))
            run.clear()
    return runs


def never_seen(questions: Sequence[str], documents: Iterable[str]) -> list[list[str]]:
    """For each question, the names in it that stand in no document: of these the model can have learned nothing there."""
    wanted = [names(question) for question in questions]
    missing = {name for found in wanted for name in found}
    for document in documents:
        missing -= {name for name in missing if name in document}
    return [[name for name in found if name in missing] for found in wanted]
