"""From names to numbers: what the targets of a task look like as arrays.

Letters: N examples, C names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from warmstart.errors import ConfigError, DataError


def strata(labels: np.ndarray) -> np.ndarray:
    """What a choice of examples is stratified by, (N,) int64: their class where each has one, else nothing."""
    return labels if labels.ndim == 1 and labels.dtype == np.int64 else np.zeros(len(labels), dtype=np.int64)


def names_of(kind: str, targets: Sequence[Any], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """The names that targets are numbered by; kinds that ask for no names have none."""
    if kind in ("label", "labels", "tags"):
        return _label_names(targets if kind == "label" else [name for row in targets for name in row], wanted)
    if wanted is not None:
        raise ConfigError(f"a task of kind '{kind}' has no labels; remove 'labels'")
    return ()


def _label_names(found: Sequence[str], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    """The names of the classes: as wanted, else sorted, as numbers if all of them are (``"2"`` before ``"10"``)."""
    present = set(found)
    if len(present) < 2:
        said = f"all {len(found)} training examples have {present.pop()!r}" if present else "no training example has one"
        raise DataError(f"a task needs at least two labels, but {said}")
    if wanted is None:
        numeric = all(name.removeprefix("-").isdecimal() for name in present)
        return tuple(sorted(present, key=lambda name: (int(name) if numeric else 0, name)))
    if len(set(wanted)) != len(wanted):
        raise ConfigError(f"'labels' must name each label once, but repeats {Counter(wanted).most_common(1)[0][0]!r}")
    return wanted


def numbered(name: str, found: Sequence[Any], labels: tuple[str, ...], kind: str) -> np.ndarray:
    """The targets of a split with names as numbers; raises ``DataError`` for names outside ``labels``."""
    numbers = {label: number for number, label in enumerate(labels)}
    rows = [[label] for label in found] if kind == "label" else found if kind in ("labels", "tags") else []
    strange = Counter(label for row in rows for label in row if label not in numbers)
    if strange:
        listed = ", ".join(f"{label!r} ({count}×)" for label, count in strange.most_common(5))
        raise DataError(
            f"every label of the {name} split must be one of {', '.join(labels)}, but it has {listed}; "
            "mend the labels, or add training examples of these"
        )
    return _array(kind, found, numbers)


def _array(kind: str, found: Sequence[Any], numbers: Mapping[str, int]) -> np.ndarray:
    """Targets as an array of N: see ``Split.labels``."""
    if kind == "label":
        return np.array([numbers[label] for label in found], dtype=np.int64)
    if kind == "labels":
        many = np.zeros((len(found), len(numbers)), dtype=np.float32)
        for place, row in enumerate(found):
            many[place, [numbers[label] for label in row]] = 1
        return many
    if kind == "number":
        return np.array(found, dtype=np.float64)
    if kind == "choice":
        return np.array(found, dtype=np.int64)
    objects = np.empty(len(found), dtype=object)
    objects[:] = [np.array([numbers[tag] for tag in row]) for row in found] if kind == "tags" else list(found)
    return objects
