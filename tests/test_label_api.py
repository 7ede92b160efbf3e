"""Requests of the labelling page: each does one thing of the session, and what is wrong is refused with a reason."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from helpers.labelling import SessionDouble

httpx = pytest.importorskip("httpx", reason="the server needs the extra 'serve', and its tests httpx")
pytest.importorskip("fastapi", reason="the server needs the extra 'serve'")

from warmstart.serve.guard import AccessRules  # noqa: E402
from warmstart.serve.labelling.app import make_label_app  # noqa: E402

pytestmark = pytest.mark.usefixtures("socket_enabled")  # of the event loop with itself
HOME = "http://127.0.0.1"


def ask(session: Any, *requests: tuple[str, Any], rules: AccessRules = AccessRules(), **headers: str) -> list[Any]:  # noqa: B008
    """The responses, one request after the other; a body of None is a GET."""

    async def all_() -> list[Any]:
        transport = httpx.ASGITransport(make_label_app(session, rules), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=HOME, headers=headers) as client:
            return [await (client.get(path) if body is None else client.post(path, json=body)) for path, body in requests]

    return asyncio.run(all_())


@pytest.fixture
def session() -> SessionDouble:
    return SessionDouble(("one", "two", "three"))


ANNA = {"person": "Anna"}


def test_an_answer_brings_the_next_text(session: SessionDouble) -> None:
    """In one round trip, after it is stored, with the seconds and the comment."""
    joined, answered = ask(
        session, ("/api/join", ANNA), ("/api/answer", ANNA | {"draw": 1, "value": 2, "seconds": 1.5, "comment": "hm"})
    )
    assert joined.json() == {"person": "Anna", "answered": 0, "item": session.item(1)}
    assert session.answers == {1: ("Anna", 2, "hm", 1.5)}
    assert answered.json() == {"item": session.item(2)}


def test_skipping_undoing_and_asking_again(session: SessionDouble) -> None:
    """Nothing is left after the last text; undo brings it back with what was chosen."""
    texts = [("/api/answer", ANNA | {"draw": draw, "value": None if draw == 3 else 1, "seconds": 0}) for draw in (1, 2, 3)]
    *_, last, following, undone = ask(session, ("/api/join", ANNA), *texts, ("/api/next", ANNA), ("/api/undo", ANNA))
    assert last.json() == following.json() == {"item": None}
    assert undone.json()["item"]["draw"] == 3
    assert ask(session, ("/api/undo", {"person": "Ben"}))[0].json() == {"item": None}


def test_words_are_tagged_by_a_label_each() -> None:
    """The value is a list."""
    session = SessionDouble(("Anna in Paris",), ("PERSON", "PLACE"), "tagging")
    joined, _ = ask(session, ("/api/join", ANNA), ("/api/answer", ANNA | {"draw": 1, "value": [1, 0, 2], "seconds": 1}))
    assert joined.json()["item"]["words"] == ["Anna", "in", "Paris"]
    assert session.answers[1][1] == (1, 0, 2)


def test_labels_are_added_renamed_and_merged(session: SessionDouble) -> None:
    """With a history that says who did it."""
    *_, labels, history = ask(
        session,
        ("/api/labels", ANNA | {"action": "add", "name": "weather"}),
        ("/api/labels", ANNA | {"action": "rename", "label": 0, "name": "games"}),
        ("/api/labels", ANNA | {"action": "merge", "label": 1, "into": 2}),
        ("/api/labels", None), ("/api/history", None),
    )  # fmt: skip
    assert [one["name"] for one in labels.json()["labels"]] == ["games", "science", "weather"]
    assert {one["person"] for one in history.json()["history"]} == {"Anna"}
    assert len(history.json()["history"]) == 3


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/api/join", {}, "person: Field required"),
        ("/api/join", {"person": " "}, "more than space"),
        ("/api/join", {"person": "x" * 101}, "person"),
        ("/api/join", {"person": "A", "admin": True}, "admin"),
        ("/api/answer", ANNA | {"draw": 7, "value": 1, "seconds": 1}, "was not shown"),
        ("/api/answer", ANNA | {"draw": 1, "value": 1, "seconds": -1}, "seconds"),
        ("/api/answer", ANNA | {"draw": 1, "value": "1", "seconds": 1}, "value"),
        ("/api/answer", ANNA | {"draw": 1, "value": True, "seconds": 1}, "value"),
        ("/api/answer", ANNA | {"draw": 1, "value": 1, "seconds": 1, "comment": "x" * 10_001}, "comment"),
        ("/api/answer", ANNA | {"draw": 1, "value": 2**40, "seconds": 1}, "value"),
        ("/api/labels", ANNA | {"action": "add"}, "must also hold name"),
        ("/api/labels", ANNA | {"action": "merge"}, "label and into"),
        ("/api/labels", ANNA | {"action": "remove"}, "action"),
        ("/api/export?form=exe", None, "form"),
    ],
)
def test_what_is_wrong_is_refused(session: SessionDouble, path: str, body: Any, words: str) -> None:
    """With 422 and the reason; nothing is stored."""
    *_, answer = ask(session, ("/api/join", ANNA), (path, body))
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    assert not session.answers


def test_half_a_surrogate_pair_is_refused(session: SessionDouble) -> None:
    """It cannot be written as UTF-8; the answer can."""

    async def send() -> Any:
        transport = httpx.ASGITransport(make_label_app(session, AccessRules()), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=HOME) as client:
            return await client.post(
                "/api/join", content=json.dumps({"person": "\ud800"}), headers={"content-type": "application/json"}
            )

    answer = asyncio.run(send())
    assert answer.status_code == 422
    assert "Unicode" in answer.json()["error"]


def test_the_guard_stands_before_everything(session: SessionDouble) -> None:
    """Token, hosts, origins and the size of a body, as for ``serve``; every answer has the policy of the page."""
    rules = AccessRules(token="0123456789abcdef", most_bytes=300)
    page, health = ask(session, ("/", None), ("/health", None), rules=rules)
    assert (page.status_code, health.status_code) == (401, 200)
    assert "script-src 'self'" in page.headers["content-security-policy"]
    token = "Bearer 0123456789abcdef"
    big, fine = ask(session, ("/api/join", {"person": "x" * 400}), ("/api/join", ANNA), rules=rules, authorization=token)
    assert (big.status_code, fine.status_code) == (413, 200)
    assert ask(session, ("/api/join", ANNA), origin="http://elsewhere.example")[0].status_code == 403
    assert ask(session, ("/api/status", None), host="elsewhere.example")[0].status_code == 421


def test_hostile_names_are_text_on_the_page() -> None:
    """The name of a project and its guidelines are escaped."""
    hostile = "</title><script>alert(1)</script>"
    page = ask(SessionDouble(("one",), name=hostile, guidelines=hostile), ("/", None))[0].text
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)") == 3


def test_the_files_of_the_page_are_those_alone(session: SessionDouble) -> None:
    """Its own and the shared ones; nothing else of either folder."""
    names = ("page.css", "elements.js", "api.js", "label.js", "label.css", "classify.js", "label.html.jinja", "..%2Fapp.py")
    found = ask(session, *((f"/page/{name}", None) for name in names))
    assert [one.status_code for one in found] == [200] * 5 + [404] * 3


def test_the_session_is_closed_at_the_end(session: SessionDouble) -> None:
    """So that the project is whole on disk."""

    async def live() -> None:
        messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            assert not message["type"].endswith("failed")

        await make_label_app(session, AccessRules())({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)

    asyncio.run(live())
    assert session.closed
