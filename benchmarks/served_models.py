"""Models with random weights for a server under load, as folders of transformers, and what clients ask of them.

Their answers mean nothing, but are computed like any other's; what they cost depends on their shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from benchmarks.inference import SPECIALS, WORDS, folder_of, write_tokenizer

VOCABULARY = 30_522
"""tokens of all-MiniLM-L6's tokenizer, of which texts here use ``WORDS``"""
NEW_TOKENS = 16
"""of a continuation"""
STREAMS = 8
"""texts that ``warmstart serve`` generates at once"""


def encoder(place: Path) -> Path:
    """A BERT that labels texts, of the shape of all-MiniLM-L6: width 384, 6 layers, its vocabulary."""
    return folder_of(place, vocabulary=VOCABULARY)


def causal_model(place: Path) -> Path:
    """A language model of Llama's form, width 256, 6 layers, that never ends a text."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=len(SPECIALS) + WORDS, hidden_size=256, num_hidden_layers=6, num_attention_heads=4, intermediate_size=1024,
        max_position_embeddings=256, bos_token_id=2, eos_token_id=3, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(shape).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(20)  # the most probable token leads, whatever rounding does
        model.lm_head.weight[: len(SPECIALS)] = 0  # it is never a special one
    model.save_pretrained(place)
    write_tokenizer(place, shape.vocab_size)
    return place


def continuation_of(text: str) -> dict[str, Any]:
    """A request to go on from the beginning of a text."""
    return {"prompt": " ".join(text.split()[:8]), "max_new_tokens": NEW_TOKENS, "greedy": True, "candidates": 0}


@dataclass(frozen=True)
class ServedShape:
    """A model, and what clients ask of it."""

    name: str
    make: Callable[[Path], Path]
    """writes its folder"""
    path: str
    """that answers"""
    body: Callable[[str], dict[str, Any]]
    """of a request about a text"""
    clients: tuple[int, ...]
    """numbers of clients at once"""


SHAPES = (
    ServedShape(
        "An encoder of the shape of all-MiniLM-L6, which labels a short text", encoder, "/api/predict",
        lambda text: {"inputs": [text]}, (1, 8, 64),
    ),
    ServedShape(
        f"A causal model of width 256 with 6 layers, which writes {NEW_TOKENS} tokens", causal_model, "/api/generate",
        continuation_of, (1, STREAMS),
    ),
)  # fmt: skip
"""what is measured"""
