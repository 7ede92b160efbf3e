"""What is wrong with a task, told before anything is trained on it.

Counted are empty texts, repeats inside a split, leaks between splits, one text with two labels, class balance, lengths, and,
given a tokenizer, what would be cut off and what it cannot spell. Two texts are the same here if they differ only in case and
white space. Findings are sentences with numbers and an example; ``drop_leaks`` mends the worst of them.

Texts that are nearly but not exactly the same are not found.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np

from warmstart.data.batch import encode
from warmstart.data.task import Split, Task, plain_text
from warmstart.errors import DataError
from warmstart.tokenizer import Tokenizer

FEW = 10
"""a class with fewer training examples than this is worth a warning"""
MUCH = 0.05
"""a share of cut texts or unknown tokens above this is a warning, below it a note"""


@dataclass(frozen=True)
class Finding:
    """One thing that a reader should know."""

    severity: Literal["error", "warning", "note"]
    """error: scores would mislead; warning: likely a mistake; note: good to know"""
    sentence: str


@dataclass(frozen=True)
class Tokens:
    """How a tokenizer meets the texts of a split; counts include the two tokens that end a text."""

    longest: int
    """tokens of the longest text"""
    cut: float | None
    """share of texts that are longer than the model reads; None if its length was not given"""
    lost: float | None
    """share of tokens beyond that length"""
    unknown: float
    """share of tokens that are unknown"""


@dataclass(frozen=True)
class SplitAudit:
    """What was counted in one split."""

    name: str
    examples: int
    classes: dict[str, int]
    """examples per label, in the task's order; 0 is listed"""
    empty: int
    """texts of nothing but white space"""
    repeats: int
    """texts that also stand earlier in the same split"""
    repeat: str
    """one of them"""
    words: dict[str, float]
    """white-space words per text: mean, median, p95, longest"""
    tokens: Tokens | None
    """None without a tokenizer"""


@dataclass(frozen=True)
class Leak:
    """Examples of one split that are in another one too."""

    split: str
    """the split whose examples are counted: the one that is scored"""
    inside: str
    """the split that they also occur in"""
    count: int
    example: str


