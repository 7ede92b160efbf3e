"""Baselines: what a fine-tuned model must beat. A new one is one file and one row here."""

from __future__ import annotations

from warmstart.baselines.baseline import Baseline
from warmstart.baselines.majority import majority
from warmstart.baselines.tfidf import logistic_regression, ridge_regression, support_vector_machine
from warmstart.baselines.word_overlap import tfidf_overlap
from warmstart.baselines.word_tags import most_frequent_tags
from warmstart.data.task import Task
from warmstart.registry import Registry

BASELINES: Registry[Baseline] = Registry(
    "baseline",
    {
        "majority": Baseline(majority),
        "TF-IDF + logistic regression": Baseline(logistic_regression, ("classification", "multilabel")),
        "TF-IDF + linear SVM": Baseline(support_vector_machine, ("classification",), race_only=True),
        "TF-IDF + ridge regression": Baseline(ridge_regression, ("regression",)),
        "TF-IDF overlap": Baseline(tfidf_overlap, ("multiple-choice",)),
        "commonest tag of each word": Baseline(most_frequent_tags, ("tagging",)),
    },
)
"""Every baseline, by the name that reports use; the first one is the one that learns least."""


def baselines_for(task: Task) -> dict[str, Baseline]:
    """The baselines that serve the type of a task, by name."""
    return {name: baseline for name, baseline in BASELINES.items() if baseline.types is None or task.type in baseline.types}
