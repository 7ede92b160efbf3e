"""Heads and poolings: which hidden states they read, and that they never read padding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from helpers.models import make_backbone
from warmstart.errors import ConfigError, ModelError
from warmstart.heads import head_config, make_head
from warmstart.heads.classification import ClassificationHeadConfig
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.heads.pooling import POOLINGS

STATES = torch.arange(24, dtype=torch.float32).view(2, 4, 3)
RIGHT = torch.tensor([[True, True, False, False], [True, True, True, True]])
LEFT = RIGHT.flip(1)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("mask", [RIGHT, LEFT])
def test_padding_is_never_read(pooling: str, mask: torch.Tensor) -> None:
    """Whatever padding holds, on either side, the pooled state is that of the real tokens alone."""
    spoiled = torch.where(mask[..., None], STATES, 1e6)
    pooled = POOLINGS[pooling](spoiled, mask)
    for i in range(2):
        alone = POOLINGS[pooling](STATES[i][mask[i]][None], None)
        torch.testing.assert_close(pooled[i], alone[0])


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
