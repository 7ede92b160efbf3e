"""Several labels in one cell, in the spellings that people and programs write.

    a|b                          names between a separator (doccano writes a#b, others a,b or a;b)
    ["a", "b"]   ['a' 'b']       a list as JSON, Python, pandas or numpy print it; ('a', 'b') and {'a', 'b'} too
    {"choices": ["a", "b"]}      Label Studio's csv
    {"a": 1, "b": 0}             one value for each label, as spaCy's cats: those of at least a half

An empty cell, ``[]`` and ``nan`` are no label; and what else stands for none is told from what the other cells hold.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from warmstart.errors import DataError

MISSING = ("", "nan", "none", "null", "<na>", "#n/a", "n/a", "na")
"""missing values as programs write them, in any case"""
SEPARATORS = ("\n", "|", ";", ",", "#", "/", "+", "&")
"""separators of several labels in one cell"""
_SURE_SEPARATORS, _OFTEN = "\n|;", 0.05
"""separators that hardly stand within a name; and the share of cells with one from which it is one"""
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_SIGNS = {
    *("nan", "null", "(null)", "n.a.", "not available", "<na>", "#n/a", "n/a", "#ref!", "#value!", "#name?", "\\n", "(blank)"),
    *("(empty)", "tbd", "todo", "unlabeled", "unlabelled", "not labeled", "not labelled", "unannotated", "no label", "missing"),
    "undefined",
}
"""signs for no label, in any case"""
_DOUBTFUL = {"none", "na", "unknown", "unsure", "skip", "skipped"}
"""words that may be a label, and may stand for none"""
_MINUS = re.compile(r"-(1|9|99|999|9999|100)(\.0)?")
_WHOLE, _POINT_ZERO, _DIGITS = re.compile(r"-?\d+(\.0)?"), re.compile(r"-?\d+\.0"), re.compile(r"[-+\d.,eE]+")
DECIMAL_COMMA = re.compile(r"[-+]?\d+(,\d+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d( 00:00:00)?|\d{1,2}[-. ]{1,2}[^\W\d]{3,4}\.?|[^\W\d]{3,4}[-. ]{1,2}\d{2}")
_NUMBER = re.compile(r"[-+]?\d+\.?\d*")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")


def names_in(value: Any, separator: str) -> tuple[str, ...]:
    """The label names of a cell: ``"a| b"``, ``"['a', 'b']"``, ``["a", "b"]`` and ``{"a": 1, "b": 1}`` -> ``("a", "b")``.

    >>> names_in("a| b", "|"), names_in("['a', 'b']", "|"), names_in('{"choices": ["a"]}', "|"), names_in({"a": 1.0, "b": 0.0}, "|")
    (('a', 'b'), ('a', 'b'), ('a',), ('a',))
    """
    if isinstance(value, str):
        value = value.split(separator) if (spelled := listed(value.strip())) is None else spelled
    if _missing(value):
        return ()
    if isinstance(value, Mapping):
        return _of_mapping(value, separator)
    parts = value if isinstance(value, Iterable) and not isinstance(value, bytes | str) else [value]
    names = (name for part in parts if not _missing(part) if (name := _plain(part)))
    return tuple(dict.fromkeys(names))


def is_list(cell: str) -> bool:
    """True if a cell spells a list or a mapping: ``"['a', 'b']"``."""
    return listed(cell.strip()) is not None and bool(cell.strip()[:1] in _BRACKETS)


def signs_of_none(cells: Iterable[str], given: str | None = None) -> tuple[set[str], list[str]]:
    """The values of a column that stand for no label, and those that may; ``given`` names the former, with commas between.

    A question mark or dashes are such beside words; -1 and its like beside words, or beside whole numbers from 0 on, unless all are
    -1, 0 and 1, which are opinions; of other numbers it is one.

    >>> signs_of_none(["ship", "bill", "?"]), signs_of_none(["-1", "1", "2"]), signs_of_none(["-1", "1"])
    (({'?'}, []), ({'-1'}, []), (set(), ['-1']))
    """
    values = {cell.strip() for cell in cells} - {""}
    if given is not None:
        return values & {cell.strip() for cell in given.split(",")}, []
    signs = {cell for cell in values if cell.lower() in _SIGNS or cell == "None"}
    rest = values - signs
    if "+" not in rest and any(map(re.compile(r"\w").search, values)):
        signs |= {cell for cell in rest if re.fullmatch(r"\?+|-{1,3}|—|–|\.{3}|…", cell)}
    minus = {cell for cell in rest - signs if _MINUS.fullmatch(cell)}
    rest -= signs | minus
    doubtful = {cell for cell in rest if cell.lower() in _DOUBTFUL}
    numbers = {float(cell) for cell in rest if _WHOLE.fullmatch(cell)}
    if numbers and numbers <= {0.0, 1.0}:
        doubtful |= minus
    elif not any(map(_DIGITS.fullmatch, rest)) or (len(numbers) == len(rest) and min(numbers) >= 0):
        signs |= minus
    return signs, sorted(doubtful) if rest - doubtful else []


def names_several(cells: Iterable[str]) -> str | None:
    """A cell that looks like several labels, whatever the other cells hold: with a bar, a semicolon or a line end, or a list."""
    return next((cell for cell in cells if any(sign in cell for sign in _SURE_SEPARATORS) or is_list(cell)), None)


def as_label(cells: Sequence[str]) -> list[str]:
    """Labels as they are compared: 1.0 is 1 if all are written so, as by pandas for numbers beside gaps."""
    filled = [cell for cell in cells if cell]
    return [cell.removesuffix(".0") for cell in cells] if filled and all(map(_POINT_ZERO.fullmatch, filled)) else list(cells)


def dates_among(cells: Iterable[str]) -> Counter[str]:
    """Cells that look like dates, which a spreadsheet makes of 1-2 or 3/4."""
    return Counter(cell for cell in cells if _DATE.fullmatch(cell))


def with_decimal_comma(cells: Sequence[str]) -> bool:
    """True if cells are numbers with a decimal comma: ``0,37``; several numbers of labels in a cell recur, and are short."""
    several = [cell for cell in cells if "," in cell]
    numbers = all(map(DECIMAL_COMMA.fullmatch, cells)) and len(several) > len(cells) / 2
    return numbers and (len({*cells}) > len(cells) / 2 or all(len(cell.partition(",")[2]) > 1 for cell in several))


def other_separator(cells: Iterable[Any], separator: str) -> str | None:
    """The likely separator of labels, if ``separator`` never does: it parts a twentieth of the cells into names that recur.

    A line end, a bar or a semicolon need not part into names that recur; if these stand alone in other cells, one cell is enough.
    """
    texts = [cell.strip() for cell in cells if isinstance(cell, str) and cell.strip() and listed(cell.strip()) is None]
    if any(separator in text for text in texts):
        return None
    for other in SEPARATORS:
        parts = [[part.strip() for part in text.split(other)] for text in texts]
        several = [part for part in parts if len(part) > 1 and all(part)]
        if not several:
            continue
        alone = {name for part in parts if len(part) == 1 for name in part}
        often = len(several) >= _OFTEN * len(texts)
        recur = often and len({name for part in parts for name in part}) < len(set(texts))
        if recur and other not in "/+&":
            return other
        if all({*part} <= alone for part in several) or (often and other in _SURE_SEPARATORS):
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
            values = read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if _names_only(values) and not (text[0] == "[" and _without_commas(text)):
            return sorted(values, key=str) if isinstance(values, set) else values
    inside = text[1:-1]
    if text[0] == "[" and not _QUOTED.sub("", inside).strip():
        return [single or other for single, other in _QUOTED.findall(inside)]  # as numpy prints an array
    if text[0] == "[" and all(map(_NUMBER.fullmatch, inside.split())):
        return inside.split()
    bare = (text[0] != "(" or "," in inside) and not re.search(r"[\[\]{}()'\":]", inside)  # [ship, urgent], without quotes
    return [name.strip() for name in re.split("[,;|]", inside)] if bare else None


def _without_commas(text: str) -> bool:
    """True if quoted names stand side by side, which Python would join: ``['a' 'b']``."""
    return len(_QUOTED.findall(text)) > 1 and "," not in _QUOTED.sub("", text)


def _names_only(content: Any) -> bool:
    """True if a value is a flat list of names or numbers, a mapping of names to numbers, or Label Studio's."""
    if isinstance(content, dict):
        values = content["choices"] if set(content) == {"choices"} else content.values()
        return isinstance(values, str) or all(
            isinstance(value, str if set(content) == {"choices"} else int | float) for value in values
        )
    return isinstance(content, list | tuple | set) and all(isinstance(name, str | int | float | None) for name in content)
