"""Running a baseline within a label budget: the texts that choose pick its setting, then it predicts the test split.

With cross-validation the last fit learns from all labels, with the setting whose out-of-fold predictions score best. With a holdout
the model that was scored is the last one. The texts without their labels are read once, whatever the folds. Of equal settings the
first is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from warmstart.baselines.baseline import NO_WORDS, Baseline, NoWordsError, Predict, Readable, Reading, Sample, Vectors
from warmstart.baselines.simple import MAJORITY
from warmstart.baselines.span import span_of
from warmstart.data.budget import LabelBudget
from warmstart.errors import ModelError
from warmstart.model.bundle import Bundle
from warmstart.model.fitted import FittedBaseline
from warmstart.model.readout import ConstantReadout, LinearReadout, PerLabelReadout
from warmstart.model.rows import BackboneVectors, VectorRows, WordRows
from warmstart.seeding import rng
from warmstart.tasks import task_type_of
from warmstart.tasks.thresholds import scores_left_out

NOTHING_TO_CHOOSE = (0.0,)


@dataclass(frozen=True)
class BaselineRun:
    """Predictions of a baseline within a label budget."""

    test: Any
    """predictions for the test split, in the form that the task type scores"""
    choosing: Any
    """predictions for ``budget.choosing``, by models that did not learn from those texts"""
    setting: float
    """the chosen setting; that of ``NOTHING_TO_CHOOSE`` if there is none"""
    tried: dict[float, float]
    """setting -> the task's metric on ``budget.choosing``; empty if nothing was chosen"""
    note: str
    """description of the baseline for reports: its rule or its setting, and the texts without labels that it read"""
    reading: Reading
    """the mapping from inputs to rows"""
    model: Callable[[], Predict]
    """the model that predicts the test split, fitted once it is asked for"""


def run_baseline(
    baseline: Baseline,
    budget: LabelBudget,
    pool: Sequence[str] = (),
    vectors: Vectors | None = None,
    setting: float | None = None,
    *,
    equal: bool = False,
) -> BaselineRun:
    """Choose the setting of a baseline within the budget, learn from its labels, and predict the test split of ``budget.whole``.

    ``pool`` holds texts without labels, which only baselines with ``reads_pool`` read; ``vectors`` gives (N, D) vectors of inputs,
    for those with ``needs_vectors``. With a ``setting`` that an earlier run chose, nothing is predicted but the test split. With
    ``equal``, or where macro-F1 counts all classes alike, models are told nothing of how frequent they are. Raises ``DataError`` if
    there are too few labels for two folds.
    """
    task = budget.whole
    pool = [text for text in pool if text in task.votes.answers] if baseline.reads_votes else pool
    kept = _sampled(pool, baseline.pool_limit, budget.seed) if baseline.reads_pool else ()
    learns, needed = budget.task.train, vectors if baseline.needs_vectors else None
    readable = Readable(task, learns.texts, kept, needed, budget.seed, tuple(learns.units.tolist()))
    try:
        reading = baseline.read(readable)
    except NoWordsError:
        constant = run_baseline(MAJORITY, budget, setting=None if setting is None else 0.0)
        return replace(constant, note=f"{NO_WORDS}; {constant.note}")
    learner = _Learner(baseline, budget, reading, kept, equal=equal or task.metric == "macro_f1")
    several = () if task.single_label else baseline.multilabel_candidates
    candidates = several or baseline.candidates or NOTHING_TO_CHOOSE
    fits = {value: learner.choose(value) for value in candidates} if setting is None else {}
    tried = dict[float, float]()
    if len(fits) > 1:
        tried = {value: scores_left_out(task, budget.choosing, guesses).score(task.metric) for value, (guesses, _) in fits.items()}
    best = max(candidates, key=lambda value: tried.get(value, 0.0)) if setting is None else setting
    note = _note(baseline, budget, best if tried else None)
    if baseline.reads_pool:
        limited = len(kept) < len(pool)
        note += f"; read {len(kept):,} {f'of {len(pool):,} ' if limited else ''}text{'s' * (len(pool) != 1)} without labels"
        note += f", no more because {baseline.limited_because}" * limited
    choosing, last = fits.get(best, (np.empty(0), None))

    @cache
    def model() -> Predict:
        return last if last and not budget.cross_validated else learner.fit(np.arange(len(budget.train)), best)

    test = model()(reading.rows(task.test.texts)) if len(task.test) else choosing[:0]
    return BaselineRun(test, choosing, best, tried, note, reading, model)


