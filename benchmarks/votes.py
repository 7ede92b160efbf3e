"""What votes of a language model add to labels, by how good they are: draws of labelled and voted texts from real sets.

Votes are simulated: right on a share of the texts, with errors on any other label, or one label always wrong. Each draw fits
``ws.fit`` with the votes, words alone, and compares it on other texts with the fit that would have been chosen without them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from benchmarks.few_label_tasks import SETS, Rows
from benchmarks.harness import table
from benchmarks.table import paragraph

import warmstart as ws
from warmstart.seeding import rng
from warmstart.stats.formatting import percent_value
from warmstart.system.console import console

NAMES = ("r8", "emotion", "imdb-train", "20newsgroups-train")
LABELLED, VOTED, OTHERS, DRAWS = 150, 1000, 1000, 5
MINUTES = 0.4
"""words are read whatever the time; what more labels would bring is not asked"""
CASES = [(right, one) for one in (False, True) for right in (0.6, 0.75, 0.9)]


def simulated_votes(labels: Sequence[str], right: float, one: bool, generator: np.random.Generator) -> list[str]:
    """Votes of which a share is ``right``; with ``one``, the second most frequent label always becomes the most frequent one.

    The votes for other labels are then right as often as that share.
    """
    names, numbers = np.unique(labels, return_inverse=True)
    wrong = generator.random(len(numbers)) >= right
    votes = np.where(wrong, (numbers + generator.integers(1, len(names), len(numbers))) % len(names), numbers)
    first, second = np.argsort(-np.bincount(numbers), kind="stable")[:2]
    return names[np.where(numbers == second, first, votes) if one else votes].tolist()


@dataclass(frozen=True)
class Draw:
    """Texts and labels of one draw, and how well labels alone do."""

    learned: Rows
    others: Rows
    seed: int

    @classmethod
    def of(cls, rows: Rows, seed: int) -> Draw:
        """The draw of a seed."""
        drawn = [rows[place] for place in rng(seed, "voted texts").permutation(len(rows))[: LABELLED + VOTED + OTHERS]]
        return cls(drawn[: LABELLED + VOTED], drawn[LABELLED + VOTED :], seed)

    def accuracy(self, votes: Sequence[str] | None = None) -> tuple[float, bool]:
        """Accuracy on the other texts of a fit, with these votes if there are any, and whether it uses them."""
        known = [label if place < LABELLED else "" for place, (_, label) in enumerate(self.learned)]
        frame = {"text": [text for text, _ in self.learned], "label": known}
        if votes:  # one for a label that no labelled text has is refused
            frame["gpt"] = [vote if vote in known else "" for vote in votes]
        how = {"votes": "gpt"} if votes else {}
        result = ws.fit(frame, text="text", label="label", encoders=(), minutes=MINUTES, **how)
        predicted = result.predict([text for text, _ in self.others])
        right = np.mean([found == label for found, (_, label) in zip(predicted, self.others, strict=True)])
        return float(right), bool(result.votes and result.votes.used)

    @cached_property
    def alone(self) -> float:
        """Accuracy of the fit without votes."""
        return self.accuracy()[0]

    def figures(self, right: float, one: bool) -> np.ndarray:
        """Share of votes that are right, accuracy without and with them, and 1 if they are used."""
        labels = [label for _, label in self.learned]
        votes = simulated_votes(labels, right, one, rng(self.seed, "votes"))
        return np.array([np.mean(np.array(votes) == labels), self.alone, *self.accuracy(votes)])


def run(names: Sequence[str] = NAMES, draws: int = DRAWS) -> str:
    """A row for each set and each kind of votes."""
    rows, started = [], time.time()
    for name in names:
        train, test = ([row for row in part if row[0]] for part in SETS[name].read())
        all_draws = [Draw.of(train + test, seed) for seed in range(draws)]
        for right, one in CASES:
            with console.capture():
                figures = np.stack([draw.figures(right, one) for draw in all_draws])
            votes, alone, used, taken = figures.mean(axis=0)
            gains = figures[:, 2] - figures[:, 1]
            spread = gains.std(ddof=1) / draws**0.5 if draws > 1 else np.nan
            kind = "one label always wrong" if one else "any other label"
            gain = f"{100 * gains.mean():+.1f} ± {100 * spread:.1f}"
            rows.append((name, kind, *map(percent_value, (votes, alone, used)), gain, f"{round(taken * draws)} of {draws}"))
            print(*rows[-1], f"{time.time() - started:.0f} s", flush=True)
    header = ("set", "errors", "votes right, %", "labels alone, %", "with votes, %", "gain, points", "used")
    said = (
        f"{LABELLED} labels and {VOTED:,} further texts with votes; accuracy on {OTHERS:,} other texts, in the mean over draws, ± "
        "its standard error. Fits of words alone."
    )
    return "\n\n".join([table(header, rows), paragraph(said)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.votes", description=__doc__)
    parser.add_argument("--names", nargs="+", default=NAMES)
    parser.add_argument("--draws", type=int, default=DRAWS)
    flags = parser.parse_args()
    print(run(flags.names, flags.draws))
