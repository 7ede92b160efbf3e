"""Plain matrix products against torch's fused kernel, for whole training steps on short rows, in turn in one process.

    python benchmarks/attention.py

Prints seconds per step (median, lowest, highest of the rounds) and the ratio. The result is
``backbone.attention.MAX_EXPLICIT_KEYS``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from warmstart.backbone import attention
from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.registry import OBJECTIVES
from warmstart.seeding import rng
from warmstart.system.device import autocast, pick_device
from warmstart.system.machine import describe_machine
from warmstart.training.config import TrainConfig
from warmstart.training.optimizers import Optimizer, ParameterGroup
from warmstart.types import SpecialTokens, Vocabulary

ROUNDS = 5
VOCABULARY = Vocabulary(8192, SpecialTokens(pad=0, unk=1, eos=2, mask=3, cls=4), np.ones(8192, dtype=bool))
WORK = (("masked", 64, 32), ("masked", 128, 32), ("masked", 256, 16), ("causal", 256, 16), ("causal", 512, 8))
"""objective, tokens of a row, rows of a batch"""


def step(objective: str, tokens: int, rows: int) -> Callable[[], None]:
    """One training step of the default backbone: forward, backward, optimiser."""
    backbone = Backbone(BackboneConfig(max_length=tokens), VOCABULARY.size)
    model = Model(backbone, fresh_head(LMHeadConfig(), backbone, 0), causal=objective == "causal").train()
    optimizer = Optimizer([ParameterGroup(dict(model.named_parameters()))], TrainConfig())
    ids = rng(0, "benchmark").integers(5, VOCABULARY.size, (rows, tokens + 1))
    config = ObjectiveConfig(name=objective)
    batch = OBJECTIVES[objective].make(ids, np.full(rows, tokens + 1), rng(0, "hide"), VOCABULARY, config)

    def run() -> None:
        with autocast("auto", torch.device("cpu")):
            loss = model.loss(batch)
        (loss / batch.count).backward()
        optimizer.step(1.0)

    return run


def timed(run: Callable[[], None], limit: int) -> float:
    """Seconds of one step with plain products up to ``limit`` tokens."""
    attention.MAX_EXPLICIT_KEYS = limit
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def main() -> None:
    """Every kind of work, the two ways in turn."""
    print(describe_machine(pick_device("cpu")))
    print("| step | fused kernel, s | plain products, s | fused / plain |\n| --- | --- | --- | --- |")
    for objective, tokens, rows in WORK:
        run = step(objective, tokens, rows)
        timed(run, 0), timed(run, 10_000)  # warm up
        pairs = [(timed(run, 0), timed(run, 10_000)) for _ in range(ROUNDS)]
        fused, plain = zip(*pairs, strict=True)
        cells = [f"{statistics.median(times):.3f} ({min(times):.3f} to {max(times):.3f})" for times in (fused, plain)]
        ratio = statistics.median(f / p for f, p in pairs)
        print(f"| {objective}, {rows} rows of {tokens} tokens | {cells[0]} | {cells[1]} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
