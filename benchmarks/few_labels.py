"""The table of few labels: races on many labelled sets (few_label_tasks.py), each with one number of labels and 5 draws.

The regret of a recommendation is the mean test score, over draws, of the method that is best in hindsight, less that of what each
draw recommends by its own labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from benchmarks.few_label_tasks import SETS
from benchmarks.table import Table, paragraph

from warmstart.stats.formatting import percent, percent_value

SHOWN = {
    "TF-IDF + logistic regression": "TF-IDF",
    "naive Bayes + EM": "EM",
    "LSA + logistic regression": "LSA",
    "frozen vectors + logistic regression · wikitext-2": "own vectors",
    "frozen vectors + logistic regression · minilm": "encoder's vectors",
    "stack": "stack",
}
"""methods with a column of their own, and its name"""
LARGE_REGRET = 0.03


class Case(NamedTuple):
    """One set with one number of labels."""

    name: str
    scores: dict[str, float]
    """mean test score of every method"""
    recommended: float
    """mean test score of what each draw recommends"""
    untested: float
    """the same for the method that is best on the labels of its draw, without the test against the majority label"""

    @property
    def best(self) -> str:
        """The method that is best in hindsight."""
        return max(self.scores, key=lambda name: self.scores[name])

    @property
    def regret(self) -> float:
        """Of what is recommended."""
        return self.scores[self.best] - self.recommended


def case_of(race: dict[str, Any]) -> Case:
    """From the values of a race."""
    by_id = {row["id"]: row for row in race["methods"]}
    chosen = float(np.mean([by_id[name]["scores"][draw] for draw, name in enumerate(race["chosen"])]))
    scores = {row["method"]: float(np.mean(row["scores"])) for row in race["methods"]}
    draws = range(len(race["chosen"]))
    best = [max((row["validations"][draw], row["scores"][draw]) for row in race["methods"])[1] for draw in draws]
    return Case(race["task"]["name"], scores, chosen, float(np.mean(best)))


def few_labels(results: Sequence[dict[str, Any]]) -> str:
    """All sets with one number of labels, those of development last, and the mean regret without these."""
    cases = sorted(map(case_of, results), key=lambda case: (SETS[case.name].development, [*SETS].index(case.name)))
    header = ("set", *SHOWN.values(), "recommended", "best in hindsight", "regret")
    rows = [
        (
            f"{case.name}{' (development)' * SETS[case.name].development}",
            *(percent(case.scores[name]) if name in case.scores else "-" for name in SHOWN),
            percent(case.recommended),
            f"{case.best}, {percent(case.scores[case.best])}",
            percent_value(case.regret),
        )
        for case in cases
    ]
    targets = [case for case in cases if not SETS[case.name].development]
    lines = ["| " + " | ".join(row) + " |" for row in (header, ("---",) * len(header), *rows)]
    large = [f"{case.name} ({percent_value(case.regret)})" for case in targets if case.regret > LARGE_REGRET]
    recommended = percent_value(float(np.mean([case.regret for case in targets])))
    untested = percent_value(float(np.mean([case.scores[case.best] - case.untested for case in targets])))
    sentence = (
        "The sets are made by `python -m benchmarks.few_label_tasks`. Accuracy, mean over 5 draws of "
        f"{results[0]['labels']} labels, which are everything that anything looked at; test splits above 2,000 texts are "
        "sampled to 2,000 once. Recommended: what each draw recommends by its own labels, which is the majority label unless "
        f"another method is significantly better. Mean regret without the sets of development: {recommended} points; without that "
        f"test {untested}. "
        f"Above three points: {', '.join(large) or 'none'}."
    )
    return "\n".join(lines) + "\n\n" + paragraph(sentence)


def few_labels_table(labels: int, names: Sequence[str], page: str, minutes: float) -> Table:
    """The table of these sets with so many labels."""
    commands = tuple(
        f"warmstart race runs/tasks/{name}/task.yaml --backbones runs/wikitext-2 runs/minilm --labels {labels} --schemes probe "
        f"--no-scratch --selection none --drop-leaks --out runs/tables/few-{labels}/{name}"
        for name in names
    )
    return Table(f"few-{labels}", (page,), commands, few_labels, needs=("wikitext-2", "minilm"), minutes=minutes)
