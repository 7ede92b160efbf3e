"""The record of an adaptation with three seeds, without running one."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.mutants import LABELS
from warmstart.model.history import AdaptRecord, ComparisonRecord, MethodRecord, ScoresRecord, TaskRecord


def comparison_of(scores: Mapping[str, tuple[float, ...]]) -> ComparisonRecord:
    """Methods and the test score of each of their runs."""
    methods = [MethodRecord(name=name, scores=found, mean=sum(found) / len(found)) for name, found in scores.items()]
    return ComparisonRecord(metric="accuracy", methods=tuple(methods))


def adapt_record(chosen: bool, score: float, seed: int, settings: Mapping[str, str] = {}) -> AdaptRecord:
    """Whether a run was chosen for its validation score, the test score of the saved model, and the seed of the best run."""
    return AdaptRecord(
        task=TaskRecord(name="cups", type="classification", labels=LABELS, train=9, test=40),
        settings=dict(settings),
        seed=seed,
        test=ScoresRecord(figures={"accuracy": score}),
        validation={"pretrained": (0.6, 0.9, 0.7)},
        chosen=chosen,
        comparison=comparison_of(
            {"pretrained": (0.8, 0.7, 0.6), "majority label": (0.3, 0.3, 0.3), "from scratch": (0.5, 0.4, 0.6)}
        ),
    )
