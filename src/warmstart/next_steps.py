"""What ``warmstart`` alone suggests: the next commands, from what lies in a folder. Imports nothing heavy, and never fails."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from warmstart.data.files import without_compression

_TABLES = (".csv", ".tsv", ".ndjson", ".jsonl", ".parquet")
_TEXTS = (".txt", ".md", ".text", ".eml")
_MANIFESTS = (".yaml", ".yml")
_MOST_ENTRIES = 2000
"""of one folder that are looked at"""
_MOST_BYTES = 1 << 20
"""of a manifest, or of the description of a saved model"""


@dataclass
class Found:
    """What lies in a folder and in the folders of it."""

    manifests: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """folders with text files, or such files"""
    adapted: list[str] = field(default_factory=list)
    """runs whose model has learned a task"""
    pretrained: list[str] = field(default_factory=list)
    """runs whose model has read text alone"""
    projects: list[str] = field(default_factory=list)
    """folders in which texts are labelled"""
    pairs: list[str] = field(default_factory=list)
    """files of minimal pairs, or folders with such files"""


def next_steps(folder: Path) -> list[tuple[str, str]]:
    """``(what for, command)`` of at most four next steps in a folder, the likeliest first."""
    found = look(folder)
    backbone = _quoted(found.pretrained) or "pool"
    steps: list[tuple[str, str]] = []
    if model := _quoted(found.adapted):
        steps += [
            ("label new texts", f'warmstart predict {model} "A new text."'),
            ("use it in the browser", f"warmstart serve {model}"),
        ]
    if manifest := _quoted(found.manifests):
        if backbone == "pool" and (text := _quoted(found.texts)):
            steps.append(("read the task's kind of text first", f"warmstart pretrain {text} --for {manifest} --out runs/own"))
        steps.append(
            ("which method should I use?", f"warmstart race {manifest} --backbones {backbone} --budget 30m --save recommended")
        )
    elif table := _quoted(found.tables):
        more = f" --unlabelled {text}" if (text := _quoted(found.texts)) else ""
        steps.append(("make the best model of your labels", f"warmstart fit {table}{more}"))
    elif text := _quoted(found.texts):
        if not found.pretrained:
            steps.append(("pretrain on your text", f"warmstart pretrain {text} --objective masked --minutes 10 --out runs/lm"))
        steps.append(("label some of it", f"warmstart label {text} --out labels"))
    if project := _quoted(found.projects):
        steps.append(("go on labelling", f"warmstart label --out {project}"))
    if found.pretrained and (pairs := _quoted(found.pairs)):
        steps.insert(0, ("does the right sentence of each pair score higher?", f"warmstart evaluate {backbone} --pairs {pairs}"))
    if found.pretrained and not steps:
        steps.append(("look inside", f"warmstart study attention {backbone} 'A sentence.'"))
    return steps[:4] or [("try everything, without data or network", "warmstart quickstart")]


def look(folder: Path) -> Found:
    """What lies in a folder, in its folders, and in those of ``runs``; what cannot be read is left out."""
    found = Found()
    inside = [*_entries(folder)]
    for entry in inside:
        if entry.is_file():
            _file(found, entry, folder)
        elif entry.name == "runs":
            for run in _entries(entry):
                _folder(found, run, folder)
        else:
            _folder(found, entry, folder)
    return found


def _entries(folder: Path) -> Iterator[Path]:
    """Its files and folders that are not hidden, in the order of their names."""
    names: list[str] = []
    with suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, _MOST_ENTRIES)]
    yield from (folder / name for name in sorted(names) if not name.startswith((".", "_")))


def _file(found: Found, file: Path, start: Path) -> None:
    bare = without_compression(file)
    ending, name = bare.suffix.lower(), os.path.relpath(file, start)
    if ending in _MANIFESTS and _is_manifest(file):
        found.manifests.append(name)
    elif _has_pairs(file):
        found.pairs.append(name)
    elif ending in _TABLES:
        found.tables.append(name)
    elif ending in _TEXTS and not bare.name.lower().startswith(("readme", "license", "requirements", "changelog")):
        found.texts.append(name)


def _folder(found: Found, folder: Path, start: Path) -> None:
    name = os.path.relpath(folder, start)
    kind = _head(folder / "bundle" / "bundle.json") or _head(folder / "bundle.json")
    if (folder / "bundle" / "stack.json").is_file() or (folder / "stack.json").is_file():
        found.adapted.append(name)
    elif kind:
        (found.pretrained if kind == "language-modeling" else found.adapted).append(name)
    elif (folder / "project.sqlite").is_file():
        found.projects.append(name)
    elif (folder / "task.yaml").is_file():
        found.manifests.append(os.path.join(name, "task.yaml"))
    else:
        inside = [file for file in _entries(folder) if file.is_file()]
        if any(without_compression(file).suffix.lower() in _TEXTS for file in inside):
            found.texts.append(name)
        elif inside and _has_pairs(inside[0]):
            found.pairs.append(name)


def _has_pairs(file: Path) -> bool:
    """Whether its first line is a minimal pair in BLiMP's form."""
    if without_compression(file).suffix.lower() in (".jsonl", ".ndjson"):
        with suppress(OSError, EOFError, zlib.error), gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
            return b'"sentence_good"' in lines.readline(_MOST_BYTES)
    return False


def _head(file: Path) -> str | None:
    """The kind of head of a saved model."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        if file.stat().st_size <= _MOST_BYTES:
            saved: Any = json.loads(file.read_bytes())
            return str(saved["head"]["kind"])
    return None


def _is_manifest(file: Path) -> bool:
    """Whether a YAML file has the keys of a task's manifest at the beginning of lines."""
    with suppress(OSError, UnicodeDecodeError):
        if file.stat().st_size <= _MOST_BYTES:
            keys = {line.partition(":")[0] for line in file.read_text(encoding="utf-8").splitlines()}
            return {"train", "test"} <= keys
    return False


def _quoted(names: list[str]) -> str:
    """The first of them as a word of the shell; empty if there is none."""
    return shlex.quote(names[0]) if names else ""
