"""``study ablate``: every part of a model erased in turn, what that costs beside the noise, and heads taken out for good."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from pydantic import Field
from tyro.conf import Positional

from warmstart.analysis.ablate import Fill, Means, Part, difference_from, erased, means_of, parts_of, shuffled, zero
from warmstart.config import Config
from warmstart.engine import console
from warmstart.errors import ConfigError, ModelError
from warmstart.evaluate.differences import Judged, holm
from warmstart.model import Bundle, Model, parameter_counts, save
from warmstart.model.prune import check_prunable, prune_heads
from warmstart.report import Figure, Section, Table
from warmstart.report.ablate import SHOWN, heads_chart, parts_chart
from warmstart.workflows.run import load_model, open_run, provenance
from warmstart.workflows.studies.conclude import Study, conclude
from warmstart.workflows.studies.effects import HEADER, Effect, Found, Pruned
from warmstart.workflows.studies.wording import model_name
from warmstart.workflows.studies.yardstick import Yardstick, yardstick_for

TOLERANCE = 1e-4
"""how far a pruned model may be from the whole one with the same heads at zero, as a share of the largest state"""
CHECKED = 64
"""texts on which that is looked at"""
TOP = 15
"""rows of the terminal's table"""
STANDS = {"mean": "its mean over the texts", "zero": "zero", "resample": "what it says of other tokens"}


class AblateConfig(Config):
    """Erase every head, attention, feed-forward layer and block in turn, and measure how much worse the model gets."""

    model: Positional[str]
    """a bundle, or a run's folder"""
    task: Positional[str | None] = None
    """an adapted model's task: its manifest (YAML); measured is its metric on the test split"""
    text: tuple[str, ...] = ()
    """a language model's text: files or folders; measured is the loss per token"""
    out: str = "runs/ablate"
    """folder of the run"""
    first: int = Field(300, ge=2)
    """measure on so many passages from the beginning of the text, or so many test texts, drawn evenly over the labels"""
    by: Literal["mean", "zero", "resample"] = "mean"
    """what stands for an erased part: its mean over the texts, zero, or what it says of other tokens, drawn at random"""
    repeats: int = Field(3, gt=1)
    """resample: draws of each part"""
    dimensions: int = Field(0, ge=0)
    """also erase the dimensions of the embedding, in so many groups of neighbours; 0: not"""
    prune: int = Field(0, ge=0)
    """take out for good so many heads of each block, those that are missed least, and save the smaller model; 0: none"""
    seed: int = Field(0, ge=0)
    """start of every random choice"""


def ablate(config: AblateConfig) -> Found:
    """Erase, measure, print and write the page; the ``study ablate`` command."""
    bundle = load_model(config.model)
    model, shape = bundle.model, bundle.model.backbone.config
    if config.prune:
        _check_prune(bundle, config.prune)
    parts = parts_of(shape, config.dimensions)
    if not parts:
        raise ModelError("there is nothing to erase: this backbone has no blocks; give --dimensions to erase its embedding")
    stick = yardstick_for(bundle, config.task, config.text, config.first, config.seed)
    folder = open_run(config.out, config, resume=False)
    start = time.perf_counter()
    with means_of(model, parts if config.by == "mean" else ()) as means:
        whole = stick.judge(model)
    took = time.perf_counter() - start
    total = sum(len(_fills(config, means, part)) for part in parts)
    console.print(f"{len(parts)} parts on {len(stick.encoded):,} texts: at most about {took * total:.0f} s", markup=False)
    judged = [judge_without(model, [part], _fills(config, means, part), stick) for part in parts]
    found = Found(stick, whole, _ranked(parts, judged, whole, stick), total + 1, time.perf_counter() - start)
    if config.prune:
        found = replace(found, pruned=_prune(bundle, found, config, means, folder))
    conclude(_study(found, config), config, folder, [config.model])
    return found


def _check_prune(bundle: Bundle, count: int) -> None:
    """Before anything is measured."""
    check_prunable(bundle.model)
    if count >= (heads := bundle.model.backbone.config.heads):
        raise ConfigError(f"at least one of {heads} heads must stay in every block, but --prune {count} leaves none")
    if bundle.answers:
        raise ModelError("what this model knows of its answers was proved with all heads; prune the language model it was made of")


def judge_without(model: Model, parts: Sequence[Part], fills: Sequence[Fill], stick: Yardstick) -> Judged:
    """What is measured with these parts erased, once with each of ``fills``."""
    said = []
    for fill in fills:
        with erased(model, parts, fill):
            said.append(stick.judge(model))
    return Judged(parts[0].name, tuple(one.scores[0] for one in said), np.concatenate([one.resampled for one in said]))


