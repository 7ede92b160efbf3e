"""The one training loop: pretraining, every adaptation scheme and every from-scratch run go through it.

It knows no objective, no scheme and no file format. It asks for the batches of a step by the step's number, so that it can be
stopped anywhere and go on as if it never had. ``accumulate`` k batches of b count exactly as one of k b, also when they are ragged:
the loss of a step is the sum over all its targets, divided by their number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from warmstart.engine.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from warmstart.engine.compiled import compile_all, compiled
from warmstart.engine.config import TrainConfig
from warmstart.engine.device import arithmetic
from warmstart.engine.heap import kept
from warmstart.engine.log import Bar, Metrics, console
from warmstart.engine.optim import Group, Optimizer
from warmstart.engine.schedule import rate_at
from warmstart.errors import DivergedError
from warmstart.seeding import seed_torch
from warmstart.types import Batch

LOG_EVERY = 10


class Trainable(Protocol):
    """What the loop needs of a model."""

    def loss(self, batch: Batch) -> Tensor:
        """The summed loss of a batch's targets."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """Every tensor to keep, by name."""
        ...


@dataclass(frozen=True)
class Work:
    """What one run does."""

    batches: Callable[[int], Sequence[Batch]]
    """the batches of step n; a pure function of n"""
    steps: int | None
    """how many steps; None for a budget in minutes"""
    seed: int
    title: str = "training"
    identity: str = ""
    """names data, tokenizer and settings; a checkpoint of another identity is refused"""
    evaluate: Callable[[], dict[str, Any]] | None = None
    """held-out figures, asked for now and then"""
    groups: Sequence[Group] | None = None
    """what trains; None for all parameters"""
    loss: Callable[[Batch], Tensor] | None = None
    """the summed loss of a batch's targets; None for the model's own"""
    penalty: Callable[[], Tensor] | None = None
    """what is added to the mean loss once a step, whatever the batch: a pull on the weights themselves"""
    compile: Sequence[nn.Module] = ()
    """parts of the model that torch compiles for the run's steps"""
    enough: Callable[[float], bool] | None = None
    """asked after each evaluation, with the share of the budget that is spent: stop here?"""
    observers: Sequence[Callable[[int, dict[str, Any]], None]] = ()
    """called after each evaluation with the step and its figures"""
    show: bool = True
    """draw a progress bar"""


@dataclass
class Trained:
    """What came of a run."""

    steps: int = 0
    seconds: float = 0.0
    """seconds of training, evaluations left out"""
    tokens: int = 0
    """real tokens read"""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """the lines of metrics.jsonl"""

    @property
    def tokens_per_second(self) -> float:
        """Real tokens read per second of training."""
        return self.tokens / max(self.seconds, 1e-9)


def train(model: nn.Module, work: Work, config: TrainConfig, folder: Path | None = None) -> Trained:
    """Train ``model`` (an ``nn.Module`` that is ``Trainable``) in place; with a ``folder``, log there, and resume what lies there.

    Raises ``DivergedError`` when the loss is no longer a number.
    """
    return _Run(model, work, config, folder).go()


