"""Sections that the pages of several commands share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from warmstart.config import Config
from warmstart.data.audit import Audit
from warmstart.errors import ReportError
from warmstart.model.bundle import Bundle
from warmstart.model.model import parameter_counts
from warmstart.report.page import write_report
from warmstart.report.parts import Figure, Report, Section, Table
from warmstart.runs.run import provenance
from warmstart.runs.verdict import Verdict
from warmstart.stats.comparison import MethodTable
from warmstart.stats.formatting import percent_value, sentence_case, sources_of_interval
from warmstart.tasks.shares import Shares


def verdict_report(title: str, verdict: Verdict, sections: Sequence[Section]) -> Report:
    """A report whose first screen is a verdict, with everything else folded below it."""
    return Report(title, verdict.headline, (), sections, verdict=verdict)


def as_sentence(text: str) -> str:
    """A text with a capital and a full stop."""
    return sentence_case(text) + ("" if text.endswith(".") else ".")


def scores_section(comparison: MethodTable, title: str, metric: str) -> Section:
    """The scores of all methods: every seed, mean and interval, and the differences between methods."""
    from warmstart.report.drawings import comparison_chart

    rows = [(row.name, row.scores, row.interval.mean, row.interval.low, row.interval.high) for row in comparison.ranked()]
    sources = sources_of_interval(max(len(row.scores) for row in comparison.rows), "test texts")
    caption = f"{sentence_case(title)}: each seed, mean and 95% interval over {sources}."
    figure = Figure("comparison", caption, comparison_chart(rows, metric))
    return Section("Comparison", tuple(comparison.findings()), (figure, Table(comparison.header, comparison.table())))


def shares_section(shares: Shares) -> Section:
    """The chart of the shares among all texts, and a table with those of each group."""
    from warmstart.report.drawings import comparison_chart

    group = shares.groups[0]
    drawn = [(label, (), *share) for label, share in zip(shares.labels, group.shares, strict=True)]
    figure = Figure("shares", "Share of each label, with its 95% interval.", comparison_chart(drawn, "share"))
    rows = [
        (part.name, label, *("-" if np.isnan(value) else percent_value(value) for value in share), f"{part.texts:,}")
        for part in shares.groups
        for label, share in zip(shares.labels, part.shares, strict=True)
    ]
    table = Table(("texts", "label", "of 100", "95% interval from", "to", "number of texts"), rows)
    return Section("Shares of labels", tuple(map(as_sentence, (shares.sentence, *shares.notes))), (figure, table))


def audit_section(audit: Audit) -> Section:
    """The findings of the audit before training, the balance of labels and the lengths of texts."""
    from warmstart.report.drawings import class_balance_chart, text_lengths_chart

    lines = tuple(f"{finding.severity}: {finding.sentence}" for finding in audit.findings())
    rows = [(str(row["split"]), str(row["label"]), int(row["count"])) for row in audit.balance()]
    lengths = [(split.name, split.words["median"], split.words["p95"], split.words["longest"]) for split in audit.splits]
    figures = (
        Figure("balance", "Texts of each label in each split.", class_balance_chart(rows)),
        Figure("lengths", "Words per text in each split.", text_lengths_chart(lengths)),
    )
    return Section("Audit of the data", lines or ("Nothing to report.",), figures)


def size_section(bundle: Bundle, seconds: float | None = None) -> Section:
    """The parameters of each part, and the seconds of pretraining if given."""
    rows = [(name, f"{count:,}") for name, count in parameter_counts(bundle.model).items()]
    text = (f"{seconds:.0f} seconds of training.",) if seconds is not None else ()
    return Section("Parameters", text, (Table(("part", "parameters"), rows),))


def write_run_page(report: Report, config: Config, folder: Path, *more: Section, note: str = "") -> Path:
    """Write the page of a run; returns its path. After the report come ``more`` sections, the command line, and all settings."""
    settings = yaml.safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True)
    closing = (Section("Command", pre=provenance().command), Section("Settings", pre=settings, folded=True))
    return write_report(replace(report, sections=(*report.sections, *more, *closing), footer=footer() + note), folder)


def footer() -> str:
    """Origin of the figures: machine, date and version."""
    origin = provenance()
    return f"Measured on {origin.machine}, {origin.date}, with warmstart {origin.warmstart}."


@contextmanager
def model_is_saved(folder: Path) -> Iterator[None]:
    """Raises ``ReportError`` that names the saved model in place of any other error in the context."""
    try:
        yield
    except AssertionError:
        raise  # a fault of ours, which shows its traceback
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ReportError(
            f"the model is complete in {folder} and can be used, but its report cannot be written: {reason[:300]}; "
            "once that is mended, the same command writes the report"
        ) from error
