"""A bundle on disk: one folder with a complete model that can check itself.

    bundle.json            settings of backbone, adapters and head, labels, calibration, history, the hash of every file and tensor
    weights.safetensors    backbone and head
    tokenizer.json         the tokenizer
    selftest.safetensors   test rows and the outputs for them when the bundle was saved
    README.md              the model card, for people; nothing reads it back

Loading checks every hash, name and shape, then compares a few outputs with the stored ones: a lost head or tokenizer is an error,
and so are label names in another order. Saving ends with a reload in a fresh process, before the folder is put in place. There are
no pickles.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise
from torch import Tensor

from warmstart.errors import BundleError, UncheckedWarning, nearest_path
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.checks import faults, run_checks
from warmstart.model.history import read_record
from warmstart.model.model import model_settings, rebuilt
from warmstart.model.selftest import SELFTEST_ROWS, make_selftest
from warmstart.system.limits import (
    MANIFEST_BYTES,
    MANIFEST_VALUES,
    TOKENIZER_BYTES,
    check_tensor_header,
    free_memory,
    refused_if_malformed,
)
from warmstart.system.storage import (
    FORMAT,
    MANIFESTS,
    SETTINGS,
    atomic_folder,
    read_inside,
    require_format,
    sealed,
    sha256,
    sweep,
    unsealed,
)
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.version import __version__

STACK_MANIFEST = MANIFESTS[1]
FILES = ("weights.safetensors", "tokenizer.json", "selftest.safetensors")
_NAMES = re.compile(
    r"(((members|backbones)(/\d+(/backbone)?)?/)?(bundle\.json|README\.md|weights\.safetensors|tokenizer\.json|selftest\.safetensors))"
    r"|stack\.json|backbones(/\d+)?|members(/\d+(/(backbone|baseline\.json|arrays\.safetensors))?)?"
)
"""pattern of the names in a saved model or stack"""
DIFFERS = "it was changed after it was saved, or this machine computes differently; copy it again"


def save(bundle: Bundle, folder: str | Path) -> Path:
    """Write a bundle and check it: reload it in a fresh process, compare outputs, then put it in place. Returns the folder.

    Raises ``StorageError`` if it cannot be written and ``BundleError`` if the outputs differ; either way the previous contents of
    ``folder`` stay. A folder that is not a bundle is never replaced. If the check itself cannot run (no second process, no memory
    for one), the bundle is kept with an ``UncheckedWarning``, and the command line exits with code 1.
    """
    return save_verified(folder, _fresh_reader(), lambda: bundle_contents(bundle))


def save_verified(
    folder: str | Path, reader: AbstractContextManager[Callable[[Path], str | None]], contents: Callable[[], dict[str, bytes]]
) -> Path:
    """Write the files of a model, let a ``fresh_reader`` load them, then put them in place; see ``save``."""
    target = free_for_model(folder)
    with reader as reads:
        files = contents()
        with atomic_folder(target) as aside:
            write_files(aside, files)
            unchecked = reads(aside)
    if unchecked:
        warn_unchecked(target, unchecked)
    return target


def free_for_model(folder: str | Path) -> Path:
    """The folder itself. Raises ``BundleError`` if it holds anything but a saved model."""
    target = Path(folder)
    if target.exists() and not saved_as(target) and (not target.is_dir() or any(target.iterdir())):
        raise BundleError(f"{target} exists and is not a bundle; choose another folder, or remove it yourself")
    names = (path.relative_to(target).as_posix() for path in target.rglob("*"))
    if foreign := next((name for name in names if not _NAMES.fullmatch(name)), None):
        raise BundleError(f"{target} holds {foreign}, which would be lost; choose another folder, or remove it yourself")
    return target


def saved_as(folder: Path) -> str | None:
    """Name of the folder's manifest: ``bundle.json``, or that of a stack; None: no model."""
    return next((name for name in MANIFESTS if (folder / name).is_file()), None)


def bundle_contents(bundle: Bundle) -> dict[str, bytes]:
    """The files of a bundle, by name. Raises ``BundleError`` if a quick check of the model fails."""
    from warmstart.model.card import card

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
    manifest = _manifest(bundle, tensors) | {"files": {name: sha256(contents[name]) for name in FILES[1:]}}
    contents["README.md"] = written_card(lambda: card(bundle))
    contents["bundle.json"] = manifest_bytes(manifest)
    return contents


