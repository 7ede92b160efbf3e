"""What the applications of the server share: how our errors become answers, what bodies may hold, and the files of a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    found = dict[str, list[Mapping[str, Any]]]()
    for one in error.errors():
        found.setdefault(_place(one["loc"]), []).append(one)
    # of a value that may be a text or a list, what it is not is told for both: what is wrong inside is told alone
    inner = {place for place in found if not any(other.startswith(f"{place}[") for other in found)}
    told = [f"{place} {_in_our_words(found[place])}" for place in found if place in inner]
    return f"the request must be as /openapi.json describes it, but {'; '.join(told[:5])}"


def _place(loc: Sequence[int | str]) -> str:
    """``inputs[3]``: the names and numbers that lead to a value, without those of the forms that it was tried as."""
    name, *rest = [*loc[bool(loc) and loc[0] in ("body", "query") :]] or ["the body"]
    place = "the body" if isinstance(name, int) else name
    return place + "".join(f"[{one}]" for one in rest if isinstance(one, int))


def _in_our_words(problems: Sequence[Mapping[str, Any]]) -> str:
    """What must be true of one value, by what pydantic says of it."""
    kinds = {one["type"]: one for one in problems}
    one = next((one for kind, one in kinds.items() if kind in _LIMITS), None)
    if one is None:
        return "must be " + " or ".join(dict.fromkeys(_KINDS.get(kind, "of another kind") for kind in kinds))
    held, limit = one["input"], _LIMITS[one["type"]]
    size = f"{len(held):,}" if isinstance(held, str | list) else ""
    context = one.get("ctx") or {}
    if isinstance(held, str) and one["type"] in ("too_long", "string_too_long"):
        limit = _LONG_TEXT if context["max_length"] > _LONGEST_NAME else "has {held} characters, but may have {max_length:,}"
    return limit.format(**context, held=size)


_KINDS = {
    "string_type": "a text", "list_type": "a list", "int_type": "a whole number", "int_parsing": "a whole number",
    "int_from_float": "a whole number", "int_parsing_size": "a smaller number", "float_type": "a number",
    "float_parsing": "a number", "finite_number": "a finite number", "bool_type": "true or false", "bool_parsing": "true or false",
    "dict_type": "an object", "model_type": "an object",
    "model_attributes_type": "an object, sent with content-type: application/json", "json_invalid": "JSON",
}  # fmt: skip
"""pydantic's name of a problem -> what the value must be"""
_LONGEST_NAME = 1000
"""characters that are no text yet, which could be split"""
_LONG_TEXT = "has {held} characters, and at most {max_length:,} are read of a text; shorten it, or split it"
_LIMITS = {
    "string_too_long": "",
    "missing": "is missing",
    "extra_forbidden": "is not a field that it has",
    "too_long": "must have at most {max_length:,} entries, but has {held}; send them in several requests",
    "too_short": "must not be empty", "string_too_short": "must not be empty",
    "greater_than": "must be more than {gt}", "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}", "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}", "value_error": "{error}",
}  # fmt: skip
"""the same -> what is wrong with the value, with what pydantic knows of it"""


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
