"""How many tokens to hide: masked pretraining at three rates, all judged with 15 % hidden (see ``reaching``)."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.reaching import OURS, SEEDS, compared, reach

from warmstart.objectives import ObjectiveConfig

TOKENS = 300_000
RATES = (0.15, 0.3, 0.4)


def run() -> str:
    """One row a rate."""
    recipes = {rate: replace(OURS, objective=ObjectiveConfig(name="masked", mask_rate=rate)) for rate in RATES}
    found = {f"{100 * rate:.0f} % hidden": [reach(recipe, TOKENS, seed) for seed in SEEDS] for rate, recipe in recipes.items()}
    return compared(f"masked, {TOKENS:,} tokens; held out: 15 % hidden", found)


if __name__ == "__main__":
    print(run())
