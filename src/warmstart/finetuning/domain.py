"""Pretraining of a small backbone on the task's own text alone, for a sweep, in which it is a backbone like others.

Krishna et al. 2023, "Downstream Datasets Make Surprisingly Good Pretraining Corpora". It predicts masked tokens; where texts are
long enough to be cropped, it also makes two crops of a text alike (``objectives/contrastive.py``). No label is read, nor a
text like one of validation or test.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.data.domain import TOKENS_OF_CROPS, TOKENS_OF_ROWS
from warmstart.data.files import text_lines
from warmstart.data.pool import Pool
from warmstart.data.pretraining_rows import PretrainingRows, pretraining_batches
from warmstart.data.source import Source
from warmstart.data.token_store import TokenStore, prepare_store
from warmstart.errors import DataError
from warmstart.finetuning.config import OwnBackboneConfig
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.history import DomainRecord, PretrainRecord
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.registry import OBJECTIVES
from warmstart.runs.run import provenance
from warmstart.seeding import seed_torch
from warmstart.system.console import console
from warmstart.system.device import pick_device
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.train import train_tokenizer
from warmstart.training.config import PretrainTrainConfig
from warmstart.training.contrastive import ContrastivePretraining
from warmstart.training.loop import TrainingJob, train

MOST_READINGS = 20
"""passes over the text at most, however short it is"""
ENOUGH_TO_CROP = 32
"""tokens of the median text from which crops are compared: below, two crops have too little in common (docs: adaptation results)"""
COMPARED_TEXTS = 32
"""texts of a step whose crops are compared; of the packed rows of masked pretraining, a step has fewer"""


def pretrain_on_own_text(task: str, text: Pool, config: OwnBackboneConfig, seed: int) -> Bundle:
    """Pretrain a new backbone on ``text`` of a task of this name; the entry of its history says how long it took.

    Raises ``DataError`` if the text is too short for one row.
    """
    started = time.perf_counter()
    console.print(f"Pretraining a backbone on {len(text):,} texts of '{task}', without their labels.")
    shape = {"width": config.width, "depth": config.depth, "heads": config.heads, "feedforward": 4 * config.width}
    settings = BackboneConfig.build(shape | {"max_length": config.max_length}, "own")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "text.ndjson"
        file.write_text("".join(text_lines(text.texts)), encoding="utf-8", newline="\n")
        tokenizer = train_tokenizer(text.texts, TokenizerConfig(vocab_size=config.vocab_size))
        store = prepare_store([Source(path=str(file))], tokenizer, Path(folder))
        objective = ObjectiveConfig(name=_objective(config, store))
        seed_torch(seed, "backbone")
        backbone = Backbone(settings, tokenizer.vocab_size)
        model = Model(backbone, fresh_head(LMHeadConfig(), backbone, seed), causal=False).to(pick_device())
        rows = PretrainingRows(store, tokenizer.vocabulary(), objective, config.max_length)
        if not len(rows):
            raise DataError(
                f"pretraining on the task's own text needs a row of {rows.stride + 1} tokens, but it has {len(store.tokens)}; add "
                "text under 'unlabelled' in the manifest, or remove pool from --backbones"
            )
        compares = OBJECTIVES[objective.name].compares
        tokens = config.tokens or (TOKENS_OF_CROPS if compares else TOKENS_OF_ROWS)
        training = PretrainTrainConfig(tokens=min(tokens, MOST_READINGS * len(store.tokens)))
        if compares:
            training = training.model_copy(update={"batch": COMPARED_TEXTS})
        steps = training.count_steps(len(rows), rows.mean_tokens, epochs=1) or 1
        batches = pretraining_batches(rows, training.batch, 1, seed)
        job = TrainingJob(batches, steps, seed, "pretraining on the task's text")
        if compares:
            contrast = ContrastivePretraining(model, rows)
            job = replace(job, loss=contrast.loss, prepare=contrast.prepare)
        output = train(model, job, training)
    record = PretrainRecord(
        objective=objective.model_copy(update={"mask_rate": objective.effective_mask_rate}),
        settings=training.to_dict(),
        seed=seed,
        corpus=store.digest,
        tokens=output.tokens,
        seconds=round(time.perf_counter() - started, 1),
        domain=DomainRecord(task=task, texts=len(text), left_out=text.left_out),
        provenance=provenance(),
    )
    return Bundle(model.cpu().eval(), tokenizer, history=(record,))


def _objective(config: OwnBackboneConfig, store: TokenStore) -> str:
    """The name of the objective; that of ``auto`` by the length of the median text."""
    if config.objective != "auto":
        return config.objective
    return "contrastive" if np.median(np.diff(store.bounds)) - 1 >= ENOUGH_TO_CROP else "masked"
