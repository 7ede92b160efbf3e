"""``encoders``: which pretrained models a name brings without a download, and what they have read."""

from __future__ import annotations

from typing import Any

from warmstart.config import Config
from warmstart.interop.encoders import ENCODERS, how_to_install, installed
from warmstart.model.already_read import read_by
from warmstart.notebook import Shown
from warmstart.report.headline import headline
from warmstart.report.page import Report, Section, Table
from warmstart.system.console import console, print_table

_HEADER = ("name", "model", "parameters", "languages", "licence", "installed")


class EncodersConfig(Config):
    """List the pretrained models that can be named wherever a model is, once their package is installed."""


class EncodersResult(dict[str, dict[str, Any]], Shown, view="commands.encoders:encoders_view"):
    """What is known of each encoder, by name."""


def encoders_view(encoders: EncodersResult) -> Report:
    """One row for each."""
    table = Table(_HEADER, [_row(name, one) for name, one in encoders.items()])
    here = [name for name, one in encoders.items() if one["installed"]]
    sentence = f"Installed: {', '.join(here)}." if here else "No encoder is installed."
    return Report("Encoders", headline(sentence), (), (Section("Encoders by name", (), (table,)),))


def list_encoders(config: EncodersConfig) -> EncodersResult:
    """The ``encoders`` command; returns the settings of each by name."""
    found = EncodersResult()
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
