"""The page of ``study objectives``: all figures side by side, probes by layer, and minimal pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from warmstart.inspection.probe_scores import MIX
from warmstart.report.page import Figure, Section, Table
from warmstart.report.study_charts import pairs_chart
from warmstart.studies.objectives.result import objectives_overview, with_pairs
from warmstart.studies.probe.page import layers_section

if TYPE_CHECKING:
    from warmstart.studies.objectives.measure import ObjectiveMeasures


def objectives_sections(objectives: Sequence[ObjectiveMeasures]) -> list[Section]:
    """All sections; probes and minimal pairs only if they were measured."""
    sections = [_figures_section(objectives)]
    if probes := [probe for one in objectives for probe in one.probes]:
        sections.append(layers_section(probes, [*objectives[0].models[0].layers, MIX]))
    if scored := with_pairs(objectives):
        points = [(one.name, group.name, *group.accuracy) for one in scored for group in one.mean_pairs()]
        caption = (
            "Pairs in which the right sentence scores higher, mean over seeds, with 95% intervals over pairs alone; dashed: chance."
        )
        sections.append(Section("Minimal pairs", (), (Figure("pairs", caption, pairs_chart(points)),)))
    return sections


def _figures_section(objectives: Sequence[ObjectiveMeasures]) -> Section:
    count = len(objectives[0].models)
    text = (
        f"Models of each objective: {count}, each with its own seed; means with 95% intervals, over what the second column names. "
        "For probes: the layer that is best on validation, one fit for each model. Held-out losses of different objectives predict "
        "different things and cannot be compared."
    )
    header, rows = objectives_overview(objectives)
    return Section("Side by side", (text,), (Table(header, rows),))
