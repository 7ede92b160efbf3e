"""The report of a fit: its first screen, and behind it every method and label."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from warmstart.config import Config
from warmstart.data.budget import FOLDS
from warmstart.experiment.choose import LEARNABLE
from warmstart.experiment.fit_result import FROZEN_FOLDS, FitResult
from warmstart.experiment.votes import UsedVotes
from warmstart.report.parts import Figure, Report, Section, Table
from warmstart.report.sections import audit_section, shares_section, verdict_report, write_run_page
from warmstart.runs.steps import TaskPlace
from warmstart.runs.verdict import ACCURACY, metric_words
from warmstart.stats.formatting import percent, percent_range, percent_value
from warmstart.stats.intervals import Estimate
from warmstart.stats.proportions import wilson_interval
from warmstart.stats.selected import SelectedScore

SHOWN_CHARACTERS = 300


def write_fit_page(result: FitResult, config: Config, folder: Path, view: Report | None = None) -> Path:
    """Write the report, with what ``view`` shows if it is given; returns its path."""
    report = view or fit_view(result, folder, TaskPlace.of(config))
    return write_run_page(report, config, folder, audit_section(result.audit))


def fit_view(result: FitResult, folder: Path | None = None, place: TaskPlace | None = None) -> Report:
    """The report in a notebook: the method, its rival, and where it fails; with commands once the run has a folder."""
    labels = [_labels_section(result)] if result.learned else []
    counted = [shares_section(result.shares)] if result.shares and result.learned else []
    votes = [_votes_section(result.votes)] if result.votes else []
    sections = (*labels, *votes, *counted, _methods_section(result))
    return verdict_report(f"Fit: {result.task.name}", result.verdict(folder, place), sections)


def _labels_section(result: FitResult) -> Section:
    """Each label."""
    last = ("found, %", "right of those given, %") if result.several else ("right, %", "most often taken for")
    table = Table(("label", "labelled texts", *last), result.label_rows())
    return Section("Labels", ("Each text when it is left out.",), (table,))


def _votes_section(votes: UsedVotes) -> Section:
    """How good the votes of a language model are, and the texts to label next."""
    found, (most, likely) = votes.agreement, ("most frequent other vote", "95% interval")
    rows = [
        (name, f"{count:,}", percent_value(share.value), percent_range(*share[1:]), other or "-")
        for name, count, share, other in found.labels
    ]
    header = ("label", "texts with both", "votes that agree, %", likely, most)
    differing = [(one.text[:SHOWN_CHARACTERS], one.vote, one.predicted, percent_value(one.confidence)) for one in votes.differing]
    tables = [Table(header, rows)] if rows else []
    tables += [Table(("label next", "vote", "the model says", "how sure it is, %"), differing)] if differing else []
    return Section(f"Votes of {found.name}", tuple(filter(None, [votes.sentence, found.replacing])), tuple(tables))


def _methods_section(result: FitResult) -> Section:
    """Everything that ran."""
    from warmstart.report.drawings import comparison_chart

    methods = {method.name: method for method in result.candidates}
    counted, selected, metric = result.task.metric == ACCURACY, result.selected, metric_words(result.task.metric)
    rows = [
        (name, percent_value(score.out_of_fold), f"{method.gain:.2f}", f"{method.seconds:.1f}")
        for name, score in result.alone_scores.items()
        for method in (methods[name],)
    ]
    text = (
        f"Each labelled text is predicted by models that did not learn from it: of at most {FROZEN_FOLDS} folds where a fit "
        f"takes milliseconds, otherwise of {FOLDS}.",
        f"The best {'is right on' if counted else f'has a {metric} of'} {percent(selected.out_of_fold)}; being chosen flatters it "
        f"by {percent(selected.optimism)}, by resampling.",
        "Gain: nats per text over the label frequencies, calibrated. Without any above 0 nothing is recommended.",
        *([] if result.no_signal is None else [f"{LEARNABLE}, p = {result.no_signal:.3f}."]),
    )
    chart = [(name, (methods[name].score,), *_ends(result, score)) for name, score in result.alone_scores.items()]
    caption = (
        f"{'Labels predicted correctly' if counted else f'The {metric}'} when their texts are left out, with "
        "its 95% interval over texts. The best is flattered by being the best."
    )
    figure = Figure("methods", caption, comparison_chart(chart, result.task.metric))
    header = ("method", "right, %" if counted else f"{metric}, %", "gain", "seconds per fit")
    return Section("All methods", text, (figure, Table(header, rows)))


def _ends(result: FitResult, score: SelectedScore) -> Estimate:
    """A method's score out of fold with its interval."""
    if result.task.metric == ACCURACY:
        return wilson_interval(score.out_of_fold, len(np.unique(result.left_out.units)))
    return score.expected
