"""The report of the quickstart."""

from __future__ import annotations

from pathlib import Path

from warmstart.commands.adapt.page import comparison_sections, result_tiles
from warmstart.commands.pretrain.page import pretraining_sections
from warmstart.commands.quickstart.result import QuickstartResult
from warmstart.config import Config
from warmstart.report.headline import headline
from warmstart.report.page import Figure, Report, Section, Table, write_report
from warmstart.report.score_charts import label_counts_chart
from warmstart.report.sections import audit_section, closing_sections, footer, size_section
from warmstart.stats.formatting import sentence_case, sources_of_interval

_TITLE = "What transfer bought: documentation areas"
NEXT_STEP = "your own texts and labels: `warmstart fit TABLE` makes a model, `warmstart race TABLE` compares every method."


def write_quickstart_page(result: QuickstartResult, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    last, pretraining = result.adaptations[-1], result.pretraining
    report = Report(
        _TITLE,
        headline(result.headline),
        result_tiles(last),
        (
            _labels_section(result),
            *comparison_sections(last, findings=False),
            *pretraining_sections(pretraining),
            audit_section(last.audit),
            size_section(pretraining.bundle, pretraining.training.seconds),
            *closing_sections(config),
        ),
        footer(),
        NEXT_STEP,
    )
    return write_report(report, folder)


def quickstart_view(result: QuickstartResult) -> Report:
    """What a notebook shows: the scores by number of labels, and the comparison with the most labels."""
    sections = (_labels_section(result), *comparison_sections(result.adaptations[-1], findings=False))
    return Report(_TITLE, headline(result.headline), (), sections, next_step=NEXT_STEP)


def _labels_section(result: QuickstartResult) -> Section:
    """The scores by number of labels."""
    last = result.adaptations[-1]
    metric, over = last.task.metric, sources_of_interval(len(last.comparison.rows[0].scores), "test texts")
    caption = f"{sentence_case(metric)} on the test split by the number of labels: mean and 95% interval over {over}."
    chart = Figure("by-labels", caption, label_counts_chart(result.score_rows(), metric))
    return Section("By number of labels", result.findings, (chart, Table(result.header, result.table())))
