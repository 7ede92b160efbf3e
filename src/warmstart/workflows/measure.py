"""What a training step and an inference really take, each in a fresh process of its own, on the processor.

The measure is the process's own high-water mark of resident memory, less the mark after the imports and one run of a tiny model,
which loads the library's code (some 100 MB) and would be there for any model. On Linux it is ``VmHWM`` of the process itself:
``resource.getrusage`` would hand a child its parent's mark (it is kept across ``exec``); elsewhere it is ``ru_maxrss``.

It knows no data: rows are random tokens, drawn from the seed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import torch

from warmstart.backbone import Backbone, BackboneConfig, Cache
from warmstart.engine import TrainConfig, Work, train
from warmstart.engine.highwater import high_water
from warmstart.errors import ModelError
from warmstart.heads import LanguageHead, LanguageHeadConfig
from warmstart.model import Account, Load, Model, fresh_head
from warmstart.processes import run_python
from warmstart.seeding import rng
from warmstart.types import IGNORE, Batch

STEPS = 3
"""the first one warms up, and makes the optimiser's moments; the median of the others is given"""


def measure(settings: dict[str, Any], load: Load, made: Account) -> dict[str, float]:
    """Measured beside ``made``: bytes of ``training`` and ``inference``, ``seconds``, ``tokens_per_second``, ``flops_per_second``.

    ``settings`` are those of the ``account`` command. Raises ``ModelError`` where a process ends badly, as for want of memory.
    """
    training, inference = (_in_fresh_process(mode, settings, load) for mode in ("training", "inference"))
    speed = load.batch * made.flops.tokens / training["seconds"]
    return {
        "training": training["bytes"],
        "inference": inference["bytes"],
        "seconds": training["seconds"],
        "tokens_per_second": speed,
        "flops_per_second": speed * made.flops.training,
    }


def _in_fresh_process(mode: str, settings: dict[str, Any], load: Load) -> dict[str, float]:
    code = "from warmstart.workflows.account import measured; measured()"
    task = json.dumps({"mode": mode, "settings": settings, "load": vars(load)})
    run = run_python(code, text=task)
    if run.returncode:
        said = run.stderr.strip().splitlines()[-1:] or [f"exit code {run.returncode}"]
        raise ModelError(f"the measured {mode} must end well, but it did not: {said[0]}; try a smaller --batch or --length")
    return dict(json.loads(run.stdout.splitlines()[-1]))


def take(mode: str, make: Callable[[], Model], load: Load, settings: TrainConfig) -> dict[str, float]:
    """In the measuring process: the ``bytes`` that a model and its work take, and the ``seconds`` of the work."""
    tiny = Backbone(BackboneConfig(width=8, depth=1, heads=2, feedforward=8), 50)
    work(mode, Model(tiny, fresh_head(LanguageHeadConfig(), tiny, 0), causal=True), Load(2, 8), settings)
    before = high_water()
    seconds = work(mode, make(), load, settings)
    return {"bytes": high_water() - before, "seconds": seconds}


def work(mode: str, model: Model, load: Load, settings: TrainConfig) -> float:
    """Train ``STEPS`` steps, or infer once; the seconds of one."""
    if mode == "inference":
        started = time.perf_counter()
        _infer(model.eval(), load)
        return time.perf_counter() - started
    starts: list[float] = []

    def batches(step: int) -> list[Batch]:
        starts.append(time.perf_counter())
        return [_batch(model, load, step)]

    train(model, Work(batches, STEPS, 0, show=False), settings)
    starts.append(time.perf_counter())
    return median(after - before for before, after in pairwise(starts[1:]))


def _batch(model: Model, load: Load, step: int) -> Batch:
    """Random rows, of which as many tokens are scored as in the batch that scores most."""
    draw = rng(0, "measure", step)
    ids = draw.integers(0, model.backbone.vocab_size, (load.batch, load.length(model)))
    if not isinstance(model.head, LanguageHead):
        targets = draw.integers(0, getattr(model.head.config, "classes", 1), load.batch)
        return Batch(torch.from_numpy(ids), torch.from_numpy(targets), causal=model.causal, count=load.batch)
    scored = max(1, round(ids.size * (load.most_scored or load.scored)))
    hidden = np.arange(ids.size).reshape(ids.shape) >= scored
    targets = np.where(hidden, IGNORE, ids)
    return Batch(torch.from_numpy(ids), torch.from_numpy(targets), causal=model.causal, count=scored)


@torch.inference_mode()
def _infer(model: Model, load: Load) -> None:
    """A language head reads all but one token of its rows, keeps keys and values, and writes one more; others read whole rows."""
    ids = _batch(model, load, 0).ids
    if not isinstance(model.head, LanguageHead):
        model(ids)
        return
    cache = Cache.empty(model.backbone.config.depth, model.backbone.config.max_tokens)
    for part in (ids[:, :-1], ids[:, -1:]) if ids.shape[1] > 1 else (ids,):
        model.head(model.backbone(part, cache=cache).last[:, -1:])
