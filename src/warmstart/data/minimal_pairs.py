"""Files of minimal pairs, in the forms in which they are published.

- BLiMP: ndjson with ``sentence_good``, ``sentence_bad``, ``UID`` and ``linguistics_term``; a file, or a folder of them
- tables with the columns ``good`` and ``bad``, and ``construction`` or ``group`` to group them (Marvin and Linzen 2018)
- Gulordava et al. 2018: a table of ``sent``, ``form``, ``class`` and ``len_prefix``, two rows per pair
- Linzen et al. 2016: a ``.gold`` table of position, right form, wrong form, attractors, beside a ``.text`` of one sentence per line
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from warmstart.data.files import COMPRESSED, is_compressed, open_text
from warmstart.data.source import Format, Source
from warmstart.data.tables import read_table
from warmstart.errors import DataError

FORMATS: dict[str, Format] = {".jsonl": "ndjson", ".ndjson": "ndjson", ".tsv": "tsv", ".tab": "tsv", ".csv": "csv"}
"""ending of a file -> how it is read"""
GULORDAVA = ("pattern", "constr_id", "sent_id", "class", "type", "form", "len_prefix", "sent")
"""columns of a table by Gulordava et al."""
CORRECT, WRONG = "correct", "wrong"
"""the two values of its column ``class``"""


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ in one point; the first is grammatical."""

    good: str
    bad: str
    group: str = "all"
    """what is tested: a paradigm, a construction, a number of attractors"""
    phenomenon: str = ""
    """what the group belongs to: in BLiMP its ``linguistics_term``"""


def read_minimal_pairs(path: str | Path, limit: int | None = None) -> list[MinimalPair]:
    """The pairs of a file or folder; with ``limit`` at most this many of each group, from the beginning.

    Raises ``DataError`` for a file in none of the known forms, and for a row that is not a pair.
    """
    source = Path(path)
    files = sorted(file for file in source.iterdir() if _ending(file) in (".jsonl", ".ndjson")) if source.is_dir() else [source]
    if not files or not source.exists():
        raise DataError(
            f"minimal pairs must be a file, or a folder of ndjson files, but {path} is neither; see docs/explanation/studies.md"
        )
    counts, kept = Counter[str](), []
    for pair in (pair for file in files for pair in _read_file(file)):
        counts[pair.group] += 1
        if limit is None or counts[pair.group] <= limit:
            kept.append(pair)
    if not kept:
        raise DataError(f"there must be at least one minimal pair, but {path} has none; give a file with rows of good and bad")
    return kept


def _read_file(file: Path) -> list[MinimalPair]:
    return _read_linzen(file) if _ending(file) == ".gold" else _read_table(file)


def _ending(file: Path) -> str:
    return Path(file.stem).suffix if is_compressed(file) else file.suffix


def _pair(good: object, bad: object, group: object, phenomenon: object, where: str) -> MinimalPair:
    """A pair from the values of a row. Both sentences must be there; without a group it is in the group ``all``."""
    for name, value in (("right", good), ("wrong", bad)):
        if not isinstance(value, str) or not value.strip():
            problem = "is empty" if value is None or isinstance(value, str) else f"is {str(value)[:80]!r}"
            raise DataError(f"{where}: a pair must have two sentences, but the {name} one {problem}; correct or remove the row")
    return MinimalPair(str(good), str(bad), _name(group, "all"), _name(phenomenon, ""))


def _name(value: object, default: str) -> str:
    """A value as a name, or the default if it is empty."""
    return default if value is None or not str(value).strip() else str(value)


# ---------------------------------------------------------------------------------------------------- tables


