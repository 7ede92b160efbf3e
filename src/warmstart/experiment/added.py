"""``fit MODEL --add FILE``: a fit of all labels, earlier and new, whose model takes the place of the earlier one if it is no worse.

Both answer the same texts, of which they learned none: the earlier model the added texts, and its own as it did when they were left
out; the new model each text when it is left out. The new run lies in ``adding`` in the folder of the earlier one until it is
complete; then the two change places at one instant, and the earlier one is kept in ``before``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from warmstart.config import read_yaml
from warmstart.data.task import Task
from warmstart.data.text_key import key_hash
from warmstart.errors import ConfigError, DataError
from warmstart.experiment.config import FitConfig
from warmstart.experiment.fit_result import FitResult
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_saved
from warmstart.model.folder import find_bundle, free_for_model, is_model
from warmstart.model.stack import Stack
from warmstart.runs.made_of import has_grown, run_of, task_named
from warmstart.runs.record import read_record_of
from warmstart.stats.formatting import of_100
from warmstart.stats.proportions import ProportionDifference, paired_proportions
from warmstart.stats.scores import HALF
from warmstart.system.console import console
from warmstart.system.locks import LOCK, hold, release
from warmstart.system.storage import RUN_FILE, SETTINGS, STEPS_FOLDER, atomic_folder
from warmstart.tasks.predict import predict
from warmstart.tasks.thresholds import at_thresholds, thresholds_of

ADDING, BEFORE = "adding", "before"
"""folders in that of a fit: the run with more labels until it is complete, and the earlier run that it replaced"""
_OF_A_FIT = frozenset(
    ("bundle", "trials", "figures", SETTINGS, RUN_FILE, "fit.json", "report.html", "verdict.json", STEPS_FOLDER, LOCK)
)
"""names in the folder of a fit; all others are the user's, and stay where they are"""
_INPUTS = ("data", "add", "unlabelled", "test", "labels_file", "encoders")
"""settings that name files"""


@dataclass(frozen=True)
class EarlierFit:
    """A fit whose model gets more labels."""

    folder: Path
    """the folder of its run, as the user named it"""
    model: Bundle | Stack
    learned: FitConfig
    """settings that read the labels from which it learned"""
    settings: FitConfig
    """settings of the new fit"""

    @property
    def replaced(self) -> bool:
        """True if the new run may take the place of this one; False if it has a place of its own."""
        return Path(self.settings.out).resolve() == self.folder.resolve()

    @property
    def work(self) -> Path:
        """The folder in which the new model is made."""
        return self.folder / ADDING if self.replaced else Path(self.settings.out)


def earlier_fit(config: FitConfig) -> EarlierFit | None:
    """The fit that ``data`` names, if labels are added to one; None if ``data`` is a table.

    Raises ``ConfigError`` for a model that no fit made, for labels of its run that are gone or were changed, and where something of
    the user's would be lost.
    """
    place = Path(config.data)
    if not (config.add and place.is_dir() and (is_model(find_bundle(place)) or (place / SETTINGS).is_file())):
        return None
    run = run_of(place)
    if run is None or read_record_of(run).get("command") != "fit":
        raise ConfigError(f"--add needs a model that fit made, but {place} is none; `warmstart fit` a table of all labels instead")
    folder, defaults = place if (place / SETTINGS).is_file() else place.parent, FitConfig.model_fields
    given = {name: value for name, value in config if name not in ("data", "add") and value != defaults[name].default}
    learned = _settings_of(run).model_copy(update={"out": str(folder), **given})
    settings = learned.model_copy(update={"add": (*learned.add, *config.add)})
    earlier = EarlierFit(folder, load_saved(find_bundle(run)), learned, settings)
    if earlier.replaced:
        _check_replaceable(folder)
        hold(folder / LOCK, str(folder))
    return earlier


