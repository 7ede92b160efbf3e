"""Thresholds of labels, where a text may have several: chosen on texts that were left out, kept with the model, used everywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score

import warmstart as ws
from helpers.figures import repeats
from helpers.tasks import write_task
from warmstart.experiment.config import RaceConfig
from warmstart.experiment.refit import refit
from warmstart.experiment.sweep import open_sweep, run_sweep
from warmstart.interop.load import load
from warmstart.interop.onnx import stack_to_onnx
from warmstart.model.bundle import Calibration
from warmstart.model.fitted import FittedBaseline
from warmstart.model.readout import ConstantReadout, PerLabelReadout
from warmstart.model.stack import Member, Stack
from warmstart.stats.scores import HALF, SHARED_TEXTS, label_thresholds
from warmstart.system.processes import run_python
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.load import load_task
from warmstart.tasks.predict import raw_predictions
from warmstart.tasks.thresholds import at_thresholds, chosen_thresholds, left_out_at_thresholds, thresholds_of


@pytest.mark.proofs
def test_thresholds_of_few_texts_lose_little() -> None:
    """Labels of two to thirty in a hundred texts: they give a higher macro-F1 than a half, and micro-F1 stays near the best."""
    chance, count = np.random.default_rng(0), repeats(200, 80)
    shares = np.array([0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3])
    found = dict[str, list[tuple[float, float]]]()
    for _ in range(count):
        signal = chance.uniform(0.5, 2.5, len(shares))
        (labels, given), (new, asked) = (drawn(chance, shares, signal, texts) for texts in (150, 4000))
        grid = np.quantile(given, np.linspace(0, 1, 100))
        common = grid[np.argmax([f1s(labels, given >= one)[1] for one in grid])]
        own, both = (label_thresholds(given, labels, shared) for shared in (0.0, SHARED_TEXTS))
        for name, limits in {"a half": HALF, "one for all": common, "own": own, "both": both}.items():
            found.setdefault(name, []).append(f1s(new, asked >= limits))
    means = {name: np.mean(scores, axis=0) for name, scores in found.items()}
    for name, (macro, micro) in means.items():
        print(f"150 texts, thresholds {name}: macro-F1 {macro:.3f}, micro-F1 {micro:.3f}")
    assert means["both"][0] > means["a half"][0] + 0.05
    assert means["both"][0] > means["one for all"][0] + 0.005
    assert means["both"][1] > means["own"][1] + 0.02, "labels that show nothing are not given to every text"
    assert means["both"][1] > means["one for all"][1] - 0.04


def f1s(labels: np.ndarray, given: np.ndarray) -> tuple[float, float]:
    """Macro- and micro-F1."""
    hits, sizes = (labels & given).sum(axis=0), labels.sum(axis=0) + given.sum(axis=0)
    return float(np.mean(2 * hits / np.maximum(sizes, 1))), float(2 * hits.sum() / max(1, sizes.sum()))


def drawn(chance: np.random.Generator, shares: np.ndarray, signal: np.ndarray, texts: int) -> tuple[np.ndarray, np.ndarray]:
    """(N, C) labels, and their probabilities given what is seen of each: normal, shifted by its ``signal``."""
    labels = chance.random((texts, len(shares))) < shares
    odds = signal * chance.normal(labels * signal, 1.0) - signal**2 / 2 + np.log(shares / (1 - shares))
    return labels, 1 / (1 + np.exp(-odds))


def test_thresholds_lie_between_probabilities() -> None:
    """So that a rounding error changes no label; without any label they are a half."""
    probabilities = np.random.default_rng(0).random((40, 3))
    found = label_thresholds(probabilities, probabilities > [0.5, 0.6, 0.9])
    assert np.abs(probabilities - found).min() > 1e-6
    assert label_thresholds(probabilities, np.zeros((40, 3))).tolist() == [HALF] * 3


def test_a_text_does_not_choose_the_thresholds_it_is_scored_at(tmp_path: Path) -> None:
    """Labels at random: at thresholds chosen by the texts themselves F1 is higher than at those of the others."""
    task = load_task(write_task(tmp_path / "task", "multilabel"))
    chance = np.random.default_rng(0)
    split = replace(task.train, labels=(chance.random(task.train.labels.shape) < 0.3).astype(np.float32))
    made = chance.random(split.labels.shape)
    own = f1_score(split.labels, at_thresholds(made, chosen_thresholds(task, split, made)), average="macro")
    assert own > f1_score(split.labels, left_out_at_thresholds(task, split, made), average="macro", zero_division=0)


def always(*probabilities: float, thresholds: tuple[float, ...] = ()) -> Stack:
    """A model that gives every text these probabilities."""
    parts = tuple(ConstantReadout(np.array([1 - one, one])) for one in probabilities)
    labels = ("hot", "sweet", "cold")[: len(parts)]
    member = Member("m", FittedBaseline(None, PerLabelReadout(parts)))
    return Stack((member,), "multilabel", labels, (), Calibration(thresholds=thresholds))


def test_a_model_gives_labels_at_its_thresholds() -> None:
    """Without any at a half."""
    assert ws.predict(always(0.3, 0.6, 0.45), "tea")["labels"] == ["sweet"]
    assert ws.predict(always(0.3, 0.6, 0.45, thresholds=(0.2, 0.7, 0.45)), "tea")["labels"] == ["hot", "cold"]


@pytest.mark.journeys
def test_a_saved_model_and_its_export_give_the_same_labels(tmp_path: Path) -> None:
    """The script that needs no warmstart too."""
    saved = ws.load(ws.save(always(0.3, 0.6, 0.45, thresholds=(0.2, 0.7, 0.45)), tmp_path / "model"))
    assert ws.predict(saved, "tea")["labels"] == ["hot", "cold"]
    stack_to_onnx(saved, tmp_path / "onnx")
    code = "import runpy; sys.modules['warmstart'] = None; "
    code += "sys.argv[2:] = ['tea', ' ']; runpy.run_path(sys.argv[1], run_name='__main__')"
    run = run_python(code, str(tmp_path / "onnx/predict.py"))
    assert '"labels": ["hot", "cold"]' in run.stdout, run.stderr
    assert '"labels": null' in run.stdout, "a blank text gets none"


def test_a_race_scores_and_saves_the_same_thresholds(tmp_path: Path) -> None:
    """Chosen within the labels of a draw; the saved model has the score that the race states."""
    manifest = write_task(tmp_path / "task", "multilabel")
    config = RaceConfig(task=str(manifest), labels=(40,), seeds=1, methods=("NBSVM",), out=str(tmp_path / "race"), scratch=False)
    sweep = open_sweep(config)
    runs = run_sweep(sweep, 40)
    method = next(one for one in sweep.methods if one.name == "NBSVM")
    saved = load(refit(method, runs, sweep.context).save(tmp_path / "model"))
    assert len(thresholds_of(saved)) == 5
    task = load_task(str(manifest))
    scores = TASK_TYPES["multilabel"].scores(
        task.test, at_thresholds(raw_predictions(saved, task.test.texts), thresholds_of(saved)), task
    )
    assert scores.score(task.metric) == pytest.approx(runs.results[runs.of(method)[0]].score)
