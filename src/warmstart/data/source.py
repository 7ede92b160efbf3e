"""What a source is: a file or a folder of text, and how it is to be read."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from warmstart.config import Config

Document = Literal["paragraph", "sentence", "line", "file"]
Format = Literal["text", "csv", "tsv", "ndjson", "parquet", "pattern"]

ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
}
"""what ``format: auto`` makes of a name, once .gz or .xz is taken off; anything else is text"""


class Source(Config):
    """A file or a folder, and how to read it."""

    model_config = ConfigDict(coerce_numbers_to_str=True)  # YAML reads `as_label: 1` and `text: 2` as numbers

    path: str
    """a file, or a folder whose files are all read, in the order of their names (hidden ones are skipped)"""
    format: Literal["auto", "text", "csv", "tsv", "ndjson", "parquet", "pattern"] = "auto"
    """auto: pattern if one is given, else by the ending (.csv, .tsv, .ndjson, .jsonl, .parquet; anything else is text)"""
    encoding: str = "utf-8"
    """how the bytes spell characters: utf-8, latin-1, cp1252, …"""
    pattern: str | None = None
    r"""a regular expression for one line with the groups text and label, for instance ^(?P<label>\S+) (?P<text>.*)$"""
    text: str = "text"
    """the column that holds the text"""
    second: str | None = None
    """the column that holds a second text, for tasks about pairs, or the passage that a question is about"""
    label: str = "label"
    """the column that holds the label, the number, the tags, the place of the right alternative, or the answer"""
    separator: str = Field("|", min_length=1)
    """parts several labels in one column of text"""
    alternatives: tuple[str, ...] = ()
    """the columns that hold the alternatives to choose from; default: one column 'alternatives' with lists"""
    labels_path: str | None = None
    """a second file whose lines are the labels of the lines of the first"""
    as_label: str | None = None
    """one label for everything in this source, for tasks with a file or a folder per class"""
    document: Document = "paragraph"
    """what counts as one text in plain text: a run of lines that are not blank, a sentence of it, a line, or a file"""
    first: int | None = Field(default=None, gt=0)
    """read only so many texts, from the beginning"""
    header: bool = True
    """the first line of a csv or tsv file names the columns; if not, they are numbered 1, 2, …"""

    @model_validator(mode="after")
    def _agrees(self) -> Source:
        if self.as_label is not None and self.labels_path is not None:
            raise ValueError("labels come from one place: give as_label or labels_path, not both")
        if self.format == "pattern" and self.pattern is None:
            raise ValueError(r"format 'pattern' needs a pattern, for instance ^(?P<label>\S+) (?P<text>.*)$")
        return self
