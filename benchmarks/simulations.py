"""Tables of simulations: the slow tests of ``tests/`` print their figures; here they are run, and their figures become Markdown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.table import DOCS, Table

from warmstart.stats.formatting import percent, percent_interval, points

PAGE = "results/simulations.md"
Figures = Sequence[dict[str, Any]]
"""what a simulation found, one row for each setting"""


def run(words: Sequence[str]) -> list[dict[str, Any]]:
    """The figures of the simulations that this command line of pytest runs."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures"
        subprocess.run([sys.executable, *words], cwd=DOCS, env=os.environ | {"SIMULATION_FIGURES": str(file)}, check=True)
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def simulation(name: str, test: str, render: Callable[[Figures], str], minutes: float) -> Table:
    """The table of one simulation in results/simulations.md."""
    line = f"python -m pytest tests/{test} -m proofs -s"
    return Table(name, (PAGE,), (line,), lambda results: render(results[0]["figures"]), minutes=minutes)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def values(figures: Figures, **setting: float) -> dict[str, list[float]]:
    """Each figure over the rows with this setting."""
    rows = [row for row in figures if all(row[name] == value for name, value in setting.items())]
    return {name: [row[name] for row in rows] for name in rows[0]}


def distinct(figures: Figures, *names: str) -> list[dict[str, float]]:
    """The settings of these names, in order."""
    return [dict(zip(names, one, strict=True)) for one in sorted({tuple(row[name] for name in names) for row in figures})]


def false_claims(figures: Figures) -> str:
    """By seeds and texts: the rate of tables with a false claim, mean and highest over the other settings."""
    rows = []
    for setting in distinct(figures, "seeds", "texts"):
        found = values(figures, **setting)
        rates = [f"{percent(float(np.mean(found[name])))} ({percent(max(found[name]))})" for name in ("claimed", "effective")]
        rows.append([f"{setting['seeds']}", f"{setting['texts']:,}", *rates])
    header = ("seeds", "test texts", "false claims, mean (highest)", "with effective degrees of freedom, mean (highest)")
    return markdown(header, rows)


def power(figures: Figures) -> str:
    """By spread of seeds and number of seeds: how often a lead is seen."""
    seeds = [one["seeds"] for one in distinct(figures, "seeds")]
    rows = [
        [point_count(one["spread"]), *(percent(values(figures, seeds=n, **one)["power"][0], 0) for n in seeds)]
        for one in distinct(figures, "spread")
    ]
    return markdown(("spread of seeds", *(f"{n} seeds" for n in seeds)), rows)


def at_most(figures: Figures) -> str:
    """By seeds: how often a claim of equivalence is false, and the power at the smallest detectable difference."""
    rows = []
    for setting in distinct(figures, "seeds"):
        found = values(figures, **setting)
        false = np.concatenate(found["false"])
        ends = f"{percent(min(found['power']), 0).rstrip('%')} to {percent(max(found['power']), 0)}"
        rows.append([f"{setting['seeds']}", f"{percent(float(false.mean()))}, {percent(float(false.max()))}", ends])
    return markdown(("seeds", '"at most d" is false: mean, highest', "power at the difference printed"), rows)


def score_of_choice(figures: Figures) -> str:
    """By seeds, for the best of 8 methods where seeds spread by 4 points: bias and coverage."""
    rows = []
    for setting in distinct(figures, "seeds"):
        found = values(figures, methods=8, spread=0.04, **setting)
        rows.append([f"{setting['seeds']}", bias(found["own"][0]), bias(found["bias"][0]), percent(found["coverage"][0])])
    return markdown(("seeds", "bias of its own scores", "bias, cross-fitted", "coverage of the 95% interval"), rows)


def differences_to_choice(figures: Figures) -> str:
    """By methods and seeds, where seeds spread by 4 points: bias, coverage and false claims."""
    rows = []
    for setting in distinct(figures, "methods", "seeds"):
        found = {name: column[0] for name, column in values(figures, spread=0.04, **setting).items()}
        shares = [percent(found[name]) for name in ("coverage", "claimed_by_own", "claimed")]
        rows.append([*(f"{one}" for one in setting.values()), bias(found["own"]), bias(found["bias"]), *shares])
    header = ("methods", "seeds", "bias of own scores", "bias, cross-fitted", "coverage of the 95% interval")
    return markdown((*header, "false claims, own scores", "false claims"), rows)


