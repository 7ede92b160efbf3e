"""Objectives side by side: every model is trained once, all are measured alike, and the findings fit the figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from helpers.figures import repeats
from helpers.models import SENTENCES
from helpers.simulation import answers, seed_effects
from warmstart.cli import main
from warmstart.commands.pretrain.command import PretrainConfig
from warmstart.data.source import Source
from warmstart.data.token_store import DocumentSplit, documents_of
from warmstart.inspection.head_attention import RELATIONS
from warmstart.inspection.minimal_pairs import PairGroup
from warmstart.inspection.probe_scores import BAG, ProbeScores
from warmstart.stats.comparison import compare_pairs
from warmstart.studies.objectives.command import StudyObjectivesConfig, held_out_passages
from warmstart.studies.objectives.measure import ModelMeasures, ObjectiveMeasures
from warmstart.studies.objectives.result import (
    _probe_finding,
    objectives_findings,
    objectives_overview,
    objectives_result,
    pair_accuracies,
    score_of_best_probe,
)
from warmstart.studies.probe.measure import TaskProbes


def model(accuracy: float, **heads: float) -> ModelMeasures:
    """A made-up model; with a negative accuracy it cannot score sentences."""
    right = (np.arange(100) < 100 * accuracy).astype(float)
    pairs = [PairGroup("all", "", right)] if accuracy >= 0 else []
    return ModelMeasures(["embedding", "1"], {"loss": 2.0}, 1.0, 10, pairs, 0.5, dict.fromkeys(RELATIONS, 0.0) | heads)


def test_the_best_objective_is_named_with_its_interval_over_seeds_and_pairs() -> None:
    """A gap that holds on every seed and pair is claimed, one that does not is called not significant, one seed claims nothing."""
    one = ObjectiveMeasures("causal", [model(accuracy, previous=0.5) for accuracy in (0.80, 0.82, 0.81)], [])
    other = ObjectiveMeasures("masked", [model(0.60), model(0.62), model(0.61)], [])
    findings = objectives_findings([other, one])
    best, lead = findings[0].split(". ", 1)
    assert best.startswith("Minimal pairs: causal has the highest accuracy, 81.0% (")
    assert best.endswith("; as the highest of 2, it is too high on average")
    assert lead.startswith("Causal is better than masked by 20.0 points (95% interval ")
    assert findings[0].endswith(", over 3 seeds and the pairs).")
    assert findings[1].startswith("Causal: 50% of the heads attend to the previous token")
    near = ObjectiveMeasures("masked", [model(0.86), model(0.76), model(0.80)], [])
    assert "Undecided: causal is ahead of masked by 0.3 points" in objectives_findings([near, one])[0]
    alone = objectives_findings([replace(one, models=one.models[:1]), replace(other, models=other.models[:1])])[0]
    assert ". Causal and masked differ by +20.0 points on one seed, which shows nothing about other seeds (" in alone
    assert alone.endswith(", over the pairs alone).")


def test_the_best_of_several_is_compared_with_a_correction() -> None:
    """For all pairs of objectives: whichever is best was chosen by the same figures."""
    found = [ObjectiveMeasures(name, [model(0.6 + seed / 100) for seed in range(3)], []) for name in ("a", "b", "c", "d")]
    best = ObjectiveMeasures("best", [model(0.80), model(0.82), model(0.81)], [])
    finding = objectives_findings([*found, best])[0]
    assert "; corrected p " in finding
    assert finding.endswith(" p is corrected for all 10 pairs of objectives, as the best is chosen with the same models.")


def test_the_best_probe_is_scored_by_models_that_did_not_choose_it() -> None:
    """Layer and objective: the first objective owes its choice to its lucky third model, which therefore scores the other one."""

    def scores(layer: str, validations: tuple[float, ...], tests: tuple[float, ...]) -> ProbeScores:
        correct = np.array([np.arange(100) < 100 * one for one in tests], dtype=float)
        return ProbeScores(layer, correct, correct, np.arange(100), validations)

    task = SimpleNamespace(name="tense")
    bag = {BAG: scores(BAG, (0.0,) * 3, (0.0,) * 3)}
    lucky = bag | {"1": scores("1", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), "2": scores("2", (0.6, 0.6, 0.99), (0.6, 0.6, 0.9))}
    steady = bag | {"1": scores("1", (0.7, 0.7, 0.7), (0.71, 0.72, 0.73)), "2": scores("2", (0.4, 0.4, 0.4), (0.4, 0.4, 0.4))}
    found = [
        ObjectiveMeasures(name, [model(-1.0)] * 3, [TaskProbes(task, name, layers, {}, {})])  # type: ignore[arg-type]
        for name, layers in (("masked", lucky), ("causal", steady))
    ]
    assert score_of_best_probe(found, 0).mean == pytest.approx((0.6 + 0.6 + 0.73) / 3)
    finding = _probe_finding(found, 0)
    assert finding.startswith("Tense: masked is best on validation; its test accuracy is 64.3% (")
    assert "), where each model scores what the others choose. " in finding


def test_every_group_of_pairs_counts_alike() -> None:
    """And the overview has a row for both sources of chance, and one for seeds alone."""
    groups = [PairGroup("many", "", np.array([1.0] * 30 + [0.0] * 10)), PairGroup("few", "", np.array([1.0] * 10 + [0.0] * 10))]
    found = [ObjectiveMeasures(name, [replace(model(-1.0), pairs=groups)] * 2, []) for name in ("causal", "masked")]
    assert pair_accuracies(found)[0].interval.mean == pytest.approx(0.625)
    rows = [row for row in objectives_overview(found).rows if row[0] == "minimal pairs"]
    assert [row[1] for row in rows] == ["seeds and pairs", "seeds alone"]
    assert rows[1][2] == "62.5 to 62.5"
    assert objectives_overview(found).header == ("", "95% interval over", "causal", "masked")


@pytest.mark.proofs
def test_few_studies_of_equal_objectives_claim_a_difference() -> None:
    """Two or four objectives, 3 or 5 seeds, 200 pairs in groups: at most 5% of studies, within two Monte-Carlo errors."""
    sizes, chances = [50, 50, 40, 20, 20, 10, 10], {seeds: np.random.default_rng(seeds) for seeds in (3, 5)}
    bounds = np.cumsum(sizes)[:-1]
    for seeds, count in ((3, 2), (3, 4), (5, 2), (5, 4)):
        chance, claims, held = chances[seeds], list[bool](), list[bool]()
        for _ in range(repeats(200, 100)):
            right = answers(chance, seed_effects(chance, (count, seeds), 0.02), sum(sizes)).astype(float)
            models = [[replace(model(-1.0), pairs=[PairGroup("", "", one) for one in np.split(row, bounds)]) for row in rows]
                      for rows in right]  # fmt: skip
            found = pair_accuracies([ObjectiveMeasures(str(i), one, []) for i, one in enumerate(models)])
            compared = compare_pairs([*combinations(sorted(found, key=lambda one: -one.interval.mean), 2)])
            claims.append(any(one.significant for one in compared))
            held.append(compared[0].difference.low <= 0 <= compared[0].difference.high)
        print(f"{seeds} seeds, {count} objectives: claims {np.mean(claims):.3f}, coverage of the lead {np.mean(held):.3f}")
        assert np.mean(claims) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / len(claims)), (seeds, count)
        assert np.mean(held) >= 0.94, (seeds, count)


def test_a_finding_names_what_most_heads_attend_to() -> None:
    """But not if two kinds of tokens have as many heads, or if no head attends to any."""
    one = ObjectiveMeasures("causal", [model(0.5, same=0.4, first=0.1)], [])
    tie = ObjectiveMeasures("masked", [model(0.5, first=0.4, last=0.4)], [])
    findings = objectives_findings([one, tie, ObjectiveMeasures("span", [model(0.5)], [])])
    most = "Causal: 40% of the heads attend to another occurrence of the same token, more than to any other kind of token"
    assert [sentence for sentence in findings if "heads attend" in sentence] == [f"{most} (not significant over one model)."]
    several = ObjectiveMeasures("causal", [model(0.5, same=fraction) for fraction in (0.4, 0.41, 0.39)], [])
    rest = ObjectiveMeasures("masked", [model(0.5)] * 3, [])
    assert f"{most}." in objectives_findings([several, rest])
    near = [model(0.5, same=fraction, first=0.3) for fraction in (0.4, 0.45, 0.35)]
    finding = next(one for one in objectives_findings([replace(several, models=near), rest]) if "heads attend" in one)
    assert finding.startswith(f"{most} (not significant over 3 models after correction for 6 others; ")
    assert finding.endswith("; 3 seeds are too few to detect a difference under 50 points with 80% power).")


def test_objectives_that_never_learned_to_predict_text_are_not_ranked_by_it() -> None:
    """They are named, and their cell is a dash; an objective without any other to compare is not called best."""
    spans, causal = ObjectiveMeasures("span", [model(-1.0)], []), ObjectiveMeasures("causal", [model(0.7)], [])
    result = objectives_result([spans, causal, ObjectiveMeasures("masked", [model(0.6)], [])])
    assert result.findings[0].startswith(
        "Minimal pairs: causal has the highest accuracy, 70.0% (61.3 to 78.7); as the highest of 2,"
    )
    assert ". Causal and masked differ by +10.0 points on one seed" in result.findings[0]
    assert "Minimal pairs: span cannot score sentences, as it learned span corruption alone." in result.findings
    assert result.summary is not None
    assert next(row for row in result.summary.rows if row[0] == "minimal pairs")[2] == "-"
    alone = objectives_findings([spans, causal])
    assert alone[0] == "Minimal pairs: causal has an accuracy of 70.0% (61.3 to 78.7); no other objective can score sentences."


def test_passages_are_those_that_no_model_is_trained_on(text: Path) -> None:
    """If a fraction of the text is held out, they are all of that fraction."""
    config = StudyObjectivesConfig(text=(str(text),), held_out="0.3", passages=1000)
    sources = [Source(path=str(text))]
    passages = held_out_passages(config, sources)
    assert passages == list(documents_of(sources, DocumentSplit(fraction=0.3, held_out=True)))
    everything = StudyObjectivesConfig(text=(str(text),), held_out="none", passages=1000)
    assert len(passages) < len(held_out_passages(everything, sources))


def test_settings_that_cannot_be_compared_are_refused_before_training(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is written; nor is anything trained if pairs do not fit."""
    (tmp_path / "pairs.csv").write_text(f"good,bad\n{'She holds the cat. ' * 40},She hold.\n")
    for words, why in (
        ("--objectives causal masked causal", "at least two different --objectives"),
        ("--depth 0", "at least one block"),
        ("--equal time --minutes 1", "name --tokens"),
        (f"--max-length 16 --tokenizer.vocab-size 320 --pairs {tmp_path / 'pairs.csv'}", "must fit into 16 tokens"),
    ):
        assert main(["study", "objectives", str(text), "--out", str(tmp_path / "out"), *words.split()]) == 2, words
        assert why in " ".join(capsys.readouterr().err.split())
        assert "--pairs" in words or not (tmp_path / "out").exists(), words
    assert not (tmp_path / "out" / "models").exists()


