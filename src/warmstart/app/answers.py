"""The shared part of the server's applications: errors as answers, the limits of bodies, and the files of a page.

Every field of a request has a limit, and a text must be one that can be written as UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.exceptions import HTTPException

from warmstart.app.guard import OPEN, AccessRules
from warmstart.errors import WarmstartError
from warmstart.generation.settings import GenerateConfig
from warmstart.version import __version__

PAGE = Path(__file__).parent / "page"
"""files of the page for people; the style sheet and the helpers are those of every page"""
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
MOST_PROBLEMS = 20
"""problems of a request that are looked at: each takes time in which nobody else is answered"""
NAMED = 5
"""problems that an answer names"""
LONGEST_PLACE = 60
"""characters of a field's name that an answer repeats"""


REFUSALS: dict[int | str, str] = {
    400: "the request is malformed",
    401: "a token is needed",
    403: "the request comes from a page of another site",
    404: "there is no such model",
    408: "the body did not arrive in time",
    413: "the body is too long",
    421: "the server must not be called by this name",
    422: "the request does not fit its description, or the model cannot do that",
    429: "too many requests wait, or come from this client; retry-after says when to try again",
    503: "the server is still reading texts; retry-after says when to try again",
    "default": "anything else that went wrong",
}
"""status -> why it is given"""
TOKEN_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer"},
    "password": {"type": "http", "scheme": "basic", "description": "the token as password, with any name"},
}


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be Unicode, but half of a surrogate pair stands alone") from None
    return text


Unicode = Annotated[str, AfterValidator(_unicode)]
"""a text that can be written as UTF-8"""


class Fields(BaseModel):
    """Fields of a request; unknown ones are refused, and many of them at once. A list of values is read up to its first mistake."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _few_unknown(cls, fields: Any) -> Any:
        """Refuse many unknown fields by their number: pydantic describes each, which takes seconds for 100,000."""
        unknown = fields.keys() - cls.model_fields.keys() if isinstance(fields, dict) else set[str]()
        if len(unknown) > MOST_PROBLEMS:
            first = next(name for name in fields if name in unknown)
            raise ValueError(f"has {len(unknown):,} unknown fields, the first of which is {_repeated(first)}")
        return fields


class AnswerForm(BaseModel):
    """Fields of an answer; one that is not described is a fault of ours."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Error(AnswerForm):
    """Why a request is refused."""

    error: str
    """in the words of the command line"""


class Health(AnswerForm):
    """``GET /health``."""

    status: str


def problems(error: ValidationError | Any) -> str:
    """The faults of a body in one sentence, by its first problems; the values themselves are not repeated."""
    all_of_them = error.errors()
    by_place = dict[str, list[Mapping[str, Any]]]()
    for problem in all_of_them[:MOST_PROBLEMS]:
        by_place.setdefault(_place(problem["loc"]), []).append(problem)
    # a value that may be a text or a list is reported as neither: if a value inside it is wrong, only that is named
    inner = [place for place in by_place if not any(other.startswith(f"{place}[") for other in by_place)]
    sentences = [f"{place} {_in_our_words(by_place[place])}" for place in inner]
    more = len(sentences[NAMED:]) + len(all_of_them[MOST_PROBLEMS:])
    sentences = sentences[:NAMED] + [f"and {more:,} more"] * (more > 0)
    return f"the request must be as /openapi.json describes it, but {'; '.join(sentences)}"


def _place(loc: Sequence[int | str]) -> str:
    """``inputs[3]``: the names and numbers that lead to a value, without those of the forms that it was tried as."""
    whole = "the query" if loc[:1] == ("query",) else "the body"
    name, *rest = [*loc[bool(loc) and loc[0] in ("body", "query") :]] or [whole]
    place = whole if isinstance(name, int) else _repeated(name)
    return place + "".join(f"[{number}]" for number in rest if isinstance(number, int))


def _repeated(name: str) -> str:
    """A field's name as an answer repeats it: not all of a long one, and without what is no Unicode."""
    short = name if len(name) <= LONGEST_PLACE else f"{name[:LONGEST_PLACE]}…"
    return short.encode(errors="backslashreplace").decode()


def _in_our_words(problems: Sequence[Mapping[str, Any]]) -> str:
    """The condition that a value breaks, by pydantic's problems with it."""
    kinds = {problem["type"]: problem for problem in problems}
    broken = next((problem for kind, problem in kinds.items() if kind in _LIMITS), None)
    if broken is None:
        return "must be " + " or ".join(dict.fromkeys(_KINDS.get(kind, "of another kind") for kind in kinds))
    held, limit = broken["input"], _LIMITS[broken["type"]]
    size = f"{len(held):,}" if isinstance(held, str | list) else ""
    context = broken.get("ctx") or {}
    if isinstance(held, str) and broken["type"] in ("too_long", "string_too_long"):
        limit = _LONG_TEXT if context["max_length"] > _LONGEST_NAME else "has {held} characters, but may have {max_length:,}"
    return limit.format(**context, held=size)


