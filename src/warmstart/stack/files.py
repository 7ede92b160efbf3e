"""A stack on disk: one folder, which can check itself and holds no code.

    stack.json             type, labels, calibration, history; temperature, weight, and size and hash of the files of each member
    members/1/             a fine-tuned network: a bundle as it is
    members/2/             a baseline: baseline.json (settings and vocabulary), arrays.safetensors, and, if it reads vectors,
                           backbone/, a bundle
    README.md              the card, for people

Loading checks sizes before it reads, then hashes, names, shapes and numbers. Saving ends with a reload in a fresh process, like
that of a bundle.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors
from pydantic import Field
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as serialise

from warmstart import __version__
from warmstart.config import Config
from warmstart.errors import BundleError, ConfigError, ModelError
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.files import (
    STACK_MANIFEST,
    bundle_contents,
    free_for_model,
    load_bundle,
    manifest_digest,
    save,
    verify_in_fresh_process,
    warn_unchecked,
    write_files,
)
from warmstart.model.history import read_record
from warmstart.model.selftest import SELFTEST_TEXTS
from warmstart.stack.card import stack_card
from warmstart.stack.fitted import BaselineSettings, FittedBaseline, packed, unpacked
from warmstart.stack.stack import Member, Stack
from warmstart.storage import atomic_folder, sha256

STACK_FORMAT = 2
"""2: members have weights; in format 1 all are equal"""
MANIFEST_BYTES = 1 << 26
"""stack.json is never larger"""
SELFTEST = "selftest"
"""array of what a baseline predicted for ``SELFTEST_TEXTS`` when it was saved"""
SELFTEST_TOLERANCE = 1e-5
"""largest difference of a probability; of a number, as a fraction of the largest"""
CHECKED = {"bundle": ("bundle.json",), "baseline": ("baseline.json", "arrays.safetensors")}
"""the files of a member of which ``stack.json`` has the hash; ``bundle.json`` has those of the others"""


class MemberManifest(Config):
    """One member in ``stack.json``."""

    name: str
    kind: Literal["bundle", "baseline"]
    temperature: float = Field(gt=0, allow_inf_nan=False)
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    files: dict[str, tuple[int, str]]
    """name -> bytes and hash"""


class StackManifest(Config):
    """``stack.json``."""

    format: int
    warmstart: str
    type: Literal["classification", "multilabel", "regression"]
    labels: tuple[str, ...]
    members: tuple[MemberManifest, ...] = Field(min_length=1)
    calibration: Calibration | None
    history: tuple[dict[str, Any], ...]


def save_stack(stack: Stack, folder: str | Path) -> Path:
    """Write a stack and check it: reload it in a fresh process, then put it in place. Returns the folder.

    Raises as ``save`` does for a bundle; either way the previous contents of ``folder`` stay.
    """
    target, contents, members = free_for_model(folder), dict[str, bytes](), []
    for number, member in enumerate(stack.members, 1):
        kind, files = member_contents(member)
        contents |= {f"members/{number}/{name}": data for name, data in files.items()}
        checked = {name: (len(files[name]), sha256(files[name])) for name in CHECKED[kind]}
        members.append(member_entry(member, kind) | {"files": checked})
    manifest = StackManifest.build(
        {
            "format": STACK_FORMAT,
            "warmstart": __version__,
            "type": stack.type,
            "labels": stack.labels,
            "members": members,
            "calibration": stack.calibration.to_dict() if stack.calibration else None,
            "history": [record.to_dict() for record in stack.history],
        },
        STACK_MANIFEST,
    ).to_dict()
    contents["README.md"] = stack_card(stack).encode()
    contents[STACK_MANIFEST] = json.dumps(manifest | {"digest": manifest_digest(manifest)}, indent=1, ensure_ascii=False).encode()
    with atomic_folder(target) as aside:
        write_files(aside, contents)
        unchecked = _verify_stack_in_fresh_process(aside)
    if unchecked:
        warn_unchecked(target, unchecked)
    return target


def save_model(model: Bundle | Stack, folder: str | Path) -> Path:
    """Write a bundle or a stack, whichever it is, and check it; returns the folder."""
    return save(model, folder) if isinstance(model, Bundle) else save_stack(model, folder)


def load_stack(folder: str | Path, *, selftest: bool = False) -> Stack:
    """The stack in a folder. Raises ``BundleError`` that names a missing, damaged or exchanged file.

    With ``selftest`` every member must also reproduce its stored outputs.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder)
    models = [_load_model(folder / "members" / str(i), one, selftest) for i, one in enumerate(manifest.members, 1)]
    members = (Member(one.name, model, one.temperature, one.weight) for one, model in zip(manifest.members, models, strict=True))
    try:
        history = tuple(map(read_record, manifest.history))
        return Stack(tuple(members), manifest.type, manifest.labels, history, manifest.calibration)
    except (ConfigError, ModelError) as error:
        raise BundleError(f"{folder / STACK_MANIFEST} is damaged: {error}") from None


