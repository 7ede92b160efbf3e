"""The result of the quickstart: pretraining, a fit with few labels, and what pretraining buys with more. Needs no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.experiment.choose import WITHOUT_PRETRAINING
from warmstart.experiment.fit_lines import saved_lines
from warmstart.notebook import Shown
from warmstart.runs.steps import terminal_lines
from warmstart.runs.verdict import ACCURACY, ScoreRow, row_of
from warmstart.stats.formatting import of_100
from warmstart.stats.intervals import Estimate

if TYPE_CHECKING:
    from warmstart.commands.pretrain.result import PretrainResult
    from warmstart.experiment.fit_result import FitResult
    from warmstart.report.parts import Report, Section

Curves = dict[str, dict[int, Estimate]]
"""method -> number of labels -> accuracy on the test texts"""


@dataclass(frozen=True)
class QuickstartResult(Shown, view="commands.quickstart.result:quickstart_view"):
    """The gain of pretraining on the documentation of the installed libraries, and of an encoder, if one is installed."""

    pretraining: PretrainResult
    fit: FitResult
    """result with the fewest labels"""
    curves: Curves
    """the best method without pretraining, and the best on each backbone; the fewest labels choose them"""

    @property
    def labels(self) -> int:
        """The fewest labels."""
        return len(self.fit.task.train)

    @property
    def bought(self) -> str:
        """The gain of pretraining with the fewest labels, on new texts; at most 25 words, empty if nothing was learned.

        A difference is claimed beyond the intervals of two independent proportions (Newcombe 1998); on the same texts they are
        narrower, if anything.
        """
        if not self.fit.learned:
            return ""
        (name, ours), (_, words) = self._best(pretrained=True), self._best(pretrained=False)
        ahead, behind = (ours, words) if ours.value > words.value else (words, ours)
        name = name.rpartition(" · ")[2]  # the backbone; the table names the method
        mine, other, low, high = map(of_100, (ours.value, words.value, ahead.low, ahead.high))
        if ahead.value - behind.value <= math.hypot(ahead.value - ahead.low, behind.high - behind.value):
            return f"Not clear that pretraining bought anything: of 100 new texts, {name} gets {mine} right, words alone {other}."
        bought = f"With {self.labels} labels, pretraining bought"
        if ahead is words:
            return f"{bought} nothing: words alone get {other} of 100 right ({low} to {high}), {name} {mine}."
        return f"{bought} {int(mine) - int(other)} of 100: {name} gets {mine} right ({low} to {high}), words {other}."

    def _best(self, *, pretrained: bool) -> tuple[str, Estimate]:
        """The method of one side that the fewest labels choose, and its accuracy on the test texts with them; no stack of both."""
        right = {one.name: float(one.right.mean()) for one in self.fit.candidates}
        words = {one.name for one in self.fit.candidates if one.family in WITHOUT_PRETRAINING}
        if self.fit.best.name in self.curves and (self.fit.best.name not in words) == pretrained:
            return self.fit.best.name, self.fit.expected
        name = max((one for one in self.curves if (one not in words) == pretrained), key=lambda one: right.get(one, 0.0))
        return name, self.curves[name][self.labels]

    @property
    def rows(self) -> tuple[ScoreRow, ...]:
        """The saved model, the methods of the curves with the fewest labels, and the most frequent label, on the test texts."""
        first, *_, last = self.fit.rows
        roles = {one.name: "words alone" for one in self.fit.candidates if one.family in WITHOUT_PRETRAINING}
        scores = {name: scores[self.labels] for name, scores in self.curves.items() if name != first.name}
        others = sorted(scores, key=lambda name: -scores[name].value)
        return (first, *(row_of(name, ACCURACY, scores[name], roles.get(name, "")) for name in others), last)

    @property
    def header(self) -> tuple[str, ...]:
        """Names the columns of ``table``."""
        counts = [*next(iter(self.curves.values()), {})]
        return ("right of 100 new texts", *(f"{count:,} labels" for count in counts))

    def table(self) -> list[tuple[str, ...]]:
        """One row for each method of the curves, the best with the fewest labels first."""
        rows = sorted(self.curves.items(), key=lambda row: -row[1][self.labels].value)
        return [(name, *(of_100(one.value) for one in scores.values())) for name, scores in rows]

    def lines(self, saved: Path | None, report: Path, speed: float = 0) -> list[str]:
        """The last lines for a terminal; ``speed`` is in texts a second, 0: unknown."""
        rows = [self.header, *self.table()] if self.curves else []
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:]))) for row in rows]
        more = filter(None, [self.fit.answers_alone, self.fit.how])
        return [
            self.fit.headline,
            *filter(None, [self.bought]),
            *(f"  {line}" for line in table),
            *more,
            *saved_lines(saved, report, speed),
            *terminal_lines(self.fit.steps(saved, None)),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything but models and predictions as plain values, fit for JSON."""
        return {
            "headline": self.fit.headline,
            "bought": self.bought,
            "pretraining": self.pretraining.to_dict(),
            "fit": self.fit.to_dict(),
            "by_labels": {name: {str(n): one._asdict() for n, one in row.items()} for name, row in self.curves.items()},
        }


def quickstart_view(result: QuickstartResult, folder: Path | None = None) -> Report:
    """What a notebook shows, and the page but for its end; with commands once the run has a folder."""
    from warmstart.commands.fit.page import fit_view
    from warmstart.commands.pretrain.page import pretraining_sections
    from warmstart.report.sections import size_section, verdict_report

    pretraining = result.pretraining
    own = (*pretraining_sections(pretraining), size_section(pretraining.bundle, pretraining.training.seconds))
    small = [replace(one, title=f"The small network: {one.title.lower()}", folded=True) for one in own]
    found = result.fit.verdict(folder)
    found = replace(found, rows=result.rows, use=(*filter(None, [result.bought]), *found.use))
    more = [_labels_section(result)] if result.curves else []
    return verdict_report("What transfer bought: documentation areas", found, (*more, *fit_view(result.fit).sections, *small))


def _labels_section(result: QuickstartResult) -> Section:
    """The scores by number of labels."""
    from warmstart.report.drawings import label_counts_chart
    from warmstart.report.parts import Figure, Section, Table

    caption = "Accuracy on the test texts by the number of labels, with 95% intervals over these texts."
    rows = [(name, n, *one) for name, scores in result.curves.items() for n, one in scores.items()]
    chart = Figure("by-labels", caption, label_counts_chart(rows, "accuracy"))
    text = (f"The {result.labels} labels chose these methods: the best on words alone, and the best on each pretrained network.",)
    return Section("What it buys with more labels", text, (chart, Table(result.header, result.table())))
