"""Texts without labels on which two models disagree: only these can tell which model is better, so only these are labelled."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from warmstart.data.annotations import read_annotations, refuse_rows
from warmstart.data.source import Source
from warmstart.data.tables import read_table
from warmstart.errors import DataError
from warmstart.model.bundle import Bundle
from warmstart.seeding import rng
from warmstart.stack.stack import Stack
from warmstart.stats.proportions import ProportionDifference, difference_from_disagreements
from warmstart.system.storage import atomic_write
from warmstart.tasks import task_type_for
from warmstart.tasks.predict import raw_predictions


@dataclass(frozen=True)
class Disagreements:
    """What labels of the texts on which two models disagree say of all texts."""

    names: tuple[str, str]
    file: str
    """of the texts to label"""
    texts: int
    differing: int
    """texts on which the two disagree"""
    labelled: int = 0
    alone: tuple[int, int] = (0, 0)
    """labelled texts on which the first, and the second, is right"""
    difference: ProportionDifference | None = None
    """accuracy of the first less that of the second over all texts; None without a label"""


def measure_disagreements(
    names: tuple[str, str], models: Sequence[Bundle | Stack], texts: Sequence[str], file: Path
) -> Disagreements:
    """Write the texts on which two models disagree to a table, in random order; or read their labels if it is there.

    Raises ``DataError`` for models that do not give one label per text, and for a table of other texts or labels.
    """
    if any(task_type_for(model).name != "classification" for model in models):
        raise DataError("--disagreements is for models that give one label per text; compare these on labelled texts")
    one, other = ([model.labels[i] for i in raw_predictions(model, texts).argmax(axis=1)] for model in models)
    differing = {text.strip(): (a, b) for text, a, b in zip(texts, one, other, strict=True) if a != b}
    found = Disagreements(names, str(file), len(texts), len(differing))
    if not file.exists():
        _write(file, [*differing])
        return found
    labels = _read(file, differing, models[0].labels)
    if not labels:
        return found
    right = np.array([[label == said for said in differing[text]] for text, label in labels.items()], float)
    difference = difference_from_disagreements(right[:, 0] - right[:, 1], len(differing), len(texts))
    alone = (int(right[:, 0].sum()), int(right[:, 1].sum()))
    return Disagreements(names, str(file), len(texts), len(differing), len(labels), alone, difference)


def _write(file: Path, texts: Sequence[str]) -> None:
    """A table of text and label, which is empty; in random order, so that those labelled from its top are a random sample."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("text", "label"))
    writer.writerows((texts[int(i)], "") for i in rng(0, "disagreements").permutation(len(texts)))
    atomic_write(file, out.getvalue().encode())


def _read(file: Path, differing: Mapping[str, tuple[str, str]], known: Sequence[str]) -> dict[str, str]:
    """The label of each text that has one. Raises ``DataError`` unless the table holds exactly the texts in ``differing``."""
    table = read_table(Source(path=str(file)), file, "csv")
    given = {text.strip() for text in table["text"] if text} if "text" in table.columns else set()
    if others := len(given ^ differing.keys()):
        raise DataError(
            f"{file} must hold the {len(differing):,} texts on which these two models disagree, but {others:,} are others or "
            "missing; it was written for other models or texts: name a file that is not there yet"
        )
    rows, _, wrong = read_annotations(file)
    refuse_rows(wrong)
    labels = dict[str, str]()
    for row in rows:
        if labels.setdefault(row.text.strip(), str(row.label)) != row.label:
            raise DataError(f"{row.where} must have the label of the same text above, but has {row.label}; correct one of them")
    if unknown := sorted({*labels.values()} - {*known}):
        raise DataError(f"the labels in {file} must be {', '.join(known)}, but '{unknown[0]}' is not one of them; correct it")
    return labels
