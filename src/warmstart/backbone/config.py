"""The few switches of a backbone, and presets of well-known models.

Causal or bidirectional attention is not a switch: it is chosen per call, so that one set of weights can learn both.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from warmstart.config import Advanced, Config, InFile
from warmstart.registry import Registry
from warmstart.system.limits import POSITIONS


class NewBackboneConfig(Config):
    """The shape of a Transformer backbone that is pretrained."""

    width: int = Field(256, gt=0)
    """width of every token's hidden state (D)"""
    depth: int = Field(4, ge=0)
    """number of blocks (L)"""
    heads: int = Field(4, gt=0)
    """attention heads per block (H)"""
    qk_norm: InFile[bool] = False
    """RMS norm of every query and key, shared by all heads (Qwen3)"""
    feedforward: Advanced[int] = Field(1024, gt=0)
    """inner width of the feed-forward layer"""
    max_length: int = Field(256, gt=0)
    """context length: the most tokens that the backbone reads at once (T)"""
    norm: InFile[Literal["pre", "post"]] = "pre"
    """normalise before each branch (GPT-2) or after each sum (the 2017 Transformer)"""
    norm_type: InFile[Literal["layer", "rms"]] = "layer"
    """layer norm or RMS norm"""
    positions: InFile[Literal["sinusoidal", "learned", "rotary"]] = "rotary"
    """encoding of the positions of tokens: rotary, learned or sinusoidal"""
    attention: InFile[Literal["dot-product", "synthesizer"]] = "dot-product"
    """attention weights from queries and keys, or synthesised from each token alone"""
    activation: InFile[Literal["relu", "gelu", "gelu-tanh", "swiglu", "geglu"]] = "gelu"
    """non-linearity of the feed-forward layer"""
    bias: InFile[bool] = True
    """linear layers and layer norms have a bias"""
    dropout: InFile[float] = Field(0.0, ge=0, lt=1)
    """dropout probability: after the embedding, in the attention weights, after each branch"""
    scale_embeddings: InFile[bool] = False
    """multiply token embeddings by the square root of the width (Vaswani et al. 2017, section 3.4)"""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if getattr(self, "head_width", None) is None and self.width % self.heads:
            raise ValueError(f"heads must divide width, but width is {self.width} and heads {self.heads}")
        if self.positions == "rotary" and self.per_head % 2:
            raise ValueError(f"rotary positions need an even head width, but it is {self.per_head}")
        table = {"rotary": self.per_head, "sinusoidal": self.width, "learned": 0}[self.positions]
        if self.max_length * table > POSITIONS:
            raise ValueError(
                f"max_length must be at most {POSITIONS // table:,} with {self.positions} positions of width {table:,}, "
                f"but is {self.max_length:,}"
            )
        if self.heads % self.groups:
            raise ValueError(f"kv_heads must divide heads, but heads is {self.heads} and kv_heads {self.groups}")
        special = {"distance_buckets": 0, "head_width": None, "kv_heads": None, "qk_norm": False, "window": None, "qkv_bias": None}
        extra = [name for name, plain in special.items() if getattr(self, name, plain) != plain]
        if self.attention == "synthesizer" and extra:
            raise ValueError(f"synthesizer attention has no queries and keys, so leave out {', '.join(extra)}")
        return self

    @property
    def per_head(self) -> int:
        """K, the width of one head."""
        return self.width // self.heads

    @property
    def groups(self) -> int:
        """G, the number of heads of keys and values."""
        return self.heads


