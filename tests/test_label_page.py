"""The page on which people label, used in a browser: by keys alone, by several people, on a phone, and while its server dies."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import IN_A_BROWSER, readable, watched_page
from helpers.labelling import TextsInOrder, news
from helpers.mutants import bases
from helpers.served import server_of
from helpers.served_page import Running, serving_app
from warmstart.app.guard import AccessRules
from warmstart.app.label_routes import labels_api, make_label_app
from warmstart.app.models import ServedModel
from warmstart.app.project import Project
from warmstart.app.routes import make_app
from warmstart.app.session import FITTED
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = IN_A_BROWSER
WAIT = 180_000
"""milliseconds that anything may take; only what never happens takes so long"""
TEXTS = [f"The {i}th match ended late in the evening." for i in range(70)]
HOSTILE = "</script><img src=x onerror=\"document.title='hacked'\"><b>bold</b> & '"


def serving(session: TextsInOrder, port: int = 0) -> AbstractContextManager[str]:
    """The address of a server that runs in a thread; it closes the session at its end."""
    return serving_app(make_label_app(session, AccessRules()), port)


class Person:
    """Somebody at the page, with a browser of their own; nothing may go wrong there."""

    def __init__(self, browser: Any, address: str, name: str, **settings: Any) -> None:
        self.address, self.name = address, name
        self.watched = watched_page(browser, address, errors="Content Security", **settings)

    def __enter__(self) -> Person:
        self.page = self.watched.__enter__()
        self.page.set_default_timeout(WAIT)
        self.page.goto(self.address)
        self.page.fill("#join-name", self.name)
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("#work:not([hidden])")
        return self

    def __exit__(self, *error: Any) -> None:
        self.watched.__exit__(*error)

    @property
    def text(self) -> str:
        return str(self.page.locator("#text").inner_text())

    def answer(self, key: str) -> None:
        """One key, until the answer is stored."""
        with self.page.expect_response("**/api/answer") as response:
            self.page.keyboard.press(key)
        assert response.value.ok
        self.idle()

    def undo(self) -> None:
        with self.page.expect_response("**/api/undo"):
            self.page.keyboard.press("u")
        self.idle()

    def idle(self) -> None:
        self.page.wait_for_selector("#work[aria-busy=false]")


def test_texts_are_labelled_by_keys_alone(browser: Any, tmp_path: Path) -> None:
    """From the name on; each text shows once its predecessor is on disk; keys that are held or pressed twice label one text."""
    session = TextsInOrder(news(tmp_path / "news", TEXTS))
    with serving(session) as address, Person(browser, address, "Anna") as anna:
        assert anna.page.evaluate("document.activeElement.id") == "text"
        for i in range(20):
            assert anna.text == TEXTS[i]
            anna.answer(str(i % 3 + 1))
            assert session.project.labelled()[i] == i % 3 + 1
        assert anna.page.locator("#said").inner_text() == "Saved as “politics”."
        anna.page.wait_for_selector("#progress-words:has-text('20 texts are labelled; 30 more would prove the goal')")
        assert all(0 <= one.seconds < 3600 for one in session.project.answers())
        down = "for (let i = 0; i < 5; i += 1) document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '2', bubbles: true}))"
        with anna.page.expect_response("**/api/answer"):
            anna.page.evaluate(down)
        anna.idle()
        anna.page.evaluate("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '2', bubbles: true, repeat: true}))")
        anna.answer("1")
        labelled = session.project.labelled()
        assert (len(labelled), labelled[20], labelled[21]) == (22, 2, 1)
        anna.page.keyboard.press("?")
        anna.page.uncheck("#keys-on")  # for people whose aids use them
        anna.page.keyboard.press("Escape")
        anna.page.keyboard.press("1")
        anna.page.get_by_role("button", name="politics").focus()
        anna.answer("Enter")
        assert session.project.labelled() == labelled | {22: 2}


def test_undo_skip_and_comment(browser: Any, tmp_path: Path) -> None:
    """What was chosen stands beside a text that is taken back; keys do not label while a comment is written."""
    session = TextsInOrder(news(tmp_path / "news", TEXTS))
    with serving(session) as address, Person(browser, address, "Anna") as anna:
        anna.answer("2")
        anna.undo()
        assert anna.text == TEXTS[0]
        assert anna.page.locator("#notice").inner_text() == "You chose: politics"
        assert anna.page.locator("#choices .chosen").inner_text().endswith("politics")
        assert not session.project.answers()
        anna.page.keyboard.press("c")
        anna.page.keyboard.type("123 unsure")
        anna.page.keyboard.press("Enter")
        anna.answer("1")
        anna.page.reload()
        anna.page.wait_for_selector("#work:not([hidden])")
        with anna.page.expect_request("**/api/undo") as asked:
            anna.undo()
        assert asked.value.post_data_json["draw"] == session.project.draws()[0].id
        assert anna.page.locator("#comment").input_value() == "123 unsure"
        anna.answer("1")
        anna.answer("s")
        first, second = session.project.answers()
        assert (first.value, first.comment, second.value) == (1, "123 unsure", None)
        assert anna.page.locator("#comment").input_value() == ""
        anna.page.keyboard.press("?")
        assert "skip this text" in anna.page.locator("#keys-rows").inner_text()
        anna.page.keyboard.press("3")
        anna.page.keyboard.press("Escape")
        assert len(session.project.answers()) == 2


def test_a_disagreement_is_decided_by_a_third_look(browser: Any, tmp_path: Path) -> None:
    """Which sees as text what both said; the figures name everybody."""
    project = news(tmp_path / "news", TEXTS[:20])
    for name, value in (("<i>Cem</i>", 1), ("Dora", 2)):
        project.answer(project.draw(text=19, person=name, queue="new").id, name, value, 1)
    with serving(TextsInOrder(project)) as address, Person(browser, address, "Anna") as anna:
        shown = [line for line in anna.page.locator("#notice").inner_text().split("\n") if line]
        assert shown == ["People gave different labels to this text. Which is right?", "<i>Cem</i>: sport", "Dora: politics"]
        anna.answer("2")
        assert project.labelled() == {19: 2}
        anna.page.wait_for_selector("#people-rows tr:nth-child(3)")
        assert "alpha 0.81" in anna.page.locator("#agreement").inner_text()


def test_two_browsers_of_one_name_are_told_apart(browser: Any, tmp_path: Path) -> None:
    """The second is asked whether it is the same person, once; who says no takes another name."""
    session = TextsInOrder(news(tmp_path / "news", TEXTS))
    with serving(session) as address, Person(browser, address, "Ann") as ann, Person(browser, address, "Bea") as other:
        ann.answer("1")
        page = other.page
        for name, button in (("Ann", "No, I take another name"), ("Ann", "Yes, that is me")):
            if not page.locator("#join").is_visible():
                page.click("#me-change")
            page.fill("#join-name", name)
            page.keyboard.press("Enter")
            page.wait_for_selector("#taken:has-text('“Ann” has joined in another browser, and gave 1 answer. Is that you?')")
            page.get_by_role("button", name=button).click()
        page.wait_for_selector("#me-name:has-text('Ann')")
        page.reload()
        page.wait_for_selector("#work:not([hidden])")
        assert other.text == TEXTS[2]  # the second is Bea's


def test_the_text_is_in_sight_after_an_answer(browser: Any, tmp_path: Path) -> None:
    """Also on a phone where somebody had scrolled down to the figures; long names of labels are not broken there."""
    session = TextsInOrder(news(tmp_path / "news", TEXTS, ("entertainment", "international relations", "a")))
    with serving(session) as address, Person(browser, address, "Ann", viewport={"width": 390, "height": 600}) as ann:
        assert ann.page.locator("#choices button").first.bounding_box()["height"] < 50
        ann.page.evaluate("document.getElementById('figures').scrollIntoView()")
        ann.answer("1")
        assert 0 <= ann.page.locator("#text").bounding_box()["y"] < 300


def test_a_label_is_found_and_corrected(browser: Any, tmp_path: Path) -> None:
    """In the list of what was labelled, which keeps the answer of before in its history; undo takes the correction back."""
    session = TextsInOrder(news(tmp_path / "news", TEXTS))
    with serving(session) as address, Person(browser, address, "Ann") as ann:
        for key in "123":
            ann.answer(key)
        page = ann.page
        page.wait_for_selector("#answered-rows li:nth-child(3)")
        page.locator("#answered-form").get_by_label("Search").fill("the 1TH match")
        page.wait_for_selector("#answered-count:has-text('1 text.')")
        page.locator("#answered-rows").get_by_label("Label").select_option("science")
        page.wait_for_selector("#answered-rows summary:has-text('2 answers')")
        assert session.project.labelled()[1] == 3
        page.click("#answered-rows summary")
        page.wait_for_selector("#answered-rows details[open] li:nth-child(2)")
        assert re.search("Ann: politics.*Ann: science", page.locator("#answered-rows ul").inner_text(), re.DOTALL)
        ann.undo()
        assert session.project.labelled()[1] == 2


@pytest.mark.timeout(600)  # it trains, perhaps beside other load
def test_from_a_text_file_to_a_model_in_use(browser: Any, tmp_path: Path) -> None:
    """One command: a script that knows the labels answers, trains on the page, reads the verdict, and asks the model there.

    When the command was killed it goes on where it was, without a lost answer; it ends in peace when it is asked to.
    """
    words = {"1": "goal match league team striker", "2": "shares profit market bank stocks"}
    hidden = {f"The {one} and the {other} of {i}": key for i in range(30) for key, some in words.items()
              for one, other in [(some.split()[i % 5], some.split()[(i + 1 + i // 5) % 5])]}  # fmt: skip
    (tmp_path / "texts.txt").write_text("\n".join(hidden), encoding="utf-8")
    of_project = ("label", "--out", tmp_path / "news", "--port")
    server = Running(*of_project, "0", tmp_path / "texts.txt", "--labels", "sport", "money")
    try:
        with Person(browser, f"http://127.0.0.1:{server.port}", "Ann") as ann:
            for number in range(36):
                if number == 9:
                    server.kill()
                    server = Running(*of_project, server.port)
                ann.answer(hidden[ann.text])
            page = ann.page
            page.click("#train")
            page.wait_for_selector("#verdict h1:has-text('Use ')")
            assert "of 100 new texts" in page.locator("#verdict h1").inner_text()
            page.wait_for_selector("#train:not([disabled])")
            page.wait_for_selector("#marks", state="hidden")
            page.wait_for_selector(f"#accuracy:has-text('{FITTED}')")
            page.click("#verdict a:has-text('Use the model')")
            page.fill("#classify-texts", "The league and the striker")
            page.click("#classify [type=submit]")
            page.wait_for_selector("#classify-results:has-text('sport')")
            page.click(".pages a:has-text('Label')")
            page.wait_for_selector("#work:not([hidden])")
            page.click(".pages a:has-text('Try')")
            page.wait_for_selector("#classify-texts")
        assert server.end() == 143
    finally:
        server.kill()
    with Project.open(tmp_path / "news") as project:
        assert len(project.labelled()) == 36


@pytest.mark.parametrize("width", [390, 1200])
def test_a_wrong_prediction_is_labelled_where_it_stands(width: int, browser: Any, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """By keys alone, from the page that tries models; its text is in the project, and both pages lead to each other."""
    session = TextsInOrder(news(tmp_path / "news", TEXTS))
    with ExitStack() as stack:
        server = server_of(ServedModel.of(bases(tokenizer)["labels"], "cups"))
        address = stack.enter_context(serving_app(make_app(server, AccessRules(), labels_api(session, AccessRules(), "../"))))
        watched = watched_page(browser, address, errors="Content Security", viewport={"width": width, "height": 844})
        page = stack.enter_context(watched)
        page.set_default_timeout(WAIT)
        page.goto(address)
        for name in ("Anna", ""):  # the second time the browser knows who labels
            page.fill("#classify-texts", f"The strike ended. {name}".strip())
            page.click("#classify [type=submit]")
            page.wait_for_selector("#classify-results li:only-child .relabel button:enabled")
            page.focus(".relabel button")
            page.keyboard.press("Enter")
            page.wait_for_selector(".relabel [role=group] button")
            readable(page)
            if name:
                page.wait_for_function("document.activeElement.matches('.relabel input')")
                page.keyboard.type(name)
                page.keyboard.press("Tab")
            page.wait_for_function("document.activeElement.matches('.relabel [role=group] button')")
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
            page.wait_for_selector(".relabel [role=status]:has-text('Saved: politics, by Anna. The text is new in the project.')")
        assert session.project.texts[len(TEXTS) :] == ("The strike ended. Anna", "The strike ended.")
        assert session.project.labelled() == {len(TEXTS): 2, len(TEXTS) + 1: 2}
        page.click("#pages >> text=Label")
        page.wait_for_selector("#work:not([hidden])")
        readable(page)
        page.click("#pages >> text=Try")
        page.wait_for_selector("#classify-texts")


def test_an_answer_waits_for_a_server_that_is_away(browser: Any, tmp_path: Path) -> None:
    """The page says that it is gone, keeps the answer, and goes on with the next text once it is back."""
    with ExitStack() as stack:
        with serving(TextsInOrder(news(tmp_path / "news", TEXTS))) as address:
            anna = stack.enter_context(Person(browser, address, "Anna"))
            for _ in range(5):
                anna.answer("1")
        anna.page.keyboard.press("2")
        anna.page.wait_for_selector("#away:has-text('does not answer')")
        anna.page.keyboard.press("3")
        session = TextsInOrder(Project.open(tmp_path / "news"))
        stack.enter_context(serving(session, int(address.rpartition(":")[2])))
        anna.page.wait_for_selector("#away:empty", state="attached")
        anna.idle()
        assert anna.text == TEXTS[6]
        anna.answer("3")
        assert session.project.labelled() == {0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 3}


def test_labels_are_added_renamed_and_merged(browser: Any, tmp_path: Path) -> None:
    """In a dialog, with what was done; the keys follow, and merging asks twice."""
    session = TextsInOrder(news(tmp_path / "news", TEXTS))
    with serving(session) as address, Person(browser, address, "Anna") as anna:
        page = anna.page
        anna.answer("2")
        page.click("#names-open")
        page.fill("#names-new", HOSTILE)
        page.keyboard.press("Enter")
        page.wait_for_selector("#names-rows tr:nth-child(4)")
        page.get_by_label("Name of sport").fill("games")
        page.get_by_role("button", name="Rename sport").click()
        page.wait_for_selector("#names [role=status]:has-text('is now “games”')")
        page.get_by_label("Merge politics into").select_option("games")
        page.get_by_role("button", name="Merge politics", exact=True).click()
        page.get_by_role("button", name="Merge “politics” (1 text) into “games”, for good?").click()
        page.wait_for_selector("#names-rows tr:nth-child(4)", state="detached")
        page.click("#names summary")
        page.wait_for_selector("#names-history li:last-child:has-text('politics')")
        assert re.search("Anna: .*politics.*games", page.locator("#names-history li").last.inner_text())
        page.fill("#names-new", "games")
        page.keyboard.press("Enter")
        page.wait_for_selector("#names .error:not([hidden])")
        page.keyboard.press("Escape")
        names = [one.split("\n")[-1] for one in page.locator("#choices button").all_inner_texts()]
        assert names == ["games", "science", HOSTILE]
        anna.answer("4")
        assert session.project.labelled() == {0: 1, 1: 4}


def test_words_are_tagged_by_keys(browser: Any, tmp_path: Path) -> None:
    """Arrow keys choose words, a label's key sets it, 0 takes it away, and Enter saves."""
    texts = ["Anna Karenina went to Paris", "שלום עולם זה טקסט"]
    session = TextsInOrder(news(tmp_path / "news", texts, ("PERSON", "PLACE"), type="tagging"))
    with serving(session) as address, Person(browser, address, "Anna") as anna:
        page = anna.page
        assert page.evaluate("document.activeElement.textContent") == "Anna"
        for key in ("Shift+ArrowRight", "1", "ArrowRight", "2", "0", "End", "2"):
            page.keyboard.press(key)
        assert page.get_by_role("option", name="Paris, PLACE").count() == 1
        assert page.get_by_role("option", name="Karenina, PERSON").count() == 1
        page.keyboard.press("?")
        assert page.locator("#keys-rows kbd").all_inner_texts().count("0") == 1
        page.keyboard.press("Escape")
        anna.answer("Enter")
        assert session.project.labelled() == {0: (1, 1, 0, 0, 2)}
        page.keyboard.press("ArrowLeft")  # the next word, from right to left
        page.keyboard.press("1")
        assert page.get_by_role("option", name="עולם, PERSON").count() == 1
        anna.answer("Enter")
        anna.undo()
        assert page.locator("#notice").inner_text() == "You chose: עולם: PERSON"
        anna.undo()
        boxes = [page.locator(".word").nth(at).bounding_box() for at in (2, 3)]
        centres = [(box["x"] + box["width"] / 2, box["y"] + 10) for box in boxes]
        page.mouse.move(*centres[0])
        page.mouse.down()
        page.mouse.move(*centres[1], steps=4)
        page.mouse.up()
        page.keyboard.press("2")
        anna.answer("Enter")
        assert session.project.labelled() == {0: (1, 1, 2, 2, 2)}


