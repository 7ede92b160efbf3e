"""The findings of a curve claim no more than the intervals and their number allow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.curves import SHAPE, curve_of, ranked
from helpers.tasks import cats
from warmstart.commands.race.page import interval_header, interval_rows
from warmstart.data.audit import audit
from warmstart.experiment.curve import CurveResult
from warmstart.experiment.ranking import RankedMethod


def test_pretraining_stops_paying_only_where_little_lead_is_left() -> None:
    """Where the interval goes up to many points, nothing is claimed; where it ends below two, the claim has its interval."""
    clear = ((16, 0.10, 0.01), (32, 0.10, 0.01))
    for names in (("",), (" · a", " · b")):
        wide, narrow, unknown, again = (
            " ".join(curve_of(*clear, *rows, names=names).findings)
            for rows in ([(64, 0.05, 0.06)], [(64, 0.001, 0.005)], [], [(64, 0.001, 0.005), (128, 0.05, 0.06)])
        )
        lead = f"at 64 labels{{}}: the lead over from scratch{names[0]} is"
        assert f"Whether pretraining stops paying {lead.format(' is uncertain')} +5.0 points (" in wide
        assert f"Pretraining stops paying {lead.format('')} +0.1 points (-" in narrow
        assert "stops paying" not in unknown
        assert "is uncertain" in again


def test_the_report_has_the_interval_over_seeds_alone_below_that_over_both() -> None:
    """Two rows per method, and the second column says what an interval covers; one seed has the texts alone."""
    found = curve_of((16, 0.1, 0.01), (32, 0.1, 0.02))
    assert interval_header(found) == ("method", "95% interval over", "16 labels", "32 labels")
    both, alone, *_ = interval_rows(found)
    assert (both[1], alone[1]) == ("seeds and texts", "seeds alone")
    assert both[2].startswith("90.0% (")
    assert alone[2] == found.at(found.pretrained, 16).test_scores.over_seeds.ends
    one = replace(found, rankings={n: tuple(each.with_seeds({0}) for each in row) for n, row in found.rankings.items()})
    assert [row[1] for row in interval_rows(one)] == ["texts alone"] * 2


def test_differences_are_corrected_for_their_number() -> None:
    """A lead that is just significant alone is not among six sizes, unless the others are as clear."""
    found = curve_of((16, 0.05, 0.035))
    assert 0.01 < found.lead(found.others[0], 16).p < 0.05
    assert found.findings[0].startswith("With 16 labels, lp-ft is better than from scratch: +5.0 points (")
    many = curve_of((16, 0.05, 0.035), *((2**power, 0.0, 0.035) for power in range(5, 10)))
    first = "No significant difference between lp-ft and from scratch at any number of labels. A run of this size finds a lead of "
    assert many.findings[0].startswith(first)
    assert " points in 4 of 5 cases; with 10 seeds about " in many.findings[0]


def test_rivals_that_never_differ_share_a_sentence() -> None:
    """A ladder of baselines would otherwise fill the findings with sentences that say the same."""
    found = curve_of((16, 0.0, 0.03), (32, 0.0, 0.03), names=(" · a", " · b"))
    [sentence] = [one for one in found.findings if "any of" in one]
    assert sentence == (
        "No significant difference between lp-ft · a and any of from scratch · a, from scratch · b at any number of labels."
    )
    assert sum("A run of this size" in one for one in found.findings) == 1, "said of what transfer bought"


def test_one_seed_claims_nothing() -> None:
    """Lead or no lead: a curve of one seed says neither better nor worse (it said one of them in three of four null curves)."""
    full = curve_of((16, 0.2, 0.01), (32, 0.0, 0.01))
    found = replace(full, rankings={n: tuple(one.with_seeds({0}) for one in row) for n, row in full.rankings.items()})
    assert found.lead(found.others[0], 16).p < 0.001
    assert not found.significant
    assert found.findings[0] == "One seed cannot show whether lp-ft and from scratch differ; use more seeds."
    assert not any(word in " ".join(found.findings) for word in ("better", "worse", "stops paying", "worth"))


def test_the_default_target_is_never_perfection() -> None:
    """Half the error is rounded, not the score: 99.2% leads to 99.6%, not to 100%."""
    for score, target in ((0.992, 0.996), (0.9, 0.95), (0.875, 0.938), (0.5, 0.75)):
        found = CurveResult(cats(), {16: (ranked("lp-ft", "adapted", score, 0.01 * SHAPE),)}, (), {}, None, audit(cats()))
        assert found.target == pytest.approx(target, abs=6e-4)
        assert found.target < 1


def test_no_test_score_chooses_what_labels_are_worth() -> None:
    """The rival is the best with the most labels, compared where it is behind: both on the texts that choose."""
    full = curve_of((16, -0.02, 0.01), (32, 0.02, 0.01), (64, 0.02, 0.01), names=(" · a", " · b"))

    def with_validation(one: RankedMethod, score: float) -> RankedMethod:
        return replace(one, runs=tuple(replace(run, validation=score) for run in one.runs))

    chosen = {"lp-ft · a": 0.9, "lp-ft · b": 0.8, "from scratch · a": 0.5, "from scratch · b": 0.7}
    rankings = {n: tuple(with_validation(one, chosen[one.name]) for one in row) for n, row in full.rankings.items()}
    found = replace(full, rankings=rankings)
    assert (found.worth.labels, found.worth.rival.name) == (16, "from scratch · b"), "although it is ahead there on test"
    assert any(one.startswith("16 labels with lp-ft · a are worth ") for one in found.findings)
    behind = {n: tuple(with_validation(one, 0.9 - one.validation) for one in row) for n, row in rankings.items()}
    assert replace(full, rankings=behind).worth is None
