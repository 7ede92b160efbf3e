"""The settings of a tokenizer that is trained."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from warmstart.config import Advanced, Config, InFile


class TokenizerConfig(Config):
    """Settings of the training of a tokenizer."""

    type: Advanced[Literal["bytes", "wordpiece", "unigram", "character", "word"]] = "bytes"
    """kind of piece: bytes (lossless), wordpiece, unigram, character or word"""
    vocab_size: int = Field(default=8192, ge=1, le=10_000_000)
    """largest number of pieces in the vocabulary, special tokens included"""
    lowercase: InFile[bool] = False
    """convert all letters to lower case first"""
    sentinels: Advanced[int] = Field(default=32, ge=0)
    """number of sentinel tokens for span corruption"""
    min_frequency: InFile[int] = Field(default=2, ge=1)
    """fewest occurrences of a piece that enters the vocabulary"""
