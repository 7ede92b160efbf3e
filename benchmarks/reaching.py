"""Better, not only faster: tokens and seconds until a held-out loss is reached, on WikiText-2.

The goal is what the GPT-2 recipe reaches with ``GOAL`` tokens: learned positions, AdamW for all, a cosine to a tenth; its rate and
batch are the best of those tried. Both recipes run in our own loop, so that seconds differ by the recipe alone. Ours runs with
several budgets, each with its own schedule; the tokens that the goal takes are read off a line through losses and logarithms of
tokens. ``recipe`` and ``hiding`` take ours apart.

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
from benchmarks.pairs import Step, in_turn, table

from warmstart.backbone import Backbone, BackboneConfig
from warmstart.data import Corpus, Source, documents_of, prepare
from warmstart.data.batch import Rows, pretraining_batches
from warmstart.engine import TrainConfig, Work, train
from warmstart.evaluate.language import held_out
from warmstart.evaluate.seeds import interval
from warmstart.heads import LanguageHead, LanguageHeadConfig
from warmstart.model import Model, fresh_head
from warmstart.objectives import ObjectiveConfig
from warmstart.seeding import seed_torch
from warmstart.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from warmstart.types import Batch
from warmstart.workflows.pretrain import PretrainConfig, PretrainTrainConfig

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


GPT2 = Recipe(
    {"positions": "learned", "activation": "gelu-tanh"},
    {"optimizer": "adamw", "learning_rate": 3e-3, "schedule": "cosine", "floor": 0.1, "beta_2": 0.95, "batch": 8},
)
OURS = Recipe(train=DEFAULT.plain())


@dataclass(frozen=True)
class Reached:
    """What came of one run."""

    tokens: int
    seconds: float
    loss: float


@cache
def texts() -> tuple[Tokenizer, Corpus, Corpus]:
    """A tokenizer of 8,192 pieces, and WikiText-2's training and validation text."""
    data = Path(os.environ.get("WARMSTART_DATA", "../shared/data")) / "wikitext-2"
    sources = [[Source(path=str(data / f"{name}.txt.gz"))] for name in ("train", "valid")]
    tokenizer = train_tokenizer(documents_of(sources[0]), TokenizerConfig(vocab_size=8192))
    folder = Path(gettempdir()) / "warmstart-reaching"
    return tokenizer, prepare(sources[0], tokenizer, folder), prepare(sources[1], tokenizer, folder)


def prepared(recipe: Recipe, budget: dict[str, Any], seed: int) -> tuple[Model, Work, TrainConfig]:
    """A fresh model and what it has to do, by a recipe."""
    tokenizer, text, _ = texts()
    config = BackboneConfig.build(recipe.backbone)
    rows = Rows(text, tokenizer.vocabulary(), recipe.objective, config.max_tokens)
    settings = PretrainTrainConfig.build(recipe.train | {"tokens": None} | budget)
    seed_torch(seed, "backbone")
    backbone = Backbone(config, tokenizer.vocab_size)
    head = fresh_head(LanguageHeadConfig.build(recipe.head), backbone, seed)
    model = Model(backbone, head, causal=recipe.objective.name == "causal")
    steps = settings.count_steps(len(rows), rows.mean_tokens, 1)
    assert steps is not None
    batches: Batches = pretraining_batches(rows, settings.batch, 1, seed)
    if recipe.lengths:
        batches = growing(batches, steps)
    loss = (lambda batch: with_z(model, batch, recipe.z_loss)) if recipe.z_loss else None
    return model, Work(batches, steps, seed, loss=loss, show=False), settings


