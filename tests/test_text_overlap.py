"""Test texts that occur in a plain text are found, whole or nearly, and others are not."""

from __future__ import annotations

import numpy as np
import pytest

from warmstart.data import text_overlap
from warmstart.data.text_overlap import occurrences

WORDS = 5000


def draw_texts(count: int, length: int, seed: int) -> list[list[str]]:
    """Texts of words as frequent as in English (Zipf-Mandelbrot)."""
    frequency = 1 / (np.arange(WORDS) + 2.7)
    numbers = np.random.default_rng(seed).choice(WORDS, (count, length), p=frequency / frequency.sum())
    return [[f"w{number}" for number in row] for row in numbers]


def changed(text: list[str], draw: np.random.Generator) -> list[str]:
    """One other word in the text."""
    place = int(draw.integers(len(text)))
    return [*text[:place], "zebra", *text[place + 1 :]]


@pytest.mark.parametrize("at_once", [1, 1000, 1 << 20])
@pytest.mark.parametrize("length", [5, 14, 40, 200])
def test_planted_texts(at_once: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of 50 texts and 50 changed ones are told from 100 that do not occur, however the plain text is cut."""
    monkeypatch.setattr(text_overlap, "WORDS_AT_ONCE", at_once)
    draw = np.random.default_rng(0)
    texts, filler = draw_texts(200, length, 1), draw_texts(100, 97, 2)
    planted = [*texts[:50], *(changed(text, draw) for text in texts[50:100])]
    documents = [document for both in zip(filler, planted, strict=True) for document in both]
    exact, near = occurrences(texts, documents)
    assert exact[:50].all()
    assert not exact[50:].any()
    assert near[50:100].mean() >= (0.96 if length >= 14 else 0)
    assert not near[:50].any()
    assert not near[100:].any()


def test_cut_and_joined_texts() -> None:
    """A text cut to 80%, and one over the border of two documents, are found; one whose parts lie far apart is not."""
    texts = draw_texts(3, 60, 1)
    filler = draw_texts(1, 5000, 2)[0]
    exact, near = occurrences(texts, [texts[0][:48], filler, texts[1][:20], texts[1][20:], texts[2][:25], filler, texts[2][35:]])
    assert (exact.tolist(), near.tolist()) == ([False, True, False], [True, False, False])


def test_short_texts_are_not_looked_for() -> None:
    """Four words occur anywhere; no text and no document give nothing."""
    exact, near = occurrences([["a", "b", "c", "d"], []], [["a", "b", "c", "d", "e"]])
    assert not exact.any()
    assert not near.any()
    assert occurrences([], [["a"]])[0].tolist() == []
    assert occurrences([["a"] * 6], [])[0].tolist() == [False]
    assert occurrences([["a"] * 6], [["a"] * 40])[0].tolist() == [True]
