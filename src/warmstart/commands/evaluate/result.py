"""The result of ``evaluate --pairs``: accuracy group by group, against chance and a trigram."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from warmstart.inspection.minimal_pairs import PairGroup, compare_groups, mean_accuracy
from warmstart.report.result import StudyResult, Summary
from warmstart.stats.comparison import detection_text, limit_clause
from warmstart.stats.formatting import percent, percent_interval, points_interval
from warmstart.stats.multiple_testing import holm
from warmstart.stats.power import detectable_proportion

if TYPE_CHECKING:
    from warmstart.inspection.measured_pairs import PairsMeasured

PAIRS_HEADER = ("group", "pairs", "accuracy (95% over pairs)", "trigram")
SCORES = {
    "causal": "log-probability",
    "masked": "pseudo-log-likelihood",
    "detection": "log-probability that every token is original",
}
"""what each kind of sentence score is called"""


def pairs_result(name: str, measured: PairsMeasured) -> StudyResult:
    """All findings about the pairs of a file or folder, called ``name``."""
    mean, low, high = mean_accuracy(measured.groups)
    above, below = count_significant(measured.groups)
    figures = {"accuracy": mean, "low": low, "high": high, "groups_above_chance": above, "groups_below_chance": below}
    if measured.trigram:
        figures["trigram_accuracy"] = mean_accuracy(measured.trigram).value
    return StudyResult(
        f"Minimal pairs: {name}",
        pairs_findings(measured),
        {"pairs": _table(measured)},
        figures,
        Summary(PAIRS_HEADER, pairs_rows(measured)),
        measured,
        "`warmstart study objectives` compares what other objectives learn of the same pairs, with --pairs.",
    )


def count_significant(groups: list[PairGroup]) -> tuple[int, int]:
    """How many groups are significantly above and below chance, by exact tests with Holm's correction for the number of groups."""
    above = [group.accuracy.value > 0.5 for group, p in zip(groups, _corrected(groups), strict=True) if p < 0.05]
    return sum(above), len(above) - sum(above)


def _corrected(groups: list[PairGroup]) -> list[float]:
    return holm([group.p_value for group in groups])


def _limit(groups: list[PairGroup]) -> str:
    """How far from chance a group had to be, to be detected, over the groups that do not differ significantly from it."""
    rest = [group for group, p in zip(groups, _corrected(groups), strict=True) if p >= 0.05]
    if not rest:
        return ""
    sizes = [detectable_proportion(len(group.right), len(groups)) - 0.5 for group in rest]
    return f" In groups without a significant difference, {detection_text(sizes, unit=' points from chance')}."


def pairs_findings(measured: PairsMeasured) -> list[str]:
    """Overall accuracy, the groups that differ from chance, and the comparison with the trigram."""
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
    if measured.trigram:
        difference = compare_groups(groups, measured.trigram)
        verdict = {1: "better than", -1: "worse than", 0: "not significantly different from"}[difference.sign]
        ends = (difference.low, difference.high)
        findings.append(
            f"The model is {verdict} a trigram of the text, which reaches {percent(mean_accuracy(measured.trigram).value)}: "
            f"{points_interval(difference.mean, *ends)}{limit_clause(*ends)}."
        )
    return findings


def pairs_rows(measured: PairsMeasured) -> list[tuple[str, str, str, str]]:
    """One row per group under ``PAIRS_HEADER``, best first."""
    trigram = {group.name: percent(group.accuracy.value) for group in measured.trigram}
    return [
        (group.name, f"{len(group.right):,}", percent_interval(*group.accuracy), trigram.get(group.name, "-"))
        for group in sorted(measured.groups, key=lambda group: -group.accuracy.value)
    ]


def _table(measured: PairsMeasured) -> pl.DataFrame:
    """One row per pair, with the model's scores of both sentences."""
    good, bad = np.split(measured.scores, 2)
    columns = {name: [getattr(pair, name) for pair in measured.pairs] for name in ("group", "good", "bad")}
    return pl.DataFrame(columns | {"score_good": good, "score_bad": bad})
