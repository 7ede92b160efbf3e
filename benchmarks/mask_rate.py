"""Masked pretraining at three mask rates, all evaluated with 15% masked (see ``convergence``)."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.convergence import OURS, SEEDS, compared, reach

from warmstart.objectives.config import ObjectiveConfig

TOKENS = 300_000
RATES = (0.15, 0.3, 0.4)


def run() -> str:
    """One row per rate."""
    recipes = {rate: replace(OURS, objective=ObjectiveConfig(name="masked", mask_rate=rate)) for rate in RATES}
    found = {f"{rate:.0%} masked": [reach(recipe, TOKENS, seed) for seed in SEEDS] for rate, recipe in recipes.items()}
    return compared(f"masked, {TOKENS:,} tokens; held out: 15% masked", found)


if __name__ == "__main__":
    print(run())
