"""Model files of sentencepiece, as its library writes them."""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    """Seven bits a byte, lowest first."""
    head = b""
    while value >= 0x80:
        head += bytes([value & 0x7F | 0x80])
        value >>= 7
    return head + bytes([value])


def field(number: int, value: int | bytes | float) -> bytes:
    """One field of a protocol-buffer message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def model_file(pieces: list[tuple[str, float, int]], trainer: bytes, normalizer: bytes = b"") -> bytes:
    """A model file with these pieces (spelling, score, type)."""
    parts = [field(1, piece.encode()) + field(2, score) + field(3, kind) for piece, score, kind in pieces]
    return b"".join(field(1, part) for part in parts) + field(2, trainer) + field(3, normalizer)


CONTROL = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3)]
"""pieces that every model has"""
