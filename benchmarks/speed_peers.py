"""What we are timed against: nanoGPT, a plain GPT as courses write it, the NAACL 2019 tutorial's backbone, transformers' classes.

nanoGPT is its own file, wherever that lies; the plain GPT and the tutorial's backbone are written here from their descriptions.
Each has the same sizes as ours in the same run.
"""

from __future__ import annotations

import importlib.util
import math
import os
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from warmstart.types import IGNORE


class PlainBlock(nn.Module):
    """A block of GPT-2: norms first, one matrix for queries, keys and values, torch's own attention kernel."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor, *, causal: bool) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class PlainGPT(nn.Module):
    """Learned positions, tied head, logits of every token, one cross-entropy over all of them."""

    def __init__(self, width: int, depth: int, heads: int, inner: int, vocab: int, length: int) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(PlainBlock(width, heads, inner) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor, targets: Tensor, *, causal: bool = True) -> Tensor:
        """The mean loss of ids and targets (B, T)."""
        x = self.embedding(ids) + self.position.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, causal=causal)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)


class TutorialBackbone(nn.Module):
    """The NAACL 2019 tutorial's: length before batch, torch's MultiheadAttention, norms that the residual passes through too."""

    def __init__(self, width: int, depth: int, heads: int, inner: int, vocab: int, length: int) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.attentions = nn.ModuleList(nn.MultiheadAttention(width, heads) for _ in range(depth))
        self.forwards = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width)) for _ in range(depth)
        )
        self.norms_1 = nn.ModuleList(nn.LayerNorm(width, eps=1e-12) for _ in range(depth))
        self.norms_2 = nn.ModuleList(nn.LayerNorm(width, eps=1e-12) for _ in range(depth))
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.embedding.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of ids and targets (B, T)."""
        ids = ids.t()
        places = torch.arange(len(ids)).unsqueeze(-1)
        h = self.embedding(ids) + self.position(places).expand(-1, ids.shape[1], -1)
        hidden = torch.full((len(ids), len(ids)), -math.inf).triu(1)
        for norm_1, attention, norm_2, forward in zip(self.norms_1, self.attentions, self.norms_2, self.forwards, strict=True):
            h = norm_1(h)
            x, _ = attention(h, h, h, attn_mask=hidden, need_weights=False)
            h = x + h
            h = norm_2(h)
            h = forward(h) + h
        logits = self.head(h)
        return F.cross_entropy(logits.flatten(0, 1), targets.t().flatten(), ignore_index=IGNORE)


def transformers_gpt2(width: int, depth: int, heads: int, inner: int, vocab: int, length: int) -> Any:
    """Transformers' GPT-2 with its language head, without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocab, n_positions=length, n_embd=width, n_layer=depth, n_head=heads, n_inner=inner,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=2, eos_token_id=2,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def transformers_bert(width: int, depth: int, heads: int, inner: int, vocab: int, length: int) -> Any:
    """Transformers' BERT with its masked head, without dropout."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=vocab, max_position_embeddings=length, hidden_size=width, num_hidden_layers=depth, num_attention_heads=heads,
        intermediate_size=inner, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertForMaskedLM(config)


def transformers_modernbert(width: int, depth: int, heads: int, inner: int, vocab: int, length: int) -> Any:
    """Transformers' ModernBERT, which scores masked tokens only, as ours does.

    Every layer has global attention, as ours: on a CPU its window saves nothing and costs a mask. Its feed-forward has a gate, and
    two thirds of the inner width, so that it has as many weights as ours (Shazeer 2020).
    """
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    config = ModernBertConfig(
        vocab_size=vocab, max_position_embeddings=length, hidden_size=width, num_hidden_layers=depth, num_attention_heads=heads,
        intermediate_size=round(inner / 12) * 8, layer_types=["full_attention"] * depth, sparse_prediction=True, decoder_bias=False,
        pad_token_id=0, eos_token_id=2, bos_token_id=2, cls_token_id=4, sep_token_id=2, attn_implementation="sdpa",
    )  # fmt: skip
    return ModernBertForMaskedLM(config)


def nanogpt_file() -> Path | None:
    """The ``model.py`` of nanoGPT that the environment variable ``NANOGPT`` names; None if it is not set."""
    file = Path(os.environ["NANOGPT"]) if os.environ.get("NANOGPT") else None
    if file is not None and not file.is_file():
        raise SystemExit(f"NANOGPT must be the path of nanoGPT's model.py, but there is no file {file}")
    return file


def nanogpt(width: int, depth: int, heads: int, inner: int, vocab: int, length: int) -> Any:
    """The model of nanoGPT's own file (https://github.com/karpathy/nanoGPT), without dropout.

    The file makes the feed-forward four times as wide as the model; where ours is not, both its layers are replaced by such of our
    inner width.
    """
    file = nanogpt_file()
    assert file is not None
    spec = importlib.util.spec_from_file_location("nanogpt", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.GPTConfig(
        block_size=length, vocab_size=vocab, n_layer=depth, n_head=heads, n_embd=width, dropout=0.0, bias=True
    )
    with redirect_stdout(None):  # it prints the number of its parameters
        model = module.GPT(config)
    if inner != 4 * width:
        for block in model.transformer.h:
            block.mlp.c_fc, block.mlp.c_proj = nn.Linear(width, inner), nn.Linear(inner, width)
    return model


def nanogpt_optimizer(model: Any) -> torch.optim.Optimizer:
    """The optimiser that nanoGPT's file makes, with the settings of its ``train.py``."""
    with redirect_stdout(None):  # it prints what it decays
        return model.configure_optimizers(weight_decay=0.1, learning_rate=6e-4, betas=(0.9, 0.95), device_type="cpu")
