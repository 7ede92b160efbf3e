"""Reports as people see them: in a browser, on a phone and on a desk, light and dark, and on paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.browser import IN_A_BROWSER, readable, watched_page
from helpers.bundles import language_bundle, unread_model
from helpers.fits import quickstart_result
from helpers.models import SENTENCES
from helpers.races import full_race
from helpers.tasks import cats, tune
from warmstart.commands.adapt.command import adapt
from warmstart.commands.fit.page import write_fit_page
from warmstart.commands.pretrain.command import pretrain
from warmstart.commands.quickstart.result import quickstart_view
from warmstart.commands.race.page import write_race_page
from warmstart.commands.settings import PretrainConfig
from warmstart.config import Config
from warmstart.experiment.config import AdaptConfig
from warmstart.inspection.attention_lab import softmax_weights
from warmstart.model.files import save
from warmstart.studies.attention import StudyAttentionConfig, study_attention
from warmstart.studies.lab import StudyLabConfig, study_lab
from warmstart.system.storage import PAGE_FILE
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = IN_A_BROWSER
FIRST_SCREENS: dict[str, list[str]] = {
    "race": ["Use", "Next"],
    "adapt": ["Use", "Where it fails", "Next"],
    "quickstart": ["Use", "Where it fails"],
    "pretrain": ["Now", "Next", "Mind"],
    "lab": ["tiles", "next"],
    "attention": ["tiles", "next"],
}
"""kind of report -> the parts below the headline of its first screen: those of a verdict, or figures and the next step"""
KINDS = tuple(FIRST_SCREENS)
LARGEST = 2_000_000
"""bytes"""
PHONE, DESK, PAPER = 390, 1100, 720
"""pixels across"""
GROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(27, 35, 44)"}
"""of a chart"""
DRAWN = "() => document.querySelectorAll('.drawing').length === document.querySelectorAll('.drawn').length"


@pytest.fixture(scope="module")
def pages(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The address of a report of each kind."""
    place = tmp_path_factory.mktemp("reports")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warmstart.model.files._fresh_reader", unread_model)
        save(language_bundle(tokenizer), place / "lm")
        save_task(cats(), place / "task")
        given = {"model": str(place / "lm"), "task": str(place / "task"), "out": str(place / "adapt"), "seeds": 2, "labels": 30}
        adapt(AdaptConfig.build(given | {"selection": "holdout", "tune": tune("full", epochs=1)}))
        (place / "text.txt").write_text("\n\n".join(SENTENCES * 20))
        small = {
            "backbone": {"width": 8, "heads": 2, "depth": 1},
            "tokenizer": {"type": "character"},
            "train": {"steps": 4, "batch": 4},
        }
        pretrain(PretrainConfig.build({"text": [str(place / "text.txt")], "out": str(place / "pretrain"), **small}))
        looked_at = {"model": str(place / "lm"), "sentence": SENTENCES[0], "text": [str(place / "text.txt")], "passages": 20}
        study_attention(StudyAttentionConfig.build(looked_at | {"out": str(place / "attention")}))
    study_lab(StudyLabConfig(out=str(place / "lab"), samples=100))
    write_race_page(full_race(), Config(), place / "race")
    quick = quickstart_result()
    write_fit_page(quick.fit, Config(), place / "quickstart", quickstart_view(quick))
    return {kind: (place / kind / PAGE_FILE).as_uri() for kind in KINDS}


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def page(browser: Any, scheme: str) -> Iterator[Any]:
    """A page that axe may look into."""
    with browser.new_context(viewport={"width": DESK, "height": 900}, color_scheme=scheme, bypass_csp=True) as context:
        yield context.new_page()


def opened(page: Any, address: str, width: int) -> None:
    """Show a report, with everything unfolded and all charts drawn."""
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(address)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.wait_for_function(DRAWN)


def test_everyone_can_read_a_report(scheme: str, page: Any, pages: dict[str, str]) -> None:
    """On a phone and on a desk nothing is wider than the screen, axe finds no serious violation, and charts have its ground."""
    for kind, width in ((kind, width) for kind in KINDS for width in (PHONE, DESK)):
        opened(page, pages[kind], width)
        readable(page)
        grounds = page.evaluate("[...document.querySelectorAll('.live svg.marks')].map((one) => one.style.backgroundColor)")
        assert set(grounds) == {GROUNDS[scheme]}, kind


def test_the_first_screen_answers(page: Any, pages: dict[str, str]) -> None:
    """Each kind of report has the parts that it must have; result, figures and next step are in sight; a file has at most 2 MB."""
    for kind in KINDS:
        assert Path(pages[kind].removeprefix("file://")).stat().st_size < LARGEST, kind
        opened(page, pages[kind], DESK)
        parts = page.locator("header").locator(".part > h2, .tiles, .next")
        assert parts.evaluate_all("(all) => all.map((one) => one.className || one.textContent)") == FIRST_SCREENS[kind], kind
        answers = page.locator("h1, .methods, .tiles, .next").all()
        assert max(one.evaluate("(one) => one.getBoundingClientRect().bottom") for one in answers) < 700, kind


def test_the_first_table_of_a_race_is_whole(page: Any, pages: dict[str, str]) -> None:
    """On a desk no column of the ranking is cut off, however full its rows are, and figures end below the end of their name."""
    opened(page, pages["race"], DESK)
    table = page.locator(".scroll").first
    assert table.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    assert table.locator("table").evaluate("(one) => one.getBoundingClientRect().right") < DESK
    ends = table.evaluate(
        "(one) => [...one.querySelectorAll('tr')].map((row) => [...row.cells].map((cell) => {"
        "  const range = document.createRange(); range.selectNodeContents(cell);"
        "  return cell.classList.contains('number') ? Math.round(range.getBoundingClientRect().right) : null; }))"
    )
    assert len(ends) > 10
    assert all(len(set(column)) == 1 for column in zip(*ends, strict=True))


