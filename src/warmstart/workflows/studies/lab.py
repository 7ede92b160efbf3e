"""Studies: what is inside. Each writes a page; ``study lab`` is attention by hand."""

from __future__ import annotations

from pydantic import Field

from warmstart.analysis.lab import Experiment, run_lab
from warmstart.config import Config
from warmstart.engine import console
from warmstart.report import Figure, Report, Section, Table, write_report
from warmstart.report.lab import lab_chart
from warmstart.workflows.pages import closing_sections, footer
from warmstart.workflows.run import open_run, print_table

HEADER = ("number", "closed form", "measured", "difference")


class LabConfig(Config):
    """Attention by hand: keys and queries built so that what comes out can be written down, and is then measured."""

    out: str = "runs/lab"
    """folder of the run"""
    seed: int = Field(0, ge=0)
    """start of every random choice"""
    keys: int = Field(8, gt=3, le=512)
    """number of keys (n)"""
    width: int = Field(16, gt=3, le=1024)
    """width of keys and queries (d); at least as many as keys"""
    samples: int = Field(2000, gt=99, le=100_000)
    """draws of the noisy keys"""


def lab(config: LabConfig) -> list[Experiment]:
    """Run all experiments, print their numbers and write the page; the ``study lab`` command."""
    width = max(config.width, config.keys)  # so many orthogonal keys need as much room
    folder = open_run(config.out, config, resume=False)
    found = run_lab(config.seed, config.keys, width, config.samples)
    for one in found:
        print_table(f"{one.name}: {one.question}", rows_of(one), HEADER)
        console.print(one.finding, markup=False)
    report = Report(
        "The attention lab",
        "What attention does with keys and queries built by hand, beside what theory says.",
        tuple((one.name, f"{max(check.gap for check in one.checks):.1g}") for one in found),
        (*(section(one) for one in found), *closing_sections(config)),
        f"{footer()} The figures on top are the largest difference between measured and closed form.",
    )
    console.print(f"report: {write_report(report, folder)}")
    return found


def section(one: Experiment) -> Section:
    """An experiment on the page."""
    figure = (Figure(one.name.replace(" ", "-"), one.question, lab_chart(one.points, one.axes)),) if one.points else ()
    return Section(one.name.capitalize(), (one.question, one.finding), (*figure, Table(HEADER, rows_of(one))))


def rows_of(one: Experiment) -> list[tuple[str, str, str, str]]:
    """The numbers of an experiment as text."""
    return [(c.name, f"{c.closed:.6f}", f"{c.measured:.6f}", f"{c.gap:.1g}") for c in one.checks]
