"""Results of studies in words and plain numbers; the attention lab, whose every number matches its closed form."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from warmstart.cli import main
from warmstart.config import Config
from warmstart.report.page import Section
from warmstart.report.result import StudyResult, Summary
from warmstart.report.study import finish_study
from warmstart.studies.lab.measure import (
    measure_averaging,
    measure_copying,
    measure_module,
    measure_noisy_keys,
    measure_projections,
    orthonormal_vectors,
    run_experiments,
    softmax_weights,
)
from warmstart.studies.lab.result import finding, lab_result, largest_difference


@given(st.floats(0, 15), st.integers(3, 20), st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_copying_and_averaging_match_their_closed_forms(beta: float, width: int, seed: int) -> None:
    """For any length of the query, any number of keys up to the width, any directions."""
    for measure in (measure_copying, measure_averaging):
        assert measure([beta], max(5, width - 1), width + 4, seed).checks[0].difference < 1e-9


def test_attention_is_torchs() -> None:
    """The lab's softmax equals torch's fused attention with scale 1."""
    keys, values = orthonormal_vectors(5, 6, 0) * 2, orthonormal_vectors(5, 6, 1)
    query = np.linspace(-1, 1, 6)
    ours = softmax_weights(query, keys) @ values
    q, k, v = (torch.from_numpy(x)[None] for x in (query[None], keys, values))
    assert ours == pytest.approx(F.scaled_dot_product_attention(q, k, v, scale=1.0)[0, 0].numpy())


def test_noisy_keys_follow_their_distribution() -> None:
    """Mean and spread lie within what 4,000 draws allow; two heads swing less than one."""
    for beta in (2.0, 10.0, 30.0):
        checks = {check.name: check for check in measure_noisy_keys(beta, samples=4000, seed=1).checks}
        for name, check in checks.items():
            assert check.difference < 0.03, (beta, name)
        assert checks["two heads: standard deviation"].measured < 0.7 * checks["one head: standard deviation"].measured


@given(st.floats(1.0, 4.0), st.integers(4, 12), st.integers(0, 50))
@settings(deadline=None, max_examples=30)
def test_hand_built_matrices_give_what_is_wanted(beta: float, width: int, seed: int) -> None:
    """Weights and the small errors of the outputs are those of the closed form."""
    assert max(check.difference for check in measure_projections(beta, width, seed).checks) < 1e-9


def test_the_module_that_trains_gives_the_same() -> None:
    """Copying, equivariance without positions, a synthesizer's blindness: to 1e-5."""
    for seed in range(3):
        experiment = measure_module(seed=seed)
        assert largest_difference(experiment) < 1e-5
        assert min(experiment.figures.values()) > 0.005, "with rotary positions, and by dot products, order and other tokens matter"


def test_the_result_has_every_number_and_a_finding_for_each_experiment() -> None:
    """The first finding covers all experiments, and tells exact numbers from those of random keys, which the seed decides."""
    experiments = run_experiments(0, samples=200)
    result = lab_result(experiments)
    assert len(result.findings) == 1 + len(experiments)
    assert "over 200 random keys they differ by at most" in result.findings[0]
    assert result.tables["checks"].height == sum(len(experiment.checks) for experiment in experiments)
    assert "% of the draws" in finding(experiments[2])
    again, other = (run_experiments(seed, samples=200)[2].checks[0].measured for seed in (0, 1))
    assert experiments[2].checks[0].measured == again != other


def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers in the terminal, pictures on the page, a table beside it; a run is never overwritten."""
    out = tmp_path / "lab"
    assert main(["study", "lab", "--out", str(out), "--samples", "200", "--keys", "5"]) == 0
    assert f"{math.exp(1) / (math.exp(1) + 4):.6f}" in capsys.readouterr().err
    assert (out / "figures" / "copying.svg").exists()
    assert (out / "figures" / "noisy-keys.svg").exists()
    assert (out / "checks.csv").exists()
    assert "The attention lab" in (out / "report.html").read_text()
    assert main(["study", "lab", "--out", str(out)]) == 2


RESULT = StudyResult(
    "A <study>",
    ["It works.", "It is fast & small."],
    {"scores": pl.DataFrame({"name": ["a", "b"], "score": [0.5, float("nan")]})},
    {"best": np.float32(0.5)},  # type: ignore[dict-item]
    Summary(("name", "score"), [("a", "50.0%"), ("<b>", "-")]),
    details=(1, 2),
)


def test_a_result_is_plain_json() -> None:
    """Missing numbers become null, NumPy's numbers become Python's."""
    plain = json.loads(json.dumps(RESULT.to_dict(), allow_nan=False))
    assert plain["findings"] == ["It works.", "It is fast & small."]
    assert plain["figures"] == {"best": 0.5}
    assert plain["tables"]["scores"] == [{"name": "a", "score": 0.5}, {"name": "b", "score": None}]


def test_findings_are_whole_sentences() -> None:
    """A result without findings, or with one that has no full stop, is a mistake of the study."""
    with pytest.raises(AssertionError, match="at least one finding"):
        StudyResult("x", [])
    with pytest.raises(AssertionError, match="full stop"):
        StudyResult("x", ["no end"])


class NoSettings(Config):
    """Settings of a made-up study."""


def test_finishing_prints_writes_and_returns_what_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first finding is the headline; every table becomes a CSV file; key figures and sections are on the page."""
    shown = finish_study(RESULT, [Section("Details", ("A paragraph.",))], NoSettings(), tmp_path, tiles=[("best", "50.0%")])
    printed = capsys.readouterr().err
    assert "It works.\nIt is fast & small.\n" in printed
    assert pl.read_csv(tmp_path / "scores.csv")["name"].to_list() == ["a", "b"]
    html = (tmp_path / "report.html").read_text()
    assert [section.title for section in shown.sections] == ["Details"]
    assert "<h1>It works.</h1>" in html
    assert "<h2>Findings</h2>" in html
    assert "A paragraph." in html
    assert "<dt>best</dt><dd>50.0%</dd>" in html
