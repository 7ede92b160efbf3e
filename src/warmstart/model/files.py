"""A bundle on disk: one folder with a complete model that can check itself.

    bundle.json            settings of backbone, adapters and head, labels, calibration, history, the hash of every file and tensor
    weights.safetensors    backbone and head
    tokenizer.json         the tokenizer
    selftest.safetensors   test rows and the outputs for them when the bundle was saved
    README.md              the model card, for people; nothing reads it back

Loading checks every hash, name and shape: a lost head or tokenizer is an error. Saving ends with a reload in a fresh process, which
must reproduce the stored outputs before the folder is put in place. There are no pickles.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise
from torch import Tensor

from warmstart import __version__
from warmstart.adapters import adapter_config, insert_adapter
from warmstart.adapters.insertion import inserted_adapters
from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.errors import BundleError, UncheckedWarning
from warmstart.heads import head_config, make_head
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.card import card
from warmstart.model.history import read_record
from warmstart.model.model import Model
from warmstart.model.old_formats import upgraded
from warmstart.model.selftest import failures, make_selftest
from warmstart.processes import run_python
from warmstart.storage import atomic_folder, sha256
from warmstart.tokenizer.tokenizer import Tokenizer

FORMAT, WITHOUT_WINDOWS = 3, 2
"""3: the head joins windows; a bundle without them is in format 2, which older versions read"""
STACK_MANIFEST = "stack.json"
MANIFESTS = ("bundle.json", STACK_MANIFEST)
FILES = ("weights.safetensors", "tokenizer.json", "selftest.safetensors")


def save(bundle: Bundle, folder: str | Path) -> Path:
    """Write a bundle and check it: reload it in a fresh process, compare outputs, then put it in place. Returns the folder.

    Raises ``StorageError`` if it cannot be written and ``BundleError`` if the outputs differ; either way the previous contents of
    ``folder`` stay. A folder that is not a bundle is never replaced. If the check itself cannot run (no second process, no memory
    for one), the bundle is kept with an ``UncheckedWarning``, and the command line exits with code 1.
    """
    target = free_for_model(folder)
    with atomic_folder(target) as aside:
        write_files(aside, bundle_contents(bundle))
        unchecked = _verify_in_fresh_process(aside)
    if unchecked:
        warn_unchecked(target, unchecked)
    return target


def free_for_model(folder: str | Path) -> Path:
    """The folder itself. Raises ``BundleError`` if it holds anything but a saved model."""
    target = Path(folder)
    if target.exists() and not saved_as(target) and (not target.is_dir() or any(target.iterdir())):
        raise BundleError(f"{target} exists and is not a bundle; choose another folder, or remove it yourself")
    return target


def saved_as(folder: Path) -> str | None:
    """The name of the file that says what is saved in a folder: ``bundle.json``, or that of a stack; None: no model."""
    return next((name for name in MANIFESTS if (folder / name).is_file()), None)


def bundle_contents(bundle: Bundle) -> dict[str, bytes]:
    """The files of a bundle, by name."""
    bundle.model.eval()
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in bundle.model.weights().items()}
    contents = {
        "weights.safetensors": serialise(tensors),
        "tokenizer.json": bundle.tokenizer.to_json().encode(),
        "selftest.safetensors": serialise(make_selftest(bundle.model, bundle.tokenizer)),
    }
    manifest = _manifest(bundle, tensors) | {"files": {name: sha256(data) for name, data in contents.items()}}
    contents["README.md"] = card(bundle).encode()
    contents["bundle.json"] = json.dumps(manifest | {"digest": manifest_digest(manifest)}, indent=1, ensure_ascii=False).encode()
    return contents


def write_files(folder: Path, contents: dict[str, bytes]) -> None:
    """Write files into a folder that exists; names may have folders in them."""
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def warn_unchecked(target: Path, reason: str) -> None:
    """Warn that a model was saved, but could not be checked."""
    warnings.warn(
        f"{target} is saved, but could not be checked in a fresh process: {reason}; run `warmstart doctor {target}`",
        UncheckedWarning,
        stacklevel=3,
    )


def load_bundle(folder: str | Path, *, selftest: bool = False) -> Bundle:
    """The bundle in a folder. Raises ``BundleError`` that names a missing, damaged or exchanged file or tensor.

    With ``selftest`` the model must also reproduce its stored outputs.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder)
    contents = {name: _read_file(folder, name, manifest["files"].get(name)) for name in FILES}
    tensors = _read_tensors(folder, contents["weights.safetensors"], manifest["tensors"])
    manifest, tensors = upgraded(manifest, tensors)
    tokenizer = Tokenizer.from_json(contents["tokenizer.json"].decode())
    model = _rebuild(folder, manifest, tensors)
    calibration = Calibration.build(manifest["calibration"], "calibration") if manifest["calibration"] else None
    history = tuple(map(read_record, manifest["history"]))
    bundle = Bundle(model, tokenizer, tuple(manifest["labels"]), history, calibration)
    if selftest and (found := failures(model, tokenizer, parse_tensors(contents["selftest.safetensors"]))):
        raise BundleError(f"{folder} fails its self-test: {'; '.join(found)}; it was damaged, or this machine computes differently")
    return bundle


