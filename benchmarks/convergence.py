"""Better, not only faster: tokens and seconds until a held-out loss is reached, on WikiText-2.

The goal is the loss that the GPT-2 recipe reaches with ``GOAL`` tokens: learned positions, AdamW for all parameters, a cosine to a
tenth; its learning rate and batch size are the best of those tried. Both recipes run in our own loop, so that seconds differ by the
recipe alone. Ours runs with several budgets, each with its own schedule; the tokens to the goal are read off a line through losses
and logarithms of tokens. ``recipe`` and ``mask_rate`` vary ours.

Needs WikiText-2 in ``$WARMSTART_DATA`` (default ../shared/data). Half an hour on one core.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from benchmarks.harness import Step, show, table, time_in_turn

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.commands.settings import PretrainConfig
from warmstart.corpora.rows import PretrainingRows, pretraining_batches
from warmstart.corpora.store import TokenText
from warmstart.corpora.write import tokenized_text
from warmstart.data.read import documents_of
from warmstart.data.source import Source
from warmstart.heads.language_modeling import LMHead
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.seeding import seed_torch
from warmstart.stats.intervals import t_interval
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer
from warmstart.training.config import PretrainTrainConfig, TrainConfig
from warmstart.training.held_out import held_out_metrics
from warmstart.training.loop import TrainingJob, train
from warmstart.types import Batch

SEEDS = (0, 1, 2)
GOAL = 2_000_000
"""tokens of the recipe that sets the goal"""
BUDGETS = (350_000, 500_000)
DEFAULT = PretrainConfig().train
TIMED = 12
"""steps that are timed together"""
Batches = Callable[[int], Sequence[Batch]]


@dataclass(frozen=True)
class Recipe:
    """What differs from one run to another."""

    backbone: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    head: dict[str, Any] = field(default_factory=dict)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    lengths: bool = False
    """rows of 64, then 128, then 256 tokens"""
    z_loss: float = 0.0
    begin: Callable[[Model], object] | None = None
    """changes the fresh model"""


GPT2 = Recipe(
    {"positions": "learned", "activation": "gelu-tanh"},
    {"optimizer": "adamw", "learning_rate": 3e-3, "schedule": "cosine", "floor": 0.1, "beta_2": 0.95, "batch": 8},
)
OURS = Recipe(train=DEFAULT.to_dict())


@dataclass(frozen=True)
class Reached:
    """What came of one run."""

    tokens: int
    seconds: float
    loss: float


@cache
def texts() -> tuple[Tokenizer, TokenText, TokenText]:
    """A tokenizer of 8,192 pieces, and WikiText-2's training and validation text."""
    data = Path(os.environ.get("WARMSTART_DATA", "../shared/data")) / "wikitext-2"
    sources = [[Source(path=str(data / f"{name}.txt.gz"))] for name in ("train", "valid")]
    tokenizer = train_tokenizer(documents_of(sources[0]), TokenizerConfig(vocab_size=8192))
    folder = Path(gettempdir()) / "warmstart-reaching"
    return tokenizer, tokenized_text(sources[0], tokenizer, folder), tokenized_text(sources[1], tokenizer, folder)


def prepared(recipe: Recipe, budget: dict[str, Any], seed: int) -> tuple[Model, TrainingJob, TrainConfig]:
    """A fresh model and what it has to do, by a recipe."""
    tokenizer, text, _ = texts()
    config = BackboneConfig.build(recipe.backbone)
    rows = PretrainingRows(text, tokenizer.vocabulary(), recipe.objective, config.max_length)
    settings = PretrainTrainConfig.build(recipe.train | {"tokens": None} | budget)
    seed_torch(seed, "backbone")
    backbone = Backbone(config, tokenizer.vocab_size)
    head = fresh_head(LMHeadConfig.build(recipe.head), backbone, seed)
    model = Model(backbone, head, causal=recipe.objective.name == "causal")
    if recipe.begin:
        recipe.begin(model)
    steps = settings.count_steps(len(rows), rows.mean_tokens, 1)
    assert steps is not None
    batches: Batches = pretraining_batches(rows, settings.batch, 1, seed)
    if recipe.lengths:
        batches = growing(batches, steps)
    loss = (lambda batch: with_z(model, batch, recipe.z_loss)) if recipe.z_loss else None
    return model, TrainingJob(batches, steps, seed, loss=loss, progress_bar=False), settings


def reach(recipe: Recipe, tokens: int, seed: int) -> Reached:
    """Train by a recipe with so many tokens."""
    model, job, settings = prepared(recipe, {"tokens": tokens}, seed)
    done = train(model, job, settings)
    tokenizer, _, kept = texts()
    asked = ObjectiveConfig(name=recipe.objective.name, mask_rate=0.15)
    measured = PretrainingRows(kept, tokenizer.vocabulary(), asked, model.backbone.config.max_length)
    found = Reached(done.tokens, done.seconds, held_out_metrics(model, measured)["loss"])
    print(f"{recipe} seed {seed}: {found}", flush=True)
    return found


