"""Plans from a pilot race: what it detects, what more seeds and texts would, what they cost; clear errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.tasks import race_config, write_race_inputs
from warmstart.cli import main
from warmstart.commands.race.command import pilot_of, race
from warmstart.commands.race.page import race_view
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.pilot import Pilot
from warmstart.experiment.plan import PlannedSeeds, PlanResult, make_plan
from warmstart.experiment.ranking import RankedMethod
from warmstart.experiment.trial import Method, TrialResult
from warmstart.stats.differences import picked
from warmstart.stats.noise import Noise
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("no_pages")


SMALL: dict[str, Any] = {"learning_rates": [5e-3], "seeds": 3, "labels": 20}


@pytest.fixture(scope="module")
def place(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what a small race needs."""
    return write_race_inputs(tmp_path_factory.mktemp("pilot"), tokenizer)


@pytest.fixture(scope="module")
def pilot(place: Path) -> Comparison:
    """A small race with three seeds."""
    found = race(race_config(place, **SMALL))
    assert isinstance(found, Comparison)
    return found


def test_more_seeds_detect_less_and_cost_more(place: Path, pilot: Comparison, capsys: pytest.CaptureFixture[str]) -> None:
    """A race that has run is asked by the same command: every finding is about the figures of the table, and is in the document."""
    before = {file: file.stat().st_mtime_ns for file in (place / "race" / "trials").glob("*.json")}
    asked = race(race_config(place, **SMALL, plan=10))
    assert isinstance(asked, Comparison)
    found = asked.plan
    assert found is not None
    assert before == {file: file.stat().st_mtime_ns for file in (place / "race" / "trials").glob("*.json")}
    assert pilot.plan is None
    assert asked.to_dict()["plan"] == found.to_dict()
    assert race_view(asked).sections[-1].text == found.findings
    assert [row.seeds for row in found.rows][:4] == [3, 5, 10, 20]
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
    assert f"it lies between {low:.0%} and {high:.0%} in 9 of 10 cases; " in found.findings[3]
    assert "a larger race on" in capsys.readouterr().err


def test_there_is_always_a_plan(pilot: Comparison) -> None:
    """If none of the numbers of seeds is enough, the fewest that are follow, with at most ten times the pilot's test texts."""
    found = make_plan(pilot_of(pilot), 0.04, (2, 3))
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


def test_what_each_draw_chose_is_what_is_planned_for(pilot: Comparison) -> None:
    """The pilot drew labels, so that differences are those to the choices of its draws, as in the table of the race."""
    methods = {one.method.id: one.test_scores for one in pilot.ranking.methods}
    chosen = pilot_of(pilot).chosen
    assert chosen is not None
    assert chosen.scores == picked([methods[one] for one in pilot.to_dict()["chosen"]]).scores


def test_what_cannot_be_planned_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything runs: one message that says what is missing, exit code 2."""
    words = ["race", str(place / "task"), "--backbones", str(place / "lm"), "--out", str(place / "other")]
    for more, message in (
        (["--plan", "0"], "--plan"),
        (["--plan", "2", "--seeds", "1"], "give --seeds 2 or more"),
        (["--plan", "2", "--resample"], "not --resample"),
    ):
        assert main([*words, *more]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert not (place / "other").exists()


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
