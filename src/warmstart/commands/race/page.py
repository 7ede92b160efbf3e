"""The report of a race: the ranking, differences, restarts, costs and learning rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from warmstart.config import Config
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.curve import CurveResult
from warmstart.experiment.race_verdict import race_verdict
from warmstart.experiment.ranking import RankedMethod
from warmstart.report.parts import Figure, Report, Section, Table, headline
from warmstart.report.sections import audit_section, verdict_report, write_run_page
from warmstart.stats.comparison import USEFUL, detectable_points
from warmstart.stats.formatting import (
    INTERVAL_OVER,
    file_size,
    p_value,
    percent,
    percent_range,
    percent_value,
    points_range,
    points_value,
    rows_by_source,
    sentence_case,
    time_span,
)
from warmstart.stats.noise import POWER
from warmstart.stats.scores import metric_range

if TYPE_CHECKING:
    from warmstart.experiment.estimate import SweepEstimate

PART_COLUMNS = ("method", "over seeds", "over test texts", "trained", "new")
"""the columns of a table of their own on the page, without which the ranking fits a screen"""
RULE = (
    "The method with the best score on texts that it did not learn from is chosen, of equals the first in the order in which they "
    "run; the majority label where no method predicts the labels better than their frequencies do."
)
RULE_OF_DRAWS = f"Every seed drew its own labelled texts and stands for a user who has no others. {RULE}"
COSTS: dict[str, tuple[str, Callable[[RankedMethod], float]]] = {
    "time": ("seconds per run", lambda one: one.seconds),
    "parameters": ("trained parameters", lambda one: one.runs[0].trainable),
    "disk": ("bytes to keep per task", lambda one: one.runs[0].disk),
}
"""the costs that the score is drawn against"""


def write_race_page(result: Comparison, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    sections = (*_learning_rates_section(result), audit_section(result.audit))
    return write_run_page(race_view(result, folder, config), config, folder, *sections)


def race_view(result: Comparison, folder: Path | None = None, config: Config | None = None) -> Report:
    """The report in a notebook: the method to use, the ranking, differences, restarts and costs."""
    sections = (
        *(_curve_sections(result.curve) if result.curve else ()),
        _ranking_section(result),
        _differences_section(result),
        _restarts_section(result),
        Section("Costs", (), tuple(_cost_figures(result))),
    )
    return verdict_report(f"Race: {result.task.name}", race_verdict(result, folder, config), sections)


def curve_view(result: CurveResult) -> Report:
    """The methods by number of labels, in a notebook."""
    return Report(f"Learning curve: {result.task.name}", headline(result.findings[0]), (), _curve_sections(result))


def _curve_sections(result: CurveResult) -> tuple[Section, ...]:
    """The curve, what more labels would give, and the costs."""
    return (_scores_section(result), _extrapolation_section(result), _costs_section(result))


def method_table(result: Comparison) -> Table:
    """One row per method, best mean first."""
    over = "seeds and texts" if result.ranking.seeds > 1 else "texts"
    score, rows = f"score (95% over {'splits and seeds' if result.resampled else over})", list[dict[str, str]]()
    for method in result.ranking.methods:
        run, over_texts = method.runs[0], method.test_scores.over_texts
        sizes = (file_size(run.disk), f"{run.trainable:,}", f"{run.new:,}") if run.trainable else ("-",) * 3
        row = {"method": method.name, score: str(result.interval(method)), "seconds": f"{method.seconds:.1f}"}
        row |= dict(zip(("saved", "trained", "new"), sizes, strict=True)) | {"note": method.note}
        alone = {"over seeds": result.over_seeds(method).ends, "over test texts": percent_range(over_texts.low, over_texts.high)}
        rows.append(row if result.resampled else row | alone)
    return Table([*rows[0]], [[*row.values()] for row in rows])


def _ranking_section(result: Comparison) -> Section:
    from warmstart.report.drawings import comparison_chart

    metric = result.task.metric
    rows = [(method.name, method.test_scores.scores, *_interval(result, method)) for method in result.ranking.methods]
    caption = f"{sentence_case(metric)} on the test split: each seed, mean and 95% interval over {result.sources}."
    explanation = (
        "Seconds are those of one run, training and evaluation. Saved: what must be kept for this task beside the backbone. "
        "Trained: parameters that train. New: parameters that the backbone does not have."
    )
    figure = Figure("ranking", caption, comparison_chart(rows, metric))
    rule = RULE_OF_DRAWS if result.ranking.drawn else RULE
    table = method_table(result)
    tables = (table.columns(lambda name: name == "method" or name not in PART_COLUMNS), table.columns(PART_COLUMNS.__contains__))
    title = f"Ranking with {result.labels:,} labels" if result.curve else "Ranking"
    return Section(title, (*result.findings, rule, *filter(None, [result.choice.permuted]), explanation), (figure, *tables))


def _differences_section(result: Comparison) -> Section:
    paired = "paired by seed and by test text, over both"
    if result.ranking.seeds == 0:
        paired = "paired by test text, over test texts"
    elif result.ranking.seeds == 1:
        paired = (
            "paired by test text, over test texts only; one seed says nothing about other seeds, so nothing that depends on a seed "
            "is significant"
        )
    elif result.resampled:
        paired = "paired by split and seed, with a correction for the overlap of the splits (Nadeau and Bengio 2003)"
    drawn = result.ranking.drawn
    against = "what each draw chose within its labels" if drawn else f"{result.recommended.name}, the best on validation"
    primary = ", but for that of the one question, what transfer bought" * result.has_primary
    text = (
        f"Every method against {against}, in points on the test split: {paired}; p-values "
        f"corrected for the number of methods (Holm 1979){primary}. "
        f"Smallest detectable: the true difference that is significant with {percent(POWER, 0)} probability."
    )
    if result.ranking.seeds > 1 and not drawn:
        text += (
            " Being chosen flatters a method's own scores, so each seed compares with the method that is best on the other seeds. "
            "A difference is not exactly that of the scores in the ranking."
        )
    text += " What two methods differ by at most is claimed at the 5% level, for each pair by itself."
    bounded = metric_range(result.task.metric) == (0, 1)
    rows = [
        (
            row.ranked.name,
            points_value(gap.mean),
            points_range(gap.low, gap.high),
            p_value(row.p),
            "yes" if row.significant else "no",
            percent_value(gap.at_most) if gap.at_most < (USEFUL if bounded else math.inf) else "-",
            detectable_points(gap.detectable(row.comparisons), bounded=bounded) if gap.claimable else "-",
        )
        for row in result.differences
        for gap in [row.difference]
    ]
    first = "against the choice" if drawn else "against the best"
    header = ("method", first, "95% interval", "corrected p", "significant", "differ by at most", "smallest detectable")
    return Section("Significant differences", (text,), (Table(header, rows),))


def _restarts_section(result: Comparison) -> Section:
    from warmstart.report.drawings import restarts_chart

    methods = [method for method in result.ranking.methods if method.name != "majority"]
    rows = [(method.name, method.test_scores.scores, [run.collapsed for run in method.runs]) for method in methods]
    caption = (
        "Crosses are runs, the bar their mean, the stroke one standard deviation each way. Triangles: no better than the majority "
        "label."
    )
    figure = Figure("restarts", caption, restarts_chart(rows, result.task.metric, result.constant_score))
    return Section("Restarts", items=(figure,))


def _cost_figures(result: Comparison) -> Iterator[Figure]:
    from warmstart.report.drawings import trade_off_chart

    methods = [method for method in result.ranking.methods if method.name != "majority"]
    for name, (title, cost) in COSTS.items():
        rows = [(method.name, float(cost(method)), *_interval(result, method)) for method in methods if cost(method)]
        if rows:
            line = "the line joins the methods whose mean is higher than that of every cheaper one, significantly or not"
            caption = f"Score against {title}; {line}."
            yield Figure(f"score-and-{name}", caption, trade_off_chart(rows, title, result.task.metric))


def _learning_rates_section(result: Comparison) -> Iterator[Section]:
    """The score of each rate, where rates were tried."""
    trained = [method for method in result.ranking.methods if method.tried]
    if not trained:
        return
    rates = sorted({rate for method in trained for rate in (*method.tried, *method.diverged)})
    rows = [
        (method.name, *(_validation_at(method, rate) for rate in rates), method.rates, f"{method.search_seconds:.1f}")
        for method in trained
    ]
    total = sum(method.search_seconds for method in result.ranking.methods)
    of = "mean over seeds, each of which chose for itself" if result.ranking.drawn else "of a run that is not scored"
    text = (
        f"{sentence_case(result.task.metric)} at each learning rate on the validation texts, {of}. Choosing settings and methods "
        f"cost {total:.0f} seconds in all. A scheme scales the learning rate for its parts, so one rate means the same for all."
    )
    header = ("method", *(f"{rate:g}" for rate in rates), "chosen", "seconds spent on choosing")
    yield Section("Learning rates", (text,), (Table(header, rows),))


def _validation_at(ranked: RankedMethod, learning_rate: float) -> str:
    if learning_rate in ranked.tried:
        return percent_value(ranked.tried[learning_rate])
    return "diverged" if learning_rate in ranked.diverged else "-"


def _interval(result: Comparison, ranked: RankedMethod) -> tuple[float, float, float]:
    interval = result.interval(ranked)
    return interval.mean, interval.low, interval.high


def interval_table(result: CurveResult) -> Table:
    """Two rows per method: intervals over seeds and texts, and below them over seeds alone; one row each if there is one seed."""
    rows = list[tuple[str, ...]]()
    for method in result.methods:
        both, alone = ([over(method, labels) for labels in result.rankings] for over in (result.interval, result.over_seeds))
        rows += rows_by_source(method.name, result.seeds, both, [interval.ends for interval in alone])
    return Table(("method", INTERVAL_OVER, *(f"{labels:,} labels" for labels in result.rankings)), rows)


def _scores_section(result: CurveResult) -> Section:
    from warmstart.report.drawings import learning_curve

    rows = [
        (method.name, labels, interval.mean, interval.low, interval.high)
        for method in result.methods
        for labels in result.rankings
        for interval in [result.interval(method, labels)]
    ]
    predicted = {method.name: result.predicted(method) for method in result.extrapolations}
    seeds = " and seeds, each of which draws its own labelled texts" if result.seeds > 1 else ""
    caption = (
        f"{result.task.metric} on the test split: mean and 95% interval over test texts{seeds}. Dashed: the power law fitted to "
        f"them, with its 90% interval. Dotted: {percent(result.target)}."
    )
    figure = Figure("curve", caption, learning_curve(rows, predicted, result.task.metric, result.target))
    return Section("By number of labels", result.findings, (figure, interval_table(result)))


def _extrapolation_section(result: CurveResult) -> Section:
    rows = [
        (method.name, percent(curve.law.irreducible_error), f"{curve.law.exponent:.2f}", curve.sentence(method.name, result.target))
        for method, curve in result.extrapolations.items()
    ]
    text = (
        "error(n) = c + a n^-b, fitted to the means; 90% intervals over seeds, training pools and test texts, from refits, widened "
        "by as much as the law misses the largest number of labels."
    )
    header = ("method", "irreducible error (c)", "b", f"for {percent(result.target)}")
    return Section("What more labels would give", (text,), (Table(header, rows),))


def _costs_section(result: CurveResult) -> Section:
    rows = [
        (f"{labels:,}", method.name, f"{method.seconds:.1f}", f"{method.search_seconds / len(method.runs):.1f}", method.note)
        for labels, ranked in result.rankings.items()
        for method in ranked
        if method.method in result.methods
    ]
    header = ("labels", "method", "seconds per run", "seconds of choosing", "note")
    return Section("Costs by number of labels", items=(Table(header, rows),))


def estimate_view(estimate: SweepEstimate) -> Report:
    """The expected cost of a sweep."""
    trials, time = f"{estimate.planned.total():,}", time_span(estimate.seconds)
    row = (estimate.task, trials, str(estimate.jobs), time, f"{estimate.trained:,}", file_size(estimate.saved))
    table = Table(("task", "trials", "jobs", "time", "trained", "saved"), [row])
    total = f"{trials} trials take about {time}."
    return Report("Estimate", headline(total), (), (Section("Estimate", [estimate.sentence], (table,)),))
