"""Learning from bags of words: linear models, naive Bayes with texts without labels, NBSVM; ridge regression.

A classifier knows one label per text; ``for_labels`` makes it serve a task with unseen classes, a single class or several labels.

Letters: N texts, M texts of the pool, V words and word pairs, K classes that occur, C classes of the task.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from warmstart.baselines.baseline import Sample
from warmstart.model.readout import ConstantReadout, LinearReadout, PerLabelReadout, Readout


@dataclass(frozen=True)
class ClassSample:
    """Rows from which a classifier learns: at least two classes, and all classes up to the last one occur."""

    rows: Any
    """(N, ·)"""
    labels: np.ndarray
    """(N,) int64 from 0 to K - 1"""
    pool: Any
    """(M, ·) rows without labels, or None"""
    seed: int
    equal: bool = False
    """all classes are as likely before a text is read, however many texts they have"""
    in_span: bool = False
    """rows are turned into their span, where a step costs next to nothing"""


ClassFit = Callable[[ClassSample, float], LinearReadout]
"""a classifier: sample and setting -> a function from rows to (·, K) probabilities"""


def for_labels(fit: ClassFit) -> Callable[[Sample, float], Readout | PerLabelReadout]:
    """The classifier for tasks with one label per text, or with several: then one for each label (one against the rest).

    Its predictions are (·, C) probabilities. Classes without a text get 0. If all texts are in one class, it gets 1.
    """

    @functools.wraps(fit)
    def fitted(sample: Sample, setting: float) -> Readout | PerLabelReadout:
        if sample.labels.ndim == 1:
            return _in_classes(fit, sample, sample.labels, len(sample.task.labels), setting)
        return PerLabelReadout(tuple(_in_classes(fit, sample, column.astype(np.int64), 2, setting) for column in sample.labels.T))

    return fitted


def _in_classes(fit: ClassFit, sample: Sample, labels: np.ndarray, classes: int, setting: float) -> Readout:
    """The classifier of ``labels`` (N,), as a function from rows to (·, ``classes``) probabilities."""
    present, dense = np.unique(labels, return_inverse=True)
    if len(present) == 1:
        return ConstantReadout(np.eye(classes)[present[0]])
    equal = sample.equal and sample.labels.ndim == 1
    return fit(ClassSample(sample.rows, dense, sample.pool, sample.seed, equal, sample.in_span), setting).spread(present, classes)


def from_margins(weights: np.ndarray, bias: np.ndarray, side: float = 1.0) -> LinearReadout:
    """The softmax of margins x W + b, (D, K) and (K,); with two classes, (D, 1) and (1,) as scikit-learn has them.

    These stand for the margins -``side`` m and m: with 1 those of a support vector machine for and against; with 0 and m, of which
    the softmax is the logistic function, ``side`` is 0.
    """
    if weights.shape[1] > 1:
        return LinearReadout(weights, bias)
    return LinearReadout(np.concatenate([-side * weights, weights], axis=1), np.concatenate([-side * bias, bias]))


STRENGTHS = (1.0, 10.0, 100.0, 1000.0)
"""values of C (inverse strength of the penalty) of a logistic regression on TF-IDF"""
PENALTIES = (0.1, 1.0, 10.0, 100.0)
"""values of alpha (strength of the penalty) of a ridge regression"""
GRADIENT, GRADIENT_IN_SPAN = 1e-4, 1e-8
"""the largest entry of the gradient of the mean loss at which a logistic regression has converged"""


@for_labels
def logistic_regression(sample: ClassSample, strength: float) -> LinearReadout:
    """Logistic regression, until it has converged."""
    until = GRADIENT_IN_SPAN if sample.in_span else GRADIENT
    return fitted_logistic(sample.rows, sample.labels, strength, equal=sample.equal, until=until)


def fitted_logistic(
    rows: Any, labels: np.ndarray, strength: float, weights: np.ndarray | None = None, *, equal: bool, until: float = GRADIENT
) -> LinearReadout:
    """scikit-learn's on (N, D) rows of all K classes; a row counts as many texts as its weight (N,) says.

    Its intercepts hold how frequent classes are; with ``equal`` these are taken out again, so that rare ones are given as readily
    (prior correction: Saerens, Latinne and Decaestecker 2002, equation 2.4).
    """
    from sklearn.linear_model import LogisticRegression

    solver = "newton-cg" if isinstance(rows, np.ndarray) else "lbfgs"  # with few columns in half the time
    model = fit_quietly(LogisticRegression(C=strength, max_iter=10_000, tol=until, solver=solver), rows, labels, weights)
    readout = from_margins(model.coef_.T, model.intercept_, side=0.0)
    return replace(readout, bias=readout.bias - np.log(np.bincount(labels, weights))) if equal else readout


def fit_quietly(model: Any, rows: Any, labels: np.ndarray, weights: np.ndarray | None = None) -> Any:
    """A classifier of scikit-learn, fitted without its warning that many classes have few texts, which is no mistake."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The number of unique classes is greater")
        return model.fit(rows, labels, sample_weight=weights)


