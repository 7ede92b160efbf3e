"""What do windows bring on long texts, and which pooling of them is best? On long reviews and posts, with a short context.

``BACKBONES`` names the models (default: runs/minilm), ``SCHEME`` the scheme (default: probe). Each reads 64
tokens at once, and each draw of labels trains with the fixed settings of ``--selection none``: with texts cut, and with windows
joined by mean, maximum and attention. What was measured is kept in ``FOLDER`` (default: runs/windows), row by row, so that the
command can be stopped and started again.
"""

from __future__ import annotations

import copy
import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from benchmarks.draws import fixed_accuracy, measured_once
from benchmarks.few_label_tasks import SETS, shortened
from benchmarks.harness import table

from warmstart.backbone.backbone import Backbone
from warmstart.data.budget import label_budget
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.features import FeatureCache
from warmstart.finetuning.finetune import task_model
from warmstart.finetuning.inputs import EncodedTask
from warmstart.heads.settings import WindowPooling
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model
from warmstart.stats.formatting import percent_value
from warmstart.tasks import task_type_of
from warmstart.tasks.load import load_task

NAMES = ("imdb-train", "20newsgroups-train", "cls_books")
LABELS, DRAWS, CONTEXT, TEXTS = (100, 500), 3, 64, (1500, 400)
TIMED = 50
"""texts that are timed"""
WAYS: tuple[WindowPooling, ...] = get_args(WindowPooling)
Scores = dict[str, float]
"""what was measured, by name"""


def with_context(bundle: Bundle, tokens: int) -> Bundle:
    """The same model, of which the backbone reads at most so many tokens."""
    old = bundle.model.backbone
    backbone = Backbone(old.config.model_copy(update={"max_length": tokens}), old.vocab_size)
    wanted = backbone.state_dict()
    backbone.load_state_dict({name: tensor[: len(wanted[name])] for name, tensor in old.state_dict().items() if name in wanted})
    return Bundle(Model(backbone, copy.deepcopy(bundle.model.head), causal=bundle.model.causal), bundle.tokenizer)


class Setup:
    """One model on one set."""

    def __init__(self, bundle: Bundle, manifest: Path, scheme: str) -> None:
        self.bundle, self.task, self.scheme = bundle, load_task(manifest), scheme
        self.features, self.read = FeatureCache(), dict[str, EncodedTask]()

    def config(self, windows: WindowPooling) -> FineTuneConfig:
        """The settings of one way."""
        return FineTuneConfig.build({"scheme": self.scheme, "windows": windows})

    def encoded(self, windows: WindowPooling) -> EncodedTask:
        """The task as one way reads it; features of frozen backbones are shared."""
        if windows not in self.read:
            model = task_model(self.bundle, self.task, self.config(windows), 0, scratch=False)
            self.read[windows] = replace(EncodedTask.of(self.task, model, self.bundle.tokenizer), features=self.features)
        return self.read[windows]

    def scores(self, labels: int, seed: int) -> Scores:
        """Test accuracy of every way on the labels of one draw."""
        budget = label_budget(self.task, labels, "none", seed)
        return {way: fixed_accuracy(self.bundle, self.encoded(way), budget, self.config(way)) for way in WAYS}

    def reading(self) -> Scores:
        """Of reading a hundred texts, cut and in windows: processor seconds, rows per text, the fraction of tokens that is lost."""
        found = Scores()
        for way in ("none", "mean"):
            config, encoded = self.config(way), self.encoded(way)
            part, model = encoded.test.take(np.arange(TIMED)), task_model(self.bundle, self.task, config, 0, scratch=False)
            started = time.process_time()
            task_type_of(self.task).predict(model, part, encoded.pad_id)
            found[f"seconds, {way}"] = 100 / TIMED * (time.process_time() - started)
            tokens = sum(len(row) - 2 for row in encoded.test.rows)
            found |= {f"rows, {way}": float(encoded.test.rows_per_example.mean()), f"lost, {way}": encoded.test.cut.sum()
                      / (encoded.test.cut.sum() + tokens)}  # fmt: skip
        return found


def run() -> str:
    """Mean accuracy of each way over draws, and what reading takes."""
    folder, scheme = Path(os.environ.get("FOLDER", "runs/windows")), os.environ.get("SCHEME", "probe")
    backbones = [Path(one) for one in os.environ.get("BACKBONES", "runs/minilm").split()]
    torch.set_num_threads(1)
    rows, development = list[tuple[str, ...]](), {way: list[float]() for way in WAYS}
    for path in backbones:
        bundle = with_context(load_model(str(path)), CONTEXT)
        for name in NAMES:
            manifest = folder / "short" / name / "task.yaml"
            if not manifest.is_file():
                shortened(name, folder, 10**6, TEXTS)
            setup = Setup(bundle, manifest, scheme)
            prefix = f"{path.name}-{scheme}-{name}"
            reading = measured_once(folder / f"{prefix}-reading.json", setup.reading)
            for labels in LABELS:
                draws = [
                    measured_once(folder / f"{prefix}-{labels}-{seed}.json", partial(setup.scores, labels, seed))
                    for seed in range(DRAWS)
                ]
                means = {way: float(np.mean([one[way] for one in draws])) for way in WAYS}
                if SETS[name].development:
                    for way in WAYS:
                        development[way].append(means[way])
                cost = (f"{reading['rows, mean']:.1f}", f"{reading['seconds, none']:.1f}", f"{reading['seconds, mean']:.1f}")
                shown = (*(percent_value(means[way]) for way in WAYS), percent_value(reading["lost, none"]))
                rows.append((f"{name}, {path.name}", str(labels), *shown, *cost))
    header = (
        "set, model",
        "labels",
        "cut, %",
        "mean, %",
        "max, %",
        "attention, %",
        "tokens cut, %",
        "windows",
        "cut, s",
        "windows, s",
    )
    over = ", ".join(
        f"{'cut' if way == 'none' else way} {percent_value(float(np.mean(found)))}" for way, found in development.items()
    )
    return f"{table(header, rows)}\n\nMean over the development sets ({scheme}): {over}. Seconds are processor time per 100 texts."


if __name__ == "__main__":
    print(run())
