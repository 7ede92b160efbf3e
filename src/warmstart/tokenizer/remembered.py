"""The ids of words that were read before: most of a text is words that others have, and a look-up is ten times as fast.

A text's ids are those of its words (what stands between spaces) one after another, if the tokenizer cuts at spaces before it looks
at anything else. ``cuts_at_spaces`` says for which tokenizers this holds; the others, and texts with a word that may change beside
a space, are read whole.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Encode = Callable[[Sequence[str]], list[list[int]]]
_MOST = 100_000
"""words that are remembered; then it begins anew"""
_LONGEST = 64
"""characters of a word that is remembered: a text without spaces is no word"""
_CUTTERS = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")
"""pre-tokenizers that drop spaces"""
_BY_CHARACTER = ("BertNormalizer", "Lowercase", "StripAccents", "NFC", "NFD", "NFKC", "NFKD")
"""normalizers for which a space is a boundary"""
ONE_SPACE = r"\A +| +\z| +(?= )"
"""what is removed, so that there is one space between two words"""
_PREPENDED = "\u0d4e"
"""a letter that forms one grapheme with what follows; further ones are in the plane of U+11000"""


class RememberedWords:
    """``encode`` for a tokenizer whose JSON is ``spec``, with a memory of words."""

    def __init__(self, spec: Mapping[str, Any], encode: Encode) -> None:
        self._encode, self._known = encode, dict[str, list[int] | None]()
        self._graphemes = any(step["type"] == "Precompiled" for step in _steps(spec["normalizer"]))
        self._applies = cuts_at_spaces(spec)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""
        if not self._applies:
            return self._encode(texts)
        known, split = self._known, [text.split(" ") for text in texts]
        unknown = {word for words in split for word in words}.difference(known)
        new = [word for word in unknown if len(word) <= _LONGEST]
        plain = [word for word in new if not self._graphemes or _stands_alone(word)]
        known.update(dict.fromkeys(new) | dict(zip(plain, self._encode(plain), strict=True)))
        rows = [_joined(known, words) for words in split]
        whole = [i for i, row in enumerate(rows) if row is None]
        found = iter(self._encode([texts[i] for i in whole]))
        if len(known) > _MOST:
            self._known = {}  # another thread may still read the old one
        return [next(found) if row is None else row for row in rows]


def _joined(known: Mapping[str, list[int] | None], words: Sequence[str]) -> list[int] | None:
    """The ids of all words; None: those of one of them are not known."""
    row = list[int]()
    for word in words:
        if (ids := known.get(word)) is None:
            return None
        row += ids
    return row


def _stands_alone(word: str) -> bool:
    """Whether a word forms no grapheme with a space before or behind it, and has no sign that may be one."""
    if word.isascii():
        return word.isprintable()
    last = word[-1]
    return (
        word.isprintable() and unicodedata.category(word[0])[0] != "M" and last != _PREPENDED and not 0x11000 <= ord(last) < 0x12000
    )


def cuts_at_spaces(spec: Mapping[str, Any]) -> bool:
    """Whether the words of a text are encoded as they are alone, but for graphemes with a space."""
    if any(not token["special"] or " " in token["content"] for token in spec["added_tokens"]):
        return False
    cleaning, cutting = _steps(spec["normalizer"]), _steps(spec["pre_tokenizer"])
    if not cutting or any(step["type"] == "Metaspace" and step["prepend_scheme"] != "always" for step in cutting):
        return False
    rest = [step for step in cleaning if step["type"] not in _BY_CHARACTER]
    if cutting[0]["type"] in _CUTTERS:
        return all(step["type"] == "Precompiled" for step in rest)
    single = [
        step for step in rest if step["type"] == "Replace" and step["pattern"] == {"Regex": ONE_SPACE} and not step["content"]
    ]
    return cutting[0]["type"] == "Metaspace" and cutting[0]["split"] and bool(single) and rest[-1] in single and len(rest) <= 2


def _steps(part: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The innermost steps of a normalizer or pre-tokenizer, in order."""
    if part is None:
        return []
    inner = part.get("normalizers", part.get("pretokenizers"))
    return [part] if inner is None else [step for one in inner for step in _steps(one)]
