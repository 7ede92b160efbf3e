"""Sentences of a CoNLL-U file: every word with its part of speech."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from warmstart.data.source import Source
from warmstart.data.targets import read_targets
from warmstart.errors import DataError

COLUMNS = {"upos": "4", "xpos": "5"}
"""the universal tags, and those of the language itself"""


def is_conllu(path: str | Path) -> bool:
    """Whether a file is CoNLL-U by its name, packed or not."""
    return Path(path).name.removesuffix(".gz").removesuffix(".xz").endswith(".conllu")


def read_conllu(path: str | Path, tags: Literal["upos", "xpos"] = "upos") -> list[list[tuple[str, str]]]:
    """Each sentence as its (form, tag) pairs; several words written as one and words left out of the text are passed over.

    Raises ``DataError`` where the file is no CoNLL-U, or empty.
    """
    if not is_conllu(path):
        raise DataError(f"parts of speech are read from .conllu files (.gz and .xz too), but {path} came")
    sentences, found = read_targets("tags", Source(path=str(path), label=COLUMNS[tags]))
    return [list(zip(words, of_words, strict=True)) for words, of_words in zip(sentences, found, strict=True)]
