"""When two texts count as the same."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmstart.data.text_key import CYRILLIC, GREEK, LATIN, text_key, text_words


@pytest.mark.parametrize(
    "copy",
    [
        " The\tCAT sat\n",
        "The cat sat!",
        "\u201cThe cat\u201d \u2014 sat \u2026",
        "the c\u200bat sat",
        "the c\u00adat\ufeff sat",
        "the c\u0430t s\u0430t",
        "the c\u03b1t sat",
        "the \uff43\uff41\uff54 sat",
        "the cat\ufe0f sat",
        "thecat sat",
    ],
)
def test_the_same_text(copy: str) -> None:
    """Case, white space, punctuation, invisible, full-width and look-alike characters do not make another text."""
    assert text_key(copy) == text_key("the cat sat")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the cat", "the cats"),
        ("1 23", "12 3"),
        (":)", ":("),
        ("", "!"),
        ("\u043a\u043e\u0442", "\u043a\u0438\u0442"),  # Russian cat and whale
        ("\u0915\u093f", "\u0915\u0940"),  # Hindi vowel signs are marks, not letters
        ("\u72ac", "\u732b"),
    ],
)
def test_other_texts(one: str, other: str) -> None:
    """Letters, marks and digits count, and so do signs where there is nothing else."""
    assert text_key(one) != text_key(other)


def test_only_white_space_is_empty() -> None:
    """Only then the key is empty."""
    assert text_key(" \t\u200b") == ""
    assert text_key("...") == "..."


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
