"""Loading a model from any kind of folder: a bundle or a stack of ours, or a folder in the Hugging Face format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from warmstart.errors import BundleError, ModelError, nearest_path
from warmstart.interop.encoders import find_model
from warmstart.model.bundle import Bundle
from warmstart.model.files import STACK_MANIFEST, load_bundle, saved_as

if TYPE_CHECKING:
    from warmstart.stack.stack import Stack


def load(folder: str | Path, *, selftest: bool = True) -> Bundle | Stack:
    """The bundle or the stack in a folder, or that of a run, or an encoder by its name.

    ``hf:FOLDER`` or ``hf:OWNER/NAME`` reads the Hugging Face format. A saved model must reproduce the outputs that were stored when
    it was saved, unless ``selftest`` is false.
    """
    if str(folder).startswith("hf:"):
        from warmstart.interop.convert import from_huggingface
        from warmstart.interop.folder import find_folder

        return from_huggingface(find_folder(str(folder)))
    if is_stack(place := find_model(folder)):
        from warmstart.stack.files import load_stack

        return load_stack(place, selftest=selftest)
    return load_bundle(place, selftest=selftest)


def is_stack(folder: str | Path) -> bool:
    """True for a folder in which a stack is saved."""
    return saved_as(Path(folder)) == STACK_MANIFEST


def load_predictor(path: str | Path) -> Bundle | Stack:
    """A saved model, as ``load_model`` reads it, or a stack, which has no network of its own."""
    place = find_model(path)
    if not is_stack(place):
        return load_model(path)
    from warmstart.stack.files import load_stack
    from warmstart.system.console import console

    stack = load_stack(place)
    what = f"a stack of {len(stack.members)} ({stack.names})" if len(stack.members) > 1 else stack.names
    console.print(f"loaded {place}: {what}, hashes and stored outputs match")
    return stack


def load_model(path: str | Path) -> Bundle:
    """Load a bundle, a run's bundle or an encoder, and print a line about it; ``hf:FOLDER`` is in the Hugging Face format.

    Raises ``BundleError`` if there is none, and ``ModelError`` for a stack.
    """
    from warmstart.system.console import console

    if is_stack(place := find_model(path)):
        from warmstart.stack.files import load_stack

        raise ModelError(
            f"one network is needed, but {place} holds {load_stack(place).names} without one of its own; `predict`, `evaluate`, "
            "`study explain`, `export` and `doctor` read it"
        )
    if str(path).startswith("hf:"):
        from warmstart.interop.convert import import_folder
        from warmstart.interop.folder import find_folder

        place, imported = Path(path), import_folder(find_folder(str(path)))
        bundle, checked = imported.bundle, "not a bundle, so not checked"
        if imported.settings:
            checked += f"; left out: {'; '.join(imported.settings)}"
    else:
        checked = "hashes and stored outputs match"
        if not place.is_dir():
            raise BundleError(
                f"there is no model at {path}: {nearest_path(path)}give the folder of a bundle, or of a run that has finished"
            )
        bundle = load_bundle(place)
    total = sum(parameter.numel() for parameter in bundle.model.parameters())
    head = bundle.model.head.config.kind
    console.print(f"loaded {place}: {len(bundle.model.weights())} tensors, {total:,} parameters, {head} head, {checked}")
    return bundle
