"""Are shares of labels covered, and narrower than by labels alone? Draws of labelled texts and of others from real sets.

Each draw fits ``ws.fit`` to random labels, words alone, and estimates the shares among other texts, whose labels are known here.
"""

from __future__ import annotations

import argparse

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
from warmstart.tasks.shares import labelled_sample

NAMES = ("r8", "emotion", "imdb-train", "20newsgroups-train")
LABELLED, OTHERS, DRAWS = 100, 400, 20


def one_draw(rows: Rows, seed: int) -> np.ndarray | None:
    """Share covered, half width and error in the mean over labels, then the last two by labels alone; None: nothing learned."""
    order = rng(seed, "shares").permutation(len(rows))
    drawn, others = ([rows[i] for i in part] for part in (order[:LABELLED], order[LABELLED : LABELLED + OTHERS]))
    result = ws.fit([text for text, _ in drawn], [label for _, label in drawn], encoders=(), minutes=1)
    if not isinstance(model := result.model, Stack):
        return None
    truth = np.array([np.mean([label == name for _, label in others]) for name in model.labels])
    counted = ws.shares(model, [text for text, _ in others]).groups[0].shares
    sample = labelled_sample(model)
    nothing = sample._replace(predictions=np.zeros_like(sample.predictions))
    alone = estimate_shares(nothing, np.zeros((OTHERS, len(truth))))
    if np.isnan(counted[0].low):
        return None
    covered = np.mean([share.low <= value <= share.high for share, value in zip(counted, truth, strict=True)])
    figures = [
        (np.mean([share.high - share.low for share in one]) / 2, np.abs(np.array([share.value for share in one]) - truth).mean())
        for one in (counted, alone)
    ]
    return np.array([covered, *figures[0], *figures[1]])


def run() -> str:
    """A row for each set."""
    rows = []
    for name in NAMES:
        train, test = ([row for row in part if row[0]] for part in SETS[name].read())
        with console.capture():
            draws = [draw for seed in range(DRAWS) if (draw := one_draw(train + test, seed)) is not None]
        covered, half, error, half_alone, error_alone = np.mean(draws, axis=0)
        classes = len({label for _, label in train})
        pairs = (f"{percent_value(one)} / {percent_value(other)}" for one, other in ((half, half_alone), (error, error_alone)))
        rows.append((f"{name}, {classes} labels", f"{len(draws)} of {DRAWS}", percent_value(covered), *pairs))
    header = (
        "set",
        "draws with intervals",
        "covered, %",
        "half width, points: with predictions / labels alone",
        "mean error, points: the same",
    )
    said = (
        f"{LABELLED} random labels, shares among {OTHERS} other texts; in the mean over labels and draws. Fits of words "
        "alone: an encoder's predictions are better, and its intervals narrower."
    )
    return "\n\n".join([table(header, rows), paragraph(said)])


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m benchmarks.shares", description=__doc__).parse_args()
    print(run())
