"""Objectives side by side: every model is trained once, all are measured alike, and the findings fit the figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import warmstart as ws
from helpers.models import SENTENCES
from warmstart.cli import main
from warmstart.commands import COMMANDS
from warmstart.data.source import Source
from warmstart.data.token_store import DocumentSplit, documents_of
from warmstart.inspection.head_attention import RELATIONS
from warmstart.inspection.minimal_pairs import PairGroup
from warmstart.studies.objectives.command import StudyObjectivesConfig, held_out_passages
from warmstart.studies.objectives.measure import ModelMeasures, ObjectiveMeasures
from warmstart.studies.objectives.result import objectives_findings, objectives_result


def model(accuracy: float, **heads: float) -> ModelMeasures:
    """A made-up model; with a negative accuracy it cannot score sentences."""
    right = (np.arange(100) < 100 * accuracy).astype(float)
    pairs = [PairGroup("all", "", right)] if accuracy >= 0 else []
    return ModelMeasures(["embedding", "1"], {"loss": 2.0}, 1.0, 10, pairs, 0.5, dict.fromkeys(RELATIONS, 0.0) | heads)


def test_the_best_objective_is_named_with_its_interval_over_seeds() -> None:
    """A gap that holds on every seed is claimed, one that does not is called not significant."""
    one = ObjectiveMeasures("causal", [model(accuracy, previous=0.5) for accuracy in (0.80, 0.82, 0.81)], [])
    other = ObjectiveMeasures("masked", [model(0.60), model(0.62), model(0.61)], [])
    findings = objectives_findings([other, one])
    assert findings[0].startswith("Minimal pairs: causal has the highest accuracy, 81.0%, +20.0 points against masked (")
    assert "not significant" not in findings[0]
    assert findings[1].startswith("Causal: 50% of the heads attend to the previous token")
    near = ObjectiveMeasures("masked", [model(0.86), model(0.76), model(0.80)], [])
    assert objectives_findings([near, one])[0].endswith(
        "over 3 seeds, not significant; 30.5 points would have been detected with 80% power)."
    )


def test_a_finding_names_what_most_heads_attend_to() -> None:
    """But not if two kinds of tokens have as many heads, or if no head attends to any."""
    one = ObjectiveMeasures("causal", [model(0.5, same=0.4, first=0.1)], [])
    tie = ObjectiveMeasures("masked", [model(0.5, first=0.4, last=0.4)], [])
    findings = objectives_findings([one, tie, ObjectiveMeasures("span", [model(0.5)], [])])
    most = "Causal: 40% of the heads attend to another occurrence of the same token, more than to any other kind of token"
    nothing = "no difference would have been detected with 80% power"
    assert [sentence for sentence in findings if "heads attend" in sentence] == [
        f"{most} (not significant over one model; {nothing})."
    ]
    several = ObjectiveMeasures("causal", [model(0.5, same=fraction) for fraction in (0.4, 0.41, 0.39)], [])
    assert f"{most}." in objectives_findings([several, ObjectiveMeasures("masked", [model(0.5)] * 3, [])])


def test_objectives_that_never_learned_to_predict_text_are_not_ranked_by_it() -> None:
    """They are named, and their cell is a dash; an objective without any other to compare is not called best."""
    spans, causal = ObjectiveMeasures("span", [model(-1.0)], []), ObjectiveMeasures("causal", [model(0.7)], [])
    result = objectives_result([spans, causal, ObjectiveMeasures("masked", [model(0.6)], [])])
    assert result.findings[0] == (
        "Minimal pairs: causal has the highest accuracy, 70.0%, +10.0 points against masked (on one seed, not significant; "
        "no difference would have been detected with 80% power)."
    )
    assert "Minimal pairs: span cannot score sentences, as it learned span corruption alone." in result.findings
    assert result.summary is not None
    assert next(row for row in result.summary.rows if row[0] == "minimal pairs (%)")[1] == "-"
    alone = objectives_findings([spans, causal])
    assert alone[0] == "Minimal pairs: causal has an accuracy of 70.0%; no other objective can score sentences."


def test_passages_are_those_that_no_model_is_trained_on(text: Path) -> None:
    """If a fraction of the text is held out, they are all of that fraction."""
    config = StudyObjectivesConfig(text=(str(text),), held_out="0.3", passages=1000)
    sources = [Source(path=str(text))]
    passages = held_out_passages(config, sources)
    assert passages == list(documents_of(sources, DocumentSplit(fraction=0.3, held_out=True)))
    everything = StudyObjectivesConfig(text=(str(text),), held_out="none", passages=1000)
    assert len(passages) < len(held_out_passages(everything, sources))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--objectives", "causal", "masked", "causal"], "at least two different --objectives"),
        (["--depth", "0"], "at least one block"),
    ],
)
def test_settings_that_cannot_be_compared_are_refused_before_training(
    words: list[str], why: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is written."""
    assert main(["study", "objectives", str(text), "--out", str(tmp_path / "out"), *words]) == 2
    assert why in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_pairs_that_do_not_fit_are_refused_before_training(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not after all models are trained."""
    (tmp_path / "pairs.csv").write_text(f"good,bad\n{'She holds the cat. ' * 40},She hold.\n")
    words = ["--max-length", "16", "--tokenizer.vocab-size", "320", "--pairs", str(tmp_path / "pairs.csv")]
    assert main(["study", "objectives", str(text), "--out", str(tmp_path / "out"), *words]) == 2
    assert "must fit into 16 tokens" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out" / "models").exists()


@pytest.mark.slow
def test_the_command_trains_measures_and_continues(
    tmp_path: Path, text: Path, no_second_process: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two objectives, two seeds; an interrupted study trains no model again; other settings in its folder are refused."""
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
        "--max-length",
        "32",
        "--tokenizer.vocab-size",
        "320",
        "--steps",
        "2",
        "--seeds",
        "2",
    ]
    data = ["--tasks", str(tmp_path / "first_word.txt"), "--pairs", str(tmp_path / "pairs.csv"), "--passages", "5"]
    words = ["study", "objectives", str(text), "--out", str(out), "--objectives", "causal", "masked", *size, *data]
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


@pytest.mark.parametrize("name", [name.removeprefix("study ") for name in COMMANDS if name.startswith("study ")])
def test_every_study_is_part_of_the_python_interface(name: str) -> None:
    """As a function with its settings."""
    assert callable(getattr(ws, f"study_{name}"))
    assert hasattr(ws, f"Study{name.capitalize()}Config")
