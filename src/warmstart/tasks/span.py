"""Span: the answer to a question is a part of a passage; scores for its start and its end (Devlin et al. 2019, section 4.2).

Passages are cut into words and punctuation marks ("pieces"); answers begin and end with one. A passage that does not fit into a
row loses its end.

Letters: N questions, P pieces of a passage.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from warmstart.data.batches import bucketed_batches
from warmstart.data.encode import Encoded, encode_pieces
from warmstart.data.source import Source
from warmstart.data.task import Split, Task
from warmstart.errors import DataError
from warmstart.heads.per_token import SpanHeadConfig
from warmstart.model.inference import run_in_batches
from warmstart.model.model import Model
from warmstart.stats.resampling import resample_indices
from warmstart.stats.scores import Scores
from warmstart.tasks.rows import Examples, string_of, table_rows, text_or_pair, whole_number
from warmstart.tasks.task_type import Batches, HeadSettings, TaskType
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import Batch

PIECE_PATTERN = re.compile(r"\w+|[^\w\s]")
MAX_ANSWER = 30
"""longest answer, in pieces"""
MAX_QUESTION = 0.5
"""the largest fraction of a row that a question takes"""
PASSAGE = "passage"
"""the column of the passage if the source names none"""


class SpanTask(TaskType):
    """A question is answered by a part of its passage. Predictions: (N,) objects (first piece, last piece, probability)."""

    name: ClassVar = "span"
    head_config: ClassVar = SpanHeadConfig
    metrics: ClassVar = ("f1", "exact")
    pooled: ClassVar = False
    constant_rule: ClassVar = "always the first word of the passage"

    def read_rows(self, source: Source) -> Examples:
        """``(question, passage)``, and ``(start, end, answers)``: characters of the passage, and all right answers."""
        inputs, targets = [], []
        for number, (question, passage, answers) in enumerate(_questions(source), 1):
            start, answer = answers[0]
            if passage[start : start + len(answer)] != answer:
                start = passage.find(answer)
                if start < 0:
                    raise DataError(
                        f"example {number} of {source.path}: the passage must contain the answer, but {answer!r} is not in it"
                    )
            inputs.append((question, passage))
            targets.append((start, start + len(answer), tuple(dict.fromkeys(answer for _, answer in answers))))
        return inputs, targets

    def read_inputs(self, source: Source) -> list[Any]:
        """``(question, passage)``."""
        paired = source if source.second else source.model_copy(update={"second": PASSAGE})
        return [text_or_pair(row, paired) for row in table_rows(source)]

    def parse(self, text: str) -> Any:
        """Refused: a passage is in a column of a table."""
        raise DataError("a question about a passage must come from a table: give --file, and name its columns")

    def encode_targets(self, split: str, targets: Sequence[Any], labels: tuple[str, ...]) -> np.ndarray:
        """(N,) objects ``(start, end, answers)``."""
        encoded = np.empty(len(targets), dtype=object)
        encoded[:] = list(targets)
        return encoded

    def head(self, task: Task, settings: HeadSettings) -> SpanHeadConfig:
        """Two scores per token."""
        return SpanHeadConfig(dropout=settings.dropout)

    def encode(self, model: Model, tokenizer: Tokenizer, inputs: Sequence[Any]) -> Encoded:
        """``[EOS] question [EOS] passage [EOS]``; ``piece_starts`` are those of the passage's pieces."""
        max_length = model.backbone.config.max_length
        questions = tokenizer.encode([question for question, _ in inputs])
        opening, between = tokenizer.opening, tokenizer.between
        rows, piece_starts, cut, second_starts = [], [], [], []
        for question, (_, passage) in zip(questions, inputs, strict=True):
            head = [*opening, *question[: int(MAX_QUESTION * max_length)]]
            pieces = [_with_space(passage, match) for match in PIECE_PATTERN.finditer(passage)]
            encoded = encode_pieces(tokenizer, [pieces], max_length - len(head) + len(opening) - len(between))
            rows.append(np.array([*head, *between, *encoded.rows[0][len(opening) :]], dtype=np.int64))
            second_starts.append(len(head) + len(between))
            piece_starts.append(encoded.piece_starts[0] - len(opening) + len(head) + len(between))
            cut.append(int(encoded.cut[0]))
        seconds = np.array(second_starts) if model.backbone.config.token_types > 1 else None
        return Encoded(tuple(rows), np.array(cut, dtype=np.int64), piece_starts=tuple(piece_starts), second_starts=seconds)

    def batches(self, split: Split, encoded: Encoded, size: tuple[int, int], seed: int, pad_id: int, *, causal: bool) -> Batches:
        """Targets (B, 2): first tokens of the answer's first and last piece. Questions whose answer was cut off are left out."""
        ends = [ends_of(passage, target) for (_, passage), target in zip(split.texts, split.labels, strict=True)]
        fits = np.array([last < len(marks) for (_, last), marks in zip(ends, encoded.piece_starts, strict=True)])
        if not fits.any():
            raise DataError("no answer of the training questions fits into the model's longest row; give shorter passages")
        kept = np.flatnonzero(fits)
        fitting = encoded.take(kept)

        def make(indices: np.ndarray) -> Batch:
            batch = fitting.batch(indices, None, pad_id, causal=causal)
            pairs = [
                [fitting.piece_starts[i][min(end, len(fitting.piece_starts[i]) - 1)] for end in ends[kept[i]]] for i in indices
            ]
            return replace(batch, targets=torch.tensor(pairs), count=len(indices))

        return bucketed_batches(fitting, make, size, seed)

    def predict(self, model: Model, encoded: Encoded, pad_id: int, precision: str = "float32") -> Any:
        """(N,) objects: the first and the last piece of the best span, and its probability among all spans."""
        predictions = np.empty(len(encoded), dtype=object)
        for indices, logits in run_in_batches(model, encoded, pad_id, precision):
            for index, row in zip(indices, logits.double().numpy(), strict=True):
                predictions[index] = best_span(row[encoded.piece_starts[index]])
        return predictions

    def scores(self, split: Split, predictions: Any, task: Task) -> Scores:
        """F1 over words and exact match, the best over all right answers, after SQuAD's normalisation (Rajpurkar et al. 2016)."""
        return Scores({metric: float(np.mean(values)) for metric, values in _score_each(split, predictions).items()})

    def constant(self, fitted: Split, inputs: Sequence[Any], task: Task) -> Any:
        """The first piece of the passage; it is fitted to nothing."""
        predictions = np.empty(len(inputs), dtype=object)
        predictions[:] = [(0, 0, 1.0)] * len(inputs)
        return predictions

    def describe(self, predictions: Any, inputs: Sequence[Any], labels: tuple[str, ...], top: int) -> list[dict[str, Any]]:
        """``answer``, its ``start`` and ``end`` (characters of the passage) and its ``probability``."""
        rows = []
        for (_, passage), (first, last, probability) in zip(inputs, predictions, strict=True):
            pieces = list(PIECE_PATTERN.finditer(passage))
            start, end = (pieces[first].start(), pieces[last].end()) if pieces else (0, 0)
            rows.append({"answer": passage[start:end], "start": start, "end": end, "probability": round(probability, 4)})
        return rows

    def resampled_scores(self, split: Split, predictions: Any, task: Task) -> np.ndarray:
        """From the score of each question, which is fast."""
        values = np.array(_score_each(split, predictions)[task.metric], dtype=float)
        return np.array([values[drawn].mean() for drawn in resample_indices(len(split), groups=split.units)])


