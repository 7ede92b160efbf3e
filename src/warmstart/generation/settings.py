"""The settings of generation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from warmstart.config import Advanced, Config


class GenerateConfig(Config):
    """Settings of generated text."""

    max_new_tokens: int = Field(60, gt=0)
    """generate at most this many tokens"""
    greedy: bool = False
    """always choose the most probable token"""
    temperature: float = Field(1.0, gt=0)
    """divides the logits; below 1: less random, above 1: more random"""
    top_k: int | None = Field(None, gt=0)
    """sample from the k most probable tokens only"""
    top_p: float | None = Field(None, gt=0, le=1)
    """sample from the most probable tokens that together have this probability (Holtzman et al. 2020, section 3.1)"""
    seed: int = 0
    """seed of the sampling"""
    precision: Advanced[Literal["float32", "bfloat16"]] = "float32"
    """bfloat16 halves the memory read for every token; the text may differ slightly, and may depend on the other prompts"""
