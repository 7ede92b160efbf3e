"""A model over time: counts of the texts that it predicted, kept beside it, and what has changed from month to month.

``predict`` and ``serve`` append lines of JSON (docs/reference/files.md). A text leaves no trace but that it was counted.
"""

from __future__ import annotations

import calendar
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from operator import add
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warmstart.data.text_key import is_blank
from warmstart.errors import WarmstartError
from warmstart.model.folder import is_model, model_digest
from warmstart.stats.formatting import of_100
from warmstart.stats.intervals import Estimate, t_quantile
from warmstart.stats.proportions import wilson_interval
from warmstart.system.limits import parse_json
from warmstart.system.storage import HISTORY_FILE, RUN_FILE, SETTINGS, atomic_write

if TYPE_CHECKING:
    from warmstart.tasks.predict import Predictions

NO_HISTORY = "WARMSTART_NO_HISTORY"
"""the environment variable that, if it is set, keeps ``predict`` and ``serve`` from counting"""
MOST_BYTES = 5_000_000
"""size of a history beyond which its lines are summed by month"""
FEWEST_COMPARED, MATTERS = 50, 0.03
"""texts on each side of a comparison, and the least difference of shares that is told"""
LAST_MONTHS, SHOWN_LABELS = 3, 5
"""months of which each may be that since when something differs; the most frequent labels are shown and compared"""
_LONGEST = 1_000_000
"""bytes of the longest line that is read to tell a history from a file of the user's"""
MONTH, DAY = 7, 10
"""characters of a date"""
_SURE = 0.997
"""confidence of a single comparison among about twenty"""
_COUNTS = ("unknown", "drift")
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])(-\d\dT\d\d:\d\d:\d\dZ)?")


@dataclass(frozen=True)
class Tally:
    """Counts of texts that a model predicted; blank ones are not counted."""

    date: str
    """moment of the first text, in UTC; of a sum its day or month"""
    model: str
    """first 12 digits of the model's digest"""
    texts: int
    labels: Mapping[str, int]
    """number of texts with each label"""
    sums: Mapping[str, float]
    """sums over the texts: ``unknown`` and ``drift`` count them; ``confidence``, ``mean`` and ``square`` (of numbers) do not"""

    def __add__(self, other: Tally) -> Tally:
        labels = {name: self.labels.get(name, 0) + other.labels.get(name, 0) for name in {**self.labels, **other.labels}}
        sums = {name: self.sums.get(name, 0) + other.sums.get(name, 0) for name in {**self.sums, **other.sums}}
        return replace(self, texts=self.texts + other.texts, labels=labels, sums=sums)

    def to_dict(self) -> dict[str, Any]:
        """A line of a history: counts, and means of values."""
        line: dict[str, Any] = {"date": self.date, "model": self.model, "texts": self.texts}
        if "mean" in self.sums:
            mean, square = (self.sums[name] / self.texts for name in ("mean", "square"))
            return line | {"mean": mean, "deviation": max(0.0, square - mean**2) ** 0.5}
        sums = {name: int(value) if name in _COUNTS else round(value / self.texts, 6) for name, value in self.sums.items()}
        return line | {"labels": dict(self.labels)} | sums

    @classmethod
    def parse(cls, line: bytes) -> Tally:
        """A line as ``to_dict`` gives it. Raises ``ValueError``, ``KeyError``, ``TypeError`` or ``AttributeError`` for another."""
        values = parse_json(line)
        texts, labels = int(values["texts"]), {str(name): int(count) for name, count in values.get("labels", {}).items()}
        sums = {name: float(values[name]) * (1 if name in _COUNTS else texts) for name in values.keys() & {*_COUNTS, "confidence"}}
        counts = [*labels.values(), *sums.values()]
        if "mean" in values:
            mean = float(values["mean"])
            sums = {"mean": texts * mean, "square": texts * (mean**2 + float(values["deviation"]) ** 2)}
        if not _DATE.fullmatch(values["date"]) or texts < 1 or not all(0 <= count <= texts for count in counts):
            raise ValueError("a line must hold a date and counts of texts")
        return cls(values["date"], str(values["model"]), texts, labels, sums)


