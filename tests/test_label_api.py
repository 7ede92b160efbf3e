"""Requests of the labelling page: each does one thing of the session, and what is wrong is refused with a reason."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.labelling import TextsInOrder, news
from helpers.mutants import LABELS, bases
from helpers.served import client_of, cups_task, server_of
from warmstart.app.exchange import as_bytes
from warmstart.app.guard import AccessRules
from warmstart.app.label_routes import guidelines_html, labels_api, make_label_app
from warmstart.app.models import ServedModel
from warmstart.app.routes import make_app
from warmstart.app.tables import IMPORTED
from warmstart.model.files import save
from warmstart.runs.verdict import Verdict, write_verdict
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("socket_enabled")  # of the event loop with itself


def ask(session: Any, *requests: tuple[str, Any], rules: AccessRules = AccessRules()) -> list[Any]:  # noqa: B008
    """The responses, one request after the other; a body of None is a GET."""

    async def all_() -> list[Any]:
        async with client_of(make_label_app(session, rules)) as client:
            return [await (client.get(path) if body is None else client.post(path, json=body)) for path, body in requests]

    return asyncio.run(all_())


@pytest.fixture
def session(tmp_path: Path) -> Iterator[TextsInOrder]:
    made = TextsInOrder(news(tmp_path / "news", ("one", "two", "three")))
    yield made
    made.close()


ANNA = {"person": "Anna"}


def say(session: TextsInOrder, value: int | None, person: str = "Anna", **more: Any) -> tuple[int, Any]:
    """Answer what a person is asked; the draw, and what came back."""
    draw = ask(session, ("/api/join", {"person": person}))[0].json()["item"]["draw"]
    body = {"person": person, "draw": draw, "value": value, "seconds": 1.5} | more
    return draw, ask(session, ("/api/answer", body))[0].json()


def test_an_answer_brings_the_next_text(session: TextsInOrder) -> None:
    """In one round trip, after it is stored, with the seconds and the comment."""
    joined = ask(session, ("/api/join", ANNA))[0].json()
    assert (joined["person"], joined["answered"], joined["item"]["text"]) == ("Anna", 0, "one")
    draw, answered = say(session, 2, comment="hm")
    (stored,) = session.project.answers()
    assert (stored.draw, stored.person, stored.value, stored.comment, stored.seconds) == (draw, "Anna", 2, "hm", 1.5)
    assert answered["item"]["text"] == "two"
    assert answered["item"]["draw"] != draw


def test_a_name_of_another_browser_is_asked_for(session: TextsInOrder) -> None:
    """Nothing is shown before it is said that both are the same person; programs name no browser, and are not asked."""
    browsers: list[dict[str, Any]] = [{"browser": "a"}, {"browser": "b"}, {"browser": "b", "same": True}, {}]
    first, second, same, program = (one.json() for one in ask(session, *(("/api/join", ANNA | one) for one in browsers)))
    assert second == {"person": "Anna", "answered": 0, "taken": True}
    assert first["item"] == same["item"] == program["item"] is not None
    assert not first["taken"]


def test_what_comes_twice_counts_once(session: TextsInOrder) -> None:
    """As when the server died after it had stored it. An undo names the answer that ``last`` told of; the comment comes back."""
    draw = ask(session, ("/api/join", ANNA))[0].json()["item"]["draw"]
    for comment in ("first", "second", "third"):
        answer = ANNA | {"draw": draw, "value": 1, "seconds": 0, "comment": comment}
        answered, again = (one.json() for one in ask(session, *[("/api/answer", answer)] * 2))
        assert answered == again
        draw = (answered["item"] or answer)["draw"]
    assert answered == ask(session, ("/api/next", ANNA))[0].json() == {"item": None, "last": draw}
    once, again = (one.json() for one in ask(session, *[("/api/undo", ANNA | {"draw": answered["last"]})] * 2))
    assert (once["item"]["comment"], once["item"]["answered"]) == ("third", 1)
    assert (once["last"], once["item"]["draw"]) == (again["last"], again["item"]["draw"])
    assert once["item"]["draw"] == answered["last"]
    assert [one.comment for one in session.project.answers()] == ["first", "second"]
    assert ask(session, ("/api/undo", {"person": "Ben"}))[0].json() == {"item": None, "last": None}


def test_labelled_texts_are_downloaded(session: TextsInOrder) -> None:
    """As csv or ndjson, made in memory; those without a label are not in it."""
    say(session, 2)
    table, lines = ask(session, ("/api/export", None), ("/api/export?form=ndjson", None))
    assert table.content == as_bytes(session.project)
    assert json.loads(lines.text) == {"text": "one", "label": "politics"}
    assert table.headers["content-disposition"] == 'attachment; filename="labels.csv"'


def test_the_task_is_written_while_the_server_runs(session: TextsInOrder) -> None:
    """Beside the project, with the command that learns from it; without two labels neither that nor a training is possible."""
    for path in ("/api/task", "/api/train"):
        refused = ask(session, (path, {}))[0]
        assert refused.status_code == 422
        assert "a task needs texts of at least two labels" in refused.json()["error"]
    for value in (1, 2):
        say(session, value)
    written = ask(session, ("/api/task", {}))[0].json()
    assert written["command"] == f"warmstart fit {written['task']}"
    assert Path(written["task"]).is_file()


def test_the_trained_model_is_served_beside_the_page(session: TextsInOrder, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """With its report, once there is one, and by its page; the next training takes its place without a restart."""
    missing, none = ask(session, ("/model/api/models", None), ("/report", None))
    assert (missing.status_code, none.status_code) == (404, 404)
    assert session.training.status() is None
    place = tmp_path / "news" / "model"
    save(bases(tokenizer)["labels"], place / "bundle")
    save_task(cups_task(), tmp_path / "news" / "model-task")
    (place / "fit.json").write_text("{}")
    write_verdict(Verdict("news", "1 labels", 1, "Use <b>probe</b>.", use=("It is good.",)), place)
    (place / "report.html").write_text("<h1>Use probe.</h1>")
    body = {"inputs": ["I want tea"]}
    paths = ("/model/", "/verdict", "/report")
    found, page, verdict, report = ask(session, ("/model/api/predict", body), *((path, None) for path in paths))
    assert found.json()["predictions"][0]["label"] in LABELS
    assert "/page/" not in page.text.replace('"page/', "")
    assert "Use &lt;b&gt;probe" in verdict.text
    assert "sandbox" in report.headers["content-security-policy"]
    for _ in range(2):  # one more than the model has learned from
        say(session, 1)
    told = {"state": "done", "sentence": "1 more label since.", "findings": ["Use <b>probe</b>.", "It is good."], "served": True}
    assert session.training.status() == told


def test_what_was_labelled_is_found_and_corrected(session: TextsInOrder) -> None:
    """By words, label, person and doubt; a correction is a further answer, which another person's label makes a disagreement."""
    for person, value in (("Anna", 2), ("Ben", 1), ("Anna", None)):
        say(session, value, person)

    def found(query: str) -> list[str]:
        (answer,) = ask(session, (f"/api/texts?{query}", None))
        return [one["text"] for one in answer.json()["texts"]]

    assert found("") == ["two", "three", "one"]
    assert (found("words=TW"), found("label=2"), found("person=Ben")) == (["two"], ["one"], ["three"])
    assert (found("kind=doubtful"), found("kind=skipped"), found("count=1&start=1")) == (["one"], ["two"], ["three"])
    ask(session, ("/api/correct", ANNA | {"text": 0, "value": 3}), ("/api/correct", ANNA | {"text": 2, "value": 3}))
    assert session.project.labelled() == {0: 3}
    (row,) = ask(session, ("/api/texts?words=one", None))[0].json()["texts"]
    assert [(one["person"], one["value"]) for one in row["answers"]] == [("Anna", 2), ("Anna", 3)]
    assert found("kind=disputed") == ["three"]
    session.project.change_settings(judge="Anna")
    ask(session, ("/api/correct", ANNA | {"text": 2, "value": 3}))
    assert session.project.labelled() == {0: 3, 2: 3}
    assert ask(session, ("/api/correct", ANNA | {"text": 0, "value": None}))[0].json()["label"] is None
    assert session.project.labelled() == {2: 3}


