"""Texts are compared: with others of their label, in fine-tuning, and crops with those of their document, in pretraining."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers.bundles import finetune_config, language_bundle, make_task
from helpers.models import SENTENCES, VOCABULARY, make_backbone, make_language_model
from warmstart.cli import main
from warmstart.corpora.rows import PretrainingRows, pretraining_batches
from warmstart.corpora.store import TokenText
from warmstart.corpora.write import tokenized_text
from warmstart.data.batches import class_pairs
from warmstart.data.encode import collate
from warmstart.data.source import Source
from warmstart.errors import ConfigError
from warmstart.finetuning.finetune import FineTuneResult, check_scheme, fine_tune, task_model
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.losses import Contrast, ContrastiveLoss, LanguageTask, task_loss
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.model.files import load_bundle
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.comparison import contrastive_loss
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.contrastive import CroppedBatch, contrastive_batch
from warmstart.seeding import rng, seed_torch
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.contrastive import ContrastivePretraining
from warmstart.types import IGNORE, Batch

SEEDS = st.integers(0, 1000)


def equation(vectors: np.ndarray, labels: np.ndarray, temperature: float) -> list[float]:
    """Khosla et al. 2020, equation 2, term by term."""
    unit = [v / math.sqrt(sum(v * v)) for v in vectors]
    losses = []
    for i in range(len(unit)):
        others = [a for a in range(len(unit)) if a != i]
        positives = [p for p in others if labels[p] == labels[i]]
        below = sum(math.exp(float(unit[i] @ unit[a]) / temperature) for a in others)
        terms = [-math.log(math.exp(float(unit[i] @ unit[p]) / temperature) / below) for p in positives]
        losses.append(sum(terms) / len(terms) if terms else 0.0)
    return losses


def drawn(seed: int, texts: int = 9, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors (N, 5) and labels (N,)."""
    draw = rng(seed, "contrast test")
    return torch.from_numpy(draw.normal(size=(texts, 5))).float(), torch.from_numpy(draw.integers(classes, size=texts))


@settings(deadline=None, max_examples=50)
@given(SEEDS, st.sampled_from([0.1, 0.3, 1.0]), st.integers(1, 12), st.integers(1, 6))
def test_the_loss_is_that_of_the_equation(seed: int, temperature: float, texts: int, classes: int) -> None:
    """For any batch, a single text included, at any temperature."""
    vectors, labels = drawn(seed, texts, classes)
    found = contrastive_loss(vectors, labels, temperature)
    assert found.tolist() == pytest.approx(equation(vectors.double().numpy(), labels.numpy(), temperature), rel=1e-4, abs=1e-5)


def test_a_text_alone_with_its_label_is_only_among_the_others() -> None:
    """Its own loss is 0; the texts beside it are pushed away from it; alone in a step it has a gradient of 0."""
    vectors, labels = torch.eye(4)[[0, 0, 1]], torch.tensor([0, 0, 1])
    found = contrastive_loss(vectors, labels, 1.0)
    assert found.tolist() == pytest.approx([math.log1p(math.exp(-1)), math.log1p(math.exp(-1)), 0])
    assert contrastive_loss(vectors[:2], labels[:2], 1.0).tolist() == [0, 0]
    alone = torch.ones(1, 4, requires_grad=True)
    contrastive_loss(alone, torch.tensor([0]), 1.0).sum().backward()
    assert not alone.grad.any()


def make_batches(sizes: Sequence[int]) -> list[Batch]:
    """Batches of random texts of three classes; all their texts are the same, however they are split."""
    draw, texts = rng(0, "texts"), sum(sizes)
    ids, labels = torch.from_numpy(draw.integers(5, 60, (texts, 6))), torch.from_numpy(draw.integers(3, size=texts))
    real = torch.arange(6) < torch.from_numpy(draw.integers(2, 7, texts))[:, None]
    parts = zip(ids.split(list(sizes)), labels.split(list(sizes)), real.split(list(sizes)), strict=True)
    return [Batch(*part, causal=False, count=len(part[1])) for part in parts]


