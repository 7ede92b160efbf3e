"""What the applications of the server share: how our errors become answers, what bodies may hold, and the files of a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException

from warmstart.errors import WarmstartError

PAGE = Path(__file__).parent / "page"
"""files of the page for people; the style sheet and the helpers are those of every page"""
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be Unicode, but half of a surrogate pair stands alone") from None
    return text


Unicode = Annotated[str, AfterValidator(_unicode)]
"""a text that can be written as UTF-8"""


class Fields(BaseModel):
    """Fields of a request; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


def problems(error: ValidationError | Any) -> str:
    """What is wrong with a body, in one sentence; the values themselves are not repeated."""
    found = []
    for one in error.errors():
        path = ".".join(str(part) for part in one["loc"] if part != "body") or "the body"
        found.append(f"{path}: {_in_our_words(one)}")
    return f"the request must fit its description in /openapi.json, but {'; '.join(found[:5])}"


def _in_our_words(one: Mapping[str, Any]) -> str:
    """What pydantic says of one value; of a list that is too long, what our commands would say."""
    if one["type"] == "too_long":
        most, held = one["ctx"]["max_length"], one["ctx"]["actual_length"]
        return f"must have at most {most:,} entries, but has {held or 0:,}; send them in several requests"
    words: str = one["msg"]
    return words.removeprefix("Value error, ")


def add_errors(app: FastAPI) -> None:
    """A wrong request gets a status from 400 to 422 and ``{"error": "…"}`` with the words of the command line."""

    @app.exception_handler(WarmstartError)
    async def ours(_: Request, error: WarmstartError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return JSONResponse({"error": problems(error)}, 422)

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


def add_files(app: FastAPI, paths: Iterable[Path]) -> None:
    """Style sheets and scripts under ``/page/``. They are read once, now, and only these can be asked for."""
    files = {path.name: path.read_bytes() for path in paths if path.suffix in TYPES}

    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "there is no such file")
        return Response(files[name], media_type=TYPES[Path(name).suffix])
