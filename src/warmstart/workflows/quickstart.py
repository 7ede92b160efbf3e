"""The main job on built-in input: pretrain, swap the head, adapt, compare, report. No data file, no network.

It reads the documentation strings of the libraries that are installed anyway, pretrains a small backbone on them, and asks of
held-out passages which area they document, with a few labels and with more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import Field

from warmstart.backbone import BackboneConfig
from warmstart.config import Config
from warmstart.data import Source, Task, save_task, subsample
from warmstart.data.builtin import docstring_task, passages, pretraining_text
from warmstart.engine import TrainConfig, console
from warmstart.evaluate import predict
from warmstart.model import save
from warmstart.objectives import ObjectiveConfig
from warmstart.storage import write_forced
from warmstart.tokenizer import TokenizerConfig
from warmstart.workflows.adapt import AdaptConfig, adapted_bundle, compare
from warmstart.workflows.finetune import FineTuneConfig
from warmstart.workflows.outcome import Outcome, Pretrained
from warmstart.workflows.pages import quickstart_page
from warmstart.workflows.pretrain import PretrainConfig, make_tokenizer, pretrain_on, split_corpora
from warmstart.workflows.run import open_run, print_comparison


class QuickstartConfig(Config):
    """See it all work in about six minutes, on text that every installation already has."""

    out: str = "runs/quickstart"
    """folder of the run"""
    tokens: int = Field(1_500_000, gt=0)
    """budget of pretraining"""
    labels: Annotated[tuple[int, ...], Field(min_length=1)] = (120, 480)
    """numbers of labelled texts to adapt to; the last one makes the bundle"""
    epochs: float = Field(5, gt=0)
    """passes over the labelled texts"""
    seeds: int = Field(3, gt=0)
    """how many seeds"""
    seed: int = Field(0, ge=0)
    """the first seed"""
    packages: tuple[str, ...] | None = None
    """read only these packages' documentation; default: the standard library and what warmstart depends on"""


def quickstart(config: QuickstartConfig) -> list[Outcome]:
    """Run the main job; the ``quickstart`` command."""
    folder = open_run(config.out, config, resume=False)
    task, source = built_in(folder, config)
    for count in config.labels:
        subsample(task, count, config.seed)  # too many or too few labels are noticed before pretraining, not after
    plan = PretrainConfig(
        text=(source.path,),
        out=config.out,
        held_out="0.005",
        tokenizer=TokenizerConfig(vocab_size=6000, sentinels=0),
        objective=ObjectiveConfig(name="masked"),
        backbone=BackboneConfig(max_tokens=128),
        train=TrainConfig(
            tokens=config.tokens, batch=16, optimizer="muon", learning_rate=3e-3, evaluate_every=200, checkpoint_every=400
        ),
        seed=config.seed,
    )
    console.print(f"pretraining on {config.tokens:,} tokens of documentation (modules of the test passages left out)")
    tokenizer = make_tokenizer(plan, [source], folder)
    corpora = split_corpora(plan, [source], tokenizer, folder / "text")
    pretrained = pretrain_on(corpora, tokenizer, plan, folder)
    save(pretrained.bundle, folder / "pretrained")
    settings = _adapt_config(config)
    outcomes = [_adapt(pretrained, task, count, settings) for count in config.labels]
    last = adapted_bundle(pretrained.bundle, outcomes[-1], settings)
    save(last, folder / "bundle")
    page = quickstart_page(pretrained, corpora, outcomes, config, folder)
    text = task.test.texts[0]
    said = predict(last, [text])[0]
    console.print(f'\n"{text[:90]}" -> {last.labels[int(said.argmax())]} ({100 * said.max():.0f} %)', markup=False)
    console.print(f"bundle: {folder / 'bundle'}\nreport: {page}   (open it in a browser)")
    return outcomes


def built_in(folder: Path, config: QuickstartConfig) -> tuple[Task, Source]:
    """The labelled task and the file of unlabelled text, both written into the run's folder so that they can be looked at."""
    console.print("reading the documentation strings of the installed libraries")
    found = passages(config.packages)
    task = docstring_task(found, config.seed)
    texts = pretraining_text(found, task)
    save_task(task, folder / "task")
    file = folder / "documentation.ndjson"
    write_forced(file, "".join(json.dumps({"text": text}) + "\n" for text in texts).encode())
    console.print(
        f"{len(texts):,} passages to pretrain on; {len(task.labels)} areas to tell apart in {len(task.test):,} test passages"
    )
    return task, Source(path=str(file))


def _adapt_config(config: QuickstartConfig) -> AdaptConfig:
    train = TrainConfig(
        epochs=config.epochs, batch=16, optimizer="muon", muon_rate=0.004, learning_rate=1e-3, warmup=0.1, weight_decay=0.01
    )
    return AdaptConfig(
        model=f"{config.out}/pretrained",
        task=f"{config.out}/task",
        out=config.out,
        tune=FineTuneConfig(train=train),
        seeds=config.seeds,
        seed=config.seed,
    )


def _adapt(pretrained: Pretrained, task: Task, labels: int, settings: AdaptConfig) -> Outcome:
    console.print(f"\nadapting to {labels} labelled texts; each of {settings.seeds} seeds draws its own")
    outcome = compare(pretrained.bundle, task, settings, labels)
    print_comparison(f"{labels} labels: {task.metric}", outcome.comparison)
    return outcome
