"""Which choice within 50 or 100 labels loses least to the best method in hindsight? On development sets, shortened.

The methods are the ladder of baselines and what an imported encoder's frozen vectors give, as in a race; ``MINILM`` names the
encoder.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from benchmarks.few_label_tasks import SETS, shortened
from benchmarks.harness import table

from warmstart.cli import read_command
from warmstart.data.budget import label_budget
from warmstart.experiment.config import RaceConfig
from warmstart.experiment.stack import combine
from warmstart.experiment.store import TrialPredictions, read_predictions
from warmstart.experiment.sweep import Sweep, open_sweep, run_sweep
from warmstart.experiment.trial import TrialResult
from warmstart.stats.calibration import apply_temperature, fit_temperature
from warmstart.stats.formatting import percent_value

LABELS = (50, 100)
Scored = Mapping[str, tuple[TrialResult, TrialPredictions]]
"""results and predictions of one draw, by method"""


def policies(methods: Scored, choosing: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Test accuracy of each choice; ``choosing`` and ``test`` are the labels of the texts that choose and of the test texts."""
    by_score = max(methods, key=lambda name: methods[name][0].validation)
    by_loss = sorted(methods, key=lambda name: -(methods[name][0].gain or (0.0,))[0])
    calibrated = {name: [apply_temperature(part, fit_temperature(made.choosing, choosing)) for part in made]
                  for name, (_, made) in methods.items()}  # fmt: skip

    def mean_of(names: Sequence[str], weights: Sequence[float] | np.ndarray | None = None) -> float:
        mixed = np.average([calibrated[name][1] for name in names], axis=0, weights=weights)
        return float((mixed.argmax(axis=1) == test).mean())

    right = np.stack([calibrated[name][0][np.arange(len(choosing)), choosing].clip(min=1e-6) for name in by_loss], axis=1)
    likeliest, picked = np.full(len(by_loss), 1 / len(by_loss)), np.zeros(len(by_loss))
    for _ in range(200):
        likeliest = (right * likeliest / (right @ likeliest)[:, None]).mean(axis=0)
    for _ in range(5):
        picked[np.argmin(-np.log(right + (right @ picked)[:, None]).mean(axis=0))] += 1
    stack, _ = combine([methods[name][1] for name in by_loss], choosing)
    return {
        "best in hindsight": max(result.score for result, _ in methods.values()),
        "best out-of-fold accuracy": methods[by_score][0].score,
        "lowest calibrated loss": methods[by_loss[0]][0].score,
        **{f"mean of the {count} with the lowest loss": mean_of(by_loss[:count]) for count in (2, 3, 4, 5)},
        "mean of all": mean_of(by_loss),
        "all, with the likeliest weights": mean_of(by_loss, likeliest),
        "ensemble selection": mean_of(by_loss, picked),
        "bagged ensemble selection (`stack`)": mean_of([by_loss[one.member] for one in stack], [one.weight for one in stack]),
    }


def draws_of(sweep: Sweep, labels: int) -> list[dict[str, float]]:
    """The policies of each draw of a sweep."""
    runs, found = run_sweep(sweep, labels), list[dict[str, float]]()
    for seed in sorted({trial.seed for trial in runs.results}):
        scored = {
            trial.method.name: (result, predictions)
            for trial, result in runs.results.items()
            if trial.seed == seed and not trial.method.combines and trial.method.name != "majority"
            if (predictions := read_predictions(trial, sweep.context))
        }
        budget = label_budget(sweep.task, labels, "none", seed)
        found.append(policies(scored, budget.choosing.labels, sweep.task.test.labels))
    return found


def run(seeds: int = 10) -> str:
    """Mean regret of each policy, in points, on each set and over all."""
    regrets = defaultdict[tuple[int, str], dict[str, float]](dict)
    names = [name for name, one in SETS.items() if one.development]
    with TemporaryDirectory() as folder:
        command, settings = read_command(["import", os.environ["MINILM"], "--out", f"{folder}/minilm"])
        command(settings)
        for name in names:
            given = {
                "task": str(shortened(name, Path(folder))),
                "backbones": [f"{folder}/minilm"],
                "schemes": ["probe", "scalar-mix"],
            }
            fixed = {"selection": "none", "scratch": False, "seeds": seeds, "out": f"{folder}/{name}"}
            for labels in LABELS:
                draws = draws_of(open_sweep(RaceConfig.build(given | fixed | {"labels": labels})), labels)
                for policy in draws[0]:
                    regrets[labels, policy][name] = float(np.mean([one["best in hindsight"] - one[policy] for one in draws]))
    rows = [
        (str(labels), policy, *(percent_value(found[name]) for name in names), percent_value(float(np.mean([*found.values()]))))
        for (labels, policy), found in sorted(regrets.items(), key=lambda item: item[0][0])
        if policy != "best in hindsight"
    ]
    return table(("labels", "chosen within them", *names, "mean"), rows)


if __name__ == "__main__":
    print(run())
