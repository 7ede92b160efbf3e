"""The page of runs: the table, or a comparison with loss curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import altair as alt
import numpy as np

from warmstart.commands.runs.result import CleaningResult, RunsComparison, RunsResult, end_of_run
from warmstart.report.charts import MAX_POINTS, Chart, chart_of, coloured, finish
from warmstart.report.headline import headline
from warmstart.report.page import Figure, Report, Section, Table, write_page
from warmstart.runs.state import RunState
from warmstart.stats.formatting import file_size


def write_runs_page(result: RunsResult, file: Path) -> Path:
    """The runs of a folder as a page; returns its path."""
    return write_page(runs_view(result), file)


def runs_view(result: RunsResult) -> Report:
    """What the page and a notebook show of the runs of a folder."""
    states = [run.state for run in result.runs]
    tiles = [(state, str(states.count(state))) for state in dict.fromkeys(states)]
    sections = [Section("Runs", result.findings[1:], (Table(result.HEADER, result.table()),)), *_losses(result.runs)]
    return Report(f"Runs: {result.folder}", headline(result.findings[0]), tiles, sections)


def write_runs_comparison(result: RunsComparison, file: Path) -> Path:
    """Runs side by side as a page; returns its path."""
    return write_page(runs_comparison_view(result), file)


def runs_comparison_view(result: RunsComparison) -> Report:
    """What the page and a notebook show of runs side by side."""
    sections = (
        Section("Results", (), (Table(result.header, result.results_table()),)),
        Section("Settings that differ", (), (Table(result.header, result.settings_table()),)),
        *_losses(result.runs),
    )
    title = "Runs: " + " · ".join(run.name for run in result.runs)
    tiles = [(run.name, file_size(run.size)) for run in result.runs]
    return Report(title, headline(result.findings[0]), tiles, sections)


def cleaning_view(result: CleaningResult) -> Report:
    """What a notebook shows of what could be removed, or was."""
    section = Section("Files", result.findings[1:], (Table(result.HEADER, result.table()),))
    return Report("Cleaning", headline(result.findings[0]), (), (section,))


def run_view(run: RunState) -> Report:
    """What a notebook shows of a run that was followed to its end."""
    one = RunsResult(run.path.parent, (run,))
    section = Section("State", (), (Table(one.HEADER, one.table()),))
    return Report(f"Run: {run.name}", headline(end_of_run(run)), (), (section, *_losses([run])))


def _losses(runs: Sequence[RunState]) -> list[Section]:
    """The losses of the runs that have a log."""
    logged = [run for run in runs if any("loss" in row for row in run.log)]
    if not logged:
        return []
    caption = "Loss by step: training (thin) and held-out text (dots)."
    return [Section("Losses", (), (Figure("losses", caption, runs_loss_chart(logged)),))]


def runs_loss_chart(runs: Sequence[RunState]) -> Chart:
    """Training and held-out loss against the step, in one colour for each run; the training loss of a long run is averaged."""
    values = [{"run": run.name, "line": line, "step": step, "loss": loss} for run in runs for line, step, loss in _points(run)]
    base = chart_of(values).encode(
        x=alt.X("step:Q", axis=alt.Axis(grid=False, tickCount=8)),
        y=alt.Y("loss:Q", title="loss (nats)", scale=alt.Scale(zero=False)),
        color=coloured("run", [run.name for run in runs]),
        tooltip=["run:N", "line:N", alt.Tooltip("step:Q", format=","), alt.Tooltip("loss:Q", format=".4f")],
    )
    training = base.transform_filter("datum.line == 'training'").mark_line(strokeWidth=1.2, opacity=0.6)
    held_out = base.transform_filter("datum.line != 'training'")
    return finish(training + held_out.mark_line(strokeWidth=2) + held_out.mark_point(filled=True, size=45), 340)


def _points(run: RunState) -> list[tuple[str, float, float]]:
    logged = [(row["step"], row["loss"]) for row in run.log if isinstance(row.get("loss"), int | float)]
    steps, losses = np.array(logged, dtype=float).reshape(-1, 2).T
    parts = np.array_split(np.arange(len(logged)), min(len(logged), MAX_POINTS) or 1)
    points = [("training", float(steps[part[-1]]), float(losses[part].mean())) for part in parts if len(part)]
    evaluated = [(row["step"], row["held_out"].get("loss")) for row in run.log if isinstance(row.get("held_out"), dict)]
    return points + [("held out", float(step), float(loss)) for step, loss in evaluated if isinstance(loss, int | float)]
