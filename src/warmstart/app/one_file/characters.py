"""Classes of characters as the tokenizers library and Python see them, for the tokenizers in a page.

Browsers, the library and Python know different versions of Unicode. So these two are asked about every character, once, and their
answers travel with the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from typing import Any

from tokenizers import Regex, normalizers, pre_tokenizers

SURROGATES = range(0xD800, 0xE000)


@cache
def every_character() -> tuple[str, ...]:
    """All characters that a text can have."""
    return tuple(chr(code) for code in range(0x110000) if code not in SURROGATES)


def ranges_of(characters: Iterable[str]) -> list[int]:
    """Ends of runs, one after another, both included: ``"abcx"`` -> ``[97, 99, 120, 120]``."""
    codes = sorted(map(ord, characters))
    runs = [[code for _, code in run] for _, run in groupby(enumerate(codes), lambda pair: pair[1] - pair[0])]
    return [end for run in runs for end in (run[0], run[-1])]


@cache
def matching_characters(pattern: str) -> tuple[str, ...]:
    r"""The characters that a class such as ``\p{L}`` matches."""
    split = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed", invert=True)
    return tuple(character for run, _ in split.pre_tokenize_str("".join(every_character())) for character in run)


@cache
def white_space() -> tuple[str, ...]:
    """The characters at which words are split."""
    kept = {
        character for run, _ in pre_tokenizers.WhitespaceSplit().pre_tokenize_str("".join(every_character())) for character in run
    }
    return tuple(character for character in every_character() if character not in kept)


@cache
def punctuation() -> tuple[str, ...]:
    """The characters that BERT makes words of their own."""
    split = pre_tokenizers.Punctuation("removed")
    kept = {character for run, _ in split.pre_tokenize_str("".join(every_character())) for character in run}
    return tuple(character for character in every_character() if character not in kept)


@cache
def cleaned_characters() -> dict[str, tuple[str, ...]]:
    """BERT's cleaning: the characters that it removes, makes a space, and puts between spaces (Chinese ones)."""
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=False)
    kinds: dict[str, list[str]] = {"removed": [], "spaces": [], "chinese": []}
    for character, cleaned in _normalised(clean, "|"):
        if cleaned != character or character == " ":
            kinds["removed" if not cleaned else "spaces" if cleaned == " " else "chinese"].append(character)
    return {kind: tuple(members) for kind, members in kinds.items()}


@cache
def marks() -> tuple[str, ...]:
    """The characters that remain of accents once letters are decomposed, and are removed."""
    strip = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    return tuple(character for character, rest in _normalised(strip) if not rest)


@cache
def changed_by(form: str) -> tuple[str, ...]:
    """The characters that a normal form of Unicode changes, such as ``NFKC``: a newer version of Unicode changes more."""
    return tuple(character for character, changed in _normalised(getattr(normalizers, form)()) if character != changed)


@cache
def combining() -> tuple[str, ...]:
    """The characters that a normal form puts behind U+0334: marks that may change places with others."""
    others = [character for character in every_character() if character != "|"]
    ordered = normalizers.NFD().normalize_str("|".join(f"{character}\u0334" for character in others)).split("|")
    return tuple(
        character for character, order in zip(others, ordered, strict=True) if order.startswith("\u0334") and character != "\u0334"
    )


@cache
def lower_case() -> tuple[str, str]:
    """The characters that have a lower case, and what that is, in the same order, with U+0000 between them."""
    return _changed(_normalised(normalizers.Lowercase()))


@cache
def word_characters() -> dict[str, Any]:
    """Characters for bags of words, by Python: letters and digits of words, white space, and lower case."""
    every = "".join(every_character())
    classes = {name: ranges_of(re.findall(pattern, every)) for name, pattern in (("word", r"\w"), ("space", r"\s"))}
    return classes | {"lower": list(_changed((character, character.lower()) for character in every))}


def _changed(pairs: Iterable[tuple[str, str]]) -> tuple[str, str]:
    changed = [(character, other) for character, other in pairs if character != other]
    return "".join(character for character, _ in changed), "\0".join(other for _, other in changed)


def _normalised(normalizer: Any, between: str = "\1") -> Iterator[tuple[str, str]]:
    """Every character, but one that is put between them, and what is made of it alone."""
    others = [character for character in every_character() if character != between]
    yield from zip(others, normalizer.normalize_str(between.join(others)).split(between), strict=True)
