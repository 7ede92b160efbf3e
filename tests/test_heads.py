"""Heads and poolings: what is read, and that padding never is."""

from __future__ import annotations

import pytest
import torch

from conftest import make_backbone
from warmstart.errors import ConfigError, ModelError
from warmstart.heads import POOLINGS, ClassifyHeadConfig, LanguageHeadConfig, head_config, make_head

STATES = torch.arange(24, dtype=torch.float32).view(2, 4, 3)
RIGHT = torch.tensor([[True, True, False, False], [True, True, True, True]])
LEFT = RIGHT.flip(1)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("mask", [RIGHT, LEFT])
def test_padding_is_never_read(pooling: str, mask: torch.Tensor) -> None:
    """Whatever stands in padding, on either side, the pooled state is that of the real tokens alone."""
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


def test_a_tied_language_head_shares_the_embedding() -> None:
    """One parameter, two uses; a free head has its own, and a bias where it is asked for."""
    backbone = make_backbone()
    tied = make_head(LanguageHeadConfig(), 16, backbone.embedding.weight)
    assert tied.weight is backbone.embedding.weight
    free = make_head(LanguageHeadConfig(tied=False, bias=True), 16, backbone.embedding.weight)
    assert free.weight is not backbone.embedding.weight
    assert free(torch.zeros(1, 2, 16)).shape == (1, 2, 60)
    with pytest.raises(ModelError, match="embedding of width 8 was expected"):
        make_head(LanguageHeadConfig(), 8, backbone.embedding.weight)


def test_settings_of_heads_are_checked() -> None:
    """Unknown kinds, poolings and keys are named with the nearest known one."""
    with pytest.raises(ConfigError, match="unknown head 'clasify'; did you mean 'classify'"):
        head_config({"kind": "clasify"})
    with pytest.raises(ConfigError, match="unknown pooling 'maen'; did you mean 'mean'"):
        ClassifyHeadConfig(classes=2, pooling="maen")
    with pytest.raises(ModelError, match="must name its kind"):
        head_config({"classes": 2})
    with pytest.raises(ConfigError, match="unknown key 'pool'; did you mean 'pooling'"):
        head_config({"kind": "classify", "classes": 2, "pool": "mean"})
