"""Pieces of a vocabulary: the text of each, and whether it begins a word.

Each type of tokenizer marks words differently:

    bytes                    "Ġthe"   a leading space is part of the piece (byte 32 is written Ġ)
    wordpiece                "##ing"  a piece *inside* a word is marked
    unigram, sentencepiece   "▁the"   a piece at the start of a word is marked
    word                     "the"    every piece is a word
    character                "t"      nothing is marked; the white space before a word counts as its start, because an id
                                      alone does not show which character came before
"""

from __future__ import annotations

from typing import Any

from warmstart.errors import TokenizerError

WORD_MARK = "▁"
"""marks the start of a word in unigram and sentencepiece vocabularies (U+2581)"""
EVERY_CHARACTER = r"[\s\S]"
"""the pattern at which tokenizers of type ``character`` split"""


def _byte_table() -> dict[str, int]:
    """GPT-2's printable character for each byte: printable Latin-1 bytes are themselves, the others are numbered from 256."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _byte_table()
_CHARACTER_OF = {byte: character for character, byte in _BYTE_OF.items()}


def tokenizer_type(spec: dict[str, Any]) -> str:
    """The type of a tokenizer from its JSON: one of the five that can be trained here, or ``sentencepiece`` (BPE with ▁).

    Raises ``TokenizerError`` for a tokenizer that marks no words.
    """
    model, steps = spec["model"], _steps(spec["pre_tokenizer"]) + _steps(spec["decoder"])
    types = {"WordPiece": "wordpiece", "Unigram": "unigram", "WordLevel": "word", "BPE": "sentencepiece"}
    if model.get("end_of_word_suffix") or model["type"] not in types:
        raise TokenizerError(
            f"a tokenizer must mark the starts of words (Ġ or ▁) or their insides (##), but this {model['type']} model "
            "does neither; train a new tokenizer or choose another model"
        )
    if any(step["type"] == "ByteLevel" for step in steps):
        return "bytes"
    if any(step.get("pattern") == {"Regex": EVERY_CHARACTER} for step in steps):
        return "character"
    return types[model["type"]]


def _steps(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """A component and all components inside it, as a flat list."""
    if part is None:
        return []
    inner = part.get("pretokenizers", []) + part.get("decoders", [])
    return [part, *(step for child in inner for step in _steps(child))]


def starts_word(tokenizer_type: str, piece: str) -> bool:
    """True if an ordinary piece begins a word, by the rule of the type of its tokenizer (see the table above).

    >>> starts_word("bytes", "Ġthe"), starts_word("wordpiece", "##ing"), starts_word("unigram", "▁the")
    (True, False, True)
    """
    if tokenizer_type == "bytes":
        return chr(_BYTE_OF.get(piece[:1], 0)) in " \n\r\t"
    if tokenizer_type == "wordpiece":
        return not piece.startswith("##")
    if tokenizer_type == "word":
        return True
    return piece.isspace() if tokenizer_type == "character" else piece.startswith(WORD_MARK)


def bare_piece(piece: str) -> str:
    """A piece without the mark that it has at the start of a word, or inside one."""
    return piece.removeprefix("##").lstrip(f"Ġ{WORD_MARK}")


def piece_to_text(piece: str) -> str:
    """The text of a byte-level piece: ``piece_to_text("Ġcaf")`` -> ``" caf"``; parts of characters become hexadecimal bytes."""
    if not all(character in _BYTE_OF for character in piece):
        return piece
    return bytes(_BYTE_OF[character] for character in piece).decode("utf-8", errors="backslashreplace")


def text_to_piece(text: str) -> str:
    """The byte-level piece of a text: ``text_to_piece(" the")`` -> ``"Ġthe"``; the inverse of ``piece_to_text``."""
    return "".join(_CHARACTER_OF[byte] for byte in text.encode("utf-8"))


def visible(token: str) -> str:
    """A token with its spaces shown: ``" the"`` -> ``"␣the"``; a line end -> ``"⏎"``."""
    return token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
