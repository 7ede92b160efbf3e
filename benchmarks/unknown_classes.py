"""Are texts of classes that nobody labelled recognised? Classes are left out; scores of novelty on an encoder's vectors, compared.

The sets of development choose the score that models keep (``model/known.py``); the others only report.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.draws import remembered
from benchmarks.few_label_tasks import SETS, Rows
from benchmarks.harness import table
from benchmarks.table import paragraph
from scipy.special import logsumexp, softmax

from warmstart.interop.load import load_model
from warmstart.model.known import KnownTexts
from warmstart.seeding import rng
from warmstart.stats.formatting import percent_value

LEFT_OUT = {
    "r8": (1, 3), "20newsgroups-train": (1, 7), "banking77": (27,), "trec": (1,), "ag_news": (1,), "20newsgroups": (1, 7)
}  # fmt: skip
"""set -> how many of its classes are left out"""
LABELS_A_CLASS, DRAWS, TEST_TEXTS, WORDS, REFUSED = 10, 5, 500, 40, 0.05
Scores = dict[str, np.ndarray]
"""method -> how unlike known texts each text is"""


def scores_of(rows: np.ndarray, labels: np.ndarray, texts: np.ndarray) -> Scores:
    """For ``texts`` (N, D), with ``rows`` (M, D) and ``labels`` (M,) of texts that learn."""
    from sklearn.covariance import LedoitWolf
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler, normalize

    scaler = StandardScaler().fit(rows)
    model = LogisticRegression(C=0.01, max_iter=1000).fit(scaler.transform(rows), labels)
    sums = model.decision_function(scaler.transform(texts))
    logits = sums if sums.ndim > 1 else np.stack([-sums / 2, sums / 2], axis=1)
    unit, new = normalize(rows), normalize(texts)
    known = KnownTexts.of(rows, labels, np.arange(len(rows)), labels.max() + 1)
    means = known.means / np.bincount(labels)[:, None]
    inverse = LedoitWolf(assume_centered=True).fit(unit - means[labels]).precision_
    distances = [np.einsum("nd,de,ne->n", new - mean, inverse, new - mean) for mean in means]
    return {
        "highest probability": -softmax(logits, axis=1).max(axis=1),
        "energy": -logsumexp(logits, axis=1),
        "cosine to the nearest class mean": -known.cosines(texts),
        "Mahalanobis distance, shrunk covariance": np.min(distances, axis=0),
        "cosine to the nearest text": -(new @ unit.T).max(axis=1),
    }


def one_draw(train: Rows, test: Rows, left_out: int, seed: int, vectors: Callable[..., np.ndarray]) -> dict[str, Any]:
    """Method -> AUROC, the share of texts of classes left out that is found, and, of what models keep, of known ones refused."""
    from sklearn.metrics import roc_auc_score

    chance = rng(seed, "classes left out")
    names = chance.permutation(sorted({label for _, label in train})).tolist()
    known, chosen = names[left_out:], list[tuple[str, str]]()
    for name in known:
        chosen += [row for row in (train[i] for i in chance.permutation(len(train))) if row[1] == name][:LABELS_A_CLASS]
    tests = [test[i] for i in chance.permutation(len(test))[:TEST_TEXTS]]
    labels, new = np.array([known.index(label) for _, label in chosen]), np.array([label not in known for _, label in tests])
    rows, texts = (vectors([_begin(text) for text, _ in part]) for part in (chosen, tests))
    found = {}
    for name, one in scores_of(rows, labels, texts).items():
        found[name] = roc_auc_score(new, one), (one[new] > np.quantile(one[~new], 1 - REFUSED)).mean()
    kept = KnownTexts.of(rows, labels, np.arange(len(rows)), len(known)).typicality(texts) <= REFUSED
    return found | {"kept": (kept[~new].mean(), kept[new].mean())}


def _begin(text: str) -> str:
    return " ".join(text.split()[:WORDS])


def run(runs: Path = Path("runs")) -> str:
    """A row for each set and number of classes left out."""
    vectors, rows, header = remembered(load_model(str(runs / "minilm"))), [], ("set",)
    for name, counts in LEFT_OUT.items():
        train, test = ([row for row in part if row[0]] for part in SETS[name].read())
        for left_out in counts:
            draws = [one_draw(train, test, left_out, seed, vectors) for seed in range(DRAWS)]
            means = {method: np.mean([draw[method] for draw in draws], axis=0) for method in draws[0]}
            refused, found = means.pop("kept")
            header = ("set", *means, "as models keep it: found / known refused")
            classes = len({label for _, label in train})
            about = f"{name}{' (development)' * SETS[name].development}, {left_out} of {classes} left out"
            cells = [f"{percent_value(area)} / {percent_value(share)}" for area, share in means.values()]
            rows.append((about, *cells, f"{percent_value(found)} / {percent_value(refused)}"))
    said = (
        "Area under the ROC curve / of 100 texts of classes left out, those found if 5 of 100 known ones are refused. Last column: "
        f"by the threshold from the texts that learn, each left out once. Mean over {DRAWS} draws of classes, of {LABELS_A_CLASS} "
        f"labels for each other one, and of {TEST_TEXTS} test texts; the first {WORDS} words of each."
    )
    return "\n\n".join([table(header, rows), paragraph(said)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unknown_classes", description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    print(run(parser.parse_args().runs))
