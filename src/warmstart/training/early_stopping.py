"""Keeps the best weights of a run, and stops it when its evaluations no longer improve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

import torch
from torch import Tensor, nn


class Restorable(Protocol):
    """A model whose weights can be copied and put back."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """What may train, by name."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """Every tensor to keep, by name."""
        ...

    def load_state_dict(self, state_dict: dict[str, Tensor], strict: bool = True) -> object:
        """Put tensors back."""
        ...


class EarlyStopping:
    """Remembers the weights of the best evaluation, and says when to stop.

    Ties go to the later evaluation, whose weights have seen more. With ``keep="last"`` those of the last evaluation count, which
    ends the run, so that none are copied; nor is a parameter without gradient when the run begins, because it never trains.
    ``patience`` counts evaluations without improvement, from the progress ``patience_from`` on: until then, part of the model may
    still be frozen. A patience of 0 never stops a run.
    """

    def __init__(
        self, model: Restorable, keep: Literal["best", "last"] = "best", patience: int = 0, patience_from: float = 0.0
    ) -> None:
        self.model, self.keep, self.patience, self.patience_from = model, keep, patience, patience_from
        self.frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
        self.kept_score, self.kept_weights = float("-inf"), dict[str, Tensor]()
        self.curve: list[tuple[int, float]] = []
        """(step, score) of every evaluation"""
        self.best_score, self.without_improvement = float("-inf"), 0

    def update(self, step: int, score: float) -> bool:
        """Take note of an evaluation of the present weights; whether they are to be kept."""
        self.curve.append((step, score))
        self.without_improvement = 0 if score > self.best_score else self.without_improvement + 1
        self.best_score = max(self.best_score, score)
        keeps = self.keep == "last" or score >= self.kept_score
        if keeps:
            self.kept_score = score
        if keeps and self.keep == "best":
            weights = self.model.weights().items()
            self.kept_weights = {name: tensor.detach().clone() for name, tensor in weights if name not in self.frozen}
        return keeps

    def should_stop(self, progress: float) -> bool:
        """Whether the last evaluations, as many as the patience allows, brought no improvement."""
        if progress < self.patience_from:
            self.without_improvement = 0
        return 0 < self.patience <= self.without_improvement

    def restore(self) -> None:
        """Put the kept weights back."""
        self.model.load_state_dict(self.kept_weights, strict=False)

    def state_tensors(self) -> dict[str, Tensor]:
        """All that was remembered."""
        scores = torch.tensor([self.kept_score, self.best_score, self.without_improvement], dtype=torch.float64)
        curve = torch.tensor(self.curve, dtype=torch.float64).reshape(-1, 2)
        return {"scores": scores, "curve": curve} | {f"kept/{name}": tensor for name, tensor in self.kept_weights.items()}

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what ``state_tensors`` gave."""
        self.kept_score, self.best_score, without = tensors["scores"].tolist()
        self.without_improvement = int(without)
        self.curve = [(int(step), score) for step, score in tensors["curve"].tolist()]
        device = {name: tensor.device for name, tensor in self.model.weights().items()}
        kept = {name.removeprefix("kept/"): tensor for name, tensor in tensors.items() if name.startswith("kept/")}
        self.kept_weights = {name: tensor.to(device[name]) for name, tensor in kept.items()}
