"""A stack on disk: one folder, which can check itself and holds no code.

    bundle.json            type, labels, calibration, history; temperature, weight, and size and hash of the files of each member
    members/1/             a fine-tuned network: a bundle as it is
    members/2/             a baseline: baseline.json (settings and vocabulary), arrays.safetensors
    backbones/1/           a bundle whose vectors baselines read, once for all of them
    beside.json            trees on other columns of a table, if it reads any beside the text
    README.md              the card, for people

Loading checks sizes before it reads, then hashes, names, shapes and numbers, and what every baseline and all members together
predict for a few texts, which each backbone reads once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors
from pydantic import Field
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as serialise

from warmstart.config import Config
from warmstart.errors import BundleError, ConfigError
from warmstart.model.beside import BesideText
from warmstart.model.bundle import Bundle
from warmstart.model.bundle_files import (
    bundle_contents,
    read_bundle,
    read_calibration,
    read_history,
    shared_entries,
    unchanged_contents,
)
from warmstart.model.card import written_card
from warmstart.model.checks import OUTPUT_TOLERANCE
from warmstart.model.fitted import BaselineSettings, FittedBaseline, packed, unpacked
from warmstart.model.folder import DIFFERS, manifest_bytes, read_manifest, read_model_file
from warmstart.model.stack import Member, Stack
from warmstart.model.stack_selftest import ByName, member_columns, outputs_gap, predictions_gap, stack_predictions
from warmstart.system.limits import MANIFEST_BYTES, TOKENIZER_VALUES, check_tensor_header, parse_json
from warmstart.system.storage import MANIFEST, sha256

SELFTEST = "selftest"
"""array of what a baseline predicted for ``SELFTEST_TEXTS`` when it was saved"""
BESIDE_FILE = "beside.json"
"""what a stack reads beside the text"""
CHECKED = {"bundle": (MANIFEST,), "baseline": ("baseline.json", "arrays.safetensors")}
"""the files of a member of which the stack's manifest has the hash; ``bundle.json`` has those of the others"""


class MemberManifest(Config):
    """One member in the manifest of a stack."""

    name: str
    kind: Literal["bundle", "baseline"]
    temperature: float = Field(gt=0, allow_inf_nan=False)
    weight: float = Field(gt=0, allow_inf_nan=False)
    backbone: int | None = Field(None, ge=1)
    """the number of the folder in ``backbones`` that gives its vectors; None: it reads none"""
    files: dict[str, tuple[int, str]]
    """name -> bytes and hash"""


class StackManifest(Config):
    """The entries of a stack's manifest on its members and labels."""

    type: Literal["classification", "multilabel", "regression"]
    labels: tuple[str, ...]
    members: tuple[MemberManifest, ...] = Field(min_length=1, max_length=1000)
    predictions: dict[str, tuple[float, ...]]
    """``stack_predictions`` when it was saved"""
    beside: tuple[int, str] | None = None
    """bytes and hash of ``BESIDE_FILE``; None: it reads the text alone"""


def stack_contents(stack: Stack) -> dict[str, bytes]:
    """The files of a stack, by name."""
    contents, members, columns = dict[str, bytes](), [], member_columns(stack)
    for number, member in enumerate(stack.members, 1):
        files, entry = member_contents(member, columns[number - 1]), member_entry(member)
        contents |= {f"members/{number}/{name}": data for name, data in files.items()}
        checked = {name: (len(files[name]), sha256(files[name])) for name in CHECKED[entry["kind"]]}
        members.append(entry | {"backbone": stack.backbone_of(member), "files": checked})
    for number, backbone in enumerate(stack.backbones, 1):
        files = unchanged_contents(backbone) or bundle_contents(backbone)
        contents |= {f"backbones/{number}/{name}": data for name, data in files.items()}
    own: dict[str, Any] = {
        "type": stack.type,
        "labels": stack.labels,
        "members": members,
        "predictions": stack_predictions(stack, columns),
    }
    if stack.beside:
        contents[BESIDE_FILE] = data = json.dumps(stack.beside.to_dict()).encode()
        own["beside"] = (len(data), sha256(data))
    manifest = manifest_bytes({**shared_entries(stack), **StackManifest.build(own, MANIFEST).to_dict()})
    return {**contents, "README.md": written_card(stack), MANIFEST: manifest}


def read_stack(folder: Path, manifest: dict[str, Any], *, selftest: bool = True) -> Stack:
    """The stack in a folder with this manifest. Raises ``BundleError`` that names a missing, damaged or exchanged file.

    Every member must also reproduce its stored outputs, and all together theirs, unless ``selftest`` is false. Backbones take part
    in those of their baselines; ``warmstart doctor`` checks them by themselves too.
    """
    own, backbones = _own_entries(folder, manifest), _Backbones(folder)
    loaded = [_load_model(folder, i, entry, backbones, selftest) for i, entry in enumerate(own.members, 1)]
    pairs = zip(own.members, loaded, strict=True)
    members = tuple(Member(entry.name, model, entry.temperature, entry.weight) for entry, (model, _) in pairs)
    stack = Stack(members, own.type, own.labels, read_history(manifest), read_calibration(manifest), _beside(folder, own))
    if selftest:
        _require_reproduced(stack, [stored for _, stored in loaded], own.predictions, folder)
    return stack


