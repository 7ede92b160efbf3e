"""A stack outside warmstart: the exported folder and its script give the same probabilities."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.bundles import classifier, language_bundle
from helpers.tasks import write_task
from warmstart.baselines import BASELINES
from warmstart.baselines.choice import run_baseline
from warmstart.baselines.saving import fitted_baseline
from warmstart.cli import main
from warmstart.commands.export import ExportConfig, export_model
from warmstart.data.budget import label_budget
from warmstart.data.pool import task_pool
from warmstart.errors import ConfigError, ModelError
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.interop import stack_export
from warmstart.interop.portable import probabilities
from warmstart.interop.stack_export import stack_to_onnx
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.embed import embed
from warmstart.model.model import swap_head
from warmstart.stack import files as stack_files
from warmstart.stack.files import save_stack
from warmstart.stack.fitted import FittedBaseline
from warmstart.stack.readout import LinearReadout
from warmstart.stack.rows import WordRows
from warmstart.stack.stack import Member, Stack
from warmstart.tasks.load import load_task
from warmstart.tasks.predict import raw_predictions
from warmstart.tokenizer.tokenizer import Tokenizer

pytest.importorskip("onnxscript", reason="pip install 'warmstart[onnx]' to run these tests")
pytest.importorskip("onnxruntime", reason="pip install 'warmstart[onnx]' to run these tests")

TYPES = ("classification", "multilabel", "regression")
CASES = [(name, kind) for name, one in BASELINES.items() for kind in one.types or TYPES[:2] if kind in TYPES]
SLOW = {("frozen vectors + logistic regression", "classification"), ("frozen vectors + nearest neighbours", "multilabel")}
"""a graph is made in seconds: one of each kind will do"""


@pytest.mark.parametrize(("name", "type_name"), [case for case in CASES if case not in SLOW])
def test_the_script_predicts_what_a_baseline_predicts(name: str, type_name: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """For every task type that has probabilities or numbers, with pairs of texts, and calibrated."""
    bundle = language_bundle(tokenizer)
    encoder = Bundle(swap_head(bundle.model, EmbeddingHeadConfig(normalize=False), 0), tokenizer)
    task = load_task(write_task(tmp_path / "task", type_name))
    budget = label_budget(task, 16, "cross-validation", 0)

    def vectors(inputs: Sequence[Any]) -> np.ndarray:
        return embed(encoder, inputs).numpy()

    run = run_baseline(BASELINES[name], budget, task_pool(task).without(budget).texts, vectors)
    calibration = Calibration(temperature=1.7) if type_name == "classification" else None
    stack = Stack((Member(name, fitted_baseline(run, encoder)),), type_name, task.labels, calibration=calibration)
    assert stack_to_onnx(stack, tmp_path / "out") < 1e-5
    found = probabilities(task.test.texts, tmp_path / "out")
    np.testing.assert_allclose(found, raw_predictions(stack, task.test.texts), atol=1e-5)


def made(tokenizer: Tokenizer, slope: float = 1.0) -> Stack:
    """A network and words."""
    network = Bundle(classifier(tokenizer), tokenizer, ("cat", "other"))
    words = FittedBaseline(WordRows(("cat", "the cat"), word_pairs=True), LinearReadout(slope * np.eye(2), np.array([0, -np.inf])))
    members = (Member("full", network, 1.3, 0.3), Member("words", words, 0.8, 0.7))
    return Stack(members, "classification", ("cat", "other"), calibration=Calibration(temperature=0.7))


@pytest.mark.usefixtures("no_second_process")
def test_a_stack_goes_out(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command, from the folder of a run; with networks and words, and without warmstart."""
    monkeypatch.setattr(stack_files, "_verify_stack_in_fresh_process", lambda _: None)
    stack = made(tokenizer)
    save_stack(stack, tmp_path / "run" / "bundle")
    out = tmp_path / "out"
    assert main(["export", str(tmp_path / "run"), "--to", "onnx", "--out", str(out)]) == 0
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    network = {f"members/1/{name}" for name in ("model.onnx", "tokenizer.json", "config.json")}
    assert names == {"config.json", "predict.py", "members/2/baseline.json", "members/2/arrays.safetensors", *network}
    texts = ["She holds the cat.", "", "He rubs the river. [MASK]"]
    np.testing.assert_allclose(probabilities(texts, out), raw_predictions(stack, texts), atol=1e-5)
    assert json.loads((out / "config.json").read_text())["labels"] == ["cat", "other"]
    for flags in (["--to", "hf"], ["--to", "onnx", "--int8"]):
        assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "more"), *flags]) == 2
    with pytest.raises(ConfigError, match="needs one network, but .* is a stack"):
        export_model(ExportConfig(model=str(tmp_path / "run"), out=str(tmp_path / "more"), to="peft"))
    with pytest.raises(ConfigError, match="exists and is not empty"):
        stack_to_onnx(stack, out)


def test_an_export_that_differs_is_not_written(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one whose script fails."""
    stack = replace(made(tokenizer), members=made(tokenizer).members[1:])
    monkeypatch.setattr(stack_export, "raw_predictions", lambda _, texts: np.zeros((len(texts), 2)))
    with pytest.raises(ModelError, match="must predict what the saved one predicts, but differs by"):
        stack_to_onnx(stack, tmp_path / "out")
    monkeypatch.setattr(stack_export, "_RUN", "raise SystemExit('no numpy here')")
    with pytest.raises(ModelError, match="without warmstart, but failed: no numpy here"):
        stack_to_onnx(stack, tmp_path / "out")
    assert not (tmp_path / "out").exists()
