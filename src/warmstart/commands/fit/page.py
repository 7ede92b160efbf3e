"""The report of a fit: what to use, how good, against what, where it fails; the rest folded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from warmstart.config import Config
from warmstart.experiment.draws import LEARNABLE, MAJORITY_LABEL
from warmstart.experiment.fit_result import ACCURACY, FitResult
from warmstart.report.page import Figure, Report, Section, Table, write_report
from warmstart.report.score_charts import comparison_chart
from warmstart.report.sections import audit_section, closing_sections, footer
from warmstart.stats.formatting import percent, percent_value
from warmstart.stats.proportions import wilson_interval

SHOWN_METHODS = 4


def write_fit_page(result: FitResult, config: Config, folder: Path, view: Report | None = None) -> Path:
    """Write the report, with what ``view`` shows if it is given; returns its path."""
    report = view or fit_view(result)
    sections = (*report.sections, replace(audit_section(result.audit), folded=True), *closing_sections(config))
    next_step = f"`warmstart predict {folder} FILE` labels new texts, `warmstart serve {folder}` shows the model in a browser."
    if not result.learned:
        next_step = "`warmstart label` shows which texts to label; then fit again."
    next_step = " ".join(filter(None, [next_step, report.next_step]))
    return write_report(replace(report, sections=sections, footer=footer(), next_step=next_step), folder)


def fit_view(result: FitResult, shown: Collection[str] = ()) -> Report:
    """What a notebook shows: the method, its rival, and where it fails. The chart has the best methods, or those that are named."""
    return Report(
        f"Fit: {result.task.name}",
        result.headline,
        result.comparison,
        (_result_section(result, shown), *([_mistakes_section(result)] if result.learned else []), _methods_section(result)),
    )


def _result_section(result: FitResult, shown: Collection[str]) -> Section:
    """The chosen method beside the best others, or those that are named."""
    methods = {one.name: one for one in result.candidates}
    rows = list[tuple[str, Sequence[float], float, float, float]]()
    scores = [*result.alone_scores.items()]
    for name, found in [one for one in scores if one[0] in shown] or scores[:SHOWN_METHODS]:
        ends = found.expected
        if result.task.metric == ACCURACY:
            ends = wilson_interval(found.out_of_fold, len(np.unique(result.left_out.units)))
        rows.append((name, methods[name].scores, *ends))
    what = "Labels predicted correctly" if result.task.metric == ACCURACY else "F1, the mean over labels,"
    caption = (
        f"{what} when their texts are left out: each repetition, their mean, and its 95% interval over texts. "
        "The best is flattered by being the best."
    )
    chart = Figure("methods", caption, comparison_chart(rows, result.task.metric))
    return Section("What to use", (*result.findings, *result.warnings), (chart,))


def _mistakes_section(result: FitResult) -> Section:
    """The surest mistakes, and each label."""
    mistakes = [(one.text[:300], one.label, one.predicted, percent(one.confidence, 0)) for one in result.mistakes]
    tables = [Table(("label", "labelled texts", "right, %", "most often taken for"), result.label_rows())]
    if mistakes:
        tables.insert(0, Table(("text", "its label", "predicted", "how sure"), mistakes))
    return Section("Where it fails", ("The texts about which it was surest and wrong when they were left out.",), tables)


def _methods_section(result: FitResult) -> Section:
    """Everything that ran."""
    methods = {one.name: one for one in result.candidates}
    counted, found = result.task.metric == ACCURACY, result.selected
    rows = [
        (name, percent_value(score.out_of_fold), f"{one.gain:.2f}", str(len(one.scores)), f"{one.seconds:.1f}")
        for name, score in result.alone_scores.items()
        for one in (methods[name],)
    ]
    text = (
        _repetitions(result),
        f"The best {'is right on' if counted else 'has a macro-F1 of'} {percent(found.out_of_fold)}; being chosen flatters it by "
        f"{percent(found.optimism)}, by resampling.",
        "Gain: nats per text over the label frequencies, calibrated. Without any above 0 nothing is recommended.",
        *([] if result.no_signal is None else [f"{LEARNABLE}, p = {result.no_signal:.3f}."]),
    )
    header = ("method", "right, %" if counted else "macro-F1, %", "gain", "repetitions", "seconds per fit")
    return Section("For statisticians: all methods", text, (Table(header, rows),), folded=True)


def _repetitions(result: FitResult) -> str:
    """How often the texts were left out."""
    counts = [len(one.scores) for one in result.candidates if one.name != MAJORITY_LABEL]
    most, fewer = max(counts, default=0), sum(count < max(counts) for count in counts)
    but = f", of which {fewer} had time for fewer or could not become the best any more" * bool(fewer)
    return (
        f"Every method predicts each labelled text when it is left out, in five folds; {most} repetition{'s' * (most != 1)} draw"
        f"{'s' * (most == 1)} other folds for each of {len(counts)} methods{but}."
    )
