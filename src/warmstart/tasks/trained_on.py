"""Training data beside new inputs of a model: data that changed since, texts it has seen, names it has not.

A model knows the texts of its labelled tasks by hashes in its history (``data/text_key.py``). Text that was read without labels,
such as that of pretraining, is not among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from warmstart.data.task import Split
from warmstart.data.text_key import Overlap, TextHashes, joint_overlap, key_of, plain_text
from warmstart.model.bundle import Bundle
from warmstart.model.history import DataRecord, recorded_tasks
from warmstart.model.stack import Stack

EXAMPLE = 60
"""characters of a text that is quoted"""


def changed_data(model: Bundle | Stack, task: str, now: Mapping[str, TextHashes]) -> list[str]:
    """A sentence for each split of a task of this name that is not what it was when the model was trained on it."""
    records = [record for record in _task_records(model) if record.name == task and record.splits]
    before = records[-1].splits if records else {}
    return [_change(task, name, before[name], now.get(name)) for name in before if before[name] != now.get(name)]


def _change(task: str, name: str, before: TextHashes, now: TextHashes | None) -> str:
    """The difference between two versions of a split."""
    since = f"The {name} split of '{task}' has changed since the model was trained"
    if now is None:
        return f"{since}: it has no texts any more."
    new, missing = before.changes(now)
    exact = before.part == now.part == 1
    if not new and not missing:
        same = "its texts are the same, but have other labels, or other numbers of copies"
        return f"{since}: {same if exact else 'few texts are others, or have other labels or numbers of copies'}."
    counts = {"new": new, "missing": missing}
    parts = [f"{'' if exact else 'about '}{n:,} {'text is' if n == 1 else 'texts are'} {what}" for what, n in counts.items() if n]
    return f"{since}: {' and '.join(parts)}."


def reading_of_model(model: Bundle | Stack) -> dict[str, Any]:
    """The reading of the last task's training texts, as settings of a ``Source``, with the columns that are read beside them."""
    reading = next((record.reading for record in reversed(_task_records(model))), {})
    beside = model.beside if isinstance(model, Stack) else None
    return {**reading, "columns": beside.names} if beside else reading


def trained_on_pairs(model: Bundle | Stack) -> bool | None:
    """True if each text of the last task was a pair of texts; None if no record says so."""
    return next((record.pairs for record in reversed(_task_records(model))), None)


def known_texts(model: Bundle | Stack, texts: Sequence[Any]) -> Overlap:
    """The texts that the model has seen with their labels, to learn or to choose."""
    known = [record.labelled for record in _task_records(model) if record.labelled]
    return joint_overlap(known, [*map(key_of, texts)])


def unseen_only(models: Sequence[Bundle | Stack], split: Split) -> tuple[Split, str]:
    """The examples whose labels none of the models has seen, as far as is known; and a sentence if any are left out."""
    seen = {number for model in models for number in known_texts(model, split.texts).places}
    rest = split.take(np.array([number for number in range(len(split)) if number not in seen], dtype=np.int64))
    whose = "the model has" if len(models) == 1 else "a model has"
    return (
        rest,
        f"{len(seen):,} of the {len(split):,} labelled texts are left out, since {whose} learned from them." if seen else "",
    )


def known_texts_sentence(model: Bundle | Stack, texts: Sequence[Any], noun: str, so: str) -> str:
    """Number of ``texts`` (``noun``) that it has seen with their labels, and what follows (``so``); empty if it has seen none."""
    overlap = known_texts(model, texts)
    if not overlap.number:
        return ""
    named = " and ".join(f"'{_quoted(texts[number])}'" for number in overlap.places[:2])
    seen = f"The model has seen the labels of {overlap.words} of the {len(texts):,} {noun}, to learn or to choose"
    return f"{seen}, such as {named}; {so}."


def _quoted(text: Any) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(plain_text(text).split())
    return line if len(line) <= EXAMPLE else f"{line[:EXAMPLE]}…"


def _task_records(model: Bundle | Stack) -> list[DataRecord]:
    """Task records of the model and of its networks."""
    networks = model.networks if isinstance(model, Stack) else ()
    return recorded_tasks([*(record for network in networks for record in network.history), *model.history])


# Names in questions, and which of them a text never mentions: a model that learned from it cannot know the answer.


def proper_names(question: str) -> list[str]:
    """The names in a question: runs of capitalised words, without the first word of the sentence.

    ``"Where was Ada King Lovelace born?"`` -> ``["Ada King Lovelace"]``
    """
    names, run = list[str](), list[str]()
    for word in [*question.split()[1:], ""]:
        if word[:1].isupper():
            run.append(word)
        elif run:
            names.append(re.sub(r"\W+$", "", " ".join(run)))
            run.clear()
    return names


def unseen_names(questions: Sequence[str], documents: Iterable[str]) -> list[list[str]]:
    """The names in each question that occur in no document."""
    names = [proper_names(question) for question in questions]
    missing = {name for group in names for name in group}
    for document in documents:
        missing -= {name for name in missing if name in document}
    return [[name for name in group if name in missing] for group in names]
