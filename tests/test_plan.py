"""Plans from a pilot race: what it detects, what more seeds and texts would, what they cost; and clear errors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.tasks import race_config, write_race_inputs
from warmstart.cli import main
from warmstart.commands.plan import PlanConfig, PlannedSeeds, PlanResult, plan, typical_noise
from warmstart.commands.race.command import race
from warmstart.stats.noise import Noise
from warmstart.sweep.ranking import RankedMethod
from warmstart.sweep.trial import Method, TrialResult
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("no_second_process")


@pytest.fixture(scope="module")
def pilot(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small race with three seeds."""
    place = write_race_inputs(tmp_path_factory.mktemp("pilot"), tokenizer)
    race(race_config(place, learning_rates=[5e-3], seeds=3, labels=20))
    return place / "race"


def test_more_seeds_detect_less_and_cost_more(pilot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan of the pilot's own number of seeds is what the pilot detects; every finding is about the same figures."""
    found = plan(PlanConfig(pilot=str(pilot), see=10, seeds=(3, 10, 40)))
    detectable = [row.detectable for row in found.rows]
    assert detectable == sorted(detectable, reverse=True)
    assert [row.minutes for row in found.rows] == sorted(row.minutes for row in found.rows)
    assert found.texts == 30
    words = f"{100 * found.rows[0].detectable:.1f} points with probability 80%, corrected for {found.rivals} comparisons"
    assert words in found.findings[0]
    assert "only 3 seeds" in found.findings[-1]
    for row in found.rows:
        words = f"{row.seeds} seeds and {row.texts:,} test texts" if row.texts else "no number of test texts is enough"
        assert words in " ".join(found.findings)
    assert "smallest detectable, points" in " ".join(capsys.readouterr().err.split())


def test_differences_of_half_the_range_are_not_printed() -> None:
    """Seeds are said to be too few instead, in the words of a comparison."""
    row = PlannedSeeds(2, 0.7, None, 1.0)
    found = PlanResult(0.02, 0.9, Noise(1e-4, 0.02, 2), 3, 500, None, (row,))
    assert found.findings[0] == (
        "The pilot's 2 seeds are too few to detect a difference under 50 points with 90% power, corrected for 3 comparisons."
    )
    assert "the pilot detects a difference of" in replace(found, bounded=False).findings[0]
    assert found.table()[0][1] == "too few seeds"
    assert replace(found, bounded=False).table()[0][1] == "70.0"


def test_a_plan_is_json(pilot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For programs."""
    assert main(["plan", str(pilot), "--see", "5", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert [row["seeds"] for row in written["rows"]] == [3, 5, 10, 20]
    assert written["variance_of_seeds"] >= 0


@pytest.mark.parametrize("flags", [["--seeds", "0"], ["--seeds", "1"], ["--see", "0"]])
def test_what_cannot_be_planned_is_refused(flags: list[str], pilot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One message, exit code 2."""
    assert main(["plan", str(pilot), *flags]) == 2
    assert flags[0].removeprefix("--") in capsys.readouterr().err


def test_a_task_alone_is_answered_with_the_pilot_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its variances cannot be guessed: the error is the command of a small race."""
    assert main(["plan", str(tmp_path / "task.yaml"), "--see", "2"]) == 2
    said = capsys.readouterr().err
    assert f"warmstart race {tmp_path / 'task.yaml'} --backbones BACKBONE" in said
    assert "--seeds 3" in said


def ranked(name: str, mean: float, spread: float, *, collapsed: bool = False) -> RankedMethod:
    """A method with three seeds, whose scores are ``spread`` apart."""
    chance = np.random.default_rng(len(name))
    runs = tuple(
        TrialResult(score, tuple(score + chance.normal(0, 0.01, 200)), 1.0, score, collapsed=collapsed)
        for score in (mean - spread, mean, mean + spread)
    )
    return RankedMethod(Method(name=name, family="adapted", scheme=name), runs, (0, 1, 2))


def test_a_plan_is_for_a_close_rival() -> None:
    """Neither the majority label nor a method with a collapsed run sets the noise, nor one far from the best."""
    best = ranked("best", 0.9, 0.005)
    close = [ranked("a", 0.89, 0.0), ranked("bb", 0.88, 0.03), ranked("ccc", 0.87, 0.08)]
    others = [*close, ranked("majority", 0.9, 0.2), ranked("collapsed", 0.9, 0.4, collapsed=True), ranked("far", 0.6, 0.3)]
    rival, noise = typical_noise(best, others, 3)
    assert rival.name == "bb"
    assert float(noise.of_seeds) == pytest.approx(0.025**2 / 3)
    assert typical_noise(best, others[3:4], 3)[0].name == "majority"  # the only one


def _lose_a_trial(folder: Path) -> None:
    for file in (folder / "trials").glob("*.json"):
        trial = json.loads(file.read_text())["trial"]
        if trial["seed"] == 1 and trial["method"]["name"] == "full":
            file.write_text("{")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "race.json").write_text('{"task": {'), "is damaged"),
        (lambda folder: (folder / "race.json").write_text("{}"), "with its task, its methods and the best of them"),
        (lambda folder: (folder / "race.json").write_text('{"tasks": []}'), "name the folder of one of them"),
        (_lose_a_trial, "or its predictions are damaged; run the race again"),
    ],
)
def test_a_damaged_pilot_is_refused(
    damage: Callable[[Path], object], message: str, pilot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One message that says what is missing, exit code 2."""
    shutil.copytree(pilot, tmp_path / "race")
    damage(tmp_path / "race")
    assert main(["plan", str(tmp_path / "race")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_best_method_without_trials_is_refused(pilot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As after a change of the backbone."""
    shutil.copytree(pilot, tmp_path / "race")
    file = tmp_path / "race" / "race.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"best_id": "gone"}))
    assert main(["plan", str(tmp_path / "race")]) == 2
    assert "must rank the best method of race.json" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_a_pilot_needs_seeds_and_trials(pilot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One seed says nothing about seeds; another folder is no pilot."""
    assert main(["plan", str(tmp_path)]) == 2
    assert "must be the folder of a race on one task" in capsys.readouterr().err
    race(race_config(pilot.parent, learning_rates=[5e-3], seeds=1, labels=20, out=str(tmp_path / "one")))
    assert main(["plan", str(tmp_path / "one")]) == 2
    assert "a pilot must have at least two seeds" in capsys.readouterr().err
