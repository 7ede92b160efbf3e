"""When two texts count as the same: they have the same letters and digits in the same order.

Case, white space, punctuation, invisible characters and look-alike letters from other alphabets do not make a text another one:

    "Don\u2019t  p\u0430nic!" (\u0430 is Cyrillic)  ->  words dont, panic  ->  key "dontpanic"
"""

from __future__ import annotations

import re
import unicodedata

CYRILLIC = dict(zip("АВЕЅІЈКМНОРСТХҮԌԛԝаеѕіјорсухһԁѵ", "ABESIJKMHOPCTXYGqwaesijopcyxhdv", strict=True))
GREEK = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαιορνγυ", "ABEZHIKMNOPTYXaiopvyu", strict=True))
LATIN = dict(zip("ıɑɡ", "iag", strict=True))
LOOK_ALIKE = str.maketrans(CYRILLIC | GREEK | LATIN)
"""letters that look like an unaccented Latin one, and that one: from the table of confusables in Unicode Technical Standard 39"""
WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
"""how the names of characters begin whose scripts put no space between words: each character counts as a word"""
_MIXED = re.compile("[A-Za-z]")
_BETWEEN_NUMBERS = re.compile(r"(\d) (?=\d)")


class _Kept(dict[int, str]):
    """Character code -> what is left of it; found out when a character is first met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)
        if category == "Cf" or character in "'\u2019`\u034f" or "VARIATION SELECTOR" in unicodedata.name(character, ""):
            kept = ""
        elif category[0] not in "LMN":
            kept = " "
        else:
            kept = f" {character} " if unicodedata.name(character, "").startswith(WITHOUT_SPACES) else character
        self[code] = kept
        return kept


_KEPT = _Kept()


def text_words(text: str) -> list[str]:
    """The words of a text as they are compared: letters, marks and digits, without case.

    >>> text_words("Don't PANIC!")
    ['dont', 'panic']
    """
    if text.isascii():
        return text.translate(_KEPT).casefold().split()
    words = unicodedata.normalize("NFKC", text).translate(_KEPT).split()
    return [(word.translate(LOOK_ALIKE) if not word.isascii() and _MIXED.search(word) else word).casefold() for word in words]


def text_key(text: str) -> str:
    """What texts that count as the same have in common; a text without letters and digits keeps its signs.

    >>> text_key("The  e-mail: 10 30") == text_key("the email 10:30")
    True
    """
    words = _BETWEEN_NUMBERS.sub(r"\1_", " ".join(text_words(text)))  # "1 23" is not "12 3"
    return words.replace(" ", "") or "".join(one for one in text if not one.isspace() and unicodedata.category(one) != "Cf")
