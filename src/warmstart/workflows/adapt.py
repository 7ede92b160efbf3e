"""Adaptation: a bundle and a labelled task in; a bundle for the task, an honest comparison and a report out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from tyro.conf import Positional, arg

from warmstart.backbone import Backbone
from warmstart.config import Config
from warmstart.data import Split, Task, audit, drop_leaks, load_task
from warmstart.engine import console
from warmstart.evaluate import Comparison, Row
from warmstart.kinds import Result, kind_of
from warmstart.model import Bundle, Model, fresh_head, save, swap_head
from warmstart.schemes import Language, make_scheme
from warmstart.seeding import seed_torch
from warmstart.workflows.calibration import calibrate, set_apart
from warmstart.workflows.dapt import continue_pretraining
from warmstart.workflows.finetune import FineTuneConfig, FineTuned, Splits, check_scheme, fine_tune, head_for, looks_back_only
from warmstart.workflows.outcome import PRETRAINED, SCRATCH, Outcome
from warmstart.workflows.pages import adaptation_page
from warmstart.workflows.run import load_model, open_run, print_comparison, provenance, taught

SPARED = ("TF-IDF + linear SVM",)
"""baselines that a race runs, but an adaptation does without"""


class AdaptConfig(Config):
    """Swap a model's head, fine-tune it on labels over several seeds, and compare it with what needs no pretraining."""

    model: Positional[str]
    """the pretrained model: a bundle, or a run's folder"""
    task: Positional[str]
    """the task's manifest (YAML)"""
    out: str = "runs/adapt"
    """folder of the run"""
    tune: Annotated[FineTuneConfig, arg(name="")] = FineTuneConfig()
    seeds: int = Field(3, gt=0)
    """how many seeds; fewer than three say little"""
    seed: int = Field(0, ge=0)
    """the first seed"""
    scratch: bool = True
    """also train the same network from scratch"""
    baselines: bool = True
    """also run the majority label and TF-IDF + logistic regression"""
    calibration: float = Field(0.0, ge=0, lt=1)
    """share of the validation texts that choose nothing, so that `predict --target-error` can make a promise on them"""
    drop_leaks: bool = False
    """drop training texts that also occur in validation or test, and validation texts that occur in test"""


def adapt(config: AdaptConfig) -> Outcome:
    """Audit, fine-tune over seeds, compare, save the best run as a bundle, write the report; the ``adapt`` command."""
    bundle = load_model(config.model)
    check_scheme(bundle, config.tune)
    task = load_task(config.task)  # its splits never depend on the seed: `evaluate` must find the same test texts
    if config.drop_leaks:
        task = drop_leaks(task)
    task, apart = set_apart(task, config.calibration)
    folder = open_run(config.out, config, resume=False)
    scheme = make_scheme(config.tune.scheme, config.tune.options)
    if scheme.continued:
        bundle = continue_pretraining(bundle, task, config.tune.options, config.seed, apart=apart).bundle
    outcome = compare(bundle, task, config)
    print_comparison(f"{task.name}: {task.metric} on {len(task.test)} test texts", outcome.comparison)
    best = adapted_bundle(bundle, outcome, config, apart)
    save(best, folder / "bundle")
    page = adaptation_page(outcome, best, config, folder)
    console.print(f"bundle: {folder / 'bundle'} (seed {outcome.best.seed}, best on validation)\nreport: {page}")
    return outcome


def compare(bundle: Bundle, task: Task, config: AdaptConfig, labels: int | None = None) -> Outcome:
    """Run every method on the same splits and seeds.

    With ``labels``, each seed draws its own stratified subset of so many training texts, the same for every method, so that the
    intervals also say what another choice of texts would have given.
    """
    seeds = range(config.seed, config.seed + config.seeds)
    swapped = swap_head(bundle.model, head_for(task, config.tune), config.seed)
    whole = Splits.of(task, swapped, bundle.tokenizer)
    splits = {seed: whole.sample(labels, seed) if labels else whole for seed in seeds}
    first = splits[config.seed].task
    found = audit(first, bundle.tokenizer, bundle.model.backbone.config.max_tokens)
    found = replace(found, taught=(config.model,) if taught(bundle, task.name) else ())
    for finding in found.findings():
        console.print(f"audit ({finding.severity}): {finding.sentence}", markup=False)
    for line in describe_swap(bundle.model, swapped):
        console.print(line, markup=False)
    # a frozen backbone that was never trained is no from-scratch run: all of it must train
    settings = {PRETRAINED: config.tune} | ({SCRATCH: config.tune.model_copy(update={"scheme": "full"})} if config.scratch else {})
    runs = {name: tuple(_run(name, bundle, splits[seed], tune, seed) for seed in seeds) for name, tune in settings.items()}
    rows = [_trained_row(name, done, task) for name, done in runs.items()]
    reference: dict[str, Result] = {}
    for name in [name for name in kind_of(task).baselines() if name not in SPARED] if config.baselines else ():
        said = [kind_of(task).baselines()[name](one.task) for one in (splits.values() if labels else [whole])]
        row = _row(name, [answers for answers, _ in said], task)
        rows.append(replace(row, note="; ".join(dict.fromkeys(note for _, note in said))))
        reference[name] = kind_of(task).scores(task.test, said[0][0], task)
    return Outcome(first, Comparison(task.metric, tuple(rows)), runs, reference, found)


