"""Tiny tasks of every type."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from helpers.bundles import language_bundle
from warmstart.data.source import Source
from warmstart.data.splits import NO_TEXTS
from warmstart.data.task import Split, Task
from warmstart.experiment.config import RaceConfig
from warmstart.model.files import save
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer

LETTERS = str.maketrans("0123456789", "abcdefghij")
"""numbers as words: texts that differ in a number alone are copies"""


def read_examples(source: Source) -> tuple[list[str], list[str]]:
    """The texts of a source, and the label of each."""
    rows = TASK_TYPES["classification"].read([source])
    return rows.inputs, rows.targets


def cats(seed: int = 0) -> Task:
    """Sixty sentences of which half are about cats, in each split others."""
    chance = np.random.default_rng(seed)

    def split(count: int) -> Split:
        labels = np.arange(count) % 2
        texts = [
            f"{chance.choice(['She', 'He', 'I', 'We', 'You'])} {chance.choice(['holds', 'rubs', 'can hold', 'found'])} "
            f"{'the cat' if label else 'a river'} in {chance.integers(1000, 9999)}.".translate(LETTERS)
            for label in labels
        ]
        return Split(tuple(texts), labels.astype(np.int64))

    return Task("cats", ("other", "cat"), split(60), split(20), split(30))


def poisoned(task: Task, train: np.ndarray, validation: np.ndarray = NO_TEXTS) -> Task:
    """The task with all labels changed but those of these training and validation texts: whoever reads another one is found out."""
    kept, changed = {"train": train, "validation": validation, "test": NO_TEXTS}, dict[str, Split]()
    for name, split in task.splits().items():
        labels = (split.labels + 1) % len(task.labels) if task.labels else split.labels + 1e6
        labels[kept[name]] = split.labels[kept[name]]
        changed[name] = replace(split, labels=labels)
    return replace(task, **changed)


WHO, DOES, WHAT = ("She", "He", "I"), ("holds", "rubs", "can hold", "found"), ("cat", "dog", "river", "cats")


def rows_of(type_name: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Sentences put together from a few words, with the targets of a task type."""
    chance, rows = np.random.default_rng(seed), []
    for _ in range(count):
        who, does, what = (str(chance.choice(words)) for words in (WHO, DOES, WHAT))
        text, year = f"{who} {does} the {what}.", int(chance.integers(1900, 1999))
        row: dict[str, Any] = {"text": f"{text} {year}"}
        if type_name == "classification":
            row |= {"second": f"{chance.choice(WHO)} {does}", "label": what}
        elif type_name == "multilabel":
            row["label"] = [name for name in (what, "she") if name != "she" or who == "She"]
        elif type_name == "regression":
            row["label"] = 100.0 + 10 * WHO.index(who) + DOES.index(does)
        elif type_name == "tagging":
            words = f"{text[:-1]} .".split()
            row = {"text": words, "label": ["B-WHO" if w in WHO else "B-WHAT" if w in WHAT else "O" for w in words]}
        rows.append(row)
    return rows


def write_task(folder: Path, type_name: str) -> Path:
    """A manifest with three splits of one task type."""
    folder.mkdir(parents=True)
    for place, (name, count) in enumerate((("train", 48), ("validation", 16), ("test", 16))):
        (folder / f"{name}.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows_of(type_name, count, place)))
    source = {"second": "second"} if type_name == "classification" else {}
    manifest = {"name": type_name, "type": type_name, "source": source} | {
        name: f"{name}.ndjson" for name in ("train", "validation", "test")
    }
    (folder / "task.yaml").write_text(yaml.safe_dump(manifest))
    return folder / "task.yaml"


def tune(scheme: str = "full", **train: Any) -> dict[str, Any]:
    return {"scheme": scheme, "train": {"learning_rate": 5e-3, "epochs": 6, "batch": 8, "precision": "float32"} | train}


def write_race_inputs(place: Path, tokenizer: Tokenizer) -> Path:
    """A folder with a task and a tiny language model, as ``race_config`` expects it."""
    save_task(cats(), place / "task")
    save(language_bundle(tokenizer), place / "lm")
    return place


def race_config(place: Path, **changes: object) -> RaceConfig:
    given = {
        "task": str(place / "task"),
        "backbones": [str(place / "lm")],
        "schemes": ["full"],
        "learning_rates": [1e-3, 5e-3],
        "seeds": 2,
        "out": str(place / "race"),
        "tune": {"train": {"steps": 12, "batch": 8}},
    }
    return RaceConfig.build(given | changes)


def curve_config(place: Path, **changes: object) -> RaceConfig:
    return race_config(place, **({"out": str(place / "curve")} | changes))
