"""The complete path on built-in input: pretrain, then fit with few labels. No data file, no network.

It reads the documentation strings of the installed libraries, pretrains a small backbone on them, and makes a model that tells
which area a passage documents, as ``warmstart fit`` would of the same few labels: with words alone, with the backbone, and with an
encoder of others if it is installed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from warmstart.backbone.config import BackboneConfig
from warmstart.commands.fit.command import keep_fit, speed_of, time_for_trials
from warmstart.commands.fit.page import write_fit_page
from warmstart.commands.pretrain.command import pretrain_on, tokenized
from warmstart.commands.pretrain.result import PretrainResult
from warmstart.commands.quickstart.result import Curves, QuickstartResult, quickstart_view
from warmstart.commands.settings import PretrainConfig
from warmstart.data.budget import label_budget
from warmstart.data.docstrings import docstring_task, pretraining_text, read_docstrings
from warmstart.data.files import text_lines
from warmstart.data.source import Source
from warmstart.data.splits import NO_TEXTS
from warmstart.data.task import Task
from warmstart.experiment.choose import MAJORITY_LABEL
from warmstart.experiment.config import QuickstartConfig, RaceConfig
from warmstart.experiment.fit import fit_task
from warmstart.experiment.fit_result import FitResult
from warmstart.experiment.sweep import check_sweep, open_sweep, run_sweep
from warmstart.interop.encoders import ENCODERS, installed, unambiguous
from warmstart.model.files import save
from warmstart.objectives.config import ObjectiveConfig
from warmstart.runs.run import Run
from warmstart.stats.proportions import wilson_interval
from warmstart.system.console import console, quietly
from warmstart.system.storage import atomic_write
from warmstart.tasks.load import save_task
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.training.config import TrainConfig

FROZEN = "frozen vectors"
"""stands for a backbone for which the fit had no time"""
ENCODER = "minilm"
"""the encoder of others"""
METHODS = ("majority", "naive Bayes + EM", "NBSVM", "LSA + logistic regression", FROZEN)
"""the quick ones of those of ``fit``; the others were no better on this task"""
OWN_TEXT = "own-text"
"""folder of the backbone in that of the run, after which its methods are called"""


def quickstart(config: QuickstartConfig) -> QuickstartResult:
    """Run the complete path; the ``quickstart`` command."""
    console.print("Reading the documentation of the installed libraries, and pretraining a small network on it: about a minute.")
    with quietly():
        folder = Run.open(config.out, config).folder
        task, source, passages = built_in_data(folder, config)
        few = _with_labels(task, config)  # refused before pretraining, not after
        pretraining = _pretrain(source, config, folder)
        backbones = (str(folder / OWN_TEXT), *([unambiguous(ENCODER)] if installed(ENCODERS[ENCODER]) else []))
    read, labels = pretraining.training.tokens, len(few.train)
    console.print(f"Read {read:,} tokens of {passages:,} passages; comparing methods on {labels} labelled ones takes as long.")
    with quietly():
        how = {"task": f"{config.out}/task", "out": config.out, "seed": config.seed, "methods": METHODS, "backbones": backbones}
        settings = RaceConfig.build(how | {"schemes": (), "scratch": False, "budget": time_for_trials(config.minutes)})
        found = fit_task(few, settings, config, random_sample=True)
        result = QuickstartResult(pretraining, found, _by_labels(task, found, settings, config))
    saved, page = keep_fit(found, folder, lambda: write_fit_page(found, config, folder, quickstart_view(result, folder)))
    for line in result.lines(folder if saved else None, page, speed_of(result.fit)):
        console.print(line)
    return result


def built_in_data(folder: Path, config: QuickstartConfig) -> tuple[Task, Source, int]:
    """The labelled task, the file of unlabelled text and its number of passages; both are written into the run's folder to read."""
    known = read_docstrings(config.packages)
    task = docstring_task(known, config.seed)
    texts = pretraining_text(known, task)
    task = replace(task, manifest=save_task(task, folder / "task"))
    file = folder / "documentation.ndjson"
    atomic_write(file, "".join(text_lines(texts)).encode())
    return task, Source(path=str(file)), len(texts)


def _with_labels(task: Task, config: QuickstartConfig) -> Task:
    """The task with the fewest labels; the other training texts have none. Raises ``DataError`` for too many labels."""
    drawn, *_ = [label_budget(task, count, "none", config.seed) for count in config.labels]
    rest = sorted({*range(len(task.train))} - {*drawn.train.tolist()})
    texts = tuple(str(task.train.texts[i]) for i in rest)
    return replace(task, train=drawn.task.train, validation=task.validation.take(NO_TEXTS), unlabelled_texts=texts)


def _pretrain(source: Source, config: QuickstartConfig, folder: Path) -> PretrainResult:
    """The small backbone, which is saved."""
    settings = PretrainConfig(
        out=config.out,
        held_out="0.005",
        tokenizer=TokenizerConfig(vocab_size=6000, sentinels=0),
        objective=ObjectiveConfig(name="masked"),
        backbone=BackboneConfig(max_length=128),
        train=TrainConfig(
            tokens=config.tokens, batch=16, optimizer="muon", learning_rate=3e-3, evaluate_every=200, checkpoint_every=400
        ),
        seed=config.seed,
    )
    tokenizer, stores = tokenized(settings, [source], folder)
    done = pretrain_on(stores, tokenizer, settings, folder)
    save(done.bundle, folder / OWN_TEXT)
    return done


def _by_labels(task: Task, found: FitResult, settings: RaceConfig, config: QuickstartConfig) -> Curves:
    """Accuracy on the test texts of the best method without pretraining and on each backbone, by the number of labels.

    The fewest labels choose these methods; they are the labels of the fit.
    """
    by_labels = settings.model_copy(update={"labels": config.labels, "seeds": 1, "selection": "none", "budget": None})
    right = {one.name: float(one.right.mean()) for one in found.candidates if one.name != MAJORITY_LABEL}
    methods = [one for one in check_sweep(by_labels, task)[-1][::-1] if one.name in right or one.scheme == FROZEN]
    best = {one.backbone: one.name for one in sorted(methods, key=lambda one: right.get(one.name, 0.0)) if not one.combines}
    sweep = open_sweep(by_labels.model_copy(update={"methods": (*best.values(),)}), task, config)
    curves, texts = Curves(), len(np.unique(task.test.units))
    for labels in config.labels:
        for trial, result in run_sweep(sweep, labels).results.items():
            curves.setdefault(trial.method.name, {})[labels] = wilson_interval(result.score, texts)
    return curves
