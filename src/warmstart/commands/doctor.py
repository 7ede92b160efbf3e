"""``doctor``: check that a saved model is complete and reproduces itself."""

from __future__ import annotations

from tyro.conf import Positional

from warmstart.config import Config
from warmstart.console import console
from warmstart.interop.load import is_stack
from warmstart.model.files import find_bundle, load_bundle
from warmstart.stack.files import load_stack


class DoctorConfig(Config):
    """Check that a saved model is complete and undamaged, and gives the outputs that it gave when it was saved."""

    model: Positional[str]
    """a bundle, or the folder of a run"""


def doctor(config: DoctorConfig) -> None:
    """The ``doctor`` command; raises ``BundleError`` if something is wrong."""
    folder = find_bundle(config.model)
    if is_stack(folder):
        stack = load_stack(folder, selftest=True)
        console.print(
            f"{folder} is complete: every file of {stack.names} matches its hash. Each gives the outputs that it gave when it was "
            "saved.",
            markup=False,
        )
        return
    bundle = load_bundle(folder, selftest=True)
    console.print(
        f"{folder} is complete: every file and all {len(bundle.model.weights())} tensors match their hashes. It gives the outputs "
        "that it gave when it was saved, and padding changes none of them.",
        markup=False,
    )
