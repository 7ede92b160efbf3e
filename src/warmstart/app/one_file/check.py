"""``warmstart doctor`` for a page: it must be as export writes it, and have the weights of the bundle that is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from warmstart.app.one_file.document import of_this_version, read_page
from warmstart.app.one_file.parts import taken_apart
from warmstart.app.one_file.weights import unpack_tensors
from warmstart.errors import BundleError
from warmstart.interop.load import load_predictor
from warmstart.model.folder import model_digest

SLACK = 1e-4
"""share of half a step that float32 adds to the rounding of a weight"""


def check_page(path: str, bundle: str | None) -> dict[str, Any]:
    """Facts of a page, and the largest distance of its weights from those of the ``bundle``, in steps of their rounding.

    Raises ``BundleError`` if the page is damaged or was changed, or does not come from the bundle.
    """
    contents = read_page(Path(path))
    facts = contents.facts
    tensors = unpack_tensors(facts["weights"], contents.weights)
    report = {
        "page": path,
        "name": facts["name"],
        "digest": facts["bundle_digest"],
        "warmstart": facts["warmstart"],
        "script_checked": of_this_version(contents),
        "tensors": len(tensors),
    }
    if bundle is None:
        return report | {"bundle": None, "steps": None}
    parts = taken_apart(load_predictor(bundle))
    if facts["tokenizers"].keys() != {network.tokenizer.digest for network in parts.networks}:
        raise BundleError(f"{path} has another tokenizer than {bundle}; it was made from another model")
    steps = _steps_off(path, bundle, parts.tensors, tensors)
    if facts["members"] != json.loads(json.dumps(parts.members)):
        raise BundleError(f"{path} has other members than {bundle}; it was made from another model")
    if (digest := model_digest(bundle)) != facts["bundle_digest"]:
        raise BundleError(
            f"{path} names the digest {facts['bundle_digest'][:16]}…, but {bundle} has {digest[:16]}…: its weights are the same, "
            "its history or calibration is not; export the model again"
        )
    return report | {"bundle": bundle, "steps": steps}


def _steps_off(path: str, bundle: str, wanted: dict[str, Tensor], tensors: dict[str, tuple[Tensor, Tensor | None]]) -> float:
    """The largest distance as a fraction of a step, at most a half. Raises ``BundleError`` that names the first other tensor."""
    if differing := sorted(wanted.keys() ^ tensors.keys()):
        raise BundleError(f"{path} has other tensors than {bundle}, such as {differing[0]}; it was made from another model")
    most = 0.0
    for name, tensor in wanted.items():
        values, half = tensors[name]
        if values.shape != tensor.shape:
            raise BundleError(f"in {path} {name} has the shape {list(values.shape)}, in {bundle} {list(tensor.shape)}")
        distance = torch.where(tensor == values, 0.0, (tensor.detach().float() - values).abs())  # also where both are infinite
        off = float((distance / half).max()) if half is not None else float(distance.max() > 0) * 2
        if off > 1 + SLACK:
            raise BundleError(
                f"the weights in {path} are not those of {bundle} rounded to 8 bits: {name} differs by "
                f"{off / 2:.3g} steps, and rounding changes it by half a step at most; it was made from another model, or changed"
            )
        most = max(most, off / 2 if half is not None else 0.0)
    return most
