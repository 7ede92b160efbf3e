"""An audit of a task's data before anything is trained on it.

It counts empty texts, duplicates within a split, leaks between splits, texts with more than one label, examples per label and words
per text; with a tokenizer also tokens that are cut off or unknown, with plain text also the test texts that occur in it.
``data/leaks.py`` finds texts that are in two splits. ``drop_leaks`` removes leaks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from warmstart.data.encode import READ_WHOLE, encode, window_starts
from warmstart.data.label_cells import MISSING
from warmstart.data.leaks import Leaks, find_leaks, units_across
from warmstart.data.spelled import SpelledLabel, spelled_label
from warmstart.data.task import Split, Task
from warmstart.data.text_key import label_key, text_key, text_words
from warmstart.data.text_overlap import SHORTEST_FOUND, occurrences
from warmstart.errors import DataError
from warmstart.heads.settings import CUT, WindowSettings
from warmstart.notebook import Shown
from warmstart.stats.formatting import of_100, percent
from warmstart.tokenizer.tokenizer import Tokenizer

MOST_SHOWN, MOST_NAMED = 30, 10
"""labels in a table or chart of all of them, and in a sentence"""
MOST_WARNINGS = 6
"""most warnings in a verdict"""
FEW_EXAMPLES = 10
"""a label with fewer training examples is worth a warning"""
MOST_INDEPENDENT = 0.9
"""share of texts up to which it is a warning that no more are independent"""
MANY_CUT = 0.05
"""fraction of cut texts or unknown tokens above which a finding is a warning, below it a note"""

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""error: scores would mislead; warning: probably a mistake; note: good to know"""


@dataclass(frozen=True)
class Finding:
    """One sentence that a user should read."""

    severity: Severity
    sentence: str


@dataclass(frozen=True)
class TokenCounts:
    """The texts of a split as a tokenizer encodes them, with the two tokens that end a text."""

    longest: int
    """tokens of the longest text"""
    cut: float | None
    """fraction of texts that lose tokens; None if the length that the model reads is unknown"""
    lost: float | None
    """fraction of all tokens that are cut off"""
    unknown: float
    """fraction of all tokens that are unknown"""
    windowed: float = 0.0
    """fraction of texts that are read in several windows"""


@dataclass(frozen=True)
class SplitAudit:
    """Counts of one split."""

    name: str
    examples: int
    classes: dict[str, int]
    """examples per label, in the task's order; labels without an example are listed with 0"""
    empty: int
    """texts of white space only"""
    duplicates: int
    """texts that occur earlier in the same split"""
    duplicate: str
    """one of these texts"""
    units: int
    """texts that are independent: (near) copies, quotes and the texts of a group are one"""
    near_copies: tuple[str, str]
    """two texts that are nearly the same, but not the same; or two empty strings"""
    words: dict[str, float]
    """words per text: mean, median, p95, longest"""
    tokens: TokenCounts | None
    """counts of tokens; None without a tokenizer"""


@dataclass(frozen=True)
class PretrainingOverlap:
    """Test texts that occur in plain text, such as a model is pretrained on."""

    exact: int
    """test texts that occur there word for word"""
    near: int
    """other test texts of which most occurs there in one place"""
    compared: int
    """test texts long enough to be recognised"""
    example: str
    """a text that occurs; else one that nearly does"""