def contrastive(dropout: float = 0.0) -> tuple[Model, ContrastiveLoss]:
    """A tiny model and its loss."""
    backbone = make_backbone(dropout=dropout)
    model = Model(backbone, fresh_head(ClassificationHeadConfig(classes=3, dropout=dropout), backbone, 0), causal=False).train()
    return model, ContrastiveLoss(model, Contrast(0.7, 0.2), task_loss(None, 0.0))


def test_several_batches_equal_a_large_one() -> None:
    """Texts are compared across all batches of a step: value and gradients are those of a single batch."""
    for sizes in ((4, 4, 4), (1, 5, 2, 4), (11, 1), (1,) * 12):
        model, loss = contrastive()
        whole, gradients = step(model, loss, make_batches([sum(sizes)]))
        split, others = step(model, loss, make_batches(sizes))
        assert split == pytest.approx(whole, rel=1e-5), sizes
        for one, other in zip(gradients, others, strict=True):
            torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-4)


def test_texts_of_similar_length_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without dropout and windows, in groups with less padding: loss and gradients are those of the whole batch."""
    draw, lengths = rng(0, "lengths"), np.array([3, 30, 4, 3, 29, 3, 31, 5, 30, 3])
    rows = [draw.integers(5, 60, length) for length in lengths]
    batch = collate(rows, draw.integers(3, size=10), 0, causal=False)
    model, loss = contrastive()
    model.drops = False
    model.train()
    found, gradients = step(model, loss, [batch])
    read = list[tuple[int, ...]]()
    forward = model.backbone.forward
    monkeypatch.setattr(model.backbone, "forward", lambda ids, **given: [read.append(tuple(ids.shape)), forward(ids, **given)][1])
    step(model, loss, [batch])
    assert read == [(6, 5), (4, 31)]
    model.drops = True
    whole, others = step(model.train(), loss, [batch])
    assert read[2:] == [(10, 31)]
    assert found == pytest.approx(whole, rel=1e-5)
    for one, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_dropout_is_the_same_when_a_batch_is_read_again() -> None:
    """The gradients are those of one graph through the vectors that the first reading computed; the backbone and head drop."""
    model, loss = contrastive(dropout=0.3)
    batches = make_batches((5, 4, 3))
    found, gradients = step(model, loss, batches)
    seed_torch(0, "step", 3)
    prepared = loss.prepare(batches)
    model.zero_grad()
    vectors, total = [], torch.zeros(())
    for batch in prepared:
        seed_torch(batch.dropout[0], "contrast", batch.dropout[1])
        states = model.backbone.forward_batch(batch).last_hidden_state
        vectors.append(model.head.pooling(states, batch.attention_mask))
        total = total + task_loss(None, 0.0)(model.head(vectors[-1][:, None]), batch.targets)
    labels = torch.cat([batch.targets for batch in batches if batch.targets is not None])
    total = total + 0.7 * contrastive_loss(torch.cat(vectors), labels, 0.2).sum()
    total.backward()
    assert found == pytest.approx(float(total.detach()), rel=1e-5)
    for one, other in zip(gradients, [p.grad for p in model.parameters() if p.grad is not None], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    assert step(model, loss, batches)[0] == found
    whole = step(model, loss, make_batches([12]))[0]
    assert whole != pytest.approx(found, rel=1e-3)  # dropout does drop


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), SEEDS)
def test_an_epoch_reads_every_text_once_and_classes_in_pairs(labels: list[int], seed: int) -> None:
    """First pairs of one class, then the texts without a partner."""
    order = class_pairs(np.array(labels), rng(seed, "pairs"))
    assert sorted(order) == list(range(len(labels)))
    found = np.array(labels)[order]
    odd = sum(labels.count(label) % 2 for label in set(labels))
    pairs = found[: len(labels) - odd].reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all()
    assert len(set(found[len(labels) - odd :])) == odd


def test_the_loss_of_a_batch_is_that_of_its_logits_and_of_the_comparison() -> None:
    """Computed from the states in numpy: cross-entropy of scaled cosines with class vectors, and 0.7 times the contrast."""
    backbone = make_backbone()
    model = Model(backbone, fresh_head(ClassificationHeadConfig(classes=3, normalize=True), backbone, 0), causal=False)
    (batch,) = make_batches([9])
    loss = ContrastiveLoss(model, Contrast(0.7, 0.2), task_loss(None, 0.0))
    states = backbone.forward_batch(batch).last_hidden_state.detach().double().numpy()
    rows = np.array([state[real].mean(axis=0) for state, real in zip(states, batch.attention_mask.numpy(), strict=True)])
    score, labels = model.head.score, batch.targets.numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    logits = unit @ score.weight.detach().double().numpy().T + score.bias.detach().double().numpy()
    cross_entropy = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(9), labels]
    expected = cross_entropy.sum() + 0.7 * sum(equation(rows, labels, 0.2))
    assert float(loss.loss(batch).detach()) == pytest.approx(expected, rel=1e-4)


def contrast_tuned(tokenizer: Tokenizer, labels: Sequence[int], **changes: object) -> tuple[FineTuneResult, EncodedTask]:
    """After a run on sentences with these labels of three, one of which no text has."""
    task = replace(make_task(), labels=("cat", "other", "none"))
    split = replace(task.train.take(np.arange(len(labels))), labels=np.array(labels))
    task, config = replace(task, train=split), finetune_config("contrast", **changes)
    bundle = language_bundle(tokenizer, dropout=0.5)
    model = task_model(bundle, task, config, 0, scratch=False)
    encoded = EncodedTask.of(task, model, tokenizer)
    return fine_tune(model, encoded, config, 0), encoded


def test_the_head_ends_at_the_class_means_of_the_tuned_vectors(tokenizer: Tokenizer) -> None:
    """Also with one text of a class, and no pair in a batch; a class without a text is not predicted, and nothing drops."""
    for labels, batch in (((0, 1, 0, 1, 0, 1, 0, 1), 4), ((0, 0, 0, 1), 2), ((1, 0), 1)):
        train = finetune_config("contrast").train.model_copy(update={"batch": batch}).to_dict()
        run, encoded = contrast_tuned(tokenizer, labels, train=train, keep="best")
        model, (whole,) = run.model, [encoded.train.batch(np.arange(len(labels)), None, encoded.pad_id, causal=False)]
        pooled = model.head.read(model.backbone.forward_batch(whole).last_hidden_state, whole.attention_mask).detach()
        means = F.normalize(torch.stack([pooled[np.array(labels) == one].sum(dim=0) for one in range(2)]), dim=1)
        torch.testing.assert_close(F.normalize(model.head.score.weight.detach(), dim=1)[:2], means, atol=1e-4, rtol=1e-4)
        assert set(run.test_predictions.argmax(axis=1)) <= {0, 1}
        np.testing.assert_allclose(run.validation_predictions, run.test_predictions, atol=1e-5)  # both by the final weights
        assert run.validation_score == (run.validation_predictions.argmax(axis=1) == encoded.task.validation.labels).mean()
        assert model.head.config.to_dict()["dropout"] == 0
        torch.testing.assert_close(*(model.train()(whole.ids, whole.attention_mask) for _ in range(2)))


def test_other_tasks_are_refused_before_anything_trains(tokenizer: Tokenizer) -> None:
    """With the name and the type of the task."""
    task, bundle = replace(make_task(), type="regression", name="stars"), language_bundle(tokenizer)
    message = "contrast compares texts that have one label each, but 'stars' is a regression task; choose another scheme"
    with pytest.raises(ConfigError, match=message):
        check_scheme(bundle, task, finetune_config("contrast+lora"))
    check_scheme(bundle, task, finetune_config("lora"))
    check_scheme(bundle, make_task(), finetune_config("contrast"))


CONFIG = ObjectiveConfig(name="contrastive")
EOS, PAD = VOCABULARY.specials.eos, VOCABULARY.specials.pad


@pytest.fixture(scope="module")
def store(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> TokenText:
    """Forty short documents of different lengths."""
    folder = tmp_path_factory.mktemp("documents")
    texts = [" ".join(SENTENCES[n % len(SENTENCES)] for n in range(start, start + 1 + start % 3)) for start in range(40)]
    (folder / "text.txt").write_text("\n".join(texts))
    return tokenized_text([Source(path=str(folder / "text.txt"), document="line")], tokenizer, folder / "cache")


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
    assert batch.documents.tolist() == [n for n in range(len(texts)) for _ in range(2)]
    for row, targets, length, document in zip(batch.ids, batch.targets, batch.lengths, batch.documents, strict=True):
        text = texts[int(document)].tolist()
        crop = torch.where(targets == IGNORE, row, targets)[: int(length)].tolist()
        assert (crop[0], crop[-1]) == (EOS, EOS)
        inner = crop[1:-1]
        assert any(text[start : start + len(inner)] == inner for start in range(len(text)))
        assert max(1, min(len(text) // 4, tokens // 2 - 2)) <= len(inner) <= max(1, 2 * len(text) // 3)


def model_and_loss(
    tokenizer: Tokenizer, store: TokenText, dropout: float = 0.0
) -> tuple[Model, PretrainingRows, ContrastivePretraining]:
    """A tiny model, the rows it reads, and its loss."""
    model = make_language_model(vocab_size=tokenizer.vocab_size, max_length=24, causal=False).train()
    rows = PretrainingRows(store, tokenizer.vocabulary(), CONFIG, 24)
    return model, rows, ContrastivePretraining(model, rows)


def test_the_loss_is_its_formula(tokenizer: Tokenizer, store: TokenText) -> None:
    """Masked cross-entropy, and for each crop the negative log of its sibling's share among all others, by a plain loop."""
    model, rows, loss = model_and_loss(tokenizer, store)
    (batch,) = pretraining_batches(rows, 5, 1, 0)(0)
    with torch.no_grad():
        found = float(loss.loss(batch))
        states = model.backbone.forward_batch(batch).last_hidden_state
        real = torch.arange(states.shape[1]) < batch.lengths[:, None]
        vectors = [F.normalize(states[i][real[i]].mean(dim=0), dim=0) for i in range(10)]
        contrast = 0.0
        for i in range(10):
            shares = {j: float(torch.exp(vectors[i] @ vectors[j] / 0.1)) for j in range(10) if j != i}
            contrast -= float(np.log(shares[i ^ 1] / sum(shares.values())))
        masked = float(model.loss(batch))
    assert found == pytest.approx(masked + 0.15 * rows.mean_tokens / 2 * contrast, rel=1e-4)


def step(model: Model, loss: ContrastiveLoss | ContrastivePretraining, batches: Sequence[Batch]) -> tuple[float, list[Tensor]]:
    """The summed loss of a step, and its gradients."""
    model.zero_grad()
    seed_torch(0, "step", 3)
    total = 0.0
    for batch in loss.prepare(batches):
        part = loss.loss(batch)
        part.backward()
        total += float(part.detach())
    return total, [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_accumulated_batches_compare_all_crops_of_a_step(tokenizer: Tokenizer, store: TokenText) -> None:
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


def test_a_bundle_that_compared_crops_is_continued_as_a_masked_one(tmp_path: Path) -> None:
    """The language head learned to predict masked tokens."""
    words = ["--objective", "contrastive", "--document", "line", "--steps", "3", "--accumulate", "2"]
    assert main(["pretrain", str(corpus(tmp_path)), *words, *QUICK, "--out", str(tmp_path / "run")]) == 0
    assert LanguageTask.of(load_bundle(tmp_path / "run" / "bundle")).objective.name == "masked"
