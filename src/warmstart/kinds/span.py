"""An answer that stands in a passage: a score for where it begins and where it ends (Devlin et al. 2019, section 4.2).

Passages are cut into words and signs, and answers begin and end with one. A passage that does not fit loses its end.

Letters: N questions, P pieces of a passage.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch

from warmstart.data import Split, Task
from warmstart.data.batch import Encoded, chosen_batches, encode_pieces
from warmstart.engine import read
from warmstart.errors import DataError
from warmstart.evaluate.resample import draw
from warmstart.heads import SpanHeadConfig
from warmstart.kinds.figures import Figures
from warmstart.kinds.kind import Baseline, Batches, Kind, Reading
from warmstart.model import Bundle, Model
from warmstart.tokenizer import Tokenizer
from warmstart.types import Batch

PIECE = re.compile(r"\w+|[^\w\s]")
LONGEST = 30
"""pieces of an answer at most"""
QUESTION = 0.5
"""share of a row that a question takes at most"""


class Span(Kind):
    """A part of a passage."""

    name: ClassVar = "span"
    head_kind: ClassVar = "span"
    pooled: ClassVar = False

    def head(self, task: Task, reading: Reading) -> SpanHeadConfig:
        """Two scores a token."""
        return SpanHeadConfig(dropout=reading.dropout)

    def encode(self, model: Model, tokenizer: Tokenizer, texts: Sequence[Any]) -> Encoded:
        """``[EOS] question [EOS] passage [EOS]``; ``marks`` are the first tokens of the passage's pieces."""
        room = model.backbone.config.max_tokens
        questions = tokenizer.encode([question for question, _ in texts])
        rows, marks, cut, seconds = [], [], [], []
        for question, (_, passage) in zip(questions, texts, strict=True):
            head = [tokenizer.specials.begin, *question[: int(QUESTION * room)]]
            found = encode_pieces(tokenizer, [[_piece(passage, m) for m in PIECE.finditer(passage)]], room - len(head))
            rows.append(np.array([*head, tokenizer.specials.eos, *found.rows[0][1:]], dtype=np.int64))
            seconds.append(len(head) + 1)
            marks.append(found.marks[0] + len(head))
            cut.append(int(found.cut[0]))
        typed = np.array(seconds) if model.backbone.config.types > 1 else None
        return Encoded(tuple(rows), np.array(cut, dtype=np.int64), marks=tuple(marks), seconds=typed)

    def batches(self, split: Split, encoded: Encoded, size: tuple[int, int], seed: int, pad_id: int, *, causal: bool) -> Batches:
        """Targets (B, 2): the first tokens of the answer's first and last piece; questions whose answer was cut off are out."""
        ends = [ends_of(passage, target) for (_, passage), target in zip(split.texts, split.labels, strict=True)]
        fit = np.array([last < len(marks) for (_, last), marks in zip(ends, encoded.marks, strict=True)])
        if not fit.any():
            raise DataError("no answer of the training questions fits into the model's longest row; give shorter passages")
        kept = np.flatnonzero(fit)
        few = encoded.take(kept)

        def made(places: np.ndarray) -> Batch:
            batch = few.batch(places, None, pad_id, causal=causal)
            pairs = [[few.marks[i][min(end, len(few.marks[i]) - 1)] for end in ends[kept[i]]] for i in places]
            return replace(batch, targets=torch.tensor(pairs), count=len(places))

        return chosen_batches(few, made, size, seed)

    def said(self, model: Model, encoded: Encoded, pad_id: int, precision: str = "float32") -> Any:
        """(N,) objects: the first and the last piece of the best span, and its probability among all spans."""
        out = np.empty(len(encoded), dtype=object)
        for places, scores in read(model, encoded, pad_id, precision):
            for place, row in zip(places, scores.double().numpy(), strict=True):
                out[place] = best_span(row[encoded.marks[place]])
        return out

    def scores(self, split: Split, said: Any, task: Task) -> Figures:
        """Exact match and F1 of words, the best over all right answers, after SQuAD's normalisation (Rajpurkar et al. 2016)."""
        return Figures({metric: float(np.mean(values)) for metric, values in _each(split, said).items()})

    def resampled(self, split: Split, said: Any, task: Task) -> np.ndarray:
        """By the score of each question, which is quick."""
        values = np.array(_each(split, said)[task.metric], dtype=float)
        return np.array([values[places].mean() for places in draw(len(split))])

    def baselines(self) -> dict[str, Baseline]:
        """The first piece of the passage. Linear models of TF-IDF find no spans."""
        return {"majority": _first}

    def answers(self, bundle: Bundle, texts: Sequence[Any], said: Any, top: int) -> list[dict[str, Any]]:
        """The answer, where it stands in the passage (characters), and its probability."""
        rows = []
        for (_, passage), (first, last, share) in zip(texts, said, strict=True):
            pieces = list(PIECE.finditer(passage))
            start, end = (pieces[first].start(), pieces[last].end()) if pieces else (0, 0)
            rows.append({"answer": passage[start:end], "start": start, "end": end, "probability": round(share, 4)})
        return rows


