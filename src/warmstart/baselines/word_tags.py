"""Tagging without context: each word gets the tag that it most often has in training."""

from __future__ import annotations

from collections import Counter, defaultdict

from warmstart.baselines.baseline import Predict, Sample
from warmstart.tasks.tagging import certain_tags


def most_frequent_tags(sample: Sample, setting: float) -> Predict:
    """The most frequent tag of each word; an unknown word gets the most frequent tag of all."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for words, tags in zip(sample.rows, sample.labels, strict=True):
        for word, tag in zip(words, tags, strict=True):
            counts[word][int(tag)] += 1
    (default, _), *_ = sum(counts.values(), Counter()).most_common(1)
    best = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    return lambda rows: certain_tags([[best.get(word, default) for word in words] for words in rows], len(sample.task.labels))