def unchanged_contents(bundle: Bundle) -> dict[str, bytes] | None:
    """The files from which a bundle was read, by name, if they still hold what it is now; else None.

    They were proved when they were saved. Whoever saves them again has to compare what the model does with what it does when it is
    read again, since here only its settings, its weights and its tokenizer are compared.
    """
    if bundle.origin is None:
        return None
    try:
        manifest = _read_manifest(bundle.origin)
        contents = {name: read_model_file(bundle.origin, name, free_memory()) for name in ("README.md", "bundle.json", *FILES)}
    except BundleError:
        return None
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in bundle.model.weights().items()}
    same = (
        _described(bundle).items() <= manifest.items()
        and bundle.tokenizer.to_json().encode() == contents["tokenizer.json"]
        and all(sha256(contents[name]) == manifest["files"].get(name) for name in FILES[1:])
        and _holds(contents["weights.safetensors"], weights)
    )
    return contents if same else None


def _holds(data: bytes, tensors: dict[str, Tensor]) -> bool:
    """Whether the bytes of a safetensors file, which was read before, are those of these tensors; nothing is copied."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = {name: entry for name, entry in json.loads(data[8:start]).items() if name != "__metadata__"}
    if header.keys() != tensors.keys() or any(tensor.dtype is not torch.float32 for tensor in tensors.values()):
        return False
    stored = np.frombuffer(data, dtype=np.int32, offset=start)  # bits: nan is like itself, and 0 is not like -0
    places = ((tensors[name], slice(*(end // 4 for end in entry["data_offsets"]))) for name, entry in header.items())
    return all(np.array_equal(stored[place], tensor.flatten().view(torch.int32).numpy()) for tensor, place in places)


def written_card(card: Callable[[], str]) -> bytes:
    """The card of a model, for its ``README.md``; if it fails, the reason: a model is never lost to its description."""
    try:
        return card().encode(errors="backslashreplace")
    except Exception as error:
        warnings.warn(f"the model card cannot be written: {error!r}; the model itself is complete", UncheckedWarning, stacklevel=2)
        return f"The card of this model could not be written: {error!r}\n".encode(errors="backslashreplace")


def manifest_bytes(manifest: dict[str, Any]) -> bytes:
    """A manifest with its digest, as JSON; names of files that are no Unicode are written as escapes, which JSON reads back."""
    return json.dumps(sealed(manifest), indent=1, ensure_ascii=False).encode(errors="backslashreplace")


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
        stacklevel=4,
    )


def load_bundle(folder: str | Path, *, selftest: bool = True) -> Bundle:
    """The bundle in a folder. Raises ``BundleError`` that names a missing, damaged or exchanged file or tensor.

    The model must also reproduce its stored outputs; ``selftest=False`` is for the doctor, which says which of them differ.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder)
    with refused_if_malformed(BundleError, f"{folder} must hold a sound bundle", "do not use it, or copy it again"):
        return _load(folder, manifest, selftest)


def _load(folder: Path, manifest: dict[str, Any], selftest: bool) -> Bundle:
    contents = {name: _read_file(folder, name, manifest["files"].get(name)) for name in FILES}
    tensors = _read_tensors(folder, contents["weights.safetensors"], manifest["tensors"])
    tokenizer = Tokenizer.from_json(contents["tokenizer.json"].decode())
    try:
        model = rebuilt(manifest, tensors)
    except BundleError as error:
        raise BundleError(f"{folder}: {error}") from None
    calibration = Calibration.build(manifest["calibration"], "calibration") if manifest["calibration"] else None
    history = tuple(map(read_record, manifest["history"]))
    bundle = Bundle(model, tokenizer, tuple(manifest["labels"]), history, calibration, folder)
    if selftest and (failures := faults(run_checks(bundle, _stored(contents["selftest.safetensors"]), moment="load"))):
        raise BundleError(f"{folder} fails its self-test: {'; '.join(failures)}; {DIFFERS}")
    return bundle


def read_selftest(folder: Path) -> dict[str, Tensor]:
    """The self-test stored with the bundle in a folder, which was loaded before, so that its hashes match."""
    return _stored(read_model_file(folder, "selftest.safetensors", free_memory()))


def _manifest(bundle: Bundle, tensors: dict[str, Tensor]) -> dict[str, Any]:
    hashes = {name: [list(tensor.shape), _hash(tensor)] for name, tensor in tensors.items()}
    return {"format": FORMAT, "warmstart": __version__, **_described(bundle), "tensors": hashes}


