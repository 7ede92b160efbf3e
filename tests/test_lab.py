"""The attention lab: every number matches its closed form, over many widths and strengths, and the command shows them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from warmstart.analysis.lab import (
    attend,
    averaging,
    copying,
    directions,
    noisy_keys,
    run_lab,
    through_the_module,
    without_projections,
)
from warmstart.cli import main


@given(st.floats(0, 15), st.integers(3, 20), st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_copying_and_averaging_match_their_closed_forms(beta: float, width: int, seed: int) -> None:
    """For any strength, any number of keys up to the width, any directions."""
    for experiment in (copying([beta], max(5, width - 1), width + 4, seed), averaging([beta], max(5, width - 1), width + 4, seed)):
        assert experiment.checks[0].gap < 1e-9


def test_attention_is_torchs() -> None:
    """The lab's softmax equals torch's fused attention with scale 1."""
    keys, values = directions(5, 6, 0) * 2, directions(5, 6, 1)
    query = np.linspace(-1, 1, 6)
    ours = attend(query, keys) @ values
    q, k, v = (torch.from_numpy(x)[None] for x in (query[None], keys, values))
    assert ours == pytest.approx(F.scaled_dot_product_attention(q, k, v, scale=1.0)[0, 0].numpy())


@pytest.mark.parametrize("beta", [2.0, 10.0, 30.0])
def test_noisy_keys_follow_their_distribution(beta: float) -> None:
    """Mean and spread lie within what 4,000 draws allow; two heads swing less than one."""
    found = {check.name: check for check in noisy_keys(beta, samples=4000, seed=1).checks}
    for name, check in found.items():
        assert check.gap < 0.03, name
    assert found["two heads: standard deviation"].measured < 0.7 * found["one head: standard deviation"].measured


@given(st.floats(1.0, 4.0), st.integers(4, 12), st.integers(0, 50))
@settings(deadline=None, max_examples=30)
def test_hand_built_matrices_give_what_is_wanted(beta: float, width: int, seed: int) -> None:
    """Weights and the small errors of the outputs are those of the closed form."""
    assert max(check.gap for check in without_projections(beta, width, seed).checks) < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_the_module_that_trains_gives_the_same(seed: int) -> None:
    """Copying, equivariance without positions, a synthesizer's blindness: to 1e-5."""
    found = through_the_module(seed=seed)
    assert max(check.gap for check in found.checks) < 1e-5
    assert "order matters (outputs move by 0.00" not in found.finding
    assert "(they move by 0.00)" not in found.finding


def test_the_seed_decides() -> None:
    """The same seed gives the same numbers, another one other draws."""
    one, two, three = (run_lab(seed, samples=200)[2].checks[0].measured for seed in (0, 0, 1))
    assert one == two != three


def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers in the terminal, pictures on the page; a run is never overwritten."""
    out = tmp_path / "lab"
    assert main(["study", "lab", "--out", str(out), "--samples", "200", "--keys", "5"]) == 0
    said = capsys.readouterr().err
    assert f"{math.exp(1) / (math.exp(1) + 4):.6f}" in said
    assert (out / "figures" / "copying.svg").exists()
    assert (out / "figures" / "noisy-keys.svg").exists()
    assert "The attention lab" in (out / "report.html").read_text()
    assert main(["study", "lab", "--out", str(out)]) == 2
