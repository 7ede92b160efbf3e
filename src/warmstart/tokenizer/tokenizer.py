"""A tokenizer: text to ids and back.

One final class around the ``tokenizers`` library, the same for every kind. Notable:

- Text never produces a special id, not even text that spells ``[MASK]`` (see ``specials.py``; ``unk`` stands for what
  a vocabulary cannot spell). Encoding adds no special token: only code places them.
- One JSON string is the whole state. It is the library's own ``tokenizer.json``, so other tools read it.
- ``digest`` names the behaviour: equal digests encode alike.

It does not train (``train.py``), read other formats (``load.py``) or pad and truncate (batches do).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from warmstart.errors import TokenizerError
from warmstart.storage import sha256, write_forced
from warmstart.tokenizer.pieces import kind_of, readable, spelled, starts_word
from warmstart.tokenizer.specials import adopt
from warmstart.types import Vocabulary


class Tokenizer:
    """Text to ids and back, by a tokenizer of the ``tokenizers`` library given as its JSON.

    A foreign JSON is welcome: its special tokens are recognised by their well-known names (``<pad>``, ``</s>``,
    ``<|endoftext|>``, ``[SEP]``, ``<mask>``, ``<s>`` …), missing ones are added at the end of the vocabulary, and its padding
    and truncation settings are dropped. What its post-processor puts around a text (``[CLS]`` … ``[SEP]``) becomes
    ``specials.begin`` and ``specials.eos``. Sentinels (``<extra_id_0>`` …) are kept, and added up to ``sentinels``.
    """

    def __init__(self, text: str, sentinels: int = 0) -> None:
        self._backend, self.specials = adopt(text, sentinels)
        self.kind = kind_of(json.loads(self._backend.to_str()))
        self._special_ids = self.specials.all()

    @cached_property
    def vocab_size(self) -> int:
        """The number of rows an embedding needs: the highest id plus one, special tokens included."""
        return 1 + max(self._backend.get_vocab(with_added_tokens=True).values())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without any special token. ``encode(["a b"])`` -> ``[[64, 275]]``, say."""
        if isinstance(texts, str):
            raise TokenizerError("encode takes a list of texts, but one string came; write encode([text])")
        try:
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        except TypeError:
            raise TokenizerError(
                "every text must be a valid Unicode string; got something else, or a lone surrogate; "
                "read files with errors='replace'"
            ) from None
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids; special ones are left out. Bytes that form no character become U+FFFD."""
        ordinary = [int(id) for id in ids if int(id) not in self._special_ids]
        text: str = self._backend.decode(ordinary, skip_special_tokens=True)
        return text

    def token(self, id: int) -> str:
        """The piece of an id as it prints: byte-level pieces as text (``" the"``), others as they are stored."""
        piece = self._backend.id_to_token(int(id))
        if piece is None:
            raise TokenizerError(f"an id must be between 0 and {self.vocab_size - 1}; got {id}")
        return readable(piece) if self.kind == "bytes" else str(piece)

    def id(self, token: str) -> int | None:
        """The id of a piece, None if there is no such piece.

        A piece may be spelled as ``token`` prints it or as it is stored. (Byte-level pieces that hold a part of a character
        print as hexadecimal bytes, which are also text: these are found by their stored spelling only.)
        """
        found: int | None = None
        if self.kind == "bytes":
            found = self._backend.token_to_id(spelled(token))
        return self._backend.token_to_id(token) if found is None else found

    def vocabulary(self) -> Vocabulary:
        """What an objective needs: size, special ids, and (V,) which tokens begin a word (rules: ``pieces.py``)."""
        return self._vocabulary

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        starts = np.zeros(self.vocab_size, dtype=bool)
        for piece, id in self._backend.get_vocab(with_added_tokens=True).items():
            starts[id] = id in self._special_ids or starts_word(self.kind, piece)
        starts.flags.writeable = False  # shared by all who ask
        return Vocabulary(self.vocab_size, self.specials, starts)

    @cached_property
    def digest(self) -> str:
        """The sha256 (hex) of the canonical JSON: keys sorted, no white space."""
        canonical = json.dumps(json.loads(self.to_json()), sort_keys=True, separators=(",", ":"))
        return sha256(canonical.encode())

    def to_json(self) -> str:
        """The whole tokenizer as ``tokenizer.json``, the format of the ``tokenizers`` library."""
        text: str = self._backend.to_str()
        return text

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """A tokenizer from ``tokenizer.json``, our own or a foreign one; raises ``TokenizerError`` if it is neither."""
        return cls(text)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``tokenizer.json`` to ``path``: aside first, then renamed, so that no half file is ever seen."""
        write_forced(Path(path), self.to_json().encode(), "the tokenizer")

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self.to_json(),)  # the library's own pickling would forget to guard special tokens

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, vocab_size={self.vocab_size})"
