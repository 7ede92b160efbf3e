"""The labelled sets of the table of few labels, in one form: ``python -m benchmarks.few_label_tasks [--runs runs]``.

Each becomes a folder with its texts and a manifest, under ``runs/tasks``. Test splits above 2,000 texts are sampled to 2,000 once,
stratified, with seed 0. Development sets decide defaults and are left out of targets; of two of them only training rows are used.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from warmstart.data.splits import stratified_sample, stratified_split
from warmstart.tasks.load import load_task

Rows = list[tuple[str, str]]
"""(text, label) of each row"""
csv.field_size_limit(10**7)
LARGEST_TEST = 2000
R8 = ("earn", "acq", "crude", "trade", "money-fx", "interest", "ship", "grain")
RECIPES = Path(__file__).parent.parent / "recipes" / "tasks"


def data() -> Path:
    """The folder of the data sets."""
    return Path(os.environ.get("WARMSTART_DATA", Path(__file__).parents[2] / "shared" / "data"))


def rows_of(path: str, text: Sequence[str] = ("text",)) -> Rows:
    """Texts, joined from columns, and labels of a compressed table."""
    with lzma.open(data() / path, "rt", encoding="utf-8", newline="\n") as file:
        table = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(" ".join(row[name] for name in text).strip(), row["label"]) for row in table]


def recipe(name: str) -> tuple[Rows, Rows]:
    """The training and validation texts of a recipe's task, and its test texts."""
    task = load_task(RECIPES / f"{name}.yaml")
    parts = [[(text, task.labels[label]) for text, label in zip(split.texts, split.labels, strict=True)] for split in
             (task.train, task.validation, task.test)]  # fmt: skip
    return parts[0] + parts[1], parts[2]


def books() -> tuple[Rows, Rows]:
    """French book reviews as plain text: they are stored in pieces."""
    train, test = recipe("cls_books")
    return [(_plain(text), label) for text, label in train], [(_plain(text), label) for text, label in test]


def _plain(pieces: str) -> str:
    return pieces.replace(" ", "").replace("▁", " ").strip()


def table(folder: str, text: Sequence[str] = ("text",), train: str = "train", test: str = "test") -> tuple[Rows, Rows]:
    """The two splits of a folder."""
    return rows_of(f"{folder}{train}.tsv.xz", text), rows_of(f"{folder}{test}.tsv.xz", text)


def r8() -> tuple[Rows, Rows]:
    """The rows of R52 with one of the eight labels."""
    train, test = table("reuters21578/r52_", ("title", "body"))
    return [row for row in train if row[1] in R8], [row for row in test if row[1] in R8]


def training_rows(path: str) -> tuple[Rows, Rows]:
    """A fifth of the training rows, at most 2,000, as the test split; the real one stays unread."""
    rows = [row for row in rows_of(path) if row[0]]
    kept, held = stratified_split(_numbers(rows), min(LARGEST_TEST, len(rows) // 5), 0)
    return [rows[i] for i in kept], [rows[i] for i in held]


@dataclass(frozen=True)
class LabelledSet:
    """One labelled set of the table."""

    read: Callable[[], tuple[Rows, Rows]]
    """its training and test rows"""
    development: bool = False
    """it decides defaults, and no target is set for it"""
    holds: str = ""
    """the set of development whose test rows are among its own: no target is set for it either"""

    @property
    def remark(self) -> str:
        """Why no target is set for it; empty if one is."""
        return "development" if self.development else f"holds {self.holds}" if self.holds else ""


SETS = {
    "r8": LabelledSet(r8, development=True),
    "emotion": LabelledSet(lambda: table("tweeteval/emotion_"), development=True),
    "imdb-train": LabelledSet(lambda: training_rows("imdb/train.tsv.xz"), development=True),
    "20newsgroups-train": LabelledSet(lambda: training_rows("20newsgroups/train.tsv.xz"), development=True),
    "trec": LabelledSet(lambda: recipe("trec")),
    "ag_news": LabelledSet(lambda: recipe("ag_news")),
    "sst2": LabelledSet(lambda: recipe("sst2")),
    "mr": LabelledSet(lambda: recipe("mr")),
    "cls_books": LabelledSet(books),
    "imdb": LabelledSet(lambda: table("imdb/")),
    "20newsgroups": LabelledSet(lambda: table("20newsgroups/")),
    "r52": LabelledSet(lambda: table("reuters21578/r52_", ("title", "body")), holds="r8"),
    "sentiment": LabelledSet(lambda: table("tweeteval/sentiment_", train="val")),
    "banking77": LabelledSet(lambda: table("banking77/")),
}


def prepare(name: str, runs: Path) -> Path:
    """Write a set under ``runs/tasks``, if it is not there; returns its manifest."""
    folder = runs / "tasks" / name
    if not (folder / "task.yaml").is_file():
        train, test = ([row for row in part if row[0]] for part in SETS[name].read())
        write(name, train, _sample(test, {label for _, label in train}, LARGEST_TEST), folder)
    return folder / "task.yaml"


def shortened(name: str, runs: Path, words: int = 60, texts: tuple[int, int] = (3000, 500)) -> Path:
    """The same with at most so many training and test texts, and of each the first words, under ``runs/short``."""
    train, test = SETS[name].read()
    parts = [[(" ".join(text.split()[:words]), label) for text, label in part if text] for part in (train, test)]
    train = _sample(parts[0], {label for _, label in parts[0]}, texts[0])
    return write(name, train, _sample(parts[1], {label for _, label in train}, texts[1]), runs / "short" / name)


def _sample(rows: Rows, labels: set[str], largest: int) -> Rows:
    """Rows with one of the labels; where there are more than ``largest``, a stratified sample."""
    rows = [row for row in rows if row[1] in labels]
    return rows if len(rows) <= largest else [rows[i] for i in stratified_sample(_numbers(rows), largest, 0)]


def write(name: str, train: Rows, test: Rows, folder: Path) -> Path:
    """Write a task; returns its manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", train), ("test", test)):
        (folder / f"{part}.ndjson").write_text("".join(_lines(rows)), encoding="utf-8")
    manifest = folder / "task.yaml"
    manifest.write_text(f"name: {name}\ntrain: train.ndjson\nvalidation: 0.1\ntest: test.ndjson\n", encoding="utf-8")
    return manifest


def _lines(rows: Rows) -> Iterator[str]:
    return (json.dumps({"text": text, "label": label}, ensure_ascii=False) + "\n" for text, label in rows)


def _numbers(rows: Rows) -> np.ndarray:
    return np.unique([label for _, label in rows], return_inverse=True)[1].astype(np.int64)


def main() -> None:
    """Prepare all sets."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.few_label_tasks", description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    for name in SETS:
        task = load_task(prepare(name, parser.parse_args().runs))
        print(f"{name}: {len(task.train) + len(task.validation):,} + {len(task.test):,} texts, {len(task.labels)} labels")


if __name__ == "__main__":
    main()
