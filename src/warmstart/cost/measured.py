"""What a training step and inference take in fact, each in a fresh process of its own, on the CPU.

Measured is the peak of resident memory (``training/peak_memory.py``) on top of what the imports and one run of a tiny model take:
these load the library's code (some 100 MB) and would be there for any model.

No data are needed: the rows are random tokens, drawn from the seed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import torch

from warmstart.backbone.attention import KVCache
from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.cost.cost import Cost
from warmstart.cost.workload import Workload
from warmstart.errors import ModelError
from warmstart.heads.head import LossHead
from warmstart.heads.language_modeling import LMHead, LMHeadConfig
from warmstart.model.model import Model, fresh_head
from warmstart.seeding import rng
from warmstart.system.processes import run_python
from warmstart.training.config import TrainConfig
from warmstart.training.loop import TrainingJob, train
from warmstart.training.peak_memory import track_peak_memory
from warmstart.types import IGNORE, Batch

STEPS = 3
"""the first one warms up and makes the optimiser state; the median of the others is reported"""


def measure_cost(code: str, settings: dict[str, Any], workload: Workload, cost: Cost) -> dict[str, float]:
    """Bytes of training and inference, seconds per step, tokens and FLOPs per second; see ``Cost.measured``.

    The measuring processes run ``code``, which reads ``settings`` and ``workload`` from standard input and ends with
    ``measure_here``. Raises ``ModelError`` if one fails, for instance because memory runs out.
    """
    training, inference = (_in_fresh_process(code, mode, settings, workload) for mode in ("training", "inference"))
    tokens_per_second = workload.batch * cost.flops.tokens / training["seconds"]
    return {
        "training": training["bytes"],
        "inference": inference["bytes"],
        "seconds": training["seconds"],
        "tokens_per_second": tokens_per_second,
        "flops_per_second": tokens_per_second * cost.flops.training,
    }


def _in_fresh_process(code: str, mode: str, settings: dict[str, Any], workload: Workload) -> dict[str, float]:
    task = json.dumps({"mode": mode, "settings": settings, "workload": vars(workload), "folder": os.getcwd()})
    run = run_python(code, text=task)
    if run.returncode:
        reason = run.stderr.strip().splitlines()[-1:] or [f"exit code {run.returncode}"]
        raise ModelError(f"measuring {mode} failed: {reason[0]}; try a smaller --batch or --length")
    return dict(json.loads(run.stdout.splitlines()[-1]))


def measure_here(mode: str, make_model: Callable[[], Model], workload: Workload, settings: TrainConfig) -> dict[str, float]:
    """In the measuring process: the ``bytes`` that a model takes at work, and the ``seconds`` of one step or inference."""
    tiny = Backbone(BackboneConfig(width=8, depth=1, heads=2, feedforward=8), 50)
    _run(mode, Model(tiny, fresh_head(LMHeadConfig(), tiny, 0), causal=True), Workload(2, 8), settings)
    with track_peak_memory(torch.device("cpu")) as peak:
        seconds = _run(mode, make_model(), workload, settings)
    return {"bytes": peak.bytes, "seconds": seconds}


def _run(mode: str, model: Model, workload: Workload, settings: TrainConfig) -> float:
    """Train ``STEPS`` steps, or infer once; the seconds of one."""
    if mode == "inference":
        started = time.perf_counter()
        _infer(model.eval(), workload)
        return time.perf_counter() - started
    starts: list[float] = []

    def batches(step: int) -> list[Batch]:
        starts.append(time.perf_counter())
        return [_random_batch(model, workload, step)]

    train(model, TrainingJob(batches, STEPS, 0, progress_bar=False), settings)
    starts.append(time.perf_counter())
    return median(after - before for before, after in pairwise(starts[1:]))


def _random_batch(model: Model, workload: Workload, step: int) -> Batch:
    """Random rows with targets for the head; a language head has as many as in the batch with the most."""
    draw = rng(0, "measure", step)
    ids = draw.integers(0, model.backbone.vocab_size, (workload.batch, workload.length(model)))
    if isinstance(model.head, LossHead):
        made = model.head.random_targets(workload.batch, ids.shape[1], draw)
        return Batch(torch.from_numpy(ids), made, causal=model.causal, count=len(made))
    count = max(1, round(ids.size * (workload.max_target_fraction or workload.target_fraction)))
    without_target = np.arange(ids.size).reshape(ids.shape) >= count
    targets = np.where(without_target, IGNORE, ids)
    return Batch(torch.from_numpy(ids), torch.from_numpy(targets), causal=model.causal, count=count)


@torch.inference_mode()
def _infer(model: Model, workload: Workload) -> None:
    """With a language head: read all but one token, keep keys and values, and read the last token; else read whole rows."""
    ids = _random_batch(model, workload, 0).ids
    if not isinstance(model.head, LMHead):
        model(ids)
        return
    cache = KVCache.empty(model.backbone.config.depth, model.backbone.config.max_length)
    for part in (ids[:, :-1], ids[:, -1:]) if ids.shape[1] > 1 else (ids,):
        model.head(model.backbone(part, kv_cache=cache).last_hidden_state[:, -1:])