# ---------------------------------------------------------------------------------------------------- reading


_Question = tuple[str, str, list[tuple[int, str]]]
"""the question, its passage, and each right answer with its first character"""


def _questions(source: Source) -> Iterator[_Question]:
    """All questions that have an answer; those of SQuAD 2.0 that have none are left out."""
    from warmstart.data.read import source_files, source_format

    for file in source_files(source):
        form = source_format(source, file)
        yield from _squad(file, source.encoding) if form in ("text", "json") else _rows_with_answers(file, source)


def _rows_with_answers(file: Path, source: Source) -> Iterator[_Question]:
    for row in table_rows(source.model_copy(update={"path": str(file)})):
        answer = string_of(row, source.label, "label")
        passage = string_of(row, source.second or PASSAGE, "second")
        start = whole_number(row["start"]) if row.get("start") else passage.find(answer)
        if start is None:
            raise DataError(f"{file} must hold a whole number in 'start', but holds {row['start']!r}")
        if answer:
            yield string_of(row, source.text, "text"), passage, [(start, answer)]


def _squad(file: Path, encoding: str) -> Iterator[_Question]:
    """JSON in SQuAD's form."""
    from warmstart.data.files import open_text

    try:
        with open_text(file, encoding) as stream:
            articles = json.load(stream)["data"]
        for paragraph in (paragraph for article in articles for paragraph in article["paragraphs"]):
            for entry in paragraph["qas"]:
                answers = [(int(one["answer_start"]), str(one["text"])) for one in entry["answers"]]
                if answers:
                    yield entry["question"], paragraph["context"], answers
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} must be a table, or JSON in SQuAD's form, but is neither ({error})") from None


