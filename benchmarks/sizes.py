"""Cost against size: tokens a second, share of the processor's rate, and memory of a training step, by width and by length."""

from __future__ import annotations

import statistics
from functools import partial

from benchmarks.limit import work
from benchmarks.pairs import in_turn, table
from benchmarks.training import Size, batches, build

WIDTHS = (128, 256, 512, 1024)
LENGTHS = (64, 256, 1024, 2048)
TOKENS = 4096


def size_of(width: int, length: int) -> Size:
    """Four layers, feed-forward four times the width, heads of 64, 4,096 tokens a step."""
    return Size(f"{width} x {length}", width, 4, max(1, width // 64), 4 * width, 8192, length, max(1, TOKENS // length))


def run(rounds: int = 3) -> str:
    """Widths at 256 tokens, lengths at width 256."""
    rows = []
    for size in [size_of(width, 256) for width in WIDTHS] + [size_of(256, length) for length in LENGTHS if length != 256]:
        (timed,) = in_turn({"warmstart": partial(build, "warmstart", size, "causal")}, rounds, warm=1)
        middle = statistics.median(timed.seconds)
        rate = work(size, batches(size)["causal"]) / middle / 1e9
        cells = (f"{middle:.3f}", f"{size.rows * size.length / middle:,.0f}", f"{rate:.0f}", f"{timed.memory / 1e6:,.0f}")
        rows.append((f"width {size.width}, {size.rows} rows of {size.length}", *cells))
    return table(("causal, 4 layers, V 8,192", "seconds a step", "tokens/s", "GFLOP/s", "memory, MB"), rows)


if __name__ == "__main__":
    print(run())
