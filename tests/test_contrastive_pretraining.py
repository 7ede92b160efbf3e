"""Contrastive pretraining: how documents are cropped, what the loss is, and what is learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers.models import SENTENCES, VOCABULARY, make_language_model
from warmstart.cli import main
from warmstart.data.pretraining_rows import PretrainingRows, pretraining_batches
from warmstart.data.source import Source
from warmstart.data.token_store import TokenStore, prepare_store
from warmstart.finetuning.language_loss import LanguageTask
from warmstart.model.files import load_bundle
from warmstart.model.model import Model
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.contrastive import CroppedBatch, contrastive_batch
from warmstart.seeding import rng, seed_torch
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.contrastive import ContrastivePretraining
from warmstart.types import IGNORE, Batch

CONFIG = ObjectiveConfig(name="contrastive", contrast_weight=2.0, temperature=0.2)
EOS, PAD = VOCABULARY.specials.eos, VOCABULARY.specials.pad


@pytest.fixture(scope="module")
def store(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """Forty short documents of different lengths."""
    folder = tmp_path_factory.mktemp("documents")
    texts = [" ".join(SENTENCES[n % len(SENTENCES)] for n in range(start, start + 1 + start % 3)) for start in range(40)]
    (folder / "text.txt").write_text("\n".join(texts))
    return prepare_store([Source(path=str(folder / "text.txt"), document="line")], tokenizer, folder / "cache")


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 130), min_size=1, max_size=6), st.integers(0, 2**32), st.integers(8, 30))
def test_each_document_gives_two_crops(lengths: list[int], seed: int, tokens: int) -> None:
    """Adjacent tokens of it, within its ends, a quarter to two thirds of it, no longer than half a row; only masks differ."""
    draw = np.random.default_rng(seed)
    texts = [draw.integers(21, 60, min(length, 4 * tokens - 1)) for length in lengths]
    rows = np.full((len(texts), 4 * tokens + 1), PAD)
    for row, text in zip(rows, texts, strict=True):
        row[: len(text) + 2] = [EOS, *text, EOS]
    batch = contrastive_batch(rows, np.array([len(text) + 2 for text in texts]), draw, VOCABULARY, CONFIG)
    assert batch.ids.shape[1] <= max(3, tokens // 2)
    assert batch.documents is not None
    assert batch.documents.tolist() == [n for n in range(len(texts)) for _ in range(2)]
    assert batch.targets is not None
    for row, targets, length, document in zip(batch.ids, batch.targets, batch.lengths, batch.documents, strict=True):
        text = texts[int(document)].tolist()
        crop = torch.where(targets == IGNORE, row, targets)[: int(length)].tolist()
        assert (crop[0], crop[-1]) == (EOS, EOS)
        inner = crop[1:-1]
        assert any(text[start : start + len(inner)] == inner for start in range(len(text)))
        assert max(1, min(len(text) // 4, tokens // 2 - 2)) <= len(inner) <= max(1, 2 * len(text) // 3)


def model_and_loss(
    tokenizer: Tokenizer, store: TokenStore, dropout: float = 0.0
) -> tuple[Model, PretrainingRows, ContrastivePretraining]:
    """A tiny model, the rows it reads, and its loss."""
    model = make_language_model(vocab_size=tokenizer.vocab_size, max_length=24, causal=False).train()
    rows = PretrainingRows(store, tokenizer.vocabulary(), CONFIG, 24)
    return model, rows, ContrastivePretraining(model, rows)


def test_the_loss_is_its_formula(tokenizer: Tokenizer, store: TokenStore) -> None:
    """Masked cross-entropy, and for each crop the negative log of its sibling's share among all others, by a plain loop."""
    model, rows, loss = model_and_loss(tokenizer, store)
    (batch,) = pretraining_batches(rows, 5, 1, 0)(0)
    assert isinstance(batch, CroppedBatch)
    with torch.no_grad():
        found = float(loss.loss(batch))
        states = model.backbone.forward_batch(batch).last_hidden_state
        real = torch.arange(states.shape[1]) < batch.lengths[:, None]
        vectors = [F.normalize(states[i][real[i]].mean(dim=0), dim=0) for i in range(10)]
        contrast = 0.0
        for i in range(10):
            shares = {j: float(torch.exp(vectors[i] @ vectors[j] / 0.2)) for j in range(10) if j != i}
            contrast -= float(np.log(shares[i ^ 1] / sum(shares.values())))
        masked = float(model.loss(batch))
    assert found == pytest.approx(masked + 2.0 * 0.15 * rows.mean_tokens / 2 * contrast, rel=1e-4)


