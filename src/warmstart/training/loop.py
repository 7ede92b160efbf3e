"""The one training loop: pretraining, every adaptation scheme and every run from scratch go through it.

It knows no objective, no scheme and no file format. It requests the batches of a step by its number, so that a run can be
stopped anywhere and resumed as if it had never stopped. ``accumulate`` k batches of b count exactly as one of k b, also if they are
ragged: the loss of a step is the sum over all its targets, divided by their number. Several processes take the same steps as one:
every process runs this loop, and computes its share of each batch (``parallel.py``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from warmstart.errors import DivergedError
from warmstart.seeding import seed_torch
from warmstart.system.console import console
from warmstart.system.stopping import agreed_exception, asked_to_stop
from warmstart.training.arithmetic import Arithmetic, compile_all, compiled, keep_freed_memory
from warmstart.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from warmstart.training.config import TrainConfig, learning_rate_factor
from warmstart.training.distributed import Parallel, world
from warmstart.training.held_out import Restorable
from warmstart.training.log import MetricsLog
from warmstart.training.optimizers import Optimizer, ParameterGroup
from warmstart.training.progress import ProgressBar
from warmstart.types import Batch


def state_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The weights and the optimiser state, in rank 0; collective."""
    own = world().tensors_of_all(optimizer.state_tensors(), next(model.parameters()).device)
    weights = {f"model/{name}": tensor for name, tensor in cast(Restorable, model).weights().items()}
    return weights | {f"optimizer/{name}": tensor for name, tensor in own.items()}


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; collective."""
    world().first_alone(lambda: write_checkpoint(folder, checkpoint))


def last_checkpoint(folder: Path, identity: str, device: torch.device) -> Checkpoint | None:
    """The newest undamaged checkpoint, as rank 0 finds it; of several processes its tensors are on ``device``. Collective."""
    here = world()
    newest = here.together(lambda: read_checkpoint(folder, identity) if here.leads else None)
    checkpoint = here.from_first(replace(newest, tensors={}) if newest else None)
    if checkpoint is None:
        return None
    return replace(checkpoint, tensors=here.tensors_of_all(newest.tensors if newest else {}, device))


def restore(model: nn.Module, optimizer: Optimizer, checkpoint: Checkpoint) -> None:
    """Put the weights and the optimiser state of a checkpoint back."""
    model.load_state_dict(below("model/", checkpoint), strict=False)
    optimizer.load_state_tensors(below("optimizer/", checkpoint))


def below(prefix: str, checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The tensors of a checkpoint whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in checkpoint.tensors.items() if name.startswith(prefix)}


_Batches = Callable[[int], Sequence[Batch]]


@contextmanager
def prefetched(batches: _Batches, device: torch.device, steps: int | None) -> Iterator[_Batches]:
    """``batches``, a pure function of the step's number; for a GPU those of the next step are made ahead, in pinned memory.

    None is made for a step that a run of so many ``steps`` does not have. What making them raises is raised at their step.
    """
    if device.type != "cuda":
        yield batches
        return
    with ThreadPoolExecutor(1, "batches") as thread:
        yield _Prefetched(lambda step: [batch.pinned() for batch in batches(step)], thread, steps)


class _Prefetched:
    def __init__(self, make: _Batches, thread: ThreadPoolExecutor, steps: int | None) -> None:
        self.make, self.thread, self.steps = make, thread, steps
        self.ahead: tuple[int, Future[Sequence[Batch]]] | None = None

    def __call__(self, step: int) -> Sequence[Batch]:
        """The batches of a step."""
        known, self.ahead = self.ahead, None
        batches = known[1].result() if known and known[0] == step else self.thread.submit(self.make, step).result()
        if self.steps is None or step + 1 < self.steps:
            self.ahead = step + 1, self.thread.submit(self.make, step + 1)
        return batches


LOG_EVERY = 10
"""steps between two lines of ``metrics.jsonl``"""
EVALUATIONS = 10
"""evaluations, and checkpoints, in a run whose settings name no interval"""
ASSUMED_STEPS = 2000
"""the length of a run with a budget in minutes, to space its evaluations and checkpoints"""


FIRST_CHECKPOINT, CHECKPOINT_SHARE = 60.0, 0.05
"""fewest seconds between checkpoints, and the largest fraction of the time they take, where the settings name no interval"""


class Resumable(Protocol):
    """The interface of a state beside model and optimiser."""

    def state_tensors(self) -> dict[str, Tensor]:
        """The whole state, by name."""
        ...

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the state that ``state_tensors`` gave."""
        ...


