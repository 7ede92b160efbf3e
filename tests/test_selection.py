"""Fine-tuning within a label budget: labels of the budget choose everything, and no other text is looked at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.bundles import finetune_config, language_bundle
from helpers.tasks import cats, poisoned, write_task
from warmstart.data.budget import LabelBudget, SelectionName, label_budget
from warmstart.data.task import Split, Task
from warmstart.errors import DivergedError
from warmstart.experiment.estimate import Estimator
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.finetune import fine_tune, head_config_for, task_model
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.schemes import SCHEMES
from warmstart.finetuning.selection import BudgetedRun, SelectionSettings, best_rate, fine_tune_within
from warmstart.model.bundle import Bundle
from warmstart.model.model import swap_head
from warmstart.tasks import TASK_TYPES, task_type_of
from warmstart.tasks.load import load_task
from warmstart.tasks.thresholds import scores_left_out
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.config import TrainConfig

SELECTIONS: list[SelectionName] = ["cross-validation", "holdout", "none"]
SHORT = FineTuneConfig(scheme="probe", train=TrainConfig(learning_rate=5e-3, epochs=3, batch=4, precision="float32"))


def encode_task(task: Task, bundle: Bundle) -> EncodedTask:
    return EncodedTask.of(task, swap_head(bundle.model, head_config_for(task, SHORT), 0), bundle.tokenizer)


@pytest.fixture(scope="module")
def bundle(tokenizer: Tokenizer) -> Bundle:
    return language_bundle(tokenizer)


@pytest.fixture(scope="module")
def encoded(bundle: Bundle) -> EncodedTask:
    return encode_task(cats(), bundle)


def test_every_scheme_lives_a_cross_validated_life(bundle: Bundle, encoded: EncodedTask) -> None:
    """Two rates on folds, a last model on all labels: its length and rate are those that the folds chose."""
    budget = label_budget(encoded.task, 15, "cross-validation", 1)
    train = {"epochs": 2, "batch": 4, "learning_rate": 5e-3, "precision": "float32"}
    for names in SCHEMES:
        config = finetune_config(names, keep="best", train=train)
        run = fine_tune_within(bundle, encoded, budget, config, SelectionSettings("cross-validation", (5e-3, 5e-4)))
        assert run.tried.keys() == {5e-3, 5e-4}, names
        assert run.learning_rate == best_rate(run.tried, 5e-3), names
        assert run.choosing.shape == (len(budget.choosing), 2), names
        score = task_type_of(budget.task).scores(budget.choosing, run.choosing, budget.task).score("accuracy")
        assert score == run.validation_score == run.tried[run.learning_rate], names
        assert 1 <= run.final.training.steps <= 8, names
        assert run.epochs == run.final.training.steps / 4, names
        assert (len(run.curve), len(run.final.test_predictions)) == (2, len(encoded.test)), names
        assert run.final.validation_predictions is None, names
        assert np.isnan(run.final.validation_score), names


def test_every_task_type_is_chosen_for(bundle: Bundle, tmp_path: Path) -> None:
    """Whatever its predictions are, those for the texts that choose have the score that is reported."""
    config = SHORT.model_copy(update={"scheme": "full", "train": SHORT.train.model_copy(update={"epochs": 1.0})})
    for number, name in enumerate(TASK_TYPES):
        task, selection = load_task(write_task(tmp_path / name, name)), SELECTIONS[number % 3]
        encoded = EncodedTask.of(task, swap_head(bundle.model, head_config_for(task, config), 0), bundle.tokenizer)
        budget = label_budget(task, 24, selection, 0)
        run = fine_tune_within(bundle, encoded, budget, config, SelectionSettings(selection, choose=True))
        assert len(run.choosing) == len(budget.choosing), name
        score = scores_left_out(task, budget.choosing, run.choosing).score(task.metric)
        assert score == pytest.approx(run.validation_score), name
        assert len(run.final.test_predictions) == len(task.test), name


def same(one: BudgetedRun, other: BudgetedRun) -> None:
    assert (one.learning_rate, one.tried, one.curve) == (other.learning_rate, other.tried, other.curve)
    assert (one.choosing is None) == (other.choosing is None)
    if one.choosing is not None:
        np.testing.assert_array_equal(one.choosing, other.choosing)
    np.testing.assert_array_equal(one.final.test_predictions, other.final.test_predictions)
    before, after = one.final.model.weights(), other.final.model.weights()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


@pytest.mark.parametrize(
    ("selection", "type_name"), [("cross-validation", "classification"), ("holdout", "regression"), ("none", "classification")]
)
def test_labels_outside_the_budget_change_nothing(selection: SelectionName, type_name: str, bundle: Bundle) -> None:
    """All other labels replaced, those of the test split too: the same choice, predictions and weights, to the bit."""
    task = cats()
    if type_name == "regression":
        splits = {name: replace(split, labels=split.labels + 0.5) for name, split in task.splits().items()}
        task = replace(task, labels=(), metric="pearson", type="regression", **splits)
    drawn = label_budget(cats(), 20, selection, 0)
    runs = []
    for one in (task, poisoned(task, drawn.train, drawn.validation)):
        choice = SelectionSettings(selection, (5e-3, 5e-2), choose=True)
        config = SHORT.model_copy(update={"scheme": "full"})
        budget = LabelBudget(one, drawn.train, drawn.validation, 0)
        runs.append(fine_tune_within(bundle, encode_task(one, bundle), budget, config, choice))
    same(*runs)


def test_holdout_on_all_labels_is_a_plain_run(bundle: Bundle, encoded: EncodedTask) -> None:
    """One rate, the task's own splits: to the bit what ``fine_tune`` does."""
    budget = label_budget(encoded.task, None, "holdout", 3)
    run = fine_tune_within(bundle, encoded, budget, SHORT)
    plain = fine_tune(task_model(bundle, encoded.task, SHORT, 3, scratch=False), encoded, SHORT, 3, "")
    assert run.validation_score == plain.validation_score
    assert run.curve == plain.curve
    np.testing.assert_array_equal(run.final.test_predictions, plain.test_predictions)
    np.testing.assert_array_equal(run.choosing, plain.validation_predictions)


