"""ONNX graphs: whatever a bundle or a stack is made of, its folder says the same, and is enough to use it without warmstart."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.bundles import classifier, language_bundle, unread_model
from helpers.models import make_backbone, make_language_model
from helpers.refusals import refused
from helpers.tasks import tune, write_task
from warmstart.baselines import BASELINES
from warmstart.baselines.choice import fitted_baseline, run_baseline
from warmstart.cli import main
from warmstart.commands.adapt.command import adapt
from warmstart.commands.export import compare_forms, export_model, export_onnx
from warmstart.commands.settings import ExportConfig
from warmstart.data.budget import label_budget
from warmstart.data.pool import task_pool
from warmstart.data.scorings import ScoringRun
from warmstart.errors import ConfigError, DataError, ModelError
from warmstart.experiment.config import AdaptConfig
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.finetune import task_model
from warmstart.finetuning.scheme import apply_scheme
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.registry import make_head
from warmstart.interop import onnx as ours
from warmstart.interop.onnx import OnnxModel, relative_difference, stack_to_onnx, to_onnx
from warmstart.interop.portable import probabilities
from warmstart.model import files
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.files import load_bundle, save
from warmstart.model.fitted import FittedBaseline
from warmstart.model.inference import embed
from warmstart.model.model import Model, swap_head
from warmstart.model.readout import LinearReadout
from warmstart.model.rows import WordRows
from warmstart.model.stack import Member, Stack
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.load import load_task
from warmstart.tasks.predict import raw_predictions
from warmstart.tokenizer.tokenizer import Tokenizer

# ------------------------------------------------------------------------------------------------ networks

pytest.importorskip("onnxscript", reason='pip install "warmstart[onnx]" to run these tests')
runtime = pytest.importorskip("onnxruntime", reason='pip install "warmstart[onnx]" to run these tests')

GRAPHS = pytest.mark.journeys
"""a graph takes many seconds to make"""
TEXTS = ["She holds the cat.", "I", "He rubs the river and the river holds him. [MASK] 1912 [EOS]", ""]
SWITCHES = {
    "rotary": {"positions": "rotary", "norm_type": "rms", "activation": "swiglu", "bias": False, "kv_heads": 1, "qk_norm": True},
    "post": {"norm": "post", "embedding_norm": True, "positions": "learned", "token_types": 2, "distance_buckets": 8},
    "synthesizer": {"attention": "synthesizer", "activation": "relu"},
    "window": {"positions": "rotary", "window": 2, "global_every": 2, "activation": "geglu"},
}


def labelled(model: Model, tokenizer: Tokenizer) -> Bundle:
    """A bundle with label names and a temperature."""
    names = tuple("abcdefgh"[: model.head.config.classes])  # type: ignore[union-attr]
    return Bundle(model, tokenizer, names, calibration=Calibration(temperature=1.7))


@GRAPHS
@pytest.mark.parametrize(("switches", "causal"), [*zip(SWITCHES, (True, False, True, False), strict=True)])
def test_every_sort_of_backbone_goes_out(switches: str, causal: bool, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Logits of a language model, over lengths from one token on, with padding."""
    model = make_language_model(vocab_size=tokenizer.vocab_size, causal=causal, **SWITCHES[switches])
    assert to_onnx(Bundle(model, tokenizer), tmp_path / "g") < 1e-5
    assert json.loads((tmp_path / "g" / "config.json").read_text())["outputs"] == ["logits"]


