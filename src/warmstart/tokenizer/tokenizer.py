"""A tokenizer: text to ids and back.

One class around the ``tokenizers`` library, the same for every type of tokenizer. Notable:

- Text is never encoded to a special id, not even text that spells ``[MASK]`` (see ``specials.py``), except ``unk``, which replaces
  what the vocabulary cannot spell. Encoding adds no special tokens: only code inserts them.
- Its whole state is one JSON string, the library's own ``tokenizer.json``, which other tools can read.
- ``digest`` identifies its behaviour: tokenizers with equal digests encode alike.

It does not train (``train.py``), read other formats (``load.py``) or pad and truncate (``data/encode.py``).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from warmstart.errors import TokenizerError
from warmstart.system.storage import atomic_write, sha256
from warmstart.tokenizer.checks import highest_id
from warmstart.tokenizer.pieces import bare_piece, piece_to_text, starts_word, text_to_piece, tokenizer_type
from warmstart.tokenizer.specials import doubles_separator, guarded_backend, library_errors, prefix_of
from warmstart.types import Vocabulary


class Tokenizer:
    """Text to ids and back, by a tokenizer of the ``tokenizers`` library given as its JSON.

    The JSON may come from elsewhere: its special tokens are recognised by their well-known spellings (``<pad>``, ``</s>``,
    ``<|endoftext|>``, ``[SEP]``, ``<mask>``, ``<s>`` …), missing ones are added at the end of the vocabulary, and its padding and
    truncation settings are removed. The tokens that its post-processor adds around a text (``[CLS]`` … ``[SEP]``) become
    ``specials.begin`` and ``specials.eos``. Sentinels (``<extra_id_0>`` …) are kept, and added up to the number ``sentinels``.
    """

    def __init__(self, text: str, sentinels: int = 0) -> None:
        self._backend, self.specials, spec = guarded_backend(text, sentinels)
        self.type = tokenizer_type(spec)
        self.vocab_size = 1 + highest_id(spec)
        """V, the number of rows that an embedding needs: the highest id plus one, special tokens included"""

        self._special_ids = self.specials.all()
        self.prefix = prefix_of(spec["post_processor"], self.vocab_size)
        """tokens of the words that precede every text ("query: "), where a model was trained with such words"""

        self.between = (self.specials.eos,) * (1 + doubles_separator(spec["post_processor"]))
        """the tokens between the texts of a pair: the end-of-text token, in RoBERTa's form twice"""

    @property
    def opening(self) -> tuple[int, ...]:
        """The tokens that every row begins with: the token for the beginning, then the words that precede every text."""
        return self.specials.begin, *self.prefix

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens: ``encode(["a b"])`` -> ``[[64, 275]]``, say.

        Raises ``TokenizerError`` for a single string, and for text that is not valid Unicode.
        """
        if isinstance(texts, str):
            raise TokenizerError("encode takes a list of texts, but got a single string; write encode([text])")
        with library_errors("this tokenizer cannot read one of the texts; use another"):
            try:
                return [encoding.ids for encoding in self._backend.encode_batch_fast(list(texts), add_special_tokens=False)]
            except (TypeError, AttributeError):
                raise TokenizerError(
                    "every text must be a valid Unicode string, but one is something else or has a lone surrogate; "
                    "read files with errors='replace'"
                ) from None

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, without special tokens. Bytes that form no character become U+FFFD."""
        ordinary = [int(id) for id in ids if int(id) not in self._special_ids]
        with library_errors("this tokenizer cannot write these tokens; use another"):
            text: str = self._backend.decode(ordinary, skip_special_tokens=True)
        return text

    def token(self, id: int) -> str:
        """The piece of an id: byte-level pieces as text (``" the"``), others as stored. Raises ``TokenizerError`` for other ids."""
        piece = self._backend.id_to_token(int(id))
        if piece is None:
            raise TokenizerError(f"an id must be between 0 and {self.vocab_size - 1}, but this is {id}")
        return piece_to_text(piece) if self.type == "bytes" else str(piece)

    def id(self, token: str) -> int | None:
        """The id of a piece; None: there is no such piece.

        A piece may be given as ``token`` returns it or as it is stored. (A byte-level piece with a part of a character is returned
        as hexadecimal bytes, which are also ordinary text: it is only found as it is stored.)
        """
        id: int | None = None
        if self.type == "bytes":
            id = self._backend.token_to_id(text_to_piece(token))
        return self._backend.token_to_id(token) if id is None else id

    def spelled(self, texts: Sequence[str]) -> float:
        """The share of pieces with letters that are one letter, or unknown: most of them are in a language that was not read."""
        counts = Counter(id_ for row in self.encode(texts) for id_ in row)
        pieces = {id_: bare_piece(self.token(id_)) for id_ in counts}
        single = {id_: id_ == self.specials.unk or len(piece) == 1 for id_, piece in pieces.items() if any(map(str.isalpha, piece))}
        return sum(counts[id_] for id_, short in single.items() if short) / max(1, sum(counts[id_] for id_ in single))

    def vocabulary(self) -> Vocabulary:
        """Facts for an objective: size, special ids, and (V,) which tokens begin a word (by the rules in ``pieces.py``)."""
        return self._vocabulary

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        starts = np.zeros(self.vocab_size, dtype=bool)
        for piece, id in self._backend.get_vocab(with_added_tokens=True).items():
            starts[id] = id in self._special_ids or starts_word(self.type, piece)
        starts.flags.writeable = False  # every caller gets this same array
        return Vocabulary(self.vocab_size, self.specials, starts)

    def checksums(self) -> np.ndarray:
        """(V + S,) a checksum of the piece of each id, 0 where there is none, then the ids of the special tokens."""
        sums, special = np.zeros(self.vocab_size, dtype=np.int64), self.specials
        for piece, id in self._backend.get_vocab(with_added_tokens=True).items():
            sums[id] += crc32(piece.encode())  # two spellings of one id come in any order
        roles = (special.pad, special.unk, special.eos, special.mask, special.cls, special.begin, *special.sentinels)
        return np.concatenate([sums, np.array(roles, dtype=np.int64)])

    @cached_property
    def digest(self) -> str:
        """The SHA-256 (hexadecimal) of the canonical JSON: keys sorted, no white space."""
        canonical = json.dumps(json.loads(self.to_json()), sort_keys=True, separators=(",", ":"))
        return sha256(canonical.encode())

    def to_json(self) -> str:
        """The whole tokenizer as ``tokenizer.json``, the format of the ``tokenizers`` library."""
        text: str = self._backend.to_str()
        return text

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """A tokenizer from the text of a ``tokenizer.json``. Raises ``TokenizerError`` if it is not one."""
        return cls(text)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``tokenizer.json`` to ``path``, atomically."""
        atomic_write(Path(path), self.to_json().encode(), "the tokenizer")

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self.to_json(),)  # the library's own pickling would lose ``encode_special_tokens``

    def __repr__(self) -> str:
        return f"Tokenizer(type={self.type!r}, vocab_size={self.vocab_size})"
