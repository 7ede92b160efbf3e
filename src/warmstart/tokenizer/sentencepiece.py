"""Sentencepiece ``.model`` files (Kudo & Richardson 2018), read without the sentencepiece library.

A model file is one protocol-buffer message, of which only a few fields matter, and the wire format is simple enough to parse here.
BPE and unigram models become the JSON of the ``tokenizers`` library. Word and character models are refused. Ordinary text is split
as by sentencepiece; user-defined pieces are not cut out of the text first.
https://protobuf.dev/programming-guides/encoding describes the wire format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from warmstart.errors import TokenizerError
from warmstart.tokenizer.pieces import WORD_MARK

_BLOCK = 256
"""``base ^ byte`` stays within a block of so many units"""
_END = 0
"""end of a key, in place of a byte"""


def compiled_charsmap(table: Mapping[str, str]) -> bytes:
    """The table in this form, for the normaliser ``Precompiled``: each character is replaced by its text."""
    texts, places = bytearray(), dict[str, int]()
    for text in table.values():
        if text not in places:
            places[text] = len(texts)
            texts += text.encode() + b"\0"
    tree: dict[int, Any] = {}
    for key, text in table.items():
        node = tree
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[_END] = places[text]
    trie = _double_array(tree).astype("<u4").tobytes()
    return len(trie).to_bytes(4, "little") + trie + bytes(texts)


def _double_array(tree: dict[int, Any]) -> np.ndarray:
    """(units,) the double array of a tree of bytes, whose ends hold the place of a text."""
    units, used, bases = np.zeros(_BLOCK, dtype=np.uint32), np.zeros(_BLOCK, dtype=bool), np.zeros(_BLOCK, dtype=bool)
    used[0], waiting = True, [(0, tree)]
    for place, node in waiting:  # grows on the way
        children = np.array([*node])
        base = _free_base(children, used, bases)
        if base is None:
            base = len(units)
            units, used, bases = (np.concatenate([table, np.zeros(_BLOCK, table.dtype)]) for table in (units, used, bases))
        bases[base], used[base ^ children] = True, True
        units[place] |= (base ^ place) << 10 | (_END in node) << 8
        for byte, inner in node.items():
            if byte == _END:
                units[base] = 1 << 31 | inner
            else:
                units[base ^ byte] = byte
                waiting.append((base ^ byte, inner))
    return units


def _free_base(children: np.ndarray, used: np.ndarray, bases: np.ndarray) -> int | None:
    """The first base whose places for these ``children`` (C,) are free; None: there is none. The last blocks alone are searched."""
    start = max(0, len(used) - 8 * _BLOCK)
    free = np.arange(start, len(used))
    free = free[~bases[free] & ~used[free[:, None] ^ children].any(axis=1)]
    return int(free[0]) if len(free) else None


_ONE_SPACE = r"\A +| +\z| +(?= )"
"""spaces to remove, so that there is one between two words"""
_UNIGRAM, _BPE = 1, 2
"""types of models"""
_UNKNOWN, _CONTROL = 2, 3
"""types of pieces"""
LONGEST_PIECE = 256
"""most characters of a piece: the ways to cut it are tried one after another"""


@dataclass(frozen=True)
class SentencePieceModel:
    """The fields of a model file that matter here."""

    pieces: tuple[tuple[str, float, int], ...]
    """(spelling, score, type) of each id; types: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte"""
    model_type: int
    """1 unigram, 2 BPE"""
    byte_fallback: bool
    """unknown characters are split into bytes"""
    charsmap: bytes
    """compiled table of the normalisation; empty: none"""
    dummy_prefix: bool
    """True if a space is put before the text"""
    trim: bool
    """spaces at both ends are removed, runs of spaces become one"""


def parse_sentencepiece(data: bytes) -> SentencePieceModel:
    """The model in the bytes of a file. Raises ``TokenizerError`` unless it is a sentencepiece BPE or unigram model."""
    try:
        fields = _fields(data)
        pieces = tuple(_piece(piece) for piece in fields.get(1, []))
        trainer = _fields(fields[2][-1]) if 2 in fields else {}
        normalizer = _fields(fields[3][-1]) if 3 in fields else {}
        model = SentencePieceModel(
            pieces,
            model_type=trainer.get(3, [_UNIGRAM])[-1],
            byte_fallback=bool(trainer.get(35, [0])[-1]),
            charsmap=bytes(normalizer.get(2, [b""])[-1]),
            dummy_prefix=bool(normalizer.get(3, [1])[-1]),
            trim=bool(normalizer.get(4, [1])[-1]),
        )
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error):
        raise TokenizerError("this is not a sentencepiece model; give the .model file that spm_train wrote") from None
    if (longest := max((len(piece) for piece, _, _ in pieces), default=0)) > LONGEST_PIECE:
        raise TokenizerError(f"a piece must have at most {LONGEST_PIECE:,} characters, but one has {longest:,}; use another model")
    if not any(kind == _UNKNOWN for _, _, kind in pieces) or model.model_type not in (_UNIGRAM, _BPE):
        raise TokenizerError(
            f"a sentencepiece model must be of type unigram (1) or BPE (2) and hold an unknown piece, but this one is of type "
            f"{model.model_type} with {len(pieces)} pieces; train it with --model_type=unigram or bpe"
        )
    return model


def _piece(data: bytes) -> tuple[str, float, int]:
    fields = _fields(data)
    score = struct.unpack("<f", fields[2][-1])[0] if 2 in fields else 0.0
    return fields[1][-1].decode("utf-8"), score, fields.get(3, [1])[-1]


def _fields(data: bytes) -> dict[int, list[Any]]:
    """The fields of one message by number: integers for varints, bytes for the rest. ``08 96 01`` -> ``{1: [150]}``."""
    fields: dict[int, list[Any]] = {}
    for number, value in _wire(data):
        fields.setdefault(number, []).append(value)
    return fields


def _wire(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, value) of each field of a message."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == 0:
            value, position = _varint(data, position)
            yield key >> 3, value
            continue
        if kind == 2:
            length, position = _varint(data, position)
        else:
            length = {1: 8, 5: 4}[kind]
        if position + length > len(data):
            raise ValueError("a field ends after the message")
        yield key >> 3, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits per byte, lowest first, and the position after it; a set top bit means that more bytes follow."""
    value = shift = 0
    while True:
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def sentencepiece_json(model: SentencePieceModel) -> str:
    """The tokenizer of a model file as ``tokenizer.json``."""
    unknown = next(id for id, (_, _, kind) in enumerate(model.pieces) if kind == _UNKNOWN)
    if model.model_type == _UNIGRAM:
        scores = [(piece, score) for piece, score, _ in model.pieces]
        inner: Any = models.Unigram(scores, unk_id=unknown, byte_fallback=model.byte_fallback)
    else:
        vocabulary = {piece: id for id, (piece, _, _) in enumerate(model.pieces)}
        inner = models.BPE(
            vocabulary,
            _merges(model),
            unk_token=model.pieces[unknown][0],
            fuse_unk=True,
            byte_fallback=model.byte_fallback,
        )
    backend = Backend(inner)
    clean: list[Any] = [normalizers.Precompiled(model.charsmap)] if model.charsmap else []
    if model.trim:
        clean.append(normalizers.Replace(Regex(_ONE_SPACE), ""))
    backend.normalizer = normalizers.Sequence(clean)
    scheme = "always" if model.dummy_prefix else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=WORD_MARK, prepend_scheme=scheme)
    blank = [decoders.Strip(" ", 1, 0)] if model.dummy_prefix else []
    backend.decoder = decoders.Sequence([decoders.Replace(WORD_MARK, " "), decoders.ByteFallback(), decoders.Fuse(), *blank])
    text: str = backend.to_str()
    return text


def _merges(model: SentencePieceModel) -> list[tuple[str, str]]:
    """The merges of a BPE model, which its file does not store: every way to build a piece from two others, best piece first.

    Pieces ``a b ab abb`` with falling scores -> ``(a, b)``, ``(ab, b)``.
    """
    known = {piece for piece, _, kind in model.pieces if kind not in (_UNKNOWN, _CONTROL)}
    scores = {piece: score for piece, score, _ in model.pieces}
    return [
        (piece[:cut], piece[cut:])
        for piece in sorted(known, key=lambda piece: (-scores[piece], piece))
        for cut in range(1, len(piece))
        if piece[:cut] in known and piece[cut:] in known
    ]
