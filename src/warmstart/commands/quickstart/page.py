"""The report of the quickstart."""

from __future__ import annotations

from pathlib import Path

from warmstart.commands.adapt.page import comparison_sections
from warmstart.commands.pretrain.page import pretraining_sections
from warmstart.commands.quickstart.result import QuickstartResult
from warmstart.config import Config
from warmstart.report.page import Figure, Report, Section, write_report
from warmstart.report.score_charts import label_counts_chart
from warmstart.report.sections import audit_section, closing_sections, footer, size_section
from warmstart.stats.formatting import percent


def write_quickstart_page(result: QuickstartResult, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    last, pretraining, rows = result.adaptations[-1], result.pretraining, result.score_rows()
    metric = last.task.metric
    chart = Figure("by-labels", f"{metric} on the test split by the number of labels.", label_counts_chart(rows, metric))
    report = Report(
        "What transfer bought: documentation areas",
        result.headline,
        tuple((f"{name}, {count} labels", percent(mean)) for name, count, mean, _, _ in rows if name != "majority"),
        (
            Section("By number of labels", result.findings, (chart,)),
            *comparison_sections(last),
            *pretraining_sections(pretraining),
            audit_section(last.audit),
            size_section(pretraining.bundle, pretraining.training.seconds),
            *closing_sections(config),
        ),
        footer(),
    )
    return write_report(report, folder)
