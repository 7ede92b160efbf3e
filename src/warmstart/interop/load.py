"""Loading of any model: the folder is asked first what it is; encoders by name and the Hugging Face format are tried last."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from warmstart.errors import BundleError, ModelError, nearest_path
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_saved
from warmstart.model.folder import find_bundle, is_model

if TYPE_CHECKING:
    from warmstart.model.stack import Stack


def load(folder: str | Path, *, selftest: bool = True) -> Bundle | Stack:
    """The bundle or the stack in a folder, or that of a run, or an encoder by its name.

    ``hf:FOLDER`` or ``hf:OWNER/NAME`` reads the Hugging Face format. A saved model must reproduce the outputs that were stored when
    it was saved, unless ``selftest`` is false.
    """
    return _read(folder, selftest=selftest)[0]


def _read(path: str | Path, *, selftest: bool = True) -> tuple[Bundle | Stack, str]:
    """A model, and what was checked of it."""
    if not str(path).startswith("hf:"):
        return load_saved(_place(path), selftest=selftest), "hashes and stored outputs match"
    from warmstart.interop.convert import import_folder
    from warmstart.interop.folder import find_folder

    imported = import_folder(find_folder(str(path)))
    left_out = f"; left out: {'; '.join(imported.settings)}" if imported.settings else ""
    return imported.bundle, f"not a bundle, so not checked{left_out}"


def _place(path: str | Path) -> Path:
    """The folder of a saved model, which may be that of an encoder."""
    folder = find_bundle(path)
    if is_model(folder) and (isinstance(path, Path) or Path(path).name != path):  # no name of an encoder is a path
        return folder
    from warmstart.interop.encoders import find_model

    return find_model(path)


def load_predictor(path: str | Path) -> Bundle | Stack:
    """A model, as ``load`` reads it, with a line about it. Raises ``BundleError`` if there is none."""
    from warmstart.system.console import console

    place = Path(path) if str(path).startswith("hf:") else _place(path)
    if not str(path).startswith("hf:") and not place.is_dir():
        raise BundleError(
            f"there is no model at {path}: {nearest_path(path)}give the folder of a bundle, or of a run that has finished"
        )
    model, checked = _read(path)
    if not isinstance(model, Bundle):
        about = f"a stack of {len(model.members)} ({model.names})" if len(model.members) > 1 else model.names
    else:
        total = sum(parameter.numel() for parameter in model.model.parameters())
        about = f"{len(model.model.weights())} tensors, {total:,} parameters, {model.model.head.config.kind} head"
    console.print(f"loaded {place}: {about}, {checked}")
    return model


def load_text_model(path: str | Path, where: str) -> Bundle | Stack:
    """A model, as ``load_predictor`` reads it, for a place ``where`` there are texts alone; see ``text_alone``."""
    model = load_predictor(path)
    return model if isinstance(model, Bundle) else text_alone(model, where)


def text_alone(stack: Stack, where: str) -> Stack:
    """The stack as it answers to texts alone, with a line about it if it reads other columns, too."""
    from warmstart.system.console import console

    if stack.beside:
        console.print(
            f"{where} reads the text alone, without {', '.join(stack.beside.names)}; predict and evaluate read these, too."
        )
    return stack.text_alone


def load_model(path: str | Path) -> Bundle:
    """A network, as ``load_predictor`` reads it. Raises ``ModelError`` for a stack."""
    model = load_predictor(path)
    if not isinstance(model, Bundle):
        raise ModelError(
            f"one network is needed, but {path} holds {model.names} without one of its own; `predict`, `evaluate`, "
            "`study explain`, `export` and `doctor` read it"
        )
    return model
