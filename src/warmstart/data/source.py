"""A source: a file or a folder of text, and how to read it; and the settings of `pretrain --for`, which chooses among text."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator
from tyro.conf import arg

from warmstart.config import Advanced, Config, FileInput, InFile, TaskInput

Document = Literal["paragraph", "sentence", "line", "file"]
Format = Literal["text", "csv", "tsv", "json", "ndjson", "xlsx", "parquet", "arrow", "eml", "fasttext", "pattern"]

ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".eml": "eml",
}
"""ending of a file, without .gz, .xz, .bz2, .zst or .zip -> its format if ``format`` is auto; any other ending is text"""
PROSE: tuple[Format, ...] = ("text", "eml")
"""formats without columns: documents are cut out of running text"""
TABLE_FORMATS: tuple[Format, ...] = ("csv", "tsv", "json", "ndjson", "xlsx", "parquet", "arrow", "fasttext")
"""formats of tables: one text per row"""


class TableFlags(Config):
    """Flags for tables and text that are not as usual."""

    text_column: str | None = None
    """the column of a table that holds the texts, or several: subject+body; default: text, or the column from which the model
    learned"""
    encoding: Advanced[str | None] = None
    """encoding of the characters: utf-8 (default), utf-16, cp1252, latin-1, …; a byte order mark is recognised"""
    delimiter: InFile[str | None] = None
    """character between the fields of a csv or tsv file, or tab; default: detected"""
    format: Advanced[Format | None] = None
    """the format of a file: csv, tsv, json, ndjson, xlsx, parquet, arrow, fasttext, eml, or text (lines are texts); default: by its
    ending, and of a .txt by what it holds"""
    header: Advanced[Literal["yes", "no"] | None] = None
    """yes: the first row of a table names the columns; no: they are numbered 1, 2, …; default: detected, and printed"""
    sheet: Advanced[str | None] = None
    """the sheet of a spreadsheet; default: the only one that is shown and not empty"""

    @property
    def reading(self) -> dict[str, Any]:
        """The settings that were given, as a ``Source`` has them."""
        values = {"text" if name == "text_column" else name: getattr(self, name) for name in TableFlags.model_fields}
        return {name: value == "yes" if name == "header" else value for name, value in values.items() if value is not None}


class LabelledTableFlags(TableFlags):
    """Flags for a table of texts and labels, of which the columns are guessed."""

    label_column: str | None = None
    """the column of a table that holds the labels, or several of yes and no, one for each label: angry+urgent; default: a guess,
    which is printed"""
    group_column: Advanced[str | None] = None
    """the column that says which texts belong together, such as those of an author: they count as one; none: every text stands
    alone; default: a guess, which is printed"""
    unlabelled_as: Advanced[str | None] = None
    """values there that stand for no label, with commas between: none,-1; default: blank, nan, null, n/a, ? and their like, -1
    beside names or numbers from 0 on"""
    type: Advanced[str | None] = None
    """the task type: classification, multilabel, regression or tagging; default: a guess, which is printed"""

    @classmethod
    def of(cls, config: Config) -> LabelledTableFlags:
        """The flags for tables among the settings of a command."""
        return cls(**{name: getattr(config, name) for name in cls.model_fields})


class Source(Config):
    """A file or a folder, and how to read it."""

    model_config = ConfigDict(coerce_numbers_to_str=True)  # YAML reads `as_label: 1` and `text: 2` as numbers

    path: FileInput[str]
    """a file, or a folder or glob (books/*.txt) whose files are all read, in the order of their names (hidden ones are skipped)"""
    format: Literal["auto", Format] = "auto"
    """auto: pattern if one is given, else by the ending (.csv, .tsv, .json, .ndjson, .jsonl, .xlsx, .parquet, .arrow, .feather,
    .eml; any other is text, unless all lines of a .txt have the same fields, or begin with __label__)"""
    encoding: str = "utf-8"
    """encoding of the characters: utf-8, utf-16, cp1252, latin-1, …; a byte order mark is recognised"""
    delimiter: str | None = None
    """character between the fields of a csv or tsv file, or tab; default: detected, or named by a first line sep=;"""
    sheet: str | None = None
    """the sheet of a spreadsheet; default: the only one that is shown and not empty"""
    pattern: str | None = None
    r"""a regular expression for one line with the groups text and label, such as ^(?P<label>\S+) (?P<text>.*)$"""
    text: str = "text"
    """the column of the text, or several that are read one under the other: subject+body"""
    second: str | None = None
    """the column of the second text, for tasks about pairs"""
    label: str = "label"
    """the column of the label, the number, the tags or the answer"""
    group: str | None = None
    """the column that says which texts belong together, such as those of a document or an author"""
    columns: tuple[str, ...] = ()
    """other columns that are read beside the text: numbers, categories, dates"""
    unlabelled_as: str | None = None
    """values that stand for no label, with commas between; default: blank, nan, null, n/a, ? and their like, -1 (it is printed)"""
    separator: str = Field("|", min_length=1)
    """separates several labels in one column"""
    labels_path: FileInput[str | None] = None
    """a second file whose lines are the labels of the lines of the first"""
    as_label: str | None = None
    """one label for the whole source, for tasks with one file or folder per class"""
    document: Document = "paragraph"
    """one text of a plain text file or an .eml: a paragraph (lines without a blank line between), a sentence, a line, or
    the file"""
    pieces: bool = False
    """the lines of a plain text file are SentencePiece pieces with spaces between (▁Un ▁rom an); they are joined to words"""
    limit: int | None = Field(default=None, gt=0)
    """read at most this many texts, from the beginning"""
    header: bool | None = None
    """the first row of a csv, tsv or xlsx file names the columns, which otherwise are numbered 1, 2, …; default: detected"""

    @model_validator(mode="after")
    def _agrees(self) -> Source:
        if self.as_label is not None and self.labels_path is not None:
            raise ValueError("give as_label or labels_path, not both: each of them sets the labels")
        if self.format == "pattern" and self.pattern is None:
            raise ValueError(r"format 'pattern' needs a pattern, such as ^(?P<label>\S+) (?P<text>.*)$")
        return self


class DomainConfig(Config):
    """Settings of `pretrain --for`."""

    for_task: TaskInput[Annotated[str | None, arg(name="for")]] = None
    """manifest of a task (YAML): pretrain on its own text, and on the passages of TEXT that are most like it"""
    relevant_words: Advanced[int | None] = Field(None, gt=0)
    """with --for and TEXT: words of passages to keep, the most relevant first; default: four times those of the task's own text,
    but at least 500,000"""

    @model_validator(mode="after")
    def _only_with_a_task(self) -> DomainConfig:
        if self.for_task is None and self != type(self).model_construct():
            raise ValueError("--relevant-words goes with --for TASK; name a task, or remove it")
        return self
