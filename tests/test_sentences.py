"""The sentences that answer a reader's question, word for word: they are part of the interface, in plain English."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from helpers.curves import curve_of
from helpers.fits import quickstart_result
from helpers.results import continual_result

SAID: dict[str, tuple[Callable[[], Sequence[str]], list[str]]] = {
    "quickstart": (
        lambda: [quickstart_result(with_words=share).bought for share in (0.5, 0.84, 0.9)],
        [
            "With 60 labels, pretraining bought 35 of 100: minilm gets 85 right (83 to 87), words 50.",
            "Not clear that pretraining bought anything: of 100 new texts, minilm gets 85 right, words alone 84.",
            "With 60 labels, pretraining bought nothing: words alone get 90 of 100 right (88 to 92), minilm 85.",
        ],
    ),
    "curve": (
        lambda: curve_of((16, 0.1, 0.02), (64, 0.06, 0.02), (256, 0.01, 0.01)).findings,
        [
            "With 16 to 64 labels, lp-ft is better than from scratch: +10.0 points (+7.2 to +12.8) with 16, +6.0 points (+3.2 to "
            "+8.8) with 64.",
            "Lp-ft is not expected to reach 95.0% with less than 10 times the 256 labels at hand.",
            "16 labels with lp-ft are worth about 490 with from scratch (90% interval 120 to more than 2,600).",
        ],
    ),
    "continual": (
        lambda: continual_result({"none": 0.6, "joint": 0.75}).findings,
        [
            "With learning in turn, by the end, the score on a fell from 90.1% to 59.7% (95% interval of the change -35.9 to "
            "-24.9 points, over 5 seeds and the test texts; corrected p < 0.001)."
        ],
    ),
}


def test_results_say_this() -> None:
    """Each of these sentences is among the findings."""
    assert [sentence for make, expected in SAID.values() for sentence in {*expected} - {*make()}] == []
