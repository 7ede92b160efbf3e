"""The sentences that answer a reader's question, word for word: they are part of the interface, in plain English."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from helpers.bundles import classifier
from helpers.curves import curve_of
from helpers.fits import quickstart_result
from helpers.races import race_result
from helpers.results import adapt_result, continual_result
from helpers.tasks import cats
from warmstart.cli import main
from warmstart.data.audit import audit
from warmstart.labelling.outlook import Outlook
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.stats.abstention import Threshold
from warmstart.tokenizer.tokenizer import Tokenizer

SAID: dict[str, tuple[Callable[[], Sequence[str]], list[str]]] = {
    "race": (
        lambda: race_result({"pretrained": 0.8, "TF-IDF + logistic regression": 0.72}).findings,
        [
            "Use pretrained. 3 simulated users with 60 labels each let these choose: all chose pretrained.",
            "On test texts that no draw has seen, what the draws chose reaches 81.0% on average (95% interval of that average 78.5 "
            "to 83.5, over 3 seeds and the test texts); a single user should expect 76 to 86%.",
            "Only 20 labels choose, which is few.",
        ],
    ),
    "adapt": (
        lambda: adapt_result({"pretrained": 0.76, "from scratch": 0.6, "TF-IDF": 0.75}).findings,
        [
            "Undecided: pretrained is ahead of TF-IDF by 2.2 points (95% interval -7.5 to +11.8, over 3 seeds and the test texts). "
            "A run of this size finds a lead of 19.6 points in 4 of 5 cases; with 10 seeds about 6.",
            "Pretrained is better than from scratch by 14.2 points (95% interval 7.8 to 20.5, over 3 seeds and the test texts).",
            "80 labels: 60 to learn, 20 to choose.",
        ],
    ),
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
            "-24.9 points, over 5 seeds and the test texts; corrected p < 0.001).",
        ],
    ),
    "audit": (
        lambda: [finding.sentence for finding in audit(cats()).findings()],
        [
            "20 short texts of test (66.7%) are like one of train but for a few words, such as 'We rubs a river in 3035.' and 'We "
            "rubs a river in 6162.': alike, not copies."
        ],
    ),
    "abstention": (
        lambda: [Threshold(at, errors, 0.95, 100, 5, 200).sentence() for at, errors in ((0.5, 0.1), (float("inf"), 0.01))],
        [
            "With a confidence threshold of 0.5, at most 10% of the predictions that reach it are wrong, with 95% confidence. "
            "Of 200 held-out examples, 100 (50%) reach it, and 5 of those are wrong.",
            "No threshold can guarantee at most 1% errors with 95% confidence from these 200 held-out examples, so the model "
            "always abstains. Allow more errors, or hold out more examples.",
        ],
    ),
    "labelling": (
        lambda: [Outlook((), 500, 500, gain, 0.001, high).sentence() for gain, high in ((0.02, 0.04), (0.001, 0.002))],
        [
            "500 more labels would bring about 2.0 points (0.1 to 4.0 in 9 of 10 refits).",
            "More labels hardly pay: 500 more would bring at most 0.2 points in 9 of 10 refits.",
        ],
    ),
}


def test_results_say_this() -> None:
    """Each of these sentences is among the findings."""
    assert [sentence for make, expected in SAID.values() for sentence in {*expected} - {*make()}] == []


def test_the_doctor_says_this(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a sound model, of one whose weights were changed, and of none."""
    monkeypatch.chdir(tmp_path)
    weights = save(Bundle(classifier(tokenizer), tokenizer, ("no", "yes")), tmp_path / "model") / "weights.safetensors"
    assert main(["doctor", "model"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"model is sound: every file and tensor matches its hash, and it passes \d+ checks\.$", said)
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    assert main(["doctor", "model"]) == 2
    assert main(["doctor", "none"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "warmstart: model/weights.safetensors does not hold what was saved: head.score.weight has changed; copy it again",
        "warmstart: there is no bundle at none: a folder with bundle.json was expected",
    ]