@dataclass(frozen=True)
class Conflict:
    """A text with more than one label in the task."""

    text: str
    """text in its first spelling"""
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Audit(Shown, view="report.notebook:audit_view"):
    """Everything that was counted."""

    task: str
    max_length: int | None
    """the most tokens that the model reads at once, ends included; None if that is unknown"""
    splits: tuple[SplitAudit, ...]
    leaks: Leaks
    """pairs of splits without a common text are left out"""
    conflicts: tuple[Conflict, ...]
    near_leaks: Leaks = ()
    """texts that are nearly the same as one of another split"""
    group_leaks: Leaks = ()
    """pairs of splits without a common group are left out"""
    pretraining: PretrainingOverlap | None = None
    """test texts in plain text; None if no plain text was given"""
    already_trained: tuple[str, ...] = ()
    """models to adapt that were already trained on labels of this task"""
    already_read: tuple[str, ...] = ()
    """sentences that name the models that have read the data set of this name"""
    windows: WindowSettings | None = None
    """windows for texts that are too long; None: models for this type of task cut them"""
    same_labels: tuple[tuple[str, ...], ...] = ()
    """label names that a person would take for one"""
    spelled: SpelledLabel | None = None
    """words that spell the labels in the training texts"""
    cut: tuple[str, ...] = ()
    """sentences about the share that each of several models cuts off"""

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON, with the findings."""
        windows = self.windows and self.windows.to_dict()
        return {**asdict(self), "windows": windows, "findings": [asdict(finding) for finding in self.findings()]}

    def balance(self) -> list[dict[str, str | int | float]]:
        """One row per split and label: split, label, count, fraction of the split; of many labels those with most texts."""
        totals = sum((Counter(split.classes) for split in self.splits), Counter[str]())
        shown = {label for label, _ in totals.most_common(MOST_SHOWN)}
        rows = list[dict[str, str | int | float]]()
        for split in self.splits:
            counts = {label: count for label, count in split.classes.items() if label in shown}
            if left := len(split.classes) - len(counts):
                counts[f"{left:,} other labels"] = sum(split.classes.values()) - sum(counts.values())
            rows += [
                {"split": split.name, "label": label, "count": n, "fraction": n / split.examples} for label, n in counts.items()
            ]
        return rows

    def findings(self) -> list[Finding]:
        """The findings for a user, the most severe first; empty if nothing is wrong."""
        findings = [*self._across_splits(), *(finding for split in self.splits for finding in self._in_split(split))]
        return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))

    @property
    def warnings(self) -> tuple[str, ...]:
        """The first few findings that are more than notes, as sentences."""
        return tuple(finding.sentence for finding in self.findings() if finding.severity != "note")[:MOST_WARNINGS]

    @property
    def dependent(self) -> list[str]:
        """Sentences on the number of independent texts of each split that has fewer than different ones."""
        return [finding.sentence for split in self.splits for finding in _dependent(split)]

    @property
    def copies(self) -> list[str]:
        """Sentences on the number of texts of each split that repeat an earlier one."""
        return [_copies(split) for split in self.splits if split.duplicates]

    def _in_label_names(self) -> Iterator[Finding]:
        for names in self.same_labels[:MOST_NAMED]:
            listed = " and ".join(f"{name!r} ({sum(split.classes[name] for split in self.splits)})" for name in names)
            yield Finding("warning", f"The labels {listed} look like one label in {len(names)} spellings; write them alike.")
        for name in self.splits[0].classes if self.splits else ():
            if _stands_for_missing(name, self.splits[0].classes):
                count = sum(split.classes[name] for split in self.splits)
                yield Finding("warning", f"The label {name!r} ({count}) often stands for a missing one; then leave such rows out.")

    def _in_training_texts(self) -> Iterator[Finding]:
        if label := self.spelled:
            yield Finding(
                "warning",
                f"{percent(label.share, 0)} of the training texts spell their label, such as {_short(label.example)}; new ones "
                f"may not. By naive Bayes {of_100(label.without)} of 100 are right without it, {of_100(label.with_it)} with it.",
            )
        yield from (finding for split in self.splits for finding in _dependent(split))

    def _across_splits(self) -> Iterator[Finding]:
        for name in self.already_trained:
            yield Finding(
                "error",
                f"{name} was already trained on labels of {self.task}, so its scores with few labels or with a frozen backbone "
                "mislead. Start from the model that it was adapted from.",
            )
        for sentence in self.already_read:
            yield Finding("warning", sentence)
        yield from self._in_training_texts()
        yield from self._in_label_names()
        examples = {split.name: split.examples for split in self.splits}
        for leak in (*self.leaks, *self.near_leaks, *self.group_leaks):
            severity: Severity = "error" if leak.split == "test" and not leak.like else "warning"
            texts = f"{_number_of(leak.count, 'text')} of {leak.split}"
            share, single_text = f"({percent(leak.count / examples[leak.split])})", leak.count == 1
            if leak.groups:
                single = leak.groups == 1
                yield Finding(
                    severity,
                    f"{_number_of(leak.groups, 'group')} of {leak.split} also {'occurs' if single else 'occur'} in {leak.other}, "
                    f"such as {_short(leak.example)}; {texts} {share} {'belongs' if single_text else 'belong'} to "
                    f"{'it' if single else 'them'}.",
                )
            elif leak.like:
                nearly = f"{'is' if single_text else 'are'} nearly the same as a text of {leak.other}"
                yield Finding(severity, f"{texts} {share} {nearly}, such as {_short(leak.example)} and {_short(leak.like)}.")
            else:
                also = f"also {'occurs' if single_text else 'occur'} in {leak.other}"
                yield Finding(severity, f"{texts} {share} {also}, such as {_short(leak.example)}.")
        if self.pretraining is not None:
            yield _in_pretraining(self.pretraining)
        if self.conflicts:
            first, count = self.conflicts[0], len(self.conflicts)
            yield Finding(
                "warning",
                f"{_number_of(count, 'text')} {'has' if count == 1 else 'have'} more than one label, such as {_short(first.text)} "
                f"({', '.join(first.labels)}).",
            )
        yield from (Finding("note", sentence) for sentence in self.cut)

    def _in_split(self, split: SplitAudit) -> Iterator[Finding]:
        yield from _in_texts(split)
        if split.tokens is not None:
            yield from _in_tokens(split.name, split.tokens, self.max_length, self.windows)


def _in_pretraining(overlap: PretrainingOverlap) -> Finding:
    if not overlap.compared:
        return Finding(
            "note", f"The test texts have under {SHORTEST_FOUND} words: too few to be looked for in the pretraining text."
        )
    looked_for = f"{_number_of(overlap.compared, 'test text')} looked for in the pretraining text"
    if not overlap.exact and not overlap.near:
        return Finding("note", f"Of {looked_for}, none occurs there.")
    return Finding(
        "warning",
        f"Of {looked_for}, {overlap.exact:,} ({percent(overlap.exact / overlap.compared)}) "
        f"{'occurs' if overlap.exact == 1 else 'occur'} there and {overlap.near:,} more "
        f"({percent(overlap.near / overlap.compared)}) nearly, such as {_short(overlap.example)}.",
    )


def _dependent(split: SplitAudit) -> Iterator[Finding]:
    if split.units < split.examples - split.duplicates:
        text, other = map(_short, split.near_copies)
        yield Finding(
            "note" if split.units > MOST_INDEPENDENT * split.examples else "warning",
            f"Of the {split.examples:,} texts of {split.name} {split.units:,} are independent: others are nearly copies of "
            f"one, quote it, or are by the same hand, such as {text} and {other}. They count as one.",
        )


def _in_texts(split: SplitAudit) -> Iterator[Finding]:
    if split.empty:
        verb = "is" if split.empty == 1 else "are"
        yield Finding("warning", f"{_number_of(split.empty, 'text')} of {split.examples:,} in {split.name} {verb} empty.")
    if split.duplicates:
        yield Finding("note", _copies(split))
    needed = FEW_EXAMPLES if split.name == "train" else 1
    if rare := [(label, count) for label, count in split.classes.items() if count < needed]:
        named = ", ".join(f"{label!r} ({count})" for label, count in sorted(rare, key=lambda pair: pair[1])[:MOST_NAMED])
        more = f" and {len(rare) - MOST_NAMED:,} others" if len(rare) > MOST_NAMED else ""
        problem = f"Labels with fewer than {FEW_EXAMPLES} examples" if split.name == "train" else "Labels without an example"
        yield Finding("warning", f"{problem} in {split.name}: {named}{more}.")


def _copies(split: SplitAudit) -> str:
    return (
        f"{_number_of(split.duplicates, 'text')} of {split.name} ({percent(split.duplicates / split.examples)}) "
        f"{'repeats' if split.duplicates == 1 else 'repeat'} an earlier one, such as {_short(split.duplicate)}."
    )


def _in_tokens(name: str, tokens: TokenCounts, max_length: int | None, windows: WindowSettings | None) -> Iterator[Finding]:
    if tokens.windowed:
        yield Finding(
            "note",
            f"{percent(tokens.windowed)} of the texts in {name} are longer than {max_length} tokens (up to {tokens.longest:,}); "
            "they are read in windows that overlap.",
        )
    if tokens.cut and tokens.lost is not None:
        longer = f"longer than {max_length} tokens (up to {tokens.longest:,})"
        if tokens.windowed and windows:
            longer = f"longer than {windows.max_windows} windows of {max_length} tokens"
        advice = f" {READ_WHOLE}" if windows and windows.windows == "none" else ""
        yield Finding(
            "warning" if tokens.cut > MANY_CUT else "note",
            f"{percent(tokens.cut)} of the texts in {name} are {longer}; {percent(tokens.lost)} of all tokens are cut off.{advice}",
        )
    if tokens.unknown:
        severity: Severity = "warning" if tokens.unknown > MANY_CUT else "note"
        yield Finding(severity, f"{percent(tokens.unknown, 2)} of the tokens in {name} are unknown to the tokenizer.")


def _number_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")


# ---------------------------------------------------------------------------------------------------- counting


def audit(
    task: Task,
    tokenizer: Tokenizer | None = None,
    max_length: int | None = None,
    pretraining: Iterable[str] | None = None,
    windows: WindowSettings | None = None,
) -> Audit:
    """Count what may be wrong with a task.

    ``max_length`` is the most tokens that the model reads of a text, ends included, or in one window. Test texts are looked for in
    ``pretraining``, the documents of a plain text.
    """
    original, task = task, task.as_texts()
    keys = {name: [text_key(text) for text in split.texts] for name, split in task.splits().items()}
    splits = tuple(
        _split_audit(name, split, keys[name], task.labels, _token_counts(split, tokenizer, max_length, windows or CUT))
        for name, split in task.splits().items()
        if len(split)  # a budget of labels may have no validation texts
    )
    leaks, near, groups = find_leaks(task, keys)
    named, learning = original.single_label or original.train.labels.ndim > 1, replace(task.train, labels=original.train.labels)
    return Audit(
        task=task.name,
        max_length=max_length,
        splits=splits,
        leaks=leaks,
        conflicts=_conflicts(task, keys),
        near_leaks=near,
        group_leaks=groups,
        pretraining=None if pretraining is None else _pretraining_overlap(task.test.texts, pretraining),
        windows=windows,
        same_labels=_same_labels(task.labels),
        spelled=spelled_label(learning, original.labels) if named and len(learning) else None,
    )


def _stands_for_missing(name: str, names: Iterable[str]) -> bool:
    """True if a label's name stands for no label: -1 does, unless it may be one of numbers such as -1, 0 and 1."""
    others = [other for other in names if other != name]
    number = name in ("-1", "-1.0") and (len(others) > 2 or not all(other.replace(".", "").isdigit() for other in others))
    return number or name.lower() in MISSING


