"""The readers of the formats of tables; csv and tsv are in ``delimited.py``.

Numbers of labels get their names, as the ``datasets`` library keeps them: beside an Arrow file, and in a parquet file. Exports of
labelling programs are refused: rejected, skipped and suggested labels stand in them beside people's answers. Each refusal names the
way to a table of texts and labels. JSON, and lines of JSON, are recognised by their first entries.
"""

from __future__ import annotations

import functools
import html
import io
import json
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import fastexcel
import polars as pl

from warmstart.data.columns import LABEL_NAMES, TEXT_NAMES, named_columns
from warmstart.data.files import most_bytes, too_large
from warmstart.data.source import Format, Source
from warmstart.errors import DataError, suggest
from warmstart.system.console import print_once
from warmstart.system.limits import MANIFEST_BYTES, free_memory, parse_json
from warmstart.system.processes import run_python
from warmstart.system.storage import read_inside

STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"
"""end of an Arrow stream; without it rows may be missing"""
_ARROW_FILE = b"ARROW1"
"""first bytes of Arrow's format for random access"""
_FASTTEXT = re.compile(r"((?:__label__\S+(?:\s+|$))*)(.*)")
INFO = "dataset_info.json"
"""file in which ``datasets`` describes the columns of files beside it"""
_COPIES = 8
"""bytes of memory that reading a file needs for each byte of its texts, at most"""
_READ_WITHIN_SECONDS = 120
"""seconds that a file may take"""
_TOO_LARGE = 9
"""exit code of the process that reads a file, if its memory grows too much"""
_WATCH = f"""
import os, threading, time
import psutil
resident = lambda: psutil.Process().memory_info().rss
most = resident() + int(sys.argv[2])
def watch():
    while resident() < most:
        time.sleep(0.005)
    os._exit({_TOO_LARGE})
threading.Thread(target=watch, daemon=True).start()
"""
"""ends once it takes too much memory; a limit set by the system is no use, since libraries may wait for ever for memory that they
are refused"""
_PEEK = 1 << 20
"""characters of a file by which it is recognised"""
_WAYS = {
    "Label Studio": "export it as CSV, and name the columns of the text and of one question with --text-column and "
    "--label-column, or call them text and label",
    "Argilla": "write the submitted responses, by its Python client, as a csv with the columns text and label, and person if "
    "several people labelled",
    "Prodigy": 'write the accepted rows alone, for instance by jq -c \'select(.answer == "accept") | {text, label: '
    '(.label // (.accept | join("|")))}\' FILE > labels.jsonl',
    "doccano": "export it as CSV, with the columns text and label",
    "spaCy": 'write a line for each text with the name of its category, {"text": "…", "label": "…"}',
}
"""program -> how its labels become a table"""
_SPANS = 'write a label for each word, O for words in no span, as lists: {"text": ["Ada", "sang"], "label": ["PER", "O"]}'
"""advice where labels belong to spans of a text"""


def parsed(data: bytes, source: Source, file: Path, form: Format) -> pl.DataFrame:
    """The frame that polars and others make of the bytes of a table."""
    try:
        if form == "parquet":
            _check_expansion(data, file, "read_parquet(sys.argv[1])")
            features = features_in_parquet(pl.read_parquet_metadata(io.BytesIO(data)))
            return with_names_of_labels(pl.read_parquet(io.BytesIO(data)), features, file)
        if form == "arrow":
            return with_names_of_labels(_read_arrow(data, file), features_of(file.parent), file.parent)
        if form == "ndjson":
            return pl.read_ndjson(io.BytesIO(data), infer_schema_length=None)
        if form == "xlsx":
            _check_expansion(data, file, "read_excel(sys.argv[1], sheet_id=0)")
            return read_xlsx(data, file, source.sheet, source.header)
        return read_json_table(data, file)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{file} cannot be read as {form}: {reason}; correct the file or name its format") from None


