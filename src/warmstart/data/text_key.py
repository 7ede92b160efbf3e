"""When two texts count as the same: they have the same letters and digits in the same order.

Case, white space, punctuation, HTML tags, invisible characters and look-alike letters of other alphabets make no other text:

    "Don’t  pаnic!" (а is Cyrillic)  ->  words dont, panic  ->  key "dontpanic"
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from warmstart.config import Config
from warmstart.system.storage import digest_of

CYRILLIC = dict(zip("АВЕЅІЈКМНОРСТХҮԌԛԝаеѕіјорсухһԁѵ", "ABESIJKMHOPCTXYGqwaesijopcyxhdv", strict=True))
GREEK = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαιορνγυ", "ABEZHIKMNOPTYXaiopvyu", strict=True))
LATIN = dict(zip("ıɑɡ", "iag", strict=True))
LOOK_ALIKE = str.maketrans(CYRILLIC | GREEK | LATIN)
"""letters that look like an unaccented Latin one, and that one: from the table of confusables in Unicode Technical Standard 39"""
WITHOUT_SPACES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
"""first words of the names of characters of scripts without spaces: each character counts as a word"""
_TAG = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|br|center|code|dd|div|dl|dt|em|font|h[1-6]|hr|i|img|li|ol|p|pre|s|small|span|strike|strong|sub|sup"
    r"|table|tbody|td|th|thead|tr|tt|u|ul)(?:\s+[\w:-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'<>]+))*\s*/?>",
    re.IGNORECASE,
)
"""an HTML tag of text, with attributes; not ``<unk>``, and no comparison such as ``a < b``"""
_MIXED = re.compile("[A-Za-z]")
_NUMBER = re.compile(r"-?\d+(?:\.0+)?")
SIGNS = frozenset("+#<>=*!?%$€&@~^")
"""signs that tell the names of labels apart"""
_BETWEEN_NUMBERS = re.compile(r"(\d) (?=\d)")


class _Kept(dict[int, str]):
    """Cache: character code -> its normalised form."""

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
    """The words of a text as they are compared: letters, marks and digits, without case and HTML tags.

    >>> text_words("Don't<br />PANIC!")
    ['dont', 'panic']
    """
    if "<" in text:
        text = _TAG.sub(" ", text)
    if text.isascii():
        return text.translate(_KEPT).casefold().split()
    words = unicodedata.normalize("NFKC", text).translate(_KEPT).split()
    return [(word.translate(LOOK_ALIKE) if not word.isascii() and _MIXED.search(word) else word).casefold() for word in words]


def text_key(text: str) -> str:
    """The key of texts that count as the same; a text without letters and digits keeps its signs.

    >>> text_key("The  e-mail: 10 30") == text_key("the email 10:30")
    True
    """
    words = _BETWEEN_NUMBERS.sub(r"\1_", " ".join(text_words(text)))  # "1 23" is not "12 3"
    return words.replace(" ", "") or "".join(sign for sign in text if not sign.isspace() and unicodedata.category(sign) != "Cf")


def label_key(name: str) -> str:
    """The key of the spellings of one label, which differ in case, spaces, punctuation, form of characters or decimals.

    Signs that tell names apart count, and zeros before a number: ``A-`` and ``A``, ``C``, ``C++`` and ``C#``, ``7`` and ``007``.
    """
    plain = unicodedata.normalize("NFKC", name).strip()
    if _NUMBER.fullmatch(plain):
        return plain.partition(".")[0]
    minus = "-" if name[:1] == "-" or name[-1:] == "-" else ""
    return text_key(name) + minus + "".join(character for character in name if character in SIGNS) if text_key(name) else name


# The texts of a split in few bytes: a hash of 40 bits of each, kept with a model that learned from them.
#
# So a model knows later which texts of a split are new or missing, and which of a test split it was trained on. Texts are the same
# if their ``text_key`` is. At most ``MOST`` hashes are kept: of a larger split the smallest ones, which are a random sample of its
# texts; counts are then estimates. By chance, one in fifty million new texts is taken for a known one.
#
# A hash keeps no text, but whoever has a text, or guesses a short one, can tell whether it is among them (SECURITY.md).

BYTES = 5
"""bytes of a hash"""
MOST = 20_000
"""hashes of a split; 130 KB as text"""
NO_HASHES = "WARMSTART_NO_TEXT_HASHES"
"""the environment variable that, if it is set, keeps hashes of texts out of models"""

Key = str | list[str]


def key_of(text: Any) -> Key:
    """The key of a text, alike for texts that count as the same; a list for a text of several parts."""
    return text_key(text) if isinstance(text, str) else [*map(text_key, text)]


class Overlap(NamedTuple):
    """Number of the texts of a split that are among known ones."""

    number: int
    places: tuple[int, ...]
    """indices of those that were found, all of them if it is ``exact``"""
    exact: bool
    """False: an estimate from a sample of the known texts"""

    @property
    def words(self) -> str:
        """``3``, or ``about 30``."""
        return f"{self.number:,}" if self.exact else f"about {self.number:,}"


class TextHashes(Config):
    """The texts of a split, or of several."""

    digest: str
    """digest of all texts with their targets, in any order"""
    hashes: str
    """kept hashes, ascending, in base64"""
    part: float = 1.0
    """the fraction of all possible hashes that are kept if a text has them"""

    @classmethod
    def of(cls, keys: Sequence[Key], targets: Sequence[Any] = ()) -> TextHashes:
        """The texts with these keys, and their targets as plain values, if they have any."""
        hashes = sorted(set(map(key_hash, keys)))
        part = 1.0
        if len(hashes) > MOST:
            part = int.from_bytes(hashes[MOST], "big") / 256**BYTES
            hashes = hashes[:MOST]
        rows = zip(keys, targets, strict=True) if targets else ((key, None) for key in keys)
        digest = digest_of(sorted(json.dumps(row, default=np.ndarray.tolist) for row in rows))
        return cls(digest=digest, hashes=base64.b64encode(b"".join(hashes)).decode(), part=part)

    @cached_property
    def kept(self) -> frozenset[bytes]:
        """The hashes that are kept."""
        data = base64.b64decode(self.hashes)
        return frozenset(data[start : start + BYTES] for start in range(0, len(data), BYTES))

    def changes(self, now: TextHashes) -> tuple[int, int]:
        """Numbers of different texts that are new, and that are missing; estimates if either side keeps a sample."""
        part = min(self.part, now.part)
        before, after = (
            {key for key in split.kept if int.from_bytes(key, "big") < part * 256**BYTES or part == 1} for split in (self, now)
        )
        return round(len(after - before) / part), round(len(before - after) / part)


def joint_overlap(known: Sequence[TextHashes], keys: Sequence[Key]) -> Overlap:
    """Number of these texts that are among those of any of ``known``; copies count each.

    Where one keeps a sample only, this is the largest of the estimates and of what was found: a lower bound in the mean.
    """
    hashes = [key_hash(key) for key in keys]
    places = [{number for number, digest in enumerate(hashes) if digest in texts.kept} for texts in known]
    together = sorted(set[int]().union(*places))
    estimates = (round(len(own) / texts.part) for own, texts in zip(places, known, strict=True))
    number = min(len(keys), max(len(together), *estimates, 0))
    return Overlap(number, tuple(together), all(texts.part == 1 for texts in known))


def text_hashes_wanted() -> bool:
    """True if models keep hashes of the texts that they learn from."""
    return not os.environ.get(NO_HASHES)


def key_hash(key: Key) -> bytes:
    """The hash of a key by which a model knows a text: ``BYTES`` bytes."""
    return hashlib.sha256(json.dumps(key).encode()).digest()[:BYTES]


def plain_text(text: Any) -> str:
    """Any input as one string."""
    return text if isinstance(text, str) else " ".join(text)


def is_blank(text: Any) -> bool:
    """True if an input is a text without a character to read: it gets no label."""
    return isinstance(text, str) and not text.strip()
