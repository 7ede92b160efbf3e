"""The few switches of a backbone, and presets that name well-known settings of them.

The direction of attention (causal or both ways) is no switch: it is chosen per call, so that one set of weights can learn both.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from warmstart.config import Config
from warmstart.registry import Registry


class BackboneConfig(Config):
    """The shape of a Transformer backbone."""

    width: int = Field(256, gt=0)
    """size of every token's state (D)"""
    depth: int = Field(4, ge=0)
    """number of blocks (L)"""
    heads: int = Field(4, gt=0)
    """attention heads per block (H); must divide the width"""
    feedforward: int = Field(1024, gt=0)
    """inner size of the feed-forward layer"""
    max_tokens: int = Field(256, gt=0)
    """longest row the backbone reads (T)"""
    norm: Literal["pre", "post"] = "pre"
    """normalise before each branch (GPT-2) or after each sum (the 2017 Transformer)"""
    norm_kind: Literal["layer", "rms"] = "layer"
    """layer norm, or root-mean-square norm"""
    positions: Literal["sinusoidal", "learned", "rotary"] = "rotary"
    """how a token's place is told"""
    attention: Literal["dot-product", "synthesizer"] = "dot-product"
    """weights from queries and keys, or synthesised from each token alone"""
    activation: Literal["relu", "gelu", "gelu-tanh", "swiglu"] = "gelu"
    """non-linearity of the feed-forward layer"""
    bias: bool = True
    """linear layers and layer norms have a bias"""
    dropout: float = Field(0.0, ge=0, lt=1)
    """share of values dropped in training: after the embedding, in the attention weights, after each branch"""
    scale_embeddings: bool = False
    """multiply token embeddings by the square root of the width (Vaswani et al. 2017, section 3.4)"""
    init_std: float = Field(0.02, gt=0)
    """spread of the initial weights; projections back into the residual sum are scaled down by sqrt(2 L)"""

    @model_validator(mode="after")
    def _fits(self) -> BackboneConfig:
        if self.width % self.heads:
            raise ValueError(f"heads must divide width, but width is {self.width} and heads {self.heads}")
        if self.positions == "rotary" and (self.width // self.heads) % 2:
            raise ValueError(f"rotary positions need an even head width, but it is {self.width // self.heads}")
        return self


PRESETS: Registry[dict[str, Any]] = Registry(
    "preset",
    {
        "small": {},
        "tiny": {"width": 64, "depth": 2, "heads": 2, "feedforward": 128, "max_tokens": 64},
        # minGPT's gpt-nano, with GPT-2's own switches
        "gpt-nano": {"width": 48, "depth": 3, "heads": 3, "feedforward": 192, "positions": "learned", "activation": "gelu-tanh"},
        # the transfer-learning lab of ALTEGRAD (torch.nn.TransformerEncoder's switches)
        "lab": {
            "width": 200, "depth": 4, "heads": 2, "feedforward": 200, "norm": "post", "positions": "sinusoidal",
            "activation": "relu", "scale_embeddings": True,
        },
        # Stanford CS224N's assignment on birth places (minGPT's switches)
        "birthplace": {
            "width": 256, "depth": 4, "heads": 8, "feedforward": 1024, "max_tokens": 128, "positions": "learned", "dropout": 0.1,
        },
        # the backbone of the NAACL 2019 transfer-learning tutorial, about 50 M parameters
        "tutorial": {
            "width": 410, "depth": 16, "heads": 10, "feedforward": 2100, "norm": "pre", "positions": "learned",
            "activation": "relu", "dropout": 0.1,
        },
    },
)  # fmt: skip
"""Named settings; anything given beside a preset's name overrides it."""
