"""A stack on disk: one folder, which can check itself and holds no code.

    stack.json             type, labels, calibration, history; temperature, weight, and size and hash of the files of each member
    members/1/             a fine-tuned network: a bundle as it is
    members/2/             a baseline: baseline.json (settings and vocabulary), arrays.safetensors
    backbones/1/           a bundle whose vectors baselines read, once for all of them
    README.md              the card, for people

Loading checks sizes before it reads, then hashes, names, shapes and numbers, and what every baseline and all members together
predict for a few texts, which each backbone reads once. Saving ends with a reload in a fresh process, like that of a bundle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors
from pydantic import Field
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as serialise

from warmstart.config import Config
from warmstart.errors import BundleError, ConfigError, ModelError
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.checks import OUTPUT_TOLERANCE
from warmstart.model.files import (
    DIFFERS,
    STACK_MANIFEST,
    bundle_contents,
    checked_manifest,
    fresh_reader,
    load_bundle,
    manifest_bytes,
    read_model_file,
    save,
    save_verified,
    unchanged_contents,
    written_card,
)
from warmstart.model.fitted import BaselineSettings, FittedBaseline, packed, unpacked
from warmstart.model.history import read_record
from warmstart.model.stack import Member, Stack
from warmstart.model.stack_card import stack_card
from warmstart.model.stack_selftest import ByName, member_columns, outputs_gap, predictions_gap, stack_predictions
from warmstart.system.limits import MANIFEST_BYTES, TOKENIZER_VALUES, check_tensor_header, parse_json, refused_if_malformed
from warmstart.system.storage import FORMAT, sha256
from warmstart.version import __version__

SELFTEST = "selftest"
"""array of what a baseline predicted for ``SELFTEST_TEXTS`` when it was saved"""
CHECKED = {"bundle": ("bundle.json",), "baseline": ("baseline.json", "arrays.safetensors")}
"""the files of a member of which ``stack.json`` has the hash; ``bundle.json`` has those of the others"""


class MemberManifest(Config):
    """One member in ``stack.json``."""

    name: str
    kind: Literal["bundle", "baseline"]
    temperature: float = Field(gt=0, allow_inf_nan=False)
    weight: float = Field(gt=0, allow_inf_nan=False)
    backbone: int | None = Field(None, ge=1)
    """the number of the folder in ``backbones`` that gives its vectors; None: it reads none"""
    files: dict[str, tuple[int, str]]
    """name -> bytes and hash"""


class StackManifest(Config):
    """``stack.json``."""

    format: int
    warmstart: str
    type: Literal["classification", "multilabel", "regression"]
    labels: tuple[str, ...]
    members: tuple[MemberManifest, ...] = Field(min_length=1, max_length=1000)
    calibration: Calibration | None
    history: tuple[dict[str, Any], ...]
    predictions: dict[str, tuple[float, ...]]
    """``stack_predictions`` when it was saved"""


def save_stack(stack: Stack, folder: str | Path) -> Path:
    """Write a stack and check it: reload it in a fresh process, then put it in place. Returns the folder.

    Raises as ``save`` does for a bundle; either way the previous contents of ``folder`` stay.
    """
    return save_verified(folder, _fresh_reader(), lambda: _contents(stack))


def _contents(stack: Stack) -> dict[str, bytes]:
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
    manifest = StackManifest.build(
        {
            "format": FORMAT,
            "warmstart": __version__,
            "type": stack.type,
            "labels": stack.labels,
            "members": members,
            "calibration": stack.calibration.to_dict() if stack.calibration else None,
            "history": [record.to_dict() for record in stack.history],
            "predictions": stack_predictions(stack, columns),
        },
        STACK_MANIFEST,
    ).to_dict()
    contents["README.md"] = written_card(lambda: stack_card(stack))
    contents[STACK_MANIFEST] = manifest_bytes(manifest)
    return contents


def save_model(model: Bundle | Stack, folder: str | Path) -> Path:
    """Write a bundle or a stack, whichever it is, and check it; returns the folder."""
    return save(model, folder) if isinstance(model, Bundle) else save_stack(model, folder)


def load_stack(folder: str | Path, *, selftest: bool = True) -> Stack:
    """The stack in a folder. Raises ``BundleError`` that names a missing, damaged or exchanged file.

    Every member must also reproduce its stored outputs, and all together theirs, unless ``selftest`` is false. Backbones take part
    in those of their baselines; ``warmstart doctor`` checks them by themselves too.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder)
    sound = f"{folder} must hold a sound stack"
    with refused_if_malformed(BundleError, sound, "do not use it, or copy it again", also=(ConfigError, ModelError)):
        backbones = _Backbones(folder)
        loaded = [_load_model(folder, i, entry, backbones, selftest) for i, entry in enumerate(manifest.members, 1)]
        pairs = zip(manifest.members, loaded, strict=True)
        members = tuple(Member(entry.name, model, entry.temperature, entry.weight) for entry, (model, _) in pairs)
        history = tuple(map(read_record, manifest.history))
        stack = Stack(members, manifest.type, manifest.labels, history, manifest.calibration)
        if selftest:
            _require_reproduced(stack, [stored for _, stored in loaded], manifest.predictions, folder)
    return stack


