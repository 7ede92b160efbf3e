"""What a fit finds about the labels themselves: missing ones, rare ones, and those that are never recognised. Needs no torch.

Letters: N texts, C labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from warmstart.stats.formatting import first_of, of_100, percent_value
from warmstart.stats.proportions import unseen_label_share

if TYPE_CHECKING:
    from warmstart.data.task import Split, Task

NAMED_RARE = 4
"""rare labels that a sentence names"""
KNOWN_WELL = 5
"""texts of a label from which it is said that none of them is recognised"""
MANY_UNSEEN = 0.03
"""share of new texts whose label no labelled text has, from which it is said"""


def unseen_labels(task: Task, left_out: Split) -> str:
    """The share of new texts whose label no labelled text has, or labels with too few texts; empty if they are few."""
    if not task.single_label:
        rare = [name for name, count in zip(task.labels, left_out.labels.sum(axis=0), strict=True) if count < 2]
        few = f"Fewer than two texts have {first_of(rare, NAMED_RARE, 'others')}: too few to learn from; label more."
        return few if rare else ""
    share = unseen_label_share(task.train.labels, task.train.units)
    if share < MANY_UNSEEN or round(share * len(np.unique(task.train.units))) < 2:  # one may be chance
        return ""
    about = f"About {of_100(share)} of 100 new texts have a label that none of your texts has"
    if not task.label_descriptions:
        return f"{about}; label more."
    return f"{about}; methods that read label names know some of them, so the score may be too low. Label more."


def never_recognised(labels: np.ndarray, right: np.ndarray, names: Sequence[str]) -> str:
    """Labels that several texts have and none is given, by the labels (N,) and which predictions are ``right`` (N,)."""
    counts, hits = np.bincount(labels, minlength=len(names)), np.bincount(labels, right, minlength=len(names))
    never = [name for name, one, count in zip(names, hits, counts, strict=True) if count >= KNOWN_WELL and not one]
    if not never:
        return ""
    named = " and ".join(f'"{name}"' for name in never[:2]) + (f" and {len(never) - 2} others" if len(never) > 2 else "")
    return f"Of the texts with {named} none is recognised."


def rows_of_labels(truth: np.ndarray, given: np.ndarray, names: Sequence[str], *, several: bool) -> list[tuple[str, str, str, str]]:
    """Rows of labels, the weakest first: how often each is found when its texts are left out, and the label taken for it.

    ``truth`` and ``given`` (N, C) are 1 for each label that a text has, and is given.
    """
    rows = []
    for i in np.flatnonzero(truth.any(axis=0)).tolist():
        mine, hits, times = truth[:, i] > 0, float((truth[:, i] * given[:, i]).sum()), float(given[:, i].sum())
        others = Counter(given[mine].argmax(axis=1)[given[mine, i] == 0].tolist()).most_common(1)
        last = f"{names[others[0][0]]} ({others[0][1]})" if others else "-"
        if several:
            last = percent_value(hits / times) if times else "-"
        found = hits / int(mine.sum())
        rows.append((found, (names[i], f"{int(mine.sum()):,}", percent_value(found), last)))
    return [row for _, row in sorted(rows, key=lambda row: row[0])]
