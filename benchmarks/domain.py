"""Does a small backbone that reads the task's domain first beat one pretrained on other text? On labelled sets, few labels.

Each row is a set, a number of labels and a backbone: that of ``BACKBONE`` (default: runs/wikitext-2), or a small one pretrained by
``pretrain --for`` on the pool, or on the pool and passages of other text. It predicts masked tokens; some also compare crops of
texts. Its frozen vectors are classified, and it is fine-tuned with the fixed settings of a race.
What was measured is kept in ``FOLDER`` (default: runs/domain), so that the command can be stopped and started again; ``ROWS`` (such
as "r8,emotion", or empty) names the sets to measure, of the others what is there is shown; default: all.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.draws import fixed_accuracy, measured_once, remembered
from benchmarks.few_label_tasks import data, prepare
from benchmarks.harness import table

from warmstart.baselines import BASELINES
from warmstart.baselines.choice import run_baseline
from warmstart.commands.pretrain.command import pretrain
from warmstart.commands.settings import PretrainConfig
from warmstart.data.budget import label_budget
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.finetune import task_model
from warmstart.finetuning.further import COMPARED_TEXTS
from warmstart.finetuning.inputs import EncodedTask
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.stats.formatting import percent
from warmstart.system.storage import atomic_write
from warmstart.tasks import task_type_of
from warmstart.tasks.load import load_task

DRAWS = 3
TEXT = {
    "r8": ("reuters21578/unlabeled.txt.xz", "wikitext-2/train.txt.gz"),
    "emotion": ("tweeteval/unlabeled_tweets.txt.xz", "wikitext-2/train.txt.gz"),
    "ag_news": ("ag_news_more/unlabeled_more.txt.xz", "ag_news_more/train_more.tsv.xz", "reuters21578/unlabeled.txt.xz"),
}
"""other text for each set; none: the pool is all there is"""
LABELS = {"r8": (100,), "20newsgroups-train": (100,), "imdb-train": (100,), "emotion": (100,), "ag_news": (100, 500)}
SHAPE = {"width": 128, "depth": 2, "heads": 4, "feedforward": 512, "max_length": 128}


class Backbone(NamedTuple):
    """How a backbone is made."""

    contrastive: bool = False
    """it compares crops, beside predicting masked tokens"""
    more: bool = False
    """it reads passages of other text, beside the pool"""


GIVEN = "given"
BACKBONES = {
    GIVEN: Backbone(),
    "pool": Backbone(),
    "pool, crops": Backbone(contrastive=True),
    "pool and TEXT": Backbone(more=True),
    "pool and TEXT, crops": Backbone(contrastive=True, more=True),
}
VECTORS, FROZEN = "vectors", "frozen vectors"
"""as the ladder of a race has it"""
SCHEMES = (VECTORS, "probe", "full")
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
    """The backbone of a case, made once for all draws, and minutes of the processor that it took.

    Of the given one, which was made elsewhere, they are the seconds of its training.
    """
    if case.backbone == GIVEN:
        given = load_model(os.environ.get("BACKBONE", "runs/wikitext-2"))
        return given, sum(record.seconds or 0.0 for record in given.history if record.command == "pretrain") / 60
    made = BACKBONES[case.backbone]
    out = folder / "models" / f"{case.name}-{case.backbone.replace(' ', '_').replace(',', '')}"
    if not (out / "processor.json").is_file():
        text = [str(data() / path) for path in TEXT[case.name]] if made.more else []
        objective, train = ("contrastive", {"batch": COMPARED_TEXTS}) if made.contrastive else ("masked", {})
        started = time.process_time()
        pretrain(PretrainConfig.build({
            "text": text, "out": str(out), "objective": {"name": objective}, "backbone": SHAPE, "train": train,
            "seed": 0, "document": "line", "domain": {"for_task": str(manifest)},
        }))  # fmt: skip
        atomic_write(out / "processor.json", json.dumps((time.process_time() - started) / 60).encode())
    return load_model(str(out)), float(json.loads((out / "processor.json").read_text(encoding="utf-8")))


def measure(case: Case, folder: Path) -> Found:
    """Accuracy on the test texts of each scheme with the labels of one draw, and the minutes of pretraining."""
    manifest = prepare(case.name, folder)
    (bundle, minutes), task = pretrained(case, manifest, folder), load_task(manifest)
    found, budget = {"minutes": minutes}, label_budget(task, case.labels, "none", case.seed)
    frozen = run_baseline(BASELINES[FROZEN], label_budget(task, case.labels, "cross-validation", case.seed), (), remembered(bundle))
    found[VECTORS] = task_type_of(task).scores(task.test, frozen.test, task).score("accuracy")
    encoded = EncodedTask.of(task, task_model(bundle, task, FineTuneConfig(), 0, scratch=False), bundle.tokenizer)
    for scheme in SCHEMES[1:]:
        found[scheme] = fixed_accuracy(bundle, encoded, budget, FineTuneConfig.build({"scheme": scheme}))
    return found


def rows_of(folder: Path, measured: Sequence[str], find: Callable[[Case, Path], Found] = measure) -> list[tuple[str, ...]]:
    """One row per set, number of labels and backbone, with what is there, or is measured now."""
    rows = []
    for name, numbers in LABELS.items():
        backbones = [one for one, made in BACKBONES.items() if name in TEXT or not made.more]
        for labels, backbone in ((labels, backbone) for labels in numbers for backbone in backbones):
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
