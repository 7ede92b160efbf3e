"""A training step of ours against the peers: same sizes, same rows, forward, backward and AdamW.

Ours is what ``warmstart pretrain`` runs, loop apart: chunked loss, logits only where there is a target, bfloat16 where the
processor multiplies it. Each objective is timed against peers that predict the same targets.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from benchmarks.harness import Step, ratio, table, time_in_turn
from benchmarks.peers import PlainGPT, TutorialBackbone, transformers_bert, transformers_gpt2

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.device import autocast
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.model.model import Model, fresh_head
from warmstart.objectives import OBJECTIVES
from warmstart.objectives.config import ObjectiveConfig
from warmstart.seeding import rng
from warmstart.training.allocator import keep_freed_memory
from warmstart.training.compiled import compile_all, compiled
from warmstart.training.config import TrainConfig
from warmstart.training.optimizers import Optimizer, ParameterGroup
from warmstart.types import IGNORE, Batch, SpecialTokens, Vocabulary


@dataclass(frozen=True)
class Size:
    """One model and one batch."""

    name: str
    width: int
    depth: int
    heads: int
    inner: int
    vocab: int
    length: int
    rows: int

    @property
    def shape(self) -> tuple[int, int, int, int, int, int]:
        """As the peers take it."""
        return self.width, self.depth, self.heads, self.inner, self.vocab, self.length


SMALL = Size("small", 256, 4, 4, 1024, 8192, 256, 16)
LAB = Size("lab", 200, 4, 2, 200, 50_001, 256, 8)
CPU = torch.device("cpu")
AS_LONG_AS_IT_LIVES = ExitStack()


def ours(size: Size, batch: Batch, *, compile: bool = False) -> Step:
    """One step as the training loop makes it."""
    config = BackboneConfig(width=size.width, depth=size.depth, heads=size.heads, feedforward=size.inner, max_length=size.length)
    backbone = Backbone(config, size.vocab)
    model = Model(backbone, fresh_head(LMHeadConfig(), backbone, 0), causal=batch.causal).train()
    optimizer = Optimizer([ParameterGroup(dict(model.named_parameters()))], TrainConfig())
    AS_LONG_AS_IT_LIVES.enter_context(keep_freed_memory(CPU))  # the training loop holds it open for a whole run
    forwards = compile_all(list(backbone.blocks) if compile else [])

    def step() -> None:
        with autocast("auto", CPU), compiled(forwards):
            loss = model.loss(batch)
        (loss / batch.count).backward()
        optimizer.step(1.0)

    return step


def theirs(model: Any, loss: Callable[[Any], torch.Tensor], *, half: bool) -> Step:
    """One step as tutorials write it: AdamW as torch gives it, in float32 or under autocast."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16) if half else nullcontext():
            value = loss(model)
        value.backward()
        optimizer.step()

    return step


def batches(size: Size) -> dict[str, Batch]:
    """The same rows under both objectives."""
    vocabulary = Vocabulary(size.vocab, SpecialTokens(pad=0, unk=1, eos=2, mask=3, cls=4), np.ones(size.vocab, dtype=bool))
    ids = rng(0, "benchmark").integers(5, size.vocab, (size.rows, size.length + 1))
    lengths = np.full(size.rows, size.length + 1)
    made = {}
    for name in ("causal", "masked"):
        made[name] = OBJECTIVES[name].make(
            ids[:, : size.length + (name == "causal")],
            lengths - (name == "masked"),
            rng(0, "hide"),
            vocabulary,
            ObjectiveConfig(name=name, mask_rate=0.15),
        )
    return made


PEERS = {
    "causal": ("plain GPT, float32", "plain GPT, bfloat16", "GPT-2, float32", "GPT-2, bfloat16", "tutorial's backbone, float32"),
    "masked": ("plain, float32", "plain, bfloat16", "BERT, float32", "BERT, bfloat16"),
}
"""GPT-2 and BERT are those of transformers"""


def build(name: str, size: Size, objective: str) -> Step:
    """One contender of one objective."""
    batch = batches(size)[objective]
    if name.startswith("warmstart"):
        return ours(size, batch, compile=name.endswith("compiled"))
    ids, targets, half = batch.ids, batch.targets, name.endswith("bfloat16")
    assert targets is not None
    if name.startswith("plain"):
        return theirs(PlainGPT(*size.shape), lambda m: m(ids, targets, causal=batch.causal), half=half)
    if name.startswith("tutorial"):
        return theirs(TutorialBackbone(*size.shape), lambda m: m(ids, targets), half=half)
    if name.startswith("GPT-2"):
        whole = torch.cat([ids, targets[:, -1:]], dim=1)[:, : size.length]
        return theirs(transformers_gpt2(*size.shape), lambda m: m(input_ids=whole, labels=whole).loss, half=half)
    labels = torch.where(targets == IGNORE, torch.tensor(-100), targets)
    return theirs(transformers_bert(*size.shape), lambda m: m(input_ids=ids, labels=labels).loss, half=half)


def run(rounds: int = 7) -> str:
    """Both sizes, both objectives."""
    parts = []
    for size in (SMALL, LAB):
        for objective, peers in PEERS.items():
            timed = time_in_turn({name: partial(build, name, size, objective) for name in ("warmstart", *peers)}, rounds)
            tokens = size.rows * size.length
            rows = [
                (
                    t.name,
                    str(t),
                    f"{tokens / statistics.median(t.seconds):,.0f}",
                    f"{ratio(t, timed[0]):.2f}",
                    f"{t.memory / 1e6:,.0f}",
                )
                for t in timed
            ]
            title = f"{size.name}, {objective}: {size.rows} rows of {size.length} tokens"
            parts.append(table((title, "seconds per step", "tokens/s", "times ours", "memory, MB"), rows))
    return "\n\n".join(parts)


if __name__ == "__main__":
    print(run())
