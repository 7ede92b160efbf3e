"""Pretraining, and further pretraining on the text of a task: of a small backbone of its own, or of a pretrained one (``dapt``).

``warmstart pretrain`` makes its models, rows, steps and records here too. No label is read in pretraining, and the text of a task
(``data/pool.py``) has no text like one of validation or test.
"""

from __future__ import annotations

import copy
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.corpora.pieces import DocumentSplit
from warmstart.corpora.rows import PretrainingRows, pretraining_batches
from warmstart.corpora.store import TokenText
from warmstart.corpora.write import tokenized_sides, tokenized_text
from warmstart.data.budget import LabelBudget
from warmstart.data.files import text_lines
from warmstart.data.pool import Pool
from warmstart.data.source import Source
from warmstart.errors import ConfigError, DataError
from warmstart.finetuning.config import OwnBackboneConfig
from warmstart.finetuning.features import FrozenProbe
from warmstart.finetuning.losses import LanguageTask
from warmstart.finetuning.schemes.registry import DaptOptions
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.bundle import Bundle, Language
from warmstart.model.history import CONTINUED_PRETRAINING, DataRecord, Record, ScoreTable
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.registry import OBJECTIVES
from warmstart.runs.run import UNKEPT, Run, provenance
from warmstart.seeding import derive, rng, seed_torch
from warmstart.stats.changes import Change
from warmstart.stats.formatting import percent, percent_value
from warmstart.stats.intervals import standard_error
from warmstart.stats.ratios import ClusteredRatio
from warmstart.system.console import console
from warmstart.system.device import pick_device
from warmstart.tasks import TASK_TYPES
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer
from warmstart.training.config import PretrainTrainConfig, TrainConfig
from warmstart.training.contrastive import ContrastivePretraining
from warmstart.training.held_out import held_out_loss
from warmstart.training.loop import TrainingJob, TrainOutput, train

MOST_PASSES = 20
"""over the text of a task if no budget is named, however short it is"""


def tokens_to_read(objective: ObjectiveConfig) -> int:
    """Of the text of a task, if nothing else is asked for: crops are shorter than packed rows, and so cost less."""
    return 4_000_000 if OBJECTIVES[objective.name].compares else 2_000_000


def new_language_model(
    config: BackboneConfig, head: LMHeadConfig, tokenizer: Tokenizer, objective: ObjectiveConfig, seed: int
) -> Model:
    """An untrained backbone with a language head, in the direction of the objective."""
    seed_torch(seed, "backbone")
    backbone = Backbone(config, tokenizer.vocab_size)
    return Model(backbone, fresh_head(head, backbone, seed), causal=OBJECTIVES[objective.name].causal)


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
REMEDY = "add text under 'unlabelled' in the manifest, or remove"


def pretrain_on_own_text(task: str, text: Pool, config: OwnBackboneConfig, seed: int) -> Bundle:
    """Pretrain a new backbone on ``text`` of a task of this name; the entry of its history says how long it took.

    Raises ``DataError`` if the text is too short for one row.
    """
    started = time.perf_counter()
    console.print(f"Pretraining a backbone on {len(text):,} texts of '{task}', without their labels.")
    shape = {"width": config.width, "depth": config.depth, "heads": config.heads, "feedforward": 4 * config.width}
    backbone = BackboneConfig.build(shape | {"max_length": config.max_length}, "own")
    with TemporaryDirectory() as folder:
        sources, tokenizer = _sources(text, folder), train_tokenizer(text.texts, TokenizerConfig(vocab_size=config.vocab_size))
        store = tokenized_text(sources, tokenizer, Path(folder))
        objective = ObjectiveConfig(name=_objective(config, store))
        model = new_language_model(backbone, LMHeadConfig(), tokenizer, objective, seed).to(pick_device())
        rows = rows_to_read(store, tokenizer, model, objective, f"{REMEDY} pool from --backbones")
        tokens = config.tokens or tokens_to_read(objective)
        training = PretrainTrainConfig(tokens=min(tokens, MOST_PASSES * store.total_tokens))
        if OBJECTIVES[objective.name].compares:
            training = training.model_copy(update={"batch": COMPARED_TEXTS})
        output = train(model, pretraining_job(model, rows, training, seed, "pretraining on the task's text"), training)
    record = pretrain_record(rows, training, seed, output)
    changes = {"seconds": round(time.perf_counter() - started, 1), "data": (*record.data, text_record(task, text))}
    history, language = (record.model_copy(update=changes),), trained_language(objective)
    return Bundle(model.cpu().eval(), tokenizer, history=history, language=language)


def text_record(task: str, text: Pool) -> DataRecord:
    """The record of a task's text, read without its labels."""
    return DataRecord(name=task, sizes={"texts": len(text), "left out": text.left_out})


def _sources(text: Pool, folder: str) -> list[Source]:
    """The texts in a file."""
    file = Path(folder) / "text.ndjson"
    file.write_text("".join(text_lines(text.texts)), encoding="utf-8", newline="\n")
    return [Source(path=str(file))]


