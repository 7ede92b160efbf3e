"""``student``: one network that keeps a stack. The stack of the first seed teaches it, by its probabilities for texts of the pool.

The network is fine-tuned as a whole from the class means of its encoder on, with the labels of the seed and, beside each batch of
them, as many texts of the pool with the stack's probabilities as targets (Hinton et al. 2015; where the teacher learned from the
same labels, it is self-training: Xie et al. 2020). Its encoder is that of the fine-tuned network that is best on the texts that
choose. There is no student where the stack is not better there than this network.

That is one fit for each race, which reads about as many texts as the network's fits in all folds; before it, each member of the
stack is fitted once more, to label the pool. Predicting the texts that choose out of fold would take a stack for each fold, so a
student has no calibration, and is not among the methods that are compared and chosen: it stands beside the stack, by its test
score. What else was tried: results/performance.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from warmstart.data.budget import LabelBudget
from warmstart.data.pool import NO_POOL, Pool
from warmstart.experiment.config import FEW_LABELS, RaceConfig
from warmstart.experiment.inputs import prepared, trial_budget
from warmstart.experiment.methods import keeps_backbone
from warmstart.experiment.stack import trials_in
from warmstart.experiment.store import SweepContext, result_file
from warmstart.experiment.trial import OWN_BACKBONE, STUDENT, Method, Trial, TrialResult
from warmstart.finetuning.finetune import head_config_for
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.losses import SoftTexts
from warmstart.finetuning.teacher import kept_labels, teachable_texts
from warmstart.model.history import TeacherRecord
from warmstart.model.model import swap_head
from warmstart.stack.stack import Stack
from warmstart.system.console import console
from warmstart.system.storage import sha256
from warmstart.tasks import task_type_of
from warmstart.tasks.predict import raw_predictions

POOL_TEXTS = 1600
"""that the stack labels: as many as 300 steps read three times"""


def no_student(config: RaceConfig, budget: LabelBudget, methods: Sequence[Method]) -> str:
    """Why a race with these labels has no student, whatever its trials bring, as a clause; empty if it may have one."""
    task = budget.whole
    if config.methods:
        return "--methods leaves only the methods that it names"
    if len(budget) >= FEW_LABELS:
        return f"a student needs fewer than {FEW_LABELS} labels, but there are {len(budget):,}"
    if not task.single_label or not all(isinstance(text, str) for text in task.train.texts):
        return f"a student needs one label per text, and texts that are no pairs, but '{task.name}' is another task ({task.type})"
    if OWN_BACKBONE not in config.backbones and not any(map(_may_learn, methods)):
        return "none of its methods fine-tunes an encoder as a whole or in part (--backbones, --schemes)"
    if not len(student_pool(budget, config.pool)):
        return "the stack needs at least as many texts without labels as there are labels, to label them (--pool)"
    return ""


def _may_learn(method: Method) -> bool:
    return method.family == "adapted" and not keeps_backbone(method)


def student_trial(
    stacks: Mapping[Trial, TrialResult], results: Mapping[Trial, TrialResult], context: SweepContext
) -> tuple[Trial, Trial] | None:
    """The student, and the stack of the first seed, its teacher; None if no encoder is fine-tuned, or such a network is as good."""
    networks = dict[Method, dict[int, Trial]]()
    for trial, result in results.items():
        if _may_learn(trial.method) and not (trial.chooses_rate or result.diverged):
            networks.setdefault(trial.method, {})[trial.seed] = trial
    candidates = [found for found in networks.values() if all(stack.seed in found for stack in stacks)]

    def validation(found: Mapping[int, Trial]) -> float:
        return float(np.mean([results[found[stack.seed]].validation for stack in stacks]))

    best = max(candidates, key=validation, default=None) if stacks else None
    if best is None or validation(best) >= np.mean([one.validation for one in stacks.values()]):
        return None
    first = min(stacks, key=lambda one: one.seed)
    members = trials_in(first, stacks[first], [*results])
    fitted = [(result_file(one, context).stem, results[one].learning_rate, results[one].steps) for one in members]
    digest = sha256(json.dumps([fitted, stacks[first].members]).encode())
    return _taught(best[first.seed], digest, results), first


def _taught(network: Trial, teacher: str, results: Mapping[Trial, TrialResult]) -> Trial:
    method = network.method.model_copy(update={"name": STUDENT, "scheme": "full", "teacher": teacher})
    selection = "holdout" if network.selection == "holdout" else "none"
    rates = (results[network].learning_rate,)
    changes = {"method": method, "learning_rates": rates, "selection": selection, "competes": False}
    return network.model_copy(update=changes)


def student_pool(budget: LabelBudget, source: str) -> Pool:
    """The texts that the stack labels; none if there are fewer than labelled ones."""
    found = Pool(()) if source == NO_POOL else teachable_texts(budget, source, most=POOL_TEXTS)
    return found if len(found) >= len(budget) else Pool(())


def with_stack(trial: Trial, fit_stack: Callable[[], Stack], context: SweepContext) -> EncodedTask:
    """The texts of a student, with those of the pool, which the stack labels; it is fitted if its labels are not kept."""
    bundle, _, encoded = prepared(trial, context)
    task, texts = encoded.task, student_pool(trial_budget(trial, context), context.pool).texts

    def predict() -> np.ndarray:
        console.print(f"The members of the stack are fitted once more, to label {len(texts):,} texts.")
        return np.asarray(raw_predictions(fit_stack(), texts))

    probabilities = kept_labels([trial.method.teacher, *texts], (len(texts), len(task.labels)), predict)
    reader = swap_head(bundle.model, head_config_for(task, context.tune), 0)
    rows = task_type_of(task).encode(reader, bundle.tokenizer, texts)
    return replace(encoded, soft=SoftTexts(rows, probabilities, weight=1.0, temperature=1.0))


def stack_record(taught: EncodedTask) -> TeacherRecord:
    """For the history of a student."""
    assert taught.soft
    soft = taught.soft
    return TeacherRecord(
        path="the stack of its race",
        digest="",
        texts=len(soft.encoded),
        weight=soft.weight,
        temperature=soft.temperature,
        learned="these",
    )
