"""Registries: read-only tables whose missing names are errors with a suggestion."""

from __future__ import annotations

import pytest

from warmstart.errors import ConfigError, suggest
from warmstart.registry import Registry

FRUIT = Registry("fruit", {"apple": 1, "pear": 2})


def test_a_registry_is_a_mapping() -> None:
    """It has names, rows and a length, in the order in which they were given."""
    assert dict(FRUIT) == {"apple": 1, "pear": 2}
    assert len(FRUIT) == 2
    assert "apple" in FRUIT
    assert "aple" not in FRUIT
    assert FRUIT.known("pear") == "pear"


def test_a_missing_name_suggests_the_nearest() -> None:
    """As a ``ConfigError`` that lists all names."""
    for ask in (FRUIT.__getitem__, FRUIT.known):
        with pytest.raises(ConfigError, match="unknown fruit 'aple'; did you mean 'apple'. known: apple, pear"):
            ask("aple")


def test_a_name_like_no_other_gets_the_list_alone() -> None:
    """Sorted, without a suggestion."""
    assert suggest("xyz", ["b", "a"]) == "known: a, b"
