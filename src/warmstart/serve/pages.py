"""The page for people: a template filled on the server, a style sheet, and scripts without a build step; nothing from elsewhere.

The files lie in ``page/``. They are read once, when the server starts, and only these can be asked for.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException

from warmstart.report.templates import page_template
from warmstart.serve.served import ServedModels

FOLDER = Path(__file__).parent / "page"
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
PANELS = {
    "classify": ("Classify", ("predict",)),
    "compare": ("Compare", ("predict",)),
    "write": ("Write", ("generate",)),
    "look": ("Look", ("attention",)),
    "map": ("Map", ("map",)),
    "learn": ("Learn", ()),
    "race": ("Race", ("race",)),
    "trust": ("Trust", ("card",)),
}
"""id of a panel -> its title, and the abilities of which a model needs one; none: it needs no model"""


def add_page(app: FastAPI, models: ServedModels) -> None:
    """Routes of the page and its files."""
    files = {file.name: file.read_bytes() for file in FOLDER.iterdir() if file.suffix in TYPES}
    template = page_template("page.html.jinja", FOLDER)

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        described = [one.describe() for one in models]
        panels = {
            panel: (title, fitting)
            for panel, (title, needed) in PANELS.items()
            if len(fitting := [one for one in described if set(needed) & set(one["abilities"])]) >= (2 if panel == "compare" else 1)
            or not needed
        }
        return HTMLResponse(template.render(panels=panels).encode(errors="backslashreplace"))

    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "there is no such file")
        return Response(files[name], media_type=TYPES[Path(name).suffix])
