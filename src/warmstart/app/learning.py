"""Fitting in the background: whenever labels came in, a thread fits the next version of the model; nobody waits for it.

Letters: N texts, D width, n labelled texts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import numpy as np

from warmstart.app.accuracy import FEWEST_FOR_FIGURES
from warmstart.app.doubts import likely_wrong
from warmstart.app.learner import (
    LEARNER_STRENGTHS,
    Beliefs,
    best_strength,
    fit_beliefs,
    held_out_probabilities,
    left_out_loss,
    left_out_predictions,
    named_beliefs,
)
from warmstart.system.console import console

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
        """Whether labels have come in that the beliefs do not know."""
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
