"""The page of a server, used in a browser as people use it: every panel works, shows its errors, and can be read by everyone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import IN_A_BROWSER, readable
from helpers.fits import fit_result
from helpers.mutants import LABELS
from helpers.served import server_of
from helpers.served_page import address as address
from helpers.served_page import classify, opened_page, page_task, serving, submit
from helpers.served_page import models as models
from helpers.served_page import page as page
from helpers.workbook import workbook
from warmstart.app.guard import AccessRules
from warmstart.app.models import ServedModel, ServedModels
from warmstart.runs.steps import TaskPlace

pytestmark = IN_A_BROWSER


def rows_of(page: Any, table: str) -> list[list[str]]:
    """The cells of each row of a table."""
    return [row.split("\t") for row in page.locator(f"{table} tbody tr").all_inner_texts()]


def test_texts_are_classified_and_explained(page: Any) -> None:
    """With a bar for each label, in any script, with the words that a prediction depends on, and with what was not read."""
    results = classify(page, "I would like tea\nשלום עולם\n\n<b>water</b> & milk\n" + "tea " * 2000)
    assert results.count() == 4
    assert results.nth(2).locator(".text").inner_text() == "<b>water</b> & milk"
    assert results.first.locator(".bar").count() == 3
    short, *_, long = results.all_inner_texts()
    assert "not read" not in short
    assert re.search(r"Too long for the model: [\d,]+ tokens are not read\.", long)
    page.click("#classify-results li:first-child button")
    page.wait_for_selector(".heat span")
    assert page.locator(".heat span").all_inner_texts() == ["I", "would", "like", "tea"]
    assert "Faithfulness" in results.first.inner_text()


def test_a_tab_parts_texts_only_where_the_model_reads_several(page: Any) -> None:
    """By itself where the record says so; where it says nothing, on request; of a single text it is a part."""
    sent = list[Any]()
    page.on("request", lambda one: sent.append(one.post_data_json["inputs"]) if one.url.endswith("/api/predict") else None)
    page.fill("#classify-texts", "I would\tlike tea")
    for kind in ("lines", "pairs"):
        page.select_option("#classify-kind", kind)
        submit(page, "classify")
        page.wait_for_selector("#classify .status:has-text('1 done')")
        page.fill("#classify-texts", "I would\tlike tea")
    assert sent == [["I would\tlike tea"], [["I would", "like tea"]]]
    for parted, kinds in (("yes", ["pairs"]), ("", ["lines", "whole"])):
        page.locator("#classify-model option").first.evaluate("(one, parted) => { one.dataset.parted = parted; }", parted)
        page.locator("#classify-model").dispatch_event("change")
        assert page.locator("#classify-kind option:enabled").evaluate_all("(all) => all.map((one) => one.value)") == kinds
        assert page.locator("#classify-kind").input_value() == kinds[0]


def test_a_mail_is_one_text_and_a_file_is_read_in_the_browser(page: Any) -> None:
    """What is pasted with empty lines between; a table's column of texts, quoted or in another encoding; a text file; and back."""
    mail = "Dear team,\n\nthe tea is cold.\n\nYours"
    page.evaluate(
        """(mail) => { const area = document.querySelector("#classify-texts"); area.focus(); area.value = mail;
        area.dispatchEvent(new InputEvent("input", { inputType: "insertFromPaste" })); }""",
        mail,
    )
    assert page.locator("#classify-kind").input_value() == "whole"

    def found() -> list[str]:
        submit(page, "classify")
        page.wait_for_selector("#classify .status:has-text('done')")
        return [str(one) for one in page.locator("#classify-results .text").all_text_contents()]

    assert found() == [mail]
    table = 'id;Text;note\r\n1;"a ""hot""; tea\nfor two";x\r\n2;;y\r\n3;café;\r\n'
    page.set_input_files("#classify-file", {"name": "mails.csv", "mimeType": "text/csv", "buffer": table.encode("cp1252")})
    page.wait_for_selector("#classify-column")
    assert found() == ['a "hot"; tea\nfor two', "café"]
    page.select_option("#classify-column", label="note")
    assert found() == ["x", "y"]
    page.set_input_files("#classify-file", {"name": "list.txt", "mimeType": "text/plain", "buffer": b"tea\nmilk\n"})
    page.wait_for_selector("#classify-column", state="hidden")
    assert found() == ["tea", "milk"]
    rows = [["id", "Text"], [1, "Good tea"], [2, "It is cold"]]
    page.set_input_files("#classify-file", {"name": "mails.xlsx", "mimeType": "text/csv", "buffer": workbook(rows)})
    page.wait_for_selector("#classify-column")
    assert found() == ["Good tea", "It is cold"]
    page.set_input_files("#classify-file", {"name": "two.xlsx", "mimeType": "text/csv", "buffer": workbook(rows, rows)})
    page.wait_for_selector(
        "#classify .error:has-text('two.xlsx must have one sheet with rows, but has S1, S2; save the sheet with')"
    )
    page.wait_for_selector("#classify-column", state="hidden")
    for name, content in (("mails.doc", b"\xd0\xcf\x11\xe0\0\0"), ("a.csv", b"tea\0")):
        page.set_input_files("#classify-file", {"name": name, "mimeType": "text/csv", "buffer": content})
        page.wait_for_selector(f"#classify .error:has-text('the file must hold text, but {name} does not; save it as csv')")
    assert page.locator("#classify-file").input_value() == ""
    page.set_input_files("#classify-file", {"name": "a.txt", "mimeType": "text/plain", "buffer": "tea".encode("utf-16")})
    page.wait_for_selector("#classify .error", state="hidden")
    page.wait_for_function("document.getElementById('classify-texts').value === 'tea'")


