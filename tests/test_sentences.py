"""The sentences that the program prints are part of its interface: changes are seen, and percentages are written one way."""

from __future__ import annotations

import re

from helpers.sentences import GOLDEN, all_sentences


def test_sentences_change_on_purpose() -> None:
    """Every finding, error, message and help text is listed in a file, so that a change of wording shows in its diff."""
    listed, present = (set(text.splitlines()) for text in (GOLDEN.read_text(encoding="utf-8"), all_sentences()))
    assert GOLDEN.read_text(encoding="utf-8") == all_sentences(), (
        f"new: {sorted(present - listed)}\ngone: {sorted(listed - present)}\n"
        "if this is intended, write the list anew: cd tests && python -m helpers.sentences"
    )


def test_percentages_have_no_space() -> None:
    """``27.2%``, as English writes it, not ``27.2 %``."""
    wrong = [line for line in all_sentences().splitlines() if re.search(r"[\d}] %", line)]
    assert not wrong, wrong
