"""The page of a server under trouble: panels say what is wrong, work by keyboard and from right to left, and never freeze."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import IN_A_BROWSER
from helpers.served_page import address as address
from helpers.served_page import classify, submit
from helpers.served_page import models as models
from helpers.served_page import page as page
from warmstart.app import routes as app
from warmstart.app.models import ServedModel
from warmstart.errors import ModelError

pytestmark = IN_A_BROWSER
HEBREW = "שלום לכל העולם"


# ------------------------------------------------------------------------------------------------ errors


def shown_error(page: Any, panel: str) -> str:
    """What a panel says once it has failed; its button can be pressed again."""
    submit(page, panel)
    error = page.locator(f"#{panel} .error[role=alert]:not([hidden])").first
    error.wait_for()
    assert page.locator(f"#{panel} [type=submit]").is_enabled()
    return str(error.inner_text())


def test_writing_shows_a_refusal_and_an_error_on_the_way(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written until then stays; afterwards the panel writes again."""
    page.fill("#write-tokens", "6")
    page.fill("#write-seed", "99999999999999999999")
    assert "seed" in shown_error(page, "write")
    page.fill("#write-seed", "3")
    write_on = app.write_on

    def tired(model: Any, prompt: str, config: Any, top: int, on_token: Callable[[dict[str, Any]], None]) -> Any:
        told = 0

        def some(token: dict[str, Any]) -> None:
            nonlocal told
            if told == 3:
                raise ModelError("the model is tired; let it rest")
            told += 1
            on_token(token)

        return write_on(model, prompt, config, top, some)

    with monkeypatch.context() as patch:
        patch.setattr(app, "write_on", tired)
        assert shown_error(page, "write") == "the model is tired; let it rest"
    assert page.locator("#write-text button").count() == 3
    page.click("#write-text button:nth-of-type(2)")
    assert page.locator("#write-step tbody tr").count() == 6
    submit(page, "write")
    page.wait_for_selector("#write .status:has-text('6 tokens')")
    assert page.locator("#write .error").is_hidden()


