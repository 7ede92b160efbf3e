"""Checks of the inputs of estimators."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from warmstart.errors import DataError
from warmstart.interop.convert import from_huggingface
from warmstart.interop.encoders import find_model
from warmstart.interop.hub import find_folder
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle


def as_texts(texts: Any) -> list[str]:
    """A sequence of strings as a list; raises ``DataError`` for a single string and for other elements."""
    if isinstance(texts, str | bytes):
        raise DataError("texts must be a list, but are one string; write [text]")
    flat = list(np.asarray(texts, dtype=object).ravel()) if np.ndim(texts) < 2 else None
    if flat is None:
        raise DataError(f"texts must be a flat list, but have the shape {np.shape(texts)}; select one column")
    if strange := [text for text in flat if not isinstance(text, str)]:
        raise DataError(f"every text must be a string, but one is {strange[0]!r}; remove or convert it")
    if not flat:
        raise DataError("there must be at least one text, but there are none; give some")
    return [str(text) for text in flat]


def as_words(texts: Any) -> list[tuple[str, ...]]:
    """A sequence of texts, each of which is a sequence of words; raises ``DataError`` for anything else."""
    if isinstance(texts, str | bytes) or not len(texts):
        raise DataError("texts must be a list of lists of words; write [['a', 'word']]")
    for words in texts:
        if isinstance(words, str | bytes) or not len(words) or not all(isinstance(word, str) for word in words):
            raise DataError(f"every text must be a list of words, but one is {words!r}; split it first")
    return [tuple(map(str, words)) for words in texts]


def as_groups(texts: Sized, groups: Sequence[Any] | None) -> np.ndarray | None:
    """(N,) the group of each text as a string; raises ``DataError`` unless there is one for each text. None stays None."""
    if groups is None:
        return None
    one_each(texts, groups, "groups")
    return np.array([str(group) for group in groups])


def as_bundle(backbone: str | Path | Bundle) -> Bundle:
    """The bundle itself, the one in a folder, or an encoder by its name; ``hf:FOLDER`` is a model in the Hugging Face format."""
    if isinstance(backbone, Bundle):
        return backbone
    return from_huggingface(find_folder(str(backbone))) if str(backbone).startswith("hf:") else load_bundle(find_model(backbone))


def one_each(texts: Sized, targets: Sized, noun: str) -> None:
    """Raise ``DataError`` unless there are as many targets as texts; ``noun`` is what they are called."""
    if len(texts) != len(targets):
        raise DataError(f"there must be as many {noun} as texts, but there are {len(texts)} texts and {len(targets)} {noun}")


def text_tags(tags: Any) -> Any:
    """scikit-learn's tags of an estimator whose input is texts, not a table of numbers."""
    tags.input_tags = replace(tags.input_tags, string=True, two_d_array=False, one_d_array=True)
    return tags
