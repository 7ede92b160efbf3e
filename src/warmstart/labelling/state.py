"""What stands in a labelling project now, as it follows from its events: a fold over them, which reads and writes no file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from warmstart.data.annotations import OUTSIDE_NAME
from warmstart.labelling.database import Event
from warmstart.labelling.records import (
    CORRECTION,
    DISAGREEMENT,
    OUTSIDE,
    Draw,
    GivenAnswer,
    LabelChange,
    LabelName,
    ProjectSettings,
    ProjectType,
    Value,
)

KEYS = "123456789abdefghijklmnopqrtvwxyz"
"""that choose labels on the page, which has other uses for c, s and u"""


@dataclass
class ProjectState:
    """What follows from the events so far."""

    name: str = ""
    type: ProjectType = "classification"
    guidelines: str = ""
    price: float | None = None
    task: str = ""
    table: Mapping[str, Any] = field(default_factory=dict)
    """how the task is read, if it is a table: the flags that were given"""
    settings: ProjectSettings = field(default_factory=ProjectSettings)
    labels: dict[int, LabelName] = field(default_factory=dict)
    """that stand, in order"""
    merged: dict[int, int] = field(default_factory=dict)
    """label id -> the one that it was merged into"""
    named: dict[str, int] = field(default_factory=dict)
    """every name that a label ever had -> the last label that had it"""
    keys: set[str] = field(default_factory=set)
    """that choose a label"""
    next_label: int = OUTSIDE + 1
    history: list[LabelChange] = field(default_factory=list)
    people: dict[str, str] = field(default_factory=dict)
    """name -> the browser in which that person joined; empty: none"""
    draws: dict[int, Draw] = field(default_factory=dict)
    standing: dict[int, GivenAnswer] = field(default_factory=dict)
    """answers that stand, by id"""
    answer_of: dict[int, int] = field(default_factory=dict)
    """draw -> its answer that stands"""
    by_text: dict[int, dict[int, None]] = field(default_factory=dict)
    """text -> ids of its answers that stand"""
    resolved: dict[int, list[tuple[int | None, Value | None]]] = field(default_factory=dict)
    """text -> (answer that decided it, if it was one; value) of each decision"""
    counted: dict[int, Value] = field(default_factory=dict)
    """text -> the label that counts"""
    differing: dict[int, None] = field(default_factory=dict)
    """texts whose answers differ and that are not resolved"""


def first_labels(type_name: str) -> dict[int, LabelName]:
    """The labels that a project of this type always has."""
    return {OUTSIDE: LabelName(OUTSIDE, OUTSIDE_NAME, "0")} if type_name == "tagging" else {}


def apply_event(state: ProjectState, event: Event) -> None:
    """Add an event to what is known."""
    body = event.body
    if event.kind in ("project", "settings", "label", "rename", "merge"):
        _apply_setting(state, event)
        return
    match event.kind:
        case "join":
            state.people[body["person"]] = body["browser"]
        case "draw":
            predicted = _value(state, body.get("predicted"))  # by a model from before a merge, perhaps
            state.draws[event.id] = Draw(event.id, at=event.at, **{**body, "predicted": predicted})
        case "answer":
            _answer(state, event)
        case "undo":
            answer = state.standing[body["answer"]]
            _withdraw(state, answer)
            _count(state, answer.text)
        case "resolve":
            _resolve(state, body["text"], None, _value(state, body["value"]))
            _count(state, body["text"])


def _apply_setting(state: ProjectState, event: Event) -> None:
    """Add an event about the project itself, or its labels."""
    body = event.body
    match event.kind:
        case "project":
            for key, value in body.items():
                setattr(state, key, value)
            state.labels = state.labels or first_labels(state.type)
        case "settings":
            known = vars(state.settings)  # a setting that is gone may stand in older events
            state.settings = replace(state.settings, **{key: value for key, value in body.items() if key in known})
        case "label":
            apply_new_label(state, body)
            state.history.append(LabelChange(event.at, body["person"], f"'{body['name']}' added"))
        case "rename":
            old = state.labels[body["label"]]
            state.labels[old.id] = replace(old, name=body["name"])
            state.named[body["name"]] = old.id
            state.history.append(LabelChange(event.at, body["person"], f"'{old.name}' renamed '{body['name']}'"))
        case "merge":
            _merge(state, event)


def apply_new_label(state: ProjectState, body: Mapping[str, Any]) -> None:
    """Add a label, with the first key that is free."""
    key = next((key for key in KEYS if key not in state.keys), "")
    state.keys.add(key)
    state.labels[body["id"]] = LabelName(body["id"], body["name"], key)
    state.named[body["name"]] = body["id"]
    state.next_label = body["id"] + 1


def _merge(state: ProjectState, event: Event) -> None:
    body = event.body
    old, into = state.labels.pop(body["label"]), state.labels[body["into"]]
    state.merged[old.id] = into.id
    state.keys.discard(old.key)
    state.history.append(LabelChange(event.at, body["person"], f"'{old.name}' merged into '{into.name}'"))
    state.draws = {one.id: replace(one, predicted=into.id) if one.predicted == old.id else one for one in state.draws.values()}
    state.standing = {one.id: replace(one, value=_value(state, one.value)) for one in state.standing.values()}
    state.resolved = {text: [(by, _value(state, value)) for by, value in those] for text, those in state.resolved.items()}
    for text in state.by_text.keys() | state.resolved.keys():
        _count(state, text)


def _answer(state: ProjectState, event: Event) -> None:
    body = event.body
    draw = state.draws[body["draw"]]
    if (earlier := state.answer_of.get(draw.id)) is not None:
        _withdraw(state, state.standing[earlier])
    value = _value(state, body["value"])
    state.standing[event.id] = GivenAnswer(
        event.id, draw.id, draw.text, draw.person, event.at, value, body["seconds"], body["comment"]
    )
    state.answer_of[draw.id] = event.id
    state.by_text.setdefault(draw.text, {})[event.id] = None
    if draw.queue == DISAGREEMENT and value is not None:
        _resolve(state, draw.text, event.id, value)
    _count(state, draw.text)


def _resolve(state: ProjectState, text: int, answer: int | None, value: Value | None) -> None:
    state.resolved.setdefault(text, []).append((answer, value))


def _withdraw(state: ProjectState, answer: GivenAnswer) -> None:
    """An answer stands no longer, nor does what it decided."""
    del state.standing[answer.id], state.answer_of[answer.draw], state.by_text[answer.text][answer.id]
    if decisions := state.resolved.get(answer.text):
        decisions[:] = [one for one in decisions if one[0] != answer.id]
        if not decisions:
            del state.resolved[answer.text]


def _count(state: ProjectState, text: int) -> None:
    """Find the label that counts for a text."""
    state.counted.pop(text, None)
    state.differing.pop(text, None)
    if text in state.resolved:
        (*_, (_, value)) = state.resolved[text]
        if value is not None:
            state.counted[text] = value
        return
    votes = Counter(votes_of(state, text).values()).most_common(2)
    if len(votes) == 1 or (len(votes) == 2 and votes[0][1] > votes[1][1]):
        state.counted[text] = votes[0][0]
    if len(votes) > 1:
        state.differing[text] = None


def votes_of(state: ProjectState, text: int) -> dict[str, Value]:
    """Person -> the last label that they gave a text; a correction to no label takes theirs back."""
    votes = dict[str, Value]()
    for answer in (state.standing[one] for one in state.by_text.get(text, ())):
        if answer.value is not None:
            votes[answer.person] = answer.value
        elif state.draws[answer.draw].queue == CORRECTION:
            votes.pop(answer.person, None)
    return votes


def _value(state: ProjectState, value: Any) -> Value | None:
    """A value of an event, after merges."""
    if isinstance(value, list | tuple):
        return tuple(standing_label(state, label) for label in value)
    return None if value is None else standing_label(state, value)


def standing_label(state: ProjectState, label: int) -> int:
    """The label that counts for this one."""
    while label in state.merged:
        label = state.merged[label]
    return label
