"""Minimal pairs: how often the right sentence of a pair scores higher than one that differs in the error alone.

They are read from

- BLiMP: ndjson with ``sentence_good``, ``sentence_bad``, ``UID`` and ``linguistics_term``; a file, or a folder of them
- tables with the columns ``good`` and ``bad``, and optionally ``group``
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from warmstart.data.files import is_compressed
from warmstart.data.source import Format, Source
from warmstart.data.tables import read_table
from warmstart.errors import DataError
from warmstart.stats.intervals import Estimate
from warmstart.stats.proportions import ProportionDifference, binomial_test, mean_proportion, paired_proportions, wilson_interval

FORMATS: dict[str, Format] = {".jsonl": "ndjson", ".ndjson": "ndjson", ".tsv": "tsv", ".csv": "csv"}
"""ending of a file -> how it is read"""


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ in one point; the first is grammatical."""

    good: str
    bad: str
    group: str = "all"
    """subject of the test: a paradigm, a construction"""
    phenomenon: str = ""
    """phenomenon of the group: in BLiMP its ``linguistics_term``"""


@dataclass(frozen=True)
class PairGroup:
    """The verdicts on a group of P pairs."""

    name: str
    phenomenon: str
    """phenomenon of the group"""
    right: np.ndarray
    """(P,) 1 if the right sentence scores higher, 0.5 for a tie, else 0"""

    @property
    def accuracy(self) -> Estimate:
        """The fraction of pairs in which the right sentence scores higher, with its 95% interval over pairs (Wilson 1927)."""
        return wilson_interval(float(self.right.mean()), len(self.right))

    @property
    def p_value(self) -> float:
        """The two-sided exact p-value of an accuracy this far from one half."""
        return binomial_test(float(self.right.sum()), len(self.right))


def judge_pairs(pairs: Sequence[MinimalPair], scores: np.ndarray) -> list[PairGroup]:
    """The groups of P pairs, in order of first appearance; ``scores`` (2 P,): all good sentences, then all bad ones."""
    good, bad = scores[: len(pairs)], scores[len(pairs) :]
    right = np.where(np.isclose(good, bad, rtol=0, atol=1e-6), 0.5, good > bad)
    members: dict[str, list[int]] = {}
    for i, pair in enumerate(pairs):
        members.setdefault(pair.group, []).append(i)
    return [PairGroup(name, pairs[indices[0]].phenomenon, right[indices]) for name, indices in members.items()]


def by_phenomenon(groups: Sequence[PairGroup]) -> list[PairGroup]:
    """The groups of each phenomenon as one; none, if a group has no phenomenon or each has its own."""
    joined: dict[str, list[np.ndarray]] = {}
    for group in groups:
        joined.setdefault(group.phenomenon, []).append(group.right)
    if "" in joined or len(joined) == len(groups):
        return []
    return [PairGroup(name, name, np.concatenate(rights)) for name, rights in joined.items()]


def mean_accuracy(groups: Sequence[PairGroup]) -> Estimate:
    """The mean accuracy over groups, each counted alike, with its 95% interval over pairs."""
    return mean_proportion([group.right for group in groups])


def compare_groups(first: Sequence[PairGroup], second: Sequence[PairGroup]) -> ProportionDifference:
    """The mean accuracy of ``one`` less that of ``other`` on the same pairs."""
    return paired_proportions([group.right for group in first], [group.right for group in second])


def read_minimal_pairs(path: str | Path, limit: int | None = None) -> list[MinimalPair]:
    """The pairs of a file or folder; with ``limit`` at most this many of each group, from the beginning.

    Raises ``DataError`` for a file in none of the known forms, and for a row that is not a pair.
    """
    source = Path(path)
    files = sorted(file for file in source.iterdir() if _ending(file) in (".jsonl", ".ndjson")) if source.is_dir() else [source]
    if not files or not source.exists():
        raise DataError(
            f"minimal pairs must be a file, or a folder of ndjson files, but {path} is neither; see docs/explanation/studies.md"
        )
    counts, kept = Counter[str](), []
    for pair in (pair for file in files for pair in _read_table(file)):
        counts[pair.group] += 1
        if limit is None or counts[pair.group] <= limit:
            kept.append(pair)
    if not kept:
        raise DataError(f"there must be at least one minimal pair, but {path} has none; give a file with rows of good and bad")
    return kept


def _ending(file: Path) -> str:
    return Path(file.stem).suffix if is_compressed(file) else file.suffix


def _pair(good: object, bad: object, group: object, phenomenon: object, where: str) -> MinimalPair:
    """A pair from the values of a row. Both sentences must be there; without a group it is in the group ``all``."""
    for name, value in (("right", good), ("wrong", bad)):
        if not isinstance(value, str) or not value.strip():
            problem = "is empty" if value is None or isinstance(value, str) else f"is {str(value)[:80]!r}"
            raise DataError(f"{where}: a pair must have two sentences, but the {name} one {problem}; correct or remove the row")
    return MinimalPair(str(good), str(bad), _name(group, "all"), _name(phenomenon, ""))


def _name(value: object, default: str) -> str:
    """A value as a name, or the default if it is empty."""
    return default if value is None or not str(value).strip() else str(value)


def _read_table(file: Path) -> list[MinimalPair]:
    """A table in either form, told apart by its columns."""
    form = FORMATS.get(_ending(file))
    if form is None:
        raise DataError(f"minimal pairs must be a file with one of the endings {', '.join(FORMATS)}, but got {file.name}")
    table = read_table(Source(path=str(file)), file, form).frame
    columns = set(table.columns)
    rows = [(f"row {number} of {file.name}", row) for number, row in enumerate(table.iter_rows(named=True), 1)]
    if {"sentence_good", "sentence_bad"} <= columns:
        stem = file.name.split(".")[0]
        return [
            _pair(row["sentence_good"], row["sentence_bad"], _name(row.get("UID"), stem), row.get("linguistics_term"), where)
            for where, row in rows
        ]
    if {"good", "bad"} <= columns:
        return [_pair(row["good"], row["bad"], row.get("group"), None, where) for where, row in rows]
    raise DataError(
        f"{file.name} must have the columns good and bad, or sentence_good and sentence_bad, but has {', '.join(table.columns)}"
    )
