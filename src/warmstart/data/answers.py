r"""Questions with a written answer each, and how a language model reads them.

    name: birthplaces
    source: {pattern: '^(?P<text>[^\t]+)\t(?P<label>.+)$'}       # the same manifest as a labelled task; a label is an answer here
    train: train.tsv
    validation: 0.1
    test: dev.tsv

A model reads ``[EOS] question [MASK] answer [MASK]``: span corruption in the form "prefix-suffix" ends its rows in the same way, so
a model pretrained on it has met the form. Only the answer and the [MASK] after it are predicted.

Letters: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from warmstart.data.batch import by_length, padded
from warmstart.data.split import held_out_count
from warmstart.data.task import read_sources, read_spec
from warmstart.errors import ConfigError, DataError
from warmstart.seeding import rng
from warmstart.tokenizer import Tokenizer
from warmstart.types import IGNORE, Batch


@dataclass(frozen=True)
class Answered:
    """Questions and the right answer to each."""

    questions: tuple[str, ...]
    answers: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.questions)

    def take(self, places: np.ndarray) -> Answered:
        """The examples at these places, in this order."""
        return Answered(tuple(self.questions[i] for i in places), tuple(self.answers[i] for i in places))


@dataclass(frozen=True)
class AnswerTask:
    """A task whose answers are written, not chosen."""

    name: str
    train: Answered
    validation: Answered
    test: Answered


def load_answers(path: str | Path, seed: int = 0) -> AnswerTask:
    """The task in a manifest; paths in it start at its own folder, splits depend on the seed alone.

    Raises ``ConfigError`` if the manifest is wrong and ``DataError`` if what it names is.
    """
    file, spec = read_spec(path)
    if spec.labels or spec.limit:
        raise ConfigError(f"{file}: 'labels' and 'limit' mean nothing where answers are written; remove them")
    try:
        train = Answered(*map(tuple, read_sources(spec.train, file.parent)))
        given, splits = len(train), {}
        for name, wanted in (("test", spec.test), ("validation", spec.validation)):
            if isinstance(wanted, tuple):
                splits[name] = Answered(*map(tuple, read_sources(wanted, file.parent)))
            else:
                order = rng(seed, "answers", name).permutation(len(train))
                cut = held_out_count(given, wanted)
                splits[name], train = train.take(np.sort(order[:cut])), train.take(np.sort(order[cut:]))
    except DataError as error:
        raise DataError(f"{file}: {error}") from None
    return AnswerTask(spec.name, train, splits["validation"], splits["test"])


def question_rows(tokenizer: Tokenizer, questions: Sequence[str], room: int) -> list[list[int]]:
    """``[EOS] question [MASK]`` of at most ``room`` tokens; a question that is too long loses its beginning."""
    specials = tokenizer.specials
    return [[specials.eos, *ids[max(0, len(ids) - room + 2) :], specials.mask] for ids in tokenizer.encode(questions)]


def answer_batches(
    tokenizer: Tokenizer, examples: Answered, tokens: int, size: tuple[int, int], seed: int
) -> Callable[[int], list[Batch]]:
    """``batches(step)`` of causal rows of at most ``tokens`` tokens in which the answers alone are predicted.

    ``size`` is (rows of a batch, batches of a step). Raises ``DataError`` where an answer leaves no room for its question.
    """
    ends = [[*ids, tokenizer.specials.mask] for ids in tokenizer.encode(examples.answers)]
    longest = max(map(len, ends))
    if longest + 2 >= tokens:
        raise DataError(f"an answer must leave room for its question in a row of {tokens} tokens, but one has {longest - 1}")
    starts = question_rows(tokenizer, examples.questions, tokens - longest)
    batch, accumulate = size
    chosen = by_length(np.array([len(s) + len(e) for s, e in zip(starts, ends, strict=True)]), batch, seed)

    def batches(step: int) -> list[Batch]:
        numbers = range(step * accumulate, (step + 1) * accumulate)
        return [_collate([starts[i] for i in places], [ends[i] for i in places], tokenizer) for places in map(chosen, numbers)]

    return batches


def _collate(starts: Sequence[list[int]], ends: Sequence[list[int]], tokenizer: Tokenizer) -> Batch:
    """``starts`` [[1 2 3]], ``ends`` [[4 3]] -> ids [[1 2 3 4]], targets [[. . 4 3]]; padded on the right, where nobody looks."""
    pairs = list(zip(starts, ends, strict=True))
    ids = padded([[*start, *end[:-1]] for start, end in pairs], tokenizer.specials.pad)
    targets = padded([[IGNORE] * (len(start) - 1) + end for start, end in pairs], IGNORE)
    return Batch(torch.from_numpy(ids), torch.from_numpy(targets), causal=True, count=sum(map(len, ends)))
