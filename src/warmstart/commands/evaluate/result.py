"""The results of ``evaluate --pairs``, group by group, and of ``evaluate --against``: which of two models is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from warmstart.inspection.minimal_pairs import PairGroup, by_phenomenon, compare_groups, mean_accuracy
from warmstart.report.parts import Figure, Section, Table
from warmstart.report.result import StudyResult
from warmstart.stats.comparison import detection_text, limit_clause
from warmstart.stats.extrapolation import round_labels
from warmstart.stats.formatting import (
    of_100,
    p_value,
    percent,
    percent_interval,
    percent_range,
    percent_value,
    points,
    points_interval,
)
from warmstart.stats.multiple_testing import holm
from warmstart.stats.noise import detectable_proportion, texts_to_tell
from warmstart.stats.proportions import paired_proportions, proportion_in_units

if TYPE_CHECKING:
    from warmstart.inspection.sentence_scores import PairsMeasured
    from warmstart.tasks.two_models import ModelsCompared

AGAINST_HEADER = ("texts", "number", "difference (95%)")
LEAST_LEAD = 0.01
"""for a smaller lead, as many texts are named as would show this one"""
SCORES = {
    "causal": "log-probability",
    "masked": "pseudo-log-likelihood",
}
"""name of each kind of sentence score"""
TAKEN = {"model", "phenomenon", "group", "pairs", "accuracy", "low", "high"}
"""names in the tables and the chart of pairs, which no other model has"""


def pairs_result(name: str, measured: PairsMeasured, model: str = "The model") -> StudyResult:
    """All findings about the pairs of a file or folder, called ``name``; ``model`` is what the model judged is called."""
    mean, low, high = mean_accuracy(measured.groups)
    above, below = count_significant(measured.groups)
    figures = {"accuracy": mean, "low": low, "high": high, "groups_above_chance": above, "groups_below_chance": below}
    figures |= {f"{name}_accuracy": mean_accuracy(groups).value for name, groups in measured.rivals.items()}
    return StudyResult(
        f"Minimal pairs: {name}",
        pairs_findings(measured, model),
        {"groups": _groups_table(measured), "pairs": _table(measured)},
        figures,
        pairs_tables(measured)[0],
        measured,
    )


def pairs_section(measured: PairsMeasured) -> Section:
    """The accuracy of the model and of its rivals on every group."""
    from warmstart.report.study_charts import pairs_chart

    methods = {"model": measured.groups, **measured.rivals}
    points = [(name, group.name, *group.accuracy) for name, groups in methods.items() for group in groups]
    caption = "Pairs in which the right sentence scores higher, with 95% intervals over pairs; dashed: chance."
    text = "The two sentences of a pair differ in one thing, and the right one should score higher."
    *phenomena, groups = pairs_tables(measured)
    return Section("Groups", (text,), (*phenomena, Figure("pairs", caption, pairs_chart(points)), groups))


def count_significant(groups: list[PairGroup]) -> tuple[int, int]:
    """Numbers of groups significantly above and below chance, by exact tests with Holm's correction for their number."""
    above = [group.accuracy.value > 0.5 for group, p in zip(groups, _corrected(groups), strict=True) if p < 0.05]
    return sum(above), len(above) - sum(above)


def _corrected(groups: list[PairGroup]) -> list[float]:
    return holm([group.p_value for group in groups])


def _limit(groups: list[PairGroup]) -> str:
    """Detectable distance from chance, over the groups that do not differ significantly from it."""
    rest = [group for group, p in zip(groups, _corrected(groups), strict=True) if p >= 0.05]
    if not rest:
        return ""
    sizes = [detectable_proportion(len(group.right), len(groups)) - 0.5 for group in rest]
    return f" In groups without a significant difference, {detection_text(sizes, unit=' points from chance')}."


def pairs_findings(measured: PairsMeasured, model: str = "The model") -> list[str]:
    """Overall accuracy, the groups that differ from chance, and the comparison with each rival."""
    groups, count = measured.groups, len(measured.pairs)
    score = SCORES[measured.kind]
    over = f"mean over {len(groups)} groups; " if len(groups) > 1 else ""
    above, below = count_significant(groups)
    findings = [
        f"By {score}, the right sentence scores higher in {percent_interval(*mean_accuracy(groups))} of {count:,} pairs "
        f"({over}chance is 50%).",
        f"{above} of {len(groups)} groups are significantly above chance and {below} significantly below (exact binomial tests, "
        f"Holm's correction).{_limit(groups)}",
    ]
    for name, rival in measured.rivals.items():
        difference = compare_groups(groups, rival)
        verdict = {1: "better than", -1: "worse than", 0: "not significantly different from"}[difference.sign]
        ends = (difference.low, difference.high)
        findings.append(
            f"{model} is {verdict} {name}, which reaches {percent(mean_accuracy(rival).value)}: "
            f"{points_interval(difference.mean, *ends)}{limit_clause(*ends)}."
        )
    return findings


def pairs_tables(measured: PairsMeasured) -> list[Table]:
    """A row per phenomenon, if groups have one in common, and a row per group; best first."""
    judges, tables = [measured.groups, *measured.rivals.values()], []
    for kind, views in (("phenomenon", [by_phenomenon(groups) for groups in judges]), ("group", judges)):
        rows = [
            (own.name, f"{len(own.right):,}", percent_interval(*own.accuracy), *(percent(rival.accuracy.value) for rival in rivals))
            for own, *rivals in sorted(zip(*views, strict=True), key=lambda same: -same[0].accuracy.value)
        ]
        if rows:
            tables.append(Table((kind, "pairs", "accuracy (95% over pairs)", *measured.rivals), rows))
    return tables


