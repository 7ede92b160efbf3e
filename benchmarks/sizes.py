"""Cost against size: tokens a second, share of the processor's rate, and memory of a training step, by width and by length.

Also draws results/sizes.svg.
"""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path

import altair as alt
import vl_convert
from benchmarks.harness import show, table, time_in_turn
from benchmarks.limit import work
from benchmarks.training import Size, batches, build

from warmstart.report.charts import BLUE, THEME, chart_of

WIDTHS = (128, 256, 512, 1024)
LENGTHS = (64, 256, 1024, 2048)
TOKENS = 4096
PICTURE = Path(__file__).parent.parent / "results" / "sizes.svg"


def size_of(width: int, length: int) -> Size:
    """Four layers, feed-forward four times the width, heads of 64, 4,096 tokens a step."""
    return Size(f"{width} x {length}", width, 4, max(1, width // 64), 4 * width, 8192, length, max(1, TOKENS // length))


def run(rounds: int = 3) -> str:
    """Widths at 256 tokens, lengths at width 256."""
    rows, points = [], list[tuple[str, int, float, float]]()
    for size in [size_of(width, 256) for width in WIDTHS] + [size_of(256, length) for length in LENGTHS if length != 256]:
        (timed,) = time_in_turn({"warmstart": partial(build, "warmstart", size, "causal")}, rounds)
        middle = statistics.median(timed.seconds)
        rate = work(size, batches(size)["causal"]) / middle / 1e9
        cells = (f"{middle:.3f}", f"{size.rows * size.length / middle:,.0f}", f"{rate:.0f}", f"{timed.memory / 1e6:,.0f}")
        rows.append((f"width {size.width}, {size.rows} rows of {size.length}", *cells))
        here = (size.rows * size.length / middle, timed.memory / 1e6)
        points += [("by width, at 256 tokens", size.width, *here)] if size.length == 256 else []
        points += [("by tokens of a row, at width 256", size.length, *here)] if size.width == 256 else []
    draw(points)
    return table(("causal, 4 layers, V 8,192", "seconds per step", "tokens/s", "GFLOP/s", "memory, MB"), rows)


def draw(points: list[tuple[str, int, float, float]]) -> None:
    """Four panels: tokens a second and memory, by width and by length."""
    values = [
        {"by": by, "size": size, "what": what, "value": value}
        for by, size, speed, memory in sorted(points)
        for what, value in (("tokens a second", speed), ("memory, MB", memory))
    ]
    x = alt.X("size:Q", title=None, scale=alt.Scale(type="log", base=2, nice=False), axis=alt.Axis(format=",d", grid=False))
    y = alt.Y("value:Q", title=None, scale=alt.Scale(type="log"), axis=alt.Axis(format="~s", tickCount=5))
    chart = chart_of(values).mark_line(point=True, color=BLUE).encode(x=x, y=y).properties(width=260, height=180)
    panels = chart.facet(column=alt.Column("by:N", title=None), row=alt.Row("what:N", title=None, sort=["tokens a second"]))
    drawn = panels.resolve_scale(x="independent", y="independent").configure(**THEME)
    PICTURE.write_text(vl_convert.vegalite_to_svg(drawn.to_dict()), encoding="utf-8")


if __name__ == "__main__":
    show(run)
