"""The first screen of a fit in a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from warmstart.runs.state import folder_size
from warmstart.runs.verdict import MOST_LINES, verdict_lines
from warmstart.stats.formatting import file_size

if TYPE_CHECKING:
    from warmstart.experiment.fit_result import FitResult
    from warmstart.runs.steps import TaskPlace


def fit_lines(result: FitResult, saved: Path | None, report: Path | None, place: TaskPlace | None, speed: float = 0) -> list[str]:
    """The first screen, and what is told of copies among the texts if it fits; ``speed`` is in texts a second, 0: unknown."""
    places = [*filter(None, [result.outlook]), *saved_lines(saved, report, speed)]
    counted, *lines = verdict_lines(result.verdict(saved, place), *places, before=result.counted_texts)
    copies = result.audit.copies[: max(0, MOST_LINES - 1 - len(lines))]
    return [counted, *(f"mind: {sentence}" for sentence in copies), *lines]


def saved_lines(saved: Path | None, report: Path | None, speed: float) -> list[str]:
    """Places of the run and the report, size of its model, and texts that this reads in a second; nothing without a model."""
    if saved is None:
        return []
    costs = f": a model of {file_size(folder_size(saved / 'bundle'))}, {float(f'{speed:.2g}'):,.0f} texts a second here"
    return [f"saved in {saved}{costs if speed else ''}", f"report {report}, with whole texts; the model has words (SECURITY.md)"]
