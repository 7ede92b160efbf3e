"""Full fine-tuning: every parameter of the backbone trains."""

from __future__ import annotations

from warmstart.config import Config
from warmstart.finetuning.scheme import Scheme
from warmstart.model.model import Model


def all_parameters(model: Model) -> set[str]:
    """The names of all parameters of the backbone."""
    return {name for name, _ in model.named_parameters() if name.startswith("backbone.")}


def full(options: Config) -> Scheme:
    """Everything trains, at the learning rate of the run."""
    return Scheme(trains=(all_parameters,))
