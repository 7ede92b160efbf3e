"""Objectives side by side: every model is trained once, all are asked the same, and what is said fits the figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import warmstart as ws
from conftest import SENTENCES
from warmstart.analysis.pairs import Judgement
from warmstart.analysis.probing import Reading, together
from warmstart.cli import main
from warmstart.workflows.studies.side_by_side import Insight, Side, study_of


def insight(share: float, previous: float = 0.0) -> Insight:
    right = np.arange(100) < 100 * share
    return Insight(["embedding", "1"], {"loss": 2.0}, 1.0, 10, [Judgement("all", "", right.astype(float))], 0.5, dict.fromkeys(
        ("previous", "next", "same", "first"), previous
    ))  # fmt: skip


def test_the_next_best_is_named_with_the_doubt_of_seeds() -> None:
    """A gap that holds on every seed is claimed, one that does not is called unsure; heads are told where there are any."""
    one = Side("causal", [insight(0.80, 0.5), insight(0.82, 0.5), insight(0.81, 0.5)], [])
    other = Side("masked", [insight(0.60), insight(0.62), insight(0.61)], [])
    sure = study_of([other, one]).findings
    assert sure[0].startswith("minimal pairs: causal is best with 81.0 %, 20.0 points before masked")
    assert "no sure" not in sure[0]
    assert any(said.startswith("causal: 50 % of the heads") for said in sure)
    near = Side("masked", [insight(0.86), insight(0.76), insight(0.80)], [])
    assert study_of([near, one]).findings[0].endswith("no sure difference")


def test_readings_of_several_models_count_alike() -> None:
    """Their fits stand together, and validation is their mean."""
    first = Reading("1", np.ones((2, 5)), np.zeros((2, 5)), np.arange(5), 0.5, (1.0,))
    both = together([first, replace(first, right=np.zeros((2, 5)), validation=0.7, compression=(2.0,))])
    assert both.right.shape == (4, 5)
    assert both.share[0] == 0.5
    assert both.validation == pytest.approx(0.6)
    assert both.compression == (1.0, 2.0)


@pytest.mark.slow
def test_the_command_trains_looks_and_goes_on(
    tmp_path: Path, text: Path, no_second_process: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two objectives, two seeds; a study that was stopped trains nothing anew; other settings in its folder are refused."""
    rows = [
        f"{split}\t{label}\t{label.lower()} {SENTENCES[i % 4]}" for split in ("tr", "va", "te") for i in range(15) for label in "AB"
    ]
    (tmp_path / "first_word.txt").write_text("\n".join(rows))
    pl.DataFrame({"good": ["She holds the cat.", "He can rub."], "bad": ["She hold the cat.", "He can rubs."]}).write_csv(
        tmp_path / "pairs.csv"
    )
    out = tmp_path / "out"
    size = [
        "--width",
        "16",
        "--heads",
        "2",
        "--depth",
        "1",
        "--feedforward",
        "16",
        "--max-tokens",
        "32",
        "--tokenizer.vocab-size",
        "320",
        "--steps",
        "2",
        "--seeds",
        "2",
    ]
    asked = ["--tasks", str(tmp_path / "first_word.txt"), "--pairs", str(tmp_path / "pairs.csv"), "--passages", "5"]
    words = ["study", "objectives", str(text), "--out", str(out), "--objectives", "causal", "masked", *size, *asked]
    assert main(words) == 0
    assert "Minimal pairs: " in capsys.readouterr().err
    assert sorted(place.name for place in (out / "models").iterdir()) == ["causal-0", "causal-1", "masked-0", "masked-1"]
    table = pl.read_csv(out / "models.csv")
    assert table["objective"].to_list() == ["causal", "causal", "masked", "masked"]
    assert (out / "figures" / "probes.svg").exists()
    (out / "report.html").unlink()
    assert main([*words[:-1], "6"]) == 2
    assert "other settings" in capsys.readouterr().err
    assert main(words) == 0
    assert "pretraining: " not in capsys.readouterr().err


def test_the_studies_are_at_hand_in_python() -> None:
    """Each with its settings."""
    for name in ("ablate", "attention", "drift", "explain", "lab", "map", "neurons", "objectives", "pairs", "probe"):
        assert callable(getattr(ws.study, name))
        assert hasattr(ws.study, f"{name.capitalize()}Config")