def _read_table(file: Path) -> list[MinimalPair]:
    """A table in any of the three forms, told apart by its columns."""
    form = FORMATS.get(_ending(file))
    if form is None:
        raise DataError(f"minimal pairs must be a file with one of the endings {', '.join(FORMATS)} or .gold, but got {file.name}")
    table = _read_quoted_table(file) if _ending(file) == ".tab" else read_table(Source(path=str(file)), file, form)
    columns = set(table.columns)
    rows = [(f"row {number} of {file.name}", row) for number, row in enumerate(table.iter_rows(named=True), 1)]
    if {"sentence_good", "sentence_bad"} <= columns:
        stem = file.name.split(".")[0]
        return [
            _pair(row["sentence_good"], row["sentence_bad"], _name(row.get("UID"), stem), row.get("linguistics_term"), where)
            for where, row in rows
        ]
    if {"good", "bad"} <= columns:
        group = next((name for name in ("construction", "group") if name in columns), "")
        return [_pair(row["good"], row["bad"], row.get(group), None, where) for where, row in rows]
    if set(GULORDAVA) <= columns:
        return _gulordava_pairs(rows)
    raise DataError(
        f"{file.name} must have the columns good and bad, or sentence_good and sentence_bad, but has {', '.join(table.columns)}"
    )


def _read_quoted_table(file: Path) -> pl.DataFrame:
    """A table as R writes it: tabs between the columns, and quotes around texts."""
    with open_text(file, "utf-8") as text:
        data = text.read().encode()
    try:
        return pl.read_csv(data, separator="\t", infer_schema=False)
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{file.name} must be a table with tabs and quoted texts, but cannot be read: {reason}; correct it"
        ) from None


def _gulordava_pairs(rows: Sequence[tuple[str, Mapping[str, object]]]) -> list[MinimalPair]:
    """Each sentence up to the form that is tested; the rest is the same in both, and is left out as in the paper."""
    forms: dict[tuple[str, ...], dict[str, str]] = {}
    for where, row in rows:
        values = {name: _name(row[name], "all" if name == "type" else "") for name in GULORDAVA}
        if empty := [name for name, value in values.items() if not value]:
            raise DataError(f"{where}: {', '.join(GULORDAVA)} must not be empty, but {empty[0]} is; correct or remove the row")
        if values["class"] not in (CORRECT, WRONG):
            raise DataError(f"{where}: the class must be {CORRECT} or {WRONG}, but is '{values['class']}'; correct it")
        key = (values["pattern"], values["constr_id"], values["sent_id"], values["type"])
        forms.setdefault(key, {})[values["class"]] = _up_to(values["sent"], values["len_prefix"], values["form"], where)
    return [_pair(two[CORRECT], two[WRONG], key[-1], None, f"sentence {key[2]}") for key, two in forms.items() if len(two) == 2]


# ---------------------------------------------------------------------------------------------------- sentences beside a table


def _read_linzen(file: Path) -> list[MinimalPair]:
    """Each sentence up to the verb that is tested; the rest is left out."""
    stem = file.name.removesuffix(".gold")
    candidates = (file.with_name(f"{stem}.text{ending}") for ending in ("", *COMPRESSED))
    text = next((candidate for candidate in candidates if candidate.exists()), None)
    if text is None:
        raise DataError(f"{file.name} needs its sentences beside it, but there is no {stem}.text; copy it there")
    with open_text(text, "utf-8") as lines, open_text(file, "utf-8") as gold:
        rows, sentences = ([line.rstrip("\r\n") for line in stream] for stream in (gold, lines))
    if len(rows) != len(sentences):
        raise DataError(
            f"{file.name} must have one row per line of {text.name}, but has {len(rows):,} for {len(sentences):,}; "
            "one of the two files is incomplete"
        )
    pairs = []
    for number, (sentence, row) in enumerate(zip(sentences, rows, strict=True), 1):
        where, values = f"row {number} of {file.name}", row.split("\t")
        if len(values) != 4:
            raise DataError(
                f"{where}: there must be position, right form, wrong form and attractors, with tabs between, "
                f"but it has {len(values)} columns"
            )
        position, *forms, attractors = values
        right, wrong = (_up_to(sentence, position, form, where) for form in forms)
        pairs.append(_pair(right, wrong, f"{attractors} attractors", None, where))
    return pairs


def _up_to(sentence: str, position: str, form: str, where: str) -> str:
    """The words of a sentence before a position, then ``form``."""
    words = sentence.split()
    if not position.strip().isdecimal() or int(position) > len(words):
        raise DataError(
            f"{where}: the position must be a number of words, at most the sentence's {len(words)}, but is '{position}'"
        )
    if not form.strip():
        raise DataError(f"{where}: the form at the position must be a word, but is empty; correct or remove the row")
    return " ".join([*words[: int(position)], form])
