"""A table of characters, as sentencepiece and the ``tokenizers`` library keep it: a double-array trie, then texts that end in 0.

    4 bytes    size of the trie in bytes
    trie       32-bit units: bits 0-7 the byte that leads here, bit 8 whether a key ends here, bits 10-30 where its children lie;
               the unit of a key's end has bit 31, and the place of its text
    texts      UTF-8, each ends in 0

The children of a node lie at ``base ^ byte``, and its end at ``base``. No two nodes have the same base, so no byte leads astray.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

_BLOCK = 256
"""``base ^ byte`` stays within a block of so many units"""
_END = 0
"""in place of a byte: a key ends"""


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
    """(units,) of a tree of bytes, whose ends hold the place of a text."""
    units, used, bases = np.zeros(_BLOCK, dtype=np.uint32), np.zeros(_BLOCK, dtype=bool), np.zeros(_BLOCK, dtype=bool)
    used[0], waiting = True, [(0, tree)]
    for place, node in waiting:  # grows
        children = np.array([*node])
        base = _free_base(children, used, bases)
        if base is None:
            base = len(units)
            units, used, bases = (np.concatenate([one, np.zeros(_BLOCK, one.dtype)]) for one in (units, used, bases))
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
