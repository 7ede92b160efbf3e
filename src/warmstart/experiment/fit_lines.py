"""The first screen of a fit in a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from warmstart.runs.state import folder_size
from warmstart.runs.verdict import MOST_LINES, verdict_lines
from warmstart.stats.formatting import file_size
from warmstart.tasks.predict import texts_per_second

if TYPE_CHECKING:
    from warmstart.experiment.fit_result import FitResult
    from warmstart.runs.steps import TaskPlace


def fit_lines(result: FitResult, saved: Path | None, report: Path | None, place: TaskPlace | None) -> list[str]:
    """The first screen, and what is told of copies among the texts if it fits."""
    places = [*filter(None, [result.outlook]), *saved_lines(result, saved, report)]
    counted, *lines = verdict_lines(result.verdict(saved, place), *places, before=result.counted_texts)
    copies = result.audit.copies[: max(0, MOST_LINES - 1 - len(lines))]
    return [counted, *(f"mind: {sentence}" for sentence in copies), *lines]


def saved_lines(result: FitResult, saved: Path | None, report: Path | None) -> list[str]:
    """Place, size and speed of the model, and the place of the report; nothing without a model."""
    if saved is None or result.model is None:
        return []
    speed = float(f"{texts_per_second(result.model, result.task.train.texts):.2g}")
    return [
        f"saved in {saved}: {file_size(folder_size(saved))}, {speed:,.0f} texts a second here",
        f"report {report}, with whole texts; the model has words (SECURITY.md)",
    ]
