"""Errors that say what is wrong, one case after another in one test."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any


def refused(kind: type[Exception], message: str, call: Callable[..., object], *values: Any, **named: Any) -> None:
    """The call raises an error of this kind whose text has this pattern; if not, the failure says which case it was."""
    try:
        call(*values, **named)
    except kind as error:
        if not re.search(message, str(error)):
            raise AssertionError(f"{message!r} is not in {str(error)!r}") from error
        return
    raise AssertionError(f"nothing was refused, where {message!r} was expected")
