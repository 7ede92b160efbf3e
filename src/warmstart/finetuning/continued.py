"""Continued pretraining on the task's own text before adaptation (Gururangan et al. 2020), kept only if it helps.

The text is the task's pool (their DAPT) and the training texts without their labels (TAPT); texts that are equal to one of
validation or test, or nearly the same, are left out and counted. It is read under the objective that trained the model, with its
language head.

It is judged on a held-out part of the text (the objective's loss) and on the texts of the label budget that choose (a logistic
regression on frozen features; with cross-validation, one per fold). Both must agree: the loss must fall by at least 1%, and beyond
noise (the 95% interval of its change, over held-out documents, excludes 0); the probe must not be worse by more than one standard
error of the paired difference. If it does not help, the weights are again the pretrained ones, to the bit. The test split is never
used.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from warmstart.data.budget import LabelBudget
from warmstart.data.files import text_lines
from warmstart.data.pool import Pool, texts_to_read
from warmstart.data.pretraining_rows import PretrainingRows, pretraining_batches
from warmstart.data.source import Source
from warmstart.data.token_store import DocumentSplit, prepare_store
from warmstart.errors import ConfigError, DataError
from warmstart.finetuning.features import FrozenProbe
from warmstart.finetuning.losses import LanguageTask
from warmstart.finetuning.schemes.registry import DaptOptions
from warmstart.model.bundle import Bundle
from warmstart.model.history import ContinuedPretrainingRecord, StageEvaluation
from warmstart.model.model import Model
from warmstart.runs.run import UNKEPT, Run
from warmstart.seeding import derive, rng
from warmstart.stats.changes import Change
from warmstart.stats.formatting import percent, percent_value
from warmstart.stats.intervals import standard_error
from warmstart.stats.ratios import ClusteredRatio
from warmstart.system.console import console
from warmstart.system.device import pick_device
from warmstart.tasks import TASK_TYPES
from warmstart.training.config import TrainConfig
from warmstart.training.held_out import held_out_loss
from warmstart.training.loop import TrainingJob, train

HELD_OUT = 0.05
"""fraction of the documents that is held out to measure the loss"""
MIN_GAIN = 0.01
"""fraction by which the held-out loss must fall"""
MIN_TEXTS = 40


def continue_pretraining(
    bundle: Bundle, budget: LabelBudget, options: DaptOptions, text: Pool | None = None, run: Run = UNKEPT
) -> Bundle:
    """Continue the pretraining of ``bundle`` on ``text``, by the budget's seed; labels of the budget decide if it helps.

    Without ``text`` it reads that of the task, ``texts_to_read``. The training is a step of ``run``. The new bundle, with the old
    weights if the new ones do not help, has one more entry in its history. Raises ``ModelError`` if the model has no language head,
    ``DataError`` if there is too little text, or too few labels for two folds.
    """
    task, seed = budget.whole, budget.seed
    if not TASK_TYPES[task.type].one_label:
        raise ConfigError(f"dapt needs a task with one label per text, but '{task.name}' is a {task.type} task; remove dapt")
    language = LanguageTask.required(bundle)
    text = texts_to_read(budget) if text is None else text
    texts = list(text.texts)
    if len(texts) < MIN_TEXTS:
        raise DataError(
            f"continued pretraining needs at least {MIN_TEXTS} texts, but has {len(texts)}; "
            "add texts under 'unlabelled' in the manifest, or remove dapt"
        )
    left_out = f"{text.left_out:,} like one of validation or test are left out"
    console.print(f"Continuing pretraining on {len(texts):,} texts; {left_out}.")
    model = copy.deepcopy(bundle.model).to(pick_device())
    with TemporaryDirectory() as folder:
        training, held_out = _rows(texts, bundle, language, Path(folder))
        evaluator = _Evaluator(bundle, budget, held_out)
        before = evaluator.evaluate("before", model, 0.0)
        after = evaluator.evaluate("end", model, _train(model, training, options, seed, run))
    helps, decision = decide(before, after)
    console.print(decision)
    if not helps:
        model.load_state_dict(bundle.model.state_dict())
    record = ContinuedPretrainingRecord(
        objective=language.objective,
        generates=bundle.generates,
        task=task.name,
        texts=len(texts),
        left_out=text.left_out,
        evaluations=(before, after),
        kept=helps,
        decision=decision,
        seed=seed,
    )
    return replace(bundle, model=model.cpu().eval(), history=(*bundle.history, record))


def decide(before: StageEvaluation, after: StageEvaluation) -> tuple[bool, str]:
    """Whether continued pretraining helps, and a sentence that says why."""
    low, high = after.loss_change or (math.nan, math.nan)
    over = "the held-out documents" if after.loss_change else "fewer than two held-out documents were scored"
    change = Change(before.loss, after.loss, low, high, over)
    enough = change.sign < 0 and 1 - after.loss / before.loss >= MIN_GAIN
    helps = enough and after.probe_accuracy >= before.probe_accuracy - after.standard_error
    return helps, (
        f"{change.in_nats('The held-out loss')} A probe on frozen features classifies {percent(after.probe_accuracy)} of the "
        f"texts that choose correctly, against {percent(before.probe_accuracy)} before (standard error of the difference: "
        f"{percent_value(after.standard_error)} points). The {'new' if helps else 'pretrained'} weights are kept."
    )


def _rows(texts: list[str], bundle: Bundle, language: LanguageTask, folder: Path) -> tuple[PretrainingRows, PretrainingRows]:
    """The text as pretraining reads it: to train on, and held out."""
    file = folder / "text.ndjson"
    file.write_text("".join(text_lines(texts)), encoding="utf-8", newline="\n")
    sources, tokenizer = [Source(path=str(file))], bundle.tokenizer
    stores = [prepare_store(sources, tokenizer, folder, DocumentSplit(fraction=HELD_OUT, held_out=held)) for held in (False, True)]
    tokens = bundle.model.backbone.config.max_length
    training, held_out = (PretrainingRows(store, tokenizer.vocabulary(), language.objective, tokens) for store in stores)
    if not len(training):
        raise DataError(
            f"continued pretraining needs text for a row of {training.stride + 1} tokens, but has {len(stores[0].tokens)} tokens; "
            "add text under 'unlabelled' in the manifest, or remove dapt"
        )
    return training, held_out


def _train(model: Model, rows: PretrainingRows, options: DaptOptions, seed: int, run: Run) -> float:
    """Train, or read back what was trained. Returns the seconds it took."""
    settings = TrainConfig(epochs=options.dapt_epochs, learning_rate=options.dapt_learning_rate, warmup=0.1, weight_decay=0.01)
    steps = settings.count_steps(len(rows), rows.mean_tokens, epochs=1)
    seed = derive(seed, "dapt", "end")
    job = TrainingJob(pretraining_batches(rows, settings.batch, 1, seed), steps, seed, "continued pretraining")

    def make(step: Run) -> dict[str, Any]:
        return {"seconds": train(model, job, settings, step.place).seconds, "weights": model.weights()}

    done = run.step(job.title, make)
    model.load_state_dict(done["weights"], strict=False)
    return float(done["seconds"])


class _Evaluator:
    """Evaluates a model without changing it: always on the same held-out text, with the same probe."""

    def __init__(self, bundle: Bundle, budget: LabelBudget, held_out: PretrainingRows) -> None:
        self.probe, self.held_out = FrozenProbe(bundle.tokenizer, budget), held_out
        self.first: np.ndarray | None = None
        """whether each text that chooses was classified correctly at the first evaluation"""
        self.first_loss: ClusteredRatio | None = None
        """the held-out loss then"""

    def evaluate(self, stage: str, model: Model, seconds: float) -> StageEvaluation:
        """The loss and the probe at one stage."""
        model.eval()
        loss, correct = held_out_loss(model, self.held_out), self.probe.correct(model)
        self.first = correct if self.first is None else self.first
        self.first_loss = self.first_loss or loss
        change = replace(loss, value=loss.value - self.first_loss.value, sums=loss.sums - self.first_loss.sums)
        low, high = (float(end) for end in change.interval(rng(0, "held-out documents")))
        return StageEvaluation(
            stage=stage,
            loss=float(loss.value),
            loss_change=None if math.isnan(low) else (low, high),
            probe_accuracy=float(correct.mean()),
            standard_error=standard_error(correct - self.first),
            seconds=seconds,
        )