def _groups_table(measured: PairsMeasured) -> pl.DataFrame:
    """One row per group, with the accuracy of the model and of its rivals."""
    return pl.DataFrame(
        {"phenomenon": group.phenomenon, "group": group.name, "pairs": len(group.right)}
        | dict(zip(("accuracy", "low", "high"), group.accuracy, strict=True))
        | {name: rival[i].accuracy.value for name, rival in measured.rivals.items()}
        for i, group in enumerate(measured.groups)
    )


def _table(measured: PairsMeasured) -> pl.DataFrame:
    """One row per pair, with the model's scores of both sentences."""
    good, bad = np.split(measured.scores, 2)
    columns = {name: [getattr(pair, name) for pair in measured.pairs] for name in ("phenomenon", "group", "good", "bad")}
    return pl.DataFrame(columns | {"score_good": good, "score_bad": bad})


def against_result(task: str, compared: ModelsCompared, notes: Sequence[str]) -> StudyResult:
    """All findings, then ``notes``."""
    difference = compared.difference
    figures = dict(zip(("score", "score_against"), compared.scores, strict=True))
    figures |= {"difference": difference.mean, "low": difference.low, "high": difference.high, "p": difference.p}
    rows, table = _against_rows(compared)
    header = (*AGAINST_HEADER[:2], *compared.names, *AGAINST_HEADER[2:])
    return StudyResult(
        f"{compared.names[0]} against {compared.names[1]}: {task}",
        [*_against_findings(compared), *notes],
        {"parts": table} if rows else {},
        figures | {"differing": compared.differing},
        Table(header, rows) if rows else None,
        compared,
    )


def verdict(sign: int, names: tuple[str, str], mean: float, low: float, high: float) -> str:
    """-> ``"tf-idf is better by 6 (2 to 10)"``, of 100 texts; by which of the two leads significantly."""
    ahead = names[0] if sign > 0 else names[1]
    least, most = sorted((sign * low, sign * high))
    digits = 0 if abs(mean) >= 2 * LEAST_LEAD else 1
    return f"{ahead} is better by {percent_value(abs(mean), digits)} ({percent_range(least, most, digits=digits)})"


def _against_findings(compared: ModelsCompared) -> list[str]:
    (name, rival), difference = compared.names, compared.difference
    ends = (difference.mean, difference.low, difference.high)
    metric = compared.metric.replace("_", " ")
    if compared.right is None or compared.metric != "accuracy":
        shown = f"{metric} of {name} {compared.scores[0]:.3f}, of {rival} {compared.scores[1]:.3f}"
        gap = f"difference {ends[0]:+.3f} (95% interval {ends[1]:+.3f} to {ends[2]:+.3f}, over {compared.over})"
        if not compared.sign:
            return [f"Not yet clear which is better: {shown}; {gap}."]
        return [f"{(name, rival)[compared.sign < 0]} is better: {shown}; {gap}."]
    shown = f"{name} is right on {of_100(compared.scores[0])} of 100 such texts, {rival} on {of_100(compared.scores[1])}"
    first = (
        f"{shown}: {verdict(compared.sign, compared.names, *ends)}."
        if compared.sign
        else f"Not yet clear: {shown}.{_more(compared)}"
    )
    alone = [int((compared.right[i] & ~compared.right[1 - i]).sum()) for i in (0, 1)]
    test = "" if math.isnan(difference.p) else f" (exact sign test: p {p_value(difference.p)})"
    return [
        first,
        f"Accuracy {percent(compared.scores[0])} against {percent(compared.scores[1])}: {points_interval(*ends)}, the 95% "
        f"interval over {compared.over}.",
        f"Only one of the two is right on {percent(compared.differing)} of the {compared.texts:,} texts: {name} on {alone[0]}, "
        f"{rival} on {alone[1]}{test}.",
    ]


def _more(compared: ModelsCompared) -> str:
    """A sentence about the texts that would suffice to tell."""
    if not compared.differing:
        return " On every one of these texts, both are right or both are wrong."
    lead = max(abs(compared.difference.mean), LEAST_LEAD)
    needed = texts_to_tell(compared.differing, lead) - compared.texts
    if needed <= 0:
        return ""
    more = round_labels(needed)
    if lead > abs(compared.difference.mean):
        return f" A lead of {points(lead, 0)[1:].removesuffix('s')} would take about {more} more labelled texts to show."
    return f" If the lead is real, about {more} more labelled texts would tell in 4 of 5 cases."


def _against_rows(compared: ModelsCompared) -> tuple[list[Sequence[str]], pl.DataFrame]:
    """A row for all texts and each part: for people, and as numbers."""
    if compared.right is None:
        return [], pl.DataFrame()
    rows, numbers = list[Sequence[str]](), []
    for name, chosen in compared.parts:
        right, units = compared.right[:, chosen].astype(float), compared.units[chosen]
        shares = [proportion_in_units(row, units) for row in right]
        gap = paired_proportions([right[0]], [right[1]], units)
        first, second = (percent_interval(*share) for share in shares)
        rows.append((name, f"{right.shape[1]:,}", first, second, points_interval(gap.mean, gap.low, gap.high)))
        values = (name, right.shape[1], shares[0].value, shares[1].value, gap.mean, gap.low, gap.high)
        numbers.append(dict(zip(("part", "texts", "one", "other", "difference", "low", "high"), values, strict=True)))
    return rows, pl.DataFrame(numbers)
