"""The page of ``evaluate --pairs``: a chart and a table of all groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmstart.commands.evaluate.result import pairs_tables
from warmstart.report.parts import Figure, Section, Table
from warmstart.report.study_charts import pairs_chart

if TYPE_CHECKING:
    from warmstart.inspection.measured_pairs import PairsMeasured


def pairs_section(measured: PairsMeasured) -> Section:
    """The accuracy of the model and of its rivals on every group."""
    methods = {"model": measured.groups, **measured.rivals}
    points = [(name, group.name, *group.accuracy) for name, groups in methods.items() for group in groups]
    caption = "Pairs in which the right sentence scores higher, with 95% intervals over pairs; dashed: chance."
    text = "The two sentences of a pair differ in one thing, and the right one should score higher."
    *phenomena, groups = (Table(*table) for table in pairs_tables(measured))
    return Section("Groups", (text,), (*phenomena, Figure("pairs", caption, pairs_chart(points)), groups))