def tally_of(model: str, inputs: Sequence[Any], predictions: Predictions, drift: bool | None) -> Tally | None:
    """The tally of predictions for inputs; ``drift``: together they differ. None if none has a label or a number."""
    from warmstart.tasks.predict import confidences_of
    from warmstart.tasks.unknown import UNKNOWN_SHARE

    kept = [place for place, text in enumerate(inputs) if not is_blank(text)]
    rows = [predictions[place] for place in kept]
    if not rows or not rows[0].keys() & {"label", "labels", "number"}:
        return None
    labels = Counter(label for row in rows for label in row.get("labels", [row["label"]] if "label" in row else []))
    sums = dict[str, float]()
    if predictions.typicality is not None:
        sums["unknown"] = int((predictions.typicality[kept] <= UNKNOWN_SHARE).sum())
    if drift is not None:
        sums["drift"] = drift * len(rows)
    if predictions.probabilities is not None:
        sums["confidence"] = float(confidences_of(predictions.probabilities)[kept].sum())
    if "number" in rows[0]:
        numbers = np.array([row["number"] for row in rows], dtype=float)
        sums |= {"mean": float(numbers.sum()), "square": float((numbers**2).sum())}
    return Tally(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), model, len(rows), labels, sums)


def history_of(path: str | Path) -> tuple[Path | None, str]:
    """The file of a model's history, in its run or beside its folder, and 12 digits of its digest; None: it is no saved model."""
    folder = Path(path) if is_model(path) else Path(path) / "bundle"
    if not is_model(folder):
        return None, ""
    folder = folder.resolve()
    in_run = folder.name == "bundle" and any((folder.parent / name).is_file() for name in (SETTINGS, RUN_FILE))
    return folder.parent / (HISTORY_FILE if in_run else f"{folder.name}.{HISTORY_FILE}"), model_digest(str(folder))[:12]


class Recorder:
    """Counts the predictions of a model and appends them to its history, at once or every so many seconds.

    Where that cannot be written, nothing happens. Methods may be called from several threads.
    """

    def __init__(self, path: str | Path, seconds: float = 0.0) -> None:
        self.file, self.model = (None, "") if os.environ.get(NO_HISTORY) else history_of(path)
        self._seconds, self._since, self._lock = seconds, 0.0, threading.Lock()
        self._waiting: Tally | None = None

    def count(self, inputs: Sequence[Any], predictions: Predictions, drift: bool | None = None) -> None:
        """Count predictions for inputs, as ``tally_of`` does."""
        if not self.file or not (tally := tally_of(self.model, inputs, predictions, drift)):
            return
        with self._lock:
            if time.monotonic() - self._since >= self._seconds:
                self._append()
            self._waiting = self._waiting + tally if self._waiting else tally
            if not self._seconds:
                self._append()

    def end(self) -> None:
        """Append what waits; predictions that follow are appended at once."""
        with self._lock:
            self._seconds = 0.0
            self._append()

    def _append(self) -> None:
        tally, self._waiting, self._since = self._waiting, None, time.monotonic()
        with suppress(OSError, WarmstartError):
            if not tally or not (file := self.file) or not _is_free(file):
                return
            with file.open("ab", buffering=0) as opened:
                opened.write(_lines([tally]))  # one write: lines of several processes do not mix
            if file.stat().st_size > MOST_BYTES:
                atomic_write(file, _lines(summed(read_tallies(file), MONTH)))


