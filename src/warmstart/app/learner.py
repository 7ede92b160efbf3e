"""The model that is fitted again while a person labels: logistic regressions on frozen vectors, in about a second.

Each of a few members sees the labels with other random weights (the Bayesian bootstrap: Rubin 1981), so that where they disagree,
more labels would teach something. How much is the mutual information between the label and the member (BALD: Houlsby et al. 2011).

Whenever labels came in, a thread fits the next version of the model; nobody waits for it.

Letters: N texts of the pool, n of them labelled, D width, C classes, M members.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from warmstart.app.accuracy import FEWEST_FOR_FIGURES, likely_wrong
from warmstart.seeding import rng
from warmstart.system.console import console

MEMBERS = 5
_REPETITIONS = 3
"""repetitions of the folds, for the accuracy of the newest model"""
LEARNER_STRENGTHS = (0.01, 0.1, 1.0)
"""values of C of a logistic regression on standardised vectors; the first until there are enough labels to choose"""
_NAME_WORTH, _SHARPNESS = 3.0, 10.0
"""texts that the name of a label counts as; what similarities (cosines) are multiplied by"""
_LEAST = 0.001
"""probability of any label: a regression gives 0 to one that it has not seen"""
_FOLDS = 5
"""folds of the labelled texts, for predictions by models that did not learn from a text"""


@dataclass(frozen=True)
class Beliefs:
    """The predictions of one version of the model for every text of the pool."""

    version: int
    classes: np.ndarray
    """(C,) label ids, ascending"""
    probabilities: np.ndarray
    """(N, C), the mean over the members"""
    information: np.ndarray
    """(N,) nats that the label would tell about the model (BALD)"""
    learned_from: int
    """labelled texts"""
    named: bool = False
    """True if the names of the labels are the model"""

    @property
    def predicted(self) -> np.ndarray:
        """(N,) label ids."""
        return np.asarray(self.classes[self.probabilities.argmax(axis=1)])

    @property
    def confidence(self) -> np.ndarray:
        """(N,) probability of the predicted label."""
        return np.asarray(self.probabilities.max(axis=1))

    @property
    def margin(self) -> np.ndarray:
        """(N,) by how much the most probable label leads."""
        ranked = np.partition(self.probabilities, -2, axis=1)
        return np.asarray(ranked[:, -1] - ranked[:, -2])


def standardised_vectors(vectors: np.ndarray, pool: np.ndarray | None = None) -> np.ndarray:
    """(N, D) float32, each dimension with mean 0 and variance 1 over the pool: else a few large ones hide all others."""
    pool = vectors if pool is None else pool
    spread = pool.std(axis=0)
    return np.ascontiguousarray((vectors - pool.mean(axis=0)) / np.where(spread > 0, spread, 1), dtype=np.float32)


def fit_beliefs(
    vectors: np.ndarray, texts: np.ndarray, labels: np.ndarray, version: int, seed: int, strength: float = LEARNER_STRENGTHS[0]
) -> Beliefs:
    """Fit the members to the labelled ``texts`` (n,), places in ``vectors`` (N, D), with ``labels`` (n,) of two or more classes."""
    members = list[np.ndarray]()
    for member in range(MEMBERS):
        weights = rng(seed, "member", version, member).exponential(size=len(labels))
        classes, probabilities = _probabilities(strength, vectors[texts], labels, weights, vectors)
        members.append(probabilities)
    mean = np.mean(members, axis=0)
    information = _entropy(mean) - np.mean([_entropy(member) for member in members], axis=0)
    return Beliefs(version, classes, mean, np.maximum(information, 0), len(labels))


def named_beliefs(
    vectors: np.ndarray, texts: np.ndarray, labels: np.ndarray, version: int, names: Mapping[int, np.ndarray]
) -> Beliefs:
    """While there are few labels: texts are like the means of classes, where the name of a label counts as three texts.

    ``names`` are label ids and the vectors (D,) of what they mean; what labels mean is known before the first answer.
    """
    classes, probabilities = _named_probabilities(names, vectors[texts], labels, vectors)
    return Beliefs(version, classes, probabilities, _entropy(probabilities), len(labels), named=True)


def best_strength(vectors: np.ndarray, texts: np.ndarray, labels: np.ndarray, seed: int) -> tuple[float, np.ndarray, np.ndarray]:
    """The strength whose held-out log loss is smallest, with the classes and probabilities of ``held_out_probabilities``."""
    trials = []
    for strength in LEARNER_STRENGTHS:
        classes, probabilities = held_out_probabilities(vectors, texts, labels, seed, strength)
        trials.append((left_out_loss(labels, classes, probabilities, 1e-9), strength, classes, probabilities))
    _, strength, classes, probabilities = min(trials, key=lambda trial: trial[0])
    return strength, classes, probabilities


def left_out_loss(labels: np.ndarray, classes: np.ndarray, probabilities: np.ndarray, least: float = _LEAST) -> float:
    """Mean over the labels (n,), by what ``held_out_probabilities`` found; none counts as less probable than ``least``."""
    own = probabilities[np.arange(len(labels)), np.searchsorted(classes, labels)]
    return -float(np.log(np.maximum(own, least)).mean())


def held_out_probabilities(
    vectors: np.ndarray,
    texts: np.ndarray,
    labels: np.ndarray,
    seed: int,
    strength: float = LEARNER_STRENGTHS[0],
    names: Mapping[int, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The classes (C,), and for each labelled text (n, C) the probabilities by a model of the other folds, and of ``names``."""
    classes = np.unique([*labels, *(names or ())])
    held_out = np.zeros((len(labels), len(classes)))
    fold = rng(seed, "folds").permutation(len(labels)) % _FOLDS
    for number in range(_FOLDS):
        learns, chosen = fold != number, fold == number
        if not chosen.any() or (not names and len(set(labels[learns].tolist())) < 2):
            held_out[chosen] = 1 / len(classes)
            continue
        seen, of = (vectors[texts[learns]], labels[learns]), vectors[texts[chosen]]
        some, probabilities = _named_probabilities(names, *seen, of) if names else _probabilities(strength, *seen, None, of)
        held_out[np.ix_(chosen, np.searchsorted(classes, some))] = probabilities
    return classes, held_out


