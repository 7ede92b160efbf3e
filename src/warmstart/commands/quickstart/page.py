"""The report of the quickstart: that of its fit, what pretraining buys with more labels, and, folded, the pretraining."""

from __future__ import annotations

from dataclasses import replace

from warmstart.commands.fit.page import fit_view
from warmstart.commands.pretrain.page import pretraining_sections
from warmstart.commands.quickstart.result import QuickstartResult
from warmstart.report.page import Figure, Report, Section, Table
from warmstart.report.score_charts import label_counts_chart
from warmstart.report.sections import size_section
from warmstart.stats.formatting import of_100

NEXT_STEP = "Your own texts and labels: `warmstart fit TABLE`, which tries more methods."


def quickstart_view(result: QuickstartResult) -> Report:
    """What a notebook shows, and the page but for its end."""
    pretraining, sections = result.pretraining, fit_view(result.fit, result.curves).sections
    own = (*pretraining_sections(pretraining), size_section(pretraining.bundle, pretraining.training.seconds))
    folded = [replace(one, title=f"The small network: {one.title.lower()}", folded=True) for one in own]
    label, share = result.fit.majority
    tiles = [(name, f"{scores[0]} of 100") for name, *scores in result.table()] + [(f'always "{label}"', f"{of_100(share)} of 100")]
    more = [_labels_section(result)] if result.curves else []
    shown = (*sections[:-1], *more, sections[-1], *folded)
    return Report("What transfer bought: documentation areas", result.headline, tiles, shown, next_step=NEXT_STEP)


def _labels_section(result: QuickstartResult) -> Section:
    """The scores by number of labels."""
    caption = "Accuracy on the test texts by the number of labels, with 95% intervals over these texts."
    rows = [(name, n, *one) for name, scores in result.curves.items() for n, one in scores.items()]
    chart = Figure("by-labels", caption, label_counts_chart(rows, "accuracy"))
    text = (f"The {result.labels} labels chose these methods: the best on words alone, and the best on each pretrained network.",)
    return Section("What it buys with more labels", text, (chart, Table(result.header, result.table())))
