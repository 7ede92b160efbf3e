"""What a notebook shows of runs: the table."""

from __future__ import annotations

from warmstart.commands.runs.result import RunsResult, end_of_run
from warmstart.report.parts import Report, Section, Table, headline
from warmstart.runs.state import RunState


def runs_view(result: RunsResult) -> Report:
    """The runs of a folder."""
    states = [run.state for run in result.runs]
    tiles = [(state, str(states.count(state))) for state in dict.fromkeys(states)]
    section = Section("Runs", result.findings[1:], (Table(result.HEADER, result.table()),))
    return Report(f"Runs: {result.folder}", headline(result.findings[0]), tiles, (section,))


def run_view(run: RunState) -> Report:
    """A run that was followed to its end."""
    one = RunsResult(run.path.parent, (run,))
    section = Section("State", (), (Table(one.HEADER, one.table()),))
    return Report(f"Run: {run.name}", headline(end_of_run(run)), (), (section,))
