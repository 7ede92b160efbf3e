"""The simplest baselines: a constant prediction, each word's most frequent tag.

A run that scores no better than the constant prediction has learned nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from warmstart.baselines.baseline import Baseline, Predict, Sample, inputs_themselves
from warmstart.data.task import Split, Task
from warmstart.model.readout import ConstantReadout
from warmstart.stats.scores import Scores
from warmstart.tasks import task_type_of
from warmstart.tasks.tagging import certain_tags

COLLAPSE_MARGIN = 0.01
"""a run that beats the constant prediction by less has collapsed"""


def most_frequent(sample: Sample, setting: float) -> Predict:
    """The constant prediction of the task type, fitted to the texts that learn."""
    fitted = Split(tuple(sample.rows), sample.labels)
    task_type = task_type_of(sample.task)
    if task_type.probabilistic and sample.task.labels:
        return ConstantReadout(task_type.constant(fitted, sample.rows[:1], sample.task)[0])
    return lambda rows: task_type.constant(fitted, rows, sample.task)


MAJORITY = Baseline(inputs_themselves, most_frequent)
"""the row of the registry, and what is left to others if there are no words"""


def constant_score(task: Task) -> float:
    """The test score, in the task's metric, of a constant prediction.

    With one label per text that is the best constant prediction there is, the most frequent label of the test split itself;
    otherwise it is the prediction fitted to the training split.
    """
    task_type, fitted = task_type_of(task), task.test if task.single_label else task.train
    return task_type.scores(task.test, task_type.constant(fitted, task.test.texts, task), task).score(task.metric)


def collapsed(task: Task, scores: Scores) -> bool:
    """True if a run learned nothing: its test score is no better than that of a constant prediction."""
    return bool(scores.score(task.metric) <= constant_score(task) + COLLAPSE_MARGIN)


def most_frequent_tags(sample: Sample, setting: float) -> Predict:
    """The most frequent tag of each word; an unknown word gets the most frequent tag of all."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for words, tags in zip(sample.rows, sample.labels, strict=True):
        for word, tag in zip(words, tags, strict=True):
            counts[word][int(tag)] += 1
    (default, _), *_ = sum(counts.values(), Counter()).most_common(1)
    best = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    return lambda rows: certain_tags([[best.get(word, default) for word in words] for words in rows], len(sample.task.labels))
