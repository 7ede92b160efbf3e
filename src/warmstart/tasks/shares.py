"""Shares of labels among texts: how many of 10,000 mails are complaints? Predictions are counted, and the labels correct them.

Letters: M labelled texts of the model, N texts asked about, C labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warmstart.data.text_key import is_blank, key_hash, key_of
from warmstart.errors import DataError, suggest
from warmstart.model.bundle import Bundle, LeftOutAnswers
from warmstart.model.stack import Stack
from warmstart.notebook import Shown
from warmstart.stats.formatting import first_of, of_100
from warmstart.stats.intervals import Estimate
from warmstart.stats.shares import (
    FEWEST_LABELLED,
    LabelledSample,
    estimate_shares,
    sampled_alike,
    share_difference,
    share_ends,
    shares_sentence,
    with_known,
)
from warmstart.tasks import task_type_for
from warmstart.tasks.predict import Predictions, as_inputs, predict
from warmstart.tasks.unknown import drift_sentence, texts_compared

ALL = "all texts"
PICKED = 0.01
"""p-value of the test that labelled texts and others are alike below which no interval is given"""
MOST_GROUPS = 100
_DAY = re.compile(r"\d{4}-\d\d-\d\d.*")
_BAR = 50
"""characters of a bar of 100 of 100 texts"""
PICKED_SENTENCE = (
    "The labelled texts are no random sample of these texts: their predictions differ by more than chance explains. So there is no "
    "interval, and the shares may be wrong; label {fewest} or more of these texts drawn at random"
)
FEW_DRAWN = (
    "Only {drawn} of the labelled texts were drawn at random. So there is no interval, and the shares may be wrong; label {fewest} "
    "or more of these texts drawn at random"
)
ASSUMED = "The intervals assume that the labelled texts are a random sample of texts like these"


@dataclass(frozen=True)
class GroupShares:
    """The shares of the labels among the texts of a group."""

    name: str
    texts: int
    labelled: int
    """texts whose labels correct the predictions"""
    shares: tuple[Estimate, ...]
    """of each label; without an interval the ends are nan"""


@dataclass(frozen=True, repr=False)
class Shares(Shown, view="report.notebook:shares_view"):
    """Shares of labels among texts, with their 95% intervals."""

    labels: tuple[str, ...]
    groups: tuple[GroupShares, ...]
    """all texts first; then those of each group, if any were asked for"""
    notes: tuple[str, ...] = ()
    """assumptions, and reasons for missing intervals, as complete sentences without a full stop"""
    asked: int | None = None
    """number of texts of which those of the first group are a random sample; None: these are all"""

    def __repr__(self) -> str:
        return "\n".join([self.sentence, *self.notes])

    @property
    def sentence(self) -> str:
        """The commonest labels, as ``shares_sentence`` says them."""
        group = self.groups[0]
        texts = f"{group.texts:,} texts" if self.asked is None else f"{self.asked:,} texts without labels"
        return shares_sentence(self.labels, group.shares, texts)

    @property
    def covered(self) -> bool:
        """Whether there are intervals for all texts."""
        return not np.isnan(self.groups[0].shares[0].low)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each group and label: group, label, share, low, high (of 1; None without an interval), texts, labelled."""
        return [
            ({"group": group.name} if len(self.groups) > 1 else {})
            | {"label": label, "share": round(share.value, 4)}
            | {end: None if np.isnan(value) else round(value, 4) for end, value in (("low", share.low), ("high", share.high))}
            | {"texts": group.texts, "labelled": group.labelled}
            for group in self.groups
            for label, share in zip(self.labels, group.shares, strict=True)
        ]

    def difference(self, one: str, other: str, label: str) -> Estimate:
        """The share of a label in one group less that in another, with its 95% interval; nan where a group has none.

        Raises ``DataError`` for a group or label that is not there, and for all texts beside a group, which is part of them.
        """
        if ALL in (one, other):
            raise DataError(f"two groups are compared, but {ALL} hold every group; name two of those of --by")
        groups = {group.name: dict(zip(self.labels, group.shares, strict=True)) for group in self.groups}
        for kind, name, known in (("group", one, groups), ("group", other, groups), ("label", label, self.labels)):
            if name not in known:
                raise DataError(f"there is no {kind} '{name}'; {suggest(name, known)}")
        return share_difference(groups[one][label], groups[other][label])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return {"shares": self.rows, "notes": list(self.notes)}


