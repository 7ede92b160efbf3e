"""What a notebook shows of a plan."""

from __future__ import annotations

from warmstart.commands.plan.result import PlanResult
from warmstart.report.headline import headline
from warmstart.report.page import Report, Section, Table


def plan_view(result: PlanResult) -> Report:
    """The plan as a page."""
    section = Section("Plan", result.findings, (Table(result.header, result.table()),))
    return Report("Plan of a larger race", headline(result.findings[0]), (), (section,))
