"""Labels from tables (``data/annotations.py``), as answers of the people who gave them; and labels as files that commands read.

A text that is read is the one of the pool that is equal, else one of the same letters and digits (``text_key``), else it is added.
All rows are taken, or none. What is written is csv or ndjson, and a ``task.yaml``:

    task.yaml  train.csv  [test.csv]  [unlabelled.ndjson]

- Texts and labels are what ``Project.labelled`` counts. Csv has the columns text and label; tags are lists, which need ndjson.
  If people commented, a column has the comments of each text.
- Scores need a test split that is like the texts to come. Texts that were chosen because the model was unsure of them, or because
  they were unlike others, are not; those that were drawn at random are. ``test="random"`` writes them as the test split, and all
  others as training texts; otherwise 20% of all labelled texts are held out, and scores are those of the labelled texts only.
  The manifest has the hashes of the training texts that were drawn at random: they correct shares of labels.
- From 300 training texts on, a fifth is held out to choose settings; with fewer, cross-validation chooses.
- A project made from a task has that task's test split, and its validation split.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from warmstart.app.pool import task_to_label
from warmstart.app.project import Project
from warmstart.app.tables import IMPORTED, Value, check_text
from warmstart.data.annotations import Annotation, read_annotations, refuse_rows
from warmstart.data.files import text_lines
from warmstart.data.pool import pool_unlike
from warmstart.data.scorings import require_task_folder, task_folder
from warmstart.data.text_key import key_hash, key_of, text_key
from warmstart.errors import ConfigError, DataError
from warmstart.runs.steps import LABELLED_IN


@dataclass
class ImportSummary:
    """Counts of an import."""

    answers: int = 0
    unlabelled: int = 0
    """rows without a label"""
    known: int = 0
    """rows that had been imported before"""
    left_out: int = 0
    """rows whose texts are like those that score models"""
    new_texts: int = 0
    new_labels: list[str] = field(default_factory=list)
    people: list[str] = field(default_factory=list)


def import_files(
    project: Project, files: Sequence[str | Path], held_out: Sequence[str] = (), reading: Mapping[str, Any] | None = None
) -> ImportSummary:
    """Read labels from files into a project, without texts that are like those ``held_out`` to score models.

    ``reading`` are settings of a ``Source``, such as the column of the text, where a file has several.

    Raises ``DataError`` that names the first rows that cannot be read; then none is.
    """
    summary, rows, wrong = ImportSummary(), list[Annotation](), list[str]()
    for file in map(Path, files):
        tags = project.type == "tagging"
        read, unlabelled, refused = read_annotations(file, tags=tags, check=check_text, reading=reading)
        rows += read
        wrong += refused
        summary.unlabelled += unlabelled
    refuse_rows(wrong)
    if held_out:
        allowed = {*pool_unlike(tuple(row.text for row in rows), tuple(held_out)).texts}
        summary.left_out = sum(row.text not in allowed for row in rows)
        rows = [row for row in rows if row.text in allowed]
    take_rows(project, rows, summary)
    return summary


def take_rows(project: Project, rows: Sequence[Annotation], summary: ImportSummary | None = None) -> ImportSummary:
    """Write rows into a project, all or none. Raises ``DataError`` that names a row whose labels do not fit its text."""
    summary = ImportSummary() if summary is None else summary
    with project.at_once():
        places = _places(project, rows)
        summary.new_texts = project.add_texts([row.text for row, place in zip(rows, places, strict=True) if place is None])
        at = {text: number for number, text in enumerate(project.texts)}
        labels = project.label_ids()
        done = {(draw.text, draw.person) for draw in project.draws() if draw.queue == IMPORTED}
        imported = {(answer.text, answer.person, answer.value) for answer in project.answers()} if done else set()
        for row, place in zip(rows, places, strict=True):
            text = at[row.text] if place is None else place
            value = _value(project, row, labels, summary)
            person = row.person.strip()
            if (text, person) in done and (text, person, value) in imported:
                summary.known += 1
                continue
            _check_words(project.texts[text], value, row)
            draw = project.draw(text=text, person=person, queue=IMPORTED)
            project.answer(draw.id, person, value, 0.0)
            summary.answers += 1
            if person not in summary.people:
                summary.people.append(person)
    return summary


def _places(project: Project, rows: Sequence[Annotation]) -> list[int | None]:
    """The text of the pool that each row labels; None if there is none."""
    exact = {text: number for number, text in enumerate(project.texts)}
    near: dict[str, int] = {}
    if any(row.text not in exact for row in rows):
        for number, text in enumerate(project.texts):
            near.setdefault(text_key(text), number)
    return [exact[row.text] if row.text in exact else near.get(text_key(row.text)) for row in rows]


def _value(project: Project, row: Annotation, labels: dict[str, int], summary: ImportSummary) -> Value:
    """The ids of a row's labels; labels that are new are added."""
    for name in [row.label] if isinstance(row.label, str) else row.label:
        if name not in labels:
            try:
                labels[name] = project.add_label(name, row.person).id
            except ConfigError as error:
                raise DataError(f"{row.where}: {error}") from None
            summary.new_labels.append(name)
    return labels[row.label] if isinstance(row.label, str) else tuple(labels[name] for name in row.label)


