"""Does a small backbone that reads the task's domain first beat one pretrained on other text? On labelled sets, few labels.

Each row is a set, a number of labels and a backbone: that of ``BACKBONE`` (default: runs/wikitext-2), or a small one pretrained by
``pretrain --for`` on the pool alone, on the pool and the passages of other text, or on these with the labels of each draw. Its
frozen vectors are classified, and it is fine-tuned with the fixed settings of a race. What was measured is kept in ``FOLDER``
(default: runs/domain), so that the command can be stopped and started again; ``ROWS`` (such as "r8,emotion", or empty) names the
sets to measure, of the others what is there is shown; default: all.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.draws import fixed_accuracy, measured_once
from benchmarks.few_label_tasks import data, prepare
from benchmarks.harness import table

from warmstart.commands.pretrain.command import PretrainConfig, pretrain
from warmstart.data.budget import label_budget
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.encoded_task import EncodedTask
from warmstart.finetuning.finetune import task_model
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.model.history import PretrainRecord
from warmstart.stats.formatting import percent
from warmstart.storage import atomic_write
from warmstart.tasks.load import load_task

DRAWS = 3
TEXT = {
    "r8": ("reuters21578/unlabeled.txt.xz", "wikitext-2/train.txt.gz"),
    "emotion": ("tweeteval/unlabeled_tweets.txt.xz", "wikitext-2/train.txt.gz"),
    "ag_news": ("ag_news_more/unlabeled_more.txt.xz", "ag_news_more/train_more.tsv.xz", "reuters21578/unlabeled.txt.xz"),
}
"""other text for each set"""
LABELS = {"r8": (100,), "emotion": (100,), "ag_news": (100, 500)}
SHAPE = {"width": 128, "depth": 2, "heads": 4, "feedforward": 512, "max_length": 128}
GIVEN, POOL, MORE, JOINT = "given", "pool", "pool and TEXT", "pool, TEXT and labels"
BACKBONES = (GIVEN, POOL, MORE, JOINT)
SCHEMES = ("probe", "full")
Found = dict[str, float]
"""accuracy of each scheme, and minutes"""


@dataclass(frozen=True)
class Case:
    """One draw of labels of one row."""

    name: str
    labels: int
    backbone: str
    seed: int

    @property
    def key(self) -> str:
        """The name of its file."""
        return f"{self.name}-{self.labels}-{self.backbone.replace(' ', '_').replace(',', '')}-{self.seed}"


def pretrained(case: Case, manifest: Path, folder: Path) -> tuple[Bundle, float]:
    """The backbone of a case, made once for all draws unless it reads their labels, and minutes of the processor that it took.

    Of the given one, which was made elsewhere, they are the seconds of its training.
    """
    if case.backbone == GIVEN:
        given = load_model(os.environ.get("BACKBONE", "runs/wikitext-2"))
        return given, sum(one.seconds or 0.0 for one in given.history if isinstance(one, PretrainRecord)) / 60
    joint = case.backbone == JOINT
    out = folder / "models" / (case.key if joint else f"{case.name}-{case.backbone.replace(' ', '_')}")
    if not (out / "processor.json").is_file():
        text = [] if case.backbone == POOL else [str(data() / path) for path in TEXT[case.name]]
        domain = {"for_task": str(manifest)} | ({"labels": case.labels} if joint else {})
        started = time.process_time()
        pretrain(PretrainConfig.build({
            "text": text, "out": str(out), "objective": {"name": "masked"}, "backbone": SHAPE, "seed": case.seed if joint else 0,
            "document": "line", "domain": domain,
        }))  # fmt: skip
        atomic_write(out / "processor.json", json.dumps((time.process_time() - started) / 60).encode())
    return load_model(str(out)), float(json.loads((out / "processor.json").read_text(encoding="utf-8")))


def measure(case: Case, folder: Path) -> Found:
    """Accuracy on the test texts of each scheme with the labels of one draw, and the minutes of pretraining."""
    manifest = prepare(case.name, folder)
    (bundle, minutes), task = pretrained(case, manifest, folder), load_task(manifest)
    found, budget = {"minutes": minutes}, label_budget(task, case.labels, "none", case.seed)
    encoded = EncodedTask.of(task, task_model(bundle, task, FineTuneConfig(), 0, scratch=False), bundle.tokenizer)
    for scheme in SCHEMES:
        found[scheme] = fixed_accuracy(bundle, encoded, budget, FineTuneConfig.build({"scheme": scheme}))
    return found


def rows_of(folder: Path, measured: Sequence[str], find: Callable[[Case, Path], Found] = measure) -> list[tuple[str, ...]]:
    """One row per set, number of labels and backbone, with what is there, or is measured now."""
    rows = []
    for name, numbers in LABELS.items():
        for labels, backbone in ((labels, backbone) for labels in numbers for backbone in BACKBONES):
            draws = list[Found]()
            for case in (Case(name, labels, backbone, seed) for seed in range(DRAWS)):
                file = folder / f"{case.key}.json"
                if file.is_file() or name in measured:
                    draws.append(measured_once(file, partial(find, case, folder)))
            if draws:
                scores = [percent(float(np.mean([one[scheme] for one in draws]))) for scheme in SCHEMES]
                minutes = f"{float(np.mean([one['minutes'] for one in draws])):.1f}"
                rows.append((name, str(labels), backbone, minutes, *scores, str(len(draws))))
    return rows


def run() -> str:
    """The table of what was measured."""
    folder = Path(os.environ.get("FOLDER", "runs/domain"))
    folder.mkdir(parents=True, exist_ok=True)
    rows = rows_of(folder, [name for name in os.environ.get("ROWS", ",".join(LABELS)).split(",") if name])
    return table(("set", "labels", "backbone", "processor minutes", *SCHEMES, "draws"), rows)


if __name__ == "__main__":
    print(run())
