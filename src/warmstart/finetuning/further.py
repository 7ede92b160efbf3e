"""Pretraining, also of a small backbone on the text of a task.

``warmstart pretrain`` makes its models, rows, steps and records here too. No label is read in pretraining, and the text of a task
(``data/pool.py``) has no text like one of validation or test.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig, NewBackboneConfig
from warmstart.corpora.rows import PretrainingRows, pretraining_batches
from warmstart.corpora.store import TokenText
from warmstart.corpora.write import tokenized_text
from warmstart.data.files import text_lines
from warmstart.data.pool import Pool
from warmstart.data.source import Source
from warmstart.errors import DataError
from warmstart.heads.settings import LMHeadConfig, NewLMHeadConfig
from warmstart.model.bundle import Bundle, Language
from warmstart.model.history import DataRecord, Record
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.registry import OBJECTIVES
from warmstart.runs.run import provenance
from warmstart.seeding import seed_torch
from warmstart.system.console import console
from warmstart.system.device import pick_device
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer
from warmstart.training.config import PretrainTrainConfig, TrainConfig
from warmstart.training.contrastive import ContrastivePretraining
from warmstart.training.loop import TrainingJob, TrainOutput, train

MOST_PASSES = 20
"""over the text of a task if no budget is named, however short it is"""


def tokens_to_read(objective: ObjectiveConfig) -> int:
    """Of the text of a task, if nothing else is asked for: crops are shorter than packed rows, and so cost less."""
    return 4_000_000 if OBJECTIVES[objective.name].compares else 2_000_000


def new_language_model(
    config: NewBackboneConfig, head: NewLMHeadConfig, tokenizer: Tokenizer, objective: ObjectiveConfig, seed: int
) -> Model:
    """An untrained backbone with a language head, in the direction of the objective."""
    seed_torch(seed, "backbone")
    backbone = Backbone(BackboneConfig(**dict(config)), tokenizer.vocab_size)
    return Model(backbone, fresh_head(LMHeadConfig(**dict(head)), backbone, seed), causal=OBJECTIVES[objective.name].causal)


def rows_to_read(text: TokenText, tokenizer: Tokenizer, model: Model, objective: ObjectiveConfig, remedy: str) -> PretrainingRows:
    """The rows of a text, as long as the model's context. Raises ``DataError``, which ends with ``remedy``, if there is none."""
    rows = PretrainingRows(text, tokenizer.vocabulary(), objective, model.backbone.config.max_length)
    if not len(rows):
        raise DataError(
            f"the text is too short: one row takes {rows.stride + 1} tokens, but the text has {text.total_tokens}; {remedy}"
        )
    return rows


def pretraining_job(
    model: Model, rows: PretrainingRows, settings: TrainConfig, seed: int, title: str, passes: float = 1
) -> TrainingJob:
    """What trains ``model``, on its device, on ``rows``; over so many ``passes`` if the settings name no budget."""
    batches = pretraining_batches(rows, settings.batch, settings.accumulate, seed)
    job = TrainingJob(batches, settings.count_steps(len(rows), rows.mean_tokens, epochs=passes), seed, title)
    if OBJECTIVES[rows.objective.name].compares:
        contrast = ContrastivePretraining(model, rows)
        job = replace(job, loss=contrast.loss, prepare=contrast.prepare)
    return job


def trained_language(objective: ObjectiveConfig) -> Language:
    """The training of a language head on an objective."""
    stated = objective.model_copy(update={"mask_rate": objective.effective_mask_rate})
    return Language(objective=stated, generates=OBJECTIVES[objective.name].generates(objective))


def pretrain_record(rows: PretrainingRows, settings: TrainConfig, seed: int, output: TrainOutput) -> Record:
    """The entry of the history."""
    return Record(
        command="pretrain",
        settings=settings.to_dict() | {"objective": trained_language(rows.objective).to_dict()["objective"]},
        seed=seed,
        seconds=round(output.seconds, 1),
        data=(DataRecord(name="corpus", sizes={"tokens": output.tokens}, digest=rows.store.digest),),
        provenance=provenance(),
    )


# A small backbone, pretrained on the task's own text alone, for a sweep, in which it is a backbone like others.
#
# Krishna et al. 2023, "Downstream Datasets Make Surprisingly Good Pretraining Corpora". It predicts masked tokens; where texts are
# long enough to be cropped, it also makes two crops of a text alike (``objectives/contrastive.py``).

ENOUGH_TO_CROP = 32
"""tokens of the median text from which crops are compared: below, two crops have too little in common (docs: adaptation results)"""
COMPARED_TEXTS = 32
"""texts of a step whose crops are compared; of the packed rows of masked pretraining, a step has fewer"""
OWN_BACKBONE_SETTINGS = {"width": 128, "depth": 2, "heads": 4, "feedforward": 512, "max_length": 128}
"""the measured shape (docs: adaptation results); ``pretrain --for`` makes any other"""


def pretrain_on_own_text(task: str, text: Pool, seed: int) -> Bundle:
    """Pretrain a new backbone on ``text`` of a task of this name; the entry of its history says how long it took.

    Raises ``DataError`` if the text is too short for one row.
    """
    started = time.perf_counter()
    console.print(f"Pretraining a backbone on {len(text):,} texts of '{task}', without their labels.")
    backbone, tokenizer = NewBackboneConfig.build(OWN_BACKBONE_SETTINGS), train_tokenizer(text.texts, TokenizerConfig())
    remedy = "add text under 'unlabelled' in the manifest, or remove pool from --backbones"
    with TemporaryDirectory() as folder:
        file = Path(folder) / "text.ndjson"
        file.write_text("".join(text_lines(text.texts)), encoding="utf-8", newline="\n")
        store = tokenized_text([Source(path=str(file))], tokenizer, Path(folder))
        crops = np.median(np.diff(store.bounds(0))) - 1 >= ENOUGH_TO_CROP
        objective = ObjectiveConfig(name="contrastive" if crops else "masked")
        model = new_language_model(backbone, NewLMHeadConfig(), tokenizer, objective, seed).to(pick_device())
        rows = rows_to_read(store, tokenizer, model, objective, remedy)
        training = PretrainTrainConfig(tokens=min(tokens_to_read(objective), MOST_PASSES * store.total_tokens))
        if OBJECTIVES[objective.name].compares:
            training = training.model_copy(update={"batch": COMPARED_TEXTS})
        output = train(model, pretraining_job(model, rows, training, seed, "pretraining on the task's text"), training)
    record = pretrain_record(rows, training, seed, output)
    task_text = DataRecord(name=task, sizes={"texts": len(text), "left out": text.left_out})
    changes = {"seconds": round(time.perf_counter() - started, 1), "data": (*record.data, task_text)}
    history, language = (record.model_copy(update=changes),), trained_language(objective)
    return Bundle(model.cpu().eval(), tokenizer, history=history, language=language)
