"""Baselines: what a fine-tuned model must beat. A new one is two functions, in the file of its kind, and one row here."""

from __future__ import annotations

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

BASELINES: Registry[Baseline] = Registry(
    "baseline",
    {
        "majority": MAJORITY,
        "TF-IDF + logistic regression": Baseline(
            tfidf, logistic_regression, _LABELS, "C", STRENGTHS, STRENGTHS[:3], linear=True, quick=True
        ),
        "TF-IDF of characters + logistic regression": Baseline(
            tfidf_characters, logistic_regression, _LABELS, "C", STRENGTHS, STRENGTHS[:3], linear=True, quick=True, race_only=True
        ),
        "NBSVM": Baseline(present_word_pairs, nbsvm, _LABELS, "C", NBSVM_MARGINS, race_only=True),
        "naive Bayes + EM": Baseline(
            present_words, naive_bayes_em, _LABELS, "alpha", EM_SMOOTHING, race_only=True, reads_pool=True
        ),
        "LSA + logistic regression": Baseline(
            latent_semantic_analysis,
            logistic_regression,
            _LABELS,
            "C",
            STRENGTHS,
            STRENGTHS[:3],
            linear=True,
            quick=True,
            race_only=True,
            reads_pool=True,
        ),
        "frozen vectors": Baseline(
            with_names,
            means_and_regression,
            ("classification",),
            note="nearest class means, with label names, and logistic regression",
            quick=True,
            race_only=True,
            needs_vectors=True,
        ),
        "frozen vectors + EM": Baseline(
            with_names,
            means_and_regression_em,
            ("classification",),
            "pool weight",
            POOL_WEIGHTS,
            race_only=True,
            reads_pool=True,
            pool_limit=VECTOR_POOL_LIMIT,
            limited_because="each is read by the network",
            needs_vectors=True,
        ),
        "frozen vectors + logistic regression": Baseline(
            standardised,
            logistic_regression,
            ("multilabel",),
            "C",
            VECTOR_STRENGTHS,
            linear=True,
            race_only=True,
            needs_vectors=True,
        ),
        "TF-IDF + ridge regression": Baseline(tfidf, ridge_regression, ("regression",), "alpha", PENALTIES, linear=True),
        "frozen vectors + ridge regression": Baseline(
            standardised,
            ridge_regression,
            ("regression",),
            "alpha",
            VECTOR_PENALTIES,
            linear=True,
            race_only=True,
            needs_vectors=True,
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
    """The baselines that serve the type of a task, by name; those that read the ``pool`` or ``vectors`` if there are any."""
    return {
        name: baseline
        for name, baseline in BASELINES.items()
        if (baseline.types is None or task.type in baseline.types)
        and baseline.reads_pool <= pool
        and baseline.needs_vectors <= vectors
    }
