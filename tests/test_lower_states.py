"""Where the lowest blocks are frozen, each text is read by them once: the same result, whatever is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.bundles import finetune_config, language_bundle, make_task
from helpers.models import SENTENCES, make_backbone
from warmstart.data.batches import labelled_batches
from warmstart.data.encode import encode
from warmstart.finetuning import inputs as lower_states
from warmstart.finetuning.finetune import FineTuneResult, FineTuning, fine_tune, task_model
from warmstart.finetuning.inputs import EncodedTask, LowerStates, frozen_blocks
from warmstart.finetuning.losses import Contrast, ContrastiveLoss, LanguageTask, task_loss
from warmstart.finetuning.scheme import apply_scheme
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.model.model import Model
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import Batch

DEEP: list[dict[str, Any]] = [
    {"depth": 5, "dropout": 0.3},
    {"depth": 4, "norm": "post", "positions": "learned", "embedding_norm": True, "token_types": 2},
    {"depth": 4, "window": 1, "global_every": 2, "window_rotary_base": 500.0},
    {"depth": 4, "norm_type": "rms", "activation": "swiglu", "bias": False, "kv_heads": 1, "qk_norm": True},
]
"""backbones of which the lower half stays frozen"""


def prepared(tokenizer: Tokenizer, names: str = "contrast", **switches: Any) -> tuple[Model, EncodedTask]:
    """A model as a run of this scheme begins with it, and the task as it reads it."""
    task, config = make_task(), finetune_config(names)
    bundle = language_bundle(tokenizer, **switches)
    model = task_model(bundle, task, config, 0, scratch=False)
    encoded = EncodedTask.of(task, model, tokenizer)
    FineTuning(encoded, config, 0, "", LanguageTask.of(bundle)).prepare(model)
    return model.train(), encoded


@pytest.mark.parametrize("switches", DEEP)
def test_blocks_go_on_from_states(switches: dict[str, Any]) -> None:
    """From what any block read, the others end where all blocks end; a part of the blocks gives a part of the states."""
    backbone, ids = make_backbone(**switches), torch.randint(21, 60, (3, 7), generator=torch.Generator().manual_seed(0))
    batch = Batch(ids, attention_mask=torch.arange(7) < torch.tensor([7, 4, 2])[:, None], causal=False)
    whole = backbone.forward_batch(batch)
    for block in range(switches["depth"] + 1):
        lower = backbone.forward_part(batch, range(block))
        assert len(lower.hidden_states) == block + 1
        torch.testing.assert_close(lower.hidden_states, whole.hidden_states[: block + 1], atol=0, rtol=0)
        upper = backbone.forward_batch(replace(batch, states=lower.hidden_states[-1], from_block=block))
        torch.testing.assert_close(upper.last_hidden_state, whole.last_hidden_state, atol=0, rtol=0)


def test_only_the_last_half_of_the_blocks_trains(tokenizer: Tokenizer) -> None:
    """Of five blocks three, of three blocks all, at the same low rate; the count is what changed."""
    for depth, frozen in ((5, 2), (4, 2), (3, 0)):
        bundle, task, config = language_bundle(tokenizer, depth=depth), make_task(), finetune_config("contrast")
        model = task_model(bundle, task, config, 0, scratch=False)
        before = {name: one.detach().clone() for name, one in model.weights().items()}
        done = fine_tune(model, EncodedTask.of(task, model, tokenizer), config, 0, "")
        changed = {name for name, one in done.model.weights().items() if not one.equal(before[name])}
        below = ("backbone.embedding.", *(f"backbone.blocks.{number}." for number in range(frozen)))
        assert changed == {name for name in before if not frozen or not name.startswith(below)}
        assert done.trainable == sum(before[name].numel() for name in changed)
        *groups, head = apply_scheme(model, make_scheme("contrast"))
        assert ({group.rate_factor for group in groups}, head.rate_factor) == ({0.25}, 50.0)


@pytest.mark.parametrize("switches", DEEP)
def test_kept_states_give_the_same_loss_and_gradients(switches: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Of a batch of texts of different lengths, padded to its own longest, in one batch and in several."""
    model, encoded = prepared(tokenizer, **switches)
    kept = encoded.with_lower_states(model)
    for size in ((5, 1), (3, 2)):
        found = []
        for one in (encoded, kept):
            loss = ContrastiveLoss(model, Contrast(1.0, 0.1), task_loss(None, 0.0))
            batches = labelled_batches(one.train, one.task.train.labels, size, 0, one.pad_id, causal=False)(0)
            assert [batch.states is not None for batch in batches] == [one is kept] * len(batches)
            model.zero_grad()
            total = sum(loss.loss(batch) for batch in loss.prepare(batches))
            assert isinstance(total, torch.Tensor)
            total.backward()
            found.append((total.detach(), [p.grad for p in model.parameters()]))
            assert all((p.grad is not None) == p.requires_grad for p in model.parameters())
        torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-4)


