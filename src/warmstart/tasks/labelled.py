"""Labelled texts for ``fit``: a table, whose rows without a label are texts to read, or a manifest, all of whose labels learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from warmstart.data.label_cells import names_in
from warmstart.data.read import source_format
from warmstart.data.source import LabelledTableFlags, Source
from warmstart.data.splits import NO_TEXTS
from warmstart.data.tables import read_table, reading_alike, reading_of
from warmstart.data.task import Task, joined_splits
from warmstart.errors import ConfigError, DataError
from warmstart.stats.formatting import first_of
from warmstart.system.console import console
from warmstart.tasks import task_type_of
from warmstart.tasks.guess import Guess, guess_task
from warmstart.tasks.load import load_task, read_descriptions, read_spec

MOST_WITHOUT = 0.5
"""share of rows without a label from which these are not labelled, where a text may have several labels or none"""
_Row = tuple[str, str | tuple[str, ...] | None]


def labelled_task(
    place: Path, flags: LabelledTableFlags, *, test: str | None = None, unlabelled: Sequence[str] = (), seed: int = 0
) -> Task:
    """The labelled texts of a table or a manifest, all of which learn, those without a label, and ``test`` texts if named.

    ``flags`` say how a table is read; ``unlabelled`` names files of more texts. Raises ``ConfigError`` or ``DataError`` for what
    cannot be read so.
    """
    if place.is_file() and place.suffix not in (".yaml", ".yml"):
        guess = guess_task(place, flags)
        if guess.columns and guess.type in ("classification", "multilabel") and "second" not in guess.source:
            return _with_more(_from_table(place, guess, test, seed), unlabelled)
    if test:
        raise ConfigError(f"--test goes with a table of texts and labels, but {place} is none; name the test texts in a manifest")
    task = load_task(place, flags=flags)
    spec = read_spec(place, flags)[1]
    held_out = {} if isinstance(spec.test, tuple) else {"test": task.test}
    train = joined_splits({"train": task.train, "validation": task.validation} | held_out)
    none = train.take(NO_TEXTS)
    return _with_more(replace(task, train=train, validation=none, test=none if held_out else task.test), unlabelled)


def _from_table(place: Path, guess: Guess, named: str | None, seed: int) -> Task:
    """A table, of which rows without a label are texts to read."""
    for sentence in guess.sentences()[:1]:
        console.print(sentence)
    source = Source(path=str(place), **guess.source)
    several = guess.type == "multilabel"
    rows = _rows(source, place, several)
    scored = list[_Row]()
    if tested := named or guess.test:
        try:
            found = _rows(source.model_copy(update={"path": str(tested)}), Path(tested), several)
            scored = [row for row in found if row[1] is not None]
        except DataError as error:
            if named:
                raise
            console.print(f"{tested} is not used: {error}")
    test = tuple(map(list, zip(*scored, strict=True))) if scored else 0
    texts, labels = zip(*(row for row in rows if row[1] is not None), strict=True)
    more = [text for text, label in rows if label is None]
    task = Task.from_lists(texts, labels, test=test, unlabelled=more, name=place.stem, seed=seed)  # type: ignore[arg-type]
    return replace(task, reading=reading_of(source))


def _rows(source: Source, file: Path, several: bool) -> list[_Row]:
    """(text, label or labels) of each row that has a text; None if it has none. Raises ``DataError`` if all are.

    With ``several`` labels per text, a row without one is a text for which none holds; if most cells are blank, nobody labelled
    those.
    """
    table = read_table(source, file, source_format(source, file))
    if missing := [name for name in (source.text, source.label) if name not in table.columns]:
        raise DataError(f"{file} must have the column '{missing[0]}', but has {', '.join(table.columns)}")
    pairs = zip(table[source.text].to_list(), table[source.label].to_list(), strict=True)
    given = [(str(text), label) for text, label in pairs if text is not None and str(text).strip()]
    if len(given) < len(table):
        console.print(f"Left out, since they have no text: {len(table) - len(given):,} of {len(table):,} rows of {file}.")
    cells = [(text, label, label is None or not str(label).strip()) for text, label in given]
    if several:
        drop = sum(empty for *_, empty in cells) > MOST_WITHOUT * len(cells)
        rows: list[_Row] = [(text, None if drop and empty else names_in(label, source.separator)) for text, label, empty in cells]
    else:
        rows = [(text, None if empty else str(label).strip()) for text, label, empty in cells]
    if not any(label for _, label in rows):
        raise DataError(f"{file} must have labels in column '{source.label}', but has none; name another with --label-column")
    return rows


def _with_more(task: Task, files: Sequence[str]) -> Task:
    """The task with the files of unlabelled texts: tables like that of the labels, or one text per line."""
    sources = [Source.build({"path": path, "document": "line", **reading_alike(task.reading, path, {})}) for path in files]
    return replace(task, unlabelled=(*task.unlabelled, *sources))


def with_descriptions(task: Task, file: str) -> Task:
    """The task with what a file says of its labels, and with labels that only the file names, which have no text."""
    meanings = read_descriptions(Path(file), task.labels)
    new = [name for name in meanings if name not in task.labels]
    if new and not task.single_label:
        raise DataError(f"{file} must name labels that texts have, but none has {', '.join(new[:5])}; leave them out")
    if new:
        console.print(f"Labels without a text, from {file}: {first_of(new, 5)}. Methods that read names can give them.")
    return replace(task, labels=(*task.labels, *new), label_descriptions=meanings)


def with_metric(task: Task, metric: str | None) -> Task:
    """The task with a metric; None: its own. Raises ``ConfigError`` for one that such a task does not have."""
    if metric is None:
        return task
    if metric not in (known := task_type_of(task).metrics):
        raise ConfigError(f"--metric must be {' or '.join(known)} for a {task.type} task, but is {metric}")
    return replace(task, metric=metric)
