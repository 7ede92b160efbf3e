"""Compare methods on a task: ``compare`` in memory, ``finish_comparison`` for commands.

Plan (``open_sweep``), for each trial: stored, or fitted (``run_sweep``); choose and estimate (``Comparison``); save (``fit``).
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from warmstart.baselines.simple import constant_score
from warmstart.data.scorings import read_ledger
from warmstart.data.source import LabelledTableFlags
from warmstart.data.tables import Tables
from warmstart.data.task import Task
from warmstart.errors import DataError, ModelError
from warmstart.experiment.choose import RECOMMENDED, TRANSFER
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.config import RaceConfig
from warmstart.experiment.curve import CurveResult
from warmstart.experiment.ranking import Ranking, rank
from warmstart.experiment.refit import FinishedTrials, named_method
from warmstart.experiment.sweep import Sweep, open_sweep, run_sweep
from warmstart.experiment.trial import SweepRuns
from warmstart.finetuning.schemes.registry import SCHEMES
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.system.console import console
from warmstart.tasks.load import load_task, read_spec

ALWAYS_RUN = ("probe", "scalar-mix")
"""schemes with a frozen backbone: they take seconds"""
_Model = str | Path | Bundle


def compare(
    models: _Model | Sequence[_Model],
    task: Task | str | Path,
    *,
    methods: Sequence[str] = (),
    labels: int | Sequence[int] = (),
    seeds: int | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> Comparison:
    """Compare methods on one task, on the same labels, seeds and test texts; nothing has to be a file.

    - ``models``: pretrained models: bundles in memory, folders, or names of encoders; empty: the encoders that are installed
    - ``methods``: their names as in the table, or of schemes ("lora", "lp-ft+scalar-mix"), "scratch"; default: all that take no
      more than seconds, which fine-tune nothing
    - ``labels``: how many labelled texts each seed draws, to learn and to choose; several: also what more would bring; default: all
    - ``seeds``: how many; default: 10 if no backbone is fine-tuned, otherwise 5
    - ``out``: folder in which finished trials are kept and found again; default: none are kept
    - ``settings``: ``time``, in seconds or as "3m", after which no trial starts, and any other of ``RaceConfig``

        found = ws.compare("minilm", ws.Task.from_lists(texts, labels), labels=100)
        found.recommended.name, found.table, ws.predict(found.fit(), ["a new text"])

    Raises ``ConfigError`` and ``DataError`` for what cannot be compared.
    """
    aside = Path(tempfile.mkdtemp(prefix="warmstart-"))
    many = [models] if isinstance(models, str | Path | Bundle) else [*models]
    held = task if isinstance(task, Task) else None
    if isinstance(time := settings.pop("time", None), int | float):
        time = f"{time}s"
    named = {
        "schemes": tuple(name for name in methods if {*name.split("+")} <= {*SCHEMES}),
        "scratch": "scratch" in methods,
        "budget": time,
    }
    try:
        config = RaceConfig(
            task=held.name if held else str(task),
            backbones=tuple(
                str(save(item, aside / f"model-{number}") if isinstance(item, Bundle) else item) for number, item in enumerate(many)
            ),
            methods=tuple(methods),
            labels=labels,
            seeds=seeds,
            out=str(out or aside / "run"),
            **named | settings,
        )
        comparison = finish_comparison(config.completed(), held)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    weakref.finalize(comparison, shutil.rmtree, aside, ignore_errors=True)
    return comparison


def with_frozen(config: RaceConfig, given: Task | None = None) -> RaceConfig:
    """The settings of a race on one task, with the schemes that always run, and a selection that needs only texts that it has."""
    changes: dict[str, Any] = {"schemes": (*ALWAYS_RUN, *config.schemes)}
    flags, tables = LabelledTableFlags.of(config), Tables()
    validated = bool(len(given.validation)) if given else read_spec(config.task, flags, tables)[1].validation is not None
    if config.selection is None and not config.labels and not validated:
        texts = len((given or load_task(config.task, flags=flags, tables=tables)).train)
        changes["selection"] = config.selection_with(texts)  # as with as many --labels
    return config.model_copy(update=changes)


def finish_comparison(config: RaceConfig, given: Task | None = None) -> Comparison:
    """Run the trials that have no result yet, with each number of labels, and compare the methods at the largest.

    Raises ``DataError`` if the time was too short for any method, ``ModelError`` if all diverged.
    """
    if given and not len(given.test):
        raise DataError("methods are compared on test texts, but the task has none; hold some out, or use ws.fit, which needs none")
    sweep = open_sweep(with_frozen(config, given), given)
    if sweep.config.save not in (None, RECOMMENDED):
        named_method(sweep.config.save, sweep.methods)  # an unknown name is refused before the first trial
    runs = dict[int, SweepRuns]()
    for labels in config.numbers_of_labels:
        if len(config.labels) > 1:
            console.print(f"\n{labels} labels")
        runs[labels or len(sweep.task.train)] = run_sweep(sweep, labels)
    rankings = {labels: rank(sweep.methods, sweep_runs) for labels, sweep_runs in runs.items()}
    curve = _curve(sweep, rankings) if len(rankings) > 1 else None
    largest = curve.largest if curve else max(rankings)
    return replace(_compared(sweep, rankings[largest], largest), curve=curve, trials=FinishedTrials(sweep, runs, largest))


def _compared(sweep: Sweep, ranking: Ranking, labels: int) -> Comparison:
    """The comparison of all methods with one number of labels."""
    config, task = sweep.config, sweep.task
    if not ranking.methods and ranking.diverged:
        names = ", ".join(method.name for method in ranking.diverged)
        raise ModelError(f"at every learning rate that was tried, {names} diverged; use lower --learning-rates")
    if not ranking.methods:
        raise DataError(f"the budget of {config.budget} is too short for one trial of one model; use a longer --budget")
    drawn = labels if config.labels else None
    return Comparison(
        task,
        labels,
        len(sweep.budget(drawn).choosing),
        ranking,
        sweep.audit,
        constant_score(task),
        read_ledger(sweep.task),
        ranking.methods[0].runs[0].budget,
        config.selection_with(drawn),
    )


def _curve(sweep: Sweep, rankings: Mapping[int, Ranking]) -> CurveResult:
    """The methods at each number of labels that all of them have run. Raises ``DataError`` if no pretrained one has."""
    complete = {labels: ranking for labels, ranking in rankings.items() if ranking.complete}
    if not complete and sweep.config.budget:
        raise DataError(
            f"the budget of {sweep.config.budget} is too short for all methods at one number of labels; use a longer --budget"
        )
    methods = dict.fromkeys(method for ranking in rankings.values() for method in ranking.diverged)
    diverged = {method: tuple(n for n, ranking in rankings.items() if method in ranking.diverged) for method in methods}
    pretrained = [{row.method for row in ranking.methods if row.method.family in TRANSFER} for ranking in complete.values()]
    if not pretrained or not set.intersection(*pretrained):
        names = f" ({', '.join(method.name for method in diverged)} diverged at every learning rate)" if diverged else ""
        raise DataError(
            f"a curve needs a pretrained method with a score at every number of labels, but there is none{names}; use lower "
            "--learning-rates"
        )
    ranked = {labels: ranking.methods for labels, ranking in complete.items()}
    incomplete = tuple(labels for labels in rankings if labels not in complete)
    drawn = any(ranking.drawn for ranking in complete.values())
    return CurveResult(sweep.task, ranked, incomplete, diverged, sweep.config.target, sweep.audit, read_ledger(sweep.task), drawn)
