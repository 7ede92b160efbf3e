"""The table of few labels: races on many labelled sets (few_label_tasks.py), each with 50, 100 and 500 labels and 5 draws.

The regret of a recommendation is the mean test score, over draws, of the method that is best in hindsight, less that of what each
draw recommends by its own labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    "full · wikitext-2": "own, fine-tuned",
    "full · minilm": "encoder, fine-tuned",
    "stack": "stack",
}
"""methods with a column of their own, and its name"""
LARGE_REGRET = 0.03


class Case(NamedTuple):
    """One set with one number of labels."""

    name: str
    labels: int
    scores: dict[str, float]
    """mean test score of every method"""
    recommended: float
    """mean test score of what each draw recommends"""

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
    return Case(race["task"]["name"], race["labels"], scores, chosen)


def few_labels(results: Sequence[dict[str, Any]]) -> str:
    """All cases, those of development last, and the mean regret without these."""
    order = [*SETS]
    cases = sorted(map(case_of, results), key=lambda one: (SETS[one.name].development, order.index(one.name), one.labels))
    header = ("set", "labels", *SHOWN.values(), "recommended", "best in hindsight", "regret")
    rows = [
        (
            f"{case.name}{' (development)' * SETS[case.name].development}",
            str(case.labels),
            *(percent(case.scores[name]) if name in case.scores else "-" for name in SHOWN),
            percent(case.recommended),
            f"{case.best}, {percent(case.scores[case.best])}",
            percent_value(case.regret),
        )
        for case in cases
    ]
    lines = ["| " + " | ".join(row) + " |" for row in (header, ("---",) * len(header), *rows)]
    targets = [case for case in cases if not SETS[case.name].development]
    large = [f"{case.name} with {case.labels} ({percent_value(case.regret)})" for case in targets if case.regret > LARGE_REGRET]
    sentence = (
        "The other sets and numbers of labels likewise; the sets are made by `python -m benchmarks.few_label_tasks`. Accuracy, "
        "mean over 5 draws of labels, which are everything that anything looked at; test splits above 2,000 texts are sampled to "
        "2,000 once. Recommended: what each draw recommends by its own labels, which is the majority label unless the methods "
        "show at the 5% level that there is something to learn. "
        f"Mean regret over {len(targets)} cases without the sets of development: "
        f"{percent_value(float(np.mean([case.regret for case in targets])))} points ({_by_labels(targets)}). Above three points: "
        f"{', '.join(large) or 'none'}."
    )
    return "\n".join(lines) + "\n\n" + paragraph(sentence)


def _by_labels(cases: Sequence[Case]) -> str:
    """``"1.2 with 50 labels, 0.9 with 100"``."""
    means = {
        labels: percent_value(float(np.mean([case.regret for case in cases if case.labels == labels])))
        for labels in sorted({case.labels for case in cases})
    }
    (first, mean), *rest = means.items()
    return ", ".join([f"{mean} with {first} labels", *(f"{mean} with {labels}" for labels, mean in rest)])


def few_labels_table(
    sets: Mapping[int, Sequence[str]], fine_tuned: Mapping[int, Sequence[str]], page: str, minutes: float
) -> Table:
    """The table of these sets, by number of labels; a set with more classes than labels has no row, because a race refuses it.

    Fine-tuning takes part where ``fine_tuned`` names the set, also by number of labels.
    """
    commands = tuple(
        f"warmstart race runs/tasks/{name}/task.yaml --backbones runs/wikitext-2 runs/minilm --labels {labels} "
        f"--schemes {'full' if name in fine_tuned.get(labels, ()) else 'probe'} "
        f"--no-scratch --selection none --drop-leaks --out runs/tables/few-{labels}/{name}"
        for labels, names in sets.items()
        for name in names
    )
    return Table("few-labels", (page,), commands, few_labels, needs=("wikitext-2", "minilm"), minutes=minutes, shown=1)
