"""Tiny backbones and language models."""

from __future__ import annotations

from typing import Any

import numpy as np

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.model import Model, fresh_head
from warmstart.seeding import seed_torch
from warmstart.types import SpecialTokens, Vocabulary

SENTENCES = [
    "She holds the cat and rubs the dog.",
    "He can hold a dog, and I can rub the cat!",
    "Where was the river found in 1912?",
    "They rub and hold: a cat, the dogs, the cats.",
]
BACKBONE_CASES: list[dict[str, Any]] = [
    {},
    {"norm": "post", "positions": "sinusoidal", "activation": "relu", "scale_embeddings": True},
    {"positions": "learned", "activation": "gelu-tanh", "dropout": 0.1, "token_types": 2, "embedding_norm": True},
    {"positions": "learned", "norm": "post", "distance_buckets": 8},
    {"norm_type": "rms", "activation": "swiglu", "bias": False, "kv_heads": 1, "qk_norm": True},
    {"attention": "synthesizer", "positions": "learned"},
    {"window": 1, "global_every": 2, "window_rotary_base": 500.0, "init_std": 0.02},
    {"depth": 0},
    {"max_length": 4},
]
"""every kind of backbone"""


def make_backbone(seed: int = 0, vocab_size: int = 60, **switches: object) -> Backbone:
    """A tiny backbone with the given switches; its weights are spread wide, so that differences show."""
    seed_torch(seed, "test")
    settings = {"width": 16, "depth": 2, "heads": 2, "feedforward": 24, "max_length": 32, "init_std": 0.2} | switches
    return Backbone(BackboneConfig.build(settings), vocab_size).eval()


def make_language_model(seed: int = 0, vocab_size: int = 60, *, causal: bool = True, **switches: object) -> Model:
    """A tiny language model."""
    backbone = make_backbone(seed, vocab_size, **switches)
    return Model(backbone, fresh_head(LMHeadConfig(), backbone, seed), causal=causal).eval()


VOCABULARY = Vocabulary(
    60, SpecialTokens(pad=0, unk=1, eos=2, mask=3, cls=4, sentinels=tuple(range(5, 21))), np.arange(60) % 3 == 0
)
"""sixty tokens, of which 5 to 20 are sentinels and every third ordinary one begins a word"""
