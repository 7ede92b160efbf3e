"""What a stream of tasks did to the earlier ones.

``scores[k][j]`` is the score on task j after task k was learned, j <= k; K tasks in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Matrix = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Forgetting:
    """The usual figures of a finished stream."""

    average: float
    """mean over all tasks at the end"""
    learned: float
    """mean over tasks right after each was learned: what keeping the old ones costs the new ones"""
    backward: float
    """backward transfer: mean over all but the last task of (score at the end - score right after learning); below 0: forgotten"""
    forgetting: float
    """mean over all but the last task of (best score before the end - score at the end); 0: nothing lost"""


def forgetting_of(scores: Matrix) -> Forgetting:
    """Average, backward transfer: Lopez-Paz and Ranzato 2017, equations 2 and 3; forgetting: Chaudhry et al. 2018, equation 3."""
    assert all(len(row) == k + 1 for k, row in enumerate(scores)), "one score for every task learned so far"
    last, earlier = scores[-1], range(len(scores) - 1)
    backward = [last[j] - scores[j][j] for j in earlier]
    lost = [max(scores[k][j] for k in range(j, len(scores) - 1)) - last[j] for j in earlier]
    return Forgetting(
        float(np.mean(last)),
        float(np.mean([row[-1] for row in scores])),
        float(np.mean(backward)) if backward else 0.0,
        float(np.mean(lost)) if lost else 0.0,
    )
