"""The complete path on built-in input: from few labels to a model, and what more labels bring. No data file, no network.

It reads the documentation strings of the installed libraries, and makes a model that tells which area a passage documents, as
``warmstart fit`` would of the same few labels: with words, and with an encoder if one is installed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from warmstart.commands.fit.command import encoders_for, keep_fit, speed_of, time_for_trials
from warmstart.commands.fit.page import write_fit_page
from warmstart.commands.quickstart.result import Curves, QuickstartResult, quickstart_view
from warmstart.data.budget import label_budget
from warmstart.data.docstrings import docstring_task, read_docstrings
from warmstart.data.splits import NO_TEXTS
from warmstart.data.task import Task
from warmstart.experiment.choose import MAJORITY_LABEL
from warmstart.experiment.config import QuickstartConfig, RaceConfig
from warmstart.experiment.fit import fit_task
from warmstart.experiment.fit_result import FitResult
from warmstart.experiment.sweep import open_sweep, run_sweep
from warmstart.runs.run import Run
from warmstart.stats.proportions import wilson_interval
from warmstart.system.console import console, quietly
from warmstart.tasks.load import save_task

BY_WORDS, WITH_ENCODER = (MAJORITY_LABEL, "naive Bayes + EM", "NBSVM", "LSA + logistic regression"), ("frozen vectors",)
"""the quick methods of ``fit``; the others were no better on this task"""


def quickstart(config: QuickstartConfig) -> QuickstartResult:
    """Run the complete path; the ``quickstart`` command."""
    console.print(f"Learning from {config.labels[0]:,} labels which area a passage documents: about a minute.")
    reading = quietly("reading the documentation of the installed libraries")
    with reading, (run := Run.open(config.out, config)).emptied_if_refused():
        folder = run.folder
        task = docstring_task(read_docstrings(config.packages), config.seed)
        task = replace(task, manifest=save_task(task, folder / "task"))
        few = _with_labels(task, config)
        encoders, notes = encoders_for((), few.train.texts)
    for note in notes:
        console.print(note)
    with quietly("comparing methods"):
        how = {"task": f"{config.out}/task", "out": config.out, "seed": config.seed, "backbones": encoders, "schemes": ()}
        methods = (*BY_WORDS, *(WITH_ENCODER if encoders else ()))
        settings = RaceConfig.build(how | {"methods": methods, "scratch": False, "budget": time_for_trials(config.minutes)})
        found = fit_task(few, settings, config, random_sample=True)
        result = QuickstartResult(found, _by_labels(task, found, settings, config))
    saved, page = keep_fit(found, folder, lambda: write_fit_page(found, config, folder, quickstart_view(result, folder)))
    for line in result.lines(folder if saved else None, page, speed_of(found)):
        console.print(line)
    return result


def _with_labels(task: Task, config: QuickstartConfig) -> Task:
    """The task with the fewest labels; the other training texts have none. Raises ``DataError`` for too many labels."""
    drawn, *_ = [label_budget(task, count, "none", config.seed) for count in config.labels]
    rest = sorted({*range(len(task.train))} - {*drawn.train.tolist()})
    texts = tuple(str(task.train.texts[i]) for i in rest)
    return replace(task, train=drawn.task.train, validation=task.validation.take(NO_TEXTS), unlabelled_texts=texts)


def _by_labels(task: Task, found: FitResult, settings: RaceConfig, config: QuickstartConfig) -> Curves:
    """Accuracy on the test texts of the best method by words and of the best with an encoder, by the number of labels.

    The fewest labels choose these methods; they are the labels of the fit.
    """
    alone = [one for one in found.candidates[::-1] if one.family != "stack" and one.name != MAJORITY_LABEL]
    best = {one.family: one.name for one in sorted(alone, key=lambda one: float(one.right.mean()))}
    more = {"labels": config.labels, "seeds": 1, "selection": "none", "methods": (*best.values(),), "budget": None}
    sweep = open_sweep(settings.model_copy(update=more), task, config)
    curves, texts = Curves(), len(np.unique(task.test.units))
    for labels in config.labels:
        for trial, result in run_sweep(sweep, labels).results.items():
            curves.setdefault(trial.method.name, {})[labels] = wilson_interval(result.score, texts)
    return curves
