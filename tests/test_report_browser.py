"""Reports as people see them: in a browser, on a phone and on a desk, light and dark, and on paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import IN_A_BROWSER, readable
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
        pretrained = pretrain(PretrainConfig.build({"text": [str(place / "text.txt")], "out": str(place / "pretrain"), **small}))
        looked_at = {"model": str(place / "lm"), "sentence": SENTENCES[0], "text": [str(place / "text.txt")], "passages": 20}
        study_attention(StudyAttentionConfig.build(looked_at | {"out": str(place / "attention")}))
    study_lab(StudyLabConfig(out=str(place / "lab"), samples=100))
    write_race_page(full_race(), Config(), place / "race")
    quick = quickstart_result(pretraining=pretrained)
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
