"""Objectives at equal processor time, judged by probes, minimal pairs and adaptation with few labels.

All models read the training texts of the sets of development (few_label_tasks.py) and tweets, without labels. Then each is
fine-tuned, and a logistic regression learns from its frozen vectors, on the same draws of labels of each set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from benchmarks.harness import table
from benchmarks.render import printed
from benchmarks.table import Table, paragraph

from warmstart.stats.formatting import percent, percent_interval
from warmstart.stats.intervals import t_interval

OBJECTIVES = ("causal", "masked", "hybrid", "detect")
SETS = ("r8", "emotion", "20newsgroups-train", "imdb-train")
JUDGES = {"fine-tuned": "full", "frozen vectors": "frozen vectors + logistic regression"}
"""what is compared -> its method in a race"""
SEEDS, DRAWS = 3, 1


def objectives_table(cases: Sequence[tuple[str, int]], page: str, minutes: float) -> Table:
    """The study, and a race for each (set, labels)."""
    text = " ".join(f"runs/tasks/{name}/train.ndjson" for name in SETS)
    study = (
        f"warmstart study objectives {text} $WARMSTART_DATA/tweeteval/unlabeled_tweets.txt.xz --document line "
        f"--objectives {' '.join(OBJECTIVES)} --equal time --tokens 600000 --seeds {SEEDS} --tokenizer.vocab-size 8192 "
        "--tasks $WARMSTART_DATA/ud_probing/ --pairs $WARMSTART_DATA/blimp/ --limit 20 --out runs/tables/objectives"
    )
    models = " ".join(f"runs/tables/objectives/models/{name}-{seed}/bundle" for name in OBJECTIVES for seed in range(SEEDS))
    races = [
        f"warmstart race runs/tasks/{name}/task.yaml --backbones {models} --labels {labels} --seeds {DRAWS} --schemes full "
        f"--no-scratch --selection none --drop-leaks --out runs/tables/objectives-{labels}/{name}"
        for name, labels in cases
    ]
    return Table("objectives", (page,), (study, *races), judged, minutes=minutes, shown=2)


def judged(results: Sequence[dict[str, Any]]) -> str:
    """The study's table, and the accuracy after adaptation: a row for each judge, set and number of labels."""
    study, *races = results
    rows, means = [], {name: np.zeros((len(OBJECTIVES), SEEDS)) for name in JUDGES}
    for judge, method in JUDGES.items():
        for race in races:
            scores = {row["method"]: row["scores"] for row in race["methods"]}
            models = np.array([[np.mean(scores[f"{method} · {name}-{seed}"]) for seed in range(SEEDS)] for name in OBJECTIVES])
            means[judge] += models / len(races)
            rows.append((f"{race['task']['name']}, {race['labels']} labels", judge, *map(percent, models.mean(axis=1))))
        ends = [t_interval(values.tolist()) for values in means[judge]]
        rows.append(("**mean**", judge, *(percent_interval(one.mean, one.low, one.high) for one in ends)))
    said = (
        f"Accuracy on test texts, mean over {SEEDS} models of each objective, with {DRAWS} draw of labels, all that anything "
        f"looked at; the intervals of the means are over the {SEEDS} models. All sets are sets of development."
    )
    return "\n\n".join([printed([study]), table(("", "judge", *OBJECTIVES), rows), paragraph(said)])
