"""What the task types share when they read examples: what a source has for them, and names of labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from warmstart.errors import ConfigError, DataError

Examples = tuple[list[Any], list[Any]]
"""inputs and their targets, equally many"""


class Rows(NamedTuple):
    """What sources have for a task."""

    inputs: list[Any]
    targets: list[Any]
    groups: np.ndarray | None
    """(N,) the group of each, as a string; None if no source has groups"""
    unlabelled: tuple[str, ...]
    """the texts of rows without a label"""


def label_names(present: Sequence[str], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """The label names in the order of their numbers: as ``wanted``, else sorted.

    Names that are all whole numbers are sorted as numbers (``"2"`` before ``"10"``). ``present`` holds the labels of all training
    examples. Raises ``DataError`` for fewer than two different ones, ``ConfigError`` if ``wanted`` repeats a name.
    """
    names = set(present)
    if len(names) < 2 and wanted is None:
        found = f"all {len(present)} training examples have {names.pop()!r}" if names else "no training example has one"
        raise DataError(f"a task needs at least two labels, but {found}")
    if wanted is None:
        numeric = all(name.removeprefix("-").isdecimal() for name in names)
        return tuple(sorted(names, key=lambda name: (int(name) if numeric else 0, name)))
    if len(set(wanted)) != len(wanted):
        raise ConfigError(f"'labels' must name each label once, but repeats {Counter(wanted).most_common(1)[0][0]!r}")
    return wanted


def label_numbers(split: str, used: Iterable[str], labels: tuple[str, ...]) -> dict[str, int]:
    """Label name -> number. Raises ``DataError`` if the split uses a name that is not in ``labels``."""
    from warmstart.system.console import print_once

    numbers = {label: number for number, label in enumerate(labels)}
    unknown = Counter(label for label in used if label not in numbers)
    alike = {label: [name for name in labels if name.casefold() == label.casefold()] for label in unknown}
    for label in [label for label, names in alike.items() if len(names) == 1]:
        print_once(f"The label {label!r} of the {split} split is read as {alike[label][0]!r}.")
        numbers[label] = numbers[alike[label][0]]
        del unknown[label]
    if unknown:
        listed = ", ".join(f"{label!r} ({count}×)" for label, count in unknown.most_common(5))
        raise DataError(
            f"every label of the {split} split must be one of {', '.join(labels)}, but it has {listed}; "
            "correct the labels, or add training examples with them"
        )
    return numbers