def _require_reproduced(stack: Stack, outputs: Sequence[np.ndarray | None], predictions: ByName, folder: Path) -> None:
    """Raises ``BundleError`` unless every baseline has its stored ``outputs``, and all members together their ``predictions``."""
    columns = member_columns(stack)
    for number, (member, column, stored) in enumerate(zip(stack.members, columns, outputs, strict=True), 1):
        if isinstance(member.model, FittedBaseline):
            _require_small(outputs_gap(column, stored), folder / f"members/{number}")
    _require_small(predictions_gap(stack_predictions(stack, columns), predictions), folder)


def _fresh_reader() -> AbstractContextManager[Callable[[Path], str | None]]:
    return fresh_reader("warmstart.model.stack_files", "load_stack")


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
            read_model_file(self.stack, f"{place}/bundle.json", MANIFEST_BYTES)  # refuses a path with a link in it
            self.loaded[place] = load_bundle(self.stack / place, selftest=False)  # its baselines' outputs test it
        return self.loaded[place]


def _backbone_place(number: int, backbone: int | None) -> str:
    """The folder of the backbone of the member with this number; before each was saved once, it lay beside its member."""
    return f"backbones/{backbone}" if backbone else f"members/{number}/backbone"


def backbone_places(folder: Path) -> list[Path]:
    """The folders of the ``backbones`` of the stack in a folder."""
    members = enumerate(_read_manifest(folder).members, 1)
    places = (folder / _backbone_place(number, member.backbone) for number, member in members if member.kind == "baseline")
    return [place for place in dict.fromkeys(places) if place.is_dir()]


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
        return load_bundle(folder, selftest=selftest), None
    try:
        settings = BaselineSettings.build(parse_json(contents["baseline.json"], TOKENIZER_VALUES), "baseline.json")
        check_tensor_header(contents["arrays.safetensors"])
        arrays = parse_arrays(contents["arrays.safetensors"])
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, ConfigError) as error:
        raise BundleError(f"{folder} is damaged: {error}; copy it again") from None
    stored = arrays.pop(SELFTEST, None)
    backbone = backbones.at(_backbone_place(number, manifest.backbone)) if settings.rows == "vectors" else None
    return unpacked(settings, arrays, backbone), stored


def _require_small(gap: float, folder: Path) -> None:
    """Raises ``BundleError`` if outputs differ too much from the stored ones; nan is too much."""
    if not gap <= OUTPUT_TOLERANCE:
        raise BundleError(
            f"{folder} fails its self-test: outputs, by label name, differ from the stored ones by {gap:.2g}; {DIFFERS}"
        )


def stored_stack_predictions(folder: Path) -> dict[str, tuple[float, ...]]:
    """``stack_predictions`` of the stack in a folder when it was saved."""
    return _read_manifest(folder).predictions


def stored_baseline_outputs(folder: Path) -> np.ndarray | None:
    """(4, C) predictions of a baseline for ``SELFTEST_TEXTS`` when it was saved; None: nothing is stored."""
    return parse_arrays((folder / "arrays.safetensors").read_bytes()).get(SELFTEST)


def _read_manifest(folder: Path) -> StackManifest:
    file = folder / STACK_MANIFEST
    values = checked_manifest(read_model_file(folder, STACK_MANIFEST, MANIFEST_BYTES), file)
    try:
        return StackManifest.build(values, STACK_MANIFEST)
    except ConfigError as error:
        raise BundleError(f"{file} is damaged: {error}") from None


def _read_checked(folder: Path, name: str, size: int, expected: str) -> bytes:
    """The bytes of a file of a stack; a file of another size is not read."""
    file, data = folder / name, read_model_file(folder, name, size)
    if len(data) != size:
        raise BundleError(f"{file} is damaged: it has {len(data):,} bytes instead of {size:,}; copy it again")
    if sha256(data) != expected:
        raise BundleError(f"{file} is damaged: its hash is not the one in {STACK_MANIFEST}; copy it again")
    return data
