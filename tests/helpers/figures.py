"""Figures of simulations: printed, and kept for the tables of the documents (``benchmarks.simulations``)."""

from __future__ import annotations

import json
import math
import os
from typing import Any

FILE = "SIMULATION_FIGURES"
"""the environment variable that names the file in which figures are kept"""


def show(sentence: str, **figures: Any) -> None:
    """Print a sentence, and add its figures to the file, if one is named: a line of JSON each."""
    print(sentence)
    if FILE in os.environ:
        with open(os.environ[FILE], "a", encoding="utf-8") as file:
            file.write(json.dumps(figures) + "\n")


def most(rate: float, count: int) -> float:
    """The share up to which what happens at this rate is seen in so many draws: two Monte-Carlo errors above it."""
    return rate + 2 * math.sqrt(rate * (1 - rate) / count)


def repeats(documents: int, check: int) -> int:
    """How often something is simulated: for the figures of the documents, and to check a change on two cores."""
    return documents if FILE in os.environ else check