def share_lines(counted: Shares) -> list[str]:
    """A line for each group and label, with a bar of 50 characters for 100 of 100 texts, and a dot where the interval ends."""
    wide = max(map(len, counted.labels))
    lines = []
    for group in counted.groups:
        labelled = f", {group.labelled:,} of them labelled" if group.name != ALL else ""
        lines.append(f"{group.name}: {group.texts:,}{labelled}")
        for label, share in zip(counted.labels, group.shares, strict=True):
            bar = "█" * round(_BAR * share.value)
            if not np.isnan(share.high):
                bar = f"{bar:<{round(_BAR * share.high)}}·"
            lines.append(f"  {label:<{wide}}  {of_100(share.value):>3}{share_ends(share):<13} {bar}")
    return lines


def shares(
    model: Bundle | Stack, texts: Sequence[Any], by: Sequence[Any] | None = None, tell: Callable[..., None] | None = None
) -> Shares:
    """The share of each label among N texts, each with a 95% interval; for each group, too, if ``by`` (N,) names their groups.

    Predictions for all texts are corrected by the labelled texts of the fit, which must be a random sample of texts like these
    (``stats/shares.py``); where some are known to be drawn at random, by these, and the others count as texts without a label.
    Labelled texts that are among these count with their labels; a group is corrected by its own, so it must
    have ``FEWEST_LABELLED`` of them for an interval. Dates in ``by`` are taken by month. Blank texts are left out. ``tell`` is
    given the texts that had to be predicted, their predictions, and whether they differ from the labelled ones. Raises
    ``DataError`` without texts, for a model without such labels, and for more than ``MOST_GROUPS`` groups.
    """
    texts, names = as_inputs(texts), None if by is None else group_names(by)
    if names is not None and len(names) != len(texts):
        raise DataError(f"there must be a group for each text, but there are {len(names)} for {len(texts)} texts")
    left_out = left_out_of(model)
    written = np.array([not is_blank(text) for text in texts], dtype=bool)
    if not written.any():
        raise DataError("there is no text of which to count the labels; give texts, or a file of texts with --file")
    places = {value: place for place, value in enumerate(left_out.hashes)}
    known = np.array([places.get(key_hash(key_of(text)).hex(), -1) for text in texts])
    count = _Counted(model, left_out, texts, written, known)
    if tell and count.predicted:
        tell(*count.predicted)
    groups = [count.group(ALL, written, count.rows)]
    for name in sorted(set(names or ()) - {""}):
        inside = written & np.array([value == name for value in names or ()])
        groups.append(count.group(name, inside, np.unique(count.known[inside & (count.known >= 0)])))
    return Shares(model.labels, tuple(groups), (*count.notes(), *_notes(groups, texts, written, left_out.random)))


def left_out_of(model: Bundle | Stack) -> LeftOutAnswers:
    """The answers to labelled texts that correct a model's predictions. Raises ``DataError`` if it has none, or few."""
    left_out = model.calibration.left_out if model.calibration else None
    if left_out is None or len(left_out.labels) < FEWEST_LABELLED:
        raise DataError(
            f"shares need a model that `warmstart fit` made of {FEWEST_LABELLED} or more labelled texts, which correct its "
            f"predictions, but this one has {len(left_out.labels) if left_out else 'none'}; fit one"
        )
    return left_out


def labelled_sample(left_out: LeftOutAnswers) -> LabelledSample:
    """The labelled texts of a model, and its answers to them."""
    predictions = np.array(left_out.probabilities)
    labels = np.zeros_like(predictions)
    for row, numbers in zip(labels, left_out.labels, strict=True):
        row[list(numbers)] = 1
    return LabelledSample(labels, predictions, np.ones(len(labels)))