def bias(value: float) -> str:
    """In points, without a sign of what is rounded to 0."""
    return points(round(value, 3) + 0.0)


def shared_texts(figures: Figures) -> str:
    """By seeds and available texts: how often the interval misses the truth, and how often equal methods differ."""
    rows = [
        [f"{row['seeds']}", f"{row['available']} texts", percent(row["missed"]), percent(row["claimed"])]
        for row in sorted(figures, key=lambda row: (row["seeds"], -row["available"]))
    ]
    return markdown(("seeds", "50 labels of", "interval misses the truth", "false claims"), rows)


def over_splits(figures: Figures) -> str:
    """By splits: coverage and false claims with the correction and without it, mean and ends over the settings."""
    rows = []
    for setting in distinct(figures, "splits"):
        found = [values(figures, **setting)[name] for name in ("covered", "claimed", "plain", "plain_claimed")]
        cells = [percent_interval(float(np.mean(one)), min(one), max(one), digits=0) for one in found]
        rows.append([f"{setting['splits']}", *cells])
    header = ("splits", "coverage of the 95% interval", "false claims", "coverage without the correction")
    return markdown((*header, "false claims without it"), rows)


def score_of_draws(figures: Figures) -> str:
    """By draws and labels: bias and coverage of the score of what the draws choose, and biases of choosing once for all."""
    luck = {0.5: "half", 0.0: "none"}
    rows = [
        [f"{row['draws']}", f"{row['labels']}", luck[row["kept"]], bias(row["bias"]), percent(row["coverage"])]
        + [bias(row[name]) for name in ("together", "by_test")]
        for row in sorted(figures, key=lambda row: (row["draws"], -row["kept"], row["labels"]))
    ]
    header = ("draws", "labels", "common luck", "bias", "coverage of the 95% interval")
    return markdown((*header, "chosen by all draws together", "chosen by test scores"), rows)


def transfer(figures: Figures) -> str:
    """By draws and rivals: bias, coverage and false claims of what transfer bought."""
    rows = [
        [
            f"{row['draws']}",
            f"{row['rivals']}",
            bias(row["bias"]),
            percent(row["coverage"]),
            percent(row["claimed"]),
            bias(row["by_test"]),
        ]
        for row in sorted(figures, key=lambda row: (row["draws"], row["rivals"]))
    ]
    header = ("draws", "against", "bias", "coverage of the 95% interval", "called different", "bias if chosen by test scores")
    return markdown(header, rows)


def point_count(spread: float) -> str:
    """``0.01`` -> ``"1 point"``."""
    return f"{100 * spread:g} point{'' if spread == 0.01 else 's'}"


SIMULATIONS = (
    simulation("false-claims", "test_noise.py::test_few_tables_of_equal_methods_claim_a_difference", false_claims, 2),
    simulation("power", "test_noise.py::test_a_clear_lead_is_found", power, 1),
    simulation("equivalence", "test_power.py::test_two_methods_differ_by_at_most_what_is_claimed", at_most, 2),
    simulation("score-of-choice", "test_choice.py::test_the_score_of_the_choice_is_not_flattered", score_of_choice, 4),
    simulation("over-splits", "test_resample.py::test_intervals_over_splits_hold_the_truth", over_splits, 5),
    simulation("shared-texts", "test_resample.py::test_intervals_cover_other_training_texts_if_seeds_share_few", shared_texts, 1),
    simulation(
        "differences-to-choice", "test_choice.py::test_differences_to_the_choice_are_not_flattered", differences_to_choice, 12
    ),
    simulation("score-of-draws", "test_draws.py::test_the_score_of_what_draws_choose_is_not_flattered", score_of_draws, 3),
    simulation("what-transfer-bought", "test_draws.py::test_few_sweeps_of_equal_methods_claim_that_transfer_helps", transfer, 3),
)
"""the simulations whose tables are written by command"""
