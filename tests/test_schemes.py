"""Every scheme through its whole life, names combined, and what the labels of a budget choose: rate, length, method."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.bundles import SCHEME_CASES as CASES
from helpers.bundles import classifier, finetune_config, language_bundle, make_task
from helpers.models import SENTENCES, make_backbone
from helpers.tasks import cats, poisoned, write_task
from warmstart.adapters.insertion import remove_adapters
from warmstart.adapters.settings import BottleneckConfig, LoraConfig, ScalarMixConfig
from warmstart.data.batches import labelled_batches
from warmstart.data.budget import LabelBudget, label_budget
from warmstart.data.encode import encode
from warmstart.data.task import Split, Task
from warmstart.errors import ConfigError, DivergedError
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.estimate import Estimator
from warmstart.finetuning.finetune import fine_tune, head_config_for, task_model
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.losses import LanguageTask
from warmstart.finetuning.scheme import Scheme, apply_scheme
from warmstart.finetuning.schemes.registry import SCHEMES, SchemeOptions, make_scheme
from warmstart.finetuning.schemes.weights import all_parameters
from warmstart.finetuning.selection import BudgetedRun, SelectionSettings, best_rate, fine_tune_within
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle, save
from warmstart.model.model import Model, fresh_head, swap_head
from warmstart.tasks import TASK_TYPES, task_type_of
from warmstart.tasks.load import load_task
from warmstart.tasks.thresholds import scores_left_out
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.config import TrainConfig
from warmstart.training.loop import TrainingJob, train
from warmstart.types import SelectionName

EVERYTHING = {"full", "upper-half", "lp-ft", "gradual", "discriminative", "lm-loss", "contrast"}
MOVES = {"houlsby": r"\.norm(_1|_2)?\.|\.adapter\.", "lora": r"\.lora_[qv]\.", "scalar-mix": r"\.scalar_mix\."}
"""which weights each scheme may change beside the head's; written by hand, not read from the schemes"""


def moves(names: str, key: str) -> bool:
    chosen = set(names.split("+"))
    small = chosen & (MOVES.keys() - {"scalar-mix"})
    if chosen & EVERYTHING and not small:
        return True
    return key.startswith("head.") or any(re.search(MOVES[name], key) for name in chosen & MOVES.keys())