def _objective(config: OwnBackboneConfig, store: TokenText) -> str:
    """The name of the objective; that of ``auto`` by the length of the median text."""
    if config.objective != "auto":
        return config.objective
    return "contrastive" if np.median(np.diff(store.bounds(0))) - 1 >= ENOUGH_TO_CROP else "masked"


# Continued pretraining on the task's own text before adaptation (Gururangan et al. 2020), kept only if it helps.
#
# The text is the task's pool (their DAPT) and the training texts without their labels (TAPT); texts that are equal to one of
# validation or test, or nearly the same, are left out and counted. It is read under the objective that trained the model, with its
# language head.
#
# It is judged on a held-out part of the text (the objective's loss) and on the texts of the label budget that choose (a logistic
# regression on frozen features; with cross-validation, one per fold). Both must agree: the loss must fall by at least 1%, and
# beyond noise (the 95% interval of its change, over held-out documents, excludes 0); the probe must not be worse by more than one
# standard error of the paired difference. If it does not help, the weights are again the pretrained ones, to the bit. The test
# split is never used.

HELD_OUT = 0.05
"""fraction of the documents that is held out to measure the loss"""
MIN_GAIN = 0.01
"""fraction by which the held-out loss must fall"""
MIN_TEXTS = 40


def continue_pretraining(bundle: Bundle, budget: LabelBudget, options: DaptOptions, text: Pool, run: Run = UNKEPT) -> Bundle:
    """Continue the pretraining of ``bundle`` on ``text``, by the budget's seed; labels of the budget decide if it helps.

    The training is a step of ``run``. The new bundle, with the old weights if the new ones do not help, has one more entry in its
    history. Raises ``ModelError`` if the model has no language head, ``DataError`` if there is too little text, or too few labels
    for two folds.
    """
    task, seed = budget.whole, budget.seed
    if not TASK_TYPES[task.type].one_label:
        raise ConfigError(f"dapt needs a task with one label per text, but '{task.name}' is a {task.type} task; remove dapt")
    language = LanguageTask.required(bundle)
    if len(text) < MIN_TEXTS:
        raise DataError(f"continued pretraining needs at least {MIN_TEXTS} texts, but has {len(text)}; {REMEDY} dapt")
    left_out = f"{text.left_out:,} like one of validation or test are left out"
    console.print(f"Continuing pretraining on {len(text):,} texts; {left_out}.")
    model = copy.deepcopy(bundle.model).to(pick_device())
    with TemporaryDirectory() as folder:
        training, held_out = _rows(text, bundle, language, folder)
        evaluator = _Evaluator(bundle, budget, held_out)
        before = evaluator.evaluate("before", model, 0.0)
        after = evaluator.evaluate("end", model, _train(model, training, options, seed, run))
    helps, decision = decide(before, after)
    console.print(decision)
    if not helps:
        model.load_state_dict(bundle.model.state_dict())
    record = Record(
        command=CONTINUED_PRETRAINING,
        settings=options.to_dict(),
        seed=seed,
        seconds=after.seconds,
        data=(text_record(task.name, text),),
        tables=(_stages(before, after),),
        notes=(decision,),
    )
    return replace(bundle, model=model.cpu().eval(), history=(*bundle.history, record))


@dataclass(frozen=True)
class StageEvaluation:
    """The model at one stage of continued pretraining."""

    stage: str
    """name of the stage: before, or end"""
    loss: float
    """held-out loss of the objective, in nats"""
    probe_accuracy: float
    """accuracy of a probe on frozen features, on the texts that choose"""
    standard_error: float
    """standard error of the difference between this probe accuracy and that before"""
    seconds: float
    """training time so far"""
    loss_change: tuple[float, float] | None = None
    """ends of the 95% interval of its change since before, over held-out documents; None: unknown"""


def _stages(*evaluations: StageEvaluation) -> ScoreTable:
    """The evaluations as a table."""
    rows = [(e.stage, f"{e.loss:.3f}", percent(e.probe_accuracy), f"{e.seconds:.1f}") for e in evaluations]
    header = ("stage", "held-out loss, nats", "probe on frozen features", "seconds of training")
    return ScoreTable.build({"title": "Stages of continued pretraining", "header": header, "rows": rows}, "stages")


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


def _rows(text: Pool, bundle: Bundle, language: LanguageTask, folder: str) -> tuple[PretrainingRows, PretrainingRows]:
    """The text as pretraining reads it: to train on, and held out."""
    sources, tokenizer = _sources(text, folder), bundle.tokenizer
    training, held_out = tokenized_sides(sources, tokenizer, Path(folder), DocumentSplit(fraction=HELD_OUT))
    assert held_out is not None, "a side without documents is refused"
    rows = rows_to_read(training, tokenizer, bundle.model, language.objective, f"{REMEDY} dapt")
    return rows, replace(rows, store=held_out)


def _train(model: Model, rows: PretrainingRows, options: DaptOptions, seed: int, run: Run) -> float:
    """Train, or read back what was trained. Returns the seconds it took."""
    settings = TrainConfig(epochs=options.dapt_epochs, learning_rate=options.dapt_learning_rate, warmup=0.1, weight_decay=0.01)
    job = pretraining_job(model, rows, settings, derive(seed, "dapt", "end"), "continued pretraining")

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
