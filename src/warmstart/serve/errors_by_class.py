"""Where two models are wrong on labelled texts, by class, slice and length: how often each is right, and how much more the first.

Letters: N texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from warmstart.errors import DataError, ModelError
from warmstart.serve.served import ServedModel
from warmstart.stats.formatting import first_of
from warmstart.stats.proportions import paired_proportions, wilson_interval

FEWEST_FOR_P = 20
"""texts from which on a p-value is given"""
UNKNOWN_NAMED = 5
"""unknown labels that an error names"""
MOST_SLICES = 50
"""parts of the texts that are counted apart"""


def check_true_labels(labels: Sequence[str | None], inputs: int, models: Sequence[ServedModel]) -> None:
    """Raise ``ModelError`` for a model that does not give one label per text, ``DataError`` for labels that a model lacks."""
    if len(labels) != inputs:
        raise DataError(f"there must be a label, or null, for each input, but there are {len(labels)} for {inputs} inputs")
    for model in models:
        if model.task_type != "classification":
            raise ModelError(
                f"errors are counted for models that give one label per text, but '{model.name}' does not; compare without labels"
            )
        if unknown := sorted({one for one in labels if one is not None} - {*model.model.labels}):
            named = first_of([f"'{one[:40]}'" for one in unknown], UNKNOWN_NAMED)
            known = ", ".join(model.model.labels[:20]) + (", …" if len(model.model.labels) > 20 else "")
            raise DataError(f"labels must be those of '{model.name}' ({known}), but it does not know {named}; correct them")


def check_slices(slices: Sequence[str | None], inputs: int) -> None:
    """Raise ``DataError`` unless there is a slice, or none, for each input, and not too many different ones."""
    if len(slices) != inputs:
        raise DataError(f"there must be a slice, or null, for each input, but there are {len(slices)} for {inputs} inputs")
    if (count := len({*slices} - {None})) > MOST_SLICES:
        raise DataError(
            f"there must be at most {MOST_SLICES} slices of the texts, but there are {count:,}; were texts given for them?"
        )


def compare_errors(
    inputs: Sequence[Any], labels: Sequence[str | None], slices: Sequence[str | None], one: Sequence[str], other: Sequence[str]
) -> dict[str, Any] | None:
    """Two models' predicted labels of N inputs against the true ones; inputs without a label are left out, None if none has one.

    ``groups`` are all of them, each class (by its true label), each slice, and thirds of the length in words; ``p`` is that of a
    sign test over all, None for fewer than ``FEWEST_FOR_P`` texts. Intervals are those of 95%, each for itself.
    """
    kept = [i for i, label in enumerate(labels) if label is not None]
    if not kept:
        return None
    truth = [str(labels[i]) for i in kept]
    right = np.array([[found[i] == labels[i] for i in kept] for found in (one, other)], float)  # (2, N)
    difference = paired_proportions([right[0]], [right[1]])
    groups = [{"kind": "all"} | _group(right)]
    for label in sorted({*truth}):
        groups.append({"kind": "class", "label": label} | _group(right[:, [one == label for one in truth]]))
    parts = [slices[i] for i in kept]
    for name in sorted({part for part in parts if part is not None}):
        groups.append({"kind": "slice", "slice": name} | _group(right[:, [one == name for one in parts]]))
    lengths = np.array([_length(inputs[i]) for i in kept])
    for chosen in thirds_of(lengths):
        ends = {"least": int(lengths[chosen].min()), "most": int(lengths[chosen].max())}
        groups.append({"kind": "length"} | ends | _group(right[:, chosen]))
    return {
        "groups": groups,
        "p": difference.p if len(kept) >= FEWEST_FOR_P else None,
        "better": int((right[0] > right[1]).sum()),
        "worse": int((right[0] < right[1]).sum()),
    }


def thirds_of(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Which of N texts are short, of medium length, long: up to three masks (N,), none empty; equal lengths stay together.

    >>> lengths = np.array([9, 1, 2, 2, 7, 8])
    >>> [lengths[chosen].tolist() for chosen in thirds_of(lengths)]
    [[1, 2, 2], [7], [9, 8]]
    """
    low, high = np.quantile(lengths, [1 / 3, 2 / 3])
    for chosen in (lengths <= low, (lengths > low) & (lengths <= high), lengths > high):
        if chosen.any():
            yield chosen


def _length(text: str | Sequence[str]) -> int:
    """In words between white space; of a pair, those of both texts."""
    return sum(len(part.split()) for part in ([text] if isinstance(text, str) else text))


def _group(right: np.ndarray) -> dict[str, Any]:
    """What is shown of a group of texts: who is right (2, N) of 0 and 1."""
    count, difference = right.shape[1], paired_proportions([right[0]], [right[1]])
    return {
        "count": count,
        "accuracies": [wilson_interval(float(row.mean()), count)._asdict() | {"right": int(row.sum())} for row in right],
        "difference": {"value": difference.mean, "low": difference.low, "high": difference.high},
    }