def read_fasttext(text: str, file: Path) -> pl.DataFrame:
    """Lines that begin with labels, ``__label__a __label__b the text``, as texts and a label each, or lists of several."""
    lines = list[tuple[list[str], str]]()
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            names, rest = _FASTTEXT.fullmatch(line.strip()).groups()  # type: ignore[union-attr]  # it matches any line
            if not names:
                raise DataError(f"every line of {file} must begin with __label__, but line {number} is {line[:80]!r}; correct it")
            lines.append(([name.removeprefix("__label__") for name in names.split()], rest))
    labels = [names[0] for names, _ in lines] if all(len(names) == 1 for names, _ in lines) else [names for names, _ in lines]
    return pl.DataFrame({"text": [rest for _, rest in lines], "label": labels})


def _read_arrow(data: bytes, file: Path) -> pl.DataFrame:
    """Arrow's stream, as ``datasets`` writes it, or its file format."""
    if data.startswith(_ARROW_FILE):
        _check_expansion(data, file, "read_ipc(sys.argv[1])")
        return pl.read_ipc(io.BytesIO(data))
    if not data.endswith(STREAM_END):
        raise DataError(f"{file} must be an Arrow stream with its end, but is cut short or no such stream; copy the file again")
    _check_expansion(data, file, "read_ipc_stream(sys.argv[1])")
    return pl.read_ipc_stream(io.BytesIO(data))


def _check_expansion(data: bytes, file: Path, call: str) -> None:
    """Raise ``DataError`` if a parquet, Arrow or .xlsx file expands to more than ``most_bytes``.

    Its own figures may lie, so the file is first read in a process that watches its memory; not if the limit is more than the free
    memory.
    """
    most = _COPIES * most_bytes(file)
    if most > free_memory():
        return
    with tempfile.NamedTemporaryFile() as copy:
        copy.write(data)
        copy.flush()
        imports = 'import os; os.environ["POLARS_MAX_THREADS"] = "1"; import polars'
        _run_watched(imports, f"polars.{call}", Path(copy.name), most, file)  # what polars refuses is refused again


def _run_watched(imports: str, code: str, read: Path, most: int, file: Path) -> subprocess.CompletedProcess[str]:
    """Run code that reads ``read`` (``sys.argv[1]``) in a fresh process that may take ``most`` bytes more than its ``imports``.

    Raises ``DataError``, which names ``file``, if it takes more or is killed; what else it ends with is returned.
    """
    run = run_python(f"{imports}\n{_WATCH}\n{code}", str(read.absolute()), str(most), seconds=_READ_WITHIN_SECONDS)
    if run.returncode == _TOO_LARGE or run.returncode < 0:
        raise DataError(too_large(file))
    return run


# ------------------------------------------------------------------------------------------------ spreadsheets


def read_xlsx(data: bytes, file: Path, sheet: str | None, header: bool | None = None) -> pl.DataFrame:
    """One sheet, every column as strings, without blank rows. Raises ``DataError`` as ``sheet_cells`` does."""
    _, table = sheet_cells(data, file, sheet)
    return named_columns(table.filter(~pl.all_horizontal(pl.all().is_null())), file, header)


