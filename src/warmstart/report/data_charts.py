"""Charts of a task's data: how often each label occurs, and how long the texts are."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from warmstart.report.charts import BARE, Chart, chart_of, coloured, distinct, finish
from warmstart.report.theme import GREY, shapes


def class_balance_chart(rows: Sequence[tuple[str, str, int]]) -> Chart:
    """Texts of each class in each split, from (split, class, count)."""
    splits, labels = distinct(row[0] for row in rows), distinct(row[1] for row in rows)
    values = [{"split": split, "label": label, "texts": count} for split, label, count in rows]
    bars = (
        chart_of(values)
        .mark_bar()
        .encode(
            x=alt.X("texts:Q", title="texts", axis=alt.Axis(format=",.0f", tickMinStep=1, tickCount=6)),
            y=alt.Y("label:N", title=None, sort=labels, axis=alt.Axis(**BARE), scale=alt.Scale(paddingInner=0.3)),
            yOffset=alt.YOffset("split:N", sort=splits),
            color=coloured("split", splits),
            tooltip=["label:N", "split:N", alt.Tooltip("texts:Q", format=",")],
        )
    )
    return finish(bars, len(labels) * (9 * len(splits) + 8))


def text_lengths_chart(rows: Sequence[tuple[str, float, float, float]]) -> Chart:
    """Words per text, from (split, median, 95th percentile, longest): three marks on one line per split."""
    marks = ("median", "95th percentile", "longest")
    values = [
        {"split": split, "mark": mark, "words": words} for split, *three in rows for mark, words in zip(marks, three, strict=True)
    ]
    y = alt.Y("split:N", title=None, sort=[row[0] for row in rows], axis=alt.Axis(**BARE))
    base = chart_of(values).encode(y=y, x=alt.X("words:Q", title="words per text", axis=alt.Axis(format=",.0f", tickCount=6)))
    ranges = chart_of([{"split": split, "low": low, "high": high} for split, low, _, high in rows])
    rule = ranges.mark_rule(color=GREY).encode(y=y, x=alt.X("low:Q"), x2="high:Q")
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(
        color=coloured("mark", list(marks)),
        shape=alt.Shape("mark:N", scale=alt.Scale(domain=list(marks), range=shapes(marks))),
        tooltip=["split:N", "mark:N", alt.Tooltip("words:Q", format=",")],
    )
    return finish(rule + dots, 34 * len(rows))