class _Counted:
    """Predictions for the texts without a label, and the labelled texts.

    Only those that were drawn at random correct, if that is known of enough of them. The others, with the answers to them when they
    were left out, are like texts without a label: their labels would make what was picked too frequent.
    """

    def __init__(
        self, model: Bundle | Stack, left_out: LeftOutAnswers, texts: Sequence[Any], written: np.ndarray, known: np.ndarray
    ) -> None:
        self.single, self.drift, self.drawn = task_type_for(model).one_label, None, sum(left_out.random)
        self.predicted: tuple[list[Any], Predictions, bool | None] | None = None
        self.few_drawn = bool(left_out.random) and self.drawn < FEWEST_LABELLED
        sample, every = labelled_sample(left_out), np.arange(len(left_out.labels))
        self.rows = np.flatnonzero(left_out.random) if left_out.random and not self.few_drawn else every
        new = written & (known < 0)
        counted = self.rows if new.any() else every
        self.sample, self.known = sample, np.where(np.isin(known, counted), known, -1)
        self.others = written & (self.known < 0)
        self.values = sample.predictions[known]  # those of new texts follow
        if asked := [text for text, other in zip(texts, new, strict=True) if other]:
            predictions = predict(model, asked)
            self.values[new], typicality = predictions.probabilities, predictions.typicality
            if typicality is not None:
                self.drift = drift_sentence(asked, typicality, texts_compared(model))
            self.predicted = asked, predictions, None if typicality is None else bool(self.drift)
        self.picked = bool(asked) and sampled_alike(sample.take(self.rows), self.values[self.others]) < PICKED

    def notes(self) -> list[str]:
        """Reasons why no interval is given."""
        few = [FEW_DRAWN.format(drawn=self.drawn, fewest=5 * FEWEST_LABELLED)] * self.few_drawn
        picked = [PICKED_SENTENCE.format(fewest=5 * FEWEST_LABELLED)] * (self.picked and not self.few_drawn)
        return few + picked + ([self.drift] if self.drift else [])

    def group(self, name: str, inside: np.ndarray, rows: np.ndarray) -> GroupShares:
        """The shares among the texts ``inside`` (N,), corrected by the labelled texts ``rows``, or by all if these are few."""
        others, known = inside & self.others, self.sample.labels[self.known[inside & (self.known >= 0)]]
        few, count = len(rows) < FEWEST_LABELLED, int(others.sum())
        sample = self.sample.take(self.rows if few else rows)
        if count:
            found = estimate_shares(sample, self.values[others], single=self.single)
        else:
            found = [Estimate(0.0, 0.0, 0.0)] * known.shape[1]
        whole = [with_known(share, count, column) for share, column in zip(found, known.T, strict=True)]
        if count and (few or self.picked or self.few_drawn or self.drift):
            whole = [Estimate(share.value, np.nan, np.nan) for share in whole]
        return GroupShares(name, int(inside.sum()), len(rows), tuple(whole))


def group_names(values: Sequence[Any]) -> list[str]:
    """The group of each text; of dates, the month. Raises ``DataError`` for more than ``MOST_GROUPS``."""
    names = ["" if value is None else str(value).strip() for value in values]
    if all(_DAY.fullmatch(name) for name in names if name):
        names = [name[:7] for name in names]
    if (count := len(set(names))) > MOST_GROUPS:
        raise DataError(f"the groups must be at most {MOST_GROUPS}, but there are {count:,}; name a column with fewer values")
    return names


def _notes(groups: Sequence[GroupShares], texts: Sequence[Any], written: np.ndarray, random: Sequence[bool]) -> list[str]:
    """Blank texts, groups with few labelled texts, and the assumption."""
    few = [group.name for group in groups[1:] if group.labelled < FEWEST_LABELLED]
    blank = len(texts) - int(written.sum())
    notes = [f"{blank:,} blank {'text is' if blank == 1 else 'texts are'} not counted"] * (blank > 0)
    if few:
        notes.append(
            f"Without an interval, since fewer than {FEWEST_LABELLED} of their texts have labels that the model learned from: "
            f"{first_of(few, 5)}; their shares assume that the model errs in them as elsewhere"
        )
    if not np.isnan(groups[0].shares[0].low) and not all(random):
        notes.append(f"Of the {len(random):,} labelled texts the {sum(random):,} that were drawn at random correct the predictions")
    return notes + [ASSUMED] * (not random and not np.isnan(groups[0].shares[0].low))