def test_a_report_is_printed_in_light_colours(scheme: str, page: Any, pages: dict[str, str]) -> None:
    """Nothing is wider than the paper; each chart is there once, from a dark page too, and never dark."""
    for kind in KINDS:
        page.emulate_media(media="screen")
        opened(page, pages[kind], PAPER)
        page.emulate_media(media="print")
        assert page.evaluate("document.documentElement.scrollWidth") <= PAPER, kind
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", kind
        for figure in page.locator(".drawing:not(details:not([open]) *)").all():
            shown = [one.get_attribute("class").split()[0] for one in figure.locator("img, .live").all() if one.is_visible()]
            assert shown == (["light"] if scheme == "dark" else ["live"]), kind


def test_a_chart_follows_the_colours_of_the_page(browser: Any, pages: dict[str, str]) -> None:
    """Where the scheme changes while it is read, and where scripts may not run."""
    ground = "document.querySelector('.live svg.marks')?.style.backgroundColor"
    with browser.new_context(color_scheme="light", bypass_csp=True) as context:
        page = context.new_page()
        opened(page, pages["lab"], DESK)
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(f"{ground} === '{GROUNDS['dark']}'")
    with browser.new_context(color_scheme="dark", java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(pages["lab"])
        images = page.locator(".drawing img").all()
        assert [one.get_attribute("class") for one in images if one.is_visible()] == ["dark"] * (len(images) // 2)


@pytest.fixture
def lab_page(browser: Any, pages: dict[str, str]) -> Iterator[Any]:
    """The page of ``study lab``, from disk; nothing may fail, and nothing may be asked of another place."""
    with watched_page(browser, pages["lab"], errors="Content Security") as page:
        page.goto(pages["lab"])
        page.wait_for_selector("#lab-live:not([hidden])")
        yield page


def shown_weights(page: Any) -> list[list[float]]:
    """The numbers of the table, a row for each key."""
    rows = page.locator("#lab-weights tbody tr")
    return [[float(one) for one in row.locator("td.number").all_inner_texts()] for row in rows.all()]


def test_attention_is_computed_as_in_the_lab(lab_page: Any) -> None:
    """Copying, averaging and two heads, for the keys and queries that are shown; by the closed form for keys of varying length."""
    keys, spread = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]]), {}
    for name, beta, points in (("copying", 6, [[1, 0]]), ("averaging", 6, [[1, 1]]), ("two heads", 10, [[1, 0], [0, 1]])):
        lab_page.select_option("#lab-experiment", name)
        heads = [softmax_weights(beta * np.array(one), keys) for one in points]
        columns = [*heads, np.mean(heads, axis=0)] if len(heads) > 1 else [beta * keys @ np.array(points[0]), *heads]
        np.testing.assert_allclose(shown_weights(lab_page), np.transpose(columns), atol=6e-4)
    lab_page.select_option("#lab-experiment", "averaging")
    assert "the mean of the values of a and b" in lab_page.locator("#lab-finding").inner_text()
    assert "beta times the sum of the keys a and b" in lab_page.locator("#lab-about").inner_text()
    for name in ("one head", "two heads"):
        lab_page.select_option("#lab-experiment", name)
        found = re.findall(
            r"mean (\d\.\d+), standard deviation (\d\.\d+)", lab_page.locator("#lab-lengths figcaption").inner_text()
        )
        spread[name] = [float(one) for one in found[0]]
    assert spread["one head"] == pytest.approx([0.5, 0.442], abs=0.02)
    assert spread["two heads"][1] < spread["one head"][1] / 2, "two heads vary less than half as much"


def test_points_are_moved_by_arrow_keys_and_by_dragging(lab_page: Any) -> None:
    """The weights follow, and what has come of it is said."""
    lab_page.select_option("#lab-experiment", "copying")
    query = lab_page.get_by_role("button", name="query: 1.00, 0.00")
    query.focus()
    for _ in range(4):
        lab_page.keyboard.press("Shift+ArrowUp")
    for key in ("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"):
        lab_page.keyboard.press(key)
    assert query.count() == 0
    assert lab_page.evaluate("document.activeElement.getAttribute('aria-label')") == "query: 1.00, 1.00"
    assert "Query at 1.00, 1.00. The output is the mean of the values of a and b" in lab_page.locator("#lab-finding").inner_text()
    key = lab_page.get_by_role("button", name="key b: 0.00, 1.00")
    box, plane = key.bounding_box(), lab_page.locator("#lab-plane").bounding_box()
    lab_page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    lab_page.mouse.down()
    lab_page.mouse.move(plane["x"] + plane["width"] / 2, plane["y"] + plane["height"] * 0.9, steps=4)
    lab_page.mouse.up()
    lab_page.mouse.move(plane["x"], plane["y"])
    moved = lab_page.locator("#lab-plane button.key", has_text="b").get_attribute("aria-label")
    assert moved.startswith("key b: 0.0")
    assert float(moved.split(", ")[1]) == pytest.approx(-1.28, abs=0.05)
    assert "The output is the value of a" in lab_page.locator("#lab-finding").inner_text()
    lab_page.locator("#lab-beta").fill("0")
    assert shown_weights(lab_page) == [[0, 0.25]] * 4
    lab_page.click("#lab-reset")
    assert lab_page.get_by_role("button", name="key b: 0.00, 1.00").count() == 1
