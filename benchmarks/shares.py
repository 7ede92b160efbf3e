"""Are shares of labels covered, and narrower than by labels alone? Draws of labelled texts and of others from real sets.

Each draw fits ``ws.fit`` to random labels, words alone, and estimates the shares among other texts, whose labels are known here.
Draws that stand in ``runs/shares.ndjson`` are not made again.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np
from benchmarks.few_label_tasks import SETS, Rows
from benchmarks.harness import table
from benchmarks.table import paragraph

import warmstart as ws
from warmstart.model.stack import Stack
from warmstart.seeding import rng
from warmstart.stats.formatting import percent_value
from warmstart.stats.shares import estimate_shares
from warmstart.system.console import console
from warmstart.tasks.shares import labelled_sample, left_out_of

NAMES = {"r8": 8, "emotion": 4, "imdb-train": 2, "20newsgroups-train": 20}
"""name -> labels"""
LABELLED, OTHERS, DRAWS = 100, 400, 58
DRAWN = Path("runs/shares.ndjson")


def one_draw(rows: Rows, seed: int) -> list[float] | None:
    """Share covered, half width and error in the mean over labels, then the last two by labels alone; None: nothing learned."""
    order = rng(seed, "shares").permutation(len(rows))
    drawn, others = ([rows[i] for i in part] for part in (order[:LABELLED], order[LABELLED : LABELLED + OTHERS]))
    result = ws.fit([text for text, _ in drawn], [label for _, label in drawn], encoders=(), minutes=1)
    if not isinstance(model := result.model, Stack):
        return None
    truth = np.array([np.mean([label == name for _, label in others]) for name in model.labels])
    counted = ws.shares(model, [text for text, _ in others]).groups[0].shares
    sample = labelled_sample(left_out_of(model))
    nothing = sample._replace(predictions=np.zeros_like(sample.predictions))
    alone = estimate_shares(nothing, np.zeros((OTHERS, len(truth))))
    if np.isnan(counted[0].low):
        return None
    covered = np.mean([share.low <= value <= share.high for share, value in zip(counted, truth, strict=True)])
    figures = [
        (np.mean([share.high - share.low for share in one]) / 2, np.abs(np.array([share.value for share in one]) - truth).mean())
        for one in (counted, alone)
    ]
    return [float(figure) for figure in (covered, *figures[0], *figures[1])]


def all_draws(draws: int) -> dict[tuple[int, str], list[float] | None]:
    """The figures of each draw and set, from the file or made now; all sets advance together."""
    DRAWN.parent.mkdir(parents=True, exist_ok=True)
    lines = map(json.loads, DRAWN.read_text(encoding="utf-8").splitlines() if DRAWN.exists() else [])
    known = {(line["draw"], line["set"]): line["figures"] for line in lines}
    texts = {name: [row for part in SETS[name].read() for row in part if row[0]] for name in NAMES}
    for draw, name in product(range(draws), NAMES):
        if (draw, name) not in known:
            with console.capture():
                known[draw, name] = one_draw(texts[name], draw)
            with DRAWN.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"set": name, "draw": draw, "figures": known[draw, name]}) + "\n")
    return {key: figures for key, figures in known.items() if key[0] < draws}


def run(draws: int = DRAWS) -> str:
    """A row for each set."""
    figures, rows = all_draws(draws), []
    for name in NAMES:
        made = np.array([figures[draw, name] for draw in range(draws) if figures[draw, name]])
        covered, half, error, half_alone, error_alone = made.mean(axis=0)
        noise = 2 * made[:, 0].std(ddof=1) / np.sqrt(len(made))
        pairs = (f"{percent_value(one)} / {percent_value(other)}" for one, other in ((half, half_alone), (error, error_alone)))
        rows.append(
            (
                f"{name}, {NAMES[name]} labels",
                f"{len(made)} of {draws}",
                f"{percent_value(covered)} ± {percent_value(noise)}",
                *pairs,
            )
        )
    header = (
        "set",
        "draws with intervals",
        "covered, % (± 2 standard errors)",
        "half width, points: with predictions / labels alone",
        "mean error, points: the same",
    )
    said = (
        f"{LABELLED} random labels, shares among {OTHERS} other texts; in the mean over labels and draws. Fits of words alone. In "
        "the draws without intervals nothing was learned, or a test doubted that the texts are alike."
    )
    return "\n\n".join([table(header, rows), paragraph(said)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shares", description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS, help="of each set")
    print(run(parser.parse_args().draws))
