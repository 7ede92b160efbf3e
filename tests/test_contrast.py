"""The contrastive loss: the equation, what it does not depend on, and a step of several batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.bundles import classifier, finetune_config, language_bundle, make_task
from helpers.models import make_backbone
from warmstart.data.batches import class_pairs
from warmstart.data.task import Task
from warmstart.errors import ConfigError
from warmstart.finetuning.contrast import Contrast, ContrastiveLoss
from warmstart.finetuning.encoded_task import EncodedTask
from warmstart.finetuning.finetune import check_scheme, fine_tune
from warmstart.finetuning.language_loss import LanguageTask
from warmstart.finetuning.task_loss import task_loss
from warmstart.heads.classification import ClassificationHeadConfig
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.comparison import ComparedBatch, contrastive_loss
from warmstart.seeding import rng, seed_torch
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import Batch

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


@settings(deadline=None, max_examples=50)
@given(SEEDS)
def test_order_lengths_and_names_of_classes_do_not_matter(seed: int) -> None:
    """The loss of each text stays the same."""
    vectors, labels = drawn(seed)
    found = contrastive_loss(vectors, labels, 0.3)
    order = torch.from_numpy(rng(seed, "order").permutation(len(labels)))
    torch.testing.assert_close(contrastive_loss(vectors[order], labels[order], 0.3), found[order], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(contrastive_loss(7 * vectors, 5 - labels, 0.3), found, atol=1e-5, rtol=1e-5)


def test_a_text_alone_with_its_label_is_only_among_the_others() -> None:
    """Its own loss is 0; the texts beside it are pushed away from it; alone in a step it has a gradient of 0."""
    vectors, labels = torch.eye(4)[[0, 0, 1]], torch.tensor([0, 0, 1])
    found = contrastive_loss(vectors, labels, 1.0)
    assert found.tolist() == pytest.approx([math.log1p(math.exp(-1)), math.log1p(math.exp(-1)), 0])
    assert contrastive_loss(vectors[:2], labels[:2], 1.0).tolist() == [0, 0]
    alone = torch.ones(1, 4, requires_grad=True)
    contrastive_loss(alone, torch.tensor([0]), 1.0).sum().backward()
    assert alone.grad is not None
    assert not alone.grad.any()


def test_a_lower_temperature_looks_at_the_nearest_texts() -> None:
    """The share of the gradient that falls on the most similar text of another label grows."""
    shares = []
    for temperature in (1.0, 0.1):
        vectors = torch.tensor([[1.0, 0, 0], [0.8, 0.6, 0], [0.9, 0, 0.43], [-1, 0, 0.1]], requires_grad=True)
        contrastive_loss(vectors, torch.tensor([0, 0, 1, 2]), temperature)[0].backward()
        assert vectors.grad is not None
        near, far = vectors.grad[2].norm(), vectors.grad[3].norm()
        shares.append(float(near / (near + far)))
    assert shares[0] < shares[1]


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


def step(model: Model, loss: ContrastiveLoss, batches: Sequence[Batch]) -> tuple[float, list[torch.Tensor]]:
    """The summed loss of a step, and its gradients."""
    model.zero_grad()
    seed_torch(0, "step", 3)
    total = 0.0
    for batch in loss.prepare(batches):
        part = loss.loss(batch)
        part.backward()
        total += float(part.detach())
    return total, [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("sizes", [(4, 4, 4), (1, 5, 2, 4), (11, 1), (1,) * 12])
def test_several_batches_equal_a_large_one(sizes: tuple[int, ...]) -> None:
    """Texts are compared across all batches of a step: value and gradients are those of a single batch."""
    model, loss = contrastive()
    whole, gradients = step(model, loss, make_batches([sum(sizes)]))
    split, others = step(model, loss, make_batches(sizes))
    assert split == pytest.approx(whole, rel=1e-5)
    for one, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-4)


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
        assert isinstance(batch, ComparedBatch)
        assert batch.targets is not None
        seed_torch(batch.dropout[0], "contrast", batch.dropout[1])
        states = model.backbone.forward_batch(batch).last_hidden_state
        vectors.append(model.head.pooling(states, batch.attention_mask))  # type: ignore[operator]
        part = 0.3 * vectors[-1] + 0.7 * vectors[-1].detach()
        total = total + task_loss(None, 0.0)(model.head(part[:, None]), batch.targets)
    labels = torch.cat([batch.targets for batch in batches if batch.targets is not None])
    total = total + 0.7 * contrastive_loss(torch.cat(vectors), labels, 0.2).sum()
    total.backward()
    assert found == pytest.approx(float(total.detach()), rel=1e-5)
    for one, other in zip(gradients, [p.grad for p in model.parameters() if p.grad is not None], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    assert step(model, loss, batches)[0] == found
    whole = step(model, loss, make_batches([12]))[0]
    assert whole != pytest.approx(found, rel=1e-3)  # dropout does drop


@pytest.mark.parametrize("names", ["contrast", "contrast+lora", "contrast+lp-ft", "contrast+lm-loss"])
def test_accumulated_batches_train_as_one(names: str, tokenizer: Tokenizer) -> None:
    """A whole run: three batches of four in a step, and one of twelve, lead to the same weights."""
    weights = []
    for batch, accumulate in ((12, 1), (4, 3)):
        model, train = classifier(tokenizer), {"batch": batch, "accumulate": accumulate, "steps": 3, "precision": "float32"}
        config = finetune_config(names, head_dropout=0.0, train=train, options={"lm_weight": 1e-9})
        model.head.dropout.p = 0.0  # type: ignore[union-attr, operator]
        encoded = EncodedTask.of(make_task(), model, tokenizer)
        fine_tune(model, encoded, config, 0, language=LanguageTask.of(language_bundle(tokenizer)))
        weights.append(model.weights())
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, atol=2e-4, rtol=1e-3)


def test_texts_of_a_class_come_nearer(tokenizer: Tokenizer) -> None:
    """The contrastive loss of the training texts falls."""
    task, model = make_task(), classifier(tokenizer)
    encoded = EncodedTask.of(task, model, tokenizer)
    losses = []
    for _ in range(2):
        batch = encoded.train.batch(np.arange(len(task.train)), None, encoded.pad_id, causal=False)
        with torch.no_grad():
            states = model.backbone.forward_batch(batch).last_hidden_state.mean(dim=1)
        losses.append(float(contrastive_loss(states, torch.from_numpy(task.train.labels), 0.3).mean()))
        fine_tune(model, encoded, finetune_config("contrast"), 0)
    assert losses[1] < 0.9 * losses[0]


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


def test_other_tasks_are_refused_before_anything_trains(tokenizer: Tokenizer) -> None:
    """With the name and the type of the task."""
    task: Task = replace(make_task(), type="regression", name="stars")
    bundle = language_bundle(tokenizer)
    with pytest.raises(ConfigError) as error:
        check_scheme(bundle, task, finetune_config("contrast+lora"))
    assert str(error.value) == (
        "contrast compares texts that have one label each, but 'stars' is a regression task; choose another scheme"
    )
    check_scheme(bundle, task, finetune_config("lora"))
    check_scheme(bundle, make_task(), finetune_config("contrast"))
