"""Errors that say what is wrong, one case after another in one test."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
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


def mutated(whole: bytes, head: int, count: int) -> Iterator[bytes]:
    """So many damaged copies of a file: some bytes are others, most of them among the first ``head``, or the end is missing."""
    draw = random.Random(0)
    for _ in range(count):
        made = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            made[draw.randrange(head if draw.random() < 0.8 else len(made))] = draw.choice([0, 1, 127, 255, draw.randrange(256)])
        yield bytes(made[: draw.randrange(len(made))] if draw.random() < 0.15 else made)
