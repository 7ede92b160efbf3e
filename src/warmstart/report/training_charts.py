"""The chart of training: losses against the tokens read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import altair as alt
import numpy as np

from warmstart.report.charts import MAX_POINTS, Chart, chart_of, coloured, finish

_BILLIONS = "replace(format(datum.value, '~s'), 'G', 'B')"
"""2,000,000,000 as 2B, where the metric prefix would be 2G"""


def loss_chart(rows: Iterable[Mapping[str, Any]]) -> Chart:
    """Training and held-out loss against tokens read, from the lines of ``metrics.jsonl``.

    Lines with a ``loss`` give ``step``, ``tokens`` and training loss; lines with ``held_out`` give ``step`` and figures, of which
    all whose name ends in "loss" are drawn.
    """
    lines = _loss_lines(list(rows))
    values = [
        {"line": line, "step": step, "tokens": tokens, "loss": loss}
        for line, points in lines.items()
        for step, tokens, loss in points
    ]
    axis = alt.Axis(labelExpr=_BILLIONS, grid=False, tickCount=8)
    base = chart_of(values).encode(
        x=alt.X("tokens:Q", title="tokens read", axis=axis, scale=alt.Scale(nice=False)),
        y=alt.Y("loss:Q", title="loss (nats)", scale=alt.Scale(zero=False)),
        color=coloured("line", list(lines)),
        tooltip=[
            "line:N",
            alt.Tooltip("step:Q", format=","),
            alt.Tooltip("tokens:Q", format=","),
            alt.Tooltip("loss:Q", format=".4f"),
        ],
    )
    points = base.transform_filter("datum.line != 'training'").mark_point(filled=True, size=45)
    return finish(base.mark_line(strokeWidth=1.8) + points, 320)


def _loss_lines(rows: list[Mapping[str, Any]]) -> dict[str, list[tuple[float, float, float]]]:
    """Points (step, tokens, loss) of each line; the training loss is averaged over stretches of a long run."""
    logged = [(row["step"], row["tokens"], row["loss"]) for row in rows if "loss" in row]
    steps, tokens, losses = np.array(logged, dtype=float).reshape(-1, 3).T
    lines: dict[str, list[tuple[float, float, float]]] = {"training": []}
    for part in np.array_split(np.arange(len(logged)), min(len(logged), MAX_POINTS) or 1):
        if len(part):
            lines["training"].append((steps[part[-1]], tokens[part[-1]], losses[part].mean()))
    for row in rows:
        for name, value in row.get("held_out", {}).items():
            if name.endswith("loss"):
                read = np.interp(row["step"], steps, tokens) if len(steps) else 0.0
                lines.setdefault(f"held out {name.removesuffix('loss')}".strip(), []).append((row["step"], read, value))
    return lines
