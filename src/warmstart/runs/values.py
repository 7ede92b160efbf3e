"""A finished step's value in one file: plain values, arrays and tensors, in mappings, lists and tuples. There are no pickles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise
from torch import Tensor

from warmstart.system.storage import atomic_write

_VALUES = "values"
_KINDS = {"objects": np.ndarray, "tuple": tuple, "list": list}


def write_values(file: Path, values: Any) -> None:
    """Write a file that ``read_values`` reads."""
    tensors = dict[str, Tensor]()
    packed = json.dumps(_packed(values, tensors)).encode()
    tensors[_VALUES] = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
    atomic_write(file, serialise(tensors), "a finished step")


def read_values(file: Path) -> Any:
    """The values that ``write_values`` was given; None if there is no file, or if it cannot be read."""
    try:
        tensors = parse_tensors(file.read_bytes())
        return _unpacked(json.loads(tensors.pop(_VALUES).numpy().tobytes()), tensors)
    except (OSError, ValueError, KeyError, safetensors.SafetensorError):
        return None


def _packed(values: Any, tensors: dict[str, Tensor]) -> Any:
    """Values fit for JSON; each array is added to ``tensors``, and stands there by its number."""
    if isinstance(values, np.generic | str | int | float | None):
        return values.item() if isinstance(values, np.generic) else values
    if isinstance(values, Tensor):
        tensors[name := str(len(tensors))] = values.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if isinstance(values, np.ndarray) and values.dtype != object:
        tensors[name := str(len(tensors))] = torch.from_numpy(np.array(values, order="C"))
        return {"array": name}
    if isinstance(values, Mapping):
        return {"mapping": [[_packed(item, tensors) for item in pair] for pair in values.items()]}
    kind = next(name for name, known in _KINDS.items() if isinstance(values, known))
    assert kind != "objects" or values.ndim == 1, f"a step keeps rows of objects, but not of shape {values.shape}"
    return {kind: [_packed(item, tensors) for item in values]}


def _unpacked(values: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The values that ``_packed`` was given."""
    if not isinstance(values, dict):
        return values
    ((kind, inner),) = values.items()
    if kind in ("array", "tensor"):
        return tensors[inner].numpy() if kind == "array" else tensors[inner]
    if kind == "mapping":
        return {_unpacked(key, tensors): _unpacked(value, tensors) for key, value in inner}
    items = [_unpacked(item, tensors) for item in inner]
    if kind != "objects":
        return tuple(items) if kind == "tuple" else items
    array = np.empty(len(items), dtype=object)
    for number, item in enumerate(items):
        array[number] = item
    return array
