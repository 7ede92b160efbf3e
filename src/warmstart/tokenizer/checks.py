"""Limits of what a tokenizer's JSON may ask for, checked before the library builds it: it may come from a stranger.

The library itself aborts the process when memory ends. So these are refused:

- ids beyond ``TOKENIZER_VALUES``, and words so long that WordPiece, whose time is quadratic in them, would not end;
- steps that together make a text more than ``MOST_GROWTH`` times as long, such as ten that each double it;
- tables of characters (sentencepiece's ``precompiled_charsmap``) whose sizes contradict each other.

Its regular expressions are not judged: one that takes exponential time keeps the process busy.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from itertools import chain
from typing import Any

from warmstart.errors import TokenizerError
from warmstart.system.limits import TOKENIZER_VALUES

LONGEST_CHAIN = 100
"""steps of normalisation, pre-tokenization and decoding"""
MOST_GROWTH = 1000
"""largest length of a normalised text, in lengths of the text itself"""
MOST_INSERTED = 1000
"""most characters that a step inserts, and of a word that WordPiece splits"""
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


def highest_id(spec: dict[str, Any]) -> int:
    """The highest id of a token, in the content of a ``tokenizer.json``."""
    return _highest(spec["model"], spec.get("added_tokens") or [])


def _highest(model: dict[str, Any], added: list[Any]) -> int:
    vocabulary = model.get("vocab") or ()
    ids = vocabulary.values() if isinstance(vocabulary, dict) else (len(vocabulary) - 1,)
    return max(chain(ids, (token.get("id", 0) for token in added)), default=0)


def _check_model(model: dict[str, Any], added: list[Any]) -> None:
    if (highest := _highest(model, added)) >= TOKENIZER_VALUES:
        raise TokenizerError(f"ids of tokens must be below {TOKENIZER_VALUES:,}, but one is {highest:,}; use another tokenizer")
    if (longest := model.get("max_input_chars_per_word") or 0) > MOST_INSERTED:
        raise TokenizerError(f"max_input_chars_per_word must be at most {MOST_INSERTED:,}, but is {longest:,}; correct the file")
    if (total := sum(len(token.get("content", "")) for token in added)) > MOST_ADDED:
        raise TokenizerError(f"added tokens must have at most {MOST_ADDED:,} characters in all, but have {total:,}")


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """The steps of a part, those of sequences within sequences too."""
    if isinstance(part, dict):
        inner = [step for value in part.values() if isinstance(value, list) for step in value if isinstance(step, dict)]
        yield part
        for step in inner:
            yield from _steps(step)


def _growth(step: dict[str, Any]) -> float:
    """The factor by which a step can lengthen a text. Raises ``TokenizerError`` for what it inserts, and for its table."""
    pattern, content = step.get("pattern"), step.get("content") or step.get("prepend") or ""
    if len(content) > MOST_INSERTED:
        raise TokenizerError(f"a tokenizer's step must insert at most {MOST_INSERTED:,} characters, but inserts {len(content):,}")
    if step.get("type") == "Precompiled":
        return _table_growth(step.get("precompiled_charsmap") or "")
    if step.get("type") == "Replace":
        replaced = (pattern.get("String") if isinstance(pattern, dict) else pattern) or ""
        return max(1.0, len(content) / len(replaced) if replaced else 1.0 + len(content))
    return _STEP_GROWTH.get(str(step.get("type")), 1)


def _table_growth(charsmap: str) -> float:
    """Most characters in the place of one. The table: the size of an index in bytes, the index, texts that end in 0."""
    data = base64.b64decode(charsmap)
    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 or size % 4 or size + 4 > len(data):
        raise TokenizerError("the precompiled_charsmap of a tokenizer must hold its index, but is cut; copy the file again")
    return float(max(1, *map(len, data[4 + size :].decode("utf-8", "replace").split("\0"))))
