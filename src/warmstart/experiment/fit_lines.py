"""The first screen of a fit in a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from warmstart.runs.verdict import MOST_LINES, verdict_lines

if TYPE_CHECKING:
    from warmstart.experiment.fit_result import FitResult
    from warmstart.runs.steps import TaskPlace


def fit_lines(result: FitResult, saved: Path | None, report: Path | None, place: TaskPlace | None) -> list[str]:
    """The first screen, and what is told of copies among the texts if it fits."""
    places = [*filter(None, [result.outlook]), *saved_lines(saved, report)]
    counted, *lines = verdict_lines(result.verdict(saved, place), *places, before=result.counted_texts)
    copies = result.audit.copies[: max(0, MOST_LINES - 1 - len(lines))]
    return [counted, *(f"mind: {sentence}" for sentence in copies), *lines]


def saved_lines(saved: Path | None, report: Path | None) -> list[str]:
    """Places of the model and the report, and the contents of these files; nothing without a model."""
    kept = "it keeps words that two of your texts have, its report whole texts (SECURITY.md)"
    return [f"saved in {saved}, report {report}", kept] if saved else []