def _settings_of(run: Path) -> FitConfig:
    """The settings of a fit, with its files as they lie from here. Raises ``ConfigError`` unless its labels are what they were."""
    named, task = FitConfig.build(read_yaml(run / SETTINGS), str(run / SETTINGS)), task_named(run)
    assert task is not None, "the settings of a fit name its table"
    found = {name: _from_here(getattr(named, name), task.start) for name in _INPUTS}
    recorded, needs = read_record_of(run).get("made_of", {}), "--add needs the labels from which the model learned"
    for before, now in zip((named.data, *named.add), (found["data"], *found["add"]), strict=True):
        if not (file := Path(now)).exists():
            raise ConfigError(f"{needs}, but {file} is not there; put it back, or `warmstart fit` a table of all labels")
        if before == named.data and task.unchanged:
            continue
        if (same := has_grown(file, recorded.get(before, ""))) is None:
            raise ConfigError(f"{needs}, but {file} was changed; put it back, or learn from it anew: `warmstart fit {file}`")
        if same:
            console.print(f"{file} has grown since the model learned from it; its new rows are read, too.")
    return named.model_copy(update=found)


def _from_here(named: Any, start: Path) -> Any:
    """The path of a file, or of several, from the current folder; what is no file, such as the name of an encoder, stays."""
    if isinstance(named, tuple):
        return tuple(_from_here(one, start) for one in named)
    if named is None or not (place := start / named).exists():
        return named
    return str(place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place)


def _check_replaceable(folder: Path) -> None:
    """Raise ``ConfigError`` or ``BundleError`` if to replace a run, and the one before it, would lose anything."""
    if Path.cwd().is_relative_to(folder.resolve()):
        raise ConfigError(f"{folder} is to be replaced, but is the current folder; go to another one first")
    before = folder / BEFORE
    if not before.exists():
        return
    foreign = [one.name for one in before.iterdir() if one.name not in _OF_A_FIT] if before.is_dir() else [BEFORE]
    if foreign or read_record_of(before).get("command") != "fit":
        reason = f"holds {', '.join(foreign)}" if foreign else "is none"
        raise ConfigError(f"{before} must be an earlier fit and nothing else, but {reason}; move it")
    free_for_model(before / "bundle")


# ---------------------------------------------------------------------------------------------------- which of the two is better


@dataclass(frozen=True, repr=False, kw_only=True)
class AddedLabels(FitResult):
    """The fit with more labels, beside the earlier one on the same M texts."""

    earlier: EarlierFit = field(repr=False, compare=False)
    added: int
    """number of labels that the earlier model has not learned from"""
    right: np.ndarray = field(compare=False)
    """(2, M) 1 where the new model and the earlier one are right about a text, else 0"""
    difference: ProportionDifference
    """share of texts on which the new model is right, less that of the earlier one"""
    only_added: bool
    """True if the earlier model's answers to its own texts, when they were left out, are not known"""

    @property
    def out(self) -> str:
        """The folder of the run."""
        return self.earlier.settings.out

    @property
    def better(self) -> bool:
        """True if the new model is right on as many texts, or on more."""
        return self.learned and int(self.right[0].sum()) >= int(self.right[1].sum())

    @property
    def sentence(self) -> str:
        """The comparison, and what becomes of the earlier model."""
        (now, before), place = self.right.mean(axis=1), self.earlier.folder
        ends = " to ".join(f"{round(100 * end):+d}" for end in (self.difference.low, self.difference.high))
        texts, whole = "added texts" if self.only_added else "texts", "all labels of " * self.several
        scores = f"right on {whole}{of_100(now)} of 100 {texts}, before {of_100(before)} (difference {ends})"
        labels = f"With {self.added:,} more label{'led text' * self.several}{'s' * (self.added != 1)} it is"
        if not self.earlier.replaced:
            return f"{labels} {scores}: the model in {place} stays beside the new one."
        if self.better:
            return f"{labels} {scores}: the model in {place} is replaced; the earlier one is kept in {place / BEFORE}."
        return f"{labels} no better: {scores}. The earlier model in {place} stays; --out FOLDER keeps the new one."

    def to_dict(self) -> dict[str, Any]:
        """The result of the fit, and the comparison under ``added``."""
        (now, before), found = self.right.mean(axis=1).tolist(), self.difference
        counts = {"labels": self.added, "texts": self.right.shape[1], "right": now, "right_before": before}
        difference = {"difference": found.mean, "interval": [found.low, found.high]}
        outcome = {"replaced": self.better and self.earlier.replaced, "sentence": self.sentence}
        return {**super().to_dict(), "added": {**counts, **difference, **outcome}}