def test_without_selection_nothing_is_evaluated(bundle: Bundle, encoded: EncodedTask) -> None:
    """One run with the settings as they are; predictions out of fold only if a method is chosen by them."""
    budget = label_budget(encoded.task, 20, "none", 0)
    plain, chosen = (
        fine_tune_within(bundle, encoded, budget, SHORT, SelectionSettings("none", (1e-1,), choose=choose))
        for choose in (False, True)
    )
    assert (plain.choosing, plain.tried, plain.curve, plain.learning_rate) == (None, {}, (), 5e-3)
    assert np.isnan(plain.validation_score)
    assert chosen.tried.keys() == {5e-3}
    assert len(chosen.choosing) == len(budget.choosing)
    assert plain.epochs == chosen.epochs == 3
    np.testing.assert_array_equal(plain.final.test_predictions, chosen.final.test_predictions)


def test_the_folds_choose_the_length_of_the_last_run(bundle: Bundle, encoded: EncodedTask) -> None:
    """The last run is as long as was best in the folds on average; with ``keep="last"`` it is whole, and only its end is scored."""
    budget = label_budget(encoded.task, 20, "cross-validation", 0)
    config = SHORT.model_copy(update={"train": SHORT.train.model_copy(update={"epochs": 6.0})})
    run = fine_tune_within(bundle, encoded, budget, config, SelectionSettings("cross-validation"))
    assert len(run.curve) == 6
    assert run.final.training.steps == round(5 * run.epochs)
    whole = config.model_copy(update={"keep": "last"})
    last = fine_tune_within(bundle, encoded, budget, whole, SelectionSettings("cross-validation"))
    assert (last.epochs, len(last.curve), last.validation_score) == (6, 1, run.validation_score)


