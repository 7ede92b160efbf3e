"""Other columns of the table beside the text: what they add out of fold, and which of them give the label away.

The chosen method's answers to texts left out are where boosting begins, and it must gain over them on texts that it has not
learned from either. Letters: N texts, C labels, D numbers of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from warmstart.baselines.boosting import as_frequent, boosted
from warmstart.data.budget import FOLDS
from warmstart.data.cells import ColumnForm, RowText, cell_matrix, column_forms
from warmstart.data.splits import cross_validation_folds, strata
from warmstart.data.task import Split
from warmstart.model.beside import BesideText
from warmstart.model.bundle import Calibration
from warmstart.seeding import rng
from warmstart.stats.calibration import apply_temperature, log_losses
from warmstart.stats.formatting import of_100
from warmstart.stats.selected import LEAD

_FEWEST_TEXTS = 40
"""independent texts below which other columns are not tried"""
HALF_WAY = 0.5
"""a column may give the label away if it alone is right on more than the texts, and on this share of what the commonest label
misses"""
_NAMED = 3
"""columns that a sentence names"""
_STEPS = 20
"""steps of the factors by which labels are more frequent than answers take them to be"""


@dataclass(frozen=True)
class OtherColumns:
    """The other columns of a table, tried beside the texts."""

    tried: tuple[str, ...]
    """names of the columns that were tried together"""
    leaky: tuple[tuple[str, float], ...] = ()
    """columns that were left out, since they give the label away, and the share of texts on which each is right alone"""
    gain: float = 0.0
    """the share of texts on which the answers are right because of them, out of fold"""
    answers: np.ndarray | None = field(default=None, repr=False, compare=False)
    """(N, C) probabilities out of fold with them; None: they add nothing"""
    model: BesideText | None = field(default=None, repr=False, compare=False)
    """what the saved model reads of them; None: nothing"""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        away = [{"column": name, "right_alone": share} for name, share in self.leaky]
        return {"tried": list(self.tried), "read": self.model is not None, "gain": self.gain, "left_out": away}

    @property
    def sentences(self) -> tuple[str, ...]:
        """What they add, and which were left out and why, as complete sentences."""
        found = []
        if self.model:
            names = self.model.names
            verb = f"add{'s' if len(names) == 1 else ''}"
            found = [f"Beside the text, {_listed(names)} {verb} {of_100(self.gain)} of 100."]
        elif self.tried:
            found = [f"Other columns ({_listed(self.tried)}) add nothing beside the text and are not read."]
        return (*found, *filter(None, [self.away]))

    @property
    def away(self) -> str:
        """The columns that give the label away, as a complete sentence; empty if none does."""
        if not self.leaky:
            return ""
        (name, share), *others = self.leaky
        also = f", as {'do' if len(others) > 1 else 'does'} {_listed([one for one, _ in others])}" if others else ""
        return f"Not read: {name} alone is right on {of_100(share)} of 100 and may give the label away{also}."


def _listed(names: Sequence[str]) -> str:
    """Names as a person lists them: the first ones, and the number of others."""
    shown = [*names[:_NAMED], *([f"{len(names) - _NAMED} more"] * (len(names) > _NAMED))]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def try_columns(
    split: Split, answers: np.ndarray, text: Calibration, named: Sequence[str] = (), *, equal: bool = False
) -> OtherColumns | None:
    """What the other columns add to ``answers`` (N, C) out of fold, of which ``text`` is the calibration.

    Columns that were ``named`` are all read; of others those that give the label away are left out. With ``equal`` the answers take
    labels as equally likely, and columns learn nothing of how frequent these are. None if the texts come without other columns, or
    are few.
    """
    rows = [row for row in split.texts if isinstance(row, RowText)]
    if len(rows) < len(split) or len(np.unique(split.units)) < _FEWEST_TEXTS:
        return None
    answers = apply_temperature(answers, text.temperature, split.labels.ndim == 2)
    forms = column_forms(rows, named or [*rows[0].cells])
    right = _right(answers, split.labels, text)
    leaky = [] if named else [(form, share) for form in forms if (share := _alone(form, rows, split)) > float(right.mean())]
    away = {form.name for form, _ in leaky}
    forms = tuple(form for form in forms if form.name not in away and (named or not form.counts))
    found = OtherColumns(tuple(form.name for form in forms), tuple((form.name, share) for form, share in leaky))
    if not forms:
        return found if leaky else None
    kept = _tried(forms, rows, answers, split, frequencies := _frequencies(answers, split.labels, equal=equal))
    if kept.gains and 0 < len(needed := kept.needed()) < len(forms):
        kept = _tried(needed, rows, answers, split, frequencies)
    gain = float((_right(kept.staged[kept.best], split.labels, text) - right).mean())
    if not kept.gains or gain <= 0:
        return found
    model = boosted(kept.forms, kept.cells, answers, split.labels, frequencies, kept.best).model_copy(update={"text": text})
    return replace(found, gain=gain, answers=kept.staged[kept.best], model=model)


@dataclass(frozen=True)
class _Tried:
    """Columns beside the texts of a split, each of which is left out in turn."""

    forms: tuple[ColumnForm, ...]
    cells: np.ndarray
    """(N, D)"""
    answers: np.ndarray
    """(N, C) to the texts alone, out of fold"""
    split: Split
    frequencies: np.ndarray | None
    """(C,) frequencies of labels that the answers leave out (``as_frequent``)"""
    folds: tuple[tuple[np.ndarray, BesideText], ...]
    """places of the texts of a fold, and what learned from all others"""

    @cached_property
    def staged(self) -> list[np.ndarray]:
        """(N, C) probabilities of texts that boosting did not learn from, before the first round and after each."""
        return self._staged(self.cells)

    def _staged(self, cells: np.ndarray) -> list[np.ndarray]:
        parts = [(held, [*model.staged(self.answers[held], cells[held])]) for held, model in self.folds]
        staged = [self.answers.copy() for _ in range(min(len(stages) for _, stages in parts))]
        for held, stages in parts:
            for whole, part in zip(staged, stages, strict=False):
                whole[held] = part
        return staged

    @cached_property
    def best(self) -> int:
        """The number of rounds with the least loss."""
        return int(np.argmin([self._loss(stage).mean() for stage in self.staged]))

    @property
    def gains(self) -> bool:
        """True if the loss falls beyond chance."""
        return self.best > 0 and _gains(self._lost(self.answers), self.split.units)

    def _lost(self, worse: np.ndarray) -> np.ndarray:
        """(N,) the loss of other probabilities (N, C) above that of the best round."""
        return self._loss(worse) - self._loss(self.staged[self.best])

    def _loss(self, answers: np.ndarray) -> np.ndarray:
        """(N,) nats of each text, of answers (N, C) as boosting would begin from them: with or without columns cut alike."""
        return log_losses(as_frequent(answers, self.frequencies), self.split.labels)

    def needed(self) -> tuple[ColumnForm, ...]:
        """The columns without which the loss rises beyond chance, the most telling first (Breiman 2001: their cells exchanged)."""
        order, at, losses = rng(0, "cells exchanged").permutation(len(self.cells)), 0, dict[ColumnForm, np.ndarray]()
        for form in self.forms:
            cells = self.cells.copy()
            cells[:, at : at + form.width] = cells[order, at : at + form.width]
            losses[form], at = self._lost(self._staged(cells)[self.best]), at + form.width
        telling = sorted(losses, key=lambda form: -float(losses[form].mean()))
        return tuple(form for form in telling if _gains(losses[form], self.split.units))


def _tried(
    forms: Sequence[ColumnForm], rows: Sequence[RowText], answers: np.ndarray, split: Split, frequencies: np.ndarray | None
) -> _Tried:
    """Boosting on the columns, for each fold of the split on the others."""
    cells, folds = cell_matrix(forms, rows), list[tuple[np.ndarray, BesideText]]()
    for held in _folds(split):
        learn = np.setdiff1d(np.arange(len(split)), held)
        folds.append((held, boosted(forms, cells[learn], answers[learn], split.labels[learn], frequencies)))
    return _Tried(tuple(forms), cells, answers, split, frequencies, tuple(folds))


def _folds(split: Split) -> list[np.ndarray]:
    return cross_validation_folds(strata(split.labels), split.units, FOLDS, 0)


def _frequencies(answers: np.ndarray, labels: np.ndarray, *, equal: bool) -> np.ndarray | None:
    """(C,) how much more frequent ``labels`` (N,) are than answers (N, C) take them to be; None for several labels.

    These are the intercepts of greatest likelihood, by proportional fitting (Saerens, Latinne and Decaestecker 2002): a network's
    answers have learned frequencies, and get factors near 1.
    """
    if labels.ndim == 2:
        return None
    factors, counts = np.ones(answers.shape[1]), np.bincount(labels, minlength=answers.shape[1])
    for _ in range(_STEPS if equal else 0):
        factors *= (counts + 1) / (as_frequent(answers, factors).sum(axis=0) + 1)
    return factors


def _gains(gains: np.ndarray, units: np.ndarray) -> bool:
    """True if the mean of gains (N,) is above 0 beyond chance, over independent units."""
    by_unit = np.bincount(np.unique(units, return_inverse=True)[1], gains)
    error = float(by_unit.std(ddof=1)) * len(by_unit) ** 0.5
    return float(gains.sum()) > LEAD * error


def _right(answers: np.ndarray, labels: np.ndarray, text: Calibration) -> np.ndarray:
    """(N,) 1 where the labels of a text are right; of several labels the share that is."""
    if labels.ndim == 1:
        return np.asarray(answers.argmax(axis=1) == labels, dtype=np.float64)
    return np.asarray(((answers >= (np.array(text.thresholds) if text.thresholds else 0.5)) == labels).mean(axis=1))


def _alone(form: ColumnForm, rows: Sequence[RowText], split: Split) -> float:
    """The share of texts on which a column is right alone, out of fold; 0 if it is no more than half way from chance to all."""
    from sklearn.tree import DecisionTreeClassifier

    if split.labels.ndim == 2:
        return max(_alone(form, rows, replace(split, labels=labels)) for labels in split.labels.T)
    cells, right = cell_matrix([form], rows), 0
    for held in _folds(split):
        learn = np.setdiff1d(np.arange(len(split)), held)
        tree = DecisionTreeClassifier(min_samples_leaf=2, random_state=0).fit(cells[learn], split.labels[learn])
        right += int((tree.predict(cells[held]) == split.labels[held]).sum())
    share, most = right / len(split), np.bincount(split.labels).max() / len(split)
    return share if share - most > HALF_WAY * (1 - most) else 0.0