SIZE = "--width 16 --heads 2 --depth 1 --feedforward 16 --max-length 32 --tokenizer.vocab-size 320 --passages 5"


@pytest.mark.journeys
def test_the_command_trains_measures_and_continues(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two objectives, two seeds; an interrupted study trains no model again; other settings in its folder are refused."""
    rows = [
        f"{split}\t{label}\t{label.lower()} {SENTENCES[i % 4]}" for split in ("tr", "va", "te") for i in range(15) for label in "AB"
    ]
    (tmp_path / "first_word.txt").write_text("\n".join(rows))
    (tmp_path / "pairs.csv").write_text("good,bad\nShe holds the cat.,She hold the cat.\nHe can rub.,He can rubs.\n")
    out = tmp_path / "out"
    data = ["--tasks", str(tmp_path / "first_word.txt"), "--pairs", str(tmp_path / "pairs.csv"), "--steps", "2", "--seeds", "2"]
    words = ["study", "objectives", str(text), "--out", str(out), "--objectives", "causal", "masked", *data, *SIZE.split()]
    monkeypatch.setattr("warmstart.report.page.end_record", lambda *_: None)  # it is killed when only this was to be written
    assert main(words) == 0
    assert "Minimal pairs: " in capsys.readouterr().err
    assert sorted(place.name for place in (out / "models").iterdir()) == ["causal-0", "causal-1", "masked-0", "masked-1"]
    table = pl.read_csv(out / "models.csv")
    assert table["objective"].to_list() == ["causal", "causal", "masked", "masked"]
    assert (out / "figures" / "probes.svg").exists()
    assert main([*words[:-1], "6"]) == 2
    assert "goes on with its own settings: 'passages' is 6 here" in capsys.readouterr().err
    assert main(words) == 0
    assert "pretraining: " not in capsys.readouterr().err


def test_with_equal_time_an_objective_reads_as_many_tokens_as_its_speed_allows(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first reads the tokens of the budget, and speeds are measured once: a study that goes on keeps its budgets."""
    calls = list[object]()

    def measured(settings: dict[str, PretrainConfig], *rest: object) -> dict[str, float]:
        calls.append(settings)
        return {"causal": 1000.0, "masked": 500.0}

    monkeypatch.setattr("warmstart.studies.objectives.command.measure_speeds", measured)
    words = ["study", "objectives", str(text), "--out", str(tmp_path / "out"), "--objectives", "causal", "masked", *SIZE.split()]
    words += ["--seeds", "1", "--equal", "time", "--tokens", "2560"]
    monkeypatch.setattr("warmstart.report.page.end_record", lambda *_: None)  # it is killed when only this was to be written
    assert main(words) == 0
    table = pl.read_csv(tmp_path / "out" / "models.csv")
    assert table["tokens"][0] == pytest.approx(2 * table["tokens"][1], rel=0.15)
    assert main(words) == 0
    assert len(calls) == 1
    assert "Each objective had the processor time that causal took for " in capsys.readouterr().err
