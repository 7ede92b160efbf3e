"""``student``: one network that keeps a stack. The stack of the first seed teaches it, by its probabilities for texts of the pool.

The network is fine-tuned as a whole from the class means of its encoder on, with the labels of the seed and, beside each batch of
them, as many texts of the pool with the stack's probabilities as targets (Hinton et al. 2015; where the teacher learned from the
same labels, it is self-training: Xie et al. 2020). Its encoder is that of the fine-tuned network that is best on the texts that
choose. There is no student where the stack is not better there than this network.

That is one fit for each race, which reads about as many texts as the network's fits in all folds. Predicting the texts that choose
out of fold would take a stack for each fold, so a student is not among the methods that are compared and chosen: it stands beside
the stack, by its test score. Weights by the stack's confidence and a second round, in which stack and student teach, gain nothing
(results/performance.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from warmstart.data.pool import NO_POOL, Pool
from warmstart.experiment.inputs import prepared, trial_budget
from warmstart.experiment.methods import keeps_backbone
from warmstart.experiment.store import SweepContext, result_file
from warmstart.experiment.trial import STUDENT, Method, Trial, TrialResult
from warmstart.finetuning.finetune import head_config_for
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.teacher import Lesson, Teacher, TeacherConfig, teachable_texts
from warmstart.model.history import TeacherRecord
from warmstart.model.model import swap_head
from warmstart.stack.stack import Stack

POOL_TEXTS = 1600
"""that the stack labels: as many as 300 steps read three times"""


def student_trials(stacks: Mapping[Trial, TrialResult], results: Mapping[Trial, TrialResult]) -> dict[Trial, Trial]:
    """Student -> the stack of the first seed, which teaches it; none if no encoder is fine-tuned, or such a network is as good."""
    networks = dict[Method, dict[int, Trial]]()
    for trial, result in results.items():
        if trial.method.family == "adapted" and not (keeps_backbone(trial.method) or trial.chooses_rate or result.diverged):
            networks.setdefault(trial.method, {})[trial.seed] = trial
    candidates = [found for found in networks.values() if all(stack.seed in found for stack in stacks)]

    def validation(found: Mapping[int, Trial]) -> float:
        return float(np.mean([results[found[stack.seed]].validation for stack in stacks]))

    best = max(candidates, key=validation, default=None) if stacks else None
    if best is None or validation(best) >= np.mean([one.validation for one in stacks.values()]):
        return {}
    first = min(stacks, key=lambda one: one.seed)
    return {_taught(best[first.seed], first, results): first}


def _taught(network: Trial, stack: Trial, results: Mapping[Trial, TrialResult]) -> Trial:
    method = network.method.model_copy(update={"name": STUDENT, "scheme": "full", "teacher": stack.method.backbone_digest})
    selection = "holdout" if network.selection == "holdout" else "none"
    rates = (results[network].learning_rate,)
    changes = {"method": method, "learning_rates": rates, "selection": selection, "competes": False}
    return network.model_copy(update=changes)


def student_pool(trial: Trial, context: SweepContext) -> Pool:
    """The texts that the stack labels; none if there are fewer than labelled ones."""
    budget = trial_budget(trial, context)
    found = Pool(()) if context.pool == NO_POOL else teachable_texts(budget, context.pool, most=POOL_TEXTS)
    return found if len(found) >= len(budget) else Pool(())


def with_stack(trial: Trial, stack_trial: Trial, stack: Stack, context: SweepContext) -> EncodedTask:
    """The texts of a student, with those of the pool, which the stack labels."""
    bundle, _, encoded = prepared(trial, context)
    teacher = Teacher(stack, result_file(stack_trial, context).stem, np.arange(len(stack.labels)))
    lesson = Lesson(teacher, student_pool(trial, context), TeacherConfig())
    reader = swap_head(bundle.model, head_config_for(encoded.task, context.tune), 0)
    return replace(encoded, soft=lesson.soft_texts(reader, bundle.tokenizer, encoded.task))


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
