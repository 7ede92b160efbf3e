"""The result of a race without running one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from helpers.tasks import cats
from warmstart.data.audit import audit
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.ranking import RankedMethod, rank
from warmstart.experiment.trial import Method, SweepRuns, Trial, TrialResult

LADDER = {
    "lp-ft+discriminative": 0.82, "lora": 0.81, "probe": 0.74, "from scratch": 0.5, "stack": 0.83,
    "TF-IDF + logistic regression": 0.72, "TF-IDF of characters + logistic regression": 0.71,
    "naive Bayes + EM": 0.69, "NBSVM": 0.68,
    "frozen vectors": 0.76, "frozen vectors + EM": 0.79, "LSA + logistic regression": 0.4, "majority": 0.5,
}  # fmt: skip
"""as many methods as a race has by default, and their scores"""
FAMILIES = {"from scratch": "scratch", "stack": "stack", "frozen": "frozen"}
FAMILIES |= dict.fromkeys(("TF-IDF", "naive Bayes", "NBSVM", "LSA", "majority"), "baseline")
"""the family of methods whose names begin so; the others are adapted"""


def ranked_method(
    method: Method,
    test: Iterable[float],
    resampled: Iterable[Any],
    chosen: Iterable[float],
    by: Iterable[Any],
    seconds: tuple[float, float] = (1.0, 0.0),
) -> RankedMethod:
    """A method with a run for each seed: test scores (S,), resamples of them (S, R), and the same of the texts that choose.

    The seconds of each run are those of the last fit, and those of choosing.
    """
    runs = tuple(
        TrialResult(one, tuple(many), seconds[0], value, tuple(values), search_seconds=seconds[1])
        for one, many, value, values in zip(test, resampled, chosen, by, strict=True)
    )
    return RankedMethod(method, runs, tuple(range(len(runs))))


def race_result(scores: dict[str, float], seeds: int = 3, families: Mapping[str, str] = {}) -> Comparison:
    """Methods that score so on each of the seeds, a point more with each next one."""
    methods = list[Method]()
    for name in scores:
        family: Any = next((family for start, family in families.items() if name.startswith(start)), "adapted")
        methods.append(Method(name=name, family=family, backbone_digest=name, scheme=name))
    trials = [Trial(method=one, seed=seed, learning_rates=(1e-3,), labels=100) for one in methods for seed in range(seeds)]
    results = {}
    for trial in trials:
        score = scores[trial.method.name] + trial.seed / 100
        results[trial] = TrialResult(score, (score,) * 50, 2.5, score, (score,) * 50, disk=3_000)
    return Comparison(cats(), 60, 20, rank(methods, SweepRuns(tuple(trials), results)), audit(cats()), 0.5)


def full_race() -> Comparison:
    """A race of all kinds of methods, whose rows are as full as they get: notes, costs, rates that were tried, collapsed runs."""
    found = race_result(LADDER, families=FAMILIES)
    ranked = []
    for one in found.ranking.methods:
        runs = []
        for seed, run in enumerate(one.runs):
            fitted = one.method.family in ("adapted", "scratch")
            note = f"C = {10**seed}, chosen by 5-fold cross-validation; read {1_145 + seed:,} texts without labels"
            tried = {"learning_rate": 2e-4, "tried": ((2e-4, run.score), (5e-4, run.score - 0.01))}
            spent = {"collapsed": one.method.family == "scratch", "search_seconds": 12.3, "trainable": 2_345_678, "new": 36_880}
            runs.append(replace(run, **(tried | spent if fitted else {"note": note})))
        ranked.append(replace(one, runs=tuple(runs)))
    return replace(found, ranking=replace(found.ranking, methods=tuple(ranked)))
