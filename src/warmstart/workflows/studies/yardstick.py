"""What a study measures of a model and of its changed forms: a task's metric on test texts, or the loss per token of a text.

Every form is read on the same texts and judged on the same resamples of them, so that changes are paired.

Letters: N texts, R resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.analysis.ablate import losses, passages_of
from warmstart.data import Source, documents_of, load_task, sample
from warmstart.data.batch import Encoded
from warmstart.data.numbering import strata
from warmstart.errors import ConfigError, DataError
from warmstart.evaluate.differences import Gap, Judged, difference
from warmstart.evaluate.resample import DRAWS
from warmstart.heads import LanguageHead
from warmstart.kinds import kind_for
from warmstart.model import Bundle, Model
from warmstart.seeding import rng


@dataclass(frozen=True)
class Yardstick:
    """What is measured."""

    name: str
    unit: str
    digits: int
    """behind the point"""
    rising: bool
    """more of it is worse"""
    encoded: Encoded
    """the N texts"""
    ask: Callable[[Model], tuple[float, np.ndarray]]
    """the figure, and what it is on resamples (R,) of the texts"""

    def judge(self, model: Model) -> Judged:
        """Read all texts and score them."""
        value, draws = self.ask(model)
        return Judged(self.name, (value,), draws[None])

    def worse(self, other: Judged, whole: Judged) -> Gap:
        """How much worse ``other`` is than ``whole``, in this measure's units."""
        return difference(other, whole) if self.rising else difference(whole, other)

    def said(self, value: float, *, signed: bool = False) -> str:
        """A figure as text."""
        return f"{value:{'+' if signed else ''}.{self.digits}f}"

    def change(self, gap: Gap) -> str:
        """A change with its interval: ``1.20 points (0.40 to 2.00)``."""
        return f"{self.said(gap.mean)} {self.unit} ({self.said(gap.low)} to {self.said(gap.high)})"


def yardstick_for(bundle: Bundle, task: str | None, text: Sequence[str], first: int, seed: int) -> Yardstick:
    """What can be measured of this model.

    Raises ``ConfigError`` where what it needs was not given, or something else was; ``ModelError`` for a head made for no task.
    """
    if isinstance(bundle.model.head, LanguageHead):
        if task is not None or not text:
            came = "a task came; the model adapted to it can be measured on it" if task is not None else "none came"
            raise ConfigError(f"a language model is measured on text (--text FILES), but {came}")
        return _by_loss(bundle, text, first, seed)
    kind_for(bundle.model.head)
    if task is None or text:
        came = "its head predicts no tokens; leave --text out" if text else "none came"
        raise ConfigError(f"an adapted model is measured on its task (the manifest, after the model), but {came}")
    return _by_metric(bundle, task, first, seed)


def _by_metric(bundle: Bundle, path: str, first: int, seed: int) -> Yardstick:
    """The task's own metric, in points, on test texts drawn evenly over its labels."""
    kind, task = kind_for(bundle.model.head), load_task(path)
    if task.kind != kind.name:
        raise DataError(f"the model was made for tasks of kind '{kind.name}', but '{task.name}' is of kind '{task.kind}'")
    if task.labels != bundle.labels:
        raise DataError(f"the task must have the model's labels in the same order: {', '.join(bundle.labels)}")
    split = task.test
    if first < len(split):
        classes = strata(split.labels)
        split = split.take(sample(classes, max(first, len(np.unique(classes))), seed))
    if len(split) < 2:
        raise DataError(f"a change is measured on at least two test texts, but '{task.name}' has {len(split)}")
    encoded, pad = kind.encode(bundle.model, bundle.tokenizer, split.texts), bundle.tokenizer.specials.pad

    def ask(model: Model) -> tuple[float, np.ndarray]:
        said = kind.said(model, encoded, pad)
        return 100 * kind.scores(split, said, task).score(task.metric), 100 * kind.resampled(split, said, task)

    metric = task.metric.replace("_f1", " F1")
    return Yardstick(metric, "points", 2, rising=False, encoded=encoded, ask=ask)


def _by_loss(bundle: Bundle, text: Sequence[str], first: int, seed: int) -> Yardstick:
    """Nats per predicted token, over all passages together."""
    passages = passages_of(bundle, documents_of([Source(path=path) for path in text]), first, seed)
    counts, size = passages.counts, len(passages.encoded)
    drawn = rng(seed, "resample").multinomial(size, np.full(size, 1 / size), size=DRAWS)  # (R, N): how often each came

    def ask(model: Model) -> tuple[float, np.ndarray]:
        found = losses(model, passages, bundle.tokenizer.specials.pad)
        return float(found.sum() / counts.sum()), (drawn @ found) / (drawn @ counts)

    name = "loss" if passages.causal else "loss of hidden tokens"
    return Yardstick(name, "nats per token", 4, rising=True, encoded=passages.encoded, ask=ask)
