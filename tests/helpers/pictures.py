"""The pictures of the server's pages in docs/how-to/serve.md and docs/how-to/labelling.md.

    warmstart serve quickstart=runs/quickstart --texts runs/quickstart/task/task.yaml
    python -m helpers.pictures classify http://127.0.0.1:8000 quickstart
    python -m helpers.pictures label http://127.0.0.1:8000 Anna

Run in ``tests``; the first after ``make quickstart``, the second with a server of ``warmstart label``. Needs Chromium.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs" / "pictures"
TEXT = "Return the sum of the array elements over the given axis, as a new array."
SECONDS = 120_000


def main(picture: str, address: str, name: str) -> None:
    """Take one."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 900, "height": 1000}, color_scheme="light")
        page.goto(address)
        page.set_default_timeout(SECONDS)
        {"classify": classify, "label": label}[picture](page, name)
        browser.close()


def classify(page: Any, model: str) -> None:
    """A label, and the nearest training texts."""
    page.select_option("#classify-model", model)
    page.fill("#classify-texts", TEXT)
    page.click("#classify button[type=submit]")
    page.click("#tab-alike")
    page.wait_for_selector("table.nearest")
    page.wait_for_timeout(3000)
    page.locator("#classify").screenshot(path=DOCS / "serve-classify.png")


def label(page: Any, person: str) -> None:
    """A text to label, and the figures below it."""
    page.fill("#join-name", person)
    page.keyboard.press("Enter")
    page.wait_for_selector("#accuracy:not(:empty)")
    page.wait_for_timeout(3000)
    page.screenshot(path=DOCS / "labelling-page.png")


if __name__ == "__main__":
    main(*sys.argv[1:4])
