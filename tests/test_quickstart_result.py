"""What the quickstart reports of several numbers of labels."""

from __future__ import annotations

from helpers.results import quickstart_result
from warmstart.stats.comparison import compare_pairs

SCORES = {
    40: {"pretrained": 0.75, "from scratch": 0.5, "TF-IDF": 0.7},
    80: {"pretrained": 0.85, "from scratch": 0.6, "TF-IDF": 0.76},
}


def test_all_numbers_of_labels_are_one_family() -> None:
    """Every p-value but that of pretrained against from scratch with the most labels is corrected for all others."""
    result = quickstart_result(SCORES)
    pairs = [pair for one in result.adaptations for pair in one.comparison.pairs]
    compared = compare_pairs(pairs, primary=3)
    assert [one.names[1] for one in compared] == ["TF-IDF", "from scratch"] * 2
    sentences = [found.sentence for found in compared]
    assert [sentence for _, sentence in result.comparisons] == sentences
    assert [found.comparisons for found in compared] == [3, 3, 3, 1]
    labels = [one.labels for one in result.adaptations for _ in range(2)]
    assert result.findings[:4] == [f"{n} labels: {sentence}" for n, sentence in zip(labels, sentences, strict=True)]
    assert result.headline.endswith(" ".join(sentences[2:]))