class BackboneConfig(NewBackboneConfig):
    """The shape of a Transformer backbone, with the switches that only imported models have."""

    head_width: int | None = Field(None, gt=0)
    """width of one head (K); none: width / heads"""
    kv_heads: int | None = Field(None, gt=0)
    """heads of keys and values (G), each shared by a group of query heads (Ainslie et al. 2023); none: as many as heads"""
    norm_eps: float = Field(1e-5, gt=0)
    """constant that norms add to the variance, for stability"""
    embedding_norm: bool = False
    """normalise the sum of the embeddings (BERT)"""
    first_norm: bool = True
    """pre-norm: the first block's attention has a norm of its own (in ModernBERT the embedding norm replaces it)"""
    token_types: int = Field(0, ge=0)
    """number of token types, each with its own embedding (BERT's first and second text); 0: none"""
    position_offset: int = Field(0, ge=0)
    """unused rows at the start of the learned positions (RoBERTa has 2)"""
    distance_buckets: int = Field(0, ge=0)
    """buckets of distances between tokens, for each of which every head adds a bias to its scores (T5, MPNet); 0: none"""
    ngrams: bool = False
    """the state of each token is a vector of the whole text, by convolutions over its tokens (USE); it is never trained"""
    rotary_base: float = Field(10_000.0, gt=0)
    """longest wavelength of rotary positions, in tokens over 2 pi"""
    rotary_scaling: tuple[float, float, float, int] | None = None
    """Llama 3's longer wavelengths: factor, low and high frequency factor, context length in pretraining"""
    window: int | None = Field(None, ge=0)
    """local attention: tokens that a token attends to on either side; none: every block has global attention"""
    global_every: int = Field(1, gt=0)
    """window: the first block and every n-th block after it have global attention all the same"""
    window_rotary_base: float = Field(10_000.0, gt=0)
    """rotary_base of the blocks with local attention"""
    qkv_bias: bool | None = None
    """queries, keys and values have a bias (Qwen2); none: like all linear layers"""
    init_std: float = Field(0.02, gt=0)
    """standard deviation of the initial weights; projections back into the residual sum are scaled down by sqrt(2 L)"""

    @model_validator(mode="after")
    def _switches_fit(self) -> Self:
        if not self.first_norm and not (self.embedding_norm and self.norm == "pre"):
            raise ValueError("first_norm can only be off in a pre-norm backbone with embedding_norm")
        if self.distance_buckets % 4:
            raise ValueError(f"distance_buckets must be a multiple of 4, but is {self.distance_buckets}")
        return self

    @property
    def per_head(self) -> int:
        """K, the width of one head."""
        return self.head_width or self.width // self.heads

    @property
    def groups(self) -> int:
        """G, the number of heads of keys and values."""
        return self.kv_heads or self.heads

    def is_local(self, block: int) -> bool:
        """Whether this block has local attention."""
        return self.window is not None and block % self.global_every != 0


PRESETS: Registry[dict[str, Any]] = Registry(
    "preset",
    {
        "small": {},
        "tiny": {"width": 64, "depth": 2, "heads": 2, "feedforward": 128, "max_length": 64},
        # minGPT's gpt-nano, with GPT-2's switches
        "gpt-nano": {"width": 48, "depth": 3, "heads": 3, "feedforward": 192, "positions": "learned", "activation": "gelu-tanh"},
        # the transfer-learning lab of ALTEGRAD (torch.nn.TransformerEncoder's switches)
        "lab": {
            "width": 200, "depth": 4, "heads": 2, "feedforward": 200, "norm": "post", "positions": "sinusoidal",
            "activation": "relu", "scale_embeddings": True,
        },
        # Stanford CS224N's assignment on birth places (minGPT's switches)
        "birthplace": {
            "width": 256, "depth": 4, "heads": 8, "feedforward": 1024, "max_length": 128, "positions": "learned", "dropout": 0.1,
        },
        # the backbone of the NAACL 2019 transfer-learning tutorial, about 50 M parameters
        "tutorial": {
            "width": 410, "depth": 16, "heads": 10, "feedforward": 2100, "norm": "pre", "positions": "learned",
            "activation": "relu", "dropout": 0.1,
        },
    },
)  # fmt: skip
"""Named settings; any setting given along with a preset overrides it."""
