"""What do other columns add beside the text? Labelled texts of real sets, with columns whose truth is known.

Each draw fits ``ws.fit`` to random labels, words alone, and scores other texts with the columns and without them. Where both
matter, an amount and a region depend on the label; a date and a product never do. As noise, all four are drawn at random.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from benchmarks.few_label_tasks import SETS, Rows
from benchmarks.harness import table
from benchmarks.table import paragraph

import warmstart as ws
from warmstart.model.stack import Stack
from warmstart.seeding import rng
from warmstart.stats.formatting import percent_value
from warmstart.system.console import console

NAMES = ("emotion", "imdb-train", "trec", "20newsgroups-train", "r8")
LABELLED, OTHERS, DRAWS = 200, 1000, 10
REGIONS, PRODUCTS = ("north", "south", "east", "west", "abroad"), ("basic", "plus", "family")


def with_columns(rows: Rows, seed: int, *, told: bool) -> dict[str, list[Any]]:
    """The texts and labels with four columns, of which two depend on the label if that is ``told``."""
    chance, names = rng(seed, "columns"), sorted({label for _, label in rows})
    means = chance.normal(0, 1, len(names)) * told
    frequencies = chance.dirichlet(np.ones(len(REGIONS)), len(names)) if told else np.full((len(names), len(REGIONS)), 0.2)
    labels = [names.index(label) for _, label in rows]
    return {
        "text": [text for text, _ in rows],
        "label": [label for _, label in rows],
        "amount": [round(100 + 30 * float(chance.normal(means[label], 1)), 2) for label in labels],
        "region": [REGIONS[chance.choice(len(REGIONS), p=frequencies[label])] for label in labels],
        "opened": [f"2026-{1 + chance.integers(12):02d}-{1 + chance.integers(28):02d}" for _ in labels],
        "product": [PRODUCTS[chance.integers(len(PRODUCTS))] for _ in labels],
    }


def one_draw(rows: Rows, seed: int, *, told: bool) -> np.ndarray | None:
    """Accuracy by the text alone and with the columns, 1 if they are read, and the gain that is told; None: nothing learned."""
    drawn = [rows[i] for i in rng(seed, "which texts").permutation(len(rows))[: LABELLED + OTHERS]]
    frame = with_columns(drawn, seed, told=told)
    learned, others = ({name: cells[part] for name, cells in frame.items()} for part in (slice(LABELLED), slice(LABELLED, None)))
    result = ws.fit(learned, encoders=(), minutes=1)
    if not isinstance(model := result.model, Stack):
        return None
    truth = np.array(others["label"])
    alone = np.mean([row["label"] for row in ws.predict(model.text_alone, others["text"])] == truth)
    read = model.beside is not None
    both = np.mean([row["label"] for row in ws.predict(model, others)] == truth) if read else alone
    return np.array([alone, both, read, result.columns.gain if result.columns else 0.0])


def run() -> str:
    """A row for each set and kind of columns."""
    rows = []
    for name in NAMES:
        train, test = ([row for row in part if row[0]] for part in SETS[name].read())
        whole = train + test if SETS[name].development else train
        for told in (True, False):
            with console.capture():
                draws = [draw for seed in range(DRAWS) if (draw := one_draw(whole, seed, told=told)) is not None]
            alone, both, read, gain = np.mean(draws, axis=0)
            spread = float(np.std([draw[1] - draw[0] for draw in draws], ddof=1)) / len(draws) ** 0.5
            difference = f"{100 * (both - alone):+.1f} ± {100 * 2 * spread:.1f}"
            kind = "two of four depend on the label" if told else "noise"
            rows.append(
                (
                    name,
                    kind,
                    f"{round(read * len(draws))} of {len(draws)}",
                    percent_value(alone),
                    percent_value(both),
                    difference,
                    f"{100 * gain:+.1f}",
                )
            )
    header = ("set", "columns", "read", "text alone, %", "with columns, %", "gain, points", "gain told, points")
    said = (
        f"{LABELLED} random labels, accuracy on {OTHERS:,} other texts, in the mean over draws, with twice the standard error of "
        "the gain. Fits of words alone. The gain told is that out of fold, which the report names."
    )
    return "\n\n".join([table(header, rows), paragraph(said)])


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m benchmarks.columns", description=__doc__).parse_args()
    print(run())
