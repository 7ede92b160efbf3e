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
    """Texts of a split that another one has too, or nearly, or texts of groups, such as authors, that it has too."""

    split: str
    """the split whose texts are counted: of the two, the one that is scored later"""
    other: str
    count: int
    """texts of ``split``"""
    example: str
    """one of these texts, or of the groups"""
    like: str = ""
    """the text of the other split that the example is nearly the same as"""
    groups: int = 0
    """groups in both splits"""


Leaks = tuple[Leak, ...]


def find_leaks(task: Task, keys: Mapping[str, Sequence[str]]) -> tuple[Leaks, Leaks, Leaks]:
    """Equal texts of two splits, by their ``keys``, nearly equal texts, and shared groups; of pairs of splits that have any."""
    pairs = [(scored, other) for other, scored in combinations(keys, 2) if keys[scored] and keys[other]]
    units = units_across(task) if pairs else {}
    leaks = (
        [_leak(task, keys, *pair) for pair in pairs],
        [_near_leak(task, keys, units, *pair) for pair in pairs],
        [_group_leak(task, *pair) for pair in pairs],
    )
    same, near, groups = (tuple(filter(None, kind)) for kind in leaks)
    return same, near, groups


def units_across(task: Task) -> dict[str, np.ndarray]:
    """The unit of each text among those of all splits, without regard to groups."""
    splits = task.splits()
    units = independent_units([plain_text(text) for split in splits.values() for text in split.texts], None)
    ends = np.cumsum([len(split) for split in splits.values()])
    return dict(zip(splits, np.split(units, ends[:-1]), strict=True))


def _leak(task: Task, keys: Mapping[str, Sequence[str]], scored: str, other: str) -> Leak | None:
    present = set(keys[other]) - {""}
    leaked = [index for index, key in enumerate(keys[scored]) if key in present]
    return Leak(scored, other, len(leaked), task.splits()[scored].texts[leaked[0]]) if leaked else None


def _group_leak(task: Task, scored: str, other: str) -> Leak | None:
    groups, others = (task.splits()[name].groups for name in (scored, other))
    if groups is None or others is None or not (shared := sorted({*groups.tolist()} & {*others.tolist()})):
        return None
    return Leak(scored, other, int(np.isin(groups, shared).sum()), shared[0], groups=len(shared))


def _near_leak(
    task: Task, keys: Mapping[str, Sequence[str]], units: Mapping[str, np.ndarray], scored: str, other: str
) -> Leak | None:
    present = {*keys[other]}
    in_both = np.flatnonzero(np.isin(units[scored], units[other]))
    if not (near := [number for number in in_both.tolist() if keys[scored][number] not in present]):
        return None
    like = np.flatnonzero(units[other] == units[scored][near[0]])[0]
    return Leak(scored, other, len(near), task.splits()[scored].texts[near[0]], task.splits()[other].texts[like])
