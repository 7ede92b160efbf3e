"""Baselines: what a fine-tuned model must beat. A new one is one file and one row here."""

from __future__ import annotations

from warmstart.baselines.baseline import Baseline, inputs_themselves
from warmstart.baselines.linear import (
    MARGINS,
    PENALTIES,
    STRENGTHS,
    logistic_regression,
    ridge_regression,
    support_vector_machine,
)
from warmstart.baselines.majority import MAJORITY
from warmstart.baselines.word_overlap import rows_themselves, tfidf_overlap
from warmstart.baselines.word_tags import most_frequent_tags
from warmstart.baselines.words import tfidf
from warmstart.data.task import Task
from warmstart.registry import Registry

BASELINES: Registry[Baseline] = Registry(
    "baseline",
    {
        "majority": MAJORITY,
        "TF-IDF + logistic regression": Baseline(
            tfidf, logistic_regression, ("classification", "multilabel"), "C", STRENGTHS, STRENGTHS[:3]
        ),
        "TF-IDF + linear SVM": Baseline(tfidf, support_vector_machine, ("classification",), "C", MARGINS, race_only=True),
        "TF-IDF + ridge regression": Baseline(tfidf, ridge_regression, ("regression",), "alpha", PENALTIES),
        "TF-IDF overlap": Baseline(
            tfidf_overlap, rows_themselves, ("multiple-choice",), note="most words in common; no label is used"
        ),
        "commonest tag of each word": Baseline(
            inputs_themselves, most_frequent_tags, ("tagging",), note="unknown words get the most frequent tag of all"
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