def test_a_damaged_card_is_said(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an examination nothing half is shown."""

    def damaged(model: ServedModel) -> str:
        raise ModelError("the card cannot be read; export the model again")

    monkeypatch.setattr(ServedModel, "card", damaged)
    assert shown_error(page, "checks") == "the card cannot be read; export the model again"
    assert page.locator("#checks-files").is_hidden()


def test_a_server_that_is_gone_is_said(page: Any) -> None:
    """In every panel that asks it."""
    page.route("**/api/**", lambda route: route.abort())
    page.fill("#classify-texts", "She holds the cat")
    for panel in ("classify", "write", "checks"):
        assert shown_error(page, panel) == "the server does not answer", panel


def test_what_a_server_answered_before_it_went_is_kept(page: Any) -> None:
    """Its rows can be saved, with the error beside them; of a long text the first characters are shown, and all are saved."""
    page.evaluate("""document.querySelector("#classify-texts").value = "x".repeat(5000) + "\\ntea".repeat(249)""")
    answered = list[Any]()

    def once(route: Any) -> None:
        answered.append(route)
        route.continue_() if len(answered) == 1 else route.abort()

    page.route("**/api/predict", once)
    assert shown_error(page, "classify") == "the server does not answer"
    assert page.locator("#classify-save").inner_text() == "Save the 100 done as CSV"
    assert page.locator("#classify-results .text").first.text_content() == "x" * 300 + " … (4,700 more characters)"
    with page.expect_download() as download:
        page.click("#classify-save")
    lines = Path(download.value.path()).read_text().splitlines()
    assert (len(lines), lines[1].count("x")) == (101, 5000)
    page.fill("#classify-texts", "tea\n" + "x" * 100_003)
    assert shown_error(page, "classify").startswith("text 2 has 100,003 characters, and the server reads at most 100,000 of a text")


# ------------------------------------------------------------------------------------------------ what was written


def test_what_was_written_outlives_a_reload_and_has_an_address(page: Any, address: str) -> None:
    """Ctrl+Enter sends, also while the panel still loads; the next panel has the same text; an address of a result leads to it."""
    busy = "of => document.querySelector('#classify [type=submit]').disabled = of"
    page.wait_for_selector("#classify form[aria-busy='false']")
    page.evaluate(busy, True)
    page.fill("#classify-texts", "I would like tea")
    page.press("#classify-texts", "Control+Enter")
    page.evaluate(busy, False)
    page.wait_for_selector("#classify-results li")
    shared = page.url
    assert shared.endswith("#classify?t=I+would+like+tea&m=cups")
    page.evaluate("location.hash = '#write'")
    assert page.locator("#write-prompt").input_value() == "I would like tea"
    page.reload()
    assert page.locator("#classify-texts").input_value() == "I would like tea"
    page.goto("about:blank")
    page.goto(shared)
    page.wait_for_selector("#classify-results li")
    assert page.locator("#classify-results .text").all_text_contents() == ["I would like tea"]
    page.evaluate("location.hash = '#classify?t=milk&m=number'")
    page.wait_for_selector("#classify-results .text:text-is('milk')")
    assert page.locator("#classify-model").input_value() == "number"


def test_one_input_has_its_results_as_tabs(page: Any, address: str) -> None:
    """Each tab has an address, asks once for what the box holds, and is there only for models that can show it."""
    asked = list[str]()
    page.on(
        "request", lambda one: asked.append(one.url.rpartition("/")[2]) if "/api/" in one.url and one.method == "POST" else None
    )
    tabs, chosen = page.locator("#classify [role=tab]"), page.locator("#classify [role=tab][aria-selected=true]")
    assert tabs.all_inner_texts() == ["Answer", "Why?", "Alike"]
    page.fill("#classify-texts", "I would like tea")
    submit(page, "classify")
    page.wait_for_selector("#classify-results .bar")
    tabs.first.focus()
    page.keyboard.press("ArrowRight")
    assert chosen.inner_text() == "Answer"
    page.keyboard.press("Enter")
    page.wait_for_selector("#classify-results .heat span")
    assert page.url.endswith("#why?t=I+would+like+tea&m=cups")
    page.click("#tab-alike")
    page.wait_for_selector("table.nearest tbody tr")
    assert page.get_by_role("tabpanel").get_attribute("aria-labelledby") == "tab-alike"
    page.click("#tab-why")
    assert asked == ["predict", "explain", "nearest"]
    for name, shown in {"why": ".heat span", "alike": "table.nearest td"}.items():
        page.goto("about:blank")
        page.goto(f"{address}#{name}?t=milk&m=cups")
        page.wait_for_selector(f"#classify {shown}")
        assert chosen.get_attribute("id") == f"tab-{name}"
    page.evaluate("location.hash = '#why?t=tea&m=number'")
    page.wait_for_selector("#classify-results .text:text-is('tea')")
    assert chosen.inner_text() == "Answer"


# ------------------------------------------------------------------------------------------------ by keyboard alone


def tab_to(page: Any, selector: str, key: str = "") -> None:
    """Press Tab until an element has the focus, and then a key."""
    for _ in range(80):
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return page.keyboard.press(key) if key else None
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {selector}")


def test_no_panel_needs_a_mouse(page: Any) -> None:
    """From the link past the header; a token's table and another way from it."""
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    tab_to(page, "#classify-texts")
    page.keyboard.type("tea")
    tab_to(page, "#classify [type=submit]", "Enter")
    page.wait_for_selector("#classify-results li")

    tab_to(page, "#write-prompt")
    page.keyboard.type("She holds")
    tab_to(page, "#write-tokens")
    page.keyboard.press("Control+A")
    page.keyboard.type("5")
    tab_to(page, "#write [type=submit]", "Enter")
    page.wait_for_selector("#write .status:has-text('5 tokens')")
    tab_to(page, "#write-text button:nth-of-type(2)", "Enter")
    assert "Token 2:" in page.locator("#write-step caption").inner_text()
    tab_to(page, "#write-step tbody button:not([disabled])", "Enter")
    page.wait_for_function("() => document.querySelector('#write-text > span').textContent !== 'She holds'")
    page.wait_for_selector("#write .status:has-text('5 tokens')")
    assert page.locator("#write-text > span").inner_text().startswith("She holds")


# ------------------------------------------------------------------------------------------------ from right to left

PLACES = """(element) => {
  const range = document.createRange();
  range.selectNodeContents(element);
  const [text, box] = [range.getBoundingClientRect(), element.getBoundingClientRect()];
  return { left: text.left - box.left, right: box.right - text.right, direction: getComputedStyle(element).direction };
}"""
"""how far a text is from both sides of its element"""


def is_from_right_to_left(place: dict[str, Any]) -> bool:
    return bool(place["direction"] == "rtl" and place["right"] < place["left"])


def test_hebrew_is_read_from_right_to_left(page: Any) -> None:
    """In the fields, in results, in the words of an explanation, and in what a model writes; what is around stays as it was."""
    for field in ("classify-texts", "write-prompt"):
        page.fill(f"#{field}", HEBREW)
        assert page.locator(f"#{field}").evaluate("(area) => getComputedStyle(area).direction") == "rtl", field
    results = classify(page, f"{HEBREW}\nShe holds the cat")
    hebrew, english = (results.locator(".text").nth(i).evaluate(PLACES) for i in range(2))
    assert is_from_right_to_left(hebrew)
    assert not is_from_right_to_left(english)
    assert english["left"] < english["right"]
    results.first.get_by_role("button", name="Why?").click()
    page.wait_for_selector(".heat span")
    words = page.locator(".heat > span").evaluate_all("(spans) => spans.map((one) => one.getBoundingClientRect().left)")
    assert len(words) == len(HEBREW.split())
    assert words == sorted(words, reverse=True)
    page.fill("#write-tokens", "3")
    submit(page, "write")
    page.wait_for_selector("#write .status:has-text('3 tokens')")
    assert page.locator("#write-text").evaluate("(text) => getComputedStyle(text).direction") == "rtl"
    prompt, token = (page.locator(f"#write-text > {one}").first.bounding_box() for one in ("span", "button"))
    assert token["x"] + token["width"] <= prompt["x"] + prompt["width"]
    assert page.evaluate("getComputedStyle(document.body).direction") == "ltr"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