def test_similar_training_texts_stand_beside_a_prediction(page: Any) -> None:
    """On request, with labels and cosines, as text; a model without any has no such tab, and nothing is said of it."""
    classify(page, "I want tea\nmilk").get_by_role("button", name="Similar training texts").first.press("Enter")
    page.wait_for_selector("table.nearest tbody tr")
    rows = rows_of(page, "table.nearest")
    assert (len(rows), rows[0]) == (5, ["I want tea", LABELS[0], "1.000"])
    assert {row[0] for row in rows} < {*page_task().train.texts}
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Similar training texts"
    page.select_option("#classify-model", "number")
    page.wait_for_selector("#tab-alike", state="hidden")
    assert "--texts" not in page.content()


def test_a_guarantee_is_chosen_by_a_slider(page: Any) -> None:
    """Its value is the error rate, and the share of texts that gets a label; the others get "I don't know"."""
    page.wait_for_selector("#classify-guarantee:not([hidden])")
    slider = page.locator("#classify-error")
    slider.focus()
    slider.press("Home")
    assert re.search(r"at most [\d.]+%: \d+% of texts get a label", page.locator("#classify-error-value").inner_text())
    classify(page, "tea\nmilk")
    assert "of the predictions that reach it are wrong" in page.locator("#classify-guaranteed").inner_text()
    assert page.get_by_text("I don’t know").count() >= 1


def test_ten_thousand_texts_do_not_freeze_the_page(page: Any) -> None:
    """Some are drawn, more on request; it can be stopped meanwhile, and what is done can be saved."""
    page.locator("#classify-texts").evaluate(
        "(area) => { area.value = Array.from({length: 10000}, (_, i) => `text ${i}`).join('\\n'); }"
    )
    submit(page, "classify")
    page.wait_for_selector("#classify-results li")
    page.fill("#write-prompt", "still alive")  # while they are computed
    page.click("#classify .stop")
    page.wait_for_selector("#classify .status:has-text('stopped')")
    assert re.fullmatch(r"Save the [\d,]+ done as CSV", page.locator("#classify-save").inner_text())
    assert page.locator("#classify-summary").is_visible()
    page.locator("#classify-texts").evaluate("(area) => { area.value = area.value.split('\\n').slice(0, 300).join('\\n'); }")
    submit(page, "classify")
    page.wait_for_selector("#classify-save:not([hidden])")
    assert page.locator("#classify-results > li").count() == 50
    page.click("#classify-more")
    assert page.locator("#classify-results > li").count() == 100


def test_a_text_is_written_token_by_token(page: Any) -> None:
    """Each shows what else was probable, and what followed in the corpus."""
    assert page.locator("#write-model").is_hidden()  # there is one that writes
    page.fill("#write-prompt", "She holds")
    page.fill("#write-tokens", "8")
    submit(page, "write")
    page.wait_for_selector("#write .status:has-text('8 tokens')")
    page.click("#write-text button:nth-of-type(3)")
    rows = page.locator("#write-step tbody tr")
    assert rows.count() == 6
    assert "Token 3:" in page.locator("#write-step caption").inner_text()
    shares = [float(one.rstrip("%")) for one in page.locator("#write-step tbody td:nth-child(2)").all_inner_texts()]
    assert shares == sorted(shares, reverse=True)
    assert re.search(r"the corpus has \d+ tokens: .+ The model is [\d.]+ nats away", page.locator("#write-corpus").inner_text())
    assert page.locator("#write-step td:nth-child(3)").first.inner_text().endswith("%")


