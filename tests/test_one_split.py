"""Intervals that hold for one split only: every page that has them says so, and so do the sentences in the terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.bundles import language_bundle
from helpers.curves import curve_of, race_with
from helpers.races import race_result
from helpers.results import adapt_result, answers_result, continual_result, report_of
from warmstart.commands.adapt.page import write_adapt_page, write_answers_page
from warmstart.commands.continual import write_continual_page
from warmstart.commands.race.page import write_race_page
from warmstart.config import Config
from warmstart.stats.splits import THIS_SPLIT
from warmstart.tokenizer.tokenizer import Tokenizer

SCORES = {"pretrained": 0.8, "TF-IDF": 0.72}
WRITERS: dict[str, Callable[[Tokenizer, Path], object]] = {
    "adapt": lambda tokenizer, folder: write_adapt_page(adapt_result(SCORES), language_bundle(tokenizer), Config(), folder),
    "answers": lambda _, folder: write_answers_page(answers_result(), Config(), folder),
    "continual": lambda _, folder: write_continual_page(continual_result({"none": 0.6}), Config(), folder),
    "curve": lambda _, folder: write_race_page(race_with(curve_of((16, 0.1, 0.02), (60, 0.06, 0.02))), Config(), folder),
    "race": lambda _, folder: write_race_page(race_result(SCORES), Config(), folder),
}
"""writes the page of a result whose intervals hold for one split"""


def test_every_page_with_intervals_over_one_split_says_so(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In some paragraph, for all intervals or for those with many labels."""
    for command, write in WRITERS.items():
        report = report_of(monkeypatch, lambda write=write: write(tokenizer, tmp_path))
        texts = [text for section in report.sections for text in section.text]
        assert any(THIS_SPLIT.partition(" hold ")[2][:-1] in text for text in texts), (command, texts)
