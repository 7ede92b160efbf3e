"""``doctor``: check that a saved model is whole."""

from __future__ import annotations

from tyro.conf import Positional

from warmstart.config import Config
from warmstart.console import console
from warmstart.model.files import find_bundle, load_bundle


class DoctorConfig(Config):
    """Check that a saved model is whole: every hash, every tensor, and the outputs it had when it was saved."""

    model: Positional[str]
    """a bundle, or a run's folder"""


def doctor(config: DoctorConfig) -> None:
    """The ``doctor`` command; raises ``BundleError`` where something is wrong."""
    place = find_bundle(config.model)
    bundle = load_bundle(place, selftest=True)
    console.print(
        f"{place} is whole: every file and all {len(bundle.model.weights())} tensors match their hashes, it gives the outputs "
        "that it gave when it was saved, and padding changes none of them"
    )
