"""The result of ``study attention``: what heads attend to, more than uniform attention does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from warmstart.inspection.head_attention import MEASURES, RELATIONS
from warmstart.report.result import StudyResult, Summary
from warmstart.stats.comparison import detection_text
from warmstart.stats.formatting import first_of
from warmstart.stats.power import detectable_above

if TYPE_CHECKING:
    from warmstart.studies.attention.measure import AttentionMeasured, HeadTests

HEADS_HEADER = ("attends to", "uniform", "strongest head", "its weight", "above uniform (95%)", "heads above threshold")
PHRASES = {
    "itself": "itself",
    "previous": "the previous token",
    "next": "the next token",
    "first": "the first token",
    "last": "the last token",
    "same": "another occurrence of the same token",
    "punctuation": "punctuation",
}
"""each relation, as what a token attends to"""
_LISTED = 4
"""heads that a finding names at most"""


def attention_result(model: str, measured: AttentionMeasured) -> StudyResult:
    """All findings about a model called ``model``."""
    tests = measured.tests
    entropy = tests.attention.means[:, :, MEASURES.index("normalized entropy")]
    figures = {"heads": tests.count, "normalized_entropy": float(np.nanmean(entropy))}
    figures |= {f"heads_{relation}": len(tests.above_threshold(relation)) for relation in RELATIONS}
    return StudyResult(
        f"Attention of {model}",
        attention_findings(tests),
        {"heads": pl.DataFrame(head_rows(tests)).fill_nan(None)},
        figures,
        Summary(HEADS_HEADER, relation_rows(tests)),
        measured,
    )


def head_name(layer: int, head: int) -> str:
    """``(1, 3)`` -> ``"2.4"``: layers and heads count from 1 in everything that is printed."""
    return f"{layer + 1}.{head + 1}"


def attention_findings(tests: HeadTests) -> list[str]:
    """How many heads differ from uniform attention, what they attend to, and how focused they are."""
    relations = [sentence for relation in RELATIONS if (sentence := _relation_finding(tests, relation))]
    entropy = tests.attention.means[:, :, MEASURES.index("normalized entropy")]
    layer, head = np.unravel_index(np.nanargmin(entropy), entropy.shape)
    focus = (
        f"The mean normalized entropy of attention is {np.nanmean(entropy):.2f} (1 is uniform); the most focused is head "
        f"{head_name(int(layer), int(head))} with {entropy[layer, head]:.2f}."
    )
    if not tests.is_corpus:
        return [focus, *relations, "These figures are of one text; only a corpus (--text) shows whether they hold for other texts."]
    significant = int((np.nan_to_num(tests.p, nan=1.0) < 0.05).any(axis=2).sum())
    first = (
        f"Over {len(tests.attention.sums):,} passages, {significant} of {tests.count} heads differ significantly from uniform "
        f"attention in what they attend to (5%, Holm's correction over all heads and {len(RELATIONS)} relations between tokens)."
    )
    size = (
        "Heads with random weights differ a little too, so the size of the difference counts: a head attends to something if it "
        f"puts at least {tests.threshold:.2f} more weight there than uniform attention."
    )
    return [first, size, *relations, focus]


def _relation_finding(tests: HeadTests, relation: str) -> str:
    """The heads that attend to a relation, or the strongest one; nothing if no token has this relation to another."""
    if (best := tests.strongest(relation)) is None:
        return ""
    heads, what = tests.above_threshold(relation), PHRASES[relation]
    weight, uniform = tests.value(relation, *best)
    strongest = f"the strongest is head {head_name(*best)} with {weight:.2f} (uniform attention: {uniform:.2f})"
    if tests.is_corpus and not tests.is_tested(relation):
        return f"Whether heads attend to {what} cannot be tested, as only one passage has such tokens; {strongest}."
    if not heads:
        return f"No head attends to {what}; {strongest}{_detection_limit(tests, relation)}."
    listed = first_of([f"{head_name(*head)} ({tests.value(relation, *head)[0]:.2f})" for head in heads], _LISTED)
    verb = "attends" if len(heads) == 1 else "attend"
    return f"{len(heads)} of {tests.count} heads {verb} to {what}: {listed} (uniform attention: {uniform:.2f})."


def _detection_limit(tests: HeadTests, relation: str) -> str:
    """How much more weight a head had to put on a relation, so that its whole interval is above the threshold: a clause."""
    if not tests.is_corpus:
        return ""
    m = MEASURES.index(relation)
    widest = float(np.nanmax(tests.high[:, :, m] - tests.low[:, :, m]))
    size = detectable_above(tests.threshold + widest / 2, 0.0, widest)
    return f"; of any head, {detection_text([size], '{:.2f}'.format, ' more weight than uniform attention')}"


def relation_rows(tests: HeadTests) -> list[tuple[str, ...]]:
    """One row per relation under ``HEADS_HEADER``."""
    rows = list[tuple[str, ...]]()
    for relation in RELATIONS:
        if (best := tests.strongest(relation)) is None:
            continue
        m = MEASURES.index(relation)
        weight, uniform = tests.value(relation, *best)
        low, high = tests.low[(*best, m)], tests.high[(*best, m)]
        ends = "-" if np.isnan(low) else f"{low:+.3f} to {high:+.3f}"
        difference = f"{weight - uniform:+.3f}" + (f" ({ends})" if tests.is_corpus else "")
        above = "-" if tests.is_corpus and not tests.is_tested(relation) else str(len(tests.above_threshold(relation)))
        rows.append((PHRASES[relation], f"{uniform:.3f}", head_name(*best), f"{weight:.3f}", difference, above))
    return rows


def head_rows(tests: HeadTests) -> list[dict[str, Any]]:
    """One row per head and measure; layers and heads count from 1."""
    depth, heads, _ = tests.p.shape
    return [
        {
            "layer": i + 1,
            "head": j + 1,
            "measure": measure,
            "value": float(tests.attention.means[i, j, m]),
            "uniform": float(tests.attention.uniform[i, m]),
            "difference": float(tests.attention.difference[i, j, m]),
            "low": float(tests.low[i, j, m]),
            "high": float(tests.high[i, j, m]),
            "p_holm": float(tests.p[i, j, m]),
        }
        for i in range(depth)
        for j in range(heads)
        for m, measure in enumerate(MEASURES)
    ]
