"""The finished parts of a run, kept in its folder until it ends: killed at any moment, the same command repeats none of them.

    parts/NAME-KEY.part    what a finished part gave: plain values and arrays, in one file
    parts/NAME-KEY/        a part that is not finished: its log and its checkpoints

Of several processes that share a run (``training/distributed.py``) rank 0 writes and reads, and tells the others.

A part is named by what it is ("pretrained, seed 3, fold 2 of 5") and by the key of all that its run depends on: where anything of
that has changed, there is no such part. One that cannot be read is made again. There are no pickles.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import torch
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise
from torch import Tensor

from warmstart.config import result_key
from warmstart.system.console import console
from warmstart.system.storage import PARTS_FOLDER, atomic_write, make_folder
from warmstart.training.distributed import world

_VALUES, _SUFFIX = "values", ".part"
_PLAIN = (str, int, float, bool, type(None))


class Workplace(NamedTuple):
    """Where a part that is not finished keeps its log and its checkpoints."""

    folder: Path
    identity: str
    """a hash of what the part depends on; a checkpoint with another one is refused"""


@dataclass(frozen=True)
class Parts:
    """The finished parts of one run."""

    folder: Path
    key: str
    """of everything that the run depends on"""
    prefix: str = ""
    """before the name of every part"""

    @classmethod
    def open(cls, run: Path, made_of: Mapping[str, str]) -> Parts:
        """Those in the folder of a run, which depends on ``made_of``: names and hashes. Collective, as is ``kept``."""
        parts = cls(run / PARTS_FOLDER, result_key(made_of))
        world().first_alone(parts._begin)
        return parts

    def named(self, prefix: str) -> Parts:
        """The same run's parts whose names begin with ``prefix``."""
        return replace(self, prefix=f"{self.prefix}{prefix}, ")

    def workplace(self, name: str) -> Workplace:
        """Where a part works until it is finished."""
        return Workplace(self._file(name).with_suffix(""), result_key(self.key, self.prefix, name))

    def kept(self, name: str, make: Callable[[Workplace], dict[str, Any]]) -> dict[str, Any]:
        """What a part gave: plain values, arrays and tensors in mappings, lists and tuples; made now, if it is not kept."""
        here, workplace = world(), self.workplace(name)
        found = here.first_alone(lambda: self.read(name))
        if found is None:
            here.first_alone(lambda: make_folder(workplace.folder))
            found = made = make(workplace)
            here.first_alone(lambda: self.write(name, made))
        return found

    def read(self, name: str) -> dict[str, Any] | None:
        """A finished part; None if there is none, or if it cannot be read."""
        try:
            tensors = parse_tensors(self._file(name).read_bytes())
            return dict(_unpacked(json.loads(tensors.pop(_VALUES).numpy().tobytes()), tensors))
        except (OSError, ValueError, KeyError, safetensors.SafetensorError):
            return None

    def write(self, name: str, values: Mapping[str, Any]) -> None:
        """Keep a finished part, and remove its workplace."""
        tensors = dict[str, Tensor]()
        packed = json.dumps(_packed(values, tensors)).encode()
        tensors[_VALUES] = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
        atomic_write(self._file(name), serialise(tensors), "a finished part")
        self.forget(name, workplace=True)

    def forget(self, *names: str, workplace: bool = False) -> None:
        """Remove parts, or only their workplaces."""
        for name in names:
            shutil.rmtree(self.workplace(name).folder, ignore_errors=True)
            if not workplace:
                self._file(name).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove all: the run has come to its end."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _begin(self) -> None:
        """Make the folder, and say what is there."""
        make_folder(self.folder)
        kept, own = [*self.folder.glob(f"*{_SUFFIX}")], [*self.folder.glob(f"*-{self._tag}{_SUFFIX}")]
        if own:
            parts = "1 finished part of this run is" if len(own) == 1 else f"{len(own)} finished parts of this run are"
            console.print(f"{parts} kept in {self.folder}, and not repeated.")
        if len(kept) > len(own):
            console.print("A file of this run, or warmstart, has changed since it was stopped: what was done is made again.")

    @property
    def _tag(self) -> str:
        return self.key[:12]

    def _file(self, name: str) -> Path:
        plain = re.sub(r"[^\w+-]+", "-", f"{self.prefix}{name}")
        return self.folder / f"{plain}-{self._tag}{_SUFFIX}"


def _packed(values: Any, tensors: dict[str, Tensor]) -> Any:
    """Values fit for JSON; each array is added to ``tensors``, and stands there by its number."""
    if isinstance(values, np.generic):
        return values.item()
    if isinstance(values, _PLAIN):
        return values
    if isinstance(values, Tensor):
        tensors[name := str(len(tensors))] = values.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if isinstance(values, np.ndarray) and (values.dtype.kind in "US" or (values.dtype == object and values.ndim != 1)):
        raise TypeError(f"a part keeps arrays of numbers and rows of objects, but not shape {values.shape} of {values.dtype}")
    if isinstance(values, np.ndarray) and values.dtype != object:
        tensors[name := str(len(tensors))] = torch.from_numpy(np.array(values, order="C"))
        return {"array": name}
    if isinstance(values, Mapping):
        return {"mapping": [[_packed(one, tensors) for one in pair] for pair in values.items()]}
    kind = next(name for name, known in {"objects": np.ndarray, "tuple": tuple, "list": list}.items() if isinstance(values, known))
    return {kind: [_packed(one, tensors) for one in values]}


def _unpacked(values: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What ``_packed`` was given."""
    if not isinstance(values, dict):
        return values
    ((kind, inner),) = values.items()
    if kind in ("array", "tensor"):
        return tensors[inner].numpy() if kind == "array" else tensors[inner]
    if kind == "mapping":
        return {_unpacked(key, tensors): _unpacked(value, tensors) for key, value in inner}
    found = [_unpacked(one, tensors) for one in inner]
    if kind != "objects":
        return tuple(found) if kind == "tuple" else found
    array = np.empty(len(found), dtype=object)
    for number, one in enumerate(found):
        array[number] = one
    return array
