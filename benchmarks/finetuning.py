"""Short texts with labels: an epoch of ours against transformers' Trainer at the same size; and heads on frozen features.

The texts are as long as TREC's questions: 13.5 tokens on average, some three times that.
"""

from __future__ import annotations

import copy
import tempfile
import time
from functools import partial
from typing import Any

import numpy as np
import torch
from benchmarks.harness import Step, ratio, show, table, time_in_turn
from benchmarks.training import SMALL, Size

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.data.encode import Encoded
from warmstart.data.task import Split, Task
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.features import FeatureCache
from warmstart.finetuning.finetune import fine_tune
from warmstart.finetuning.inputs import EncodedTask
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.model.model import Model, fresh_head
from warmstart.seeding import rng
from warmstart.training.config import TrainConfig

CLASSES = 6
TEXTS = 1000
BATCH = 16


def lengths_of(count: int) -> np.ndarray:
    """Tokens of each text: a gamma distribution of mean 13.5 whose tail reaches about 40."""
    return np.clip(rng(0, "lengths").gamma(6.0, 13.5 / 6.0, count).round(), 4, 60).astype(int)


def texts(count: int, size: Size) -> tuple[list[np.ndarray], np.ndarray]:
    """Rows of random tokens with random labels."""
    draw = rng(0, "texts")
    return [draw.integers(5, size.vocab, n) for n in lengths_of(count)], draw.integers(0, CLASSES, count)


def splits_of(count: int, size: Size) -> EncodedTask:
    """The rows as a task whose validation and test splits are small, so that training is what is timed."""
    rows, labels = texts(count, size)
    names = tuple(f"class {i}" for i in range(CLASSES))
    whole, few = Split(tuple(map(str, range(count))), labels), Split(tuple(map(str, range(16))), labels[:16])
    train, rest = Encoded(tuple(rows), np.zeros(count, dtype=np.int64)), Encoded(tuple(rows[:16]), np.zeros(16, dtype=np.int64))
    return EncodedTask(Task("short", names, whole, few, few), train, rest, rest, 0)


def ours(size: Size, count: int = TEXTS) -> Step:
    """An epoch of full fine-tuning over so many texts, as ``warmstart adapt`` runs it."""
    config = BackboneConfig(width=size.width, depth=size.depth, heads=size.heads, feedforward=size.inner, max_length=size.length)
    backbone = Backbone(config, size.vocab)
    model = Model(backbone, fresh_head(ClassificationHeadConfig(classes=CLASSES), backbone, 0), causal=False)
    splits = splits_of(count, size)
    settings = FineTuneConfig(train=TrainConfig(epochs=1, batch=BATCH, learning_rate=1e-4))
    return lambda: fine_tune(copy.deepcopy(model), splits, settings, 0, "")


def trainer(size: Size, *, grouped: bool) -> Step:
    """An epoch of transformers' Trainer: batches padded to their longest text, shuffled, or grouped by length."""
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    rows, labels = texts(TEXTS, size)
    config = BertConfig(
        vocab_size=size.vocab, max_position_embeddings=size.length, hidden_size=size.width, num_hidden_layers=size.depth,
        num_attention_heads=size.heads, intermediate_size=size.inner, num_labels=CLASSES,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    data = [{"input_ids": row.tolist(), "labels": int(label)} for row, label in zip(rows, labels, strict=True)]

    def collate(batch: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        wide = max(len(one["input_ids"]) for one in batch)
        ids = torch.zeros(len(batch), wide, dtype=torch.long)
        mask = torch.zeros(len(batch), wide, dtype=torch.long)
        for place, one in enumerate(batch):
            ids[place, : len(one["input_ids"])] = torch.tensor(one["input_ids"])
            mask[place, : len(one["input_ids"])] = 1
        return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([one["labels"] for one in batch])}

    def step() -> None:
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder, num_train_epochs=1, per_device_train_batch_size=BATCH, report_to=[], save_strategy="no",
                disable_tqdm=True, use_cpu=True, logging_strategy="no",
                train_sampling_strategy="group_by_length" if grouped else "random",
            )  # fmt: skip
            Trainer(copy.deepcopy(model), arguments, train_dataset=data, data_collator=collate).train()

    return step


def run(rounds: int = 5) -> str:
    """An epoch, and heads on frozen features."""
    first, *others = time_in_turn(
        {
            "warmstart": partial(ours, SMALL),
            "Trainer, default padding": partial(trainer, SMALL, grouped=False),
            "Trainer, grouped by length": partial(trainer, SMALL, grouped=True),
        },
        rounds,
        warm=1,
    )
    rows = [(first.name, str(first), "1"), *((t.name, str(t), f"{ratio(t, first):.2f}") for t in others)]
    title = f"an epoch over {TEXTS:,} short texts, {int(lengths_of(TEXTS).sum()):,} tokens, batch {BATCH}"
    return "\n\n".join([table((title, "seconds", "times ours"), rows), frozen()])


def frozen(count: int = 5452) -> str:
    """One reading of all texts, then heads: three epochs each."""
    splits = splits_of(count, SMALL)
    config = BackboneConfig(width=SMALL.width, depth=SMALL.depth, heads=SMALL.heads, feedforward=SMALL.inner)
    backbone = Backbone(config, SMALL.vocab)
    rows = []
    shared = FeatureCache()
    for name in ("probe", "scalar-mix", "probe", "scalar-mix", "probe"):
        settings = FineTuneConfig(scheme=name, train=TrainConfig(epochs=3, batch=BATCH, learning_rate=5e-4))
        model = Model(copy.deepcopy(backbone), fresh_head(ClassificationHeadConfig(classes=CLASSES), backbone, 0), causal=False)
        read, started = shared.texts_computed, time.perf_counter()
        fine_tune(model, EncodedTask(splits.task, splits.train, splits.validation, splits.test, 0, shared), settings, len(rows), "")
        rows.append((f"{name}, run {len(rows) + 1}", f"{shared.texts_computed - read:,}", f"{time.perf_counter() - started:.2f}"))
    return table((f"heads over {count:,} texts, 3 epochs", "texts the backbone read", "seconds"), rows)


if __name__ == "__main__":
    show(run)