@pytest.mark.parametrize("names", CASES)
def test_every_scheme_lives_a_whole_life(names: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The loss falls, what should changes, nothing else by a bit, the bundle agrees, undo undoes; windows."""
    model, task = classifier(tokenizer), make_task()
    before = {key: tensor.detach().clone() for key, tensor in model.weights().items()}
    encoded = EncodedTask.of(task, model, tokenizer)
    first = mean_loss(model, encoded)
    done = fine_tune(model, encoded, finetune_config(names), 0, language=LanguageTask.of(language_bundle(tokenizer)))
    assert mean_loss(model, encoded) < first
    after = model.weights()
    for key, tensor in after.items():
        if key in before:
            assert torch.equal(tensor, before[key]) != moves(names, key), key
        else:
            assert moves(names, key), key
            assert bool(tensor.any()), f"{key} began at zero and stayed there, or vanished"
    assert done.trainable == sum(tensor.numel() for key, tensor in after.items() if moves(names, key))
    again = load_bundle(save(Bundle(model, tokenizer, ("a", "b")), tmp_path / "b"))
    ids = torch.tensor([[5, 9, 2]])
    with torch.no_grad():
        assert torch.equal(model(ids), again.model(ids))
    remove_adapters(model)
    assert model.weights().keys() == before.keys()
    reads_long_texts(names, tokenizer)


def reads_long_texts(names: str, tokenizer: Tokenizer) -> None:
    """Texts that are longer than the model reads, in windows."""
    bundle, task = language_bundle(tokenizer), make_task()
    texts = tuple(f"{text} {'I rub it and hold it. ' * 6}" for text in task.train.texts)
    task, config = task.with_train(replace(task.train, texts=texts)), finetune_config(names, windows="mean")
    config = config.model_copy(update={"train": config.train.model_copy(update={"epochs": 1, "batch": 6})})
    model = task_model(bundle, task, config, 0, scratch=False)
    encoded = EncodedTask.of(task, model, tokenizer)
    assert len(encoded.train.rows) > len(encoded.train)
    done = fine_tune(model, encoded, config, 0, "", LanguageTask.of(bundle))
    assert np.isfinite(done.test_predictions).all()


def mean_loss(model: Model, encoded: EncodedTask) -> float:
    labels = encoded.task.train.labels
    with torch.no_grad():
        (batch,) = labelled_batches(encoded.train, labels, (len(labels), 1), 0, encoded.pad_id, causal=model.causal)(0)
        return float(model.eval().loss(batch)) / len(labels)


def test_a_frozen_backbone_can_be_unfrozen(tokenizer: Tokenizer) -> None:
    """After a probe, applying ``full`` trains the backbone."""
    model = classifier(tokenizer)
    apply_scheme(model, make_scheme("probe"))
    before = model.backbone.embedding.weight.detach().clone()
    batches = labelled_batches(encode(tokenizer, SENTENCES, 32), np.array([0, 0, 1, 0]), (4, 1), 0, 0, causal=False)
    train(model, TrainingJob(batches, 3, 0, groups=apply_scheme(model, make_scheme("full")), progress_bar=False), TrainConfig())
    assert not torch.equal(model.backbone.embedding.weight, before)


def test_the_weights_kept_are_those_that_were_scored(tokenizer: Tokenizer) -> None:
    """The validation score of the run is that of its kept weights, and the test split is scored with them."""
    for keep in ("best", "last"):
        task, model = make_task(), classifier(tokenizer)
        config = FineTuneConfig(keep=keep, train=TrainConfig(learning_rate=5e-3, epochs=8, batch=4, precision="float32"))
        done = fine_tune(model, EncodedTask.of(task, model, tokenizer), config, seed=0)
        scores = [score for _, score in done.curve]
        assert done.validation_score == (max(scores) if keep == "best" else scores[-1])
        scored = task_type_of(task).scores(task.test, done.test_predictions, task)
        assert scored.score("accuracy") == done.validation_score  # here validation and test are the same texts
        assert len(scores) == 8


def test_an_epoch_is_a_whole_epoch(tokenizer: Tokenizer) -> None:
    """Four epochs read every text four times, whatever the batch size, and are evaluated four times; a repeat gives the same."""
    task, predictions = make_task(), []
    for batch, accumulate in ((5, 1), (5, 1), (100, 1), (2, 3)):
        model = classifier(tokenizer)
        encoded = EncodedTask.of(task, model, tokenizer)
        config = FineTuneConfig(train=TrainConfig(epochs=4, batch=batch, accumulate=accumulate))
        done = fine_tune(model, encoded, config, seed=3)
        assert done.training.tokens == 4 * sum(len(row) for row in encoded.train.rows)
        assert len(done.curve) == 4
        predictions.append(done.test_predictions)
    assert (predictions[0] == predictions[1]).all()


REFUSED = {
    "full+probe": "full and probe both decide which parameters train; name only one of them",
    "full+lora": "full trains the whole backbone, but lora trains only a part of the backbone; name only one of them",
    "probe+lora": "probe freezes the backbone, but lora trains only a part of the backbone; name only one of them",
    "probe+gradual": "gradual needs at least a part of the backbone to train, but probe freezes the backbone",
    "lm-loss+probe": "lm-loss needs at least a part of the backbone to train, but probe freezes the backbone",
    "contrast+probe": "contrast needs at least a part of the backbone to train, but probe freezes the backbone",
    "gradual+lp-ft": "gradual and lp-ft both decide when parameters are unfrozen; name only one of them",
    "lora+lora": "each scheme can be named only once, but lora is named twice in lora+lora",
    "lora+scalar-mx": "unknown scheme 'scalar-mx'; did you mean 'scalar-mix'?",
    "": "unknown scheme ''",
    "full+": "unknown scheme ''",
}


def test_contradictions_are_refused() -> None:
    """The message names both schemes and says what to do."""
    for names, message in REFUSED.items():
        with pytest.raises(ConfigError) as error:
            make_scheme(names)
        assert message in str(error.value), names


def test_order_does_not_matter_and_every_pair_is_decided() -> None:
    """Of any two names, both orders compose to the same training, or both are refused."""

    def verdict(names: str) -> object:
        try:
            scheme = make_scheme(names)
        except ConfigError:
            return None
        return replace(scheme, adapters=frozenset(scheme.adapters), trains=frozenset(scheme.trains))

    for one, other in itertools.combinations(SCHEMES, 2):
        assert verdict(f"{one}+{other}") == verdict(f"{other}+{one}"), (one, other)


def test_names_that_do_not_say_what_trains() -> None:
    """They are combined with ``full``; ``scalar-mix`` alone with ``probe``."""
    assert make_scheme("gradual") == make_scheme("full+gradual")
    assert make_scheme("scalar-mix") == make_scheme("probe+scalar-mix")
    assert make_scheme("scalar-mix+lm-loss").trains == (all_parameters,)
    assert make_scheme("full") == Scheme(trains=(all_parameters,))
    assert [name for name in SCHEMES if make_scheme(name).keeps_features] == ["probe", "scalar-mix"]


def test_options_reach_their_schemes() -> None:
    """Each option changes the scheme that its help names, and no other."""
    options = SchemeOptions(adapter_width=3, lora_rank=2, lora_targets=("out",), layer_decay=0.5)
    adapters = (BottleneckConfig(width=3), LoraConfig(rank=2, targets=("out",)), ScalarMixConfig())
    assert make_scheme("houlsby+lora+scalar-mix", options).adapters == adapters
    assert make_scheme("discriminative", options) != make_scheme("discriminative")
    assert make_scheme("full", options) == make_scheme("full")


def adapted(**switches: object) -> Model:
    backbone = make_backbone(**switches)
    return Model(backbone, fresh_head(ClassificationHeadConfig(classes=2), backbone, 0), causal=False)


def rate_factors(names: str, progress: float, **options: float) -> dict[str, float]:
    """For one parameter of each level: what its learning rate is multiplied by at some progress of the run."""
    groups = apply_scheme(adapted(), make_scheme(names, SchemeOptions.build(options)))
    rates = {name: group.rate_factor * group.schedule(progress) for group in groups for name in group.parameters}
    watched = {"embedding": "embedding.weight", "0": "blocks.0.norm_1.weight", "1": "blocks.1.norm_1.weight"}
    return {key: rates[f"backbone.{name}"] for key, name in watched.items()} | {"head": rates["head.score.weight"]}


def test_gradual_unfreezing_goes_from_the_top_down() -> None:
    """With two blocks: the head, then one more level each quarter of the run, the embedding last."""
    unfrozen = {0: "head", 0.24: "head", 0.26: "head 1", 0.51: "head 1 0", 0.74: "head 1 0", 0.76: "head 1 0 embedding"}
    for progress, names in unfrozen.items():
        assert {name for name, rate in rate_factors("gradual", progress).items() if rate} == set(names.split()), progress


def test_learning_rates_fall_by_depth() -> None:
    """The head has the highest; each level has a fraction of the one above it."""
    found = rate_factors("discriminative", 0.5, layer_decay=0.5)
    assert found == pytest.approx({"head": 2, "1": 1, "0": 0.5, "embedding": 0.25})
    both = rate_factors("gradual+discriminative", 0.6, layer_decay=0.5)
    assert both == pytest.approx({"head": 2, "1": 1, "0": 0.5, "embedding": 0})


def test_the_probe_comes_first() -> None:
    """At first only the head trains, at a probe's learning rate; then everything, at that of full fine-tuning."""
    probe = make_scheme("probe").rate_factors["head"]
    assert rate_factors("lp-ft", 0.1) == pytest.approx({"head": probe, "1": 0, "0": 0, "embedding": 0})
    assert rate_factors("lp-ft", 0.9) == pytest.approx({"head": 1, "1": 1, "0": 1, "embedding": 1})
    assert rate_factors("lp-ft", 0.19)["1"] == 0 < rate_factors("lp-ft", 0.21)["1"]
    groups = apply_scheme(adapted(), make_scheme("lp-ft+scalar-mix"))
    mix = next(group for group in groups if "backbone.scalar_mix.gamma" in group.parameters)
    assert mix.rate_factor * mix.schedule(0.1) == make_scheme("scalar-mix").rate_factors["scalar-mix"]


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


def test_schemes_of_each_kind_live_a_cross_validated_life(bundle: Bundle, encoded: EncodedTask) -> None:
    """Two rates on folds, a last model on all labels: its length and rate are those that the folds chose."""
    budget = label_budget(encoded.task, 15, "cross-validation", 1)
    train = {"epochs": 2, "batch": 4, "learning_rate": 5e-3, "precision": "float32"}
    for names in ("full", "probe", "gradual", "lora", "contrast"):
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
    settings = [SelectionSettings("none", (1e-1,), choose=choose) for choose in (False, True)]
    plain, chosen = (fine_tune_within(bundle, encoded, budget, SHORT, one) for one in settings)
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
    estimator, rates = Estimator(bundle, encoded, SHORT), (5e-3, 5e-2)

    def seconds(budget: SelectionName, settings: SelectionSettings) -> float:
        return estimator.cost_within("full", label_budget(encoded.task, 20, budget, 0), settings).seconds

    one, two = (seconds("holdout", SelectionSettings("holdout", some)) for some in ((), rates))
    assert two == pytest.approx(2 * one)
    choices = (SelectionSettings("none"), SelectionSettings("none", choose=True), SelectionSettings("cross-validation", rates))
    alone, chosen, searched = (seconds("cross-validation", choice) for choice in choices)
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
