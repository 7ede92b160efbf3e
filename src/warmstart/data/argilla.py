"""Records of Argilla: what people responded; what a model suggested is no answer.

- its JSON: ``{"fields": {"text": …}, "responses": {"label": [{"value": "ship", "user_id": …, "status": "submitted"}]}}``
- the same, flattened: ``{"text": …, "label.responses": ["ship"], "label.responses.users": […], "label.responses.status": […]}``
- version 1: ``{"text": …, "label": [{"value": "ship", "user_id": …, "status": "submitted"}], "label-suggestion": …}``
- before that: ``{"text": …, "annotation": "ship", "annotation_agent": …, "status": "Validated"}``
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import zip_longest
from typing import Any

from warmstart.data.annotation_values import (
    Annotation,
    AskedRow,
    RowError,
    UnlabelledRow,
    labels_in,
    list_in,
    only_text,
    span_in,
    text_in,
    word_tags,
)

_FLAT = ".responses"
_SKIPPED, _OPEN = ("discarded",), ("draft", "pending", "default")
"""states of a response that is no answer: its text was skipped, or is not finished"""


def is_record(values: Any) -> bool:
    """Whether a row is one of Argilla's records."""
    if not isinstance(values, Mapping):
        return False
    return (
        (isinstance(values.get("fields"), Mapping) and "responses" in values)
        or {"annotation", "annotation_agent"} <= values.keys()
        or any(str(name).endswith(_FLAT) or (type(value) is list and _are_responses(value)) for name, value in values.items())
    )


def record_readers(record: Mapping[str, Any], asked: AskedRow) -> Iterator[Callable[[], Annotation]]:
    """What reads each response of a record."""
    try:
        responses = _responses(record)
    except RowError as error:
        yield partial(_fail, error)
        return
    for response in responses:
        yield partial(_response, record, response, asked)
    if not responses:
        yield partial(_fail, UnlabelledRow())


def record_text(record: Mapping[str, Any], column: str) -> Any:
    """The text of a record: that of its column or of the name text, or the only field."""
    fields = record.get("fields", record.get("inputs"))
    return only_text(fields, column, "text") if isinstance(fields, Mapping) else record.get(column, record.get("text"))


def _fail(error: Exception) -> Annotation:
    raise error


def _are_responses(value: Any) -> bool:
    """Whether a value is a list of what people responded."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, Mapping) and {"value", "user_id"} <= one.keys() for one in value)
    )


def _responses(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The responses to the question called label, or to the only one."""
    if "annotation_agent" in record:
        given = {"value": record.get("annotation"), "user_id": record["annotation_agent"], "status": record.get("status")}
        return [given] if given["value"] is not None or str(given["status"]).lower() in _SKIPPED else []
    questions: dict[str, Any] = {name: value for name, value in record.items() if _are_responses(value)}
    if isinstance(nested := record.get("responses"), Mapping):
        questions |= nested
    for name in [name for name in record if str(name).endswith(_FLAT)]:
        columns = [record.get(name) or (), record.get(f"{name}.users") or (), record.get(f"{name}.status") or ()]
        questions[name.removesuffix(_FLAT)] = [
            {"value": value, "user_id": user, "status": status} for value, user, status in zip_longest(*columns)
        ]
    if len(questions) > 1 and "label" not in questions:
        raise RowError(f"must have one question, or one called label, but has {', '.join(questions)}; leave out the others")
    found = questions["label"] if "label" in questions else next(iter(questions.values()), None)
    return [one for one in list_in(found or [], "responses") if isinstance(one, Mapping)]


def _response(record: Mapping[str, Any], response: Mapping[str, Any], asked: AskedRow) -> Annotation:
    text, status = text_in(record_text(record, asked.column)), str(response.get("status") or "").lower()
    person = asked.person if response.get("user_id") in (None, "") else str(response["user_id"])
    if status in _SKIPPED:
        return asked.answer(text, None, person=person)
    value = response.get("value")
    if status in _OPEN or value is None:
        raise UnlabelledRow
    if asked.wanted == "tags":
        return asked.answer(text, word_tags(text, [span_in(one) for one in list_in(value, "spans")]), person=person)
    return asked.answer(text, labels_in(value, asked.wanted), person=person)
