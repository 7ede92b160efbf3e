"""The result of the quickstart: a fit with few labels, what an encoder bought, and what more labels bring. Needs no torch."""

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
    from warmstart.experiment.fit_result import FitResult
    from warmstart.report.parts import Report, Section

Curves = dict[str, dict[int, Estimate]]
"""method -> number of labels -> accuracy on the test texts"""
WORDS_ROLE, ENCODER_ROLE = "words alone", "with an encoder"
"""roles of methods"""


@dataclass(frozen=True)
class QuickstartResult(Shown, view="commands.quickstart.result:quickstart_view"):
    """The model of few labels of documentation, and the scores of its methods with more."""

    fit: FitResult
    """result with the fewest labels"""
    curves: Curves
    """the best method by words, and the best with an encoder if one is installed; the fewest labels choose them"""

    @property
    def labels(self) -> int:
        """The fewest labels."""
        return len(self.fit.task.train)

    @property
    def bought(self) -> str:
        """The gain of an encoder with the fewest labels, on new texts; at most 25 words, empty without one.

        A difference is claimed beyond the intervals of two independent proportions (Newcombe 1998); on the same texts they are
        narrower, if anything.
        """
        best = {role: scores[self.labels] for _, role, scores in self._best_first[::-1]}
        if len(best) < 2:
            return ""
        (other, behind), (first, ahead) = sorted(best.items(), key=lambda row: row[1].value)
        more, low, high, fewer = map(of_100, (*ahead, behind.value))
        first, other = (role.replace(WORDS_ROLE, f"by {WORDS_ROLE}") for role in (first, other))
        if ahead.value - behind.value <= math.hypot(ahead.value - ahead.low, behind.high - behind.value):
            return f"Not clear that pretraining bought anything: {more} of 100 new texts are right {first}, {fewer} {other}."
        gain = f"{int(more) - int(fewer)} of 100" if first == ENCODER_ROLE else "nothing"
        return f"With {self.labels} labels, pretraining bought {gain}: {more} are right {first} ({low} to {high}), {fewer} {other}."

    @property
    def _best_first(self) -> list[tuple[str, str, dict[int, Estimate]]]:
        """Name, role and scores of each method of the curves, the best with the fewest labels first."""
        words = {one.name for one in self.fit.candidates if one.family in WITHOUT_PRETRAINING}
        rows = [(name, WORDS_ROLE if name in words else ENCODER_ROLE, scores) for name, scores in self.curves.items()]
        return sorted(rows, key=lambda row: -row[2][self.labels].value)

    @property
    def rows(self) -> tuple[ScoreRow, ...]:
        """The saved model, the methods of the curves with the fewest labels, and the most frequent label, on the test texts."""
        first, *_, last = self.fit.rows
        found = [row_of(name, ACCURACY, scores[self.labels], role) for name, role, scores in self._best_first if name != first.name]
        return (first, *found, last)

    @property
    def header(self) -> tuple[str, ...]:
        """Names the columns of ``table``."""
        counts = next(iter(self.curves.values()))
        return ("right of 100 new texts", *(f"{count:,} labels" for count in counts))

    def table(self) -> list[tuple[str, ...]]:
        """One row for each method of the curves, the best with the fewest labels first."""
        return [(f"{name} ({role})", *(of_100(one.value) for one in scores.values())) for name, role, scores in self._best_first]

    def lines(self, saved: Path | None, report: Path, speed: float = 0) -> list[str]:
        """The last lines for a terminal; ``speed`` is in texts a second, 0: unknown."""
        rows = [self.header, *self.table()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:]))) for row in rows]
        return [
            self.fit.headline,
            *filter(None, [self.bought]),
            *(f"  {line}" for line in table),
            *filter(None, [self.fit.answers_alone, self.fit.how]),
            *saved_lines(saved, report, speed),
            *terminal_lines(self.fit.steps(saved, None)),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything but models and predictions as plain values, fit for JSON."""
        return {
            "headline": self.fit.headline,
            "bought": self.bought,
            "fit": self.fit.to_dict(),
            "by_labels": {name: {str(n): one._asdict() for n, one in row.items()} for name, row in self.curves.items()},
        }


def quickstart_view(result: QuickstartResult, folder: Path | None = None) -> Report:
    """What a notebook shows, and the page but for its end; with commands once the run has a folder."""
    from warmstart.commands.fit.page import fit_view
    from warmstart.report.sections import verdict_report

    verdict, more = result.fit.verdict(folder), len(result.fit.candidates) - len(result.rows)
    verdict = replace(verdict, rows=result.rows, more=more, use=(*filter(None, [result.bought]), *verdict.use))
    sections = (_labels_section(result), *fit_view(result.fit).sections)
    return verdict_report("Quickstart: areas of documentation", verdict, sections)


def _labels_section(result: QuickstartResult) -> Section:
    """The scores by number of labels."""
    from warmstart.report.drawings import label_counts_chart
    from warmstart.report.parts import Figure, Section, Table

    caption = "Accuracy on the test texts by the number of labels, with 95% intervals over these texts."
    rows = [(name, n, *one) for name, scores in result.curves.items() for n, one in scores.items()]
    chart = Figure("by-labels", caption, label_counts_chart(rows, "accuracy"))
    text = (f"The {result.labels} labels chose the best method by words, and the best with an encoder if one is installed.",)
    return Section("What more labels bring", text, (chart, Table(result.header, result.table())))
