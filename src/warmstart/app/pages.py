"""The page for people: a template filled on the server, a style sheet, and scripts without a build step; nothing from elsewhere.

The files lie in ``page/``. They are read once, when the server starts, and only these can be asked for.
"""

from __future__ import annotations

import asyncio
from threading import Event

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from warmstart.app.answers import PAGE, add_files
from warmstart.app.models import ServedModels
from warmstart.report.templates import COMMON_STYLE, VERDICT_STYLE, page_template

PANELS = {
    "classify": ("Classify", ("predict",)),
    "write": ("Write", ("generate",)),
    "checks": ("File checks", ("card",)),
}
"""id of a panel -> its title, and the abilities of which a model needs one"""
_PATIENCE = 2
"""seconds"""


def add_page(app: FastAPI, models: ServedModels, labels: str, looked: Event) -> None:
    """Routes of the page and its files; ``labels`` is the address of the page on which people label.

    A page that is asked for before the server has ``looked`` for training texts waits for it a little.
    """
    template = page_template("page.html.jinja", PAGE)

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        if not looked.is_set():
            await asyncio.to_thread(looked.wait, _PATIENCE)
        described = [one.describe() for one in models]
        panels = {
            panel: (title, fitting)
            for panel, (title, needed) in PANELS.items()
            if (fitting := [one for one in described if set(needed) & set(one["abilities"])])
        }
        content = template.render(panels=panels, verdict=models.verdict, labels=labels)
        return HTMLResponse(content.encode(errors="backslashreplace"))

    add_files(app, [COMMON_STYLE, VERDICT_STYLE, *PAGE.iterdir()])
