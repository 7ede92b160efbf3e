"""BitFit: only the biases of the backbone train (Ben Zaken et al. 2022)."""

from __future__ import annotations

from warmstart.config import Config
from warmstart.errors import ConfigError
from warmstart.finetuning.scheme import Scheme
from warmstart.model.model import Model


def biases(model: Model) -> set[str]:
    """The names of the backbone's biases. Raises ``ConfigError`` if it has none."""
    names = {name for name, _ in model.named_parameters() if name.startswith("backbone.") and name.endswith("bias")}
    if not names:
        raise ConfigError("bitfit trains biases, but this backbone has none; choose another scheme")
    return names


def bitfit(options: Config) -> Scheme:
    """Train the biases at a high learning rate, and for longer (results/other.md: 100 steps gain three points over 60)."""
    return Scheme(trains=(biases,), rate_factors={"backbone": 40.0, "head": 20.0}, min_steps_factor=5 / 3)