def test_whoever_is_alone_corrects_an_import(session: TextsInOrder) -> None:
    """As soon as somebody else has answered they differ, and the label that counts stays what it was decided to be."""
    project = session.project
    project.answer(project.draw(text=0, person="imported", queue=IMPORTED).id, "imported", 1, 0)
    assert ask(session, ("/api/correct", ANNA | {"text": 0, "value": 2}))[0].json()["label"] == 2
    assert ask(session, ("/api/correct", {"person": "Ben", "text": 0, "value": 3}))[0].json()["label"] == 2
    assert project.labelled() == {0: 2}


WRONG: list[tuple[str, Any, str]] = [
    ("/api/join", {}, "person is missing"),
    ("/api/join", {"person": "A", "admin": True}, "admin"),
    ("/api/answer", ANNA | {"draw": 10**9, "value": 1, "seconds": 1}, "there is no draw"),
    ("/api/answer", ANNA | {"draw": 1, "value": 1, "seconds": -1}, "seconds"),
    ("/api/answer", ANNA | {"draw": 1, "value": "1", "seconds": 1}, "value"),
    ("/api/answer", ANNA | {"draw": 1, "value": True, "seconds": 1}, "value"),
    ("/api/answer", ANNA | {"draw": 1, "value": 2**40, "seconds": 1}, "value"),
    ("/api/labels", ANNA | {"action": "add"}, "must also hold name"),
    ("/api/labels", ANNA | {"action": "merge"}, "label and into"),
    ("/api/labels", ANNA | {"action": "remove"}, "action"),
    ("/api/export?form=exe", None, "form"),
    ("/api/texts?kind=odd", None, "kind"),
    ("/api/correct", ANNA | {"text": 2, "value": 1}, "once a text has one"),
    ("/api/answer", ANNA | {"draw": 1, "seconds": 1, "value": [0.5] * 100_000}, "value[0] must be"),
    (f"/api/texts?{'&'.join(f'k{i}=' for i in range(99))}", None, "the query has 99 unknown fields"),
]


