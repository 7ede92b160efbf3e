"""The result of ``import --list``: the encoders that have a name, and their table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warmstart.notebook import Shown

if TYPE_CHECKING:
    from warmstart.report.parts import Report

ENCODERS_HEADER = ("name", "model", "parameters", "languages", "licence", "installed")


class EncodersResult(dict[str, dict[str, Any]], Shown, view="commands.import_.result:encoders_view"):
    """Facts about each encoder, by name."""

    def rows(self) -> list[tuple[str, ...]]:
        """One for each, under ``ENCODERS_HEADER``."""
        return [_row(name, facts) for name, facts in self.items()]


def _row(name: str, facts: dict[str, Any]) -> tuple[str, ...]:
    size, model = f"{facts['parameters'] / 1e6:.0f} M", facts["model"].partition("/")[2]
    return name, model, size, facts["languages"], facts["licence"], facts["installed"] or "no"


def encoders_view(encoders: EncodersResult) -> Report:
    """The encoders in a notebook, one row each."""
    from warmstart.report.parts import Report, Section, Table, headline

    here = [name for name, facts in encoders.items() if facts["installed"]]
    sentence = f"Installed: {', '.join(here)}." if here else "No encoder is installed."
    table = Table(ENCODERS_HEADER, encoders.rows())
    return Report("Encoders", headline(sentence), (), (Section("Encoders by name", (), (table,)),))