def _same_labels(labels: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Groups of names that have one key."""
    alike = defaultdict[str, list[str]](list)
    for name in labels:
        alike[label_key(name)].append(name)
    return tuple(tuple(names) for names in alike.values() if len(names) > 1)


def _split_audit(name: str, split: Split, keys: list[str], labels: tuple[str, ...], tokens: TokenCounts | None) -> SplitAudit:
    first = {key: index for index, key in reversed(list(enumerate(keys)))}
    duplicates = [index for index, key in enumerate(keys) if key and first[key] != index]
    words = np.array([len(text.split()) for text in split.texts])
    return SplitAudit(
        name=name,
        examples=len(split),
        classes=dict(zip(labels, np.bincount(split.labels, minlength=len(labels)).tolist(), strict=True)),
        empty=keys.count(""),
        duplicates=len(duplicates),
        duplicate=split.texts[duplicates[0]] if duplicates else "",
        units=len(np.unique(split.units)),
        near_copies=_near_copies(split, keys),
        words={
            "mean": float(words.mean()),
            "median": float(np.median(words)),
            "p95": float(np.quantile(words, 0.95)),
            "longest": float(words.max()),
        },
        tokens=tokens,
    )


def _near_copies(split: Split, keys: Sequence[str]) -> tuple[str, str]:
    """The first two different texts that are one unit, if those of one group do not stand before them."""
    first = dict[int, int]()
    for number, unit in enumerate(split.units.tolist()):
        if keys[first.setdefault(unit, number)] != keys[number]:
            return split.texts[first[unit]], split.texts[number]
    return "", ""


def _token_counts(split: Split, tokenizer: Tokenizer | None, max_length: int | None, windows: WindowSettings) -> TokenCounts | None:
    if tokenizer is None:
        return None
    rows = encode(tokenizer, split.texts, max_length=1 << 40).rows  # whole texts, to count what would be cut
    lengths = np.array([len(row) for row in rows])
    unknown = sum(int((row == tokenizer.specials.unk).sum()) for row in rows)
    over = None
    if max_length is not None:
        framed = len(tokenizer.opening) + 1  # tokens of a row beside its text
        over = np.array([window_starts(length, max_length - framed, windows)[1] for length in (lengths - framed).tolist()])
    return TokenCounts(
        longest=int(lengths.max()),
        cut=None if over is None else float((over > 0).mean()),
        lost=None if over is None else float(over.sum() / lengths.sum()),
        unknown=float(unknown / lengths.sum()),
        windowed=0.0 if max_length is None or windows.windows == "none" else float((lengths > max_length).mean()),
    )


def _pretraining_overlap(texts: Sequence[str], documents: Iterable[str]) -> PretrainingOverlap:
    words = [text_words(text) for text in texts]
    exact, near = occurrences(words, map(text_words, documents))
    occurring = [*np.flatnonzero(exact), *np.flatnonzero(near)]
    compared = sum(len(text) >= SHORTEST_FOUND for text in words)
    return PretrainingOverlap(int(exact.sum()), int(near.sum()), compared, texts[occurring[0]] if occurring else "")


def _conflicts(task: Task, keys: dict[str, list[str]]) -> tuple[Conflict, ...]:
    labels_of: dict[str, set[int]] = defaultdict(set)
    written: dict[str, str] = {}
    for name, split in task.splits().items():
        for key, text, label in zip(keys[name], split.texts, split.labels.tolist(), strict=True):
            labels_of[key].add(label)
            written.setdefault(key, text)
    return tuple(
        Conflict(written[key], tuple(task.labels[label] for label in sorted(labels)))
        for key, labels in labels_of.items()
        if key and len(labels) > 1
    )


# ---------------------------------------------------------------------------------------------------- repair


def drop_leaks(task: Task, *, near: bool = False) -> Task:
    """The task without training and validation texts that are in test, and without training texts that are in validation.

    With ``near`` also without texts that are nearly the same as one of these. Test never changes, so its scores still compare
    with those of others. Raises ``DataError`` if no validation example is left, or no training example of some label.
    """
    keys: dict[str, list[Any]] = {name: [*map("".join, split.keys)] for name, split in task.splits().items()}
    if near:
        keys = {name: units.tolist() for name, units in units_across(task).items()}
    validation = _without(task.validation, keys["validation"], {*keys["test"]})
    train = _without(task.train, keys["train"], {*keys["test"], *keys["validation"]})
    missing = [name for number, name in enumerate(task.labels) if number not in train.labels] if task.single_label else []
    if missing or (len(task.validation) and not len(validation)):
        what = f"training example of {', '.join(missing)}" if missing else "validation example"
        raise DataError(f"after dropping the leaks of '{task.name}', no {what} is left; split the data differently")
    return replace(task, train=train, validation=validation)


def _without(split: Split, keys: Sequence[Any], known: Collection[Any]) -> Split:
    """The split without the texts whose key is known; empty texts stay."""
    return split.take(np.flatnonzero([key == "" or key not in known for key in keys]))