def test_what_is_wrong_is_refused(session: TextsInOrder) -> None:
    """With 422 and the reason, of many mistakes the first; nothing is stored."""
    _, *answers = ask(session, ("/api/join", ANNA), *((path, body) for path, body, _ in WRONG))
    for answer, (path, body, words) in zip(answers, WRONG, strict=True):
        assert answer.status_code == 422, (path, str(body)[:200])
        assert words in answer.json()["error"], (path, str(body)[:200])
    assert not session.project.answers()


def test_the_guard_stands_before_everything(session: TextsInOrder) -> None:
    """With the rules of ``serve``; every answer has the policy of the page."""
    page, health = ask(session, ("/", None), ("/health", None), rules=AccessRules(token="0123456789abcdef"))
    assert (page.status_code, health.status_code) == (401, 200)
    assert "script-src 'self'" in page.headers["content-security-policy"]


def test_guidelines_in_markdown_are_read_as_such() -> None:
    """Headings, lists, stressed words and code; what is no Markdown stays as it is, and nothing becomes HTML."""
    text = "# Rules #\nChoose **one**, *never* 3*4*5.\n\n- `sport`: <b>games</b>\n- 3 * 4 other\n\nTwo\nlines"
    assert guidelines_html(text) == (
        "<h3>Rules</h3><p>Choose <strong>one</strong>, <em>never</em> 3*4*5.</p>"
        "<ul><li><code>sport</code>: &lt;b&gt;games&lt;/b&gt;</li><li>3 * 4 other</li></ul><p>Two\nlines</p>"
    )
    assert guidelines_html("") == ""


def test_only_the_files_of_the_page_are_served(session: TextsInOrder) -> None:
    """Of the folders that hold them."""
    names = ("page.css", "elements.js", "api.js", "label.js", "label.css", "classify.js", "label.html.jinja", "..%2Fapp.py")
    assert [one.status_code for one in ask(session, *((f"/page/{name}", None) for name in names))] == [200] * 5 + [404] * 3


def test_a_server_of_models_also_opens_a_project(session: TextsInOrder, tokenizer: Tokenizer) -> None:
    """Under one guard and one token; a label of a text that was tried comes from the person who has that name."""
    rules = AccessRules(token="a token of some length")
    server = server_of(ServedModel.of(bases(tokenizer)["labels"], "cups"))
    app = make_app(server, rules, labels_api(session, rules, "../"))
    body = {"person": "Anna", "browser": "a", "text": "a new text", "value": 2}

    async def all_() -> list[Any]:
        async with client_of(app) as client:
            refused = await client.get("/label/api/labels")
            client.headers["authorization"] = f"Bearer {rules.token}"
            pages = [await client.get(path) for path in ("/", "/label/")]
            posted = [await client.post("/label/api/tried", json=body | {"browser": one}) for one in "ab"]
            return [refused, *pages, *posted]

    refused, models, labels, stored, taken = asyncio.run(all_())
    server.close()
    assert refused.status_code == 401
    assert 'data-labels="label/"' in models.text
    assert '<a href="../">Try</a>' in labels.text
    assert stored.json() == {"label": 2, "sentence": "Saved: politics, by Anna. The text is new in the project."}
    assert (taken.status_code, "somebody else has joined as 'Anna'" in taken.json()["error"]) == (422, True)
    assert (session.project.texts[3:], session.project.labelled()) == (("a new text",), {3: 2})
