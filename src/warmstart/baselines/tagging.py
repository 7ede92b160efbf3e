"""Tagging from words and their neighbours, with what tags follow each other: a linear chain.

    score(tags of a text) = sum over words i of  ln p(t_i | features of words i-1, i, i+1) + w (ln p(t_i | t_{i-1}) - ln p(t_i))

The first term is a logistic regression; the second are counts, smoothed. Divided by p(t_i), what the regression says of a tag is a
likelihood of the word up to a constant, as in hybrids of classifiers and Markov models (Bourlard and Morgan 1994); w is below 1,
since the neighbours' features say part of it already. Each word gets the marginals of the chain (forward-backward; Rabiner 1989).

Letters: N texts, W words of a text, C tags.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from scipy.special import log_softmax, logsumexp, softmax

from warmstart.baselines.baseline import Predict, Sample, as_objects

WEIGHT = 0.3
"""w: of 0, 0.3, 0.5 and 0.7 the best on the validation sentences of ud_english_ewt with 100 sentences, and nearly with 2,000"""
TAG_STRENGTH, TAG_STEPS, TRANSITION_SMOOTHING = 10.0, 100, 0.1
"""C of the regression and its steps at most; what is added to each count"""
AFFIXES = (1, 2, 3)
"""lengths of the beginnings and ends of words"""


def tag_chain(sample: Sample, _: float) -> Predict:
    """The tags of words by the words, their beginnings, ends and shapes, those of their neighbours, and the tags around."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression

    classes, tags = len(sample.task.labels), np.concatenate(sample.labels)
    if len(np.unique(tags)) == 1:
        return lambda rows: as_objects([np.tile(np.eye(classes)[tags[0]], (len(words), 1)) for words in rows])
    vectorizer = DictVectorizer()
    features = vectorizer.fit_transform([row for words in sample.rows for row in word_features(words)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # more steps change little
        model = LogisticRegression(C=TAG_STRENGTH, max_iter=TAG_STEPS).fit(features, tags)
    follows = _transitions([*sample.labels], classes)

    def predict(rows: Sequence[Sequence[str]]) -> np.ndarray:
        marginals = []
        for words in rows:
            sums = model.decision_function(vectorizer.transform([*word_features(words)]))
            emissions = np.full((len(words), classes), -np.inf)
            emissions[:, model.classes_] = log_softmax(sums if sums.ndim > 1 else np.stack([-sums / 2, sums / 2], axis=1), axis=1)
            marginals.append(softmax(_marginals(emissions, follows), axis=1))
        return as_objects(marginals)

    return predict


def word_features(words: Sequence[str]) -> Iterator[dict[str, float]]:
    """Features of each word, and of those beside it, on which a tag depends."""
    lower, shapes = ["", *(word.lower() for word in words), ""], ["", *map(_shape, words), ""]
    for place, word in enumerate(words, 1):
        named = {"word": word, "lower": lower[place], "shape": shapes[place]}
        named |= {f"begins {size}": lower[place][:size] for size in AFFIXES}
        named |= {f"ends {size}": lower[place][-size:] for size in AFFIXES}
        for side, beside in (("before", place - 1), ("after", place + 1)):
            named |= {f"{side}": lower[beside], f"{side} shape": shapes[beside]}
            named |= {f"{side} ends {size}": lower[beside][-size:] for size in AFFIXES[1:]}
        yield {f"{name}={value}": 1.0 for name, value in named.items()}


def _shape(word: str) -> str:
    """``"McCoy-3"`` -> ``"XxXx-d"``: runs of capitals, other letters and digits are one sign each."""
    kinds = "".join("X" if sign.isupper() else "x" if sign.isalpha() else "d" if sign.isdigit() else sign for sign in word)
    return re.sub(r"(.)\1+", r"\1", kinds)


def _transitions(labels: Sequence[np.ndarray], classes: int) -> np.ndarray:
    """(C + 1, C) w (ln p(tag | tag before) - ln p(tag)); the last row is for the first word of a text."""
    counts = np.full((classes + 1, classes), TRANSITION_SMOOTHING)
    for tags in labels:
        for before, tag in pairwise([classes, *tags]):
            counts[before, tag] += 1
    alone = counts.sum(axis=0) / counts.sum()
    return np.asarray(WEIGHT * (np.log(counts / counts.sum(axis=1, keepdims=True)) - np.log(alone)))


def _marginals(emissions: np.ndarray, follows: np.ndarray) -> np.ndarray:
    """(W, C) logarithms of the probability of each tag of each word, up to a constant for each word."""
    forward, backward, between = [emissions[0] + follows[-1]], [np.zeros(emissions.shape[1])], follows[:-1]
    for emission in emissions[1:]:
        forward.append(logsumexp(forward[-1][:, None] + between, axis=0) + emission)
    for emission in emissions[:0:-1]:
        backward.append(logsumexp(between + emission + backward[-1], axis=1))
    return np.array(forward) + np.array(backward[::-1])
