"""The report of the quickstart: the first screen of its fit, and behind it what pretraining buys with more labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from warmstart.commands.fit.page import fit_view
from warmstart.commands.pretrain.page import pretraining_sections
from warmstart.commands.quickstart.result import QuickstartResult
from warmstart.report.drawings import label_counts_chart
from warmstart.report.parts import Figure, Report, Section, Table
from warmstart.report.sections import size_section, verdict_report


def quickstart_view(result: QuickstartResult, folder: Path | None = None) -> Report:
    """What a notebook shows, and the page but for its end; with commands once the run has a folder."""
    pretraining = result.pretraining
    own = (*pretraining_sections(pretraining), size_section(pretraining.bundle, pretraining.training.seconds))
    small = [replace(one, title=f"The small network: {one.title.lower()}", folded=True) for one in own]
    found = result.fit.verdict(folder)
    found = replace(found, rows=result.rows, use=(*filter(None, [result.bought]), *found.use))
    more = [_labels_section(result)] if result.curves else []
    return verdict_report("What transfer bought: documentation areas", found, (*more, *fit_view(result.fit).sections, *small))


def _labels_section(result: QuickstartResult) -> Section:
    """The scores by number of labels."""
    caption = "Accuracy on the test texts by the number of labels, with 95% intervals over these texts."
    rows = [(name, n, *one) for name, scores in result.curves.items() for n, one in scores.items()]
    chart = Figure("by-labels", caption, label_counts_chart(rows, "accuracy"))
    text = (f"The {result.labels} labels chose these methods: the best on words alone, and the best on each pretrained network.",)
    return Section("What it buys with more labels", text, (chart, Table(result.header, result.table())))
