"""Objectives side by side: every model is trained once, all are asked the same, and what is said fits the figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import warmstart as ws
from conftest import SENTENCES
from warmstart.analysis.attention import KINDS
from warmstart.analysis.pairs import Judgement
from warmstart.analysis.probing import Reading, together
from warmstart.cli import main
from warmstart.data import Part, Source, documents_of
from warmstart.workflows.studies.objectives import ObjectivesConfig, _passages
from warmstart.workflows.studies.side_by_side import Insight, Side, study_of


def insight(share: float, **looking: float) -> Insight:
    """A made-up model; a negative share: it cannot be asked for pairs."""
    right = (np.arange(100) < 100 * share).astype(float)
    pairs = [Judgement("all", "", right)] if share >= 0 else []
    return Insight(["embedding", "1"], {"loss": 2.0}, 1.0, 10, pairs, 0.5, dict.fromkeys(KINDS, 0.0) | looking)


def test_the_next_best_is_named_with_the_doubt_of_seeds() -> None:
    """A gap that holds on every seed is claimed, one that does not is called unsure; heads are told where there are any."""
    one = Side("causal", [insight(share, previous=0.5) for share in (0.80, 0.82, 0.81)], [])
    other = Side("masked", [insight(0.60), insight(0.62), insight(0.61)], [])
    sure = study_of([other, one]).findings
    assert sure[0].startswith("minimal pairs: causal is best with 81.0 %, 20.0 points before masked")
    assert "no sure" not in sure[0]
    assert any(said.startswith("causal: 50 % of the heads") for said in sure)
    near = Side("masked", [insight(0.86), insight(0.76), insight(0.80)], [])
    assert study_of([near, one]).findings[0].endswith("no sure difference")


def test_only_what_heads_look_at_most_is_told() -> None:
    """By its name, and not where two kinds are looked at by as many, or none by any."""
    sides = [Side("causal", [insight(0.5, same=0.4, first=0.1)], []), Side("masked", [insight(0.5, first=0.4, last=0.4)], [])]
    said = [one for one in study_of([*sides, Side("span", [insight(0.5)], [])]).findings if "heads look" in one]
    most = "causal: 40 % of the heads look at another of the same token, more than at any other kind"
    assert said == [f"{most}, though not surely so (1 of its models)"]
    several = Side("causal", [insight(0.5, same=share) for share in (0.4, 0.41, 0.39)], [])
    sides[1] = Side("masked", [insight(0.5)] * 3, [])
    assert most in study_of([several, sides[1]]).findings


def test_objectives_that_never_learned_to_predict_text_are_not_ranked_by_it() -> None:
    """They are named; their cell is empty; one that is left over is not called best."""
    spans, causal = Side("span", [insight(-1.0)], []), Side("causal", [insight(0.7)], [])
    study = study_of([spans, causal, Side("masked", [insight(0.6)], [])])
    assert study.findings[0].startswith("minimal pairs: causal is best with 70.0 %")
    assert any("minimal pairs: span is not asked" in one for one in study.findings)
    assert study.shown is not None
    assert next(row for row in study.shown[0] if row[0] == "minimal pairs, %")[1] == "-"
    assert study_of([spans, causal]).findings[0] == "minimal pairs: causal has 70.0 %, and no other objective can be asked"


def test_passages_are_those_that_no_model_learned_from(text: Path) -> None:
    """Of a share that is held out, none is training text."""
    config = ObjectivesConfig(text=(str(text),), held_out="0.3", passages=1000)
    sources = [Source(path=str(text))]
    passages = _passages(config, sources)
    assert passages == list(documents_of(sources, Part(share=0.3, held_out=True)))
    assert len(passages) < len(_passages(ObjectivesConfig(text=(str(text),), held_out="none", passages=1000), sources))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--objectives", "causal", "masked", "causal"], "at least two different --objectives"),
        (["--depth", "0"], "at least one block"),
    ],
)
def test_what_cannot_be_compared_is_said_before_anything_is_trained(
    words: list[str], why: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is written."""
    assert main(["study", "objectives", str(text), "--out", str(tmp_path / "out"), *words]) == 2
    assert why in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_pairs_that_do_not_fit_are_said_before_anything_is_trained(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not when all models are."""
    (tmp_path / "pairs.csv").write_text(f"good,bad\n{'She holds the cat. ' * 40},She hold.\n")
    words = ["--max-tokens", "16", "--tokenizer.vocab-size", "320", "--pairs", str(tmp_path / "pairs.csv")]
    assert main(["study", "objectives", str(text), "--out", str(tmp_path / "out"), *words]) == 2
    assert "must fit into 16 tokens" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out" / "models").exists()


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
