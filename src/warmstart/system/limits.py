"""Limits on files from strangers, checked before anything is built from one.

A file comes from a stranger if it may have been downloaded as a whole with others: a bundle, a stack, a model in the Hugging Face
format, LoRA weights, a tokenizer, compressed text. Its names lead nowhere else (``storage.inside``), and its sizes are held here.
Manifests of tasks, recipes and settings are the user's own: they may name any file, but are held to the limits of YAML.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from warmstart.errors import WarmstartError
from warmstart.system.trouble import is_memory

MANIFEST_BYTES = 8 << 20
"""most bytes of settings in JSON: bundle.json, config.json, an index of shards"""
MANIFEST_VALUES = 1 << 19
"""values, lists and groups in them"""
TOKENIZER_BYTES = 48 << 20
"""most bytes of a tokenizer or the vocabulary of a baseline"""
TOKENIZER_VALUES = 1 << 22
"""values in them; also the number of rows that a tokenizer may ask for"""
HEADER_BYTES = 4 << 20
"""most bytes of the header of a safetensors file, which names each tensor"""
POSITIONS = 1 << 24
"""numbers in a table of positions, which is computed and not in the weights: 131,072 tokens with heads of width 128"""
YAML_BYTES = 1 << 20
"""most bytes of a YAML file"""
YAML_VALUES = 1 << 17
"""values in it, those that aliases repeat included"""
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)
"""errors of code that reads settings of the wrong form; RuntimeError also when memory ends"""


@contextmanager
def refused_if_malformed(
    error: type[WarmstartError], what: str, cure: str = "copy it again", also: tuple[type[WarmstartError], ...] = ()
) -> Iterator[None]:
    """Code inside reads files of any form: what it raises if they are malformed (and ``also`` these) becomes ``error``."""
    caught: tuple[type[Exception], ...] = (*MALFORMED, *also)
    try:
        yield
    except caught as problem:
        if is_memory(problem):
            raise
        raise error(f"{what}, but does not ({type(problem).__name__}: {problem}); {cure}") from problem


def parse_json(data: bytes, values: int = MANIFEST_VALUES, *, once: bool = False) -> Any:
    """The content of a JSON file. Raises ``ValueError`` if it is none, is nested too deeply, or has more values.

    With ``once`` also if a name stands twice in one group, of which another reader may take the other value.
    """
    if (count := sum(map(data.count, (b",", b"[", b"{")))) > values:
        raise ValueError(f"it must hold at most {values:,} values, but holds about {count:,}")
    try:
        return json.loads(data, object_pairs_hook=_named_once if once else None)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"each name must stand once in a group, but {twice!r} stands twice")
    return values


def check_tensor_header(start: bytes) -> None:
    """Raise ``ValueError`` if the header of a safetensors file, whose first eight bytes are given, is too long to be parsed."""
    if start.startswith(b"version "):
        raise ValueError("it is a pointer of Git LFS, not the file; fetch it with `git lfs pull` where it comes from")
    if (size := int.from_bytes(start[:8], "little")) > HEADER_BYTES:
        raise ValueError(f"its header must have at most {HEADER_BYTES:,} bytes, but has {size:,}")


def check_depth(depth: int, tensors: int) -> None:
    """Raise ``ValueError`` unless a file with so many ``tensors`` can hold ``depth`` blocks, before any block is made."""
    if depth > tensors:
        raise ValueError(f"the settings name {depth:,} blocks, but the weights are only {tensors:,} tensors")


def free_memory() -> int:
    """Bytes that this machine can still give; weights must fit into it."""
    import psutil

    return int(psutil.virtual_memory().available)
