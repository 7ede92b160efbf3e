"""Cross-entropy with class weights and label smoothing.

Letters: B batch, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

TaskLoss = Callable[[Tensor, Tensor], Tensor]


def task_loss(weights: Tensor | None, smoothing: float) -> TaskLoss:
    """Summed cross-entropy in nats of class indices (B,) under logits (B, C); each text counts by its class's weight (C,).

    ``smoothing`` of each target is spread over all classes (Szegedy et al. 2016, section 7).
    """

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), targets, weights, reduction="sum", label_smoothing=smoothing)

    return loss


def class_weights(labels: Sequence[int] | np.ndarray, classes: int) -> Tensor:
    """(C,): texts / (classes x texts of the class), as scikit-learn balances classes; the mean weight of a text is 1.

    ``class_weights([0, 0, 0, 1], 2)`` -> ``[0.667, 2.0]``. A class without texts has weight 0.
    """
    counts = np.bincount(labels, minlength=classes)
    return torch.tensor([len(labels) / (classes * count) if count else 0.0 for count in counts], dtype=torch.float32)