@dataclass(frozen=True)
class Conflict:
    """A text that has more than one label somewhere in the task."""

    text: str
    """in the form in which texts are compared"""
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Audit:
    """All that was counted."""

    task: str
    max_tokens: int | None
    splits: tuple[SplitAudit, ...]
    leaks: tuple[Leak, ...]
    """only those that exist"""
    conflicts: tuple[Conflict, ...]
    taught: tuple[str, ...] = ()
    """models that are to learn the task, and have learned labels of it before"""

    def plain(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON, with the findings."""
        return {**asdict(self), "findings": [asdict(finding) for finding in self.findings()]}

    def balance(self) -> list[dict[str, str | int | float]]:
        """One row per split and label: split, label, count, share."""
        return [
            {"split": split.name, "label": label, "count": count, "share": count / split.examples}
            for split in self.splits
            for label, count in split.classes.items()
        ]

    def findings(self) -> list[Finding]:
        """What a reader should know, the worst first; empty if there is nothing to say."""
        found = [*self._across(), *(finding for split in self.splits for finding in _inside(split, self.max_tokens))]
        return sorted(found, key=lambda finding: ("error", "warning", "note").index(finding.severity))

    def _across(self) -> Iterator[Finding]:
        for name in self.taught:
            yield Finding(
                "error",
                f"{name} has learned labels of {self.task} before: what it does with few labels, or with frozen features, says "
                "nothing; start from the model that it was adapted from.",
            )
        for leak in self.leaks:
            share = leak.count / next(split.examples for split in self.splits if split.name == leak.split)
            counted = f"{leak.count} ({share:.1%}), such as {_short(leak.example)}."
            yield Finding(
                "error" if leak.split == "test" else "warning", f"Texts of {leak.split} that also occur in {leak.inside}: {counted}"
            )
        if self.conflicts:
            first = self.conflicts[0]
            yield Finding(
                "warning",
                f"Texts with more than one label: {len(self.conflicts)}, such as {_short(first.text)} ({', '.join(first.labels)}).",
            )


def audit(task: Task, tokenizer: Tokenizer | None = None, max_tokens: int | None = None) -> Audit:
    """Count what may be wrong with a task; ``max_tokens`` is the most that the model reads of a text, ends included."""
    task = task.as_texts()
    keys = {name: [same_as(text) for text in split.texts] for name, split in task.splits().items()}
    splits = tuple(
        _split_audit(name, split, keys[name], task.labels, _tokens(split, tokenizer, max_tokens))
        for name, split in task.splits().items()
    )
    leaks = [_leak(task, keys, scored, inside) for inside, scored in combinations(keys, 2)]
    return Audit(task.name, max_tokens, splits, tuple(leak for leak in leaks if leak.count), _conflicts(task, keys))


def drop_leaks(task: Task) -> Task:
    """The task without training and validation texts that are in test, and without training texts that are in validation.

    Test never changes, so scores stay comparable with others' scores. Raises ``DataError`` if nothing, or no training example
    of some label, is left.
    """
    validation = _without(task.validation, task.test)
    train = _without(_without(task.train, task.test), validation)
    one = task.kind == "label"
    missing = [name for number, name in enumerate(task.labels) if number not in train.labels] if one else []
    if missing or not len(validation):
        what = f"no training example of {', '.join(missing)}" if missing else "no validation example"
        raise DataError(f"without what other splits of '{task.name}' repeat, {what} is left; split the data anew")
    return replace(task, train=train, validation=validation)


def same_as(text: str) -> str:
    """What two texts have in common that count as the same: ``"The  Cat "`` and ``"the cat"`` -> ``"the cat"``."""
    return " ".join(text.casefold().split())


def _without(split: Split, other: Split) -> Split:
    """The split without the texts that ``other`` has too; empty texts stay."""
    taken = {same_as(plain_text(text)) for text in other.texts} - {""}
    return split.take(np.array([i for i, text in enumerate(split.texts) if same_as(plain_text(text)) not in taken], dtype=np.int64))


def _split_audit(name: str, split: Split, keys: list[str], labels: tuple[str, ...], tokens: Tokens | None) -> SplitAudit:
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    repeats = [place for place, key in enumerate(keys) if key and first[key] != place]
    words = np.array([len(key.split()) for key in keys])
    return SplitAudit(
        name=name,
        examples=len(split),
        classes=dict(zip(labels, np.bincount(split.labels, minlength=len(labels)).tolist(), strict=True)),
        empty=keys.count(""),
        repeats=len(repeats),
        repeat=split.texts[repeats[0]] if repeats else "",
        words={
            "mean": float(words.mean()),
            "median": float(np.median(words)),
            "p95": float(np.quantile(words, 0.95)),
            "longest": float(words.max()),
        },
        tokens=tokens,
    )


def _tokens(split: Split, tokenizer: Tokenizer | None, max_tokens: int | None) -> Tokens | None:
    if tokenizer is None:
        return None
    rows = encode(tokenizer, split.texts, max_tokens=1 << 40).rows  # nothing is cut, so that what would be can be counted
    lengths = np.array([len(row) for row in rows])
    unknown = sum(int((row == tokenizer.specials.unk).sum()) for row in rows)
    over = None if max_tokens is None else np.maximum(lengths - max_tokens, 0)
    return Tokens(
        longest=int(lengths.max()),
        cut=None if over is None else float((over > 0).mean()),
        lost=None if over is None else float(over.sum() / lengths.sum()),
        unknown=float(unknown / lengths.sum()),
    )


def _leak(task: Task, keys: dict[str, list[str]], scored: str, inside: str) -> Leak:
    taken = set(keys[inside]) - {""}
    places = [place for place, key in enumerate(keys[scored]) if key in taken]
    return Leak(scored, inside, len(places), task.splits()[scored].texts[places[0]] if places else "")


def _conflicts(task: Task, keys: dict[str, list[str]]) -> tuple[Conflict, ...]:
    seen: dict[str, Counter[int]] = defaultdict(Counter)
    for name, split in task.splits().items():
        for key, label in zip(keys[name], split.labels.tolist(), strict=True):
            seen[key][label] += 1
    return tuple(
        Conflict(key, tuple(task.labels[label] for label in sorted(labels)))
        for key, labels in seen.items()
        if key and len(labels) > 1
    )


def _inside(split: SplitAudit, max_tokens: int | None) -> Iterator[Finding]:
    if split.empty:
        yield Finding("warning", f"Empty texts in {split.name}: {split.empty} of {split.examples}.")
    if split.repeats:
        share = split.repeats / split.examples
        yield Finding(
            "note",
            f"Texts of {split.name} that repeat an earlier one: {split.repeats} ({share:.1%}), such as {_short(split.repeat)}.",
        )
    needed, why = (FEW, f"fewer than {FEW} to learn from") if split.name == "train" else (1, "none to score")
    rare = [f"{label!r} ({count})" for label, count in split.classes.items() if count < needed]
    if rare:
        yield Finding("warning", f"Labels with too few examples in {split.name} ({why}): {', '.join(rare)}.")
    if split.tokens is not None:
        yield from _spelling(split.name, split.tokens, max_tokens)


def _spelling(name: str, tokens: Tokens, max_tokens: int | None) -> Iterator[Finding]:
    if tokens.cut:
        yield Finding(
            "warning" if tokens.cut > MUCH else "note",
            f"Texts of {name} longer than {max_tokens} tokens: {tokens.cut:.1%}, which lose {tokens.lost:.1%} of all tokens; "
            f"the longest has {tokens.longest}.",
        )
    if tokens.unknown:
        severity: Literal["warning", "note"] = "warning" if tokens.unknown > MUCH else "note"
        yield Finding(severity, f"Tokens of {name} that the tokenizer cannot spell: {tokens.unknown:.2%}.")


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")
