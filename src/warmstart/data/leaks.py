"""Texts that are in two splits of a task: the same, nearly the same, alike, or of one group.

``data/text_key.py`` says when two texts are the same, ``data/near_duplicates.py`` when they are nearly the same. Short texts that
share most of their words are only alike: they may be of one template ("set an alarm for 7 am", "set an alarm for 8 am"), as new
texts will be, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from warmstart.data.near_duplicates import LONG, near_duplicates
from warmstart.data.task import Task
from warmstart.data.text_key import text_words

SHORTEST_COPY = LONG // 2
"""words; a shorter text that is nearly the same as another is only like it"""


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
    alike: bool
    """whether the texts are short"""


@dataclass(frozen=True)
class GroupLeak:
    """Groups, such as authors, that are in two splits."""

    split: str
    """the split whose texts are counted: of the two, the one that is scored later"""
    other: str
    groups: int
    texts: int
    """of ``split``, in these groups"""
    example: str
    """one of the groups"""


def find_leaks(
    task: Task, keys: Mapping[str, Sequence[str]]
) -> tuple[tuple[Leak, ...], tuple[NearLeak, ...], tuple[GroupLeak, ...]]:
    """What is in two splits, whose texts have these ``keys``; pairs of splits that share nothing are left out."""
    pairs = [(scored, other) for other, scored in combinations(keys, 2)]
    leaks = [_leak(task, keys, *pair) for pair in pairs]
    groups = [_group_leak(task, *pair) for pair in pairs]
    return (
        tuple(leak for leak in leaks if leak.count),
        tuple(leak for pair in pairs for leak in _near_leaks(task, keys, *pair)),
        tuple(leak for leak in groups if leak),
    )


def _leak(task: Task, keys: Mapping[str, Sequence[str]], scored: str, other: str) -> Leak:
    present = set(keys[other]) - {""}
    leaked = [index for index, key in enumerate(keys[scored]) if key in present]
    return Leak(scored, other, len(leaked), task.splits()[scored].texts[leaked[0]] if leaked else "")


def _group_leak(task: Task, scored: str, other: str) -> GroupLeak | None:
    groups, others = (task.splits()[name].groups for name in (scored, other))
    if groups is None or others is None or not (shared := sorted({*groups.tolist()} & {*others.tolist()})):
        return None
    return GroupLeak(scored, other, len(shared), int(np.isin(groups, shared).sum()), shared[0])


def _near_leaks(task: Task, keys: Mapping[str, Sequence[str]], scored: str, other: str) -> Iterator[NearLeak]:
    texts, others = (first_texts(keys[name], task.splits()[name].texts) for name in (scored, other))
    for alike, like in enumerate(near_not_same(texts, others)):
        if near := [key for key in keys[scored] if key in like]:
            yield NearLeak(scored, other, len(near), texts[near[0]], others[like[near[0]]], bool(alike))


def first_texts(keys: Sequence[str], texts: Sequence[str]) -> dict[str, str]:
    """Each key and the first text that has it, so that copies are compared once."""
    return dict(zip(reversed(keys), reversed(texts), strict=True))


def near_not_same(texts: Mapping[str, str], others: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The key of each text of which ``others`` has nearly the same, but not the same -> the key of the one most like it.

    Of long texts, then of short ones, which are only alike.
    """
    new, old = [key for key in texts if key not in others], list(others)
    words = [text_words(texts[key]) for key in new]
    like = near_duplicates(words, [text_words(others[key]) for key in old])
    found: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for key, own, number in zip(new, words, like.tolist(), strict=True):
        if number >= 0:
            found[len(own) < SHORTEST_COPY][key] = old[number]
    return found
