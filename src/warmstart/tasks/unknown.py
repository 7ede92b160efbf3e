"""Texts of none of the classes that a model knows: sentences about them, and the share of them that is recognised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from warmstart.data.splits import NO_TEXTS
from warmstart.data.task import Split, Task
from warmstart.data.text_key import is_blank
from warmstart.model.bundle import Bundle
from warmstart.model.fitted import FittedBaseline
from warmstart.model.stack import Stack
from warmstart.stats.formatting import first_of, of_100, percent, percent_interval
from warmstart.stats.proportions import wilson_interval
from warmstart.tasks.predict import Read, read

NONE_OF_THESE = "none of these"
UNKNOWN_SHARE = 0.05
"""largest share of the texts of known classes that may be called unknown"""
CHANGED = 2.33
"""standard deviations by which texts must be less typical than expected: texts that have not changed are, in 1 of 100 cases"""


def unknown_sentence(count: int, texts: int, share: float) -> str:
    """Number of marked texts, and of those among them that belong to a label, as a sentence."""
    marked = "is marked as unknown: it is" if count == 1 else "are marked as unknown: they are"
    return (
        f"{count:,} of {texts:,} text{'s' * (texts != 1)} {marked} like those of none of the labels. "
        f"Of texts that belong to a label, on average at most {percent(share, trim=True)} are marked so"
    )


def drift_sentence(texts: Sequence[Any], typicality: np.ndarray, compared: int) -> str | None:
    """A warning that N texts are together less typical (N,) than texts like the ``compared`` ones; None if chance explains it.

    Each text counts once, and a blank one not at all. The p-values of unchanged texts have the mean 0.5; their mean over both
    samples is the statistic of Mann and Whitney (1947).
    """
    once = {str(text): value for text, value in zip(texts, typicality, strict=True) if not is_blank(text)}
    if not once or (0.5 - np.mean([*once.values()])) / np.sqrt((1 / max(compared, 1) + 1 / len(once)) / 12) < CHANGED:
        return None
    return (
        "The texts are, together, less like those that the model learned from than chance explains: they may have changed, and "
        "fewer labels may be right than its report says; label some of them to know"
    )


def split_off_unknown(model: Bundle | Stack, task: Task) -> tuple[Task, Split]:
    """The task with only the test texts whose label the model knows, and the other test texts.

    A task of which the model knows every label, or none, stays whole, and so does any for a model that recognises no such text.
    """
    known = np.array([name in model.labels for name in task.labels])
    if not task.single_label or not texts_compared(model) or known.all() or not known[task.test.labels].any():
        return task, task.test.take(NO_TEXTS)
    kept = known[task.test.labels]
    test = task.test.take(np.flatnonzero(kept))
    names = tuple(name for name, knows in zip(task.labels, known, strict=True) if knows)
    alone = replace(task, labels=names, test=replace(test, labels=(np.cumsum(known) - 1)[test.labels]))
    return alone, task.test.take(np.flatnonzero(~kept))


def recognised_sentence(model: Bundle | Stack, known: Read, unknown: Split, names: tuple[str, ...]) -> str:
    """Share of the ``unknown`` texts, with labels of these ``names``, that a model recognises, and of ``known`` ones mistaken."""
    labels = sorted({names[number] for number in unknown.labels})
    listed = first_of(labels, 5)
    notice = f"{len(unknown):,} test texts have a label that the model does not know ({listed}), and are not in these scores"
    marked = read(model, unknown.texts).typicality, known.typicality
    shares = [wilson_interval(float((values <= UNKNOWN_SHARE).mean()), len(values)) for values in marked if values is not None]
    return (
        f"{notice}. It marks {percent_interval(*shares[0])} of them as unknown, and {percent_interval(*shares[1])} of the others, "
        f"where at most {of_100(UNKNOWN_SHARE)} of 100 should be."
    )


def texts_compared(model: Bundle | Stack) -> int:
    """Number of texts to which the model compares another for typicality; 0: its predictions have none."""
    members = [member.model for member in model.members] if isinstance(model, Stack) else []
    known = [len(member.known.left_out) for member in members if isinstance(member, FittedBaseline) and member.known]
    return known[0] if known else len(model.calibration.held_out) if model.calibration else 0
