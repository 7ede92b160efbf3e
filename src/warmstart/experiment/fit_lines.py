"""What a terminal shows of a fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from warmstart.runs.steps import TaskPlace, terminal_lines

if TYPE_CHECKING:
    from warmstart.experiment.fit_result import FitResult

MOST_LINES = 16
"""on a terminal"""
ON_TERMINAL = ("serve", "try", "label", "fit")
"""next steps that a terminal shows, in this order"""


def fit_lines(result: FitResult, saved: Path | None, report: Path | None, place: TaskPlace | None) -> list[str]:
    """The first screen: sixteen lines, or as many more as there are warnings."""
    said = (*result.label_sentences, result.unclear, result.answers_alone, result.outlook, result.how, result.no_time)
    lines = [result.headline, *result.other_lines, *filter(None, said), *last_lines(result, saved, report, place)]
    warnings = result.warnings
    minds = [*warnings, *result.audit.copies][: max(len(warnings), MOST_LINES - 1 - len(lines))]
    return [result.counted_texts, *(f"mind: {sentence}" for sentence in minds), *lines]


def last_lines(result: FitResult, saved: Path | None, report: Path | None, place: TaskPlace | None) -> list[str]:
    """The last of them: where the model is, and what to do next."""
    steps = {step.name: step for step in result.steps(saved, place)}
    shown = terminal_lines(steps[name] for name in ON_TERMINAL if name in steps)
    kept = ["it keeps words that two of your texts have, its report whole texts (SECURITY.md)"]
    return [f"saved in {saved}, report {report}", *kept, *shown] if saved else shown
