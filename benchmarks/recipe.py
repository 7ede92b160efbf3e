"""What each part of our recipe is worth: one taken out, or something added, with the same tokens and seeds (see ``reaching``)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from benchmarks.pairs import in_turn, ratio
from benchmarks.reaching import OURS, SEEDS, compared, reach, stepping

TOKENS = 300_000
VARIANTS = {
    "ours": OURS,
    "AdamW for all": replace(OURS, train=OURS.train | {"optimizer": "adamw", "learning_rate": 3e-3}),
    "cosine schedule": replace(OURS, train=OURS.train | {"schedule": "cosine"}),
    "learned positions": replace(OURS, backbone={"positions": "learned"}),
    "head of its own (not tied)": replace(OURS, head={"tied": False}),
    "z-loss, 1e-4": replace(OURS, z_loss=1e-4),
    "rows grow from 64 tokens": replace(OURS, lengths=True),
    "RMS norms, no biases": replace(OURS, backbone={"norm_kind": "rms", "bias": False}),
    "SwiGLU of the same size": replace(OURS, backbone={"activation": "swiglu", "feedforward": 688}),
    "queries and keys normalised": replace(OURS, backbone={"qk_norm": True}),
}


def steps_of(rounds: int = 7) -> dict[str, float]:
    """How many times as long as ours each variant's steps take, timed in turn."""
    timed = in_turn({name: partial(stepping, recipe) for name, recipe in VARIANTS.items()}, rounds, warm=1)
    return {one.name: ratio(one, timed[0]) for one in timed}


def run() -> str:
    """One row a variant."""
    found = {name: [reach(recipe, TOKENS, seed) for seed in SEEDS] for name, recipe in VARIANTS.items()}
    return compared(f"{TOKENS:,} tokens", found, steps_of())


if __name__ == "__main__":
    print(run())
