"""``/openapi.json`` as the server really answers: what answers hold, how requests are refused, and the token.

FastAPI alone would describe its own errors, which are never sent (``answers.add_errors``), and knows nothing of the guard.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from warmstart.serve.forms import Error
from warmstart.serve.guard import OPEN, AccessRules

REFUSALS = {
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
}
"""status -> why it is given"""
SCHEMAS = "#/components/schemas/"
TOKEN_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer"},
    "password": {"type": "http", "scheme": "basic", "description": "the token as password, with any name"},
}


def describe_answers(
    app: FastAPI,
    rules: AccessRules,
    answers: Mapping[str, type[BaseModel]],
    events: Mapping[str, Mapping[str, type[BaseModel]]] | None = None,
    later: tuple[str, ...] = (),
) -> None:
    """Let an application describe itself.

    ``answers`` says what is answered at a path, ``events`` what server-sent events a path can answer with instead (by event),
    ``later`` names the paths that answer 503 before they are ready. Other answers keep the description that FastAPI gives them.
    """
    events = events or {}
    forms: set[type[BaseModel]] = {Error}
    for group in (answers, *events.values()):
        forms |= {*group.values()}

    def described() -> dict[str, Any]:
        if app.openapi_schema:
            return app.openapi_schema
        found = get_openapi(title=app.title, version=app.version, routes=app.routes)
        components = found.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        listed = sorted(forms, key=lambda form: form.__name__)
        schemas |= models_json_schema([(form, "serialization") for form in listed], ref_template=SCHEMAS + "{model}")[1]["$defs"]
        components["securitySchemes"] = TOKEN_SCHEMES
        components["responses"] = {str(status): _refusal(words) for status, words in REFUSALS.items()}
        for path, operation in _operations(found):
            takes_input = operation["responses"].pop("422", None) is not None
            names_model = '"name": "model"' in json.dumps(operation) or _body_names_model(operation, schemas)
            statuses = [400, 403, 408, 413, 421, 429]
            statuses += [422] * takes_input + [404] * names_model + [503] * (path in later)
            if rules.token is not None and path not in OPEN:
                statuses.append(401)
                operation["security"] = [{name: []} for name in TOKEN_SCHEMES]
            operation["responses"] |= {str(one): {"$ref": f"#/components/responses/{one}"} for one in sorted(statuses)}
            operation["responses"]["default"] = _refusal("anything else that went wrong")
            if path in answers:
                content = {"application/json": {"schema": {"$ref": SCHEMAS + answers[path].__name__}}}
                operation["responses"]["200"]["content"] = content | _streamed(events.get(path, {}))
        app.openapi_schema = found
        return found

    app.openapi = described  # type: ignore[method-assign]  # as FastAPI's documentation says


def _operations(found: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in found["paths"].items():
        for operation in methods.values():
            yield path, operation


def _refusal(words: str) -> dict[str, Any]:
    return {"description": words, "content": {"application/json": {"schema": {"$ref": f"{SCHEMAS}{Error.__name__}"}}}}


def _body_names_model(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> bool:
    """Whether a request's body may name a model."""
    if "requestBody" not in operation:
        return False
    name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].removeprefix(SCHEMAS)
    return "model" in schemas[name]["properties"]


def _streamed(events: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    """Server-sent events, whose data OpenAPI 3.1 can only name."""
    if not events:
        return {}
    listed = ", ".join(f"{event} ({SCHEMAS}{form.__name__})" for event, form in events.items())
    words = f"server-sent events, each with data in JSON: {listed}"
    return {"text/event-stream": {"schema": {"type": "string", "description": words}}}
