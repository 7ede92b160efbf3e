"""Tokenizers: train one on a stream of texts, load a foreign one, report how well it fits."""

from warmstart.tokenizer.load import load_tokenizer
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import KINDS, TokenizerConfig, train_tokenizer
from warmstart.tokenizer.vocabulary import VocabularyReport, vocabulary_report

__all__ = [
    "KINDS",
    "Tokenizer",
    "TokenizerConfig",
    "VocabularyReport",
    "load_tokenizer",
    "train_tokenizer",
    "vocabulary_report",
]
