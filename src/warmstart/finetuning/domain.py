"""Pretraining of a small backbone on the task's own text alone, for a sweep, in which it is a backbone like others.

Krishna et al. 2023, "Downstream Datasets Make Surprisingly Good Pretraining Corpora". It predicts masked tokens; where texts are
long enough to be cropped, it also makes two crops of a text alike (``objectives/contrastive.py``). A pilot, the first part of the
run, decides whether to go on: of the texts of the label budget that choose, a probe on frozen features must classify more
correctly than the majority label. The test split is never used, and neither is a text like one of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.data.budget import LabelBudget
from warmstart.data.domain import TOKENS_OF_CROPS, TOKENS_OF_ROWS
from warmstart.data.files import text_lines
from warmstart.data.pool import Pool
from warmstart.data.pretraining_rows import PretrainingRows, pretraining_batches
from warmstart.data.source import Source
from warmstart.data.token_store import TokenStore, prepare_store
from warmstart.errors import DataError
from warmstart.finetuning.config import OwnBackboneConfig
from warmstart.finetuning.features import FrozenProbe
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.history import DomainRecord, PretrainRecord
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.registry import OBJECTIVES
from warmstart.runs.run import provenance
from warmstart.seeding import seed_torch
from warmstart.stats.formatting import percent
from warmstart.system.console import console
from warmstart.system.device import pick_device
from warmstart.tasks import TASK_TYPES
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
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


def pretrain_on_own_text(budget: LabelBudget, text: Pool, config: OwnBackboneConfig) -> Bundle:
    """Pretrain a new backbone on ``text``, by the budget's seed; the last entry of its history says how long it took and why.

    Raises ``DataError`` if the text is too short for one row.
    """
    started, seed = time.perf_counter(), budget.seed
    console.print(f"Pretraining a backbone on {len(text):,} texts of '{budget.whole.name}', without their labels.")
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
        pilot = _Pilot(tokenizer, budget, config.pilot, model)
        compares = OBJECTIVES[objective.name].compares
        tokens = config.tokens or (TOKENS_OF_CROPS if compares else TOKENS_OF_ROWS)
        training = PretrainTrainConfig(tokens=min(tokens, MOST_READINGS * len(store.tokens)))
        if compares:
            training = training.model_copy(update={"batch": COMPARED_TEXTS})
        steps = training.count_steps(len(rows), rows.mean_tokens, epochs=1) or 1
        batches = pretraining_batches(rows, training.batch, 1, seed)
        every = training.model_copy(update={"evaluate_every": max(1, math.ceil(config.pilot * steps))})
        job = TrainingJob(batches, steps, seed, "pretraining on the task's text", should_stop=pilot.fails)
        job = replace(job, evaluate=pilot.evaluate if pilot.probe else None)
        if compares:
            contrast = ContrastivePretraining(model, rows)
            job = replace(job, loss=contrast.loss, prepare=contrast.prepare)
        output = train(model, job, every)
    record = PretrainRecord(
        objective=objective.model_copy(update={"mask_rate": objective.effective_mask_rate}),
        settings=training.to_dict(),
        seed=seed,
        corpus=store.digest,
        tokens=output.tokens,
        seconds=round(time.perf_counter() - started, 1),
        domain=DomainRecord(task=budget.whole.name, texts=len(text), left_out=text.left_out, decision=pilot.decision),
        provenance=provenance(),
    )
    return Bundle(model.cpu().eval(), tokenizer, history=(record,))


def _objective(config: OwnBackboneConfig, store: TokenStore) -> str:
    """The name of the objective; that of ``auto`` by the length of the median text."""
    if config.objective != "auto":
        return config.objective
    return "contrastive" if np.median(np.diff(store.bounds)) - 1 >= ENOUGH_TO_CROP else "masked"


class _Pilot:
    """Decides once, at the first evaluation of a run."""

    def __init__(self, tokenizer: Tokenizer, budget: LabelBudget, fraction: float, model: Model) -> None:
        labelled = TASK_TYPES[budget.whole.type].one_label
        self.probe: Callable[[], tuple[float, float]] | None = None
        if fraction and labelled:
            probe = FrozenProbe(tokenizer, budget)
            self.probe = lambda: (float(probe.correct(model).mean()), float(probe.majority_correct().mean()))
        self.fraction = fraction
        self.decision = ""
        self.stops = False

    def evaluate(self) -> dict[str, Any]:
        """The accuracy of the probe and that of the majority label; nothing once it is decided."""
        if self.probe is None or self.decision:
            return {}
        found, majority = self.probe()
        self.stops = found <= majority
        self.decision = (
            f"after {percent(self.fraction, 0)} of it a probe on frozen features classified {percent(found)} of the texts that "
            f"choose correctly, the majority label {percent(majority)}, so it {'stopped there' if self.stops else 'went on'}"
        )
        console.print(f"Pilot: {self.decision}.")
        return {"probe accuracy": found, "majority": majority}

    def fails(self, _progress: float) -> bool:
        """Whether the run stops."""
        return self.stops
