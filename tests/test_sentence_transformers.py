"""Folders for sentence-transformers, and for programs that read the same files: its steps, taken one by one, give our vectors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import warmstart as ws
from helpers.foreign import folder_of, transformers
from warmstart.cli import main
from warmstart.errors import ModelError
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.interop.convert import from_huggingface
from warmstart.interop.export import embedding_bundle
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.model import swap_head

TEXTS = ["She holds the cat.", "a", "Where was the river found, and by whom?" * 9]
"""the last one is cut"""


def check_vectors(name: str, pooling: str, place: Path) -> None:
    """Written, read by transformers and pooled as the folder says, a model gives our vectors; and so does ours, read back."""
    bundle, out = embedding_bundle(from_huggingface(folder_of(name, place / "hf"))), place / "out"
    ws.to_huggingface(bundle, out)
    modules = json.loads((out / "modules.json").read_text())
    assert [(one["path"], one["type"]) for one in modules] == [
        (path, f"sentence_transformers.models.{kind}")
        for path, kind in (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    ]
    told = json.loads((out / "1_Pooling" / "config.json").read_text())
    assert (told["word_embedding_dimension"], told["pooling_mode_cls_token"]) == (32, pooling == "first")
    length = json.loads((out / "sentence_bert_config.json").read_text())["max_seq_length"]
    assert length == bundle.model.backbone.config.max_length
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModel.from_pretrained(out).eval()
    batch = tokenizer(TEXTS, padding=True, truncation=True, max_length=length, return_tensors="pt")
    with torch.inference_mode():
        states = model(**{key: value for key, value in batch.items() if name != "distilbert" or key != "token_type_ids"})[0]
    mask = batch["attention_mask"][..., None]
    pooled = states[:, 0] if pooling == "first" else (states * mask).sum(1) / mask.sum(1)
    vectors = torch.nn.functional.normalize(pooled, dim=-1)
    assert torch.allclose(ws.embed(bundle, TEXTS), vectors, atol=2e-6), name
    assert torch.equal(ws.embed(from_huggingface(out), TEXTS), ws.embed(bundle, TEXTS)), name


def test_a_folder_for_sentence_transformers_gives_our_vectors(tmp_path: Path) -> None:
    """By its own steps, with transformers: tokenize, run, pool as 1_Pooling says, normalize; in every family."""
    for name in ("bert", "distilbert", "roberta", "esm", "modernbert", "gpt2", "llama-tied", "qwen2", "qwen3", "starcoder2"):
        check_vectors(name, "mean", tmp_path / name)
    check_vectors("bert-labels", "first", tmp_path / "labels")


def test_export_to_sentence_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command says what it wrote; a model that reads windows, or pools in a way that the format lacks, is refused."""
    save(from_huggingface(folder_of("llama-tied", tmp_path / "hf")), tmp_path / "bundle")
    assert main(["export", str(tmp_path / "bundle"), "--to", "sentence-transformers", "--out", str(tmp_path / "out")]) == 0
    assert "read back, outputs differ by at most 0" in " ".join(capsys.readouterr().err.split())
    odd = from_huggingface(folder_of("bert-bare", tmp_path / "bare"))
    pooled = swap_head(odd.model, EmbeddingHeadConfig(pooling="appended"), 0)
    with pytest.raises(ModelError, match="the pooling 'appended'"):
        ws.to_huggingface(embedding_bundle(Bundle(pooled, odd.tokenizer)), tmp_path / "no")
    windows = swap_head(odd.model, EmbeddingHeadConfig(windows="mean"), 0)
    with pytest.raises(ModelError, match="reads long texts in windows"):
        embedding_bundle(Bundle(windows, odd.tokenizer))
