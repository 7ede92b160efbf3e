"""Names in questions, and which of them a text never mentions: a model that learned from it cannot know the answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


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
    """For each question, the names in it that occur in no document."""
    names = [proper_names(question) for question in questions]
    missing = {name for found in names for name in found}
    for document in documents:
        missing -= {name for name in missing if name in document}
    return [[name for name in found if name in missing] for found in names]
