r"""A labelled task from its manifest, a small YAML file.

    name: trec
    type: classification                     # the default; one of ``TASK_TYPES``
    source: {pattern: '^(?P<label>[A-Z]+):\S+ (?P<text>.*)$', encoding: latin-1}    # applies to every source below
    train: train_5500.label                  # a path, {path: …, as_label: …} or a list of these; relative to the manifest
    validation: 0.1                          # a source; or a fraction or number of training examples to hold out, stratified; or
                                             # none: with --labels, cross-validation chooses, and nothing needs texts set apart
    test: TREC_10.label                      # the same
    unlabelled: [wiki.txt]                   # more text like that of the task, for pretraining
    label_descriptions: {LOC: a place}       # what labels mean, for methods that read their names

The same files and the same seed give the same splits everywhere. Nothing is cleaned here: ``data/audit.py`` reports what is wrong
with a task, and ``drop_leaks`` removes leaks.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from warmstart.config import Config, read_yaml
from warmstart.data.cells import other_columns
from warmstart.data.conllu import is_conll
from warmstart.data.scorings import require_task_folder, task_folder
from warmstart.data.source import PROSE, LabelledTableFlags, Source
from warmstart.data.splits import NO_TEXTS, held_out_count
from warmstart.data.tables import Tables, frame_table, reading_alike, reading_of, source_format, write_texts
from warmstart.data.task import Split, Task, joined_splits, subsample
from warmstart.data.text_key import is_blank, label_key
from warmstart.errors import ConfigError, DataError, nearest_path
from warmstart.stats.formatting import first_of
from warmstart.system.console import console, print_once
from warmstart.system.storage import names_a_folder
from warmstart.tasks import TASK_TYPES, task_type_of
from warmstart.tasks.guess import guess_task
from warmstart.tasks.task_type import Rows

ANSWERS_TYPE = "answers"
"""the type of a task whose answers are generated as text (``tasks/answers.py``), which has no labels"""
_COLUMNS = ("text", "second", "label", "group", "separator")
"""settings that belong to the source of a manifest: they name columns, or say how a cell is read"""


def _known_type(name: str) -> str:
    return name if name == ANSWERS_TYPE else TASK_TYPES.known(name)


class TaskSpec(Config):
    """A task's manifest."""

    model_config = ConfigDict(coerce_numbers_to_str=True)  # YAML reads `labels: [0, 1]` as numbers

    name: str
    """name in reports"""
    type: Annotated[str, AfterValidator(_known_type)] = "classification"
    """the task type: classification, multilabel, regression, tagging or answers"""
    train: tuple[Source, ...]
    """labelled examples to train on"""
    validation: int | float | tuple[Source, ...] | None = None
    """labelled examples to choose by: sources, or the fraction (below 1) or number of training examples to hold out;
    default: none"""
    test: int | float | tuple[Source, ...]
    """labelled examples to report on: sources, or the fraction (below 1) or number of training examples to hold out"""
    unlabelled: tuple[Source, ...] = ()
    """more text like that of the task"""
    labels: tuple[str, ...] | None = None
    """label names in the order wanted; else they are sorted"""
    label_descriptions: dict[str, str] = Field(default_factory=dict)
    """label name -> what it means in words, for methods that read the names of labels; default: the name itself"""
    random_texts: tuple[str, ...] | None = None
    """hashes of the training texts that were drawn at random, as `label` writes them; default: unknown"""
    metric: str | None = None
    """the metric of scores; classification: accuracy, or macro_f1 if classes differ much in size and count equally"""
    limit: int | None = Field(default=None, gt=1)
    """use at most this many training examples, stratified"""
    source: dict[str, Any] = Field(default_factory=dict)
    """settings of every source, unless the source has its own"""

    @model_validator(mode="before")
    @classmethod
    def _sources(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Write every form of source in full: a bare path, one mapping, or a list of these, over the common settings."""
        common = values.get("source", {})
        if not isinstance(common, dict):
            raise ValueError(f"'source' must hold settings common to all sources, such as 'encoding: latin-1'; got {common!r}")
        if "test" not in values:
            raise ValueError("key 'test' is required; to hold training examples out for it give a fraction, such as test: 0.2")
        full: dict[str, Any] = {
            key: values[key] if _is_number(values[key]) else _full(key, values[key], common)
            for key in ("train", "validation", "test", "unlabelled")
            if key in values
        }
        return {**values, **full}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _full(key: str, value: Any, common: Mapping[str, Any]) -> tuple[Source, ...]:
    entries = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(entry, str | dict | Source) for entry in entries) or (key != "unlabelled" and not entries):
        number = ", a fraction or a number of examples" if key in ("validation", "test") else ""
        raise ValueError(f"'{key}' must be a path, a source with a path, a list of these{number}; got {value!r}")
    parts = ({"path": entry} if isinstance(entry, str) else entry for entry in entries)
    try:
        return tuple(part if isinstance(part, Source) else Source.build({**common, **part}, f"source of '{key}'") for part in parts)
    except ConfigError as error:
        raise ValueError(str(error)) from None  # the manifest's name is then put before it


def load_task(path: str | Path, seed: int = 0, flags: LabelledTableFlags | None = None, tables: Tables | None = None) -> Task:
    """The task in a manifest (or in the ``task.yaml`` of a folder); paths in it start at its own folder.

    Of a table, or a folder with a folder of texts for each label, the manifest is guessed, and the guess is printed; ``flags`` say
    what is not as usual; ``tables`` were read before. Raises ``ConfigError`` if the manifest is wrong and ``DataError`` if what it
    names is.
    """
    file, spec = read_spec(path, flags, tables := tables or Tables())
    if spec.type == ANSWERS_TYPE:
        raise ConfigError(f"{file}: a task of type answers has no labels; adapt, evaluate and predict alone read it")
    try:
        return replace(build_task(spec, file.parent, seed, tables=tables), manifest=file)
    except DataError as error:
        raise DataError(f"{file}: {error}") from None


def load_whole_task(
    path: Path,
    flags: LabelledTableFlags,
    test: str | None = None,
    labels: tuple[str, ...] | None = None,
    tables: Tables | None = None,
    columns: Sequence[str] | None = None,
) -> Task:
    """The task of a manifest, a table or a folder, of which all labelled texts are in one split, but those of test files.

    ``test`` is a table like the first. Raises ``ConfigError`` if there is no first. A table may lack some of its ``labels``, and
    have others, which come behind these. Other ``columns`` of a table come with its texts: those named, or all that can be read if
    none are.
    """
    file, spec = read_spec(path, flags, tables := tables or Tables())
    guessed = not is_manifest(path)
    if test and (not guessed or path.is_dir()):
        raise ConfigError(f"--test goes with a table of texts and labels, but {path} is none; name the test texts in a manifest")
    if columns and (not guessed or path.is_dir()):
        raise ConfigError(
            f"--columns goes with a table of texts and labels, but {path} is none; name them in the manifest's source"
        )
    if guessed:
        if columns is not None and path.is_file() and spec.type in ("classification", "multilabel"):
            spec = spec.model_copy(update={"train": (_with_columns(spec.train[0], path, columns, tables),)})
        tests = (spec.train[0].model_copy(update={"path": os.path.relpath(test, file.parent)}),) if test else spec.test
        whole = {"test": tests if isinstance(tests, tuple) else (), "validation": None, "labels": labels}
        return build_task(spec.model_copy(update=whole), file.parent, covered=labels is None, tables=tables)
    task = load_task(path)
    held_out = {} if isinstance(spec.test, tuple) else {"test": task.test}
    train = joined_splits({"train": task.train, "validation": task.validation} | held_out)
    none = train.take(NO_TEXTS)
    return replace(task, train=train, validation=none, test=none if held_out else task.test)


def _with_columns(source: Source, file: Path, named: Sequence[str], tables: Tables) -> Source:
    """The source of a guessed table, with other columns: those named, or all that can be read."""
    if source.second is not None:
        return source
    table, parts = tables.read(source.model_copy(update={"path": str(file)}), file), f"{source.text}+{source.label}".split("+")
    taken = [name for name in (source.text, source.label, source.group, *parts) if name]
    for name in named:
        if table.column(name, "columns").name in taken:
            raise ConfigError(f"--columns must name other columns than those of texts, labels and groups, but names '{name}'")
    return source.model_copy(update={"columns": tuple(named) or other_columns(table.frame, taken)})


def labelled_task(
    place: Path,
    flags: LabelledTableFlags,
    *,
    test: str | None = None,
    unlabelled: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    votes: str | None = None,
) -> Task:
    """The labelled texts of a table or a manifest, all of which learn, those without a label, and ``test`` texts if named.

    Blank texts are left out. ``flags`` say how a table is read; ``unlabelled`` names files of more texts; ``columns`` are other
    columns that come with the texts, as for ``load_whole_task``; ``votes`` is a column that is not read (``tasks/votes.py`` reads
    it). Raises ``ConfigError`` or ``DataError`` for what cannot be read.
    """
    if votes and votes in (flags.text_column, flags.label_column):
        raise ConfigError(f"--votes must name a column of its own, but {votes} is that of the texts or labels; name another")
    task = load_whole_task(place, flags, test, tables=Tables(without=votes), columns=columns)
    learned, tested = (with_text(split, place) for split in (task.train, task.test))
    more = [Source.build({"path": path, "document": "line", **reading_alike(task.reading, path, {})}) for path in unlabelled]
    return replace(task, train=learned, test=tested, unlabelled=(*task.unlabelled, *more))


def with_text(split: Split, place: Path) -> Split:
    """The examples that have a text."""
    kept = [number for number, text in enumerate(split.texts) if not is_blank(text)]
    if len(kept) == len(split):
        return split
    console.print(f"Left out, since they have no text: {len(split) - len(kept):,} of {len(split):,} rows of {place}.")
    return split.take(np.array(kept, dtype=np.int64))


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


def load_named_tasks(paths: Sequence[str | Path]) -> list[Task]:
    """Several tasks, whose names become folders. Raises ``ConfigError`` if two names are equal, or one cannot be a folder."""
    tasks = [load_task(path) for path in paths]
    names = [task.name for task in tasks]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"each task needs its own name, but two are called {', '.join(twice)}; change 'name' in one manifest")
    if wrong := [name for name in names if not names_a_folder(name)]:
        raise ConfigError(f"a task's name becomes a folder, but {wrong[0]!r} cannot be one; change 'name' in its manifest")
    return tasks


def read_spec(path: str | Path, flags: LabelledTableFlags | None = None, tables: Tables | None = None) -> tuple[Path, TaskSpec]:
    """A manifest (or the ``task.yaml`` of a folder, or a table): its path and its contents, of a table a guess, which is printed.

    Whatever it is called, paths in it start at its folder. What is read for a guess is kept in ``tables``. Raises ``ConfigError``
    if it is wrong.
    """
    path = Path(path)
    file = path / "task.yaml" if path.is_dir() else path
    if not is_manifest(path) and (file.is_file() or (path.is_dir() and any(path.iterdir()))):
        place = path if path.name not in ("", "..") else path.resolve()
        guess = guess_task(place, flags, tables)
        spec = TaskSpec.build(guess.manifest(place.parent), str(place))  # a wrong guess is refused before it is printed
        for sentence in guess.sentences():
            print_once(sentence)
        return place, spec
    if not file.is_file():
        raise ConfigError(
            f"no such file: {file}; {nearest_path(file)}a task is a manifest (YAML), a table of texts and labels, or a folder with "
            "a folder of texts per label"
        )
    if flags and any(getattr(flags, name) is not None for name in LabelledTableFlags.model_fields):
        raise ConfigError(f"{file} is a manifest, which says itself how tables are read; remove the flags, and change it there")
    try:
        return file, TaskSpec.build(read_yaml(file), str(file))
    except ConfigError:
        if file.suffix.lower() in (".yaml", ".yml"):
            raise
    raise ConfigError(
        f"{file} is text, but a table with a column of labels is needed; `warmstart label {file} --labels yes no "
        f"--out labels` is a page on which texts get labels, `warmstart pretrain {file} --out runs/lm` reads text without any"
    )


def is_manifest(path: str | Path) -> bool:
    """True if a path leads to a manifest, or a folder with one; of a table, CoNLL and lines of fastText it is guessed."""
    place = Path(path)
    file = place / "task.yaml" if place.is_dir() else place
    if not file.is_file():
        return not place.is_dir()
    if file.suffix.lower() in (".yaml", ".yml"):
        return True
    return not is_conll(file) and source_format(Source(path=str(file), document="line"), file) in PROSE


def build_task(spec: TaskSpec, folder: Path, seed: int = 0, *, covered: bool = True, tables: Tables | None = None) -> Task:
    """Read the sources of a manifest in ``folder``, hold out the splits that it names, number the labels, and check everything.

    Test, then validation, are held out of the training examples; a fraction is one of all training examples given. Each label must
    have a training example if they are to be ``covered``. ``tables`` are those that were read before.
    """
    task_type = TASK_TYPES[spec.type]
    if spec.metric and spec.metric not in task_type.metrics:
        raise ConfigError(f"a {task_type.name} task is scored by {', '.join(task_type.metrics)}, but 'metric' is {spec.metric}")
    if spec.labels and covered:  # what a manifest calls a label is none that stands for no label
        splits_of = {name: value for name in ("train", "validation", "test") if isinstance(value := getattr(spec, name), tuple)}
        spec = spec.model_copy(update={name: tuple(map(_by_name, sources)) for name, sources in splits_of.items()})
    tables = tables or Tables()
    rows = read_sources(spec.train, folder, spec.type, tables)
    labels = task_type.label_names(rows.targets, spec.labels)
    labels = labels if covered else (*labels, *names_beyond(rows.targets, labels))
    train = Split(tuple(rows.inputs), task_type.encode_targets("train", rows.targets, labels), rows.groups)
    total, splits = len(train), {}
    for name, wanted in (("test", spec.test), ("validation", spec.validation)):
        if wanted is None or wanted == ():
            splits[name] = train.take(NO_TEXTS)
        elif isinstance(wanted, tuple):
            inputs, targets, groups, _ = read_sources(wanted, folder, spec.type, tables, f"{name}:")
            splits[name] = Split(tuple(inputs), task_type.encode_targets(name, targets, labels), groups)
        else:
            train, splits[name] = train.hold_out(held_out_count(total, wanted), seed)
    unlabelled = tuple(_at(source, folder) for source in spec.unlabelled)
    metric = spec.metric or task_type.metrics[0]
    task = Task(
        spec.name, labels, train, splits["validation"], splits["test"], metric, unlabelled, spec.type,
        label_descriptions=_descriptions(spec.label_descriptions, labels, "'label_descriptions'"),
        reading=reading_of(spec.train[0]), unlabelled_texts=rows.unlabelled,
        random_texts=None if spec.random_texts is None else frozenset(spec.random_texts),
    )  # fmt: skip
    if covered:
        _check_train_covers(task)
    return task if spec.limit is None or spec.limit >= len(train) else subsample(task, spec.limit, seed)


def names_beyond(targets: Sequence[Any], labels: Sequence[str]) -> list[str]:
    """Names among the targets that are none of these labels, in any spelling."""
    names = {name for target in targets for name in ([target] if isinstance(target, str) else target)} if labels else set[str]()
    return sorted(name for name in names if label_key(name) not in {*map(label_key, labels)})


def _by_name(source: Source) -> Source:
    """The source, in which only a blank cell stands for no label unless it says otherwise."""
    return source if source.unlabelled_as is not None else source.model_copy(update={"unlabelled_as": ""})


def read_descriptions(file: Path, labels: Sequence[str]) -> dict[str, str]:
    """Label -> what it means, from a YAML mapping, or lines or a csv of a label and its description; a first line may say "label".

    It may describe labels that are not among ``labels``. Raises ``ConfigError`` for another file; ``DataError`` for one that is not
    UTF-8.
    """
    if file.suffix in (".yaml", ".yml"):
        descriptions = {str(label): "" if words is None else str(words) for label, words in read_yaml(file).items()}
    else:
        delimiter = "," if file.suffix == ".csv" else "\t"
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise DataError(f"cannot read {file}: {error}; it must be UTF-8") from None
        plain = delimiter == "\t"  # in which a quotation mark is a character like others
        read = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL)
        rows = [row for row in read if any(row)]
        if odd := [row for row in rows if len(row) != 2]:
            raise ConfigError(f"each line of {file} must have a label and its description, but one is {delimiter.join(odd[0])!r}")
        descriptions = {label.strip(): words.strip() for label, words in rows if label.strip() != "label" or "label" in labels}
    return _descriptions(descriptions, (*labels, *descriptions), str(file))


def _descriptions(descriptions: Mapping[str, str], labels: Sequence[str], where: str) -> dict[str, str]:
    """The descriptions of labels. Raises ``ConfigError`` for one of no label, or one without words."""
    if unknown := sorted(descriptions.keys() - {*labels}):
        raise ConfigError(f"{where} must describe labels of the task, but '{unknown[0]}' is not one of {', '.join(labels)}")
    if blank := sorted(name for name, words in descriptions.items() if not words.strip()):
        raise ConfigError(f"each of {where} must have words, but that of '{blank[0]}' is empty; remove it")
    return dict(descriptions)


def save_task(task: Task, folder: str | Path) -> Path:
    """Write a task as ``task.yaml`` and one ndjson file per split; ``load_task`` reads the same task back.

    An earlier task in the folder is replaced, if nobody has changed it, but not the ledgers of test splits. Raises ``ConfigError``
    for a folder that holds anything else, and ``DataError`` for a task that has not one label per single text.
    """
    if not task.single_label or not all(isinstance(text, str) for split in task.splits().values() for text in split.texts):
        raise DataError(f"only tasks with one label per single text can be written, but '{task.name}' is not one")
    written = {name: split for name, split in task.splits().items() if len(split)}
    manifest: dict[str, Any] = {
        "name": task.name,
        "type": task.type,
        **{name: f"{name}.ndjson" for name in written},
        "unlabelled": [
            *(_at(source, Path.cwd()).to_dict() for source in task.unlabelled),
            *([{"path": "unlabelled.ndjson", "text": "text"}] if task.unlabelled_texts else []),
        ],
        "labels": list(task.labels),
        **({"label_descriptions": dict(task.label_descriptions)} if task.label_descriptions else {}),
        "metric": task.metric,
    }
    if grouped := any(split.groups is not None for split in task.splits().values()):
        manifest["source"] = {"group": "group"}
    with task_folder(Path(folder)) as aside:
        for name, split in written.items():
            groups = split.group_names(name)
            rows = [
                {"text": text, "label": task.labels[label]} | ({"group": str(group)} if grouped else {})
                for text, label, group in zip(split.texts, split.labels, groups, strict=True)
            ]
            lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
            (aside / f"{name}.ndjson").write_text("".join(lines), encoding="utf-8", newline="\n")
        if task.unlabelled_texts:
            write_texts(task.unlabelled_texts, aside / "unlabelled.ndjson")
        (aside / "task.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return Path(folder) / "task.yaml"


def make_task(
    folder: str | Path,
    train: Any,
    test: Any = 0.2,
    validation: Any = None,
    unlabelled: Iterable[str] | None = None,
    **settings: Any,
) -> Task:
    """Write a task from data frames into a folder, and return it; ``"FOLDER/task.yaml"`` is what commands take.

    ``train``, ``test`` and ``validation`` are frames (pandas, polars, pyarrow, datasets, a mapping from names to columns, or a list
    of rows); ``test`` and ``validation`` may be a fraction or a number of training texts to hold out. ``settings`` are keys of
    a manifest (``type``, ``labels``, ``metric``, …) and the columns ``text``, ``label``, ``second``, ``group``. An earlier task in
    the folder is replaced, but not the ledgers of test splits.

        task = ws.make_task("tasks/mails", train=frame, test=0.2, text="body", label="topic")
        ws.adapt(ws.AdaptConfig(model="runs/lm", task="tasks/mails"))

    Raises ``ConfigError`` for wrong settings and for a folder that holds anything else, and ``DataError`` for frames without the
    columns.
    """
    place = Path(folder)
    require_task_folder(place)
    columns = {key: settings.pop(key) for key in _COLUMNS if key in settings}
    source = Source.build({"path": "x", **columns}, "the columns")
    needed = [column for column in (source.text, source.second, source.label, source.group) if column]
    manifest: dict[str, Any] = {"name": place.resolve().name, **settings, "source": {"format": "ndjson", **columns}}
    with task_folder(place) as aside:
        for name, frame in {"train": train, "validation": validation, "test": test}.items():
            if isinstance(frame, int | float) and name != "train":
                manifest[name] = frame
            elif frame is not None:
                manifest[name] = f"{name}.ndjson"
                _write(aside / f"{name}.ndjson", frame, needed, name)
        if unlabelled is not None:
            write_texts(unlabelled, aside / "unlabelled.ndjson")
            manifest["unlabelled"] = [{"path": "unlabelled.ndjson", "text": "text"}]
        try:
            task = build_task(TaskSpec.build(manifest, "the task"), aside)
        except DataError as error:
            raise DataError(str(error).replace(f"{aside}/", "").replace(".ndjson", "")) from None
        (aside / "task.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True), encoding="utf-8")
    more = tuple(source.model_copy(update={"path": str(place / Path(source.path).name)}) for source in task.unlabelled)
    return replace(task, manifest=place / "task.yaml", unlabelled=more)


def _write(file: Path, frame: Any, needed: Sequence[str], name: str) -> None:
    """Write the texts of a split."""
    try:
        table = frame_table(frame, needed).frame
    except DataError as error:
        raise DataError(f"{name}: {error}") from None
    if not len(table):
        raise DataError(f"{name} must hold at least one example, but is empty")
    table.write_ndjson(file)


def _at(source: Source, folder: Path) -> Source:
    """The source with its paths starting at ``folder``."""
    labels_path = None if source.labels_path is None else str(folder / source.labels_path)
    return source.model_copy(update={"path": str(folder / source.path), "labels_path": labels_path})


def read_sources(
    sources: Sequence[Source], folder: Path, type_name: str = "classification", tables: Tables | None = None, prefix: str = ""
) -> Rows:
    """The examples of all sources, whose paths start at ``folder``; ``tables`` are those that were read before."""
    return TASK_TYPES[type_name].read([_at(source, folder) for source in sources], tables, prefix)


def _check_train_covers(task: Task) -> None:
    """Raise ``DataError`` if a label has no training example (left)."""
    for number in sorted(set(range(len(task.labels))) - set(task.train.labels.tolist())) if task.single_label else ():
        elsewhere = ", ".join(f"{name} {int((split.labels == number).sum())}" for name, split in task.held_out().items())
        raise DataError(
            f"every label needs a training example, but {task.labels[number]!r} has none (examples elsewhere: {elsewhere}); "
            "add one, or leave the label out"
        )
