"""When two texts count as the same, as nearly the same, and as one inside another: planted copies are found, others are not."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmstart.data import text_overlap
from warmstart.data.text_key import CYRILLIC, GREEK, LATIN, text_key, text_words
from warmstart.data.text_overlap import documents_with, occurrences
from warmstart.data.units import independent_units
from warmstart.tasks.load import load_task

Texts = list[str]


def words_drawn(count: int, length: int, seed: int, vocabulary: int = 5000) -> list[list[str]]:
    """Texts of words as frequent as in English (Zipf-Mandelbrot)."""
    frequency = 1 / (np.arange(vocabulary) + 2.7)
    numbers = np.random.default_rng(seed).choice(vocabulary, (count, length), p=frequency / frequency.sum())
    return [[f"w{number}" for number in row] for row in numbers]


# ------------------------------------------------------------------------------------------------ the same


def test_the_same_text() -> None:
    """Case, white space, punctuation, tags, invisible, full-width and look-alike characters do not make another text."""
    for copy in (
        " The\tCAT sat\n", "The cat sat!", "\u201cThe cat\u201d \u2014 sat \u2026", "the c\u200bat sat", "the c\u00adat\ufeff sat",
        "the c\u0430t s\u0430t", "the c\u03b1t sat", "the \uff43\uff41\uff54 sat", "the cat\ufe0f sat", "thecat sat",
        '<p class="a">The <b>cat</b><br/>sat</p>',
    ):  # fmt: skip
        assert text_key(copy) == text_key("the cat sat"), copy
    for one, other in (
        ("the cat", "the cats"), ("1 23", "12 3"), (":)", ":("), ("", "!"), ("\u72ac", "\u732b"),
        ("\u043a\u043e\u0442", "\u043a\u0438\u0442"),  # Russian cat and whale
        ("\u0915\u093f", "\u0915\u0940"),  # Hindi vowel signs are marks, not letters
    ):  # fmt: skip
        assert text_key(one) != text_key(other), (one, other)
    assert (text_key(" \t\u200b"), text_key("...")) == ("", "..."), "only white space is empty"


def test_words() -> None:
    """An apostrophe does not end a word; Chinese characters are words; a word in another alphabet stays as it is, in lower case."""
    assert text_words("Don't PANIC, e-mail") == ["dont", "panic", "e", "mail"]
    assert text_words("\u732b\u597d a") == ["\u732b", "\u597d", "a"]
    assert text_words("\u0412\u043e\u0434\u0430 \u0432") == ["\u0432\u043e\u0434\u0430", "\u0432"]


@given(st.text(), st.sampled_from([".", " ", "\u200b", "!"]), st.integers(0, 20))
def test_ascii_or_not_is_the_same(text: str, sign: str, place: int) -> None:
    """What is added outside letters and digits does not matter, whatever the text; one digit more does."""
    if text_words(text):
        assert text_key(text + sign) == text_key(text)
    assert text_key(text + " x1") != text_key(text)


def test_look_alikes_are_letters_of_three_alphabets() -> None:
    """Each entry is one letter of the alphabet that it stands under, and what it looks like is a Latin one."""
    for script, table in (("CYRILLIC", CYRILLIC), ("GREEK", GREEK), ("LATIN", LATIN)):
        for letter, latin in table.items():
            assert unicodedata.name(letter).startswith(script)
            assert latin.isascii()
            assert latin.isalpha()
            assert letter.isupper() == latin.isupper()


# ------------------------------------------------------------------------------------------------ nearly the same


def without_punctuation(text: str, draw: random.Random) -> str:
    return re.sub(r"[^\w\s]", "", text)


def with_another_word(text: str, draw: random.Random) -> str:
    words = text.split()
    words[draw.randrange(len(words))] = "zebra"
    return " ".join(words)


def with_a_zero_width_space(text: str, draw: random.Random) -> str:
    place = draw.randrange(1, len(text))
    return f"{text[:place]}\u200b{text[place:]}"


def with_a_look_alike(text: str, draw: random.Random) -> str:
    places = [place for place, letter in enumerate(text) if letter in "aeopcx"]
    place = draw.choice(places) if places else 0
    return text[:place] + text[place].translate(str.maketrans("aeopcx", "аеорсх")) + text[place + 1 :]


PLANTED = 50
KINDS: dict[str, Callable[[str, random.Random], str]] = {
    "punctuation stripped": without_punctuation,
    "one word changed": with_another_word,
    "one word appended": lambda text, draw: f"{text} zebra",
    "cut to 80%": lambda text, draw: text[: len(text) * 4 // 5],
    "zero-width space": with_a_zero_width_space,
    "look-alike letter": with_a_look_alike,
}
"""ways in which copies differ"""


def generated(count: int, words: tuple[int, int], seed: int) -> Texts:
    """Texts with punctuation, of so many words."""
    lengths = np.random.default_rng(seed).integers(*words, count)
    drawn = words_drawn(count, int(lengths.max()), seed, 20_000)
    letters = str.maketrans("0123456789", "bcdfghjklm")
    return [
        ", ".join(f"{word}ae".translate(letters) for word in row[:length]) + "." for row, length in zip(drawn, lengths, strict=True)
    ]


def check_planted(texts: Texts, kinds: Collection[str]) -> None:
    """Of 50 altered copies of each of these kinds at least 48 are one unit with their text; altered are texts of six words."""
    draw = random.Random(0)
    places = draw.sample([place for place, text in enumerate(texts) if len(text_words(text)) >= 6], PLANTED)
    for name in kinds:
        units = independent_units([*texts, *(KINDS[name](texts[place], draw) for place in places)], None)
        assert (units[places] == units[len(texts) :]).sum() >= 48, name


SHORT = {*KINDS} - {"one word changed", "cut to 80%"}
"""of questions and sentences, in which another word makes another text"""


def test_planted_copies_in_generated_texts() -> None:
    """Each kind of altered copy is found in short and long texts, and no text has one by chance."""
    for words, kinds in (((8, 14), SHORT), ((150, 300), KINDS)):
        texts, others = generated(500, words, seed=0), generated(500, words, seed=1)
        check_planted(texts, kinds)
        assert len({*independent_units([*texts, *others], None).tolist()}) == 1000, words


@pytest.mark.data
def test_planted_copies_in_real_texts(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions and sentences: altered copies are found; of the test texts at most one in twenty has one in training."""
    monkeypatch.setenv("WARMSTART_DATA", str(data_folder.resolve()))
    for name in ("trec", "sst2"):
        task = load_task(Path(__file__).parents[1] / "recipes" / "tasks" / f"{name}.yaml")
        texts, others = ([*dict.fromkeys(split.texts)] for split in (task.train, task.test))
        check_planted(texts, SHORT)
        units = independent_units([*others, *texts], None)
        assert np.isin(units[: len(others)], units[len(others) :]).mean() <= 0.05, name