class _Learner:
    """Fits a baseline to some of the labelled texts, which are read once."""

    def __init__(self, baseline: Baseline, budget: LabelBudget, reading: Reading, pool: Sequence[str], *, equal: bool) -> None:
        self.baseline, self.budget, self.reading, self.equal = baseline, budget, reading, equal
        self.train = budget.whole.train.take(budget.train)
        self.votes, self.pool_votes = (budget.whole.votes.of(texts) for texts in (self.train.texts, pool))
        self.rows = reading.rows(self.train.texts)
        self.held_out = None if budget.cross_validated else reading.rows(budget.choosing.texts)
        self.span = span_of(self.rows) if baseline.linear else None
        self.learned = self.rows if self.span is None else self.span.rows

    def fit(self, indices: np.ndarray, setting: float) -> Predict:
        """Learn from the texts at ``indices`` of those of the budget that learn; the model reads rows of any texts."""
        predict = self._learn(indices, setting)
        return predict if self.span is None else self.span.on_columns(predict)

    def _learn(self, indices: np.ndarray, setting: float) -> Predict:
        """The model of ``fit``, of rows as in ``learned``."""
        labels, task, seed = self.train.labels[indices], self.budget.whole, self.budget.seed
        rest = (self.reading.names, self.span is not None, self.equal, self.votes[indices], self.pool_votes)
        return self.baseline.fit(Sample(self.learned[indices], labels, self.reading.pool, task, seed, *rest), setting)

    def choose(self, setting: float) -> tuple[Any, Predict]:
        """Predictions for the texts that choose, and the model of the last fold."""
        parts = []
        for fold in self.budget.folds:
            learn, choose = (np.searchsorted(self.budget.train, part) for part in (fold.learn, fold.choose))
            predict = self._learn(learn, setting) if self.held_out is None else self.fit(learn, setting)
            parts.append(predict(self.learned[choose] if self.held_out is None else self.held_out))
        return self.budget.joined(parts), predict


def _sampled(pool: Sequence[str], limit: int | None, seed: int) -> tuple[str, ...]:
    """At most ``limit`` texts of the pool, in its order."""
    if limit is None or len(pool) <= limit:
        return tuple(pool)
    return tuple(pool[i] for i in np.sort(rng(seed, "pool").permutation(len(pool))[:limit]))


def _note(baseline: Baseline, budget: LabelBudget, setting: float | None) -> str:
    """The rule or the chosen setting of the baseline, for reports."""
    if setting is None:
        return baseline.note or task_type_of(budget.whole).constant_rule
    by = f"by {len(budget.folds)}-fold cross-validation" if budget.cross_validated else "on validation"
    return f"{baseline.setting} = {setting:g}, chosen {by}"


def fitted_baseline(run: BaselineRun, vectors: Bundle | None = None) -> FittedBaseline:
    """The model that predicted the test split; ``vectors``, with an embedding head, gives the vectors that it read.

    Raises ``ModelError`` with the reason if the baseline cannot be saved.
    """
    rows, readout = run.reading.saved, run.model()
    if not isinstance(readout, LinearReadout | ConstantReadout | PerLabelReadout):
        raise ModelError(f"this baseline has nothing to save: {run.note}")
    if isinstance(readout, ConstantReadout):
        return FittedBaseline(None, readout)
    if isinstance(rows, VectorRows):
        assert vectors is not None, "vectors are saved with their backbone"
        rows = replace(rows, vectors=BackboneVectors(vectors))
    assert isinstance(rows, WordRows | VectorRows), "a readout of numbers has rows that can be saved"
    return FittedBaseline(rows, readout)
