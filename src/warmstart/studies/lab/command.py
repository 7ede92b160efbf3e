"""``study lab``: attention with keys and queries built by hand, compared with its closed forms."""

from __future__ import annotations

from pydantic import Field

from warmstart.config import Advanced, Effectless, ThreadsConfig
from warmstart.report.result import StudyResult


class StudyLabConfig(ThreadsConfig):
    """Attention by hand: keys and queries whose results have a closed form and are then measured."""

    out: Effectless[str] = "runs/lab"
    """folder of the run"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""
    keys: int = Field(8, gt=3, le=512)
    """number of keys (n)"""
    width: int = Field(16, gt=3, le=1024)
    """width of keys and queries; raised to the number of keys if it is smaller"""
    samples: Advanced[int] = Field(2000, gt=99, le=100_000)
    """draws of the noisy keys"""


def study_lab(config: StudyLabConfig) -> StudyResult:
    """Run all experiments, print their numbers and write the page. The details are the list of experiments."""
    from warmstart.report.study import finish_study
    from warmstart.runs.run import Run
    from warmstart.studies.lab.measure import run_experiments
    from warmstart.studies.lab.page import experiment_section
    from warmstart.studies.lab.result import lab_result, largest_difference

    width = max(config.width, config.keys)  # n orthogonal keys need at least n dimensions
    folder = Run.open(config.out, config).folder
    experiments = run_experiments(config.seed, config.keys, width, config.samples)
    result = lab_result(experiments)
    tiles = [(f"largest difference, {one.name}", f"{largest_difference(one):.1g}") for one in experiments]
    return finish_study(result, [experiment_section(one) for one in experiments], config, folder, tiles=tiles)