def count_new_labels(learned: Task, task: Task) -> int:
    """The number of labels in a task that are not among those ``learned``. Raises ``DataError`` if there is none."""
    known = {*_named_texts(learned)}
    if not (count := sum(pair not in known for pair in _named_texts(task))):
        raise DataError("--add must bring labels that the model has not learned from, but brings none; name another file")
    return count


def _named_texts(task: Task) -> Iterator[tuple[str, str]]:
    """The key of each labelled text, and its label."""
    return ((str(key), str(task.named(label))) for key, label in zip(task.train.keys, task.train.labels.tolist(), strict=True))


def compare_fits(earlier: EarlierFit, result: FitResult, learned: Task) -> AddedLabels:
    """Both models on the texts that were left out, as far as an answer of the earlier one is known that did not learn from them.

    ``learned`` is the task from which it learned. Raises ``DataError`` if there is no such text.
    """
    split, task, known = result.left_out, result.task, {*map(str, learned.train.keys)}
    stored = _stored_answers(earlier.model)
    answers = [stored.get(key_hash(key).hex()) for key in split.keys]
    asked = [number for number, key in enumerate(split.keys) if answers[number] is None and str(key) not in known]
    for number, found in zip(asked, predict(earlier.model, [split.texts[number] for number in asked]), strict=True):
        answers[number] = sorted(found["labels"]) if task.train.labels.ndim == 2 else found["label"]
    rows = np.array([number for number, answer in enumerate(answers) if answer is not None], dtype=np.int64)
    if not len(rows):
        raise DataError("each new label must be on two texts, so that one can be left out, but none is; label more texts")
    truth = [task.named(label) for label in split.labels[rows].tolist()]
    before = np.array([answers[row] == label for row, label in zip(rows, truth, strict=True)], dtype=np.float64)
    right = np.stack([result.best.right[rows], before])
    difference = paired_proportions([right[0]], [right[1]], split.units[rows])
    values = {one.name: getattr(result, one.name) for one in fields(result)}
    count = count_new_labels(learned, task)
    return AddedLabels(**values, earlier=earlier, added=count, right=right, difference=difference, only_added=not stored)


def _stored_answers(model: Bundle | Stack) -> dict[str, Any]:
    """The answers of a model to its texts when they were left out, named as ``Task.named`` does, by the hash of each text."""
    left_out = model.calibration.left_out if model.calibration else None
    if left_out is None or not left_out.hashes:
        return {}
    probabilities, names = np.array(left_out.probabilities), np.array(model.labels)
    if thresholds := thresholds_of(model):
        answers: list[Any] = [sorted(names[row].tolist()) for row in at_thresholds(probabilities, thresholds) >= HALF]
    else:
        answers = names[probabilities.argmax(axis=1)].tolist()
    return dict(zip(left_out.hashes, answers, strict=True))


# ------------------------------------------------------------------------------------------------------------ one takes the place


def put_in_place(earlier: EarlierFit) -> None:
    """Let the new run change places with the earlier one, which is kept in ``before``; what is the user's in the folder stays."""
    folder, work = earlier.folder, earlier.work
    users = {one.name for one in folder.iterdir()} - _OF_A_FIT
    release(work / LOCK)
    release(folder / LOCK)
    with atomic_folder(folder) as aside:
        _copy(work, aside, {LOCK})
        _copy(folder, aside, {*_OF_A_FIT, ADDING, BEFORE})
        _copy(folder, aside / BEFORE, {*users, LOCK})


def discard(earlier: EarlierFit) -> None:
    """Remove the new run."""
    release(earlier.work / LOCK)
    shutil.rmtree(earlier.work)


def _copy(folder: Path, target: Path, without: set[str]) -> None:
    """Copy what is in a folder, but some names."""

    def ignored(place: str, names: list[str]) -> set[str]:
        return without.intersection(names) if Path(place) == folder else set()

    shutil.copytree(folder, target, symlinks=True, dirs_exist_ok=True, ignore=ignored)
