"""What a curve says of its figures: no more than intervals and their number allow."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.tasks import cats
from warmstart.commands.curve.result import Learned
from warmstart.data.audit import audit
from warmstart.sweep.ranking import Standing
from warmstart.sweep.store import Entrant, Result

SHAPE = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
OTHER = np.array([0.5, -1.0, 0.0, 1.0, -0.5])


def standing(name: str, kind: str, mean: float, spread: np.ndarray) -> Standing:
    """Five seeds around a mean; the doubt of test texts is small."""
    chance = np.random.default_rng(0).normal(0, 0.002, 100)
    runs = tuple(Result(float(score), tuple(score + chance), 1.0, float(score), tuple(score + chance)) for score in mean + spread)
    return Standing(Entrant(name=name, kind=kind), runs, tuple(range(5)), 1e-3, {1e-3: mean}, (), 1, 0.0)  # type: ignore[arg-type]


def learned(*rows: tuple[int, float, float], names: tuple[str, ...] = ("",)) -> Learned:
    """A curve of (labels, lead in score, spread of seeds) of ``lp-ft`` over ``from scratch``, for each backbone named."""
    stood = {}
    for labels, lead, spread in rows:
        found = [standing(f"lp-ft{name}", "adapted", 0.9, spread * SHAPE) for name in names]
        found += [standing(f"from scratch{name}", "scratch", 0.9 - lead, spread * OTHER) for name in names]
        stood[labels] = tuple(found)
    return Learned(cats(), stood, (), {}, None, audit(cats()))


@pytest.mark.parametrize("names", [("",), (" · a", " · b")])
def test_pretraining_stops_paying_only_where_little_lead_is_left(names: tuple[str, ...]) -> None:
    """Where the interval goes up to many points, nothing is claimed; where it ends below two, the claim has its interval."""
    clear = ((16, 0.10, 0.01), (32, 0.10, 0.01))
    wide = learned(*clear, (64, 0.05, 0.06), names=names).sentences()[0]
    assert ": whether pretraining stops paying at 64 cannot be told (+5.0 points" in wide
    narrow = learned(*clear, (64, 0.001, 0.005), names=names).sentences()[0]
    assert ": pretraining stops paying at 64 labels (+0.1 points, -" in narrow
    assert "stops paying" not in learned(*clear, names=names).sentences()[0]
    again = learned(*clear, (64, 0.001, 0.005), (128, 0.05, 0.06), names=names).sentences()[0]
    assert "cannot be told" in again


def test_differences_are_corrected_for_their_number() -> None:
    """A lead that can just be seen alone is none among twelve sizes, unless the others are as clear."""
    found = learned((16, 0.05, 0.035))
    gap = found.gap("from scratch", 16)
    assert 0.01 < gap.p < 0.05
    assert "better with 16 labels" in found.sentences()[0]
    many = learned((16, 0.05, 0.035), *((2**power, 0.0, 0.035) for power in range(5, 10)))
    assert "no difference can be seen at any number of labels" in many.sentences()[0]


@pytest.mark.parametrize(("score", "target"), [(0.992, 0.996), (0.9, 0.95), (0.875, 0.938), (0.5, 0.75)])
def test_the_default_target_is_never_perfection(score: float, target: float) -> None:
    """Half the error is rounded, not the score: 99.2 % leads to 99.6 %, not to 100 %."""
    found = Learned(cats(), {16: (standing("lp-ft", "adapted", score, 0.01 * SHAPE),)}, (), {}, None, audit(cats()))
    assert found.target == pytest.approx(target, abs=6e-4)
    assert found.target < 1