def task_model(bundle: Bundle, task: Task, config: FineTuneConfig, seed: int, *, scratch: bool) -> Model:
    """A model for the task: the bundle's backbone (a copy) or a fresh one of the same shape, under a fresh head."""
    origin = bundle.model.backbone
    seed_torch(seed, "backbone")
    backbone = Backbone(origin.config, origin.vocab_size) if scratch else copy.deepcopy(origin)  # with what is inserted in it
    head = fresh_head(head_for(task, config), backbone, seed)
    return Model(backbone, head, causal=looks_back_only(bundle.model.causal, config))


def describe_swap(before: Model, after: Model) -> list[str]:
    """What of the pretrained model comes along, what is new and what is dropped, one line each."""
    old, new = before.weights(), after.weights()
    kept = [name for name in old if name.startswith("backbone.")]
    fresh = {name: tensor.numel() for name, tensor in new.items() if name not in kept}
    dropped = [name for name in old if name not in kept] or ["no tensor (the language head is the embedding itself)"]
    count = sum(parameter.numel() for parameter in before.backbone.parameters())
    return [
        f"came:    {len(kept)} tensors of the backbone, {count:,} parameters",
        f"new:     {', '.join(fresh)} ({sum(fresh.values()):,} parameters)",
        f"dropped: {', '.join(dropped)}",
    ]


def adapted_bundle(origin: Bundle, outcome: Outcome, config: AdaptConfig, apart: Split | None = None) -> Bundle:
    """The best run as a bundle, with its history; its confidence is calibrated, and proved on the texts set ``apart``."""
    best = outcome.best
    entry: dict[str, Any] = {
        "command": "adapt",
        "task": outcome.task.summary(),
        "audit": [(finding.severity, finding.sentence) for finding in outcome.audit.findings()],
        "tune": config.tune.plain(),
        "seed": best.seed,
        "test": best.test.plain(),
        "validation": {name: [run.validation for run in runs] for name, runs in outcome.runs.items()},
        "comparison": outcome.comparison.plain(),
        "provenance": provenance(),
    }
    one = outcome.task.kind == "label"
    calibration = calibrate(best.model, origin.tokenizer, outcome.task.validation, apart) if one else None
    return Bundle(best.model, origin.tokenizer, outcome.task.labels, (*origin.history, entry), calibration)


def _run(name: str, bundle: Bundle, splits: Splits, config: FineTuneConfig, seed: int) -> FineTuned:
    model = task_model(bundle, splits.task, config, seed, scratch=name == SCRATCH)
    done = fine_tune(model, splits, config, seed, title=f"{name}, seed {seed}", language=Language.of(bundle))
    metric = splits.task.metric
    score = done.test.score(metric)
    console.print(f"{name}, seed {seed}: {metric} {100 * score:.1f} % in {done.trained.seconds:.0f} s")
    return done


def _trained_row(name: str, runs: Sequence[FineTuned], task: Task) -> Row:
    lost = sum(kind_of(task).lost(task, run.test) for run in runs)
    note = f"{lost} of {len(runs)} runs collapsed" if lost else ""
    seconds = float(np.mean([run.trained.seconds for run in runs]))
    return replace(_row(name, [run.probabilities for run in runs], task), seconds=seconds, trainable=runs[0].trainable, note=note)


def _row(name: str, said: Sequence[Any], task: Task) -> Row:
    """What each run's answers to the test split are worth, also on resamples of it."""
    kind = kind_of(task)
    scores = tuple(kind.scores(task.test, answers, task).score(task.metric) for answers in said)
    resampled = np.array([kind.resampled(task.test, answers, task) for answers in said])
    return Row(name, scores, resampled=resampled, share=kind.share)