class Trainable(Protocol):
    """The interface of a model that the loop can train."""

    def loss(self, batch: Batch) -> Tensor:
        """The summed loss of a batch's targets."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """Every tensor to keep, by name."""
        ...


@dataclass(frozen=True)
class TrainingJob:
    """The data, evaluations and reports of one run."""

    batches: Callable[[int], Sequence[Batch]]
    """the batches of step n; a pure function of n"""
    steps: int | None
    """number of steps; None for a budget in minutes"""
    seed: int
    title: str = "training"
    identity: str = ""
    """a hash of data, tokenizer and settings; a checkpoint with another identity is refused"""
    evaluate: Callable[[], dict[str, Any]] | None = None
    """returns held-out metrics; called at intervals and at the end"""
    groups: Sequence[ParameterGroup] | None = None
    """the parameters to train; None: all"""
    loss: Callable[[Batch], Tensor] | None = None
    """the summed loss of a batch's targets; None: the model's own"""
    prepare: Callable[[Sequence[Batch]], Sequence[Batch]] | None = None
    """reads all batches of a step before the loss of each is computed, for losses that compare their rows; None: nothing does"""
    compile: Sequence[nn.Module] = ()
    """parts of the model that torch compiles for the training steps"""
    should_stop: Callable[[float], bool] | None = None
    """called after each evaluation with the progress (0 to 1); True ends the run"""
    callbacks: Sequence[Callable[[int, dict[str, Any]], object]] = ()
    """called after each evaluation with the step and its metrics"""
    observe: Callable[[Mapping[str, Any]], None] | None = None
    """called with each new line of metrics.jsonl"""
    progress_bar: bool = True
    more: Resumable | None = None
    """further state for a checkpoint. Such a job is short, or one of many: without a number in the settings, checkpoints are
    written by the clock, and none at its end"""


@dataclass
class TrainOutput:
    """Steps, time and log of a run."""

    steps: int = 0
    seconds: float = 0.0
    """seconds of training, without evaluations"""
    processor_seconds: float = 0.0
    """seconds of all processor cores in this process alone: not those before a resume"""
    tokens: int = 0
    """tokens read, without padding"""
    log: list[dict[str, Any]] = field(default_factory=list)
    """the lines of metrics.jsonl"""

    @property
    def tokens_per_second(self) -> float:
        """Tokens read per second of training, without padding."""
        return self.tokens / max(self.seconds, 1e-9)


def train(model: nn.Module, job: TrainingJob, config: TrainConfig, folder: Path | None = None) -> TrainOutput:
    """Train ``model`` (an ``nn.Module`` that is ``Trainable``) in place; with a ``folder``, log there, and resume from there.

    Raises ``DivergedError`` if the loss is no longer a number.
    """
    return _Run(model, job, config, folder).run()


class _Run:
    """The state of one run."""

    def __init__(self, model: nn.Module, job: TrainingJob, config: TrainConfig, folder: Path | None) -> None:
        self.model, self.job, self.config, self.folder = model, job, config, folder
        self.world = world()
        self.trainable = cast(Trainable, model)  # the same object, by what the loop needs beyond nn.Module
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.optimizer = Optimizer(job.groups or [ParameterGroup(parameters)], config)
        self.device = next(model.parameters()).device
        self.arithmetic = self.world.from_first(Arithmetic.choose(config.precision, self.device))  # machines may differ
        self.parallel = Parallel(model, job.loss or self.trainable.loss, self.world)
        self.forwards = compile_all(job.compile)
        self.batches = job.batches
        self.stopped, self.next_checkpoint = False, time.monotonic() + FIRST_CHECKPOINT
        self.output = TrainOutput()
        self.loss_sum, self.target_count = torch.zeros((), device=self.device), 0
        """sums over the steps since the last line of the log; of several processes each has its own part"""
        log_digest = self._resume()
        self.metrics = self.world.together(
            lambda: MetricsLog(folder if self.world.leads else None, self.output.steps, log_digest, job.observe)
        )
        self.output.log = self.metrics.rows

    def run(self) -> TrainOutput:
        """Step until the budget is spent."""
        stopping = asked_to_stop() if self.folder else nullcontext(lambda: None)
        bar = ProgressBar(self.job.title, show=self.job.progress_bar)
        ahead = prefetched(self.job.batches, self.device, self.job.steps)
        with keep_freed_memory(self.device), bar, stopping as reason, ahead as self.batches:
            while not self.stopped and (progress := self._progress()) < 1:
                started, processor_started = time.perf_counter(), time.process_time()
                loss, targets = self._step(progress)
                self.output.seconds += time.perf_counter() - started
                if self.job.steps is None:
                    self.output.seconds = self.world.from_first(self.output.seconds)  # so that all stop at the same step
                self.output.processor_seconds += time.process_time() - processor_started
                self.loss_sum, self.target_count = self.loss_sum + loss, self.target_count + targets
                finished = self._progress() >= 1
                checkpoint = self._checkpoint_due(finished=finished)
                # the loss is checked before every checkpoint, so that a checkpoint never holds weights that are not numbers
                if self.output.steps % LOG_EVERY == 0 or finished or (self.folder and checkpoint):
                    mean = float(self.world.sum(self.loss_sum)) / max(1, self.target_count)
                    self._log(mean, progress)
                    bar.update(progress, mean, self.output.tokens_per_second)
                    self.loss_sum, self.target_count = torch.zeros_like(self.loss_sum), 0
                if self.job.evaluate and (finished or self._due(self.config.evaluate_every)):
                    self._evaluate(self.job.evaluate)
                    self.stopped = self.job.should_stop is not None and self.job.should_stop(self._progress())
                if self.folder and self._writes(checkpoint, finished=finished):
                    self._write_checkpoint(self.folder)
                if error := agreed_exception(reason(), self.world.largest):
                    raise self._stopped_by(error)
        self.model.eval()
        return self.output

    def _stopped_by(self, error: type[KeyboardInterrupt]) -> KeyboardInterrupt:
        """The error that ends a run after its step, which a checkpoint keeps; the log is as if the run had never stopped."""
        if self.folder and self.world.sum(self.loss_sum).isfinite():
            self._write_checkpoint(self.folder)
            console.print(f"A checkpoint of step {self.output.steps} is saved.")
        return error()

    def _step(self, progress: float) -> tuple[Tensor, int]:
        """One optimiser step; returns the summed loss and the number of its targets."""
        changed = self.optimizer.unfreeze(progress)
        if changed or not self.model.training:
            self.model.train()  # walks through all modules: only when an evaluation came between, or other parts train
        seed_torch(self.job.seed, "step", self.output.steps)
        batches = self.batches(self.output.steps)
        if self.job.prepare is not None:
            with self.arithmetic.use(self.device):
                batches = self.job.prepare([batch.to(self.device) for batch in batches])
        self.parallel.prepare(batches, changed=changed)
        count = sum(batch.count for batch in batches)
        total = torch.zeros((), device=self.device)
        for number, batch in enumerate(batches, 1):
            with self.parallel.batch(batch, last=number == len(batches)) as loss_on:
                with self.arithmetic.use(self.device), compiled(self.forwards):
                    loss = loss_on(self.device)
                if loss.requires_grad:  # not if all parameters that it reaches are frozen for now
                    (loss / max(1, count)).backward()
            total = total + loss.detach()
            self.output.tokens += int(batch.lengths.sum())
        self.optimizer.step(self._learning_rate_factor(progress), progress)
        self.output.steps += 1
        return total, count

    def _learning_rate_factor(self, progress: float) -> float:
        return learning_rate_factor(progress, self.config.schedule, self.config.warmup)

    def _progress(self) -> float:
        """The fraction of the budget that is spent, counted to the middle of the next step: a warm-up's first step moves too."""
        if self.job.steps is not None:
            return 1.0 if self.output.steps >= self.job.steps else (self.output.steps + 0.5) / self.job.steps
        assert self.config.minutes is not None, "a run needs a number of steps or of minutes"
        return self.output.seconds / (60 * self.config.minutes)

    def _log(self, loss: float, progress: float) -> None:
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss became {loss} at step {self.output.steps}; lower the learning rate "
                f"(now {self.config.learning_rate:g}), lengthen the warm-up, or use --precision float32"
            )
        row = {"step": self.output.steps, "tokens": self.output.tokens, "seconds": round(self.output.seconds, 2)}
        row |= {"loss": round(loss, 5), "learning_rate_factor": self._learning_rate_factor(progress)}
        self.metrics.add(row | {"tokens_per_second": round(self.output.tokens_per_second)})

    def _evaluate(self, evaluate: Callable[[], dict[str, Any]]) -> None:
        """Compute held-out metrics, log them, and hand them to the callbacks."""
        self.model.eval()
        metrics = self.world.from_first(self.world.together(evaluate))
        self.metrics.add({"step": self.output.steps, "held_out": metrics})
        losses = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items() if "loss" in name)
        if self.folder and losses and not console.is_terminal:  # a terminal has the progress bar
            console.print(f"step {self.output.steps}: held-out {losses}, {self.output.tokens_per_second:,.0f} tokens/s")
        for callback in self.job.callbacks:
            callback(self.output.steps, metrics)

    def _due(self, every: int) -> bool:
        """Whether something is due that happens every ``every`` steps; 0: ``EVALUATIONS`` times in a run."""
        every = every or max(1, (self.job.steps or ASSUMED_STEPS) // EVALUATIONS)
        return self.output.steps % every == 0

    @property
    def _by_clock(self) -> bool:
        """Whether checkpoints are written by the clock."""
        return self.job.more is not None and not self.config.checkpoint_every

    def _checkpoint_due(self, *, finished: bool) -> bool:
        """Whether this step ends with a checkpoint, by its number."""
        return not self._by_clock and (finished or self._due(self.config.checkpoint_every))

    def _writes(self, due: bool, *, finished: bool) -> bool:
        """Whether a checkpoint is written, which is ``due`` by its number; the lines of the log do not depend on the clock."""
        if not self._by_clock and (finished or self.stopped or not due or self.config.checkpoint_every):
            return due or self.stopped
        late = self.world.largest(int(time.monotonic() >= self.next_checkpoint))  # clocks differ, a checkpoint is of all
        return bool(late and self.world.sum(self.loss_sum).isfinite())

    def _write_checkpoint(self, folder: Path) -> None:
        started = time.monotonic()
        tensors = state_of(self.model, self.optimizer)
        tensors["tokens"] = torch.tensor(self.output.tokens)
        tensors |= {"loss_sum": self.world.sum(self.loss_sum), "target_count": torch.tensor(self.target_count)}
        tensors |= {f"more/{name}": tensor for name, tensor in self.job.more.state_tensors().items()} if self.job.more else {}
        digest = self.metrics.digest()
        state = Checkpoint(self.output.steps, self.output.seconds, tensors, self.job.identity, self.arithmetic, digest)
        save_checkpoint(folder / "checkpoints", state)
        ended = time.monotonic()
        self.next_checkpoint = ended + max(FIRST_CHECKPOINT, (ended - started) / CHECKPOINT_SHARE)

    def _resume(self) -> str:
        """Go on from the newest checkpoint, if there is one; returns its hash of the log."""
        checkpoint = last_checkpoint(self.folder / "checkpoints", self.job.identity, self.device) if self.folder else None
        if checkpoint is None:
            return ""
        restore(self.model, self.optimizer, checkpoint)
        self.output.steps, self.output.seconds = checkpoint.step, checkpoint.seconds
        if self.job.progress_bar and self.world.leads:
            console.print(f"Going on from step {checkpoint.step:,}.")
        self.arithmetic = checkpoint.arithmetic.resumed(self.device) if checkpoint.arithmetic else self.arithmetic
        self.output.tokens = int(checkpoint.tensors["tokens"])
        loss_sum = checkpoint.tensors["loss_sum"].to(self.device)
        self.loss_sum = loss_sum if self.world.leads else torch.zeros_like(loss_sum)
        self.target_count = int(checkpoint.tensors["target_count"])
        if self.job.more:
            self.job.more.load_state_tensors(below("more/", checkpoint))
            self.stopped = self.job.should_stop is not None and self.job.should_stop(self._progress())
        return checkpoint.log_digest
