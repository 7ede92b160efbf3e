"""The effect of each part of our recipe: removed or added alone, with the same tokens and seeds (see ``convergence``)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from benchmarks.convergence import OURS, SEEDS, compared, reach, stepping
from benchmarks.harness import ratio, show, time_in_turn

TOKENS = 300_000
VARIANTS = {
    "ours": OURS,
    "AdamW for all": replace(OURS, train=OURS.train | {"optimizer": "adamw", "learning_rate": 3e-3}),
    "cosine schedule": replace(OURS, train=OURS.train | {"schedule": "cosine"}),
    "learned positions": replace(OURS, backbone={"positions": "learned"}),
    "untied head": replace(OURS, head={"tied": False}),
    "z-loss, 1e-4": replace(OURS, z_loss=1e-4),
    "rows grow from 64 tokens": replace(OURS, lengths=True),
    "RMS norms, no biases": replace(OURS, backbone={"norm_type": "rms", "bias": False}),
    "SwiGLU of the same size": replace(OURS, backbone={"activation": "swiglu", "feedforward": 688}),
    "queries and keys normalised": replace(OURS, backbone={"qk_norm": True}),
}


def steps_of(rounds: int = 7) -> dict[str, float]:
    """Time of each variant's steps relative to ours, timed in turn."""
    timed = time_in_turn({name: partial(stepping, recipe) for name, recipe in VARIANTS.items()}, rounds, warm=1)
    return {one.name: ratio(one, timed[0]) for one in timed}


def run() -> str:
    """One row per variant."""
    found = {name: [reach(recipe, TOKENS, seed) for seed in SEEDS] for name, recipe in VARIANTS.items()}
    return compared(f"{TOKENS:,} tokens", found, steps_of())


if __name__ == "__main__":
    show(run)
