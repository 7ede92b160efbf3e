"""Files of minimal pairs, in the forms in which they are published.

- BLiMP: ndjson with ``sentence_good``, ``sentence_bad``, ``UID`` and ``linguistics_term``; a file, or a folder of them
- tables with columns ``good`` and ``bad``, grouped by ``construction`` or ``group`` where there is one (Marvin and Linzen 2018)
- Gulordava et al. 2018: a table of ``sent``, ``form``, ``class`` and ``len_prefix``, two rows a pair
- Linzen et al. 2016: a ``.gold`` table of place, right form, wrong form, attractors, beside a ``.text`` of one sentence a line
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from warmstart.data.files import opened
from warmstart.data.source import Source
from warmstart.data.tables import read_table
from warmstart.errors import DataError

PACKED = (".gz", ".xz", ".bz2")
ENDS = {".jsonl": "ndjson", ".ndjson": "ndjson", ".tsv": "tsv", ".tab": "tsv", ".csv": "csv"}
GULORDAVA = ("pattern", "constr_id", "sent_id", "class", "type", "form", "len_prefix", "sent")
CLASSES = ("correct", "wrong")


@dataclass(frozen=True)
class Pair:
    """Two sentences, of which the first is right."""

    good: str
    bad: str
    group: str = "all"
    """what is tested: a paradigm, a construction, a number of attractors"""
    field: str = ""
    """a larger heading that groups belong to"""


def read_pairs(path: str | Path, first: int | None = None) -> list[Pair]:
    """All pairs of a file or folder; the ``first`` of each group alone, where that is given.

    Raises ``DataError`` for what has none of the known forms, and for a row that is no pair.
    """
    place = Path(path)
    files = sorted(file for file in place.iterdir() if _ending(file) in (".jsonl", ".ndjson")) if place.is_dir() else [place]
    if not files or not place.exists():
        raise DataError(f"minimal pairs must be a file, or a folder of ndjson files, but {path} is neither; see docs/study.md")
    pairs = [pair for file in files for pair in (_linzen(file) if _ending(file) == ".gold" else _table(file))]
    counts, kept = dict[str, int](), []
    for pair in pairs:
        counts[pair.group] = counts.get(pair.group, 0) + 1
        if first is None or counts[pair.group] <= first:
            kept.append(pair)
    if not kept:
        raise DataError(f"minimal pairs must be one at least, but {path} holds none; give a file with rows of good and bad")
    return kept


def _pair(good: object, bad: object, group: object, field: object, where: str) -> Pair:
    """Of the cells of a row: both sentences must be there; what has no group is of the group ``all``."""
    for name, cell in (("right", good), ("wrong", bad)):
        if not isinstance(cell, str) or not cell.strip():
            came = "is empty" if cell is None or isinstance(cell, str) else f"is {str(cell)[:80]!r}"
            raise DataError(f"{where}: every pair must have two sentences as text, but the {name} one {came}; mend or drop the row")
    assert isinstance(good, str)
    assert isinstance(bad, str)
    return Pair(good, bad, _name(group, "all"), _name(field, ""))


def _name(cell: object, default: str) -> str:
    """A cell as a name, with a default where there is none."""
    return default if cell is None or not str(cell).strip() else str(cell)


def _ending(file: Path) -> str:
    return Path(file.stem).suffix if file.suffix in PACKED else file.suffix


def _table(file: Path) -> list[Pair]:
    form = ENDS.get(_ending(file))
    if form is None:
        raise DataError(f"minimal pairs must come as one of {', '.join(ENDS)} or .gold, but {file.name} came")
    quoted = _ending(file) == ".tab"  # R's tables quote texts
    table = read_table(Source(path=str(file)), file, form) if not quoted else _quoted(file)  # type: ignore[arg-type]
    columns = set(table.columns)
    rows = [(f"row {number} of {file.name}", row) for number, row in enumerate(table.iter_rows(named=True), 1)]
    if {"sentence_good", "sentence_bad"} <= columns:
        stem = file.name.split(".")[0]
        return [
            _pair(row["sentence_good"], row["sentence_bad"], _name(row.get("UID"), stem), row.get("linguistics_term"), where)
            for where, row in rows
        ]
    if {"good", "bad"} <= columns:
        name = next((name for name in ("construction", "group") if name in columns), "")
        return [_pair(row["good"], row["bad"], row.get(name), None, where) for where, row in rows]
    if set(GULORDAVA) <= columns:
        return _gulordava(rows)
    raise DataError(
        f"{file.name} must have the columns good and bad, or sentence_good and sentence_bad, but has {', '.join(table.columns)}"
    )


def _quoted(file: Path) -> pl.DataFrame:
    with opened(file, "utf-8") as text:
        data = text.read().encode()
    try:
        return pl.read_csv(data, separator="\t", infer_schema=False)
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{file.name} must be a table with tabs and quoted texts, but cannot be read: {reason}; mend it") from None


def _gulordava(rows: Sequence[tuple[str, Mapping[str, object]]]) -> list[Pair]:
    """The form stands behind the prefix; what follows it is the same in both, and is left out as in the paper."""
    forms: dict[tuple[str, ...], dict[str, str]] = {}
    for where, row in rows:
        cells = {name: _name(row[name], "all" if name == "type" else "") for name in GULORDAVA}
        if gaps := [name for name, cell in cells.items() if not cell]:
            raise DataError(f"{where}: {', '.join(GULORDAVA)} must all be given, but {gaps[0]} is empty; mend or drop the row")
        if cells["class"] not in CLASSES:
            raise DataError(f"{where}: the class must be {' or '.join(CLASSES)}, but is '{cells['class']}'; name it so")
        key = (cells["pattern"], cells["constr_id"], cells["sent_id"], cells["type"])
        forms.setdefault(key, {})[cells["class"]] = _cut(cells["sent"], cells["len_prefix"], cells["form"], where)
    return [_pair(two["correct"], two["wrong"], key[-1], None, f"sentence {key[2]}") for key, two in forms.items() if len(two) == 2]


def _cut(sentence: str, place: str, form: str, where: str) -> str:
    """The words before a place, and the form that stands there."""
    words = sentence.split()
    if not place.strip().isdecimal() or int(place) > len(words):
        raise DataError(f"{where}: the place must be a number of words, at most the sentence's {len(words)}, but is '{place}'")
    if not form.strip():
        raise DataError(f"{where}: the form that stands behind the prefix must be a word, but is empty; mend or drop the row")
    return " ".join([*words[: int(place)], form])


def _linzen(file: Path) -> list[Pair]:
    """The verb stands at a place of the sentence; what follows it is left out."""
    stem = file.name.removesuffix(".gold")
    text = next(
        (file.with_name(f"{stem}.text{end}") for end in ("", *PACKED) if file.with_name(f"{stem}.text{end}").exists()), None
    )
    if text is None:
        raise DataError(f"{file.name} needs its sentences beside it, but there is no {stem}.text; copy it there")
    with opened(text, "utf-8") as lines, opened(file, "utf-8") as gold:
        rows, sentences = ([line.rstrip("\r\n") for line in stream] for stream in (gold, lines))
    if len(rows) != len(sentences):
        raise DataError(
            f"{file.name} must have a row for every line of {text.name}, but has {len(rows):,} for {len(sentences):,}; "
            "one of them is cut short"
        )
    pairs = []
    for number, (sentence, row) in enumerate(zip(sentences, rows, strict=True), 1):
        where, cells = f"row {number} of {file.name}", row.split("\t")
        if len(cells) != 4:
            raise DataError(f"{where}: must be place, right form, wrong form and attractors with tabs, but has {len(cells)} cells")
        place, *forms, attractors = cells
        right, wrong = (_cut(sentence, place, form, where) for form in forms)
        pairs.append(_pair(right, wrong, f"{attractors} attractors", None, where))
    return pairs