# ------------------------------------------------------------------------------------------------ one inside another


def changed(text: list[str], draw: np.random.Generator) -> list[str]:
    """One other word in the text."""
    place = int(draw.integers(len(text)))
    return [*text[:place], "zebra", *text[place + 1 :]]


def test_planted_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of 50 texts and 50 changed ones are told from 100 that do not occur, however the plain text is cut."""
    for length, at_once in ((5, 1000), (14, 1), (40, 1 << 20), (200, 1000)):
        monkeypatch.setattr(text_overlap, "WORDS_AT_ONCE", at_once)
        draw = np.random.default_rng(0)
        texts, filler = words_drawn(200, length, 1), words_drawn(100, 97, 2)
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
    texts = words_drawn(3, 60, 1)
    filler = words_drawn(1, 5000, 2)[0]
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


def test_documents_with_a_text_are_told_one_by_one() -> None:
    """However many documents are read at once; one whose half is in a document and half in the next is in neither."""
    texts, filler = words_drawn(60, 20, 1), words_drawn(2000, 30, 2)
    documents = [
        *filler[:1500],
        *([*filler[1500 + n], *text, "end"] for n, text in enumerate(texts[:30])),
        texts[30][:10],
        texts[30][10:],
    ]
    assert np.flatnonzero(documents_with(texts, documents)).tolist() == [*range(1500, 1530)]
    changed_ones = [changed(text, np.random.default_rng(n)) for n, text in enumerate(texts)]
    assert documents_with(texts, changed_ones).mean() >= 0.9
    assert not documents_with(texts, changed_ones, shortest_near=21).any()
