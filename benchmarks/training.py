"""A training step of ours against the peers: same sizes, same rows, forward, backward and AdamW.

Ours is what ``warmstart pretrain`` runs, loop apart, with AdamW as in the peers: chunked loss, logits only where there is a target.
Each objective is timed against peers that predict the same targets, in float32 and in bfloat16 (autocast). ``NANOGPT`` is the path
of nanoGPT's ``model.py``; without it that peer is left out.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from benchmarks.harness import CPU, Step, ratio, show, table, time_in_turn
from benchmarks.speed_peers import (
    PlainGPT,
    TutorialBackbone,
    nanogpt,
    nanogpt_file,
    nanogpt_optimizer,
    transformers_bert,
    transformers_gpt2,
    transformers_modernbert,
)
from benchmarks.table import paragraph

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.registry import OBJECTIVES
from warmstart.seeding import rng
from warmstart.system.device import autocast, native_bfloat16
from warmstart.training.arithmetic import compile_all, compiled, keep_freed_memory
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
AS_LONG_AS_IT_LIVES = ExitStack()


def ours(size: Size, batch: Batch, *, precision: str = "auto", compile: bool = False) -> Step:
    """One step as the training loop makes it."""
    config = BackboneConfig(width=size.width, depth=size.depth, heads=size.heads, feedforward=size.inner, max_length=size.length)
    backbone = Backbone(config, size.vocab)
    model = Model(backbone, fresh_head(LMHeadConfig(), backbone, 0), causal=batch.causal).train()
    optimizer = Optimizer([ParameterGroup(dict(model.named_parameters()))], TrainConfig())
    AS_LONG_AS_IT_LIVES.enter_context(keep_freed_memory(CPU))  # the training loop holds it open for a whole run
    forwards = compile_all(list(backbone.blocks) if compile else [])

    def step() -> None:
        with autocast(precision, CPU), compiled(forwards):
            loss = model.loss(batch)
        (loss / batch.count).backward()
        optimizer.step(1.0)

    return step


def theirs(model: Any, loss: Callable[[Any], torch.Tensor], precision: str, optimizer: torch.optim.Optimizer, clip: float) -> Step:
    """One step as tutorials write it, in float32 or under autocast; gradients are clipped if ``clip`` is not 0."""
    model.train()

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16) if precision == "bfloat16" else nullcontext():
            value = loss(model)
        value.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
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
    "causal": ("nanoGPT", "plain GPT", "GPT-2", "tutorial's backbone"),
    "masked": ("ModernBERT", "plain", "BERT"),
}
"""GPT-2, BERT and ModernBERT are those of transformers"""


def build(name: str, size: Size, objective: str, precision: str = "auto") -> Step:
    """One contender of one objective."""
    batch = batches(size)[objective]
    if name.startswith("warmstart"):
        return ours(size, batch, precision=precision, compile=name.endswith("compiled"))
    model, loss = peer(name, size, batch)
    if name == "nanoGPT":
        return theirs(model, loss, precision, nanogpt_optimizer(model), clip=1.0)
    return theirs(model, loss, precision, torch.optim.AdamW(model.parameters(), lr=1e-3), clip=0.0)


def peer(name: str, size: Size, batch: Batch) -> tuple[Any, Callable[[Any], torch.Tensor]]:
    """A peer's model, and how it is asked for its mean loss."""
    ids, targets = batch.ids, batch.targets
    assert targets is not None
    if name == "nanoGPT":
        return nanogpt(*size.shape), lambda m: m(ids, targets)[1]
    if name.startswith("plain"):
        return PlainGPT(*size.shape), lambda m: m(ids, targets, causal=batch.causal)
    if name.startswith("tutorial"):
        return TutorialBackbone(*size.shape), lambda m: m(ids, targets)
    if name == "GPT-2":
        whole = torch.cat([ids, targets[:, -1:]], dim=1)[:, : size.length]
        return transformers_gpt2(*size.shape), lambda m: m(input_ids=whole, labels=whole).loss
    masked = {"BERT": transformers_bert, "ModernBERT": transformers_modernbert}[name]
    labels = torch.where(targets == IGNORE, torch.tensor(-100), targets)
    return masked(*size.shape), lambda m: m(input_ids=ids, labels=labels).loss


def precisions() -> tuple[str, ...]:
    """Those that this processor multiplies; without bfloat16 products torch is slower in bfloat16 than in float32."""
    return ("float32", "bfloat16") if native_bfloat16(CPU) else ("float32",)


def remarks() -> list[str]:
    """What stands below the tables: which file is nanoGPT's, and what is left out."""
    file = nanogpt_file()
    left_out = "nanoGPT is left out: set NANOGPT to the path of its model.py."
    said = [f"nanoGPT's model.py: SHA-256 {hashlib.sha256(file.read_bytes()).hexdigest()[:12]}." if file else left_out]
    return said + ["bfloat16 is left out: this processor has no such products."] * ("bfloat16" not in precisions())


def rows_of(size: Size, objective: str, precision: str, rounds: int) -> list[tuple[str, ...]]:
    """All contenders in one arithmetic; ratios are to ours in the same."""
    names = ["warmstart", *(name for name in PEERS[objective] if name != "nanoGPT" or nanogpt_file())]
    timed = time_in_turn({f"{name}, {precision}": partial(build, name, size, objective, precision) for name in names}, rounds)
    tokens = size.rows * size.length
    return [
        (
            t.name,
            str(t),
            f"{tokens / statistics.median(t.seconds):,.0f}",
            f"{ratio(t, timed[0]):.2f}",
            f"{t.memory / 1e6:,.0f}",
        )
        for t in timed
    ]


def run(rounds: int = 7) -> str:
    """Both sizes, both objectives, each in float32 and in bfloat16."""
    parts = []
    for size in (SMALL, LAB):
        for objective in PEERS:
            rows = [row for precision in precisions() for row in rows_of(size, objective, precision, rounds)]
            title = f"{size.name}, {objective}: {size.rows} rows of {size.length} tokens"
            parts.append(table((title, "seconds per step", "tokens/s", "times ours", "memory, MB"), rows))
    return "\n\n".join([*parts, paragraph(" ".join(remarks()))])


if __name__ == "__main__":
    show(run)
