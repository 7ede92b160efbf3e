"""The table of few labels: races on many labelled sets (few_label_tasks.py), each with 50, 100 and 500 labels and 5 draws.

The regret of a recommendation is the mean test score, over draws, of the method that is best in hindsight, less that of what each
draw recommends by its own labels. The best baseline, of methods without any pretrained network, is that of hindsight too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from benchmarks.few_label_tasks import SETS
from benchmarks.table import Table, paragraph

from warmstart.stats.formatting import percent, percent_value, points_interval
from warmstart.stats.intervals import Interval, t_interval

SHOWN = {
    "TF-IDF + logistic regression": "TF-IDF",
    "naive Bayes + EM": "EM",
    "LSA + logistic regression": "LSA",
    "frozen vectors · wikitext-2": "own vectors",
    "frozen vectors · minilm": "encoder's vectors",
    "full · wikitext-2": "own, fine-tuned",
    "full · minilm": "encoder, fine-tuned",
    "stack": "stack",
}
"""methods with a column of their own, and its name"""
LARGE_REGRET = 0.03
REFUSED = "refused: fewer labels than classes"


class Case(NamedTuple):
    """One set with one number of labels."""

    name: str
    labels: int
    scores: dict[str, float]
    """mean test score of every method"""
    recommended: float
    """mean test score of what each draw recommends"""
    baseline: str
    """the baseline that is best in hindsight"""
    behind: Interval
    """its test score less that of what each draw recommends, over draws"""
    classes: int

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
    chosen = np.array([by_id[name]["scores"][draw] for draw, name in enumerate(race["chosen"])])
    scores = {row["method"]: float(np.mean(row["scores"])) for row in race["methods"]}
    baselines = [row for row in race["methods"] if row["id"].startswith("baseline/")]
    best = max(baselines, key=lambda row: float(np.mean(row["scores"])))
    behind = t_interval((np.array(best["scores"]) - chosen).tolist())
    task = race["task"]
    return Case(task["name"], race["labels"], scores, float(chosen.mean()), best["method"], behind, len(task["labels"]))


def few_labels(results: Sequence[dict[str, Any]]) -> str:
    """All cases, those of development last, and the mean regret without these."""
    order = [*SETS]
    cases = sorted(map(case_of, results), key=lambda one: (bool(SETS[one.name].remark), order.index(one.name), one.labels))
    header = ("set", "labels", *SHOWN.values(), "recommended", "best in hindsight", "regret")
    rows = {
        (order.index(case.name), case.labels): (
            _set_name(case),
            str(case.labels),
            *(percent(case.scores[name]) if name in case.scores else "-" for name in SHOWN),
            percent(case.recommended),
            f"{case.best}, {percent(case.scores[case.best])}",
            percent_value(case.regret),
        )
        for case in cases
    }
    sizes, width = {case.labels for case in cases}, len(header) - 3
    refused = {(order.index(one.name), n): (_set_name(one), str(n), REFUSED) for one in cases for n in sizes if n < one.classes}
    rows |= {key: (*row, *["-"] * width) for key, row in refused.items()}
    places = sorted(rows, key=lambda key: (bool(SETS[order[key[0]]].remark), key))
    table = [header, ("---",) * len(header), *(rows[key] for key in places)]
    lines = ["| " + " | ".join(row) + " |" for row in table]
    targets = [case for case in cases if not SETS[case.name].remark]
    large = [f"{case.name} with {case.labels} ({percent_value(case.regret)})" for case in targets if case.regret > LARGE_REGRET]
    sentence = (
        "The other sets and numbers of labels likewise; the sets are made by `python -m benchmarks.few_label_tasks`. Accuracy, "
        "mean over 5 draws of labels, which are everything that anything looked at; test splits above 2,000 texts are sampled to "
        "2,000 once. Recommended: what each draw recommends by its own labels. "
        f"Mean regret over {len(targets)} cases without the sets of development and one that holds the rows of one of them: "
        f"{percent_value(float(np.mean([case.regret for case in targets])))} points ({_by_labels(targets)}). "
        f"Above three points: {', '.join(large) or 'none'}. {_against_baselines(cases)}"
    )
    return "\n".join(lines) + "\n\n" + paragraph(sentence)


def _set_name(case: Case) -> str:
    remark = SETS[case.name].remark
    return f"{case.name} ({remark})" if remark else case.name


def _against_baselines(cases: Sequence[Case]) -> str:
    """Where what is recommended is below the best baseline by more than noise, as a complete sentence."""
    below = [
        f"{case.name} with {case.labels} ({case.baseline}: {points_interval(*_ends(case.behind))})"
        for case in cases
        if case.behind.low > 0
    ]
    what = "is what the draws recommend below the baseline that is best in hindsight by more than noise (95% interval over draws)"
    return f"In {len(below) or 'none'} of {len(cases)} cases {what}{': ' * bool(below)}{', '.join(below)}."


def _ends(interval: Interval) -> tuple[float, float, float]:
    return interval.mean, interval.low, interval.high


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