def reach(recipe: Recipe, tokens: int, seed: int) -> Reached:
    """Train by a recipe with so many tokens."""
    model, work, settings = prepared(recipe, {"tokens": tokens}, seed)
    done = train(model, work, settings)
    tokenizer, _, kept = texts()
    asked = ObjectiveConfig(name=recipe.objective.name, mask_rate=0.15)
    measured = Rows(kept, tokenizer.vocabulary(), asked, model.backbone.config.max_tokens)
    found = Reached(done.tokens, done.seconds, held_out(model, measured)["loss"])
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
    assert isinstance(model.head, LanguageHead)
    assert batch.targets is not None
    states = model.backbone(batch.ids, causal=batch.causal).last
    logits = F.linear(states, model.head.weight).float().flatten(0, 1)
    sums = logits.logsumexp(dim=-1)
    return F.cross_entropy(logits, batch.targets.flatten(), reduction="sum") + weight * (sums**2).sum()


def tokens_to(goal: float, runs: Sequence[Reached]) -> float:
    """How many tokens a goal takes, from runs with several budgets: a line through losses and logarithms of tokens."""
    slope, height = np.polyfit([run.loss for run in runs], np.log([run.tokens for run in runs]), 1)
    return float(np.exp(height + slope * goal))


def said(values: Sequence[float], form: str) -> str:
    """The mean over seeds and its 95 % interval."""
    found = interval(values)
    return f"{format(found.mean, form)} ({format(found.low, form)} to {format(found.high, form)})"


def stepping(recipe: Recipe) -> Step:
    """A few training steps of a recipe, to be timed."""
    model, work, settings = prepared(recipe, {"steps": TIMED}, 0)
    return lambda: train(model, work, settings)


def speeds(rounds: int = 7) -> list[float]:
    """Tokens a second of both recipes, GPT-2's first, timed in turn: runs of minutes meet too much other work."""
    length = BackboneConfig().max_tokens
    timed = in_turn({"GPT-2": partial(stepping, GPT2), "ours": partial(stepping, OURS)}, rounds, warm=1)
    rows = [TIMED * recipe.train["batch"] * length for recipe in (GPT2, OURS)]
    return [tokens / statistics.median(one.seconds) for tokens, one in zip(rows, timed, strict=True)]


def run() -> str:
    """The goal, and what it takes."""
    goals = [reach(GPT2, GOAL, seed) for seed in SEEDS]
    ours = [[reach(OURS, budget, seed) for budget in BUDGETS] for seed in SEEDS]
    return told(goals, ours, speeds())


def told(goals: Sequence[Reached], ours: Sequence[Sequence[Reached]], rates: Sequence[float]) -> str:
    """The table; seconds are tokens by the rates that were timed in turn."""
    tokens = [tokens_to(goal.loss, runs) for goal, runs in zip(goals, ours, strict=True)]
    theirs = [goal.tokens / rates[0] for goal in goals]
    gains = [seconds / (needed / rates[1]) for seconds, needed in zip(theirs, tokens, strict=True)]
    ours_took = said([needed / rates[1] for needed in tokens], ".0f")
    rows = [
        ("AdamW, GPT-2's recipe", f"{GOAL:,}", said([g.loss for g in goals], ".3f"), f"{theirs[0]:.0f}", "1"),
        (
            "ours, to the same loss",
            said(tokens, ",.0f"),
            "the same",
            ours_took,
            said(gains, ".2f"),
        ),
    ]
    for place, budget in enumerate(BUDGETS):
        losses = said([runs[place].loss for runs in ours], ".3f")
        rows.append(("ours", f"{budget:,}", losses, f"{budget / rates[1]:.0f}", ""))
    return table(("recipe", "tokens", "held-out loss, nats", "seconds", "times fewer seconds"), rows)


def compared(title: str, found: dict[str, list[Reached]], steps: dict[str, float] | None = None) -> str:
    """Losses beside the first row's, seed by seed, and how many times as long as its steps theirs take."""
    base, rows = next(iter(found.values())), []
    for name, runs in found.items():
        gaps = [one.loss - other.loss for one, other in zip(runs, base, strict=True)]
        gap = said(gaps, "+.3f") if runs is not base else ""
        took = (f"{steps[name]:.2f}",) if steps else ()
        rows.append((name, said([one.loss for one in runs], ".3f"), gap, *took))
    header = (title, "held-out loss, nats", "against the first row", *(("times as long a step",) if steps else ()))
    return table(header, rows)


if __name__ == "__main__":
    print(run())