def step(model: Model, loss: ContrastivePretraining, batches: list[Batch]) -> tuple[float, list[Tensor]]:
    """The summed loss of a step, and its gradients."""
    model.zero_grad()
    seed_torch(0, "step", 3)
    total = 0.0
    for batch in loss.prepare(batches):
        part = loss.loss(batch)
        part.backward()
        total += float(part.detach())
    return total, [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_accumulated_batches_compare_all_crops_of_a_step(tokenizer: Tokenizer, store: TokenStore) -> None:
    """Value and gradients are those of a single batch with the same crops."""
    model, rows, loss = model_and_loss(tokenizer, store)
    parts = pretraining_batches(rows, 3, 3, 0)(0)
    assert len(parts) == 3
    width = max(part.ids.shape[1] for part in parts)

    def joined(name: str, fill: int) -> Tensor:
        return torch.cat([F.pad(getattr(part, name), (0, width - part.ids.shape[1]), value=fill) for part in parts])

    real = torch.cat([torch.arange(width) < part.lengths[:, None] for part in parts])
    whole = CroppedBatch(
        joined("ids", PAD), joined("targets", IGNORE), real, causal=False, count=sum(part.count for part in parts),
        documents=torch.arange(9).repeat_interleave(2),
    )  # fmt: skip
    one, other = step(model, loss, [whole]), step(model, loss, parts)
    assert other[0] == pytest.approx(one[0], rel=1e-5)
    for gradient, found in zip(one[1], other[1], strict=True):
        torch.testing.assert_close(found, gradient, atol=1e-4, rtol=1e-4)


QUICK = [
    "--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "32", "--max-length", "24", "--tokenizer.vocab-size", "330",
    "--tokenizer.sentinels", "0", "--batch", "8", "--learning-rate", "0.01", "--held-out", "0.1",
]  # fmt: skip


def corpus(folder: Path) -> Path:
    """Documents of one of ten topics each: eight words, six of them of the topic."""
    draw, file = rng(0, "documents"), folder / "corpus.txt"
    words = np.array([["".join(draw.choice(list("abcdefgh"), 4)) for _ in range(12)] for _ in range(11)])
    lines = [" ".join([*draw.choice(words[n % 10], 12), *draw.choice(words[10], 4)]) for n in range(200)]
    file.write_text("\n".join(lines))
    return file


def likeness(bundle_folder: Path, file: Path) -> float:
    """How much nearer two halves of a document are than those of different documents, in cosines."""
    bundle = load_bundle(bundle_folder)
    vectors = []
    for part in (slice(0, 8), slice(8, 16)):
        texts = [" ".join(line.split()[part]) for line in file.read_text().splitlines()[:40]]
        eos = bundle.tokenizer.specials.eos
        states = []
        for ids in bundle.tokenizer.encode(texts):
            with torch.inference_mode():
                read = bundle.model.backbone(torch.tensor([[eos, *ids[:22], eos]]), causal=False).last_hidden_state
            states.append(F.normalize(read[0].mean(dim=0), dim=0))
        vectors.append(torch.stack(states))
    cosines = vectors[0] @ vectors[1].T
    return float(cosines.diagonal().mean() - cosines.mean())


@pytest.mark.usefixtures("no_second_process")
def test_texts_of_one_document_are_alike_afterwards(tmp_path: Path) -> None:
    """More than after masked pretraining, with as many steps; and the bundle is continued as a masked one."""
    file, found = corpus(tmp_path), {}
    for name in ("contrastive", "masked"):
        words = ["pretrain", str(file), "--document", "line", "--objective", name, "--rows", "documents", "--steps", "80", *QUICK]
        assert main([*words, "--out", str(tmp_path / name)]) == 0
        found[name] = likeness(tmp_path / name / "bundle", file)
    assert found["contrastive"] > found["masked"] + 0.1
    language = LanguageTask.of(load_bundle(tmp_path / "contrastive" / "bundle"))
    assert language is not None
    assert language.objective.name == "masked"


@pytest.mark.usefixtures("no_second_process")
def test_labels_can_be_learned_in_the_same_steps(tmp_path: Path) -> None:
    """Beside crops, as beside any other batch."""
    rows = [f"{line}\t{'even' if n % 2 else 'odd'}" for n, line in enumerate(corpus(tmp_path).read_text().splitlines())]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "\n".join(rows[:150]) + "\n")
    (tmp_path / "test.tsv").write_text("text\tlabel\n" + "\n".join(rows[150:]) + "\n")
    (tmp_path / "task.yaml").write_text("name: parity\ntrain: train.tsv\nvalidation: 0.2\ntest: test.tsv\nmetric: accuracy\n")
    words = [
        "pretrain",
        "--for",
        str(tmp_path / "task.yaml"),
        "--objective",
        "contrastive",
        "--labels",
        "20",
        "--steps",
        "3",
        *QUICK,
    ]
    assert main([*words, "--accumulate", "2", "--out", str(tmp_path / "run")]) == 0
