"""Learning from votes: a language model's labels of many texts, which err, and people's labels of a few, which show how.

A text with a label says log p(y | x). One with a vote v says the log of the sum over labels y of p(v | y) p(y | x), where p(v | y)
is counted among the texts that learn and have both (the corrected loss of Patrini et al. 2017, with trusted labels: Hendrycks et
al. 2018). A vote that says nothing, p(v | y) alike for all y, then moves nothing; one that always errs in the same way tells as
much as a right one. As in other methods, how frequent labels are is taken out again where all count as equally likely.

Letters: N texts, M texts of the pool, D width, C classes.
"""

from __future__ import annotations

import numpy as np

from warmstart.baselines.baseline import Sample
from warmstart.baselines.vectors import REGRESSION_STRENGTH
from warmstart.model.readout import ConstantReadout, LinearReadout, Readout, of_unit_length

VOTE_WEIGHT = 0.3
"""weight of a text with a vote; a labelled one has 1; by three draws of development sets, where 0.1 and 1 are better on some"""
VOTE_DIMENSIONS = 300
"""directions of words: against 100 better on emotion and 20 newsgroups, not on r8 and imdb"""
PRIOR_VOTES = 2.0
"""votes added for each label, which agree as often as those of all labels do"""
MOST_STEPS, GRADIENT_OF_VOTES = 200, 1e-3


def regression_with_votes(sample: Sample, _: float = 0.0) -> Readout:
    """Logistic regression on rows of length 1, which learns from labels, and from votes by how they err."""
    classes, voted = len(sample.task.labels), sample.pool_votes >= 0
    given = confusion_of_votes(sample.labels, sample.votes, classes)[:, sample.pool_votes[voted]].T  # (M, C) p(v | y)
    present = np.unique(np.concatenate([sample.labels, sample.pool_votes[voted]]))
    if len(present) == 1:
        return ConstantReadout(np.eye(classes)[present[0]])
    evidence = np.concatenate([np.eye(classes)[sample.labels], given])[:, present]
    weights = np.append(np.ones(len(sample.labels)), np.full(len(given), VOTE_WEIGHT))
    rows = of_unit_length(sample.rows)
    rows = np.concatenate([rows, of_unit_length(sample.pool[voted])]) if len(given) else rows
    return _fitted(rows, evidence, weights, equal=sample.equal).spread(present, classes)


def confusion_of_votes(labels: np.ndarray, votes: np.ndarray, classes: int) -> np.ndarray:
    """(C, C) probability of each vote, by the label that people give, from N ``labels`` and ``votes`` (-1: none)."""
    counts = np.zeros((classes, classes))
    np.add.at(counts, (labels[votes >= 0], votes[votes >= 0]), 1)
    agreed = (np.trace(counts) + 1) / (counts.sum() + 2)
    other = (counts.sum(axis=0) + 1) * (1 - np.eye(classes))
    usual = agreed * np.eye(classes) + (1 - agreed) * other / other.sum(axis=1, keepdims=True)
    return np.asarray((counts + PRIOR_VOTES * usual) / (counts.sum(axis=1, keepdims=True) + PRIOR_VOTES))


def _fitted(rows: np.ndarray, evidence: np.ndarray, weights: np.ndarray, *, equal: bool) -> LinearReadout:
    """The regression on ``rows`` (N + M, D), by the probability of what is known of each under a label, ``evidence`` (N + M, C).

    With ``equal`` the labels' frequencies, which its intercepts hold, are taken out again (``fitted_logistic``).
    """
    from scipy.optimize import minimize
    from scipy.special import softmax

    shape = rows.shape[1] + 1, evidence.shape[1]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        columns = flat.reshape(shape)
        by_text = softmax(rows @ columns[:-1] + columns[-1], axis=1)  # (N + M, C)
        known = np.maximum((by_text * evidence).sum(axis=1), 1e-300)
        slopes = (by_text * (1 - evidence / known[:, None])) * weights[:, None]
        penalised = np.append(flat[: -shape[1]], np.zeros(shape[1])) / REGRESSION_STRENGTH
        return float(penalised @ flat / 2 - weights @ np.log(known)), np.append(rows.T @ slopes, slopes.sum(axis=0)) + penalised

    limits = {"maxiter": MOST_STEPS, "gtol": GRADIENT_OF_VOTES, "ftol": 1e-7}
    columns = minimize(loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=limits).x.reshape(shape)
    if equal:
        believed = softmax(rows @ columns[:-1] + columns[-1], axis=1) * evidence
        columns[-1] -= np.log(weights @ (believed / believed.sum(axis=1, keepdims=True)))
    return LinearReadout(columns[:-1], columns[-1], unit_length=True)