_KINDS = {
    "string_type": "a text", "list_type": "a list", "int_type": "a whole number", "int_parsing": "a whole number",
    "int_from_float": "a whole number", "int_parsing_size": "a smaller number", "float_type": "a number",
    "float_parsing": "a number", "finite_number": "a finite number", "bool_type": "true or false", "bool_parsing": "true or false",
    "dict_type": "an object", "model_type": "an object",
    "model_attributes_type": "an object, sent with content-type: application/json", "json_invalid": "JSON",
    "string_unicode": "Unicode",
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
"""pydantic's name of a problem -> the fault of the value, with the limits that pydantic knows"""


def make_api(rules: AccessRules, **settings: Any) -> FastAPI:
    """An application without routes, but ``/health``, and ``/openapi.json``, which describes its refusals and the token, too.

    A wrong request gets a status from 400 to 422 and ``{"error": "…"}`` with the words of the command line.
    """
    refusals: dict[int | str, dict[str, Any]] = {
        status: {"description": words, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
        for status, words in REFUSALS.items()
        if status != 401 or rules.token is not None
    }
    app = FastAPI(version=__version__, docs_url=None, redoc_url=None, responses=refusals, **settings)
    _add_errors(app)

    @app.get("/health", response_model=Health, responses={"default": {"model": Error}})
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    if rules.token is not None:
        _describe_token(app)
    return app


def _describe_token(app: FastAPI) -> None:
    described = app.openapi

    def with_token() -> dict[str, Any]:
        document = described()
        document["components"]["securitySchemes"] = TOKEN_SCHEMES
        for path, methods in document["paths"].items():
            for operation in methods.values():
                operation |= {} if path in OPEN else {"security": [{name: []} for name in TOKEN_SCHEMES]}
        return document

    app.openapi = with_token  # type: ignore[method-assign]  # as FastAPI's documentation says


def _add_errors(app: FastAPI) -> None:

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


MOST_INPUTS = 1_000
"""inputs of a request"""
MOST_CHARACTERS = 100_000
"""characters of a text"""
MOST_NEW_TOKENS = 2_000
"""tokens of a continuation"""


Text = Annotated[Unicode, Field(max_length=MOST_CHARACTERS)]
Inputs = Annotated[
    list[Text | Annotated[list[Text], Field(min_length=1, max_length=10_000, fail_fast=True)]],
    Field(min_length=1, max_length=MOST_INPUTS, fail_fast=True),
]
Name = Annotated[Unicode, Field(max_length=1_000)]


class Body(Fields):
    """Fields that every request may have."""

    model: Name | None = None
    """name of a served model; none: the first"""


class PredictBody(Body):
    """``POST /api/predict``."""

    inputs: Inputs
    """texts; where the task needs more, lists of them: pairs, or words to tag"""
    top: int = Field(3, gt=0, le=100_000)
    """number of labels to give with their probabilities"""
    target_error: float | None = Field(None, gt=0, lt=1)
    """abstain where needed to guarantee at most this error rate"""
    confidence_level: float = Field(0.95, gt=0, lt=1)
    """probability with which that error rate is guaranteed"""


class NearestBody(Body):
    """``POST /api/nearest``."""

    inputs: Inputs
    """texts, or lists of two for tasks about pairs"""
    count: int = Field(5, gt=0, le=100)
    """number of training texts for each"""


class GenerateBody(Body):
    """``POST /api/generate``."""

    prompt: Text = ""
    max_new_tokens: int = Field(60, gt=0, le=MOST_NEW_TOKENS)
    greedy: bool = False
    temperature: float = Field(1.0, ge=0.01, le=100)
    top_k: int | None = Field(None, gt=0, le=10_000_000)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int = Field(0, ge=0, lt=2**63)
    candidates: int = Field(6, ge=0, le=50)
    """number of probable tokens to show at every step"""
    stream: bool = False
    """server-sent events: ``token`` for each, then ``done``, or ``error``"""

    def settings(self) -> GenerateConfig:
        """The settings of the generation."""
        names = ("max_new_tokens", "greedy", "temperature", "top_k", "top_p", "seed")
        return GenerateConfig(**{name: getattr(self, name) for name in names})


class TextsBody(Body):
    """``POST /api/embed`` and ``POST /api/tokens``."""

    texts: Annotated[list[Text], Field(min_length=1, max_length=MOST_INPUTS, fail_fast=True)]


class ExplainBody(Body):
    """``POST /api/explain``."""

    text: Text
    target: Name | None = None
    """the label, or the next token, to be explained; none: the most probable one"""