def _each(split: Split, said: Any) -> dict[str, list[float]]:
    """The figures of every question."""
    texts = [text_of(passage, found) for (_, passage), found in zip(split.texts, said, strict=True)]
    pairs = [(text, target[2]) for text, target in zip(texts, split.labels, strict=True)]
    return {
        "f1": [max(word_f1(text, answer) for answer in answers) for text, answers in pairs],
        "exact": [max(plain(text) == plain(answer) for answer in answers) for text, answers in pairs],
    }


def _piece(passage: str, match: re.Match[str]) -> str:
    """A piece with the space before it."""
    return f" {match.group()}" if match.start() and passage[match.start() - 1].isspace() else match.group()


def ends_of(passage: str, target: tuple[int, int, Any]) -> tuple[int, int]:
    """The first and the last piece that the answer's characters touch."""
    touched = [place for place, m in enumerate(PIECE.finditer(passage)) if m.start() < target[1] and m.end() > target[0]]
    return (touched[0], touched[-1]) if touched else (0, 0)


def best_span(scores: np.ndarray) -> tuple[int, int, float]:
    """Of (P, 2) scores: the pair of ends in order, at most ``LONGEST`` pieces apart, with the highest sum; and its probability."""
    if not len(scores):
        return 0, 0, 0.0
    sums = scores[:, :1] + scores[None, :, 1]  # (P, P)
    legal = np.triu(np.ones_like(sums, dtype=bool)) & ~np.triu(np.ones_like(sums, dtype=bool), LONGEST)
    sums = np.where(legal, sums, -np.inf)
    first, last = np.unravel_index(int(sums.argmax()), sums.shape)
    shares = np.exp(sums - sums.max())
    return int(first), int(last), float(shares[first, last] / shares.sum())


def text_of(passage: str, found: tuple[int, int, float]) -> str:
    """The characters of a span of pieces."""
    pieces = list(PIECE.finditer(passage))
    return passage[pieces[found[0]].start() : pieces[found[1]].end()] if pieces else ""


def plain(text: str) -> str:
    """Lower case, without punctuation, articles and extra white space."""
    text = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def word_f1(one: str, other: str) -> float:
    """F1 of the words that two answers share."""
    words = [plain(text).split() for text in (one, other)]
    if not all(words):
        return float(words[0] == words[1])
    shared = sum((Counter(words[0]) & Counter(words[1])).values())
    return 2 * shared / (len(words[0]) + len(words[1]))


def _first(task: Task) -> tuple[Any, str]:
    said = np.empty(len(task.test), dtype=object)
    said[:] = [(0, 0, 1.0)] * len(said)
    return said, "always the first word of the passage"
