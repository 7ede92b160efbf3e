"""Registries: read-only tables whose missing names are errors with a suggestion."""

from __future__ import annotations

import pytest

from warmstart.commands.settings import PredictConfig
from warmstart.errors import ConfigError, suggest
from warmstart.finetuning.config import STRATEGY_NAMES
from warmstart.finetuning.strategies import STRATEGIES
from warmstart.heads.pooled import POOLINGS
from warmstart.heads.settings import POOLING_NAMES
from warmstart.registry import Registry
from warmstart.tasks.unknown import UNKNOWN_SHARE


def test_a_registry_is_a_mapping_that_suggests_the_nearest_name() -> None:
    """Names, rows and a length in the order given; a ``ConfigError`` lists all names of what is missing."""
    fruit = Registry("fruit", {"pear": 2, "apple": 1})
    assert (list(fruit.items()), len(fruit), "apple" in fruit, "aple" in fruit) == ([("pear", 2), ("apple", 1)], 2, True, False)
    assert fruit.known("pear") == "pear"
    for ask in (fruit.__getitem__, fruit.known):
        with pytest.raises(ConfigError, match="unknown fruit 'aple'; did you mean 'apple'. known: apple, pear"):
            ask("aple")
    assert suggest("xyz", ["b", "a"]) == "known: a, b"


def test_settings_know_what_they_do_not_import() -> None:
    """The names of poolings and strategies, in the order of their tables, and the share of texts that may be marked as unknown."""
    assert ([*POOLING_NAMES], [*STRATEGY_NAMES]) == ([*POOLINGS], [*STRATEGIES])
    assert PredictConfig.model_fields["unknown_share"].default == UNKNOWN_SHARE
