"""Loading a model from either kind of folder: a bundle of ours, or a folder in the Hugging Face format."""

from __future__ import annotations

from pathlib import Path

from warmstart.console import console
from warmstart.errors import BundleError
from warmstart.interop.convert import from_huggingface
from warmstart.interop.hub import find_folder
from warmstart.model.bundle import Bundle
from warmstart.model.files import find_bundle, load_bundle


def load(folder: str | Path, *, selftest: bool = False) -> Bundle:
    """The bundle in a folder; ``hf:FOLDER`` or ``hf:OWNER/NAME`` reads a model in the Hugging Face format.

    With ``selftest`` a bundle must also reproduce the outputs that were stored when it was saved.
    """
    if str(folder).startswith("hf:"):
        return from_huggingface(find_folder(str(folder)))
    return load_bundle(folder, selftest=selftest)


def load_model(path: str | Path) -> Bundle:
    """Load a bundle, or a run's bundle, and print one line about it; ``hf:FOLDER`` is a model in the Hugging Face format.

    Raises ``BundleError`` if there is none.
    """
    if str(path).startswith("hf:"):
        place, bundle, checked = Path(path), from_huggingface(find_folder(str(path))), "not a bundle, so not checked"
    else:
        place, checked = find_bundle(path), "hashes match"
        if not place.is_dir():
            raise BundleError(f"there is no model at {path}: give the folder of a bundle, or of a run that has finished")
        bundle = load_bundle(place)
    total = sum(parameter.numel() for parameter in bundle.model.parameters())
    head = bundle.model.head.config.kind
    console.print(
        f"loaded {place}: {len(bundle.model.weights())} tensors, {total:,} parameters, {head} head, {checked}", markup=False
    )
    return bundle
