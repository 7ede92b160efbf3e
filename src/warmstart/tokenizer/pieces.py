"""What a piece of a vocabulary says about itself: its text, and whether it begins a word.

Each kind of tokenizer marks words differently:

    bytes                    "Ġthe"   a leading space is part of the piece (Ġ is how byte 32 is written)
    wordpiece                "##ing"  a piece *inside* a word is marked
    unigram, sentencepiece   "▁the"   a piece at the start of a word is marked
    word                     "the"    every piece is a word
    character                "t"      nothing is marked: the character before decides, which an id alone cannot know;
                                      so the white space before a word counts as its start
"""

from __future__ import annotations

from typing import Any

from warmstart.errors import TokenizerError

MARK = "▁"
EVERY_CHARACTER = r"[\s\S]"


def _byte_table() -> dict[str, int]:
    """GPT-2's one printable character per byte: printable Latin-1 stands for itself, the others move up from 256."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


BYTE_OF = _byte_table()
CHARACTER_OF = {byte: character for character, byte in BYTE_OF.items()}


def kind_of(spec: dict[str, Any]) -> str:
    """The kind of a tokenizer, from its JSON: five that can be trained here, and ``sentencepiece`` (BPE with ▁)."""
    model, steps = spec["model"], _steps(spec["pre_tokenizer"]) + _steps(spec["decoder"])
    kinds = {"WordPiece": "wordpiece", "Unigram": "unigram", "WordLevel": "word", "BPE": "sentencepiece"}
    if model.get("end_of_word_suffix") or model["type"] not in kinds:
        raise TokenizerError(
            f"a tokenizer must mark the starts of words (Ġ or ▁) or their insides (##); got a {model['type']} model "
            "that does neither; train a new tokenizer or choose another model"
        )
    if any(step["type"] == "ByteLevel" for step in steps):
        return "bytes"
    if any(step.get("pattern") == {"Regex": EVERY_CHARACTER} for step in steps):
        return "character"
    return kinds[model["type"]]


def _steps(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """A component and all that it is made of, flat."""
    if part is None:
        return []
    inner = part.get("pretokenizers", []) + part.get("decoders", [])
    return [part, *(step for child in inner for step in _steps(child))]


def starts_word(kind: str, piece: str) -> bool:
    """Whether an ordinary piece begins a word, by the rule of its kind (see the table above).

    >>> starts_word("bytes", "Ġthe"), starts_word("wordpiece", "##ing"), starts_word("unigram", "▁the")
    (True, False, True)
    """
    if kind == "bytes":
        return chr(BYTE_OF.get(piece[:1], 0)) in " \n\r\t"
    if kind == "wordpiece":
        return not piece.startswith("##")
    if kind == "word":
        return True
    return piece.isspace() if kind == "character" else piece.startswith(MARK)


def readable(piece: str) -> str:
    """A byte-level piece as text: ``readable("Ġcaf")`` -> ``" caf"``; a part of a character as its hexadecimal bytes."""
    if not all(character in BYTE_OF for character in piece):
        return piece
    return bytes(BYTE_OF[character] for character in piece).decode("utf-8", errors="backslashreplace")


def spelled(text: str) -> str:
    """Text as the byte-level piece that stands for it: ``spelled(" the")`` -> ``"Ġthe"``; the inverse of ``readable``."""
    return "".join(CHARACTER_OF[byte] for byte in text.encode("utf-8"))