def _check_words(text: str, value: Value, row: Annotation) -> None:
    if isinstance(value, tuple) and len(value) != len(text.split()):
        raise DataError(
            f"{row.where} must have a label for each word, but has {len(value)} for the {len(text.split())} words of {text[:80]!r}"
        )


LabelForm = Literal["csv", "ndjson"]
TestSplit = Literal["fraction", "random"]
VALIDATION_FRACTION, LEAST_TO_CHOOSE = 0.2, 300
"""share of the labelled texts held out to choose settings if there is no validation split; all of fewer texts are learned from"""
LEAST_TEST = 50
"""texts drawn at random that may be a test split"""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""beginnings of cells that a spreadsheet runs"""


def as_bytes(project: Project, form: LabelForm = "csv") -> bytes:
    """All labelled texts as one file in UTF-8; the tags of a text stand in its csv with spaces between, as its words do."""
    with project.unchanged:
        rows = _rows(project, sorted(project.labelled()))
    return _file_bytes(rows, form)


def formula_texts(project: Project) -> int:
    """The number of labelled texts, and labels in use, that a spreadsheet may run as formulas."""
    counted = project.labelled()
    used = {label for value in counted.values() for label in ([value] if isinstance(value, int) else value)}
    cells = [project.texts[text] for text in counted] + [label.name for label in project.labels() if label.id in used]
    return sum(cell.startswith(_FORMULA) for cell in cells)


def export(
    project: Project, folder: str | Path, form: LabelForm = "csv", test: TestSplit = "fraction", *, safe_csv: bool = False
) -> dict[str, Any]:
    """Write the labelled texts and a manifest; the number of texts of each split, and the manifest's path.

    An earlier export in the folder is replaced, if nobody has changed it, but not the ledgers of test splits.
    ``safe_csv`` writes ``'`` before cells that a spreadsheet may run as formulas; other cells come back exactly.

    Raises ``DataError`` if fewer than two labels are in use, if a label has too few texts to be split, or if there are fewer than
    ``LEAST_TEST`` texts for ``test="random"``; ``ConfigError`` for tags as csv, or for a folder that holds anything else.
    """
    target = Path(folder)
    if project.type == "tagging" and form == "csv":
        raise ConfigError("tags are lists, which csv cannot hold; give --form ndjson")
    require_task_folder(target)
    fixed = task_splits(project) if project.task else {}
    with project.unchanged:  # people may label, undo and merge meanwhile
        tested = random_texts(project) if test == "random" and not fixed else []
        train = sorted(project.labelled().keys() - set(tested))
        random = [project.texts[text] for text in random_texts(project) if text not in tested]
        chosen = any(draw.queue == "new" for draw in project.draws())
        splits = {"train": _rows(project, train), "test": _rows(project, tested), **fixed}
        labels = _used(project, splits["train"])
    if test == "random" and not fixed and len(tested) < LEAST_TEST:
        raise DataError(
            f"a test split needs at least {LEAST_TEST} labelled texts that were drawn at random, but there are {len(tested)}; "
            "label more, or leave --export-test out"
        )
    _check_labels(splits)
    if safe_csv and form == "csv":
        splits = {name: [{key: _no_formula(cell) for key, cell in row.items()} for row in rows] for name, rows in splits.items()}
        labels = [*map(_no_formula, labels)]
    written = {name: rows for name, rows in splits.items() if rows}
    counted = {*train, *tested}
    rest = [text for number, text in enumerate(project.texts) if number not in counted]
    ending = "csv" if form == "csv" else "ndjson"
    manifest = {
        "name": project.name,
        "type": project.type,
        **{name: f"{name}.{ending}" for name in written},
        **({"validation": VALIDATION_FRACTION} if "validation" not in written and len(train) >= LEAST_TO_CHOOSE else {}),
        **({} if "test" in written else {"test": 0.2}),
        **({"unlabelled": ["unlabelled.ndjson"]} if rest else {}),
        "labels": labels,
        **({"random_texts": [key_hash(key_of(text)).hex() for text in random]} if chosen else {}),
    }
    with task_folder(target) as aside:
        for name, rows in written.items():
            (aside / f"{name}.{ending}").write_bytes(_file_bytes(rows, form))
        if rest:
            (aside / "unlabelled.ndjson").write_text("".join(text_lines(rest)), encoding="utf-8", newline="\n")
        text = yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True)
        (aside / "task.yaml").write_text(f"{LABELLED_IN}{_way_back(target, project.folder)}\n{text}", encoding="utf-8")
    return {"task": str(target / "task.yaml"), **{name: len(rows) for name, rows in written.items()}}


def _way_back(target: Path, project: Path) -> str:
    """The path of a project from the folder of its task."""
    try:
        return os.path.relpath(project.resolve(), target.resolve())
    except ValueError:  # another drive of Windows
        return str(project.resolve())


def suffices(project: Project) -> bool:
    """True if ``export`` writes a task from which something can be learned: two labels on two texts each, at least."""
    rows = _rows(project, sorted(project.labelled()))
    counts = Counter(name for row in rows for name in {*_names(row)})
    if sum(count > 1 for count in counts.values()) < 2:
        return False
    try:
        _check_labels({"train": rows, **(task_splits(project) if project.task else {})})
    except (ConfigError, DataError):
        return False
    return True


def random_texts(project: Project) -> list[int]:
    """Labelled texts that the component ``random`` drew: each a random one of those that had no answer at that time.

    So they are like the pool as long as the other components took few of its texts. Those that were skipped, and those on which
    people disagree, are missing.
    """
    answered = {answer.draw for answer in project.answers()}
    drawn = {draw.text for draw in project.draws() if draw.queue == "new" and draw.component == "random" and draw.id in answered}
    return sorted(drawn & project.labelled().keys())


def task_splits(project: Project) -> dict[str, list[dict[str, Any]]]:
    """The rows of the test and validation texts of its task. Raises ``DataError`` or ``ConfigError`` if it cannot be read."""
    task = task_to_label(project.task, project.table)
    rows = {}
    for name, split in task.held_out().items():
        rows[name] = [
            {"text": text, "label": task.labels[int(label)]}
            if isinstance(text, str)
            else {"text": list(text), "label": [task.labels[int(tag)] for tag in label]}
            for text, label in zip(split.texts, split.labels, strict=True)
        ]
    return rows


def _rows(project: Project, texts: Sequence[int]) -> list[dict[str, Any]]:
    """The text and the label of each; lists of both for tagging."""
    names, counted = {label.id: label.name for label in project.labels()}, project.labelled()
    comments = _comments(project)
    rows = list[dict[str, Any]]()
    for number in texts:
        text, value = project.texts[number], counted[number]
        if isinstance(value, int):
            rows.append({"text": text, "label": names[value]})
        else:
            rows.append({"text": text.split(), "label": [names[tag] for tag in value]})
        if comments:
            rows[-1]["comment"] = comments.get(number, "")
    return rows


def _comments(project: Project) -> dict[int, str]:
    """Text -> what people wrote with their answers, a line for each, who first."""
    lines: dict[int, list[str]] = {}
    for answer in project.answers():
        if answer.comment.strip():
            lines.setdefault(answer.text, []).append(f"{answer.person}: {answer.comment.strip()}")
    return {text: "\n".join(comments) for text, comments in lines.items()}


def _no_formula(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def _file_bytes(rows: Sequence[Mapping[str, Any]], form: LabelForm) -> bytes:
    if form == "ndjson":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
    columns = [*rows[0]] if rows else ["text", "label"]
    writer.writerow(columns)
    for row in rows:
        writer.writerow(row[name] if isinstance(row[name], str) else " ".join(row[name]) for name in columns)
    return file.getvalue().encode()


def _used(project: Project, train: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of labels that have a text to learn from, in the order of the project."""
    used = {name for row in train for name in _names(row)}
    return [label.name for label in project.labels() if label.name in used]


def _names(row: Mapping[str, Any]) -> list[str]:
    """The labels of a row."""
    return [row["label"]] if isinstance(row["label"], str) else row["label"]


def _check_labels(splits: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Raise ``DataError`` unless the training texts have at least two labels, and every label that another split has."""
    names = {split: dict.fromkeys(name for row in rows for name in _names(row)) for split, rows in splits.items()}
    if len(names["train"]) < 2:
        listed = ", ".join(names["train"]) or "none"
        raise DataError(f"a task needs texts of at least two labels, but those to learn from have {listed}; label more texts")
    for split, labels in names.items():
        if missing := [name for name in labels if name not in names["train"]]:
            raise DataError(
                f"every label of the {split} texts needs a text to learn from, but '{missing[0]}' has none; label more texts, or "
                "merge or rename labels so that they agree"
            )
