"""The report of a curve: score against labels, what more would give, and what each size cost."""

from __future__ import annotations

from pathlib import Path

from warmstart.config import Config
from warmstart.report import Figure, Report, Section, Table, write_report
from warmstart.report.curve import learning_curve
from warmstart.workflows.learned import Learned
from warmstart.workflows.pages import as_sentence, audit_section, closing_sections, footer


def curve_page(found: Learned, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    said = found.sentences()
    largest = max(found.stood)
    rows = [
        (name, labels, interval.mean, interval.low, interval.high)
        for name in found.names
        for labels in found.stood
        for interval in [found.at(name, labels).judged.over_seeds]
    ]
    chart = learning_curve(rows, {name: found.ahead(name) for name in found.told}, found.task.metric, found.target)
    caption = (
        f"{found.task.metric} on the test split: mean and 95 % interval over seeds, each of which draws its own texts. Dashed: the "
        f"power law fitted to them, with its 90 % interval. Dotted: {100 * found.target:.1f} %."
    )
    laws = [
        (name, f"{100 * law.law.floor:.1f} %", f"{law.law.exponent:.2f}", law.sentence(found.target))
        for name, law in found.told.items()
    ]
    costs = [
        (f"{labels:,}", s.name, f"{s.rate:g}" if s.rate else "-", f"{s.seconds:.1f}", str(s.collapsed))
        for labels, standings in found.stood.items()
        for s in standings
        if s.name in found.names
    ]
    report = Report(
        f"What labels are worth: {found.task.name}",
        as_sentence(said[0]),
        tuple(
            (f"{name}, {largest:,} labels", f"{100 * found.at(name, largest).judged.over_seeds.mean:.1f} %") for name in found.names
        ),
        (
            Section(
                "By number of labels",
                tuple(as_sentence(sentence) for sentence in said),
                (Figure("curve", caption, chart), Table(found.header(), found.table())),
            ),
            Section(
                "What more labels would give",
                ("error(n) = c + a n^-b, fitted to the means; intervals: refits to scores drawn around it as seeds strayed.",),
                (Table(("method", "error that stays (c)", "b", f"for {100 * found.target:.1f} %"), laws),),
            ),
            Section("Cost", items=(Table(("labels", "method", "rate", "seconds a run", "collapsed runs"), costs),)),
            audit_section(found.audit),
            *closing_sections(config),
        ),
        footer(),
    )
    return write_report(report, folder)
