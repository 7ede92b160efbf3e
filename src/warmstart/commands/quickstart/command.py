"""The complete path on built-in input: pretrain, swap the head, adapt, compare, report. No data file, no network.

It reads the documentation strings of the installed libraries, pretrains a small backbone on them, and classifies held-out passages
by the area that they document, with few labels and with more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from warmstart.backbone.config import BackboneConfig
from warmstart.commands.pretrain.command import PretrainConfig, pretrain_on, tokenized
from warmstart.commands.quickstart.page import write_quickstart_page
from warmstart.commands.quickstart.result import QuickstartResult
from warmstart.config import Advanced, Effectless, result_key
from warmstart.data.budget import LabelBudget
from warmstart.data.docstring_task import docstring_task, pretraining_text
from warmstart.data.docstrings import read_docstrings
from warmstart.data.files import text_lines
from warmstart.data.source import Source
from warmstart.data.task import Task
from warmstart.data.test_ledger import ScoringRun
from warmstart.experiment.adaptation import AdaptConfig, adapted_bundle, compare_methods, draw_budgets
from warmstart.experiment.adaptation_result import AdaptResult
from warmstart.finetuning.config import FineTuneConfig
from warmstart.model.bundle import Bundle
from warmstart.model.files import model_digest, save
from warmstart.objectives.config import ObjectiveConfig
from warmstart.report.after_saving import model_is_saved
from warmstart.runs.record import write_record
from warmstart.runs.run import Run, ThreadsConfig
from warmstart.stack.files import save_model
from warmstart.stats.formatting import percent
from warmstart.system.console import console, print_table
from warmstart.system.storage import atomic_write
from warmstart.tasks.load import save_task
from warmstart.tasks.predict import predict
from warmstart.tokenizer.train import TokenizerConfig
from warmstart.training.config import TrainConfig


class QuickstartConfig(ThreadsConfig):
    """See it all work in about six minutes, on text that every installation already has."""

    out: Effectless[str] = "runs/quickstart"
    """folder of the run"""
    tokens: int = Field(1_500_000, gt=0)
    """budget of pretraining in tokens"""
    labels: Annotated[tuple[int, ...], Field(min_length=1)] = (120, 480)
    """numbers of labelled texts, of which a fifth chooses and the others learn; the last one makes the bundle"""
    epochs: float = Field(5, gt=0)
    """passes over the labelled texts"""
    seeds: int = Field(3, gt=0)
    """number of seeds"""
    seed: int = Field(0, ge=0)
    """the first seed"""
    packages: Advanced[tuple[str, ...] | None] = None
    """packages whose documentation is read; default: the standard library and what warmstart depends on"""


def quickstart(config: QuickstartConfig) -> QuickstartResult:
    """Run the complete path; the ``quickstart`` command."""
    run = Run.open(config.out, config)
    folder = run.folder
    task, source = built_in_data(folder, config)
    scoring = ScoringRun.of(config)
    adapting = {count: _adapt_config(config, count) for count in config.labels}
    budgets = {count: draw_budgets(task, one) for count, one in adapting.items()}  # refused before pretraining, not after
    settings = _pretrain_config(config)
    console.print(f"Pretraining on {config.tokens:,} tokens of documentation; passages of the test split are left out.")
    tokenizer, stores = tokenized(settings, [source], folder)
    pretraining = pretrain_on(stores, tokenizer, settings, folder)
    save(pretraining.bundle, folder / "pretrained")
    data = result_key(task.digest, model_digest(str(folder / "pretrained")))[:8]
    asks = {count: (scoring, run.within(f"{count} labels of {data}")) for count in adapting}
    adaptations = tuple(_adapt(pretraining.bundle, budgets[count], one, asks[count]) for count, one in adapting.items())
    result = QuickstartResult(pretraining, adaptations)
    adapted = adapted_bundle(pretraining.bundle, result.adaptations[-1], adapting[config.labels[-1]], task)
    with model_is_saved(save_model(adapted, folder / "bundle")):
        for sentence in result.findings:
            console.print(sentence)
        write_record(
            folder, score=(result.adaptations[-1].comparison.rows[0].name, result.adaptations[-1].comparison.rows[0].interval.mean)
        )
        page = write_quickstart_page(result, config, folder)
    text = task.test.texts[0]
    probabilities = predict(adapted, [text]).probabilities
    assert probabilities is not None
    label = adapted.labels[int(probabilities[0].argmax())]
    console.print(f'\n"{text[:90]}" -> {label} ({percent(probabilities[0].max(), 0)})')
    console.print(f"bundle: {folder / 'bundle'}\nreport: {page}   (open it in a browser)")
    return result


def built_in_data(folder: Path, config: QuickstartConfig) -> tuple[Task, Source]:
    """The labelled task and the file of unlabelled text; both are written into the run's folder for the user to read."""
    console.print("Reading the documentation strings of the installed libraries.")
    known = read_docstrings(config.packages)
    task = docstring_task(known, config.seed)
    texts = pretraining_text(known, task)
    task = replace(task, manifest=save_task(task, folder / "task"))
    file = folder / "documentation.ndjson"
    atomic_write(file, "".join(text_lines(texts)).encode())
    console.print(f"{len(texts):,} passages for pretraining, {len(task.test):,} test passages, {len(task.labels)} areas as labels.")
    return task, Source(path=str(file))


def _pretrain_config(config: QuickstartConfig) -> PretrainConfig:
    return PretrainConfig(
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


def _adapt_config(config: QuickstartConfig, labels: int) -> AdaptConfig:
    train = TrainConfig(
        epochs=config.epochs,
        batch=16,
        optimizer="muon",
        muon_learning_rate=0.004,
        learning_rate=1e-3,
        warmup=0.1,
        weight_decay=0.01,
    )
    return AdaptConfig(
        model=f"{config.out}/pretrained",
        task=f"{config.out}/task",
        out=config.out,
        tune=FineTuneConfig(train=train),
        labels=labels,
        selection="holdout",  # cross-validation would take six times as long
        seeds=config.seeds,
        seed=config.seed,
    )


def _adapt(bundle: Bundle, budgets: Mapping[int, LabelBudget], settings: AdaptConfig, asks: tuple[ScoringRun, Run]) -> AdaptResult:
    console.print(f"\nAdapting with {settings.labels} labelled texts; each of {settings.seeds} seeds draws its own.")
    result = compare_methods(bundle, budgets, settings, asks)
    print_table(f"{settings.labels} labels: {result.task.metric}", result.comparison.table(), result.comparison.header)
    return result