def _verify_stack_in_fresh_process(folder: Path) -> str | None:
    return verify_in_fresh_process(folder, "warmstart.stack.files", "load_stack")


def member_entry(member: Member, kind: str) -> dict[str, Any]:
    """What files say of a member, beside its own."""
    return {"name": member.name, "kind": kind, "temperature": member.temperature, "weight": member.weight}


def member_contents(member: Member) -> tuple[str, dict[str, bytes]]:
    """The kind of a member, and its files."""
    if isinstance(member.model, Bundle):
        return "bundle", bundle_contents(member.model)
    settings, arrays = packed(member.model)
    arrays[SELFTEST] = member.model.predict(SELFTEST_TEXTS)
    files = {
        "baseline.json": json.dumps(settings.to_dict(), indent=1, ensure_ascii=False).encode(),
        "arrays.safetensors": serialise({name: np.ascontiguousarray(one, dtype=np.float64) for name, one in arrays.items()}),
    }
    if backbone := member.model.backbone:
        files |= {f"backbone/{name}": data for name, data in bundle_contents(backbone).items()}
    return "baseline", files


def _load_model(folder: Path, manifest: MemberManifest, selftest: bool) -> Bundle | FittedBaseline:
    contents = {name: _read_checked(folder / name, *manifest.files.get(name, (0, ""))) for name in CHECKED[manifest.kind]}
    if manifest.kind == "bundle":
        return load_bundle(folder, selftest=selftest)
    try:
        settings = BaselineSettings.build(json.loads(contents["baseline.json"]), "baseline.json")
        arrays = parse_arrays(contents["arrays.safetensors"])
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
        raise BundleError(f"{folder} is damaged: {error}; copy it again") from None
    stored = arrays.pop(SELFTEST, None)
    backbone = load_bundle(folder / "backbone", selftest=selftest) if settings.rows == "vectors" else None
    baseline = unpacked(settings, arrays, backbone)
    if selftest:
        _check_outputs(folder, baseline, stored)
    return baseline


def _check_outputs(folder: Path, baseline: FittedBaseline, stored: np.ndarray | None) -> None:
    """Raises ``BundleError`` if a baseline does not predict for the self-test's texts what is stored."""
    found = baseline.predict(SELFTEST_TEXTS)
    fits = stored is not None and stored.shape == found.shape
    gap = float(np.abs(found - stored).max() / max(1.0, np.abs(found).max())) if fits and stored is not None else np.inf
    if not gap <= SELFTEST_TOLERANCE:
        raise BundleError(
            f"{folder} fails its self-test: outputs differ from the stored ones by {gap:.2g}; it was damaged, or this machine "
            "computes differently"
        )


def _read_manifest(folder: Path) -> StackManifest:
    file = folder / STACK_MANIFEST
    try:
        if file.stat().st_size > MANIFEST_BYTES:
            raise BundleError(f"{file} is larger than any stack's: {file.stat().st_size:,} bytes; do not use it")
        values = json.loads(file.read_text(encoding="utf-8"))
        digest = values.pop("digest")
    except OSError as error:
        raise BundleError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BundleError(f"{file} is damaged: it is not the JSON of a stack; copy it again") from None
    if digest != manifest_digest(values):
        raise BundleError(f"{file} is damaged or was edited: its contents do not match its digest; copy it again")
    if isinstance(values.get("format"), int) and values["format"] > STACK_FORMAT:
        raise BundleError(f"{folder} has format {values['format']}, this warmstart reads up to {STACK_FORMAT}; update warmstart")
    try:
        return StackManifest.build(values, STACK_MANIFEST)
    except ConfigError as error:
        raise BundleError(f"{file} is damaged: {error}") from None


def _read_checked(file: Path, size: int, expected: str) -> bytes:
    """The bytes of a file; a file of another size is not read."""
    try:
        if (found := file.stat().st_size) != size:
            raise BundleError(f"{file} is damaged: it has {found:,} bytes instead of {size:,}; copy it again")
        data = file.read_bytes()
    except FileNotFoundError:
        raise BundleError(f"{file} is missing; copy the whole folder again") from None
    except OSError as error:
        raise BundleError(f"cannot read {file}: {error.strerror}") from None
    if sha256(data) != expected:
        raise BundleError(f"{file} is damaged: its hash is not the one in {STACK_MANIFEST}; copy it again")
    return data
