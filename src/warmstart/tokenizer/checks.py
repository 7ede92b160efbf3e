"""What a tokenizer's JSON may ask for, checked before the library builds it: it may come from a stranger.

The library itself aborts the process when memory ends, and a regular expression can keep it busy for hours. So these are refused:

- ids beyond ``TOKENIZER_VALUES``, and words so long that WordPiece, whose time is quadratic in them, would not end;
- steps that together make a text more than ``MOST_GROWTH`` times as long, such as ten that each double it;
- tables of characters (sentencepiece's ``precompiled_charsmap``) whose sizes contradict each other;
- regular expressions that can take exponential time.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warmstart.errors import TokenizerError
from warmstart.system.limits import TOKENIZER_VALUES

# Whether a regular expression of a tokenizer, which may come from a stranger, can take exponential time.
#
# The library's engine (Oniguruma) backtracks: ``(a+)+$`` tries every way to cut a row of ``a``. Such an expression repeats a group
# in which something is repeated or chosen. So those are refused, and references, recursions and conditions with them. The
# expressions of GPT-2, GPT-4o, Llama, Qwen and DeepSeek pass. Nothing here executes an expression, and none that passes is promised
# to be fast: the time is polynomial in the length of a text, of a degree that ``MOST_REPEATS`` bounds.

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


LONGEST_CHAIN = 100
"""steps of normalisation, pre-tokenization and decoding"""
MOST_GROWTH = 1000
"""how many times as long as a text its normalised form may be"""
MOST_INSERTED = 1000
"""of what a step inserts, and of a word that WordPiece splits"""
MOST_ADDED = 1 << 21
"""characters of all added tokens together"""
_STEP_GROWTH = {"ByteLevel": 2, "BertNormalizer": 3}
"""bytes become characters of two bytes; a Chinese character gets two spaces"""


def check_tokenizer(spec: Any) -> None:
    """Raise ``TokenizerError`` if a tokenizer, given as the content of its ``tokenizer.json``, asks for too much."""
    if not isinstance(spec, dict) or not isinstance(spec.get("model"), dict):
        raise TokenizerError("a tokenizer must be the JSON of the tokenizers library, with a model, but this is not")
    _check_model(spec["model"], spec.get("added_tokens") or [])
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        steps, growth = list(_steps(spec.get(part))), 1.0
        if len(steps) > LONGEST_CHAIN:
            raise TokenizerError(f"the {part} of a tokenizer must have at most {LONGEST_CHAIN} steps, but has {len(steps)}")
        for step in steps:
            growth *= _growth(step)
        if growth > MOST_GROWTH:
            raise TokenizerError(
                f"the {part} of a tokenizer must make no text more than {MOST_GROWTH:,} times as long, but this one could make it "
                f"{growth:,.0f} times as long; use another tokenizer"
            )


def _check_model(model: dict[str, Any], added: list[Any]) -> None:
    vocabulary = model.get("vocab")
    ids = [*vocabulary.values()] if isinstance(vocabulary, dict) else [len(vocabulary or ())]
    ids += [token.get("id", 0) for token in added]
    if (highest := max(ids, default=0)) >= TOKENIZER_VALUES:
        raise TokenizerError(f"ids of tokens must be below {TOKENIZER_VALUES:,}, but one is {highest:,}; use another tokenizer")
    if (longest := model.get("max_input_chars_per_word") or 0) > MOST_INSERTED:
        raise TokenizerError(f"max_input_chars_per_word must be at most {MOST_INSERTED:,}, but is {longest:,}; correct the file")
    if (total := sum(len(token.get("content", "")) for token in added)) > MOST_ADDED:
        raise TokenizerError(f"added tokens must have at most {MOST_ADDED:,} characters in all, but have {total:,}")


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """The steps of a part, those of sequences within sequences too."""
    if isinstance(part, dict):
        inner = [one for value in part.values() if isinstance(value, list) for one in value if isinstance(one, dict)]
        yield part
        for one in inner:
            yield from _steps(one)


def _growth(step: dict[str, Any]) -> float:
    """How many times as long a step can make a text. Raises ``TokenizerError`` for an expression or a table that it has."""
    pattern, content = step.get("pattern"), step.get("content") or step.get("prepend") or ""
    if len(content) > MOST_INSERTED:
        raise TokenizerError(f"a tokenizer's step must insert at most {MOST_INSERTED:,} characters, but inserts {len(content):,}")
    if isinstance(pattern, dict) and "Regex" in pattern:
        check_pattern(pattern["Regex"])
    if step.get("type") == "Precompiled":
        return _table_growth(step.get("precompiled_charsmap") or "")
    if step.get("type") == "Replace":
        replaced = (pattern.get("String") if isinstance(pattern, dict) else pattern) or ""
        return max(1.0, len(content) / len(replaced) if replaced else 1.0 + len(content))
    return _STEP_GROWTH.get(str(step.get("type")), 1)


def _table_growth(charsmap: str) -> float:
    """How many characters can take the place of one. The table: the size of an index in bytes, the index, texts that end in 0."""
    data = base64.b64decode(charsmap)
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 or size % 4 or size + 4 > len(data):
        raise TokenizerError("the precompiled_charsmap of a tokenizer must hold its index, but is cut; copy the file again")
    return float(max(1, *map(len, data[4 + size :].decode("utf-8", "replace").split("\0"))))