def left_out_predictions(
    beliefs: Beliefs, texts: np.ndarray, held_out: Callable[[int], tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """(3, N) label ids that models which did not learn from a text predict for it.

    For the labelled ``texts`` (n,) by repeated folds: ``held_out(k)`` is as ``held_out_probabilities`` in the k-th repetition; for
    the others by the beliefs, which learned from the same labels.
    """
    predicted = np.tile(beliefs.predicted, (_REPETITIONS, 1))
    for number in range(_REPETITIONS):
        classes, probabilities = held_out(number)
        predicted[number, texts] = classes[probabilities.argmax(axis=1)]
    return predicted


def _named_probabilities(
    names: Mapping[int, np.ndarray], vectors: np.ndarray, labels: np.ndarray, of: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    from scipy.special import softmax
    from sklearn.preprocessing import normalize

    classes, rows = np.unique([*labels, *names]), normalize(vectors) if len(vectors) else vectors
    known = {label: _NAME_WORTH * normalize(vector[None])[0] for label, vector in names.items()}
    means = np.stack([rows[labels == label].sum(axis=0) + known.get(int(label), 0.0) for label in classes])
    return classes, np.asarray(softmax(_SHARPNESS * normalize(of) @ normalize(means).T, axis=1))


def _probabilities(
    strength: float, vectors: np.ndarray, labels: np.ndarray, weights: np.ndarray | None, of: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.linear_model import LogisticRegression

    from warmstart.baselines.classifiers import fit_quietly

    model = fit_quietly(LogisticRegression(C=strength, max_iter=1000, tol=1e-3), vectors, labels, weights)
    return model.classes_, model.predict_proba(of)


def _entropy(probabilities: np.ndarray) -> np.ndarray:
    from scipy.special import entr

    return np.asarray(entr(probabilities).sum(axis=-1))


FEWEST_FOR_DOUBTS = 50
"""labels; with fewer, a model knows less than the person"""
_PATIENCE = 5.0
"""seconds"""
_GROWTH = 1.1
"""labels are doubted, the strength is chosen, and texts are left out in turn, anew when there are so many times as many"""


class BackgroundLearner:
    """The newest beliefs about the pool, and which labels are likely wrong."""

    def __init__(
        self,
        vectors: np.ndarray,
        labelled: Callable[[], Mapping[int, int]],
        version: int,
        seed: int,
        names: Callable[[], Mapping[int, np.ndarray]] = dict,
    ) -> None:
        self.vectors, self._names = vectors, names
        self.beliefs: Beliefs | None = None
        self.doubtful: tuple[int, ...] = ()
        """texts, the least credible label first"""
        self.left_out: np.ndarray | None = None
        """(3, N) label ids by models that did not learn from the text; None with fewer labels than ``FEWEST_FOR_FIGURES``"""
        self.checked = 0
        """labels that these models, together, learned from"""
        self._labelled, self._version, self._seed = labelled, version, seed
        self._doubted_at, self._strength, self._meaning = 0, LEARNER_STRENGTHS[0], 0
        self._news, self._idle, self._ended = threading.Event(), threading.Event(), False
        self._told = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="learner", daemon=True)
        self._thread.start()

    @property
    def fitting(self) -> bool:
        """True if labels have come in that the beliefs do not know."""
        return not self._idle.is_set()

    def wake(self) -> None:
        """There are other labels."""
        with self._told:
            self._idle.clear()
            self._news.set()

    def forget(self) -> None:
        """Labels mean something else: what was predicted for texts that were left out holds no more."""
        with self._told:
            self._meaning += 1
            self.left_out, self.checked = None, 0
        self.wake()

    def wait(self) -> None:
        """Until all labels are learned; for programs, not for people."""
        self._idle.wait()

    def close(self) -> None:
        """End the thread; a fit that takes longer than a few seconds ends with the process."""
        self._ended = True
        self._news.set()
        self._thread.join(_PATIENCE)

    def _work(self) -> None:
        while True:
            self._news.wait()
            self._news.clear()
            if self._ended:
                return
            try:
                self.learn()
            except Exception as error:  # people go on labelling by the beliefs that there are
                console.print(f"the model could not be fitted: {error}")
            with self._told:
                if not self._news.is_set():
                    self._idle.set()

    def learn(self) -> None:
        """Fit the next version."""
        meaning, labelled = self._meaning, self._labelled()
        texts, labels = np.array([*labelled], dtype=np.int64), np.array([*labelled.values()], dtype=np.int64)
        names, several, switched = self._names(), len(set(labels.tolist())) > 1, False
        names = names if len(names) > 1 else {}
        if not names and not several:
            return
        if several and len(labels) >= max(FEWEST_FOR_DOUBTS, _GROWTH * self._doubted_at):
            self._doubted_at = len(labels)
            self._strength, classes, probabilities = best_strength(self.vectors, texts, labels, self._seed)
            if names:
                by_names = held_out_probabilities(self.vectors, texts, labels, self._seed, names=names)
                if left_out_loss(labels, classes, probabilities) < left_out_loss(labels, *by_names):
                    names, self._names, switched = {}, dict, True  # for good
                else:
                    classes, probabilities = by_names
            self.doubtful = tuple(texts[likely_wrong(labels, classes, probabilities)].tolist())
        self._version += 1
        if names:
            beliefs = named_beliefs(self.vectors, texts, labels, self._version, names)
        else:
            beliefs = fit_beliefs(self.vectors, texts, labels, self._version, self._seed, self._strength)
        self.beliefs = beliefs
        if len(labels) >= FEWEST_FOR_FIGURES and (switched or not self.checked <= len(labels) < _GROWTH * self.checked):
            left_out = left_out_predictions(
                beliefs,
                texts,
                lambda number: held_out_probabilities(self.vectors, texts, labels, self._seed + number, self._strength, names),
            )
            with self._told:
                if meaning == self._meaning:
                    self.left_out, self.checked = left_out, len(labels)
