"""What a notebook shows of the list of encoders."""

from __future__ import annotations

from warmstart.commands.import_.result import ENCODERS_HEADER, EncodersResult
from warmstart.report.parts import Report, Section, Table, headline


def encoders_view(encoders: EncodersResult) -> Report:
    """One row for each."""
    here = [name for name, one in encoders.items() if one["installed"]]
    sentence = f"Installed: {', '.join(here)}." if here else "No encoder is installed."
    return Report(
        "Encoders", headline(sentence), (), (Section("Encoders by name", (), (Table(ENCODERS_HEADER, encoders.rows()),)),)
    )
