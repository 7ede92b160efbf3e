"""Which weights of a run are kept, and when a run has gained nothing for long enough."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Kept(Protocol):
    """A module that names what of it must be kept."""

    def weights(self) -> dict[str, Tensor]:
        """Every tensor to keep, by name."""
        ...

    def load_state_dict(self, state_dict: dict[str, Tensor], strict: bool = True) -> object:
        """Put tensors in."""
        ...


class Keeper:
    """Remembers the weights of the best evaluation (ties go to the later one, which has seen more), and knows when to give up."""

    def __init__(self, model: Kept, keep: str = "best", patience: int = 0, awake: float = 0.0) -> None:
        self.model, self.keep, self.patience, self.awake = model, keep, patience, awake
        self.score, self.best = float("-inf"), dict[str, Tensor]()
        self.curve: list[tuple[int, float]] = []
        self.highest, self.idle = float("-inf"), 0

    def offer(self, step: int, score: float) -> None:
        """One more evaluation of the weights as they are now."""
        self.curve.append((step, score))
        self.idle = 0 if score > self.highest else self.idle + 1
        self.highest = max(self.highest, score)
        if self.keep == "last" or score >= self.score:
            self.score = score
            self.best = {name: tensor.detach().clone() for name, tensor in self.model.weights().items()}

    def enough(self, progress: float) -> bool:
        """Whether the last evaluations brought nothing; what came before every part was awake does not count against the run."""
        if progress < self.awake:
            self.idle = 0
        return 0 < self.patience <= self.idle

    def restore(self) -> None:
        """Put the kept weights back."""
        self.model.load_state_dict(self.best, strict=False)
