"""Texts that are in two splits of a task: the same, nearly the same, or of one group.

``data/text_key.py`` says when two texts are the same, ``data/units.py`` when they are nearly the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from warmstart.data.task import Task
from warmstart.data.text_key import plain_text
from warmstart.data.units import independent_units


@dataclass(frozen=True)
class Leak:
    """Texts that are in two splits."""

    split: str
    """the split whose texts are counted: of the two, the one that is scored later"""
    other: str
    """the split that also contains them"""
    count: int
    example: str


@dataclass(frozen=True)
class NearLeak:
    """Texts of which another split has nearly the same, but not the same."""

    split: str
    """the split whose texts are counted: of the two, the one that is scored later"""
    other: str
    count: int
    example: str
    like: str
    """the text of the other split that the example is like"""


@dataclass(frozen=True)
class GroupLeak:
    """Groups, such as authors, that are in two splits."""

    split: str
    """the split whose texts are counted: of the two, the one that is scored later"""
    other: str
    groups: int
    texts: int
    """texts of ``split`` in these groups"""
    example: str
    """one of the groups"""


def find_leaks(
    task: Task, keys: Mapping[str, Sequence[str]]
) -> tuple[tuple[Leak, ...], tuple[NearLeak, ...], tuple[GroupLeak, ...]]:
    """The texts that are in two splits, by their ``keys``; pairs of splits that share nothing are left out."""
    pairs = [(scored, other) for other, scored in combinations(keys, 2) if keys[scored] and keys[other]]
    leaks = [_leak(task, keys, *pair) for pair in pairs]
    groups = [_group_leak(task, *pair) for pair in pairs]
    near = [_near_leak(task, keys, units, *pair) for units in [units_across(task) if pairs else {}] for pair in pairs]
    return tuple(leak for leak in leaks if leak.count), tuple(leak for leak in near if leak), tuple(leak for leak in groups if leak)


def units_across(task: Task) -> dict[str, np.ndarray]:
    """The unit of each text among those of all splits, without regard to groups."""
    splits = task.splits()
    units = independent_units([plain_text(text) for split in splits.values() for text in split.texts], None)
    ends = np.cumsum([len(split) for split in splits.values()])
    return dict(zip(splits, np.split(units, ends[:-1]), strict=True))


def _leak(task: Task, keys: Mapping[str, Sequence[str]], scored: str, other: str) -> Leak:
    present = set(keys[other]) - {""}
    leaked = [index for index, key in enumerate(keys[scored]) if key in present]
    return Leak(scored, other, len(leaked), task.splits()[scored].texts[leaked[0]] if leaked else "")


def _group_leak(task: Task, scored: str, other: str) -> GroupLeak | None:
    groups, others = (task.splits()[name].groups for name in (scored, other))
    if groups is None or others is None or not (shared := sorted({*groups.tolist()} & {*others.tolist()})):
        return None
    return GroupLeak(scored, other, len(shared), int(np.isin(groups, shared).sum()), shared[0])


def _near_leak(
    task: Task, keys: Mapping[str, Sequence[str]], units: Mapping[str, np.ndarray], scored: str, other: str
) -> NearLeak | None:
    present = {*keys[other]}
    in_both = np.flatnonzero(np.isin(units[scored], units[other]))
    if not (near := [number for number in in_both.tolist() if keys[scored][number] not in present]):
        return None
    like = np.flatnonzero(units[other] == units[scored][near[0]])[0]
    return NearLeak(scored, other, len(near), task.splits()[scored].texts[near[0]], task.splits()[other].texts[like])