def test_the_evidence_of_a_model_is_shown(page: Any) -> None:
    """Checks, the card, how well confidence fits, and findings as text; a model without them says so."""
    submit(page, "checks")
    page.wait_for_selector("#checks-files tbody tr")
    right = "Right on 70 of 100 new texts (likely 55 to 82), by 40 test texts."
    assert page.locator("#checks-accuracy").inner_text() == right
    assert re.search(r"It passes \d+ checks", page.locator("#checks-files caption").inner_text())
    page.click("#checks-card summary")
    assert "cups" in page.locator("#checks-card pre").inner_text()
    about = page.locator("#checks-calibration p")
    assert about.inner_text().startswith("Of 200 held-out texts, which chose nothing, 59.5% are right. Calibration error ")
    assert page.locator("#checks-audit li").all_inner_texts() == ["warning: 2 texts of <b>train</b> are in test, too."]
    page.select_option("#checks-model", "number")
    submit(page, "checks")
    page.wait_for_function("() => document.querySelector('#checks-audit p').textContent.includes('was not audited')")
    assert "--calibration-fraction 0.5" in about.inner_text()


def test_a_model_begins_with_its_verdict(models: list[ServedModel], browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first screen of its run, with the form that tries it in place of a command; several models have none.

    The box for texts is seen without scrolling, on a phone, too.
    """
    found = fit_result().verdict(Path("runs/mails"), TaskPlace("mails.csv"))
    monkeypatch.setattr("warmstart.app.models.read_verdict", lambda path: found)
    assert ServedModels(models).verdict is None
    with serving(server_of(*models[:1])) as address, opened_page(browser, address) as page:
        assert page.locator("h1").all_inner_texts() == [found.headline]
        titles = page.locator(".verdict > .part > h2").all_inner_texts()
        assert [one.upper() for one in titles] == ["TRY", "USE", "WHERE IT FAILS", "NEXT"]
        classify(page, "tea")
        assert page.locator("#verdict .results li").count() == 1
        assert "warmstart serve" not in page.locator("#verdict").inner_text()
        for width, height in ((390, 844), (1200, 800)):
            page.set_viewport_size({"width": width, "height": height})
            page.wait_for_function("innerWidth === " + str(width))
            assert page.evaluate("document.getElementById('classify-texts').getBoundingClientRect().top + scrollY") <= 300, width


def test_texts_of_none_of_the_labels_are_said_to_be(page: Any) -> None:
    """Beside the prediction, and counted in the summary."""
    one = {"text": "", "label": LABELS[0], "confidence": 0.9, "probabilities": {LABELS[0]: 0.9}}
    answer = {"model": "cups", "predictions": [one | {"unknown": True}, one | {"unknown": False}], "unread": [0, 0]}
    page.route("**/api/predict", lambda route: route.fulfill(json=answer))
    shown = classify(page, "\u05e9\u05dc\u05d5\u05dd\ntea").all_inner_texts()
    assert ["Unlike the texts that the model learned from" in text for text in shown] == [True, False]
    assert page.locator("#classify-summary").inner_text() == f"{LABELS[0]}: 2 · like those of none of the labels: 1"


def fill_every_panel(page: Any) -> None:
    """Every panel shows a result, tables and drawings included."""
    classify(page, "tea\nmilk")
    page.get_by_role("button", name="Similar training texts").first.click()
    page.wait_for_selector("table.nearest tbody tr")
    submit(page, "checks")
    page.wait_for_selector("#checks-files tbody tr")
    page.fill("#write-tokens", "5")
    submit(page, "write")
    page.wait_for_selector("#write .status:has-text('5 tokens')")
    page.click("#write-text button:nth-of-type(1)")


SIDEWAYS = """(panel) => [panel, ...panel.querySelectorAll("*")]
  .filter((one) => one.clientWidth && one.scrollWidth > one.clientWidth + 1)
  .filter((one) => !["visible", "hidden", "clip"].includes(getComputedStyle(one).overflowX))
  .map((one) => one.id || one.getAttribute("aria-label") || one.outerHTML.slice(0, 80))"""
"""the elements of a panel that a finger has to push sideways"""


@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (390, "dark"), (1000, "light")])
def test_everyone_can_read_it(width: int, scheme: str, browser: Any, address: str) -> None:
    """axe finds no serious violation, and nothing is pushed sideways."""
    with browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True) as context:
        page = context.new_page()
        page.goto(address)
        fill_every_panel(page)
        readable(page)
        panels = {panel.get_attribute("id"): panel.evaluate(SIDEWAYS) for panel in page.query_selector_all("main section[id]")}
        assert {*panels} == {"classify", "write", "checks"}
        assert width == 1000 or not any(panels.values()), panels


def test_a_token_is_asked_for_as_a_password(models: list[ServedModel], browser: Any) -> None:
    """With it the page works."""
    rules = AccessRules(token="0123456789abcdef")
    with serving(server_of(*models), rules) as guarded:
        page = browser.new_page(http_credentials={"username": "me", "password": "0123456789abcdef"})
        page.goto(guarded)
        classify(page, "tea")
        page.close()
