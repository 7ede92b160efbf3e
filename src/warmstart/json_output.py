"""``--json``: the result of any command, or its error, as one JSON document on standard output, for other programs.

Sentences, tables and progress go to standard error as always. An error that has found something all the same says that too.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warmstart.errors import ConfigError, WarmstartError
from warmstart.version import __version__

JSON_FLAG = "--json"
WITHOUT_RESULT = ("serve", "label")
"""commands that answer requests until they are stopped"""


def check_has_result(command: str) -> None:
    """Raise ``ConfigError`` for a command that has no result to print."""
    if command in WITHOUT_RESULT:
        raise ConfigError(f"`warmstart {command}` answers requests until it is stopped, and has no result; leave out {JSON_FLAG}")


def result_document(command: str, settings: Any, result: Any) -> str:
    """The document of a command that has ended well: its name, where it wrote, and its result."""
    out = getattr(result, "out", getattr(settings, "out", None))
    return _document({"warmstart": __version__, "command": command, "out": out, "result": plain(result)})


def error_document(command: str, error: BaseException, message: str, exit_code: int) -> str:
    """The document of a command that has failed."""
    told = {"kind": type(error).__name__, "message": message, "exit_code": exit_code}
    found = {"result": plain(error.result)} if isinstance(error, WarmstartError) and error.result is not None else {}
    return _document({"warmstart": __version__, "command": command, **found, "error": told})


def suggestions_document(steps: Sequence[tuple[str, str]]) -> str:
    """The document of ``warmstart`` alone: what can be done next, and by which command."""
    return _document({"warmstart": __version__, "next": [{"purpose": purpose, "command": command} for purpose, command in steps]})


def plain(value: Any) -> Any:
    """Any result as values of JSON: what has ``to_dict`` by that, a path as its name, a number that is not finite as null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    assert isinstance(value, Path), f"a result of type {type(value).__name__} has no to_dict"
    return str(value)


def for_standard_output(text: str) -> str:
    """JSON with escapes if standard output lacks one of its characters, as a console of Windows may."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return "".join(one if one.isascii() else json.dumps(one)[1:-1] for one in text)
    return text


def _document(values: Mapping[str, Any]) -> str:
    return for_standard_output(json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