def growing(batches: Batches, steps: int) -> Batches:
    """The same tokens in rows of a quarter of the length for a quarter of the steps, of half of it for another one."""

    def cut(step: int) -> list[Batch]:
        parts = 4 if step < steps / 4 else 2 if step < steps / 2 else 1
        found = []
        for batch in batches(step):
            assert batch.targets is not None
            shape = (len(batch.ids) * parts, batch.ids.shape[1] // parts)
            found.append(replace(batch, ids=batch.ids.reshape(shape), targets=batch.targets.reshape(shape)))
        return found

    return cut


def with_z(model: Model, batch: Batch, weight: float) -> torch.Tensor:
    """The loss with ``weight`` times the squared logarithm of the softmax's sum on top (Chowdhery et al. 2022, section 5)."""
    assert isinstance(model.head, LMHead)
    assert batch.targets is not None
    states = model.backbone(batch.ids, causal=batch.causal).last_hidden_state
    logits = F.linear(states, model.head.weight).float().flatten(0, 1)
    sums = logits.logsumexp(dim=-1)
    return F.cross_entropy(logits, batch.targets.flatten(), reduction="sum") + weight * (sums**2).sum()


def tokens_to(goal: float, runs: Sequence[Reached]) -> float:
    """How many tokens a goal takes, from runs with several budgets: a line through losses and logarithms of tokens."""
    slope, height = np.polyfit([run.loss for run in runs], np.log([run.tokens for run in runs]), 1)
    return float(np.exp(height + slope * goal))


def mean_interval(values: Sequence[float], form: str) -> str:
    """The mean over seeds and its 95% interval."""
    found = t_interval(values)
    return f"{format(found.mean, form)} ({format(found.low, form)} to {format(found.high, form)})"


def stepping(recipe: Recipe) -> Step:
    """A few training steps of a recipe, to be timed."""
    model, job, settings = prepared(recipe, {"steps": TIMED}, 0)
    return lambda: train(model, job, settings)


def speeds(rounds: int = 7) -> list[float]:
    """Tokens per second of both recipes, GPT-2's first, timed in turn: other programs disturb runs of minutes too much."""
    length = BackboneConfig().max_length
    timed = time_in_turn({"GPT-2": partial(stepping, GPT2), "ours": partial(stepping, OURS)}, rounds, warm=1)
    rows = [TIMED * recipe.train["batch"] * length for recipe in (GPT2, OURS)]
    return [tokens / statistics.median(one.seconds) for tokens, one in zip(rows, timed, strict=True)]


def run() -> str:
    """The goal, and the tokens and seconds to reach it."""
    goals = [reach(GPT2, GOAL, seed) for seed in SEEDS]
    ours = [[reach(OURS, budget, seed) for budget in BUDGETS] for seed in SEEDS]
    return convergence_table(goals, ours, speeds())


def convergence_table(goals: Sequence[Reached], ours: Sequence[Sequence[Reached]], rates: Sequence[float]) -> str:
    """The table; seconds are tokens divided by the speeds that were timed in turn."""
    tokens = [tokens_to(goal.loss, runs) for goal, runs in zip(goals, ours, strict=True)]
    theirs = [goal.tokens / rates[0] for goal in goals]
    gains = [seconds / (needed / rates[1]) for seconds, needed in zip(theirs, tokens, strict=True)]
    ours_took = mean_interval([needed / rates[1] for needed in tokens], ".0f")
    rows = [
        ("AdamW, GPT-2's recipe", f"{GOAL:,}", mean_interval([g.loss for g in goals], ".3f"), f"{theirs[0]:.0f}", "1"),
        (
            "ours, to the same loss",
            mean_interval(tokens, ",.0f"),
            "the same",
            ours_took,
            mean_interval(gains, ".2f"),
        ),
    ]
    for place, budget in enumerate(BUDGETS):
        losses = mean_interval([runs[place].loss for runs in ours], ".3f")
        rows.append(("ours", f"{budget:,}", losses, f"{budget / rates[1]:.0f}", ""))
    return table(("recipe", "tokens", "held-out loss, nats", "seconds", "times fewer seconds"), rows)


def compared(title: str, found: dict[str, list[Reached]], steps: dict[str, float] | None = None) -> str:
    """Losses minus those of the first row, seed by seed, and the relative time of a step."""
    base, rows = next(iter(found.values())), []
    for name, runs in found.items():
        gaps = [one.loss - other.loss for one, other in zip(runs, base, strict=True)]
        gap = mean_interval(gaps, "+.3f") if runs is not base else ""
        took = (f"{steps[name]:.2f}",) if steps else ()
        rows.append((name, mean_interval([one.loss for one in runs], ".3f"), gap, *took))
    header = (title, "held-out loss, nats", "minus the first row", *(("relative step time",) if steps else ()))
    return table(header, rows)


if __name__ == "__main__":
    show(run)
