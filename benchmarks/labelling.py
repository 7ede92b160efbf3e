"""Labelling with hidden labels: how many it takes by ways to choose; proofs; wrong labels; how long a person waits.

The pool are up to 5,000 training texts whose labels are shown when they are asked for; accuracy is that of the learner on up to
1,000 test texts. Vectors are those of the imported encoder (``runs/minilm``). What was measured is kept in ``FOLDER`` (default:
runs/labelling), so that the command can be stopped and started again; ``SETS`` and ``DRAWS`` name the rows.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from benchmarks.draws import measured_once
from benchmarks.few_label_tasks import SETS
from benchmarks.harness import show, table

from warmstart.app.accuracy import Outcomes, likely_wrong, running_accuracy
from warmstart.app.choosing import Distances, Mixture, draw_text
from warmstart.app.learner import LEARNER_STRENGTHS, Beliefs, best_strength, fit_beliefs
from warmstart.app.pool import pool_vectors
from warmstart.app.project import Project
from warmstart.app.session import LabelSession
from warmstart.seeding import rng
from warmstart.stats.formatting import percent_value

MIXTURES = {
    "random": Mixture(1.0, 0.0, 0.0),
    "half uncertain": Mixture(0.5, 0.5, 0.0),
    "default": Mixture(),
    "mostly uncertain": Mixture(0.2, 0.8, 0.0),
    "mostly uncertain (BALD)": Mixture(0.2, 0.8, 0.0, information=True),
}
POOL, TEST, MOST = 5000, 1000, 1000
GOALS: Mapping[str, Sequence[float]] = {"trec": (0.7, 0.8, 0.85), "ag_news": (0.8, 0.85, 0.88), "banking77": (0.5, 0.7, 0.8)}
PLANTED = 0.03
Scores = dict[str, float]


@cache
def data(name: str) -> tuple[np.ndarray, np.ndarray, int, list[str]]:
    """(N, D) vectors and (N,) labels of the pool and then of the test texts; the size of the pool, and its texts."""
    folder, runs = Path(os.environ.get("FOLDER", "runs/labelling")), Path(os.environ.get("RUNS", "runs"))
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for number, (rows, most) in enumerate(zip(SETS[name].read(), (POOL, TEST), strict=True)):
        different = [*dict(rows).items()]
        order = rng(0, "labelling", name, number).permutation(len(different))[:most]
        parts.append([different[place] for place in order])
    rows = parts[0] + parts[1]
    names = sorted({label for _, label in rows})
    vectors = pool_vectors([text for text, _ in rows], str(runs / "minilm"), folder)
    return vectors, np.array([names.index(label) for _, label in rows]), len(parts[0]), [text for text, _ in parts[0]]


def fits_at(most: int) -> list[int]:
    """The numbers of labels after which the model is fitted again."""
    found = [10]
    while found[-1] < most:
        found.append(min(most, found[-1] + max(10, found[-1] // 10)))
    return found


def session(name: str, mixture: Mixture, seed: int) -> Scores:
    """One session: the test accuracy after each fit (``labels 120``), and when the accuracy reached was proven."""
    vectors, labels, pool, _ = data(name)
    chance, distances = np.random.default_rng(seed), Distances(vectors)
    beliefs: Beliefs | None = None
    shown = np.zeros(pool, dtype=bool)
    texts, rows, found, strength = list[int](), list[tuple[bool, float, float, float]](), Scores(), LEARNER_STRENGTHS[0]
    for fit_at in fits_at(min(MOST, pool - 1)):
        while len(texts) < fit_at:
            remaining = np.flatnonzero(~shown)
            chosen = draw_text(remaining, beliefs, distances.squared, mixture, chance)
            if beliefs is not None:
                confidence, ratio = beliefs.confidence, 1 / (len(remaining) * chosen.probability)
                right = bool(beliefs.predicted[chosen.text] == labels[chosen.text])
                rows.append((right, float(confidence[chosen.text]), float(confidence[remaining].mean()), ratio))
            shown[chosen.text] = True
            distances.add(chosen.text)
            texts.append(chosen.text)
        learned = np.array(texts)
        if len(texts) >= 50:
            strength = best_strength(vectors, learned, labels[learned], seed)[0]
        beliefs = fit_beliefs(vectors, learned, labels[learned], len(texts), seed, strength)
        if beliefs is not None:
            found[f"labels {fit_at}"] = float((beliefs.predicted[pool:] == labels[pool:]).mean())
    right, confidence, mean_confidence, ratios = (np.array(column) for column in zip(*rows, strict=True))
    running = running_accuracy(Outcomes(right, confidence, mean_confidence, ratios, mixture.random))
    assert running is not None
    return found | {"estimate": running.value, "low": running.low}


def doubts(name: str, seed: int) -> Scores:
    """Among 500 random labels, 3% of them wrong: the share of the wrong ones that is doubted, and of the right ones."""
    vectors, labels, pool, _ = data(name)
    chance = np.random.default_rng(seed)
    texts = chance.permutation(pool)[:500]
    given = labels[texts].copy()
    wrong = chance.permutation(500)[: round(PLANTED * 500)]
    given[wrong] = [chance.choice(np.setdiff1d(labels, [one])) for one in given[wrong]]
    _, classes, probabilities = best_strength(vectors, texts, given, seed)
    doubted = likely_wrong(given, classes, probabilities)
    planted = np.isin(doubted, wrong)
    return {"recall": float(planted.sum() / len(wrong)), "false alarms": float((~planted).sum() / (500 - len(wrong)))}


def waiting(name: str) -> Scores:
    """Milliseconds from an answer to the next text, with everything on disk and fits going on; and seconds of a fit."""
    vectors, labels, pool, texts = data(name)
    names = [f"label {number}" for number in range(labels.max() + 1)]
    times = []
    with tempfile.TemporaryDirectory() as folder:
        project = Project.create(folder, name=name, type="classification", labels=names, texts=texts)
        project.change_settings(target=0.9)
        opened = LabelSession(project, vectors[:pool])
        item = opened.next("Ada")
        for number in range(520):
            assert item is not None
            begun = time.perf_counter()
            opened.answer("Ada", item["draw"], int(labels[item["text_id"]]) + 1, 1.0)
            item = opened.next("Ada")
            times.append(time.perf_counter() - begun)
            if number % 10 == 0:
                opened.status()
            time.sleep(0.05)
        begun = time.perf_counter()
        opened.learner.learn()
        fit = time.perf_counter() - begun
        opened.close()
    late = np.array(times[20:]) * 1000
    return {"median": float(np.median(late)), "p99": float(np.quantile(late, 0.99)), "fit": fit}


def measured(what: str, name: str, draws: int) -> list[Scores]:
    """The scores of each draw; measured once."""
    folder = Path(os.environ.get("FOLDER", "runs/labelling"))
    measure = {"doubts": partial(doubts, name)} | {key: partial(session, name, mixture) for key, mixture in MIXTURES.items()}
    return [measured_once(folder / f"{what}-{name}-{seed}.json", partial(measure[what], seed)) for seed in range(draws)]


def labels_for(scores: Sequence[Scores], goal: float) -> str:
    """Labels after which the accuracy reached a goal and kept it for the next fit, as the median of the sessions."""
    found = []
    for one in scores:
        curve = sorted((int(key.split()[1]), value) for key, value in one.items() if key.startswith("labels "))
        reached = [size for (size, value), (_, later) in pairwise(curve) if min(value, later) >= goal]
        found.append(reached[0] if reached else MOST + 1)
    middle = int(np.median(found))
    return f"{middle:,}" if middle <= MOST else f"over {MOST:,}"


def run() -> str:
    """Three tables: labels by way to choose, labels likely wrong, and waiting."""
    sets, draws = os.environ.get("SETS", "trec ag_news banking77").split(), int(os.environ.get("DRAWS", "5"))
    first = []
    for name in sets:
        for what in MIXTURES:
            scores = measured(what, name, draws)
            last = max(int(key.split()[1]) for key in scores[0] if key.startswith("labels "))
            proven = [f"{percent_value(float(np.mean([one[key] for one in scores])))}" for key in ("estimate", "low")]
            end = percent_value(float(np.mean([one[f"labels {last}"] for one in scores])))
            goals = " / ".join(labels_for(scores, goal) for goal in GOALS[name])
            wanted = " / ".join(percent_value(goal, 0) for goal in GOALS[name])
            first.append((name, what, wanted, goals, end, *proven))
    second = [
        (
            name,
            *(
                percent_value(float(np.mean([one[key] for one in measured("doubts", name, draws)])))
                for key in ("recall", "false alarms")
            ),
        )
        for name in sets
    ]
    folder = Path(os.environ.get("FOLDER", "runs/labelling"))
    waits = {name: measured_once(folder / f"waiting-{name}.json", partial(waiting, name)) for name in sets}
    third = [(name, *(f"{one[key]:.1f}" for key in ("median", "p99", "fit"))) for name, one in waits.items()]
    columns = ("accuracy wanted, %", "labels", f"accuracy after {MOST:,} labels, %", "estimated then, %", "proven then, %")
    return "\n\n".join(
        (
            table(("set", "choice", *columns), first),
            table(("set", "wrong labels found, %", "right labels doubted, %"), second),
            table(("set", "answer to next text, ms, median", "99th percentile", "a fit at 520 labels, s"), third),
        )
    )


if __name__ == "__main__":
    show(run)
