"""The table of rooms in docs/explanation/architecture.md is a limit: who brings something in takes something out."""

from __future__ import annotations

import benchmarks.house as house


def test_no_room_is_above_its_row() -> None:
    """Lines of packages and tests, words of documents, commands and settings; `python -m benchmarks.house` prints them."""
    assert not house.problems(house.counts(), house.rows())


def test_a_room_that_grows_or_has_no_row_is_named() -> None:
    """With the count and the row."""
    assert house.problems({"heads": 700, "new": 1}, {"heads": 640, "gone": 5}) == [
        "'heads' has 700, above its row of 640",
        "'gone' has no row, or no room",
        "'new' has no row, or no room",
    ]