def _manifest(bundle: Bundle, tensors: dict[str, Tensor]) -> dict[str, Any]:
    head = bundle.model.head.config
    return {
        "format": FORMAT if head.window_settings.windows != "none" else WITHOUT_WINDOWS,
        "warmstart": __version__,
        "backbone": bundle.model.backbone.config.to_dict(),
        "vocab_size": bundle.model.backbone.vocab_size,
        "head": head.to_dict(),
        "causal": bundle.model.causal,
        "adapters": [config.to_dict() for config in inserted_adapters(bundle.model.backbone)],
        "labels": list(bundle.labels),
        "calibration": bundle.calibration.to_dict() if bundle.calibration else None,
        "history": [record.to_dict() for record in bundle.history],
        "tensors": {name: [list(tensor.shape), _hash(tensor)] for name, tensor in tensors.items()},
    }


def _hash(tensor: Tensor) -> str:
    return sha256(tensor.flatten().view(torch.uint8).numpy().data)


def manifest_digest(manifest: dict[str, Any]) -> str:
    """The hash of a manifest without its own digest."""
    return sha256(json.dumps(manifest, sort_keys=True, ensure_ascii=False).encode())


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / "bundle.json"
    if not folder.is_dir():
        raise BundleError(f"there is no bundle at {folder}: a folder with bundle.json was expected")
    if saved_as(folder) == STACK_MANIFEST:
        raise BundleError(f"{folder} must be a bundle, but is a stack, which has no single network; `ws.load` reads it")
    if not file.is_file():
        raise BundleError(f"{folder} is not a bundle, or its bundle.json is missing; copy the whole folder again")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        digest = manifest.pop("digest")
    except OSError as error:
        raise BundleError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, KeyError, AttributeError):
        raise BundleError(f"{file} is damaged: it is not the JSON of a bundle; copy it again") from None
    if digest != manifest_digest(manifest):
        raise BundleError(f"{file} is damaged or was edited: its contents do not match its digest; copy it again")
    if manifest["format"] > FORMAT:
        raise BundleError(f"{folder} has format {manifest['format']}, this warmstart reads up to {FORMAT}; update warmstart")
    return dict(manifest)


def _read_file(folder: Path, name: str, expected: str | None) -> bytes:
    try:
        data = (folder / name).read_bytes()
    except FileNotFoundError:
        raise BundleError(f"{name} is missing in {folder}; copy the whole folder again") from None
    except OSError as error:
        raise BundleError(f"cannot read {folder / name}: {error.strerror}") from None
    # damaged weights pass here: the check of every tensor names the damaged one
    if name != "weights.safetensors" and sha256(data) != expected:
        raise BundleError(f"{folder / name} is damaged: its hash is not the one in bundle.json; copy it again")
    return data


def _read_tensors(folder: Path, data: bytes, expected: dict[str, Any]) -> dict[str, Tensor]:
    try:
        tensors = parse_tensors(data)
    except (safetensors.SafetensorError, ValueError) as error:
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


def _rebuild(folder: Path, manifest: dict[str, Any], tensors: dict[str, Tensor]) -> Model:
    backbone = Backbone(BackboneConfig.build(manifest["backbone"], "backbone"), manifest["vocab_size"])
    for values in manifest["adapters"]:
        insert_adapter(backbone, adapter_config(values), seed=0)
    head = make_head(head_config(manifest["head"]), backbone.config.width, backbone.embedding.weight)
    model = Model(backbone, head, causal=manifest["causal"])
    wanted = {name: list(tensor.shape) for name, tensor in model.weights().items()}
    found = {name: list(tensor.shape) for name, tensor in tensors.items()}
    if wanted != found:
        wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise BundleError(f"{folder}: the settings and the weights disagree about these tensors: {', '.join(wrong)}")
    model.load_state_dict(tensors, strict=False)  # a tied head's weight is the embedding's; the names were compared above
    return model.eval()


def _verify_in_fresh_process(folder: Path) -> str | None:
    return verify_in_fresh_process(folder, "warmstart.model.files", "load_bundle")


def verify_in_fresh_process(folder: Path, module: str, function: str) -> str | None:
    """Load a saved model in a fresh process, by this function, with its self-test.

    Returns the reason if that was not possible; raises ``BundleError`` if it fails.
    """
    try:
        run = run_python(_VERIFY, str(folder.resolve()), module, function)
    except OSError as error:
        return f"no process could be started ({error.strerror or error})"
    if run.returncode == 0:
        return None
    reason = run.stderr.strip().splitlines()[-1] if run.stderr.strip() else f"exit code {run.returncode}"
    if run.returncode == EXIT_BUNDLE_WRONG:
        raise BundleError(f"the saved model does not reproduce itself in a fresh process: {reason}")
    return reason


EXIT_BUNDLE_WRONG = 3
"""exit code of the fresh process if the bundle itself is wrong"""
_VERIFY = f"""
import importlib
load = getattr(importlib.import_module(sys.argv[2]), sys.argv[3])
try:
    load(sys.argv[1], selftest=True)
except MemoryError:
    raise
except Exception as error:
    print(f"{{type(error).__name__}}: {{error}}", file=sys.stderr)
    sys.exit({EXIT_BUNDLE_WRONG})
"""


def find_bundle(path: str | Path) -> Path:
    """The folder of the bundle at ``path``: ``path`` itself, or ``bundle`` in the folder of a run."""
    folder = Path(path)
    inside = folder / "bundle"
    return inside if not saved_as(folder) and inside.is_dir() else folder


def model_digest(path: str) -> str:
    """Identifies a bundle by its manifest, which has the hash of every tensor; a model that is no bundle, by its path."""
    folder = find_bundle(path)
    manifest = saved_as(folder)
    return sha256((folder / manifest).read_bytes()) if manifest else path
