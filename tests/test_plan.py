"""Plans from a pilot race: what it detects, what more seeds and texts would, what they cost; the pilot of a task; clear errors."""

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
from warmstart.commands.plan.command import PlanConfig, plan, read_pilot
from warmstart.commands.plan.result import PlannedSeeds, PlanResult
from warmstart.commands.race.command import race
from warmstart.stats.differences import picked
from warmstart.stats.noise import Noise
from warmstart.sweep.pilot import Pilot
from warmstart.sweep.ranking import RankedMethod
from warmstart.sweep.trial import Method, TrialResult
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("no_second_process", "no_pages")


@pytest.fixture(scope="module")
def pilot(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small race with three seeds."""
    place = write_race_inputs(tmp_path_factory.mktemp("pilot"), tokenizer)
    race(race_config(place, learning_rates=[5e-3], seeds=3, labels=20))
    return place / "race"


def test_more_seeds_detect_less_and_cost_more(pilot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every finding is about the figures of the table, and the plan says how far it can be trusted."""
    found = plan(PlanConfig(pilot=str(pilot), see=10, seeds=(3, 10, 40)))
    detectable = [row.detectable for row in found.rows]
    assert detectable == sorted(detectable, reverse=True)
    assert [row.minutes for row in found.rows] == sorted(row.minutes for row in found.rows)
    assert found.texts == 30
    few = f"The pilot's 3 seeds are too few to detect a difference under 50 points with 80% power, corrected for {found.rivals} com"
    assert found.findings[0].startswith(few)
    surer = replace(found, detectable=0.123).findings[0]
    assert "With its 3 seeds and 30 test texts, the pilot detects a difference of 12.3 points with 80% power, corrected" in surer
    for row in found.rows:
        words = f"{row.seeds} seeds and {row.texts:,} test texts" if row.texts else "no number of test texts is enough"
        assert words in " ".join(found.findings)
        if row.power:
            assert row.power[0] < 0.8 < row.power[1]
    low, high = next(row.power for row in found.rows if row.power)
    assert f"it lies between {low:.0%} and {high:.0%} in 9 of 10 cases." in found.findings[3]
    assert "test texts for" in " ".join(capsys.readouterr().err.split())


def test_there_is_always_a_plan(pilot: Path) -> None:
    """If none of the numbers of seeds is enough, the fewest that are follow, with at most ten times the pilot's test texts."""
    found = plan(PlanConfig(pilot=str(pilot), see=4, seeds=(2, 3)))
    assert [row.texts for row in found.rows[:2]] == [None, None]
    (last,) = found.rows[2:]
    assert last.texts is not None
    assert 3 < last.seeds < 1000
    assert 200 < last.texts <= 10 * found.texts


def test_differences_of_half_the_range_are_not_printed() -> None:
    """Seeds are said to be too few instead, in the words of a comparison."""
    row = PlannedSeeds(2, 0.7, None, 1.0)
    found = PlanResult(0.02, 0.9, 2, 500, Noise(1e-4, 0.02, 2), 0.7, 3, None, (row,))
    assert found.findings[0] == (
        "The pilot's 2 seeds are too few to detect a difference under 50 points with 90% power, corrected for 3 comparisons."
    )
    assert "the pilot detects a difference of" in replace(found, bounded=False).findings[0]
    assert found.table()[0][1] == "too few seeds"
    assert replace(found, bounded=False).table()[0][1] == "70.0"


def test_what_each_draw_chose_is_what_is_planned_for(pilot: Path) -> None:
    """The pilot drew labels, so that differences are those to the choices of its draws, as in the table of the race."""
    written, found = read_pilot(pilot)
    methods = {one.method.id: one.test_scores for one in (found.best, *found.others)}
    assert found.chosen.scores == picked([methods[one] for one in written["chosen"]]).scores


def test_a_plan_is_json(pilot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For programs."""
    assert main(["plan", str(pilot), "--see", "5", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["result"]
    assert [row["seeds"] for row in written["rows"]][:4] == [3, 5, 10, 20]
    assert written["variance_of_seeds"] >= 0
    assert written["best"] not in written["rivals"]


def test_what_cannot_be_planned_is_refused(pilot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One message that says what is missing, exit code 2."""
    for words, message in (
        ([str(pilot), "--seeds", "0"], "seeds"),
        ([str(pilot), "--seeds", "1"], "seeds"),
        ([str(pilot), "--see", "0"], "see"),
        ([str(pilot), "--pilot-seeds", "5"], "--pilot-seeds: for the pilot of a task"),
        ([str(tmp_path / "task.yaml"), "--see", "2"], "add --backbones MODEL"),
        ([str(tmp_path)], "must be the folder of a race on one task"),
    ):
        assert main(["plan", *words]) == 2
        assert message in " ".join(capsys.readouterr().err.split())

    def damaged(name: str, damage: Callable[[Path], object]) -> str:
        shutil.copytree(pilot, tmp_path / name)
        damage(tmp_path / name)
        assert main(["plan", str(tmp_path / name)]) == 2
        return " ".join(capsys.readouterr().err.split())

    def lose_a_trial(folder: Path) -> None:
        for file in (folder / "trials").glob("*.json"):
            trial = json.loads(file.read_text())["trial"]
            if trial["seed"] == 1 and trial["method"]["name"] == "full":
                file.write_text("{")

    written = json.loads((pilot / "race.json").read_text())
    for number, (content, message) in enumerate((
        ('{"task": {', "is damaged"),
        ("{}", "with its task, its methods and the best of them"),
        ('{"tasks": []}', "name the folder of one of them"),
        (json.dumps(written | {"best_id": "gone"}), "must rank the best method of race.json"),
    )):  # fmt: skip
        assert message in damaged(str(number), lambda folder, content=content: (folder / "race.json").write_text(content))
    assert "or its predictions are damaged; run the race again" in damaged("lost", lose_a_trial)


def test_the_pilot_of_a_task_is_run_first(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A race with few methods, whose folder is kept: the same command takes up its trials, and its own plan is the same."""
    place, out = write_race_inputs(tmp_path, tokenizer), str(tmp_path / "pilot")
    words = ["plan", str(place / "task"), "--backbones", str(place / "lm"), "--pilot-seeds", "2", "--labels", "20", "--see", "10"]
    assert main([*words, "--out", out, "--json"]) == 0
    first = capsys.readouterr()
    assert "pilot: a race with 2 seeds in" in first.err
    assert "the ledger counts that" in " ".join(first.err.split())
    names = {row["method"] for row in json.loads((tmp_path / "pilot" / "race.json").read_text())["methods"]}
    assert {"full", "probe", "scalar-mix"} < names
    assert "from scratch" not in names
    trials = {file: file.stat().st_mtime_ns for file in (tmp_path / "pilot" / "trials").glob("*.json")}
    assert main([*words, "--out", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(first.out)
    assert main(["plan", out, "--see", "10", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["result"] == json.loads(first.out)["result"]
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "pilot" / "trials").glob("*.json")} == trials


def ranked(name: str, mean: float, spread: float, *, collapsed: bool = False) -> RankedMethod:
    """A method with three seeds, whose scores are ``spread`` apart."""
    chance = np.random.default_rng(len(name))
    runs = tuple(
        TrialResult(score, tuple(score + chance.normal(0, 0.01, 200)), 1.0, score, collapsed=collapsed)
        for score in (mean - spread, mean, mean + spread)
    )
    return RankedMethod(Method(name=name, family="adapted", scheme=name), runs, (0, 1, 2))


def test_a_plan_is_for_the_closest_rivals() -> None:
    """Neither the majority label nor a method with a collapsed run sets the noise, nor one far from the best."""
    best = ranked("best", 0.9, 0.005)
    close = [ranked("a", 0.89, 0.0), ranked("bb", 0.88, 0.03), ranked("ccc", 0.87, 0.08)]
    others = (*close, ranked("majority", 0.9, 0.2), ranked("collapsed", 0.9, 0.4, collapsed=True), ranked("far", 0.6, 0.3))
    found = Pilot(best, others, 3, 200)
    assert found.rivals == close
    assert float(found.noise.of_seeds) == pytest.approx((0.005**2 + 0.025**2 + 0.075**2) / 9)
    assert [one.name for one in Pilot(best, others[3:4], 3, 200).rivals] == ["majority"], "the only one"


def test_rivals_that_share_the_best_method_are_no_independent_evidence() -> None:
    """Three pairs count as two; as one if the rivals do not depend on the seed."""
    best, rivals = ranked("best", 0.9, 0.005), [ranked(name, 0.89, 0.01) for name in ("a", "bb", "ccc")]
    assert Pilot(best, tuple(rivals), 3, 200).degrees == pytest.approx(2 * 2)
    assert Pilot(best, (rivals[0],), 3, 200).degrees == 2
    fixed = tuple(replace(one, deterministic=True) for one in rivals)
    assert Pilot(best, fixed, 3, 200).degrees == 2
    assert Pilot(replace(best, deterministic=True), tuple(rivals), 3, 200).degrees == 3 * 2
    assert Pilot(replace(best, deterministic=True), fixed, 3, 200).degrees == 2, "any, of a variance that is 0"


def test_a_pilot_needs_seeds(pilot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One seed says nothing about seeds."""
    race(race_config(pilot.parent, learning_rates=[5e-3], seeds=1, labels=20, schemes=["probe"], out=str(tmp_path / "one")))
    assert main(["plan", str(tmp_path / "one")]) == 2
    assert "a pilot must have at least two seeds" in capsys.readouterr().err
