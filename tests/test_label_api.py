"""Requests of the labelling page: each does one thing of the session, and what is wrong is refused with a reason."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.labelling import TextsInOrder, news
from warmstart.labelling.exporting import as_bytes

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
def session(tmp_path: Path) -> Iterator[TextsInOrder]:
    made = TextsInOrder(news(tmp_path / "news", ("one", "two", "three")))
    yield made
    made.close()


ANNA = {"person": "Anna"}


def test_an_answer_brings_the_next_text(session: TextsInOrder) -> None:
    """In one round trip, after it is stored, with the seconds and the comment."""
    joined = ask(session, ("/api/join", ANNA))[0].json()
    assert (joined["person"], joined["answered"], joined["item"]["text"]) == ("Anna", 0, "one")
    draw = joined["item"]["draw"]
    answered = ask(session, ("/api/answer", ANNA | {"draw": draw, "value": 2, "seconds": 1.5, "comment": "hm"}))[0].json()
    (stored,) = session.project.answers()
    assert (stored.draw, stored.person, stored.value, stored.comment, stored.seconds) == (draw, "Anna", 2, "hm", 1.5)
    assert answered["item"]["text"] == "two"
    assert answered["item"]["draw"] != draw


def test_skipping_undoing_and_asking_again(session: TextsInOrder) -> None:
    """Nothing is left after the last text; undo brings it back with what was chosen."""
    answer = ask(session, ("/api/join", ANNA))[0].json()
    for value in (1, 1, None):
        answer = ask(session, ("/api/answer", ANNA | {"draw": answer["item"]["draw"], "value": value, "seconds": 0}))[0].json()
    following, last, before = ask(session, ("/api/next", ANNA), ("/api/undo", ANNA), ("/api/undo", ANNA))
    assert answer == following.json() == {"item": None, "last": last.json()["item"]["draw"]}
    assert (last.json()["item"]["text"], last.json()["item"]["answered"]) == ("three", None)
    assert (before.json()["item"]["text"], before.json()["item"]["answered"]) == ("two", 1)
    assert ask(session, ("/api/undo", {"person": "Ben"}))[0].json() == {"item": None, "last": None}


def test_an_undo_that_comes_twice_takes_back_one_answer(session: TextsInOrder) -> None:
    """It names the answer that ``last`` told of; the comment comes back with the text."""
    draw = ask(session, ("/api/join", ANNA))[0].json()["item"]["draw"]
    for comment in ("first", "second"):
        answered = ask(session, ("/api/answer", ANNA | {"draw": draw, "value": 1, "seconds": 0, "comment": comment}))[0].json()
        draw = answered["item"]["draw"]
    once, again = ask(session, *[("/api/undo", ANNA | {"draw": answered["last"]})] * 2)
    assert once.json()["item"]["comment"] == "second"
    assert once.json()["last"] == again.json()["last"]
    assert once.json()["item"]["draw"] == again.json()["item"]["draw"] == answered["last"]
    assert [one.comment for one in session.project.answers()] == ["first"]


def test_an_answer_that_comes_twice_counts_once(session: TextsInOrder) -> None:
    """As when the server died after it had stored it: the page sends it again."""
    draw = ask(session, ("/api/join", ANNA))[0].json()["item"]["draw"]
    once, again = ask(session, *[("/api/answer", ANNA | {"draw": draw, "value": 2, "seconds": 1})] * 2)
    assert once.json() == again.json()
    assert len(session.project.answers()) == 1


def test_words_are_tagged_by_a_label_each(tmp_path: Path) -> None:
    """The value is a list."""
    session = TextsInOrder(news(tmp_path, ["Anna in Paris"], ("PERSON", "PLACE"), type="tagging"))
    item = ask(session, ("/api/join", ANNA))[0].json()["item"]
    assert item["words"] == ["Anna", "in", "Paris"]
    ask(session, ("/api/answer", ANNA | {"draw": item["draw"], "value": [1, 0, 2], "seconds": 1}))
    assert session.project.labelled() == {0: (1, 0, 2)}
    session.close()


def test_labels_are_added_renamed_and_merged(session: TextsInOrder) -> None:
    """With a history that says who did it."""
    *_, labels, history = ask(
        session,
        ("/api/labels", ANNA | {"action": "add", "name": "weather"}),
        ("/api/labels", ANNA | {"action": "rename", "label": 1, "name": "games"}),
        ("/api/labels", ANNA | {"action": "merge", "label": 2, "into": 3}),
        ("/api/labels", None), ("/api/history", None),
    )  # fmt: skip
    assert [one["name"] for one in labels.json()["labels"]] == ["games", "science", "weather"]
    changes = [one["words"] for one in history.json()["history"] if one["person"] == "Anna"]
    assert len(changes) == 3
    assert "politics" in changes[2]
    assert "science" in changes[2]


def test_labelled_texts_are_downloaded(session: TextsInOrder) -> None:
    """As csv or ndjson, made in memory; those without a label are not in it."""
    draw = ask(session, ("/api/join", ANNA))[0].json()["item"]["draw"]
    ask(session, ("/api/answer", ANNA | {"draw": draw, "value": 2, "seconds": 1}))
    table, lines = ask(session, ("/api/export", None), ("/api/export?form=ndjson", None))
    assert table.content == as_bytes(session.project)
    assert json.loads(lines.text) == {"text": "one", "label": "politics"}
    assert table.headers["content-disposition"] == 'attachment; filename="labels.csv"'


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/api/join", {}, "person: Field required"),
        ("/api/join", {"person": " "}, "name"),
        ("/api/join", {"person": "x" * 101}, "person"),
        ("/api/join", {"person": "A", "admin": True}, "admin"),
        ("/api/answer", ANNA | {"draw": 10**9, "value": 1, "seconds": 1}, "there is no draw"),
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
def test_what_is_wrong_is_refused(session: TextsInOrder, path: str, body: Any, words: str) -> None:
    """With 422 and the reason; nothing is stored."""
    *_, answer = ask(session, ("/api/join", ANNA), (path, body))
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    assert not session.project.answers()


def test_half_a_surrogate_pair_is_refused(session: TextsInOrder) -> None:
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


def test_the_guard_stands_before_everything(session: TextsInOrder) -> None:
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


def test_hostile_names_are_text_on_the_page(tmp_path: Path) -> None:
    """The name of a project and its guidelines are escaped."""
    hostile = "</title><script>alert(1)</script>"
    session = TextsInOrder(news(tmp_path, ["one"], name=hostile, guidelines=hostile))
    page = ask(session, ("/", None))[0].text
    session.close()
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert(1)") == 3


def test_the_files_of_the_page_are_those_alone(session: TextsInOrder) -> None:
    """Its own and the shared ones; nothing else of either folder."""
    names = ("page.css", "elements.js", "api.js", "label.js", "label.css", "classify.js", "label.html.jinja", "..%2Fapp.py")
    found = ask(session, *((f"/page/{name}", None) for name in names))
    assert [one.status_code for one in found] == [200] * 5 + [404] * 3


def test_the_session_is_closed_at_the_end(session: TextsInOrder) -> None:
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