def test_hostile_texts_are_text(browser: Any, tmp_path: Path) -> None:
    """Nothing in texts, labels, names or guidelines is run, or turns the text around; a huge text scrolls in its own place."""
    texts = [f"\u202e\x1b{HOSTILE}", "word " * 20_000 + "x" * 50_000]
    session = TextsInOrder(news(tmp_path / "news", texts, [HOSTILE, "b"], name=HOSTILE, guidelines=HOSTILE))
    with serving(session) as address, Person(browser, address, HOSTILE) as anna:
        assert anna.text == f"\ufffd\ufffd{HOSTILE}"
        anna.answer("1")
        anna.page.wait_for_selector("#people-rows tr")
        assert anna.page.locator("#said").inner_text() == f"Saved as “{HOSTILE}”."
        assert anna.page.title() != "hacked"
        assert anna.page.locator("img").count() == 0
        assert anna.page.locator("#text").bounding_box()["height"] < 500
        assert anna.page.locator("#choices button").first.is_visible()
        assert anna.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_many_labels_are_found_by_their_names(browser: Any, tmp_path: Path) -> None:
    """Those without a key, too."""
    labels = [f"topic {i}" for i in range(60)]
    session = TextsInOrder(news(tmp_path / "news", TEXTS, labels))
    with serving(session) as address, Person(browser, address, "Anna") as anna:
        anna.page.keyboard.press("/")
        anna.page.keyboard.type("topic 57")
        anna.answer("Enter")
        anna.answer("a")
        assert session.project.labelled() == {0: 58, 1: 10}


