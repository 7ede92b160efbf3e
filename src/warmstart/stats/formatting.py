"""Figures and names as text, each way once: percentages, differences in points, intervals, p-values, sizes in bytes.

Fractions are numbers from 0 to 1. An interval is written ``27.2% (24.5 to 29.9)``: its ends repeat neither the unit nor the sign.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")
_MOST_ALTERNATIVES = 3


class _WithEnds(Protocol):
    """An estimate with the ends of its interval, which are not finite if it has none."""

    @property
    def mean(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def percent(fraction: float, digits: int = 1, *, trim: bool = False) -> str:
    """``percent(0.2718)`` -> ``"27.2%"``; ``trim`` writes as few digits as the number has, as for a setting: ``"5%"``."""
    return f"{100 * fraction:g}%" if trim else f"{percent_value(fraction, digits)}%"


def of_100(share: float) -> str:
    """A share as people count: ``of_100(0.864)`` -> ``"86"``, of 100."""
    return percent_value(share, 0)


def first_of(names: Sequence[str], most: int, rest: str = "more") -> str:
    """``first_of(["a", "b", "c"], 2)`` -> ``"a, b and 1 more"``."""
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} {rest}" if left > 0 else "")


def percent_value(fraction: float, digits: int = 1) -> str:
    """A percentage without the unit, for columns whose header names it: ``percent_value(0.2718)`` -> ``"27.2"``."""
    return f"{100 * fraction:.{digits}f}"


def percent_range(low: float, high: float, *, digits: int = 1) -> str:
    """The ends of an interval: ``"24.5 to 29.9"``."""
    return f"{percent_value(low, digits)} to {percent_value(high, digits)}"


def percent_interval(mean: float, low: float, high: float, *, digits: int = 1) -> str:
    """A percentage with its interval: ``"27.2% (24.5 to 29.9)"``."""
    return f"{percent(mean, digits)} ({percent_range(low, high, digits=digits)})"


def points(difference: float, digits: int = 1) -> str:
    """A difference of fractions: ``points(0.022)`` -> ``"+2.2 points"``."""
    return f"{points_value(difference, digits)} points"


def points_value(difference: float, digits: int = 1) -> str:
    """A difference of fractions without its unit: ``points_value(0.022)`` -> ``"+2.2"``."""
    return f"{100 * difference:+.{digits}f}"


def points_range(low: float, high: float, *, digits: int = 1) -> str:
    """The ends of an interval of differences: ``"-1.4 to +5.9"``."""
    return f"{points_value(low, digits)} to {points_value(high, digits)}"


def with_ends(value: _WithEnds, write: Callable[[float, float, float], str]) -> str:
    """An estimate with its interval, as ``percent_interval`` or ``points_interval`` writes it; without one, alone."""
    return write(value.mean, value.low, value.high) if math.isfinite(value.low) else write(value.mean, 0, 0).split(" (")[0]


def points_interval(mean: float, low: float, high: float, *, digits: int = 1) -> str:
    """A difference of fractions with its interval: ``"+2.2 points (-1.4 to +5.9)"``."""
    return f"{points(mean, digits)} ({points_range(low, high, digits=digits)})"


def figure_interval(value: float, low: float, high: float, *, digits: int = 3) -> str:
    """Any other figure with its interval: ``"0.512 (0.498 to 0.530)"``."""
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def p_value(p: float) -> str:
    """``"0.012"``; below a thousandth ``"< 0.001"``."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def sentence_case(text: str) -> str:
    """A text with a capital at the beginning, and the rest unchanged."""
    return text[:1].upper() + text[1:]


def layer_name(layer: str) -> str:
    """``4`` -> ``layer 4``; ``embedding`` -> ``the embedding``."""
    return f"layer {layer}" if layer.isdecimal() else f"the {layer}"


def model_name(path: str) -> str:
    """A folder's name; for a run's bundle, the run's; for ``.``, that of the folder itself."""
    folder = Path(path).resolve()
    return folder.parent.name if folder.name == "bundle" else folder.name


