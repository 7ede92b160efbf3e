"""Texts that spell their label, such as "Category: billing" or "passed on to the billing team": a model would learn to read that.

A label's name in a text is such a sign where its neighbours are the same in many texts, where mostly names of labels stand between
these neighbours, and where the name is a label of the text. "I want a refund" is none: many other words follow "want a".
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.data.task import Split
from warmstart.data.text_key import text_key

SHARE_SPELLED, FEWEST_SPELLED = 0.05, 5
"""share and number of the texts that have the neighbours"""
OWN_NAME, FILLED = 0.9, 0.5
"""share of names between them that are the text's own label, and of all words between them that are names"""
SHOWN_BEFORE = 3
"""tokens of an example before the name"""
TIMES_SCORED, MOST_SCORED = 5, 2000
"""draws and most of the texts, to score a simple method with and without these words"""
WORTH = 0.05
"""share of all texts that must be right by the names alone"""
_TOKENS = re.compile(r"\w+|[^\w\s]|\n")
_ENDS = ("", "")
_MARKS = frozenset("[](){}<>#:=|*")
Neighbours = tuple[str, str, str]
"""side of the neighbours, and both of them"""


@dataclass(frozen=True)
class SpelledLabel:
    """Words that spell the labels, and the accuracy without them."""

    example: str
    """the words of one text"""
    share: float
    """share of the texts"""
    with_it: float
    without: float
    """accuracy of naive Bayes on texts that are left out, as they are and without the names"""

    @property
    def misleads(self) -> bool:
        """True if a score owes something to these words."""
        return self.with_it - self.without >= WORTH


def spelled_label(split: Split, names: Sequence[str]) -> SpelledLabel | None:
    """The words that spell the labels of texts, one or several each; None without any."""
    if len(names) < 2:
        return None
    split = split.take(np.random.default_rng(0).permutation(len(split))[:MOST_SCORED])
    texts, targets = split.texts, split.labels if split.labels.ndim > 1 else np.eye(len(names), dtype=np.int64)[split.labels]
    spelled = {tuple(_TOKENS.findall(name.casefold())): number for number, name in enumerate(names) if text_key(name)}
    written = [[*_ENDS, *_TOKENS.findall(text), *_ENDS] for text in texts]
    rows = [[token.casefold() for token in row] for row in written]
    places = [[*_names(row, spelled)] for row in rows]
    signs = _signs(rows, places, targets)
    parts_of = [
        [(start, end) for start, end, _ in own if signs & {*_neighbours(row, start, end)}]
        for row, own in zip(rows, places, strict=True)
    ]
    hits = [number for number, parts in enumerate(parts_of) if parts]
    if not hits:
        return None
    text, (start, end) = texts[hits[0]], parts_of[hits[0]][0]
    spans = [token.span() for token in _TOKENS.finditer(text)][max(0, start - len(_ENDS) - SHOWN_BEFORE) : end - len(_ENDS) + 1]
    without = [
        " ".join(token for place, token in enumerate(row) if not any(start <= place < end for start, end in parts))
        for row, parts in zip(written, parts_of, strict=True)
    ]
    return SpelledLabel(
        " ".join(text[spans[0][0] : spans[-1][1]].split()),
        len(hits) / len(texts),
        _score([" ".join(row) for row in written], targets, split.units),
        _score(without, targets, split.units),
    )


def _names(row: Sequence[str], spelled: dict[tuple[str, ...], int]) -> Iterator[tuple[int, int, int]]:
    """Begin, end and number of each label that a row names; of several at a place the longest."""
    lengths, place = sorted({len(name) for name in spelled}, reverse=True), 0
    while place < len(row):
        size = next((size for size in lengths if tuple(row[place : place + size]) in spelled and place + size <= len(row)), 1)
        if (name := tuple(row[place : place + size])) in spelled:
            yield place, place + size, spelled[name]
        place += size


def _neighbours(row: Sequence[str], start: int, end: int) -> tuple[Neighbours, Neighbours, Neighbours]:
    """Two tokens before a part, one on each side, and two after it."""
    return ("before", row[start - 2], row[start - 1]), ("around", row[start - 1], row[end]), ("after", row[end], row[end + 1])


def _signs(
    rows: Sequence[Sequence[str]], places: Sequence[Sequence[tuple[int, int, int]]], labelled: np.ndarray
) -> set[Neighbours]:
    """The neighbours between which a label is spelled."""
    of = defaultdict[Neighbours, list[tuple[int, int]]](list)
    for text, (row, own) in enumerate(zip(rows, places, strict=True)):
        for start, end, number in own:
            for neighbours in {*_neighbours(row, start, end)}:
                of[neighbours].append((text, number))
    enough = {
        neighbours: names
        for neighbours, names in of.items()
        if len({text for text, _ in names}) >= max(FEWEST_SPELLED, SHARE_SPELLED * len(rows))
    }
    if not enough:
        return set()
    filled = Counter(
        neighbours
        for row, own in zip(rows, places, strict=True)
        for start, end in _parts(len(row) - len(_ENDS), own)
        for neighbours in _neighbours(row, start, end)
        if neighbours in enough
    )
    return {
        neighbours
        for neighbours, names in enough.items()
        if len(names) > FILLED * filled[neighbours]
        and np.mean([labelled[text, number] for text, number in names]) >= OWN_NAME
        and (len({number for _, number in names}) > 1 or _MARKS & {*neighbours[1:]})
    }


def _parts(length: int, own: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Each token, and each name of a label as one."""
    place, ends = len(_ENDS), {start: end for start, end, _ in own}
    while place < length:
        yield place, ends.get(place, place + 1)
        place = ends.get(place, place + 1)


def _score(texts: Sequence[str], targets: np.ndarray, units: np.ndarray) -> float:
    """Share of texts with the label, among those given (N, C), that naive Bayes predicts from texts of other units."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB

    fold = np.random.default_rng(0).integers(0, TIMES_SCORED, units.max() + 1)[units]
    rows = CountVectorizer(binary=True, token_pattern=r"\w+").fit_transform([*texts])
    right = np.zeros(len(texts), dtype=bool)
    for number in range(TIMES_SCORED):
        held = fold == number
        if held.any() and targets[~held].any():
            learned, labels = np.nonzero(targets[~held])
            right[held] = targets[held, MultinomialNB().fit(rows[~held][learned], labels).predict(rows[held])]
    return float(right.mean())
