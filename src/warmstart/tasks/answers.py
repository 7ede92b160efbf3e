r"""Questions whose answers are generated as text, and how a language model is trained on them and answers them.

    name: birthplaces
    type: answers
    source: {pattern: '^(?P<text>[^\t]+)\t(?P<label>.+)$'}       # the manifest of a labelled task; the label is the answer
    train: train.tsv
    validation: 0.1
    test: dev.tsv

A model reads ``[EOS] question [MASK] answer [MASK]``. Span corruption of the form "prefix-suffix" ends its rows in the same way, so
a model pretrained on it knows this format. Only the answer and the [MASK] after it are predicted.

Letters: N questions, B batch, T tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from warmstart.data.batches import length_buckets
from warmstart.data.encode import padded
from warmstart.data.source import Source
from warmstart.data.splits import grouped_split, held_out_count
from warmstart.data.task import texts_digest
from warmstart.data.text_key import TextHashes, key_of, text_key
from warmstart.errors import ConfigError, DataError, ModelError
from warmstart.generation.decoding import decode
from warmstart.generation.settings import GenerateConfig
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model
from warmstart.seeding import rng
from warmstart.stats.abstention import Threshold, find_threshold
from warmstart.system.storage import digest_of
from warmstart.tasks.load import ANSWERS_TYPE, read_sources, read_spec
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import IGNORE, Batch


@dataclass(frozen=True)
class AnsweredQuestions:
    """Questions and the right answer to each."""

    questions: tuple[str, ...]
    answers: tuple[str, ...]
    groups: np.ndarray | None = None
    """(N,) name of the group of each question; None if every question stands alone"""

    @property
    def units(self) -> np.ndarray:
        """(N,) int64 independent unit of each question; (near) copies and those of one group share one."""
        from warmstart.data.units import independent_units  # imports scipy

        return independent_units(self.questions, self.groups)

    def __len__(self) -> int:
        return len(self.questions)

    def take(self, indices: np.ndarray) -> AnsweredQuestions:
        """The questions at ``indices``, in this order, with their answers."""
        groups = None if self.groups is None else self.groups[indices]
        return AnsweredQuestions(tuple(self.questions[i] for i in indices), tuple(self.answers[i] for i in indices), groups)

    def hold_out(self, count: int, seed: int, name: str) -> tuple[AnsweredQuestions, AnsweredQuestions]:
        """The kept and about ``count`` held-out questions, at random; copies, and those of a group, are on one side."""
        units = self.units
        if self.groups is None and len(np.unique(units)) == len(self):
            order = rng(seed, "answers", name).permutation(len(self))
            return self.take(np.sort(order[count:])), self.take(np.sort(order[:count]))
        kept, held_out = grouped_split(np.zeros(len(self), dtype=np.int64), units, count, seed)
        return self.take(kept), self.take(held_out)


@dataclass(frozen=True)
class AnswerTask:
    """A task whose answers are generated as text."""

    name: str
    train: AnsweredQuestions
    validation: AnsweredQuestions
    test: AnsweredQuestions
    manifest: Path | None = None
    """the file that it was read from; the ledger of its test split lies beside it"""

    @cached_property
    def digest(self) -> str:
        """A hash of the questions and answers."""
        return digest_of([[split.questions, split.answers] for split in (self.train, self.validation, self.test)])

    @cached_property
    def test_digest(self) -> str:
        """The digest of the test split, as of a labelled task with the questions as texts."""
        return texts_digest(map(text_key, self.test.questions))

    def text_hashes(self) -> dict[str, TextHashes]:
        """The questions of each split in few bytes, with a hash of their answers."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: TextHashes.of([*map(key_of, split.questions)], split.answers) for name, split in splits.items()}


def load_answer_task(path: str | Path, seed: int = 0) -> AnswerTask:
    """The task in a manifest; its paths start at its own folder, and its splits depend on the seed alone.

    Raises ``ConfigError`` if the manifest is wrong and ``DataError`` if its files are.
    """
    file, spec = read_spec(path)
    if spec.type != ANSWERS_TYPE:
        raise ConfigError(f"{file}: answers are generated for a task of 'type: answers', but this one is of type {spec.type}")
    if spec.labels or spec.limit:
        raise ConfigError(f"{file}: 'labels' and 'limit' do not apply to generated answers; remove them")
    if spec.validation is None:
        raise ConfigError(f"{file}: generated answers need validation questions, which choose the weights; write 'validation: 0.1'")
    try:
        train = _read_questions(spec.train, file.parent, "")
        total, splits = len(train), {}
        for name, wanted in (("test", spec.test), ("validation", spec.validation)):
            if isinstance(wanted, tuple):
                splits[name] = _read_questions(wanted, file.parent, f"{name}:")
            else:
                train, splits[name] = train.hold_out(held_out_count(total, wanted), seed, name)
    except DataError as error:
        raise DataError(f"{file}: {error}") from None
    return AnswerTask(spec.name, train, splits["validation"], splits["test"], file)


