"""What the quickstart says of its fit and of more labels."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.fits import quickstart_result
from warmstart.experiment.fit_result import MOST_LINES


@pytest.mark.parametrize("with_words", [0.5, 0.84, 0.95])
def test_what_was_bought_is_short_and_has_both_scores(with_words: float) -> None:
    """Whoever wins: of 100 new texts, 85 by the encoder, and those by words."""
    bought = quickstart_result(with_words).bought
    assert len(bought.split()) <= 25
    assert "85" in bought
    assert f"{100 * with_words:.0f}" in bought


def test_the_terminal_shows_every_number_of_labels_in_few_lines() -> None:
    """Two lines come before these, while it computes."""
    lines = quickstart_result().lines(Path("q"), Path("q/report.html"))
    assert len(lines) <= MOST_LINES - 2
    table = [line.split()[-2:] for line in lines[3:] if "minilm" in line or "naive" in line]
    assert table == [["85", "90"], ["60", "80"]]
