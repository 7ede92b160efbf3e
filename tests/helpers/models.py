"""Tiny backbones and language models."""

from __future__ import annotations

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.model.model import Model, fresh_head
from warmstart.seeding import seed_torch

SENTENCES = [
    "She holds the cat and rubs the dog.",
    "He can hold a dog, and I can rub the cat!",
    "Where was the river found in 1912?",
    "They rub and hold: a cat, the dogs, the cats.",
]


def make_backbone(seed: int = 0, vocab_size: int = 60, **switches: object) -> Backbone:
    """A tiny backbone with the given switches; its weights are spread wide, so that differences show."""
    seed_torch(seed, "test")
    settings = {"width": 16, "depth": 2, "heads": 2, "feedforward": 24, "max_length": 32, "init_std": 0.2} | switches
    return Backbone(BackboneConfig.build(settings), vocab_size).eval()


def make_language_model(seed: int = 0, vocab_size: int = 60, *, causal: bool = True, **switches: object) -> Model:
    """A tiny language model."""
    backbone = make_backbone(seed, vocab_size, **switches)
    return Model(backbone, fresh_head(LMHeadConfig(), backbone, seed), causal=causal).eval()