@GRAPHS
@pytest.mark.parametrize("scheme", ["houlsby", "lora+scalar-mix"])
def test_what_schemes_insert_goes_along(scheme: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Adapters, LoRA and mixes are part of the graph."""
    model = classifier(tokenizer)
    apply_scheme(model, make_scheme(scheme, FineTuneConfig().options), 0)
    with torch.no_grad():
        for parameter in model.parameters():  # what is inserted begins by changing nothing
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    assert to_onnx(labelled(model, tokenizer), tmp_path / "g") < 1e-5


@GRAPHS
@pytest.mark.parametrize("kind", TASK_TYPES)
def test_every_kind_of_head_goes_out(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The graph's scores give the same answers to the same texts."""
    task = load_task(write_task(tmp_path / kind, kind))
    model = task_model(language_bundle(tokenizer), task, FineTuneConfig(), 0, scratch=False).eval()
    bundle = Bundle(model, tokenizer, task.labels)
    assert to_onnx(bundle, tmp_path / "g") < 1e-5
    one, two = compare_forms(bundle, task, [tmp_path / "g" / "model.onnx"], ScoringRun(command="export"))
    assert (one.score, two.changed) == (pytest.approx(two.score), 0)


@GRAPHS
def test_vectors_go_out(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle that gives embeddings. A graph that says something else is not written."""
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    head = make_head(EmbeddingHeadConfig(pooling="mean", normalize=True), backbone.config.width, backbone.embedding.weight)
    bundle = Bundle(Model(backbone, head, causal=False), tokenizer)
    assert to_onnx(bundle, tmp_path / "g") < 1e-5
    monkeypatch.setattr(ours, "relative_difference", lambda *_: float("nan"))
    refused(ModelError, "must give the outputs of the model", to_onnx, bundle, tmp_path / "no")
    assert not (tmp_path / "no").exists()
    monkeypatch.undo()
    monkeypatch.setattr(ours, "run_network", lambda folder, texts: np.zeros((len(texts), backbone.config.width)))
    refused(
        ModelError, "the exported folder must predict what the model predicts, but for a text", to_onnx, bundle, tmp_path / "no"
    )
    assert not (tmp_path / "no").exists()


@GRAPHS
@pytest.mark.parametrize("pooling", ["last", "appended"])
def test_the_folder_is_enough(pooling: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """With onnxruntime and tokenizers alone, the probabilities are those of ``predict``, its temperature included."""
    from tokenizers import Tokenizer as Library

    task = SimpleNamespace(type="classification", labels=("a", "b", "c"))
    config = FineTuneConfig(pooling=pooling)
    bundle = labelled(task_model(language_bundle(tokenizer), task, config, 0, scratch=False).eval(), tokenizer)  # type: ignore[arg-type]
    to_onnx(bundle, tmp_path / "g")
    told = json.loads((tmp_path / "g" / "config.json").read_text())
    library = Library.from_file(str(tmp_path / "g" / "tokenizer.json"))
    library.encode_special_tokens = True
    library.enable_padding(pad_id=told["pad_id"])
    library.enable_truncation(told["max_length"])
    rows = library.encode_batch(TEXTS)
    fed = {"input_ids": [row.ids for row in rows], "attention_mask": [row.attention_mask for row in rows]}
    session = runtime.InferenceSession(str(tmp_path / "g" / "model.onnx"), providers=["CPUExecutionProvider"])
    found = session.run(["probabilities"], {name: np.array(value, dtype=np.int64) for name, value in fed.items()})[0]
    np.testing.assert_allclose(found, raw_predictions(bundle, TEXTS), atol=1e-5)
    assert told["labels"] == ["a", "b", "c"]


@GRAPHS
def test_the_command_says_what_each_form_is_worth(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Parity, a table of forms with their scores; another task, a taken place and flags that do not belong are refused."""
    manifest = write_task(tmp_path / "classification", "classification")
    save(language_bundle(tokenizer), tmp_path / "lm")
    adapt(
        AdaptConfig.build(
            {"model": str(tmp_path / "lm"), "task": str(manifest), "out": str(tmp_path / "run"), "seeds": 1, "scratch": False}
            | {"tune": tune()}
        )
    )
    run, out = str(tmp_path / "run"), str(tmp_path / "g")
    capsys.readouterr()
    assert main(["export", run, "--to", "onnx", "--int8", "--task", str(manifest), "--out", out]) == 0
    said = capsys.readouterr().err
    assert "read back by onnxruntime" in said
    assert said.count("model.onnx") == 2
    assert "model.int8.onnx" in said
    small, exact = (Path(out) / name for name in ("model.int8.onnx", "model.onnx"))
    assert small.stat().st_size < exact.stat().st_size
    bundle = load_bundle(Path(run) / "bundle")
    assert relative_difference(bundle.model, OnnxModel(small, bundle.model)) < 0.5
    other = write_task(tmp_path / "regression", "regression")
    for words, what in (
        (["--to", "onnx", "--task", str(other), "--out", str(tmp_path / "h")], "fine-tuned for a classification task"),
        (["--to", "onnx", "--out", out], "exists and is not empty"),
        (["--int8", "--out", str(tmp_path / "h")], "need --to onnx"),
    ):
        assert main(["export", run, *words]) == 2
        assert what in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "h").exists()


def test_what_cannot_go_out_is_refused(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extra is missing, which is named, or the labels are not those of the task; nothing is left behind."""
    bundle, out = language_bundle(tokenizer), tmp_path / "g"
    task = load_task(write_task(tmp_path / "classification", "classification"))
    other = Bundle(task_model(bundle, task, FineTuneConfig(), 0, scratch=False), tokenizer, tuple("wxyz"))
    config = ExportConfig(model="lm", out=str(out), to="onnx", task=str(tmp_path / "classification"))
    refused(DataError, "adapted to", export_onnx, other, config)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    refused(ConfigError, r"pip install \"warmstart\[onnx\]\"", to_onnx, bundle, out)
    assert not out.exists()


# ------------------------------------------------------------------------------------------------ stacks

TYPES = ("classification", "multilabel", "regression")


@pytest.mark.parametrize("graphs", [False, pytest.param(True, marks=pytest.mark.journeys)])
@pytest.mark.parametrize("type_name", TYPES)
def test_the_script_predicts_what_baselines_predict(
    type_name: str, graphs: bool, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every task type that has probabilities or numbers, with pairs of texts, and calibrated."""
    monkeypatch.setattr(ours, "_compared", lambda stack, folder: 0.0)  # a process for each: the next test has one
    bundle = language_bundle(tokenizer)
    encoder = Bundle(swap_head(bundle.model, EmbeddingHeadConfig(normalize=False), 0), tokenizer)
    task = load_task(write_task(tmp_path / "task", type_name))
    budget = label_budget(task, 16, "cross-validation", 0)
    calibration = Calibration(temperature=1.7) if type_name == "classification" else None

    def vectors(inputs: Sequence[Any]) -> np.ndarray:
        return embed(encoder, inputs).numpy()

    for place, (name, baseline) in enumerate(BASELINES.items()):
        kinds = [kind for kind in baseline.types or TYPES[:2] if kind in TYPES]
        if baseline.needs_vectors != graphs or not kinds or kinds[place % len(kinds)] != type_name:
            continue  # each baseline with one of its kinds
        run = run_baseline(baseline, budget, task_pool(task).without(budget).texts, vectors)
        stack = Stack((Member(name, fitted_baseline(run, encoder)),), type_name, task.labels, calibration=calibration)
        stack_to_onnx(stack, tmp_path / name)
        found = probabilities(task.test.texts, tmp_path / name)
        np.testing.assert_allclose(found, raw_predictions(stack, task.test.texts), atol=1e-5, err_msg=name)


def made(tokenizer: Tokenizer, slope: float = 1.0) -> Stack:
    """A network and words."""
    network = Bundle(classifier(tokenizer), tokenizer, ("cat", "other"))
    words = FittedBaseline(WordRows(("cat", "the cat"), word_pairs=True), LinearReadout(slope * np.eye(2), np.array([0, -np.inf])))
    members = (Member("full", network, 1.3, 0.3), Member("words", words, 0.8, 0.7))
    return Stack(members, "classification", ("cat", "other"), calibration=Calibration(temperature=0.7))


@pytest.mark.journeys
def test_a_stack_goes_out(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command, from the folder of a run; with networks and words, and without warmstart."""
    monkeypatch.setattr(files, "_fresh_reader", unread_model)
    stack = made(tokenizer)
    save(stack, tmp_path / "run" / "bundle")
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
    config = ExportConfig(model=str(tmp_path / "run"), out=str(tmp_path / "more"), to="sentence-transformers")
    refused(ConfigError, "needs one network, but .* is a stack", export_model, config)
    refused(ConfigError, "exists and is not empty", stack_to_onnx, stack, out)


def test_an_export_that_differs_is_not_written(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one whose script fails."""
    stack = replace(made(tokenizer), members=made(tokenizer).members[1:])
    monkeypatch.setattr(ours, "raw_predictions", lambda _, texts: np.zeros((len(texts), 2)))
    differs = "must predict what the saved one predicts, but differs by"
    refused(ModelError, differs, stack_to_onnx, stack, tmp_path / "out")
    monkeypatch.setattr(ours, "_RUN", "raise SystemExit('no numpy here')")
    refused(ModelError, "without warmstart, but failed: no numpy here", stack_to_onnx, stack, tmp_path / "out")
    assert not (tmp_path / "out").exists()
