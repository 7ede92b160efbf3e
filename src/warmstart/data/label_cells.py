"""Several labels in one cell, in the spellings that people and programs write.

    a|b                          names between a separator (doccano writes a#b, others a,b or a;b)
    ["a", "b"]   ['a' 'b']       a list as JSON, Python, pandas or numpy print it; ('a', 'b') and {'a', 'b'} too
    {"choices": ["a", "b"]}      Label Studio's csv
    {"a": 1, "b": 0}             one value for each label, as spaCy's cats: those of at least a half

An empty cell, ``[]`` and ``nan`` are no label.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from warmstart.errors import DataError

MISSING = ("", "nan", "none", "null", "<na>", "#n/a", "n/a", "na")
"""what a cell holds, in any case, where a program writes a missing value"""
SEPARATORS = ("|", ";", ",", "#")
"""what may stand between several labels in one cell"""
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_NUMBER = re.compile(r"[-+]?\d+\.?\d*")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")


def names_in(value: Any, separator: str) -> tuple[str, ...]:
    """The label names of a cell: ``"a| b"``, ``"['a', 'b']"``, ``["a", "b"]`` and ``{"a": 1, "b": 1}`` -> ``("a", "b")``.

    >>> names_in("a| b", "|"), names_in("['a', 'b']", "|"), names_in('{"choices": ["a"]}', "|"), names_in({"a": 1.0, "b": 0.0}, "|")
    (('a', 'b'), ('a', 'b'), ('a',), ('a',))
    """
    if isinstance(value, str):
        found = listed(value.strip())
        value = value.split(separator) if found is None else found
    if _missing(value):
        return ()
    if isinstance(value, Mapping):
        return _of_mapping(value, separator)
    parts = value if isinstance(value, Iterable) and not isinstance(value, bytes | str) else [value]
    names = (name for part in parts if not _missing(part) if (name := _plain(part)))
    return tuple(dict.fromkeys(names))


def is_list(cell: str) -> bool:
    """Whether a cell spells a list or a mapping: ``"['a', 'b']"``."""
    return listed(cell.strip()) is not None and bool(cell.strip()[:1] in _BRACKETS)


def other_separator(cells: Iterable[Any], separator: str) -> str | None:
    """What seems to stand between labels, if ``separator`` never does: it parts a twentieth of the cells into names that recur."""
    texts = [cell.strip() for cell in cells if isinstance(cell, str) and cell.strip() and listed(cell.strip()) is None]
    if any(separator in text for text in texts):
        return None
    for other in SEPARATORS:
        parts = [[part.strip() for part in text.split(other)] for text in texts]
        several = sum(len(part) > 1 for part in parts)
        if several >= max(1, 0.05 * len(texts)) and len({name for part in parts for name in part}) < len(set(texts)):
            return other
    return None


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _plain(part: Any) -> str:
    """A name; a whole number has no decimal point, since a column with gaps holds 3.0."""
    return str(int(part) if isinstance(part, float) and part.is_integer() else part).strip()


def _of_mapping(value: Mapping[Any, Any], separator: str) -> tuple[str, ...]:
    if set(value) == {"choices"}:
        return names_in(value["choices"], separator)
    try:
        return tuple(str(name).strip() for name, held in value.items() if not _missing(held) and float(held) >= 0.5)
    except (TypeError, ValueError):
        raise DataError(
            f"a cell with a value for each label must hold numbers or true and false, but holds {dict(value)}"
        ) from None


def listed(text: str) -> Any:
    """The list or mapping that a text spells, or None; what pandas writes for a gap is an empty one."""
    if text in ("nan", "NaN", "<NA>"):
        return []
    if len(text) < 2 or _BRACKETS.get(text[0]) != text[-1]:
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if _names_only(found) and not (text[0] == "[" and _without_commas(text)):
            return sorted(found, key=str) if isinstance(found, set) else found
    inside = text[1:-1]
    if text[0] == "[" and not _QUOTED.sub("", inside).strip():
        return [one or other for one, other in _QUOTED.findall(inside)]  # as numpy prints an array
    return inside.split() if text[0] == "[" and all(map(_NUMBER.fullmatch, inside.split())) else None


def _without_commas(text: str) -> bool:
    """Whether quoted names stand side by side, which Python would join: ``['a' 'b']``."""
    return len(_QUOTED.findall(text)) > 1 and "," not in _QUOTED.sub("", text)


def _names_only(found: Any) -> bool:
    """Whether it is a flat list of names or numbers, a mapping of names to numbers, or Label Studio's."""
    if isinstance(found, dict):
        values = found["choices"] if set(found) == {"choices"} else found.values()
        return isinstance(values, str) or all(
            isinstance(value, str if set(found) == {"choices"} else int | float) for value in values
        )
    return isinstance(found, list | tuple | set) and all(isinstance(one, str | int | float | None) for one in found)