def _is_free(file: Path) -> bool:
    """True if lines may be appended: there is nothing yet, or a history; no file of the user's, no link to another, no pipe."""
    if file.is_symlink() or not file.is_file():
        return not os.path.lexists(file)
    with file.open("rb") as opened, suppress(ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return bool(Tally.parse(opened.readline(_LONGEST)))
    return file.stat().st_size == 0


def _lines(tallies: Iterable[Tally]) -> bytes:
    text = "".join(f"{json.dumps(tally.to_dict(), ensure_ascii=False)}\n" for tally in tallies)
    return text.encode(errors="backslashreplace")


def read_tallies(file: Path) -> list[Tally]:
    """The lines of a history, oldest first, without damaged ones, and what no history has room for."""
    tallies = list[Tally]()
    with suppress(FileNotFoundError), file.open("rb") as opened:
        for line in opened.read(2 * MOST_BYTES).splitlines():
            with suppress(ValueError, KeyError, TypeError, AttributeError, OverflowError):
                tallies.append(Tally.parse(line))
    return sorted(tallies, key=lambda tally: tally.date)


def summed(tallies: Iterable[Tally], characters: int) -> list[Tally]:
    """The sums of the tallies of a model whose dates begin with the same ``characters``: ``MONTH`` or ``DAY``."""
    sums = dict[tuple[str, str], Tally]()
    for tally in tallies:
        key = tally.date[:characters], tally.model
        sums[key] = sums[key] + tally if key in sums else replace(tally, date=key[0])
    return [*sums.values()]


def top_labels(tallies: Sequence[Tally]) -> list[str]:
    """The most frequent labels of some tallies."""
    return [name for name, _ in Counter(reduce(add, tallies).labels).most_common(SHOWN_LABELS)] if tallies else []


class Shift(NamedTuple):
    """A figure of a model that differs since a month."""

    figure: str
    """``unknown``, ``label`` or ``confidence``"""
    label: str
    """name of the label; empty for another figure"""
    since: str
    before: float
    after: float


def compared_months(tallies: Sequence[Tally]) -> list[str]:
    """The last months before and since which there are texts enough."""
    months = summed(tallies, MONTH)
    texts = [month.texts for month in months]
    enough = [min(sum(texts[:place]), sum(texts[place:])) >= FEWEST_COMPARED for place in range(len(months))]
    return [month.date for month, wide in zip(months, enough, strict=True) if wide][-LAST_MONTHS:]


def shift_of(tallies: Sequence[Tally]) -> Shift | None:
    """The clearest shift of a model: in the share of unknown texts, else in that of a label, else in the confidence.

    Differences (Newcombe 1998) are significant after a correction for all that are compared (Holm 1979), and matter. Of the
    confidence the variance is taken to be as large as it can be. Simulation: tests/test_model_history.py:
    ``test_what_has_not_changed_is_seldom_said_to_have``.
    """
    from warmstart.stats.multiple_testing import above_zero
    from warmstart.stats.shares import share_difference

    days, shifts, gaps = summed(tallies, DAY), list[tuple[int, Shift]](), list[Estimate]()
    figures = [[day.sums.get(name, 0) for day in days] for name in ("unknown", "confidence")]
    columns = [(0, "unknown", "", figures[0])]
    columns += [(1, "label", label, [day.labels.get(label, 0) for day in days]) for label in top_labels(days)]
    for since in compared_months(tallies):
        for rank, figure, label, counts in [*columns, (2, "confidence", "", figures[1])]:
            before, after = _before_and_since(since, days, counts)
            shifts.append((rank, Shift(figure, label, since, before.value, after.value)))
            gaps.append(share_difference(*sorted((before, after), reverse=True)))
    clear = [
        (rank, -gap.value / (gap.high - gap.low), shift)
        for (rank, shift), gap, significant in zip(shifts, gaps, above_zero(gaps), strict=True)
        if significant and gap.value >= MATTERS
    ]
    return min(clear)[-1] if clear else None


def _before_and_since(since: str, days: Sequence[Tally], counts: Sequence[float]) -> list[Estimate]:
    """Shares of the texts of days, of which there are ``counts``, before and since a month.

    Texts of a day are not independent: intervals widen as days differ by more than chance (quasi-likelihood: Wedderburn 1974), the
    more, the fewer days tell by how much.
    """
    texts, some, late = np.array([day.texts for day in days]), np.array(counts), np.array([day.date >= since for day in days])
    sides = [(float(some[side].sum() / texts[side].sum()), some[side], texts[side]) for side in (~late, late)]
    strays = sum(((some - share * texts) ** 2 / texts).sum() / (share * (1 - share) or 1) for share, some, texts in sides)
    freedom = max(1, len(days) - 2)
    wider = max(1.0, strays / freedom * (t_quantile(_SURE, freedom) / NormalDist().inv_cdf((1 + _SURE) / 2)) ** 2)
    return [wilson_interval(share, texts.sum() / wider) for share, _, texts in sides]


def shift_sentence(tallies: Sequence[Tally]) -> str:
    """A sentence about what has changed, by all tallies of a model, and what to do."""
    texts = sum(tally.texts for tally in tallies)
    count = f"So far {texts:,} text{'s' * (texts != 1)}"
    if any("mean" in tally.sums for tally in tallies):
        return f"{count}; whether their numbers have changed is not tested."
    if len({tally.date[:MONTH] for tally in tallies}) < 2:
        return f"{count}, and no earlier month to compare with."
    if not compared_months(tallies):
        return f"{count}: too few to compare months."
    if (shift := shift_of(tallies)) is None:
        return f"Nothing has changed beyond chance since {_month(tallies[0].date)}."
    figures, more = f"({of_100(shift.after)} of 100, before {of_100(shift.before)})", shift.after > shift.before
    number = "more" if more else "fewer"
    changed, advice = {
        "unknown": (f"{number} texts are like none of the labels", "label 50 of them" if more else ""),
        "label": (f"{number} texts are labelled '{shift.label}'", "label 50 new ones to know if that is right"),
        "confidence": (
            f"the model is {'surer' if more else 'less sure'}",
            "" if more else "label 50 new texts to know what is right",
        ),
    }[shift.figure]
    how = f": {advice}, `warmstart label NEW --import LABELLED --out labels`" if advice else ""
    return f"Since {_month(shift.since)} {changed} {figures}{how}."


def _month(date: str) -> str:
    """``September``, with the year if it is another one."""
    year = "" if date[:4] == str(datetime.now(UTC).year) else f" {date[:4]}"
    return f"{calendar.month_name[int(date[5:7])]}{year}"
