"""Heads: one contract for all; which hidden states they read, and that they never read padding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from helpers.bundles import HEAD_CASES, bundle_with
from helpers.models import make_backbone
from warmstart.commands.cost import CostConfig, _workload
from warmstart.cost import measured
from warmstart.cost.cost import cost_of
from warmstart.cost.workload import Workload
from warmstart.errors import ConfigError, ModelError
from warmstart.heads import HEADS, head_config, make_head
from warmstart.heads.classification import ClassificationHeadConfig
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.heads.pooling import POOLINGS
from warmstart.model.files import load_bundle, save
from warmstart.model.history import OtherRecord
from warmstart.objectives.config import ObjectiveConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.config import TrainConfig

STATES = torch.arange(24, dtype=torch.float32).view(2, 4, 3)
RIGHT = torch.tensor([[True, True, False, False], [True, True, True, True]])
LEFT = RIGHT.flip(1)


@pytest.mark.usefixtures("no_second_process")
@pytest.mark.parametrize("kind", HEADS)
def test_every_head_keeps_its_contract(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Loaded again it gives the same logits to the bit; it trains on random rows, and its FLOPs are torch's count."""
    cases = [case for case in HEAD_CASES if case.kind == kind]
    assert cases, "a new head joins HEAD_CASES"
    for number, config in enumerate(cases):
        history = (OtherRecord(name="test", details={"kept": [1, 2]}),)
        before = replace(bundle_with(tokenizer, config, causal=number % 2 == 0), history=history)
        after = load_bundle(save(before, tmp_path / str(number)), selftest=True)
        with torch.no_grad():
            ids = torch.tensor([[5, 9, 2, 7]])
            assert torch.equal(before.model(ids), after.model(ids)), config
        assert after.tokenizer.digest == tokenizer.digest
        assert (after.labels, after.history, after.model.causal) == (before.labels, before.history, before.model.causal)
    model = bundle_with(tokenizer, cases[0]).model
    workload = _workload(CostConfig(train=TrainConfig(batch=3), length=8), model, ObjectiveConfig())
    assert workload.batch == (4 if kind == "multiple-choice" else 3), "whole questions"
    assert measured._run("inference", model, workload, TrainConfig()) > 0
    if kind == "embedding":
        with pytest.raises(ModelError, match="an embedding head has no loss"):
            measured._run("training", model, workload, TrainConfig())
        return
    assert measured._run("training", model, workload, TrainConfig()) > 0
    model.zero_grad()
    with FlopCounterMode(display=False) as counter:
        model.loss(measured._random_batch(model, Workload(batch=4, tokens=16), 0)).backward()
    per_token = cost_of(model, Workload(batch=4, tokens=16)).flops.training
    assert per_token * 4 * 16 == pytest.approx(counter.get_total_flops(), rel=1e-9)


def test_padding_is_never_read() -> None:
    """Whatever padding holds, on either side, the pooled state is that of the real tokens alone."""
    for name, pooling in POOLINGS.items():
        for mask in (RIGHT, LEFT):
            pooled = pooling(torch.where(mask[..., None], STATES, 1e6), mask)
            for i in range(2):
                torch.testing.assert_close(pooled[i], pooling(STATES[i][mask[i]][None], None)[0], msg=name)


def test_poolings_by_literal_numbers() -> None:
    """First, last and mean of a two-token text."""
    assert POOLINGS["first"](STATES, RIGHT)[0].tolist() == [0, 1, 2]
    assert POOLINGS["last"](STATES, RIGHT)[0].tolist() == [3, 4, 5]
    assert POOLINGS["mean"](STATES, RIGHT)[0].tolist() == [1.5, 2.5, 3.5]
    assert POOLINGS["last"](STATES, LEFT)[0].tolist() == [9, 10, 11]


def test_a_tied_language_modeling_head_shares_the_embedding() -> None:
    """A tied head uses the embedding itself; an untied one has its own weight, and a bias if it is wanted."""
    backbone = make_backbone()
    tied = make_head(LMHeadConfig(), 16, backbone.embedding.weight)
    assert tied.weight is backbone.embedding.weight
    untied = make_head(LMHeadConfig(tied=False, bias=True), 16, backbone.embedding.weight)
    assert untied.weight is not backbone.embedding.weight
    assert untied(torch.zeros(1, 2, 16)).shape == (1, 2, 60)
    with pytest.raises(ModelError, match="the embedding must have width 8, but has shape"):
        make_head(LMHeadConfig(), 8, backbone.embedding.weight)


def test_settings_of_heads_are_checked() -> None:
    """Errors name unknown kinds, poolings and keys with the nearest known one."""
    with pytest.raises(ConfigError, match="unknown head 'clasification'; did you mean 'classification'"):
        head_config({"kind": "clasification"})
    with pytest.raises(ConfigError, match="unknown pooling 'maen'; did you mean 'mean'"):
        ClassificationHeadConfig(classes=2, pooling="maen")
    with pytest.raises(ModelError, match="must name its kind"):
        head_config({"classes": 2})
    with pytest.raises(ConfigError, match="unknown key 'pool'; did you mean 'pooling'"):
        head_config({"kind": "classification", "classes": 2, "pool": "mean"})


def test_the_classification_loss_is_summed() -> None:
    """It is a sum and not a mean, so that the losses of accumulated batches add up."""
    head = make_head(ClassificationHeadConfig(classes=3), 16, torch.zeros(60, 16))
    logits, targets = torch.randn(6, 3), torch.randint(0, 3, (6,))
    torch.testing.assert_close(head.loss(logits, targets), 6 * F.cross_entropy(logits, targets))
