"""A network on disk, with everything needed to use it.

    bundle.json            settings of backbone, adapters and head, labels, calibration, history, the hash of every file and tensor
    weights.safetensors    backbone and head
    tokenizer.json         the tokenizer
    selftest.safetensors   test rows and the outputs for them when the bundle was saved
    README.md              the model card, for people; nothing reads it back

Loading checks every hash, name and shape, then compares a few outputs with the stored ones: a lost head or tokenizer is an error,
and so are label names in another order. There are no pickles.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import torch
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise
from torch import Tensor

from warmstart.errors import BundleError
from warmstart.model.bundle import Bundle, Calibration, Language
from warmstart.model.checks import faults, run_checks
from warmstart.model.folder import DIFFERS, UPGRADED_FROM, manifest_bytes, read_manifest, read_model_file
from warmstart.model.history import Record
from warmstart.model.model import model_settings, rebuilt
from warmstart.model.selftest import SELFTEST_ROWS, make_selftest
from warmstart.system.limits import TOKENIZER_BYTES, check_tensor_header, free_memory
from warmstart.system.storage import MANIFEST, sha256
from warmstart.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from warmstart.model.stack import Stack

FILES = ("weights.safetensors", "tokenizer.json", "selftest.safetensors")


def bundle_contents(bundle: Bundle) -> dict[str, bytes]:
    """The files of a bundle, by name. Raises ``BundleError`` if a quick check of the model fails."""
    from warmstart.model.card import written_card

    bundle.model.eval()
    if failures := faults(run_checks(bundle, moment="save")):
        more = f"; {len(failures) - 1} more checks fail" if len(failures) > 1 else ""
        raise BundleError(
            f"a model must be sound to be saved, but {failures[0]}{more}; `run_checks` of warmstart.model.checks lists all"
        )
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in bundle.model.weights().items()}
    contents = {
        "weights.safetensors": serialise(tensors),
        "tokenizer.json": bundle.tokenizer.to_json().encode(),
        "selftest.safetensors": serialise(make_selftest(bundle)),
    }
    hashes = {name: [list(tensor.shape), _hash(tensor)] for name, tensor in tensors.items()}
    files = {name: sha256(contents[name]) for name in FILES[1:]}
    manifest = manifest_bytes({**_described(bundle), "tensors": hashes, "files": files})
    return {**contents, "README.md": written_card(bundle), MANIFEST: manifest}


def unchanged_contents(bundle: Bundle) -> dict[str, bytes] | None:
    """The files from which a bundle was read, by name, if they still hold what it is now; else None.

    They were proved when they were saved. Whoever saves them again has to compare what the model does with what it does when it is
    read again, since here only its settings, its weights and its tokenizer are compared.
    """
    if bundle.origin is None:
        return None
    try:
        manifest = read_manifest(bundle.origin)
        contents = {name: read_model_file(bundle.origin, name, free_memory()) for name in ("README.md", MANIFEST, *FILES)}
    except BundleError:
        return None
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in bundle.model.weights().items()}
    same = (
        UPGRADED_FROM not in manifest
        and _described(bundle).items() <= manifest.items()
        and bundle.tokenizer.to_json().encode() == contents["tokenizer.json"]
        and all(sha256(contents[name]) == manifest["files"].get(name) for name in FILES[1:])
        and _holds(contents["weights.safetensors"], weights)
    )
    return contents if same else None


def _holds(data: bytes, tensors: dict[str, Tensor]) -> bool:
    """True if the bytes of a safetensors file, which was read before, are those of these tensors; nothing is copied."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = {name: entry for name, entry in json.loads(data[8:start]).items() if name != "__metadata__"}
    if header.keys() != tensors.keys() or any(tensor.dtype is not torch.float32 for tensor in tensors.values()):
        return False
    stored = np.frombuffer(data, dtype=np.int32, offset=start)  # bits: nan is like itself, and 0 is not like -0
    places = ((tensors[name], slice(*(end // 4 for end in entry["data_offsets"]))) for name, entry in header.items())
    return all(np.array_equal(stored[place], tensor.flatten().view(torch.int32).numpy()) for tensor, place in places)


def read_bundle(folder: Path, manifest: dict[str, Any], *, selftest: bool = True) -> Bundle:
    """The network in a folder with this manifest. Raises ``BundleError`` that names a missing, damaged or exchanged file or tensor.

    The model must also reproduce its stored outputs, unless ``selftest`` is false.
    """
    contents = {name: _read_file(folder, name, manifest["files"].get(name)) for name in FILES}
    tensors = _read_tensors(folder, contents["weights.safetensors"], manifest["tensors"])
    tokenizer = Tokenizer.from_json(contents["tokenizer.json"].decode())
    try:
        model = rebuilt(manifest, tensors)
    except BundleError as error:
        raise BundleError(f"{folder}: {error}") from None
    language = Language.build(manifest["language"], "language")
    bundle = Bundle(
        model, tokenizer, tuple(manifest["labels"]), read_history(manifest), read_calibration(manifest), language, folder
    )
    if selftest and (failures := faults(run_checks(bundle, _stored(contents["selftest.safetensors"]), moment="load"))):
        raise BundleError(f"{folder} fails its self-test: {'; '.join(failures)}; {DIFFERS}")
    return bundle


def read_history(manifest: Mapping[str, Any]) -> tuple[Record, ...]:
    """The records in a manifest."""
    return tuple(Record.build(values, "history") for values in manifest["history"])


def read_calibration(manifest: Mapping[str, Any]) -> Calibration | None:
    """The calibration in a manifest."""
    return Calibration.build(manifest["calibration"], "calibration") if manifest["calibration"] else None


def read_selftest(folder: Path) -> dict[str, Tensor]:
    """The self-test stored with the bundle in a folder, which was loaded before, so that its hashes match."""
    return _stored(read_model_file(folder, "selftest.safetensors", free_memory()))


def _described(bundle: Bundle) -> dict[str, Any]:
    """The entries of the manifest on a bundle, without those on its files."""
    return {**model_settings(bundle.model), "language": bundle.language.to_dict(), **shared_entries(bundle)}


def shared_entries(model: Bundle | Stack) -> dict[str, Any]:
    """The entries that the manifests of networks and stacks share."""
    return {
        "labels": list(model.labels),
        "calibration": model.calibration.to_dict() if model.calibration else None,
        "history": [record.to_dict() for record in model.history],
    }


def _hash(tensor: Tensor) -> str:
    return sha256(tensor.flatten().view(torch.uint8).numpy().data)


def _read_file(folder: Path, name: str, expected: str | None) -> bytes:
    data = read_model_file(folder, name, TOKENIZER_BYTES if name == "tokenizer.json" else free_memory())
    # damaged weights pass here: the check of every tensor names the damaged one
    if name != "weights.safetensors" and sha256(data) != expected:
        raise BundleError(f"{folder / name} is damaged: its hash is not the one in bundle.json; copy it again")
    return data


def _read_tensors(folder: Path, data: bytes, expected: dict[str, Any]) -> dict[str, Tensor]:
    try:
        tensors = _parsed(data)
    except ValueError as error:
        raise BundleError(f"{folder / 'weights.safetensors'} is damaged: {error}; copy it again") from None
    problems = [f"missing: {name}" for name in sorted(expected.keys() - tensors.keys())]
    problems += [f"unknown: {name}" for name in sorted(tensors.keys() - expected.keys())]
    for name in sorted(expected.keys() & tensors.keys()):
        shape, digest = expected[name]
        if list(tensors[name].shape) != shape:
            problems.append(f"{name} has shape {list(tensors[name].shape)} instead of {shape}")
        elif _hash(tensors[name]) != digest:
            problems.append(f"{name} has changed")
    if problems:
        raise BundleError(f"{folder / 'weights.safetensors'} does not hold what was saved: {'; '.join(problems)}; copy it again")
    return tensors


def _parsed(data: bytes) -> dict[str, Tensor]:
    check_tensor_header(data)
    try:
        return parse_tensors(data)
    except safetensors.SafetensorError as error:
        raise ValueError(str(error)) from None


def _stored(data: bytes) -> dict[str, Tensor]:
    """The self-test that was stored; its rows are as few as those that are written."""
    stored = _parsed(data)
    if (rows := len(stored["ids"])) > SELFTEST_ROWS:
        raise ValueError(f"a self-test must have {SELFTEST_ROWS} rows, but has {rows:,}")
    return stored