def sheet_cells(data: bytes, file: Path, sheet: str | None) -> tuple[str, pl.DataFrame]:
    """The name of a sheet and its cells from the first that holds something, as strings.

    Raises ``DataError`` if several that are shown hold something and none is named.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(part.file_size for part in archive.infolist()) > most_bytes(file):
                raise DataError(too_large(file))
            merged = dict[str, list[tuple[int, int, int]]]()
            with suppress(KeyError, UnicodeError):  # a book whose parts have other names is read without what is merged
                merged = _merged_down(archive)
        book = fastexcel.read_excel(data)
        sheets = [book.load_sheet(name, header_row=None, dtypes="string") for name in book.sheet_names]
    except DataError:
        raise
    except Exception as error:  # calamine has errors of its own, which this package need not know
        raise DataError(f"{file} cannot be read as xlsx ({str(error).splitlines()[0]}); save it again as .xlsx or .csv") from None
    full = [page for page in sheets if page.height > 1]
    shown = [page for page in full if page.visible == "visible"]
    if sheet is not None and sheet not in book.sheet_names:
        raise DataError(f"{file} has no sheet '{sheet}'; {suggest(sheet, book.sheet_names)}")
    if sheet is None and len(shown or full) != 1:
        names = ", ".join(page.name + (" (hidden)" if page.visible != "visible" else "") for page in full) or "none"
        raise DataError(f"{file} must have one sheet with rows, but has {names}; name one with --sheet (in a manifest 'sheet: …')")
    chosen = (shown or full)[0] if sheet is None else sheets[book.sheet_names.index(sheet)]
    if sheet is None and len(full) > 1:
        hidden = [page.name for page in full if page is not chosen]
        print_once(f"{file}: the sheet {chosen.name} is read; hidden, and not read: {', '.join(hidden)} (--sheet names another).")
    return chosen.name, _filled_down(chosen.to_polars(), merged.get(chosen.name, []), file)


def _merged_down(archive: zipfile.ZipFile) -> dict[str, list[tuple[int, int, int]]]:
    """Sheet -> (column, first row, last row) of its cells that are merged over several rows, from where what it holds begins."""
    by_sheet = dict[str, list[tuple[int, int, int]]]()
    for name, part in sheet_parts(archive).items():
        text = archive.read(part).decode()
        held = [(column_number(letters), int(row)) for letters, row in re.findall(r'<c r="([A-Z]+)(\d+)"[^>]*[^/]>', text)]
        merged = re.findall(r'<mergeCell ref="([A-Z]+)(\d+):[A-Z]+(\d+)"', text)
        if held and merged:
            left, top = min(column for column, _ in held), min(row for _, row in held)
            down = [
                (column_number(letters) - left, int(first) - top, int(last) - top)
                for letters, first, last in merged
                if first != last
            ]
            by_sheet[name] = down
    return by_sheet


def sheet_parts(archive: zipfile.ZipFile) -> dict[str, str]:
    """Name of a sheet -> name of the file in a workbook that holds its cells. Raises ``KeyError`` for another layout."""
    book, links = (archive.read(f"xl/{name}").decode() for name in ("workbook.xml", "_rels/workbook.xml.rels"))
    targets = {_attribute(link, "Id"): _attribute(link, "Target") for link in re.findall(r"<Relationship\b[^>]*>", links)}
    return {
        html.unescape(_attribute(sheet, "name")): "xl/" + targets[_attribute(sheet, "r:id")].removeprefix("/xl/")
        for sheet in re.findall(r"<sheet\b[^>]*>", book)
    }


def _attribute(tag: str, name: str) -> str:
    return (re.findall(rf'\s{name}="([^"]*)"', tag) or [""])[0]


def column_number(letters: str) -> int:
    """``A`` -> 1, ``AA`` -> 27."""
    return functools.reduce(lambda number, letter: 26 * number + ord(letter) - 64, letters, 0)


def _filled_down(table: pl.DataFrame, merged: list[tuple[int, int, int]], file: Path) -> pl.DataFrame:
    """A table in which each cell that is merged over rows stands in all of them."""
    columns = [column.to_list() for column in table] if merged else []
    for column, first, last in merged:
        if 0 <= column < table.width and 0 <= first < table.height:
            last = min(last, table.height - 1)
            columns[column][first : last + 1] = [columns[column][first]] * (last + 1 - first)
    if merged:
        print_once(f"{file}: {len(merged):,} merged cells hold for each of their rows.")
    return pl.DataFrame(columns, schema=table.schema) if merged else table


# ------------------------------------------------------------------------------------------------ JSON


def read_json_table(data: bytes, file: Path) -> pl.DataFrame:
    """A list of objects or of texts, an object that holds such a list, or one of columns; or a line for each object.

    Raises ``DataError`` for anything else.
    """
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        if data.count(b"\n") and data.lstrip().startswith(b"{"):
            return pl.read_ndjson(io.BytesIO(data), infer_schema_length=None)
        raise DataError(f"{file} must be JSON, but is not ({error}); correct it, or name its format") from None
    rows = _rows(values)
    if rows is None:
        raise DataError(
            f'{file} must hold a list of objects, such as [{{"text": "…", "label": "…"}}], or of texts, but holds {_kind(values)}; '
            "write one, or a file with an object on each line (.jsonl)"
        )
    return pl.DataFrame(rows, infer_schema_length=None, strict=False)


def _rows(values: Any) -> list[dict[str, Any]] | None:
    """The rows of a table as pandas and others write it, or None."""
    if isinstance(values, list):
        if values and all(isinstance(value, str) for value in values):
            return [{"text": value} for value in values]
        return values if values and all(isinstance(value, dict) for value in values) else None
    if not isinstance(values, dict):
        return None
    if set(values) >= {"columns", "data"}:  # pandas, orient="split"
        return [dict(zip(values["columns"], row, strict=False)) for row in values["data"]]
    if values and all(isinstance(value, dict) for value in values.values()):
        if _by_row(values):  # pandas, orient="index"
            return list(values.values())
        # pandas' default: column -> row -> value
        keys = list(next(iter(values.values())))
        return [{name: column.get(key) for name, column in values.items()} for key in keys]
    if values and all(isinstance(cells, list) for cells in values.values()) and len({*map(len, values.values())}) == 1:
        inner = _rows(next(iter(values.values()))) if len(values) == 1 else None
        return inner or [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    lists = [rows for value in values.values() if isinstance(value, list) and (rows := _rows(value))]
    return lists[0] if len(lists) == 1 else None


def _by_row(values: dict[str, dict[str, Any]]) -> bool:
    """True if an object of objects has a row in each, not a column: these have the names, or are more."""
    inner = {name for row in values.values() for name in row}
    known = {*TEXT_NAMES, *LABEL_NAMES}
    if known & values.keys() or known & inner:
        return not known & values.keys()
    return not any(map(str.isdecimal, inner)) and (all(map(str.isdecimal, values)) or len(values) > len(inner))


def _kind(values: Any) -> str:
    kinds = {"dict": "an object without one list of rows", "list": "a list of other things"}
    return kinds.get(type(values).__name__, f"a {type(values).__name__}")


# ------------------------------------------------------------------------------------------------ names of labels


def features_of(folder: Path) -> Any:
    """The description in ``dataset_info.json`` of the columns of the Arrow files beside it; None if there is none."""
    if not (folder / INFO).is_file():
        return None
    try:
        values = parse_json(read_inside(folder, INFO, MANIFEST_BYTES))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {folder / INFO} ({error}); copy the folder again") from None
    if not isinstance(values, dict):
        raise DataError(f"{folder / INFO} must hold values by name, but does not; copy the folder again")
    return values.get("features")


def features_in_parquet(metadata: Mapping[str, str]) -> Any:
    """The description of the columns of a parquet file that ``datasets`` has written."""
    try:
        return parse_json(metadata.get("huggingface", "{}").encode())["info"]["features"]
    except (ValueError, LookupError, TypeError):
        return None


def with_names_of_labels(table: pl.DataFrame, features: Any, file: Path) -> pl.DataFrame:
    """A table with names in place of the numbers of labels; -1, which stands for no label, becomes missing."""
    for column, feature in (features or {}).items() if isinstance(features, Mapping) else ():
        if column not in table.columns or not isinstance(feature, Mapping):
            continue
        inner = feature.get("feature") if feature.get("_type") in ("Sequence", "List", "LargeList") else None
        names = _names(inner if inner is not None else feature)
        if names is None:
            continue
        wanted = pl.List(pl.String) if inner is not None else pl.String
        values = [_named(value, names, file, column) for value in table[column].to_list()]
        table = table.with_columns(pl.Series(column, values, dtype=wanted))
    return table


def _names(feature: Any) -> list[str] | None:
    """The names of a ``ClassLabel``; None for another feature."""
    names = feature.get("names") if isinstance(feature, Mapping) and feature.get("_type") == "ClassLabel" else None
    return [str(name) for name in names] if isinstance(names, list) else None


def _named(value: Any, names: list[str], file: Path, column: str) -> Any:
    if isinstance(value, list):
        return [_named(number, names, file, column) for number in value]
    if value is None or value == -1:
        return None
    if not isinstance(value, int) or not 0 <= value < len(names):
        raise DataError(
            f"'{column}' in {file} must hold numbers of labels from 0 to {len(names) - 1}, as it says, but holds {value!r}; "
            "save the dataset again"
        )
    return names[value]


# ------------------------------------------------------------------------------------------------ exports


def refuse_export(text: str, file: Path, label: str = "label") -> None:
    """Raise ``DataError`` if a file that holds this JSON is the export of a labelling program; ``label`` is the column to read."""
    for entry in _entries(text):
        if program := _program(entry, label):
            values = entry[1] if isinstance(entry, list) else entry  # spaCy's pair
            way = _SPANS if any(map(_holds_spans, values.values())) else _WAYS[program]
            raise DataError(f"{file} must be a table of texts and labels, but is an export of {program}; {way}")


def _entries(text: str) -> Iterator[Any]:
    """The first entries of a list, or of lines, that are whole and can be read."""
    start, decoder = text[:_PEEK].lstrip(), json.JSONDecoder()
    at = 1 if start[:1] == "[" and start[1:].lstrip()[:1] in ("{", "[") else 0
    while True:
        while at < len(start) and start[at] in ", \t\r\n":
            at += 1
        try:
            entry, at = decoder.raw_decode(start, at)
        except (ValueError, RecursionError):
            return
        yield entry


def _program(entry: Any, label: str) -> str | None:
    """The program that wrote an entry; None: it may be a row of any table."""
    if isinstance(entry, list):
        return "spaCy" if len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], Mapping) else None
    if not isinstance(entry, Mapping):
        return None
    keys = entry.keys()
    if _is_label_studio(entry):
        return "Label Studio"
    if (isinstance(entry.get("fields"), Mapping) and "responses" in keys) or {"annotation", "annotation_agent"} <= keys:
        return "Argilla"
    if any(str(name).endswith(".responses") or _is_response(value) for name, value in entry.items()):
        return "Argilla"
    about = keys & {"label", "accept", "spans", "options", "_input_hash", "_task_hash"}
    if entry.get("answer") in ("accept", "reject", "ignore") and about and label != "answer":
        return "Prodigy"
    if isinstance(entry.get("paragraphs"), list) or _is_numbers(entry.get("cats")):
        return "spaCy"
    labels = [entry[name] for name in ("label", "labels", "entities", "ents") if name in keys]
    commented = isinstance(entry.get("Comments"), list) and any(isinstance(value, list) for value in labels)
    return "doccano" if commented or any(map(_holds_spans, labels)) else None


def _is_label_studio(entry: Mapping[str, Any]) -> bool:
    """True if an entry is a task with its data, or a row of JSON-MIN."""
    if isinstance(entry.get("data"), Mapping):
        return bool({"annotations", "completions", "predictions"} & entry.keys())
    choices = [value["choices"] for value in entry.values() if isinstance(value, Mapping) and set(value) == {"choices"}]
    return {"annotator", "annotation_id"} <= entry.keys() or any(isinstance(value, str | list) for value in choices)


def _is_response(value: Any) -> bool:
    """True if a value lists what people responded in Argilla's first version."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping) and {"value", "user_id"} <= value[0].keys()


def _is_numbers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(number, bool | int | float) for number in value.values())


def _holds_spans(value: Any) -> bool:
    """True if a value lists spans: ``[[0, 3, "PER"]]`` or ``[{"start": 0, "end": 3, "label": "PER"}]``."""
    if not isinstance(value, list) or not value:
        return False
    first = value[0]
    if isinstance(first, Mapping):
        return bool({"start", "start_offset"} & first.keys()) and bool({"label", "labels"} & first.keys())
    return isinstance(first, Sequence) and [*map(type, first)] == [int, int, str]
