"""ONNX graphs: whatever a bundle is made of, the graph says what it says; and its folder is enough to use it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from helpers.bundles import SCHEME_CASES as CASES
from helpers.bundles import classifier, language_bundle
from helpers.models import make_backbone, make_language_model
from helpers.tasks import tune, write_task
from warmstart.cli import main
from warmstart.commands.adapt.command import AdaptConfig, adapt
from warmstart.commands.export import compare_forms
from warmstart.data.test_ledger import ScoringRun
from warmstart.errors import ConfigError, DataError, ModelError
from warmstart.finetuning.apply import apply_scheme
from warmstart.finetuning.compose import make_scheme
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.finetune import task_model
from warmstart.heads import make_head
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.interop import onnx as ours
from warmstart.interop.onnx import OnnxModel, relative_difference, to_onnx
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.files import load_bundle, save
from warmstart.model.model import Model
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.load import load_task
from warmstart.tasks.predict import raw_predictions
from warmstart.tokenizer.tokenizer import Tokenizer

pytest.importorskip("onnxscript", reason="pip install 'warmstart[onnx]' to run these tests")
runtime = pytest.importorskip("onnxruntime", reason="pip install 'warmstart[onnx]' to run these tests")

TEXTS = ["She holds the cat.", "I", "He rubs the river and the river holds him. [MASK] 1912 [EOS]", ""]
SWITCHES = {
    "rotary": {"positions": "rotary", "norm_type": "rms", "activation": "swiglu", "bias": False, "kv_heads": 1, "qk_norm": True},
    "post": {"norm": "post", "embedding_norm": True, "positions": "learned", "token_types": 2},
    "synthesizer": {"attention": "synthesizer", "activation": "relu"},
    "window": {"positions": "rotary", "window": 2, "global_every": 2, "activation": "geglu"},
}


def labelled(model: Model, tokenizer: Tokenizer) -> Bundle:
    """A bundle with label names and a temperature."""
    names = tuple("abcdefgh"[: model.head.config.classes])  # type: ignore[union-attr]
    return Bundle(model, tokenizer, names, calibration=Calibration(temperature=1.7))


@pytest.mark.parametrize("switches", SWITCHES)
@pytest.mark.parametrize("causal", [True, False])
def test_every_sort_of_backbone_goes_out(switches: str, causal: bool, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Logits of a language model, over lengths from one token on, with padding."""
    model = make_language_model(vocab_size=tokenizer.vocab_size, causal=causal, **SWITCHES[switches])
    assert to_onnx(Bundle(model, tokenizer), tmp_path / "g") < 1e-5
    assert json.loads((tmp_path / "g" / "config.json").read_text())["outputs"] == ["logits"]


@pytest.mark.parametrize("scheme", [name for name in CASES if name.split("+")[0] in ("houlsby", "pfeiffer", "lora", "scalar-mix")])
def test_what_schemes_insert_goes_along(scheme: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Adapters, LoRA and mixes are part of the graph."""
    model = classifier(tokenizer)
    apply_scheme(model, make_scheme(scheme, FineTuneConfig().options), 0)
    with torch.no_grad():
        for parameter in model.parameters():  # what is inserted begins by changing nothing
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    assert to_onnx(labelled(model, tokenizer), tmp_path / "g") < 1e-5


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_every_kind_of_head_goes_out(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The graph's scores give the same answers to the same texts."""
    task = load_task(write_task(tmp_path / kind, kind))
    model = task_model(language_bundle(tokenizer), task, FineTuneConfig(), 0, scratch=False).eval()
    bundle = Bundle(model, tokenizer, task.labels)
    assert to_onnx(bundle, tmp_path / "g") < 1e-5
    one, two = compare_forms(bundle, task, [tmp_path / "g" / "model.onnx"], ScoringRun(command="export"))
    assert (one.score, two.changed) == (pytest.approx(two.score), 0)


def test_vectors_go_out(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """A bundle that gives embeddings."""
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    head = make_head(EmbeddingHeadConfig(pooling="mean", normalize=True), backbone.config.width, backbone.embedding.weight)
    assert to_onnx(Bundle(Model(backbone, head, causal=False), tokenizer), tmp_path / "g") < 1e-5


@pytest.mark.parametrize("pooling", ["mean", "last", "first", "appended"])
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


@pytest.mark.usefixtures("no_second_process")
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


def test_a_graph_that_says_something_else_is_not_written(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left behind."""
    monkeypatch.setattr(ours, "relative_difference", lambda *_: float("nan"))
    with pytest.raises(ModelError, match="must give the outputs of the model"):
        to_onnx(language_bundle(tokenizer), tmp_path / "g")
    assert not (tmp_path / "g").exists()


def test_what_is_missing_is_named(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the message says how to get it."""
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(ConfigError, match=r"pip install 'warmstart\[onnx\]'"):
        to_onnx(language_bundle(tokenizer), tmp_path / "g")


def test_a_task_with_other_labels_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Before anything is written."""
    from warmstart.commands.export import ExportConfig, export_onnx

    task = load_task(write_task(tmp_path / "classification", "classification"))
    model = task_model(language_bundle(tokenizer), task, FineTuneConfig(), 0, scratch=False)
    bundle = Bundle(model, tokenizer, tuple("wxyz"))
    with pytest.raises(DataError, match="adapted to"):
        export_onnx(bundle, ExportConfig(model="lm", out=str(tmp_path / "g"), to="onnx", task=str(tmp_path / "classification")))