def _beside(folder: Path, own: StackManifest) -> BesideText | None:
    if own.beside is None:
        return None
    data = _read_checked(folder, BESIDE_FILE, *own.beside)
    try:
        return BesideText.build(parse_json(data, TOKENIZER_VALUES), BESIDE_FILE)
    except (ValueError, ConfigError) as error:
        raise BundleError(f"{folder / BESIDE_FILE} is damaged: {error}; copy it again") from None


def _require_reproduced(stack: Stack, outputs: Sequence[np.ndarray | None], predictions: ByName, folder: Path) -> None:
    """Raises ``BundleError`` unless every baseline has its stored ``outputs``, and all members together their ``predictions``."""
    columns = member_columns(stack)
    for number, (member, column, stored) in enumerate(zip(stack.members, columns, outputs, strict=True), 1):
        if isinstance(member.model, FittedBaseline):
            _require_small(outputs_gap(column, stored), folder / f"members/{number}")
    _require_small(predictions_gap(stack_predictions(stack, columns), predictions), folder)


def member_entry(member: Member) -> dict[str, Any]:
    """The manifest's entry for a member."""
    kind = "bundle" if isinstance(member.model, Bundle) else "baseline"
    return {"name": member.name, "kind": kind, "temperature": member.temperature, "weight": member.weight}


def member_contents(member: Member, outputs: np.ndarray) -> dict[str, bytes]:
    """The files of a member; those of its backbone are not among them. ``outputs`` (4, C) are those for ``SELFTEST_TEXTS``."""
    if isinstance(member.model, Bundle):
        return bundle_contents(member.model)
    settings, arrays = packed(member.model)
    arrays[SELFTEST] = outputs
    return {
        "baseline.json": json.dumps(settings.to_dict(), indent=1, ensure_ascii=False).encode(),
        "arrays.safetensors": serialise({name: np.ascontiguousarray(array, dtype=np.float64) for name, array in arrays.items()}),
    }


class _Backbones:
    """The bundles of a stack that give vectors, each read once."""

    def __init__(self, stack: Path) -> None:
        self.stack, self.loaded = stack, dict[str, Bundle]()

    def at(self, place: str) -> Bundle:
        """The bundle in a folder of the stack."""
        if place not in self.loaded:
            self.loaded[place] = _network(self.stack, place, selftest=False)  # its baselines' outputs test it
        return self.loaded[place]


def _network(stack: Path, place: str, *, selftest: bool) -> Bundle:
    """The network in a folder of a stack."""
    read_model_file(stack, f"{place}/{MANIFEST}", MANIFEST_BYTES)  # refuses a path with a link in it
    return read_bundle(stack / place, read_manifest(stack / place), selftest=selftest)


def _load_model(
    stack: Path, number: int, manifest: MemberManifest, backbones: _Backbones, selftest: bool
) -> tuple[Bundle | FittedBaseline, np.ndarray | None]:
    """A member, and a baseline's predictions for ``SELFTEST_TEXTS`` when it was saved."""
    member = f"members/{number}"
    folder = stack / member
    contents = {
        name: _read_checked(stack, f"{member}/{name}", *manifest.files.get(name, (0, ""))) for name in CHECKED[manifest.kind]
    }
    if manifest.kind == "bundle":
        return _network(stack, member, selftest=selftest), None
    try:
        settings = BaselineSettings.build(parse_json(contents["baseline.json"], TOKENIZER_VALUES), "baseline.json")
        check_tensor_header(contents["arrays.safetensors"])
        arrays = parse_arrays(contents["arrays.safetensors"])
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, ConfigError) as error:
        raise BundleError(f"{folder} is damaged: {error}; copy it again") from None
    stored = arrays.pop(SELFTEST, None)
    backbone = backbones.at(f"backbones/{manifest.backbone}") if settings.rows == "vectors" else None
    return unpacked(settings, arrays, backbone), stored


def _require_small(gap: float, folder: Path) -> None:
    """Raises ``BundleError`` if outputs differ too much from the stored ones; nan is too much."""
    if not gap <= OUTPUT_TOLERANCE:
        raise BundleError(
            f"{folder} fails its self-test: outputs, by label name, differ from the stored ones by {gap:.2g}; {DIFFERS}"
        )


def stored_stack_predictions(folder: Path) -> dict[str, tuple[float, ...]]:
    """``stack_predictions`` of the stack in a folder when it was saved."""
    return _own_entries(folder, read_manifest(folder)).predictions


def stored_baseline_outputs(folder: Path) -> np.ndarray | None:
    """(4, C) predictions of a baseline for ``SELFTEST_TEXTS`` when it was saved; None: nothing is stored."""
    return parse_arrays((folder / "arrays.safetensors").read_bytes()).get(SELFTEST)


def _own_entries(folder: Path, manifest: dict[str, Any]) -> StackManifest:
    try:
        return StackManifest.build({name: manifest[name] for name in StackManifest.model_fields if name in manifest}, MANIFEST)
    except ConfigError as error:
        raise BundleError(f"{folder / MANIFEST} is damaged: {error}") from None


def _read_checked(folder: Path, name: str, size: int, expected: str) -> bytes:
    """The bytes of a file of a stack; a file of another size is not read."""
    file, data = folder / name, read_model_file(folder, name, size)
    if len(data) != size:
        raise BundleError(f"{file} is damaged: it has {len(data):,} bytes instead of {size:,}; copy it again")
    if sha256(data) != expected:
        raise BundleError(f"{file} is damaged: its hash is not the one in {MANIFEST}; copy it again")
    return data
