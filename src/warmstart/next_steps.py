"""What ``warmstart`` alone suggests: the next commands, from what lies in a folder. Imports nothing heavy, and never fails."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from warmstart.data.files import open_bytes, without_compression
from warmstart.runs.steps import PROJECT_FILE, command, free_name, out_words
from warmstart.system.limits import MANIFEST_BYTES
from warmstart.system.storage import HISTORY_FILE, MANIFEST

_DELIMITED, _LINES = (".csv", ".tsv", ".tab"), (".ndjson", ".jsonl")
_WHOLE = (".xlsx", ".parquet")
"""tables that are read as a whole, to know their columns"""
_TEXTS = (".txt", ".md", ".text", ".eml")
_NO_DATA = ("readme", "license", "requirements", "changelog")
_HELD_OUT = ("test", "dev", "valid")
"""parts of the names of tables from which nothing is learned"""
_MOST_ENTRIES = 2000
"""most entries of one folder that are looked at"""
_MOST_BYTES = 1 << 20
"""most bytes of a text, a line, or the description of a saved model"""
_MOST_TABLE_BYTES = 20 << 20


@dataclass
class Found:
    """The contents of a folder and of the folders in it."""

    labelled: dict[str, list[str]] = field(default_factory=dict)
    """tables with a column that is named as labels are, and the columns of each"""
    tables: dict[str, list[str]] = field(default_factory=dict)
    """other tables"""
    texts: list[str] = field(default_factory=list)
    """folders with text files, or such files"""
    adapted: list[str] = field(default_factory=list)
    """runs whose model has learned a task"""
    pretrained: list[str] = field(default_factory=list)
    """runs whose model has read text alone"""
    projects: list[str] = field(default_factory=list)
    """folders in which texts are labelled"""

    @property
    def new(self) -> str | None:
        """A table like a labelled one, but for the labels."""
        known = [{*columns} for columns in self.labelled.values()]
        return next((name for name, columns in self.tables.items() if any({*columns} <= header for header in known)), None)


def next_steps(folder: Path) -> list[tuple[str, str]]:
    """``(what for, command)`` of at most four next steps in a folder, the likeliest first."""
    contents = look(folder)
    steps = [*_of_models(contents), *_of_texts(contents)]
    if contents.projects:
        steps.append(("go on labelling", command("label", "--out", contents.projects[0])))
    return steps[:4] or [("try it in a minute, without data or network", command("quickstart"))]


def _of_models(contents: Found) -> Iterator[tuple[str, str]]:
    """Steps to use a model that has learned a task, else to look at one that has read text."""
    if contents.adapted:
        out = ["--out", free_name("labelled.csv")] if contents.new else []
        yield "label new texts", command("predict", contents.adapted[0], contents.new or "A new text.", *out)
        yield "use it in the browser", command("serve", contents.adapted[0])
    elif contents.pretrained:
        yield "look at what it writes", command("serve", contents.pretrained[0])


def _of_texts(contents: Found) -> Iterator[tuple[str, str]]:
    """Steps to learn from labels, else to give some, and to pretrain on text that has none."""
    text, table = next(iter(contents.texts), None), next(iter(contents.labelled), None)
    if table:
        yield "make the best model of your labels", command("fit", table, *(["--unlabelled", text] if text else []))
        if contents.pretrained:
            words = ["race", table, "--backbones", contents.pretrained[0], "--budget", "30m", *out_words("runs/race")]
            yield "does your model help?", command(*words, "--save", "recommended")
        return
    if text and not contents.pretrained:
        words = ["pretrain", text, "--objective", "masked", "--minutes", "10", "--out", free_name("runs/lm")]
        yield "pretrain on your text", command(*words)
    pool, column = (text, None) if text else _first_texts(contents)
    if pool and not contents.projects:
        words = [
            "label",
            pool,
            *(["--text-column", column] if column else []),
            "--labels",
            "yes",
            "no",
            "--out",
            free_name("labels"),
        ]
        yield "label some of it; the page renames labels", command(*words)


def _first_texts(contents: Found) -> tuple[str | None, str | None]:
    """A table without labels, and its column of texts, unless that is called so."""
    if not contents.tables:
        return None, None
    from warmstart.data.columns import TEXT_NAMES

    for name, columns in contents.tables.items():
        folded = {column.strip().lower(): column for column in columns}
        if column := next((folded[name] for name in TEXT_NAMES if name in folded), None):
            return name, None if column == "text" else column
    return None, None


def look(folder: Path) -> Found:
    """The contents of a folder, of its folders, and of those of ``runs``; what cannot be read is left out."""
    contents = Found()
    for entry in _entries(folder):
        if entry.is_file():
            _file(contents, entry, folder)
        elif entry.name == "runs":
            for run in _entries(entry):
                _folder(contents, run, folder)
        else:
            _folder(contents, entry, folder)
    return contents


def _entries(folder: Path) -> Iterator[Path]:
    """Files and folders of a folder that are not hidden, in the order of their names."""
    names: list[str] = []
    with suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, _MOST_ENTRIES)]
    yield from (
        folder / name for name in sorted(names) if not name.startswith((".", "_")) and not name.endswith(f".{HISTORY_FILE}")
    )


def _file(contents: Found, file: Path, start: Path) -> None:
    bare, name = without_compression(file), os.path.relpath(file, start)
    if bare.suffix.lower() in _TEXTS and not bare.name.lower().startswith(_NO_DATA):
        contents.texts.append(name)
    columns = _columns(file)
    folded = [column.strip().lower() for column in columns]
    if len(folded) < 2 or "probability" in folded:  # of predictions nothing is learned
        if folded and "probability" not in folded:
            contents.tables[name] = columns
        return
    from warmstart.data.columns import LABEL_NAMES

    labelled = any(column in LABEL_NAMES for column in folded) and not any(part in bare.name.lower() for part in _HELD_OUT)
    (contents.labelled if labelled else contents.tables)[name] = columns


def _columns(file: Path) -> list[str]:
    """The columns of a table; none of what is no table, or cannot be read."""
    ending = without_compression(file).suffix.lower()
    with suppress(Exception):  # whatever lies there, this command suggests something
        if ending in (*_DELIMITED, *_LINES):
            with open_bytes(file) as opened:
                line = opened.readline(_MOST_BYTES).decode("utf-8-sig", errors="replace")
            if ending in _LINES:
                row = json.loads(line)
                return [*row] if isinstance(row, dict) else []
            delimiter = max("\t,;|", key=line.count) if ending == ".csv" else "\t"
            return [name.strip().strip('"') for name in line.split(delimiter)] if line.strip() else []
        if ending in _WHOLE and file.stat().st_size <= _MOST_TABLE_BYTES:
            from warmstart.data.source import Source
            from warmstart.data.tables import read_table

            return read_table(Source(path=str(file)), file).frame.columns
    return []


def _folder(contents: Found, folder: Path, start: Path) -> None:
    name = os.path.relpath(folder, start)
    kind = _head(folder / "bundle" / MANIFEST) or _head(folder / MANIFEST)
    if kind:
        (contents.pretrained if kind == "language-modeling" else contents.adapted).append(name)
    elif (folder / PROJECT_FILE).is_file():
        contents.projects.append(name)
    elif any(without_compression(file).suffix.lower() in _TEXTS for file in _entries(folder) if file.is_file()):
        contents.texts.append(name)


def _head(file: Path) -> str | None:
    """The kind of head of a saved network; "stack" for a stack."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        if file.stat().st_size <= MANIFEST_BYTES:
            saved: Any = json.loads(file.read_bytes())
            return "stack" if "members" in saved else str(saved["head"]["kind"])
    return None