def _described(bundle: Bundle) -> dict[str, Any]:
    """The entries of ``bundle.json`` on a bundle, without those on its files."""
    return {
        **model_settings(bundle.model),
        "labels": list(bundle.labels),
        "calibration": bundle.calibration.to_dict() if bundle.calibration else None,
        "history": [record.to_dict() for record in bundle.history],
    }


def _hash(tensor: Tensor) -> str:
    return sha256(tensor.flatten().view(torch.uint8).numpy().data)


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / "bundle.json"
    if not folder.is_dir():
        raise BundleError(f"there is no bundle at {folder}: {nearest_path(folder)}a folder with bundle.json was expected")
    if saved_as(folder) == STACK_MANIFEST:
        raise BundleError(f"{folder} must be a bundle, but is a stack, which has no single network; `ws.load` reads it")
    if not file.is_file() and (folder / SETTINGS).is_file():
        raise BundleError(f"{folder} is a run without a saved model; wait until it has ended, or name another")
    if not file.is_file():
        raise BundleError(f"{folder} is not a bundle, or its bundle.json is missing; copy the whole folder again")
    return checked_manifest(read_model_file(folder, file.name, MANIFEST_BYTES), file)


def checked_manifest(data: bytes, file: Path) -> dict[str, Any]:
    """The mapping in a manifest. Raises ``BundleError`` if its digest shows that it was changed, or its format is another one."""
    try:
        manifest = unsealed(data, values=MANIFEST_VALUES)
    except ValueError as error:
        raise BundleError(f"{file} is damaged or was edited: {error}; copy it again") from None
    require_format(manifest, file.parent, BundleError)
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


def _fresh_reader() -> AbstractContextManager[Callable[[Path], str | None]]:
    return fresh_reader("warmstart.model.files", "load_bundle")


@contextmanager
def fresh_reader(module: str, function: str) -> Iterator[Callable[[Path], str | None]]:
    """A fresh process that gets ready to load a saved model by this function, while the model is still being written.

    It has seen no model before. What comes lets it load a folder, and returns the reason if that was not possible; it raises
    ``BundleError`` if the model cannot be loaded, or does something else than it did.
    """
    from warmstart.system.processes import started_python

    with ExitStack() as ended:
        try:
            process = ended.enter_context(started_python(_READER, module, function))
        except OSError as error:
            reason = f"no process could be started ({error.strerror or error})"
            yield lambda _folder: reason
        else:
            yield partial(_read_afresh, process)


def _read_afresh(process: subprocess.Popen[str], folder: Path) -> str | None:
    _, errors = process.communicate(str(folder.resolve()))
    if process.returncode == 0:
        return None
    reason = errors.strip().splitlines()[-1] if errors.strip() else f"exit code {process.returncode}"
    if process.returncode == EXIT_BUNDLE_WRONG:
        raise BundleError(f"the saved model does not reproduce itself in a fresh process: {reason}")
    return reason


EXIT_BUNDLE_WRONG = 3
"""exit code of the fresh process if the bundle itself is wrong"""
_READER = f"""
import importlib
load = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])
folder = sys.stdin.read()
if not folder:
    sys.exit()
try:
    load(folder)
except MemoryError:
    raise
except Exception as error:
    print(f"{{type(error).__name__}}: {{error}}", file=sys.stderr)
    sys.exit({EXIT_BUNDLE_WRONG})
"""
"""program of a fresh reader: a folder comes on its standard input, once the model is written; nothing comes if it is not"""


def find_bundle(path: str | Path) -> Path:
    """The folder of the bundle at ``path``: ``path`` itself, or ``bundle`` in the folder of a run.

    A folder that a killed process left under another name is brought back.
    """
    folder = Path(path)
    inside = folder / "bundle"
    for missing in (path for path in (folder, inside) if not path.exists()):
        sweep(missing.parent, missing.name)
    return inside if not saved_as(folder) and inside.is_dir() else folder


def remove_model(run: Path) -> bool:
    """Remove the model in the folder of a run, which is of other data than the run is now; returns whether there was one."""
    if there := saved_as(run / "bundle") is not None:
        shutil.rmtree((run / "bundle").resolve())
    return there


def model_digest(path: str) -> str:
    """Identifies a bundle by its manifest, which has the hash of every tensor; a model that is no bundle, by its path."""
    folder = find_bundle(path)
    manifest = saved_as(folder)
    return sha256(read_model_file(folder, manifest, MANIFEST_BYTES)) if manifest else path