def run(tokenizer: Tokenizer, names: str, limit: int, **changes: Any) -> tuple[FineTuneResult, EncodedTask]:
    """A run that keeps states up to a limit."""
    task, config, bundle = make_task(), finetune_config(names, **changes), language_bundle(tokenizer, depth=4, dropout=0.3)
    if changes:
        texts = tuple(f"{text} {'I rub it and hold it. ' * 4}" for text in task.train.texts)
        task = task.with_train(replace(task.train, texts=texts))
    model = task_model(bundle, task, config, 0, scratch=False)
    encoded = replace(EncodedTask.of(task, model, tokenizer), lower=LowerStates(limit))
    return fine_tune(model, encoded, config, 0, "", LanguageTask.of(bundle)), encoded


CASES = {
    "contrast": 2, "contrast+discriminative": 2, "contrast+lm-loss": 2, "contrast+lp-ft": 2, "contrast+gradual": 2,
    "contrast+lora": 0, "contrast+scalar-mix": 0, "contrast+full": 0,
}  # fmt: skip
"""schemes, and how many blocks of four have read each text before"""


@pytest.mark.parametrize("names", CASES)
def test_a_run_ends_the_same_without_room(names: str, tokenizer: Tokenizer) -> None:
    """With every scheme that contrast goes with; only where the lower blocks are frozen is anything kept."""
    (kept, encoded), (computed, without) = (run(tokenizer, names, limit) for limit in (2**20, 0))
    np.testing.assert_allclose(kept.test_predictions, computed.test_predictions, atol=1e-4)
    np.testing.assert_allclose(kept.validation_predictions, computed.validation_predictions, atol=1e-4)
    assert (kept.trainable, kept.training.tokens) == (computed.trainable, computed.training.tokens)
    different = len(set(encoded.task.train.texts))
    assert (encoded.lower.texts_computed, without.lower.texts_computed) == (different if CASES[names] else 0, 0)
    assert frozen_blocks(prepared(tokenizer, names, depth=4)[0]) == CASES[names]


def test_windows_of_a_text_are_kept_too(tokenizer: Tokenizer) -> None:
    """Each window is a row with states of its own."""
    (kept, encoded), (computed, _) = (run(tokenizer, "contrast", limit, windows="mean") for limit in (2**20, 0))
    assert encoded.lower.texts_computed > len(encoded.train)
    np.testing.assert_allclose(kept.test_predictions, computed.test_predictions, atol=1e-4)


def test_texts_are_read_once_for_all_runs_on_a_backbone(tokenizer: Tokenizer) -> None:
    """Folds, the last fit and another seed compute nothing again; other lower weights do, upper ones do not."""
    model, encoded = prepared(tokenizer, depth=4)
    for learn in (np.arange(8), np.arange(4, 12), np.arange(12)):
        part = replace(encoded, train=encoded.train.take(learn)).with_lower_states(model)
        assert [tuple(states.shape) for states in part.train.states] == [(len(row), 16) for row in part.train.rows]
    assert encoded.lower.texts_computed == 12
    with torch.no_grad():
        model.backbone.blocks[2].norm_1.bias.add_(1)
    encoded.with_lower_states(model)
    assert encoded.lower.texts_computed == 12
    with torch.no_grad():
        model.backbone.blocks[1].norm_1.bias.add_(1)
    found = encoded.with_lower_states(model)
    assert encoded.lower.texts_computed == 24
    expected = model.backbone.forward_batch(encoded.train.batch(np.array([3]), None, 0, causal=False)).hidden_states[2]
    torch.testing.assert_close(found.train.states[3], expected[0], atol=1e-5, rtol=1e-5)


def test_memory_is_bounded(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts that learn come first; those for which there is no room are read at every step; old ones give way."""
    model, encoded = prepared(tokenizer, depth=4)
    texts = encode(tokenizer, SENTENCES, 32)
    sizes = [4 * 16 * sum(map(len, one.rows)) for one in (encoded.train, texts)]
    both, shorter = sum(sizes), sizes[1] < sizes[0]
    for limit, expected in ((both, [True, True]), (both - 1, [True, False]), (sizes[0] - 1, [False, shorter])):
        kept = LowerStates(limit)
        found = kept.added(model, (encoded.train, texts), encoded.pad_id)
        assert [bool(one.states) for one in found] == expected
    kept = LowerStates(max(sizes))
    for number, split in enumerate((texts, encoded.train, encoded.train, texts)):
        (found_now,) = kept.added(model, (split,), encoded.pad_id)
        assert found_now.states
        assert sum(4 * one.numel() for one in kept._known.values()) <= kept.limit, number
    assert kept.texts_computed == 2 * len(texts) + len(encoded.train)
    monkeypatch.setattr(lower_states, "row_keys", pytest.fail)
    assert LowerStates(0).added(model, (texts,), encoded.pad_id) == [texts]
