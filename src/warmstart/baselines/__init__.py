"""Baselines: what a fine-tuned model must beat. A new one is two functions, in the file of its kind, and one row here."""

from __future__ import annotations

from functools import partial
from typing import Any

from warmstart.baselines.baseline import Baseline, inputs_themselves
from warmstart.baselines.classifiers import (
    EM_SMOOTHING,
    NBSVM_MARGINS,
    PENALTIES,
    STRENGTHS,
    logistic_regression,
    naive_bayes_em,
    nbsvm,
    ridge_regression,
)
from warmstart.baselines.simple import MAJORITY, most_frequent_tags
from warmstart.baselines.tagging import tag_chain
from warmstart.baselines.vectors import (
    POOL_WEIGHTS,
    VECTOR_PENALTIES,
    VECTOR_POOL_LIMIT,
    VECTOR_STRENGTHS,
    means_and_regression,
    means_and_regression_em,
    standardised,
    with_names,
)
from warmstart.baselines.votes import VOTE_DIMENSIONS, regression_with_votes
from warmstart.baselines.words import (
    latent_semantic_analysis,
    present_word_pairs,
    present_words,
    tfidf,
    tfidf_characters,
)
from warmstart.data.task import Task
from warmstart.registry import Registry

_LABELS = ("classification", "multilabel")
_WORDS: dict[str, Any] = {
    "types": _LABELS, "setting": "C", "candidates": STRENGTHS, "multilabel_candidates": STRENGTHS[:3], "linear": True, "quick": True
}  # fmt: skip
"""logistic regression on words"""
_VECTORS: dict[str, Any] = {"race_only": True, "needs_vectors": True}
_TURNED: dict[str, Any] = {"linear": True, **_VECTORS}
_POOL: dict[str, Any] = {"race_only": True, "reads_pool": True}
_CLASSES, _NUMBERS = ("classification",), ("regression",)
_READ: dict[str, Any] = {"pool_limit": VECTOR_POOL_LIMIT, "limited_because": "each is read by the network", **_VECTORS}
_VOTES: dict[str, Any] = {
    "types": _CLASSES,
    "note": "a text with a vote weighs 0.3",
    "reads_votes": True,
    **_POOL,
}

BASELINES: Registry[Baseline] = Registry(
    "baseline",
    {
        "majority": MAJORITY,
        "TF-IDF + logistic regression": Baseline(tfidf, logistic_regression, **_WORDS),
        "TF-IDF of characters + logistic regression": Baseline(tfidf_characters, logistic_regression, race_only=True, **_WORDS),
        "NBSVM": Baseline(present_word_pairs, nbsvm, _LABELS, "C", NBSVM_MARGINS, race_only=True),
        "naive Bayes + EM": Baseline(present_words, naive_bayes_em, _LABELS, "alpha", EM_SMOOTHING, **_POOL),
        "LSA + logistic regression": Baseline(latent_semantic_analysis, logistic_regression, **_POOL, **_WORDS),
        "frozen vectors": Baseline(
            with_names,
            means_and_regression,
            _CLASSES,
            note="nearest class means, with label names, and logistic regression",
            quick=True,
            **_VECTORS,
        ),
        "frozen vectors + EM": Baseline(
            with_names,
            means_and_regression_em,
            _CLASSES,
            "pool weight",
            POOL_WEIGHTS,
            reads_pool=True,
            **_READ,
        ),
        "LSA + votes": Baseline(partial(latent_semantic_analysis, dimensions=VOTE_DIMENSIONS), regression_with_votes, **_VOTES),
        "frozen vectors + votes": Baseline(standardised, regression_with_votes, **_VOTES | _READ),
        "frozen vectors + logistic regression": Baseline(
            standardised, logistic_regression, ("multilabel",), "C", VECTOR_STRENGTHS, **_TURNED
        ),
        "TF-IDF + ridge regression": Baseline(tfidf, ridge_regression, _NUMBERS, "alpha", PENALTIES, linear=True),
        "frozen vectors + ridge regression": Baseline(
            standardised, ridge_regression, _NUMBERS, "alpha", VECTOR_PENALTIES, **_TURNED
        ),
        "commonest tag of each word": Baseline(
            inputs_themselves, most_frequent_tags, ("tagging",), note="unknown words get the most frequent tag of all"
        ),
        "words and their neighbours": Baseline(
            inputs_themselves,
            tag_chain,
            ("tagging",),
            note="a linear chain: logistic regression on words, affixes, shapes and neighbours, and which tags follow each other",
        ),
    },
)
"""Every baseline, by the name that reports use; the first one is the one that learns least."""


def baselines_for(task: Task, *, pool: bool = False, vectors: bool = False) -> dict[str, Baseline]:
    """The baselines that serve the type of a task, by name; those that read the ``pool``, ``vectors`` or votes if there are any."""
    return {
        name: baseline
        for name, baseline in BASELINES.items()
        if (baseline.types is None or task.type in baseline.types)
        and baseline.reads_pool <= pool
        and baseline.needs_vectors <= vectors
        and baseline.reads_votes <= bool(task.votes.answers)
    }