def time_span(seconds: float) -> str:
    """Seconds for people: ``time_span(95)`` -> ``"1.6 minutes"``; less than 90 are seconds, from 90 minutes on hours."""
    if seconds < 90:
        return f"{seconds:.0f} second{'' if round(seconds) == 1 else 's'}"
    return f"{seconds / 60:.1f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def sources_of_chance(seeds: int, texts: str = "the test texts") -> str:
    """Sources of an interval: ``"5 seeds and the test texts"``; with one seed ``"the test texts alone"``; without, the texts."""
    return f"{seeds} seeds and {texts}" if seeds > 1 else f"{texts}{' alone' * seeds}"


def sources_of_interval(seeds: int, texts: str = "texts") -> str:
    """Sources that an interval covers, in the header of a table: ``"seeds and texts"``; with one seed ``"texts alone"``."""
    return f"seeds and {texts}" if seeds > 1 else f"{texts} alone"


INTERVAL_OVER = "95% interval over"
"""header of the column with the sources of each row"""


def rows_by_source(
    name: str, seeds: int, both: Iterable[object], alone: Iterable[str], texts: str = "texts"
) -> list[tuple[str, ...]]:
    """Rows of a table under a name and ``INTERVAL_OVER``: figures with intervals over ``both`` sources, then over seeds ``alone``.

    One seed has the first row only. ``rows_by_source("LoRA", 3, ["80.0% (75.0 to 85.0)"], ["78.1 to 81.9"])`` ->
    ``[("LoRA", "seeds and texts", "80.0% (75.0 to 85.0)"), ("LoRA", "seeds alone", "78.1 to 81.9")]``
    """
    first = (name, sources_of_interval(seeds, texts), *map(str, both))
    return [first, (name, "seeds alone", *alone)] if seeds > 1 else [first]


def file_size(size: float) -> str:
    """Bytes for people: ``file_size(1_290_000)`` -> ``"1.3 MB"``."""
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def merged_notes(notes: Sequence[str]) -> list[str]:
    """The parts of the notes of several runs; parts that differ in one number become one.

    ``["C = 1; read 7 texts", "C = 10; read 9 texts"]`` -> ``["C = 1 or 10", "read 7 or 9 texts"]``
    """
    kinds: dict[str, list[str]] = {}
    for part in dict.fromkeys(part for note in notes for part in note.split("; ")):
        kinds.setdefault(_NUMBER.sub("#", part), []).append(part)
    return [merged for parts in kinds.values() for merged in _merged(parts)]


def _merged(parts: Sequence[str]) -> Sequence[str]:
    """Texts that are the same but for their numbers; as they are if more than one number differs."""
    columns = [list(dict.fromkeys(column)) for column in zip(*map(_NUMBER.findall, parts), strict=True)]
    if sum(len(column) > 1 for column in columns) != 1:
        return parts
    numbers = iter(columns)
    return [_NUMBER.sub(lambda _: _alternatives(next(numbers)), parts[0])]


def _alternatives(numbers: Sequence[str]) -> str:
    """``["1", "10"]`` -> ``"1 or 10"``; of more than three the range."""
    ordered = sorted(numbers, key=lambda number: float(number.replace(",", "")))
    if len(ordered) > _MOST_ALTERNATIVES:
        return f"{ordered[0]} to {ordered[-1]}"
    return " or ".join(filter(None, [", ".join(ordered[:-1]), ordered[-1]]))


def list_sizes(places: Sequence[int], sizes: Sequence[int]) -> str:
    """Some of a list of sizes in words, neighbours together: 16, 64, 128 of 16, 32, 64, 128 -> ``"16 and 64 to 128"``."""
    runs: list[list[int]] = []
    for i, size in enumerate(sizes):
        if size not in places:
            continue
        if i and runs and runs[-1][-1] == sizes[i - 1]:
            runs[-1].append(size)
        else:
            runs.append([size])
    parts = [f"{run[0]:,}" if len(run) == 1 else f"{run[0]:,} to {run[-1]:,}" for run in runs]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
