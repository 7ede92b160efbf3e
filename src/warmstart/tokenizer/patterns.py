r"""Whether a regular expression of a tokenizer, which may come from a stranger, can take exponential time.

The library's engine (Oniguruma) backtracks: ``(a+)+$`` tries every way to cut a row of ``a``. Such an expression repeats a group in
which something is repeated or chosen. So those are refused, and references, recursions and conditions with them. The expressions of
GPT-2, GPT-4o, Llama, Qwen and DeepSeek pass. Nothing here executes an expression, and none that passes is promised to be fast: the
time is polynomial in the length of a text, of a degree that ``MOST_REPEATS`` bounds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from warmstart.errors import TokenizerError

MOST_REPEATS = 3
"""unbounded repetitions in one branch"""
MANY = 100
"""a repetition that may occur more often counts as unbounded"""
_HARMLESS = re.compile(r"[^*+{\\(]|\((?!\?)|\(\?[:=!<]")
"""parts of an expression that repeat nothing and refer to nothing, once escaped characters are left out"""
_REPETITION = re.compile(r"(?:([*+?])|\{(\d*)(,?)(\d*)\})")
_OPENING = re.compile(r"\((?:\?(?:[imsx-]*:|[imsx-]+\)|[=!]|<[=!]|<\w+>|'\w+')|(?![?*]))")
_REFERENCE = re.compile(r"\\(?:[1-9]|[kg][<'])")
_ESCAPED = re.compile(r"\\(?:[pPx]\{[^}]*\}|.)", re.DOTALL)


@dataclass
class _Group:
    """What is known of a group while it is read."""

    repeats: int = 0
    """unbounded repetitions in the present branch"""
    most: int = 0
    """and in the earlier branch that has most"""
    varies: bool = False
    """whether it matches in more than one way"""


def check_pattern(pattern: str) -> None:
    r"""Raise ``TokenizerError`` if a regular expression can take exponential time.

    ``\s*[\r\n]+`` and ``(?=(?:\p{N}{3})*\b)`` pass; ``(a+)+``, ``(a|ab)*`` and ``(a*)\1`` do not.
    """
    if not _HARMLESS.sub("", re.sub(r"\\[^kg1-9]", "", pattern, flags=re.DOTALL)):
        return
    try:
        _Reader(pattern).read()
    except ValueError as error:
        raise TokenizerError(
            f"a tokenizer's regular expression must end in reasonable time, but {pattern[:200]!r} {error}; use another tokenizer"
        ) from None


class _Reader:
    """Reads an expression once from left to right; ``groups`` are those that are open, outermost first."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.position = pattern, 0
        self.groups = [_Group()]
        self.last: _Group | None = None  # what a repetition would repeat: a group, or a character as an empty one

    def read(self) -> None:
        while self.position < len(self.pattern):
            character = self.pattern[self.position]
            if repetition := _REPETITION.match(self.pattern, self.position):
                self._repeat(repetition)
            elif character == "(":
                self._open()
            elif character == ")":
                self._close()
            elif character == "|":
                group = self.groups[-1]
                group.most, group.repeats, group.varies = max(group.most, group.repeats), 0, True
                self.position, self.last = self.position + 1, None
            else:
                self._skip_character()
            if self.groups[-1].repeats > MOST_REPEATS:
                raise ValueError(f"has more than {MOST_REPEATS} repetitions in a row")

    def _repeat(self, found: re.Match[str]) -> None:
        if self.last is None:
            raise ValueError("repeats a repetition or nothing")
        symbol, low, comma, high = found.groups()
        most = 1 if symbol == "?" else math.inf if symbol else int(high) if high else math.inf if comma else int(low or 1)
        if most > 1 and self.last.varies:
            raise ValueError("repeats a group that has a repetition or a choice in it")
        group, self.position = self.groups[-1], found.end()
        group.repeats += most > MANY
        group.varies |= bool(symbol or comma)
        self.last = None
        following = self.pattern[self.position : self.position + 1]
        self.position += following == "?" or (symbol is not None and following == "+")  # lazy or possessive

    def _open(self) -> None:
        opening = _OPENING.match(self.pattern, self.position)
        if opening is None:
            raise ValueError("has a condition, a comment, a recursion or an absent group")
        self.position, self.last = opening.end(), None
        if not opening[0].endswith(")"):  # flags alone open nothing
            self.groups.append(_Group())

    def _close(self) -> None:
        if len(self.groups) == 1:
            raise ValueError("closes a group that is not open")
        self.last = self.groups.pop()
        self.groups[-1].repeats += max(self.last.most, self.last.repeats)
        self.groups[-1].varies |= self.last.varies
        self.position += 1

    def _skip_character(self) -> None:
        r"""An escaped character, ``\p{Lu}``, a class such as ``[^\r\n[a-z]]``, or any one character."""
        if _REFERENCE.match(self.pattern, self.position):
            raise ValueError("refers back to a group")
        self.last = _Group()
        depth = 0
        while self.position < len(self.pattern):
            character = self.pattern[self.position]
            escaped = _ESCAPED.match(self.pattern, self.position)
            self.position = escaped.end() if escaped else self.position + 1
            depth += (character == "[") - (character == "]")
            if depth <= 0:
                return