@pytest.mark.parametrize(
    ("kind", "width", "scheme"), [("classification", 390, "dark"), ("tagging", 390, "light"), ("classification", 1000, "light")]
)
def test_everyone_can_use_it(kind: str, width: int, scheme: str, browser: Any, tmp_path: Path) -> None:
    """axe finds no serious violation on the page or in its dialogs; nothing is wider than the screen; parts have names."""
    session = TextsInOrder(news(tmp_path / "news", ["Anna is in Paris", *TEXTS], type=kind))
    settings = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme, "bypass_csp": True}
    with serving(session) as address, Person(browser, address, "Anna", **settings) as anna:
        page = anna.page
        page.keyboard.press("1")
        if kind == "tagging":
            anna.answer("Enter")
            page.keyboard.press("2")
        anna.idle()
        anna.undo()
        page.wait_for_selector("#outlook:not([hidden])")
        page.click("#outlook-table summary")
        assert page.locator("#outlook-table tbody tr").count() == 3
        outlook = "100 more labels would bring about 2 points."
        marks = page.locator("#marks-words span").all_inner_texts()
        assert marks == ["Now: about 87%", "Goal: 90%"]
        for role, name in (("region", "Text to label"), ("group", "Labels"), ("img", outlook)):
            assert page.get_by_role(role, name=name, exact=True).count() == 1, name
        for dialog in (None, "keys", "names"):
            if dialog:
                page.click(f"#{dialog}-open")
                page.wait_for_selector(f"#{dialog} tbody tr")
            readable(page)
            page.keyboard.press("Escape")
