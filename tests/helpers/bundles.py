"""Tiny bundles and the settings that train them in a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest

from helpers.models import make_backbone
from warmstart.data.task import Split, Task
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.schemes.registry import SCHEMES
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.per_text import ClassificationHeadConfig, MultilabelHeadConfig, RegressionHeadConfig
from warmstart.heads.per_token import TaggingHeadConfig
from warmstart.heads.pooled import POOLINGS
from warmstart.heads.settings import HeadConfig, LMHeadConfig
from warmstart.model.bundle import Bundle, Language
from warmstart.model.files import load_saved, save
from warmstart.model.fitted import FittedBaseline
from warmstart.model.model import Model, fresh_head
from warmstart.model.readout import LinearReadout
from warmstart.model.rows import WordRows
from warmstart.model.stack import Member, Stack
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.registry import OBJECTIVES
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.config import TrainConfig

COMPOSITIONS = [
    "full+scalar-mix",
    "lora+scalar-mix",
    "houlsby+lm-loss",
    "lp-ft+lm-loss",
    "lora+contrast",
    "contrast+lp-ft",
    "gradual+discriminative",
    "scalar-mix+gradual",
]
SCHEME_CASES = [*SCHEMES, *COMPOSITIONS]
"""every scheme, and compositions of them"""
HEAD_CASES: list[HeadConfig] = [
    LMHeadConfig(),
    LMHeadConfig(tied=False, bias=True),
    *(ClassificationHeadConfig(classes=3, pooling=pooling) for pooling in POOLINGS),
    MultilabelHeadConfig(classes=3),
    RegressionHeadConfig(mean=3.0, std=2.0),
    TaggingHeadConfig(classes=3),
    LMHeadConfig(bias=True, transform=True, norm_eps=1e-12),
    ClassificationHeadConfig(classes=3, hidden="tanh"),
    ClassificationHeadConfig(classes=3, normalize=True),
    ClassificationHeadConfig(classes=3, windows="attention"),
    EmbeddingHeadConfig(),
]
"""every head"""


def make_task() -> Task:
    """Sentences about cats against sentences about other things; easy."""
    texts = tuple(
        f"{who} {does} the {what}." for who in ("She", "He", "I") for does in ("holds", "rubs") for what in ("cat", "river")
    )
    labels = np.array(["cat" not in text for text in texts], dtype=np.int64)
    split = Split(texts, labels)
    return Task("cats", ("cat", "other"), split, split, split, "accuracy")


def classifier(tokenizer: Tokenizer) -> Model:
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    return Model(backbone, fresh_head(ClassificationHeadConfig(classes=2), backbone, 0), causal=False)


def language_bundle(
    tokenizer: Tokenizer,
    objective: str = "masked",
    head: LMHeadConfig = LMHeadConfig(),  # noqa: B008
    **switches: object,
) -> Bundle:
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, **switches)
    model = Model(backbone, fresh_head(head, backbone, 0), causal=OBJECTIVES[objective].causal)
    return Bundle(model, tokenizer, language=Language(objective=ObjectiveConfig(name=objective)))


def finetune_config(names: str, **changes: object) -> FineTuneConfig:
    train_ = TrainConfig(learning_rate=5e-3, epochs=10, batch=4, precision="float32")
    return FineTuneConfig.build(
        {"scheme": names, "keep": "last", "train": train_.to_dict(), "options": {"adapter_width": 4}, **changes}
    )


def bundle_with(tokenizer: Tokenizer, head: HeadConfig, *, causal: bool = False, **switches: object) -> Bundle:
    """A tiny model with this head; classes are called a, b, c."""
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, **switches)
    model = Model(backbone, fresh_head(head, backbone, 0), causal=causal).eval()
    return Bundle(model, tokenizer, tuple("abc"[: getattr(head, "classes", 0)]))


def unread_model() -> AbstractContextManager[Callable[[Path], None]]:
    """In place of a fresh process: nothing reads what was saved."""
    return nullcontext(lambda _folder: None)


def read_here() -> AbstractContextManager[Callable[[Path], None]]:
    """In place of a fresh process: this one reads the model that was saved."""
    return nullcontext(lambda folder: load_saved(folder) and None)


@contextmanager
def checked_here() -> Iterator[None]:
    """A fresh process for each save costs seconds: models are checked in this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warmstart.model.files._fresh_reader", read_here)
        yield


def word_model(place: Path, labels: tuple[str, str], *known: str) -> str:
    """A saved model that says the second label of texts with a known word."""
    return str(save(word_stack(labels, *known), place))


def word_stack(labels: tuple[str, str] = ("bill", "order"), *known: str) -> Stack:
    """A model that says the second label of texts with a known word."""
    words = WordRows(("the", *known), word_pairs=False, idf=np.ones(1 + len(known)))
    weights = np.array([[0.0, 0.0], *[[0.0, 9.0]] * len(known)])
    if labels[0] > labels[1]:
        weights = weights[:, ::-1].copy()
    readout = LinearReadout(weights, np.array([1.0, 0.0] if labels[0] < labels[1] else [0.0, 1.0]))
    return Stack((Member("words", FittedBaseline(words, readout), 1, 1),), "classification", labels)
