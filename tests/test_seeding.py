"""Random draws depend on the seed and on names, on nothing else."""

from __future__ import annotations

import torch

from warmstart.seeding import derive, rng, seed_torch


def test_seeds_never_change() -> None:
    """A stored run must draw the same numbers in every later version."""
    assert derive(0, "dropout", 7) == 7277878575559796213


def test_the_same_names_give_the_same_numbers_and_other_names_others() -> None:
    """For generators and for seeds."""
    assert rng(0, "a", 1).integers(0, 10**9) == rng(0, "a", 1).integers(0, 10**9)
    assert len({derive(seed, name) for seed in range(20) for name in ("a", "b", "ab")}) == 60


def test_torch_draws_by_name() -> None:
    """The same name gives the same weights, whatever was drawn before."""
    seed_torch(0, "head")
    first = torch.randn(3)
    torch.randn(5)
    seed_torch(0, "head")
    assert torch.equal(torch.randn(3), first)