def _fills(config: AblateConfig, means: Means, part: Part) -> list[Fill]:
    """What stands in; draws of others' states are repeated, but a block is only skipped."""
    if config.by == "resample":
        return [shuffled(config.seed, repeat) for repeat in range(1 if part.kind == "block" else config.repeats)]
    return [means if config.by == "mean" else zero]


def _ranked(parts: Sequence[Part], judged: Sequence[Judged], whole: Judged, stick: Yardstick) -> list[Effect]:
    gaps = [stick.worse(one, whole) for one in judged]
    chances = holm([gap.p for gap in gaps])
    effects = [Effect(*row) for row in zip(parts, judged, gaps, chances, strict=True)]
    return sorted(effects, key=lambda one: -one.gap.mean)


def _prune(bundle: Bundle, found: Found, config: AblateConfig, means: Means, folder: Path) -> Pruned:
    """The heads of each block that are missed least, taken out; refuses to save a model that is not what it should be."""
    stick, model, shape = found.stick, bundle.model, bundle.model.backbone.config
    blocks = [[one for one in reversed(found.heads) if one.part.block == i][: config.prune] for i in range(shape.depth)]
    dropped = [one for block in blocks for one in block]
    gone = {(one.part.block, one.part.head) for one in dropped}
    keep = [[j for j in range(shape.heads) if (i, j) not in gone] for i in range(shape.depth)]
    parts, smaller = [one.part for one in dropped], prune_heads(model, keep)
    few = stick.encoded.take(np.arange(min(CHECKED, len(stick.encoded))))
    differs = difference_from(model, parts, smaller, few, bundle.tokenizer.specials.pad)
    if not differs <= TOLERANCE:
        raise ModelError(
            f"the pruned model must say what the whole one says with the same heads at zero, but differs by {differs:.2g} of the "
            "largest state; it is not saved"
        )
    after, together = stick.judge(smaller), judge_without(model, parts, _fills(config, means, parts[0]), stick)
    added = _added([one.judged for one in dropped], found.whole)
    last = bundle.history[-1] if bundle.history else {}
    entry: dict[str, Any] = {key: last[key] for key in ("generates", "objective") if key in last}
    entry |= {"command": "study ablate", "kept_heads": keep, "by": config.by, "provenance": provenance()}
    # it is calibrated no more: what it knew of its confidence was measured with all heads
    save(replace(bundle, model=smaller, history=(*bundle.history, entry), calibration=None), folder / "bundle")
    console.print(f"bundle: {folder / 'bundle'} (reloaded in a fresh process, outputs the same)", markup=False)
    return Pruned(
        parts,
        stick.worse(together, found.whole),
        sum(one.gap.mean for one in dropped),
        stick.worse(together, added),
        stick.worse(after, found.whole),
        after.scores[0],
        (parameter_counts(model)["total"], parameter_counts(smaller)["total"]),
        differs,
    )


def _added(alone: Sequence[Judged], whole: Judged) -> Judged:
    """What would be measured if changes added up."""
    scores = whole.scores[0] + sum(np.array(one.scores) - whole.scores[0] for one in alone)
    return Judged("sum", tuple(np.atleast_1d(scores)), whole.resampled + sum(one.resampled - whole.resampled for one in alone))


def _study(found: Found, config: AblateConfig) -> Study:
    stick, axis = found.stick, f"{found.stick.name}: worse by, in {found.stick.unit}"
    rows, heads = [one.plain() for one in found.effects], [one.plain() for one in found.heads]
    figures = []
    for name, chosen in (("parts", [row for row in rows if row["kind"] != "head"]), ("heads", heads)):
        caption = (
            f"What erasing one of the {name} costs{f', the {SHOWN} that cost most' if len(chosen) > SHOWN else ''}, with 95 % "
            "intervals over texts; pale: not seen to differ from no change."
        )
        figures += [Figure(name, caption, parts_chart(chosen, axis))] if chosen else []
    if heads:
        said = "All heads on one grid; a dot: seen to differ from no change, corrected for the number of all parts."
        figures.append(Figure("grid", said, heads_chart(heads, axis)))
    stands = f"What stands for an erased part: {STANDS[config.by]}; blocks are skipped."
    table = [one.cells(stick) for one in found.effects]
    tiles = [(stick.name, stick.said(found.whole.scores[0])), ("texts", f"{len(stick.encoded):,}"), ("parts", f"{len(rows):,}")]
    return Study(
        f"Ablation: {model_name(config.model)}",
        found.sentences(),
        (
            Section("What each part is worth", (stands,), figures),
            Section("All parts", (f"{stick.name.capitalize()}: worse by, in {stick.unit}.",), (Table(HEADER, table),)),
        ),
        {"parts": pl.DataFrame(rows)},
        tiles,
        (table[:TOP], HEADER),
    )