# ---------------------------------------------------------------------------------------------------- pieces and spans


def _with_space(passage: str, match: re.Match[str]) -> str:
    """A piece, with the space before it if there is one."""
    return f" {match.group()}" if match.start() and passage[match.start() - 1].isspace() else match.group()


def ends_of(passage: str, target: tuple[int, int, Any]) -> tuple[int, int]:
    """The first and the last piece that the answer's characters touch."""
    touched = [index for index, m in enumerate(PIECE_PATTERN.finditer(passage)) if m.start() < target[1] and m.end() > target[0]]
    return (touched[0], touched[-1]) if touched else (0, 0)


def best_span(scores: np.ndarray) -> tuple[int, int, float]:
    """The most probable span from (P, 2) scores of starts and ends: its first and last piece, and its probability.

    A span has at most ``MAX_ANSWER`` pieces; its score is that of its start plus that of its end.
    """
    if not len(scores):
        return 0, 0, 0.0
    sums = scores[:, :1] + scores[None, :, 1]  # (P, P)
    legal = np.triu(np.ones_like(sums, dtype=bool)) & ~np.triu(np.ones_like(sums, dtype=bool), MAX_ANSWER)
    sums = np.where(legal, sums, -np.inf)
    first, last = np.unravel_index(int(sums.argmax()), sums.shape)
    weights = np.exp(sums - sums.max())
    return int(first), int(last), float(weights[first, last] / weights.sum())


def text_of(passage: str, span: tuple[int, int, float]) -> str:
    """The characters of a span of pieces."""
    pieces = list(PIECE_PATTERN.finditer(passage))
    return passage[pieces[span[0]].start() : pieces[span[1]].end()] if pieces else ""


# ---------------------------------------------------------------------------------------------------- scoring


def _score_each(split: Split, predictions: Any) -> dict[str, list[float]]:
    """Metric -> its value for every question."""
    texts = [text_of(passage, span) for (_, passage), span in zip(split.texts, predictions, strict=True)]
    pairs = [(text, target[2]) for text, target in zip(texts, split.labels, strict=True)]
    return {
        "f1": [max(word_f1(text, answer) for answer in answers) for text, answers in pairs],
        "exact": [max(normalised(text) == normalised(answer) for answer in answers) for text, answers in pairs],
    }


def normalised(text: str) -> str:
    """Lower case, without punctuation, articles and extra white space."""
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def word_f1(one: str, other: str) -> float:
    """F1 of the words that two answers share."""
    words = [normalised(text).split() for text in (one, other)]
    if not all(words):
        return float(words[0] == words[1])
    shared = sum((Counter(words[0]) & Counter(words[1])).values())
    return 2 * shared / (len(words[0]) + len(words[1]))