def test_muon_is_scaled_with_the_learning_rate() -> None:
    """Its rate stays in proportion; without Muon it stays as it is."""
    muon = FineTuneConfig(train=TrainConfig(learning_rate=1e-3, optimizer="muon", muon_learning_rate=0.02))
    assert muon.at_learning_rate(5e-4).train.muon_learning_rate == pytest.approx(0.01)
    assert SHORT.at_learning_rate(5e-4).train.muon_learning_rate == SHORT.train.muon_learning_rate


def test_of_equal_rates_the_nearest_to_the_default_is_chosen() -> None:
    assert best_rate({1e-3: 0.5, 4e-4: 0.7, 1e-4: 0.7}, 5e-4) == 4e-4


@pytest.mark.parametrize("selection", ["cross-validation", "holdout"])
def test_a_rate_that_diverges_is_left_out(selection: SelectionName, bundle: Bundle, encoded: EncodedTask) -> None:
    """It is named; if every rate diverges, that is an error."""
    budget = label_budget(encoded.task, 20, selection, 0)
    config = SHORT.model_copy(update={"scheme": "full", "train": SHORT.train.model_copy(update={"clip": 0.0})})
    run = fine_tune_within(bundle, encoded, budget, config, SelectionSettings(selection, (1e30, 5e-3)))
    assert (run.diverged, run.learning_rate, [*run.tried]) == ((1e30,), 5e-3, [5e-3])
    with pytest.raises(DivergedError, match=r"diverged at 1e\+30, 1e\+31; try lower"):
        fine_tune_within(bundle, encoded, budget, config, SelectionSettings(selection, (1e30, 1e31)))
    with pytest.raises(DivergedError, match="lower the learning rate"):
        fine_tune_within(bundle, encoded, budget, config, SelectionSettings(selection, (1e30,)))


def test_the_estimate_counts_every_model(bundle: Bundle, encoded: EncodedTask) -> None:
    """Five folds at two rates cost more than one model, and a holdout at two rates twice as much."""
    estimator = Estimator(bundle, encoded, SHORT)
    rates = (5e-3, 5e-2)
    held_out = label_budget(encoded.task, 20, "holdout", 0)
    one, two = (estimator.cost_within("full", held_out, SelectionSettings("holdout", some)).seconds for some in ((), rates))
    assert two == pytest.approx(2 * one)
    folds = label_budget(encoded.task, 20, "cross-validation", 0)
    alone, chosen, searched = (
        estimator.cost_within("full", folds, choice).seconds
        for choice in (
            SelectionSettings("none"),
            SelectionSettings("none", choose=True),
            SelectionSettings("cross-validation", rates),
        )
    )
    assert searched - alone == pytest.approx(2 * (chosen - alone))
    assert chosen > alone


@pytest.mark.proofs
def test_out_of_fold_scores_are_unbiased(bundle: Bundle) -> None:
    """Simulated: where labels are random, the out-of-fold accuracy of many draws is one half on average, as on test texts."""
    task, draw, difference = cats(), np.random.default_rng(0), []
    large = replace(task.train, texts=tuple(text for seed in range(1, 9) for text in cats(seed).train.texts))
    large = Split(large.texts, np.arange(len(large.texts)) % 2)
    encoded = encode_task(replace(task, train=large, test=large), bundle)
    config = SHORT.model_copy(update={"train": SHORT.train.model_copy(update={"epochs": 3.0, "learning_rate": 5e-2})})
    for seed in range(60):
        noise = replace(encoded, task=replace(encoded.task, train=replace(large, labels=draw.permutation(large.labels))))
        budget = label_budget(noise.task, 40, "cross-validation", seed)
        run = fine_tune_within(bundle, noise, budget, config, SelectionSettings("cross-validation"))
        difference.append(run.validation_score - 0.5)
        assert max(score for _, score in run.curve) >= run.curve[-1][1]
    assert abs(np.mean(difference)) < 3 * np.std(difference) / np.sqrt(len(difference))