def _read_questions(sources: Sequence[Source], folder: Path, prefix: str) -> AnsweredQuestions:
    questions, answers, groups, _ = read_sources(sources, folder, prefix=prefix)
    return AnsweredQuestions(tuple(questions), tuple(answers), groups)


# ---------------------------------------------------------------------------------------------------- training


def question_rows(tokenizer: Tokenizer, questions: Sequence[str], max_length: int) -> list[list[int]]:
    """``[EOS] question [MASK]`` of at most ``max_length`` tokens; a question that is too long loses its beginning."""
    specials = tokenizer.specials
    return [[specials.eos, *ids[max(0, len(ids) - max_length + 2) :], specials.mask] for ids in tokenizer.encode(questions)]


def answer_batches(
    tokenizer: Tokenizer, examples: AnsweredQuestions, max_length: int, size: tuple[int, int], seed: int
) -> Callable[[int], list[Batch]]:
    """``batches(step)`` of causal rows of at most ``max_length`` tokens, in which only the answers are predicted.

    ``size`` is (rows per batch, batches per step). Raises ``DataError`` if an answer is too long to fit behind its question.
    """
    ends = [[*ids, tokenizer.specials.mask] for ids in tokenizer.encode(examples.answers)]
    longest = max(map(len, ends))
    if longest + 2 >= max_length:
        raise DataError(f"a question and its answer must fit into {max_length} tokens, but one answer alone has {longest - 1}")
    starts = question_rows(tokenizer, examples.questions, max_length - longest)
    batch, accumulate = size
    chosen = length_buckets(np.array([len(start) + len(end) for start, end in zip(starts, ends, strict=True)]), batch, seed)

    def batches(step: int) -> list[Batch]:
        numbers = range(step * accumulate, (step + 1) * accumulate)
        return [_collate([starts[i] for i in rows], [ends[i] for i in rows], tokenizer) for rows in map(chosen, numbers)]

    return batches


def _collate(starts: Sequence[list[int]], ends: Sequence[list[int]], tokenizer: Tokenizer) -> Batch:
    """``starts`` [[1 2 3]], ``ends`` [[4 3]] -> ids [[1 2 3 4]], targets [[. . 4 3]]; padded after the last target."""
    pairs = list(zip(starts, ends, strict=True))
    ids = padded([[*start, *end[:-1]] for start, end in pairs], tokenizer.specials.pad)
    targets = padded([[IGNORE] * (len(start) - 1) + end for start, end in pairs], IGNORE)
    return Batch(torch.from_numpy(ids), torch.from_numpy(targets), causal=True, count=sum(map(len, ends)))


def max_answer_tokens(tokenizer: Tokenizer, answers: Sequence[str], max_length: int) -> int:
    """Most tokens of an answer: twice as many as the longest of ``answers``, but at most half of ``max_length``."""
    return min(2 * max(map(len, tokenizer.encode(answers))) + 1, max_length // 2)


# ---------------------------------------------------------------------------------------------------- answering


@dataclass(frozen=True)
class Answer:
    """A generated answer."""

    text: str
    confidence: float
    """the model's probability of this answer including its end; 0 if it did not end"""


def generate_answers(model: Model, tokenizer: Tokenizer, questions: Sequence[str], max_tokens: int) -> list[Answer]:
    """An answer of at most ``max_tokens`` tokens to each question, by greedy decoding."""
    specials = tokenizer.specials
    rows = question_rows(tokenizer, questions, model.backbone.config.max_length - max_tokens)
    banned = torch.tensor(sorted(specials.all() - {specials.mask}))
    decoded = decode(model, rows, GenerateConfig(max_new_tokens=max_tokens, greedy=True), banned=banned, stop={specials.mask})
    return [
        Answer(tokenizer.decode(row.ids).strip(), math.exp(sum(row.log_probabilities)) if row.stopped else 0.0) for row in decoded
    ]


def answer_questions(bundle: Bundle, questions: Sequence[str]) -> list[Answer]:
    """The answers of a model that was adapted to a task of answers."""
    assert bundle.max_answer_tokens is not None
    return generate_answers(bundle.model, bundle.tokenizer, questions, bundle.max_answer_tokens)


def answer_threshold(bundle: Bundle, target_error: float, confidence_level: float) -> Threshold:
    """The confidence below which the model must abstain for ``target_error``, from its held-out answers.

    Raises ``ModelError`` if it has none, or if they chose its weights.
    """
    answers = bundle.calibration.held_out if bundle.calibration and bundle.max_answer_tokens else ()
    if not answers:
        raise ModelError("this model has no held-out answers to find a threshold with; adapt it to a task of type answers first")
    confidence, right = (np.array(column) for column in zip(*answers, strict=True))
    return find_threshold(confidence, right.astype(bool), target_error, confidence_level)


def confidences(answers: Iterable[Answer]) -> np.ndarray:
    """(N,) the confidence of each answer."""
    return np.array([answer.confidence for answer in answers])


def exact_matches(answers: Iterable[Answer], examples: AnsweredQuestions) -> np.ndarray:
    """(N,) bool: whether each answer equals the right one, apart from white space at the ends."""
    return np.array([answer.text == right.strip() for answer, right in zip(answers, examples.answers, strict=True)])
