"""Files of minimal pairs, in the forms in which they are published.

- BLiMP: ndjson with ``sentence_good``, ``sentence_bad``, ``UID`` and ``linguistics_term``; a file, or a folder of them
- tables with columns ``good`` and ``bad``, grouped by ``construction`` or ``group`` where there is one (Marvin and Linzen 2018)
- Gulordava et al. 2018: a table of ``sent``, ``form``, ``class`` and ``len_prefix``, two rows a pair
- Linzen et al. 2016: a ``.gold`` table of place, right form, wrong form, beside a ``.text`` of one sentence a line
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from warmstart.data.files import opened
from warmstart.data.source import Source
from warmstart.data.tables import read_table
from warmstart.errors import DataError

PACKED = (".gz", ".xz", ".bz2")
ENDS = {".jsonl": "ndjson", ".ndjson": "ndjson", ".tsv": "tsv", ".tab": "tsv", ".csv": "csv"}


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

    Raises ``DataError`` for what has none of the known forms.
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
    return kept


def _ending(file: Path) -> str:
    return Path(file.stem).suffix if file.suffix in PACKED else file.suffix


def _table(file: Path) -> list[Pair]:
    form = ENDS.get(_ending(file))
    if form is None:
        raise DataError(f"minimal pairs must come as one of {', '.join(ENDS)} or .gold, but {file.name} came")
    quoted = _ending(file) == ".tab"  # R's tables quote texts
    table = read_table(Source(path=str(file)), file, form) if not quoted else _quoted(file)  # type: ignore[arg-type]
    columns = set(table.columns)
    if {"sentence_good", "sentence_bad"} <= columns:
        stem = file.name.split(".")[0]
        return [
            Pair(row["sentence_good"], row["sentence_bad"], row.get("UID", stem), row.get("linguistics_term", ""))
            for row in table.iter_rows(named=True)
        ]
    if {"good", "bad"} <= columns:
        name = next((name for name in ("construction", "group") if name in columns), None)
        return [Pair(row["good"], row["bad"], row[name] if name else "all") for row in table.iter_rows(named=True)]
    if {"sent", "form", "class", "len_prefix", "type"} <= columns:
        return _gulordava(table)
    raise DataError(
        f"{file.name} must have the columns good and bad, or sentence_good and sentence_bad, but has {', '.join(table.columns)}"
    )


def _quoted(file: Path) -> pl.DataFrame:
    with opened(file, "utf-8") as text:
        return pl.read_csv(text.read().encode(), separator="\t", infer_schema=False)


def _gulordava(table: pl.DataFrame) -> list[Pair]:
    """The form stands behind the prefix; what follows it is the same in both, and is left out as in the paper."""
    forms: dict[tuple[str, ...], dict[str, str]] = {}
    for row in table.iter_rows(named=True):
        key = (row["pattern"], row["constr_id"], row["sent_id"], row["type"])
        words = row["sent"].split()[: int(row["len_prefix"])]
        forms.setdefault(key, {})[row["class"]] = " ".join([*words, row["form"]])
    return [Pair(two["correct"], two["wrong"], key[-1]) for key, two in forms.items() if len(two) == 2]


def _linzen(file: Path) -> list[Pair]:
    """The verb stands at a place of the sentence; what follows it is left out."""
    stem = file.name.removesuffix(".gold")
    text = next(
        (file.with_name(f"{stem}.text{end}") for end in ("", *PACKED) if file.with_name(f"{stem}.text{end}").exists()), None
    )
    if text is None:
        raise DataError(f"{file.name} needs its sentences beside it, but there is no {stem}.text; copy it there")
    with opened(text, "utf-8") as lines, opened(file, "utf-8") as gold:
        rows = [line.split("\t") for line in gold.read().splitlines()]
        sentences = lines.read().splitlines()
    pairs = []
    for sentence, (place, right, wrong, attractors) in zip(sentences, rows, strict=True):
        before = " ".join(sentence.split()[: int(place)])
        pairs.append(Pair(f"{before} {right}", f"{before} {wrong}", f"{attractors} attractors"))
    return pairs