def ridge_regression(sample: Sample, strength: float) -> LinearReadout:
    """Ridge regression."""
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=strength).fit(sample.rows, sample.labels)
    return LinearReadout(model.coef_[:, None], np.array([model.intercept_]), "identity")


# Multinomial naive Bayes with texts without labels, by expectation maximisation.
#
#     EM:  fit to the labelled texts; then 15 times: guess the classes of the pool, fit to the labels and, at a tenth of the weight,
#          to the guesses
#
# Nigam, McCallum, Thrun and Mitchell 2000, "Text classification from labeled and unlabeled documents using EM" (Machine Learning
# 39).

EM_SMOOTHING = (0.1, 0.03, 0.01)
"""values of alpha, which is added to the count of each word in each class: the many words of a pool make larger ones drown what a
class has said"""
EM_STEPS = 15
POOL_WEIGHT = 0.1
"""weight of a text without label; a labelled one has 1"""


@for_labels
def naive_bayes_em(sample: ClassSample, smoothing: float) -> LinearReadout:
    """Naive Bayes that also learns from its own guesses for the pool."""
    known = np.eye(sample.labels.max() + 1)[sample.labels]  # (N, K)
    texts, words = known.sum(axis=0), sample.rows.T @ known  # (K,), (V, K)
    predict = _naive_bayes(texts, words, smoothing)
    for _ in range(EM_STEPS if sample.pool is not None else 0):
        guessed = POOL_WEIGHT * predict(sample.pool)  # (M, K)
        predict = _naive_bayes(texts + guessed.sum(axis=0), words + sample.pool.T @ guessed, smoothing)
    return replace(predict, bias=np.zeros_like(predict.bias)) if sample.equal else predict


def _naive_bayes(texts: np.ndarray, words: np.ndarray, smoothing: float) -> LinearReadout:
    """Naive Bayes from the number of texts of each class (K,) and of each word in each class (V, K)."""
    smooth = words + smoothing
    return LinearReadout(np.log(smooth / smooth.sum(axis=0)), np.log(texts / texts.sum()))


# NBSVM: a linear support vector machine on words weighted by their log-count ratio (naive Bayes).
#
#     r = ln(p / |p|) - ln(q / |q|),   p = 2 f + texts of the class with each word,   q = 2 (1 - f) + other texts with it
#     w = β w + (1 - β) |w| / V        between the weights of the SVM and naive Bayes
#
# Wang and Manning 2012, "Baselines and bigrams: simple, good sentiment and topic classification" (ACL). With two classes of one
# size, a fraction f of 1/2 of the texts each, this is the paper's p = 1 + …. With one class against the rest of many, 1 on both
# sides would make a word of the class of every word that neither has often. Rows have length 1, so that the margins of classes
# compare.

INTERPOLATION = 0.9
"""β: the share of the weights of the SVM; 0.25 in the paper"""
NBSVM_MARGINS = (1.0, 0.1, 10.0)
"""values of C"""
SVM_GRADIENT = 1e-2
"""gradient at which liblinear stops: at 1e-4 a thousand classes take four times as long"""


@for_labels
def nbsvm(sample: ClassSample, strength: float) -> LinearReadout:
    """A machine for two classes, else one for each class. The softmax of the margins ranks the classes; it is no probability."""
    classes = [1] if sample.labels.max() == 1 else range(sample.labels.max() + 1)
    models = [_one_against_rest(sample.rows, sample.labels == label, strength) for label in classes]
    weights, bias = np.stack([model[0] for model in models], axis=1), np.array([model[1] for model in models])
    return replace(from_margins(weights, bias), unit_length=True)


def _one_against_rest(rows: Any, inside: np.ndarray, strength: float) -> tuple[np.ndarray, float]:
    """The weights (V,) and the bias of one class."""
    from sklearn.preprocessing import normalize
    from sklearn.svm import LinearSVC

    of_class, others = (2 * which.mean() + np.asarray(rows[which].sum(axis=0)).ravel() for which in (inside, ~inside))
    ratios = np.log(of_class / of_class.sum()) - np.log(others / others.sum())
    weighted = normalize(rows).multiply(ratios[None]).tocsr()
    model = LinearSVC(C=strength, tol=SVM_GRADIENT, max_iter=20_000, random_state=0).fit(weighted, inside)
    learned = model.coef_[0]
    return ratios * (INTERPOLATION * learned + (1 - INTERPOLATION) * np.abs(learned).mean()), float(model.intercept_[0])
