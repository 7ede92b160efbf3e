"""The folder of a saved model: which files it may have, how they are read and written, and its manifest.

Every model has ``bundle.json``, sealed by a digest of its own. That of a network names its settings and tensors
(``bundle_files.py``), that of a stack its members (``stack_files.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warmstart.errors import BundleError, nearest_path
from warmstart.system.limits import MANIFEST_BYTES, MANIFEST_VALUES
from warmstart.system.storage import (
    MANIFEST,
    MODEL_FORMAT,
    SETTINGS,
    read_inside,
    require_format,
    sealed,
    sha256,
    sweep,
    unsealed,
)
from warmstart.version import __version__

_NAMES = re.compile(
    r"((((members|backbones)/\d+/)?(bundle\.json|README\.md|weights\.safetensors|tokenizer\.json|selftest\.safetensors))"
    r"|backbones(/\d+)?|members(/\d+(/(baseline\.json|arrays\.safetensors))?)?)"
)
"""pattern of the names in a saved model"""
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""format -> its manifest as the next format has it; of 0.3.0's format, 2, on, one entry for each format that has been left"""
UPGRADED_FROM = "upgraded_from"
"""key of a manifest in memory: the format on disk, where that is an earlier one"""
DIFFERS = "it was changed after it was saved, or this machine computes differently; copy it again"


def free_for_model(folder: str | Path) -> Path:
    """The folder itself. Raises ``BundleError`` if it holds anything but a saved model."""
    target = Path(folder)
    if target.exists() and not is_model(target) and (not target.is_dir() or any(target.iterdir())):
        raise BundleError(f"{target} exists and is not a bundle; choose another folder, or remove it yourself")
    names = (path.relative_to(target).as_posix() for path in target.rglob("*"))
    if foreign := next((name for name in names if not _NAMES.fullmatch(name)), None):
        raise BundleError(f"{target} holds {foreign}, which would be lost; choose another folder, or remove it yourself")
    return target


def is_model(folder: str | Path) -> bool:
    """True if a model is saved in a folder."""
    return (Path(folder) / MANIFEST).is_file()


def write_files(folder: Path, contents: dict[str, bytes]) -> None:
    """Write files into a folder that exists; names may have folders in them."""
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def manifest_bytes(entries: dict[str, Any]) -> bytes:
    """A manifest with its digest, as JSON; names of files that are no Unicode are written as escapes, which JSON reads back."""
    manifest = sealed({"format": MODEL_FORMAT, "warmstart": __version__, **entries})
    return json.dumps(manifest, indent=1, ensure_ascii=False).encode(errors="backslashreplace")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a saved model, one of an earlier format as the present one has it; the file stays as it is.

    Raises ``BundleError`` if there is none, its digest differs, or its format is not read.
    """
    file = folder / MANIFEST
    if not folder.is_dir():
        raise BundleError(f"there is no bundle at {folder}: {nearest_path(folder)}a folder with {MANIFEST} was expected")
    if not file.is_file() and (folder / "stack.json").is_file():
        raise BundleError(f"{folder} is a stack of a format before 0.3.0; make it again, or use the version that wrote it")
    if not file.is_file() and (folder / SETTINGS).is_file():
        raise BundleError(f"{folder} is a run without a saved model; wait until it has ended, or name another")
    if not file.is_file():
        raise BundleError(f"{folder} is not a bundle, or its {MANIFEST} is missing; copy the whole folder again")
    try:
        manifest = unsealed(read_model_file(folder, MANIFEST, MANIFEST_BYTES), values=MANIFEST_VALUES)
    except ValueError as error:
        raise BundleError(f"{file} is damaged or was edited: {error}; copy it again") from None
    while isinstance(form := manifest.get("format"), int) and form in UPGRADES:
        manifest = {UPGRADED_FROM: form, **UPGRADES[form](manifest), "format": form + 1}  # of several, the first stays
    require_format(manifest, folder, BundleError, MODEL_FORMAT)
    return manifest


def read_model_file(folder: Path, name: str, most: int) -> bytes:
    """A file of a saved model. Raises ``BundleError`` if it is missing, has more than ``most`` bytes or leads elsewhere."""
    try:
        return read_inside(folder, name, most)
    except FileNotFoundError:
        raise BundleError(f"{folder / name} is missing; copy the whole folder again") from None
    except OSError as error:
        raise BundleError(f"cannot read {folder / name}: {error.strerror}") from None
    except ValueError as error:
        raise BundleError(f"cannot read a file of {folder}: {error}; do not use this model, or copy it again") from None


def format_sentence(folder: Path) -> str:
    """A sentence on the format of a saved model, and how one of an earlier format is written anew."""
    manifest = read_manifest(folder)
    form = manifest.get(UPGRADED_FROM, manifest["format"])
    anew = f', read as format {MODEL_FORMAT}; `ws.save(ws.load("{folder}"), NEW)` writes it so' if form != MODEL_FORMAT else ""
    return f"It has format {form} of warmstart {manifest['warmstart']}{anew}."


def find_bundle(path: str | Path) -> Path:
    """The folder of the bundle at ``path``: ``path`` itself, or ``bundle`` in the folder of a run.

    A folder that a killed process left under another name is brought back.
    """
    folder = Path(path)
    inside = folder / "bundle"
    for missing in (path for path in (folder, inside) if not path.exists()):
        sweep(missing.parent, missing.name)
    return inside if not is_model(folder) and inside.is_dir() else folder


def model_digest(path: str) -> str:
    """Identifies a saved model by its manifest, which has the hash of every tensor; any other model by its path."""
    folder = find_bundle(path)
    return sha256(read_model_file(folder, MANIFEST, MANIFEST_BYTES)) if is_model(folder) else path
