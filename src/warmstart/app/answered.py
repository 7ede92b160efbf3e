"""Labelled texts, to be searched and corrected: a correction is a further answer, and those before it stay in the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from warmstart.app.project import Project
from warmstart.app.tables import CORRECTION, DISAGREEMENT, IMPORTED, GivenAnswer, Value
from warmstart.errors import DataError

Kind = Literal["all", "doubtful", "disputed", "skipped"]
_SHOWN = 300
"""characters of a text in a list"""


@dataclass(frozen=True)
class AnsweredQuery:
    """A search among answered texts."""

    words: str = ""
    """part of the text, in small or capital letters"""
    label: int | None = None
    """label that counts for the text, or that somebody gave it"""
    person: str = ""
    """name of a person who answered"""
    kind: Kind = "all"
    """doubtful: labels that are likely wrong, the least credible first; disputed: people differ; skipped: without a label"""
    start: int = 0
    count: int = 20


def answered_texts(project: Project, query: AnsweredQuery, doubtful: Sequence[int] = ()) -> dict[str, Any]:
    """The texts that a query finds, those answered last first, with the label that counts and all answers; and their number."""
    with project.unchanged:
        labelled, disputed, answers = project.labelled(), {*project.disagreements()}, dict[int, list[GivenAnswer]]()
        for answer in project.answers():
            answers.setdefault(answer.text, []).append(answer)
    order = [*doubtful] if query.kind == "doubtful" else sorted(answers, key=lambda text: -answers[text][-1].id)
    fits = {"all": answers.keys(), "doubtful": {*doubtful}, "disputed": disputed, "skipped": answers.keys() - labelled - disputed}
    words, person = query.words.casefold().strip(), query.person.strip()
    texts = [
        text
        for text in order
        if text in answers
        and text in fits[query.kind]
        and words in project.texts[text].casefold()
        and (not person or any(answer.person == person for answer in answers[text]))
        and (query.label is None or query.label in (labelled.get(text), *(answer.value for answer in answers[text])))
    ]
    rows = [
        {
            "text_id": text,
            "text": project.texts[text][:_SHOWN],
            "cut": len(project.texts[text]) > _SHOWN,
            "label": labelled.get(text),
            "disputed": text in disputed,
            "doubtful": text in doubtful,
            "answers": [
                {"person": answer.person, "value": answer.value, "at": answer.at, "comment": answer.comment}
                for answer in answers[text]
            ],
        }
        for text in texts[query.start : query.start + query.count]
    ]
    return {"total": len(texts), "texts": rows}


def correct(project: Project, person: str, text: int, value: int | None) -> Value | None:
    """Store another answer of a person to a text; returns the label that counts.

    It decides a disagreement if they are the judge or decided it before, and where nobody else has answered but an import.
    Raises ``DataError`` for a text without an answer, or for words with a label each.
    """
    person = person.strip()
    with project.at_once():
        answers = [answer for answer in project.answers() if answer.text == text]
        if project.type == "tagging" or not answers:
            raise DataError("a label can be corrected once a text has one, and in classification only; load the page again")
        queues = {draw.id: draw.queue for draw in project.draws() if draw.text == text}
        decided = any(
            answer.person == person and answer.value is not None and queues[answer.draw] == DISAGREEMENT for answer in answers
        )
        judge, others = project.settings.judge, [answer for answer in answers if answer.person != person]
        alone = not judge and bool(others) and all(queues[answer.draw] == IMPORTED for answer in others)
        decides = value is not None and (person == judge or decided or alone)
        draw = project.draw(text=text, person=person, queue=DISAGREEMENT if decides else CORRECTION)
        project.answer(draw.id, person, value, 0)
        return project.labelled().get(text)