class _Run:
    """One run's moving parts."""

    def __init__(self, model: nn.Module, work: Work, config: TrainConfig, folder: Path | None) -> None:
        self.model, self.work, self.config, self.folder = model, work, config, folder
        self.trainable = cast(Trainable, model)  # the same object, by what the loop needs beyond nn.Module
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.optimizer = Optimizer(work.groups or [Group(named)], config)
        self.device = next(model.parameters()).device
        self.loss = work.loss or self.trainable.loss
        self.forwards = compile_all(work.compile)
        self.stopped = False
        self.out = Trained()
        self._resume()
        self.metrics = Metrics(folder, self.out.steps)
        self.out.rows = self.metrics.rows

    def go(self) -> Trained:
        """Step until the budget is spent."""
        seen_loss = torch.zeros((), device=self.device)
        seen_targets = 0
        with kept(self.device), Bar(self.work.title, show=self.work.show) as bar:
            while not self.stopped and (progress := self._progress()) < 1:
                started = time.perf_counter()
                loss, targets = self._step(progress)
                self.out.seconds += time.perf_counter() - started
                seen_loss, seen_targets = seen_loss + loss, seen_targets + targets
                done = self._progress() >= 1
                keep = done or self._due(self.config.checkpoint_every)
                # the loss is looked at before every checkpoint, so that weights that are no numbers are never kept
                if self.out.steps % LOG_EVERY == 0 or done or (self.folder and keep):
                    mean = float(seen_loss) / max(1, seen_targets)
                    self._log(mean, progress)
                    bar.show(progress, mean, self.out.tokens_per_second)
                    seen_loss, seen_targets = torch.zeros_like(seen_loss), 0
                if self.work.evaluate and (done or self._due(self.config.evaluate_every)):
                    self._evaluate(self.work.evaluate)
                    self.stopped = self.work.enough is not None and self.work.enough(self._progress())
                if self.folder and (keep or self.stopped):
                    self._keep(self.folder)
        self.model.eval()
        return self.out

    def _step(self, progress: float) -> tuple[Tensor, int]:
        """One optimiser step; returns the summed loss and the number of its targets."""
        self.optimizer.wake(progress)
        self.model.train()
        seed_torch(self.work.seed, "step", self.out.steps)
        batches = self.work.batches(self.out.steps)
        count = sum(batch.count for batch in batches)
        total = torch.zeros((), device=self.device)
        for batch in batches:
            with arithmetic(self.config.precision, self.device), compiled(self.forwards):
                loss = self.loss(batch.to(self.device))
            (loss / max(1, count)).backward()
            total = total + loss.detach()
            self.out.tokens += int(batch.lengths.sum())
        if self.work.penalty is not None:
            self.work.penalty().backward()
        self.optimizer.step(rate_at(progress, self.config.schedule, self.config.warmup, self.config.floor), progress)
        self.out.steps += 1
        return total, count

    def _progress(self) -> float:
        """How much of the budget is spent, 0 to 1. The first steps of a warm-up already move: progress counts the step to come."""
        if self.work.steps is not None:
            return 1.0 if self.out.steps >= self.work.steps else (self.out.steps + 0.5) / self.work.steps
        assert self.config.minutes is not None, "a run needs a number of steps or of minutes"
        return self.out.seconds / (60 * self.config.minutes)

    def _log(self, loss: float, progress: float) -> None:
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss became {loss} at step {self.out.steps}; lower the learning rate "
                f"(now {self.config.learning_rate:g}), lengthen the warm-up, or use precision float32"
            )
        rate = rate_at(progress, self.config.schedule, self.config.warmup, self.config.floor)
        row = {"step": self.out.steps, "tokens": self.out.tokens, "seconds": round(self.out.seconds, 2)}
        self.metrics.add(row | {"loss": round(loss, 5), "rate": rate, "tokens_per_second": round(self.out.tokens_per_second)})

    def _evaluate(self, evaluate: Callable[[], dict[str, Any]]) -> None:
        """Ask for held-out figures, note them, and show them to the observers."""
        self.model.eval()
        figures = evaluate()
        self.metrics.add({"step": self.out.steps, "held_out": figures})
        if self.folder and not console.is_terminal:  # no bar is drawn there
            said = ", ".join(f"{key} {value:.4g}" for key, value in figures.items() if "loss" in key)
            console.print(f"step {self.out.steps}: held out {said}, {self.out.tokens_per_second:,.0f} tokens/s")
        for observer in self.work.observers:
            observer(self.out.steps, figures)

    def _due(self, every: int) -> bool:
        """Every so many steps; 0 means ten times in a run (every 200 steps where its length is not known)."""
        every = every or max(1, (self.work.steps or 2000) // 10)
        return self.out.steps % every == 0

    def _keep(self, folder: Path) -> None:
        tensors = {f"model/{name}": tensor for name, tensor in self.trainable.weights().items()}
        tensors |= {f"optimizer/{name}": tensor for name, tensor in self.optimizer.tensors().items()}
        tensors["tokens"] = torch.tensor(self.out.tokens)
        write_checkpoint(folder / "checkpoints", Checkpoint(self.out.steps, self.out.seconds, tensors, self.work.identity))

    def _resume(self) -> None:
        found = read_checkpoint(self.folder / "checkpoints", self.work.identity) if self.folder else None
        if found is None:
            return
        tensors = dict(found.tensors)
        self.model.load_state_dict(
            {n.removeprefix("model/"): t for n, t in tensors.items() if n.startswith("model/")}, strict=False
        )
        self.optimizer.restore({n.removeprefix("optimizer/"): t for n, t in tensors.items() if n.startswith("optimizer/")})
        self.out.steps, self.out.seconds = found.step, found.seconds
        self.out.tokens = int(tensors["tokens"])
