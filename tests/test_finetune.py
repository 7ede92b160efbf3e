"""Fine-tuning: frozen means frozen, what frozen parts read is computed once, extra losses are the formulas of the papers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.preprocessing import normalize
from sklearn.utils.class_weight import compute_class_weight

from helpers.bundles import bundle_with, classifier, finetune_config, language_bundle, make_task
from helpers.models import SENTENCES, make_backbone
from warmstart.data.batches import labelled_batches
from warmstart.data.budget import label_budget
from warmstart.data.encode import encode
from warmstart.finetuning import features, finetune
from warmstart.finetuning import inputs as lower_states
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.features import FeatureCache, backbone_digest, pooled_layers
from warmstart.finetuning.finetune import FineTuneResult, FineTuning, fine_tune, task_model
from warmstart.finetuning.inputs import EncodedTask, LowerStates, frozen_blocks, set_class_means
from warmstart.finetuning.losses import (
    Contrast,
    ContrastiveLoss,
    LanguageTask,
    class_weights,
    language_batch_loss,
    mean_targets,
    require_language_head,
    task_loss,
    with_language_batches,
)
from warmstart.finetuning.scheme import apply_scheme
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.finetuning.selection import SelectionSettings, fine_tune_within
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.model import Model
from warmstart.objectives.registry import OBJECTIVES
from warmstart.system.array_store import ArrayStore
from warmstart.tasks import task_type_of
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training import loop
from warmstart.training.config import TrainConfig
from warmstart.training.held_out import EarlyStopping
from warmstart.training.loop import TrainingJob
from warmstart.training.optimizers import Optimizer, ParameterGroup
from warmstart.types import IGNORE, Batch

LANGUAGE_HEADS = (LMHeadConfig(), LMHeadConfig(tied=False, bias=True))
TEXTS = ["She holds the cat.", "He rubs the river, and I hold it too!", "Where?", "They rub the dogs: the cats, too."]


def batches_of(tokenizer: Tokenizer, size: tuple[int, int] = (4, 1)) -> Callable[[int], list[Batch]]:
    return labelled_batches(encode(tokenizer, TEXTS, 32), np.array([0, 0, 1, 0]), size, 0, 0, causal=False)


def dropping(tokenizer: Tokenizer, rate: float, **head: object) -> Model:
    """A classifier with dropout."""
    return bundle_with(tokenizer, ClassificationHeadConfig.build({"classes": 2, **head}), dropout=rate).model


def tuned(tokenizer: Tokenizer, model: Model, config: FineTuneConfig) -> FineTuneResult:
    """After a run on the sentences about cats."""
    return fine_tune(model, EncodedTask.of(make_task(), model, tokenizer), config, 0)


def test_cached_features_change_no_result(tokenizer: Tokenizer) -> None:
    """With or without the cache: the same weights and probabilities, though backbone and head have dropout."""
    for names, pooling in (("probe", "mean"), ("scalar-mix", "last"), ("probe", "appended")):
        results = []
        for cache_features in (True, False):
            model = dropping(tokenizer, 0.3, pooling=pooling, dropout=0.2)
            results.append(tuned(tokenizer, model, finetune_config(names, cache_features=cache_features)))
        cached, computed = (run.model.weights() for run in results)
        for name in cached:
            torch.testing.assert_close(cached[name], computed[name], atol=1e-4, rtol=1e-3)
        np.testing.assert_allclose(results[0].test_predictions, results[1].test_predictions, atol=1e-4)
        assert results[0].training.tokens == results[1].training.tokens


def test_frozen_schemes_share_features(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Probe and scalar mix over several seeds read each text once, and later runs find the same bits and seconds in the store."""
    task = make_task()
    different = len({text for split in task.splits().values() for text in split.texts})
    store, model = ArrayStore(tmp_path / "vectors"), classifier(tokenizer)
    encoded = replace(EncodedTask.of(task, model, tokenizer), features=FeatureCache(store))
    for names, seed in [("probe", 0), ("scalar-mix", 0), ("scalar-mix", 1)]:
        fine_tune(classifier(tokenizer), encoded, finetune_config(names), seed)
    assert encoded.features.texts_computed == different
    bundle = bundle_with(tokenizer, LMHeadConfig())
    for selection in ("cross-validation", "holdout", "none"):
        choice = SelectionSettings(selection, (5e-3, 5e-2), choose=True)
        fine_tune_within(bundle, encoded, label_budget(task, 6, selection, 0), finetune_config("probe"), choice)
    assert encoded.features.texts_computed == different, "whatever folds, rates and selections there are"
    first, again = encoded.features.get(model, encoded.train, encoded.pad_id), FeatureCache(store)
    assert again.read_before(model, [encoded.train, encoded.validation, encoded.test], 0).startswith(
        f"{different} of {different} texts"
    )
    assert torch.equal(again.get(model, encoded.train, encoded.pad_id), first)
    assert again.texts_computed == 0
    saved = again.seconds_saved
    again.get(model, encoded.train, encoded.pad_id)
    assert again.seconds_saved == saved > 0, "each text counts once"
    again.begin_count()
    again.get(model, encoded.train, encoded.pad_id)
    assert again.seconds_saved == saved, "and once more for the next method"


def test_what_else_is_read_changes_no_bit_of_a_feature(tokenizer: Tokenizer) -> None:
    """On a CPU, whatever the batch mates, the padding and the number of texts: otherwise the store would change results."""
    model, encoded = classifier(tokenizer), encode(tokenizer, [f"{'dog rubs ' * (i % 9)}cat {i}" for i in range(60)], 32)
    together = pooled_layers(model, encoded, 0)
    for chosen in (np.arange(1), np.arange(7, 9), np.arange(0, 60, 9), np.arange(20, 60)):
        assert torch.equal(pooled_layers(model, encoded.take(chosen), 0), together[chosen]), chosen


def test_a_frozen_backbone_is_neither_copied_nor_hashed_again(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs on a frozen backbone share its weights with the bundle, which keeps them, and keep copies of nothing but the head."""
    bundle, task, hashed = bundle_with(tokenizer, LMHeadConfig()), make_task(), list[str]()
    monkeypatch.setattr(features, "backbone_digest", lambda *given: hashed.append("one") or backbone_digest(*given))
    before = {name: tensor.clone() for name, tensor in bundle.model.state_dict().items()}
    encoded = EncodedTask.of(task, classifier(tokenizer), tokenizer)
    for names, trained in (("probe", 2), ("scalar-mix", 4)):
        config = finetune_config(names)
        model = task_model(bundle, task, config, 0, scratch=False)
        assert model.backbone.embedding.weight.data_ptr() == bundle.model.backbone.embedding.weight.data_ptr(), names
        keeps = EarlyStopping(fine_tune(model, encoded, config, 0).model)
        keeps.update(1, 0.5)
        assert len(keeps.kept_weights) == trained, names
    assert hashed == ["one"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in bundle.model.state_dict().items())
    assert all(one.requires_grad for one in bundle.model.parameters())


def test_a_head_can_start_at_the_class_means(tokenizer: Tokenizer) -> None:
    """The logits of a text are then scaled cosines with the mean directions of the classes, times the text's relative length."""
    for names, hidden in (("full", "none"), ("scalar-mix", "none"), ("full", "tanh")):
        model = dropping(tokenizer, 0.3, dropout=0.2, hidden=hidden)
        apply_scheme(model, make_scheme(names))
        encoded = EncodedTask.of(make_task(), model, tokenizer)
        set_class_means(model, encoded, 0)
        head, labels = model.eval().head, encoded.task.train.labels
        read = list[torch.Tensor]()
        head.score.register_forward_pre_hook(lambda _, given, read=read: read.append(given[0].detach()))
        for one in range(len(labels)):
            task_type_of(encoded.task).predict(model, encoded.train.take(np.array([one])), encoded.pad_id)
        rows = normalize(torch.cat(read).double().numpy())
        means = normalize([rows[labels == one].sum(axis=0) for one in range(2)])
        np.testing.assert_allclose(normalize(head.score.weight.detach().double().numpy()), means, atol=1e-4)
        config = finetune_config(names, head_start="class-means", head_hidden=hidden)
        trained = tuned(tokenizer, dropping(tokenizer, 0.0, hidden=hidden), config.at_learning_rate(1e-12)).model.weights()
        np.testing.assert_allclose(normalize(trained["head.score.weight"].detach().double().numpy()), means, atol=1e-3)


def test_features_belong_to_one_backbone(tokenizer: Tokenizer) -> None:
    """Other weights or another direction have features of their own."""
    model, cache = classifier(tokenizer), FeatureCache()
    encoded = encode(tokenizer, TEXTS, 32)
    one = cache.get(model, encoded, 0)
    model.causal = True
    assert not torch.allclose(cache.get(model, encoded, 0), one)
    model.causal = False
    with torch.no_grad():
        model.backbone.embedding.weight.mul_(2)
    assert not torch.allclose(cache.get(model, encoded, 0), one)
    assert cache.texts_computed == 3 * len(TEXTS)


def test_a_wholly_frozen_backbone_has_no_dropout(tokenizer: Tokenizer) -> None:
    """In training, two forward passes of one batch agree if and only if nothing in the backbone trains."""
    for names in ("probe", "scalar-mix", "lora", "gradual"):
        model = dropping(tokenizer, 0.5)
        groups = apply_scheme(model, make_scheme(names))
        Optimizer(groups, TrainConfig()).unfreeze(0.0)  # gradual unfreezing begins with the head alone
        model.train()
        ids = torch.tensor([[5, 9, 2]])
        assert torch.equal(model(ids), model(ids)) == (names != "lora"), names
        assert model.head.training


def test_no_gradient_is_computed_below_what_trains(tokenizer: Tokenizer) -> None:
    """Under gradual unfreezing with only the upper block unfrozen, the states below it have no gradient."""
    model = classifier(tokenizer)
    groups = apply_scheme(model, make_scheme("gradual"))
    Optimizer(groups, TrainConfig()).unfreeze(0.3)
    states = model.backbone(torch.tensor([[5, 9, 2]]))
    assert [layer.requires_grad for layer in states.hidden_states] == [False, False, True]


def test_only_what_trains_has_optimiser_state(tokenizer: Tokenizer) -> None:
    """Frozen parameters take no further memory: no gradient, no moments."""
    for names in ("probe", "scalar-mix", "lora", "houlsby"):
        model = classifier(tokenizer)
        optimizer = Optimizer(apply_scheme(model, make_scheme(names)), TrainConfig())
        model.loss(batches_of(tokenizer)(0)[0]).backward()
        optimizer.step(1.0)
        trains = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        assert {name.split("|")[0] for name in optimizer.state_tensors()} == trains == set(optimizer.names.values()), names
        assert len(trains) < len(list(model.parameters()))


def test_muon_trains_no_adapters(tokenizer: Tokenizer) -> None:
    """LoRA's matrices are inside the blocks, but AdamW trains them, at the learning rates that were tried."""
    optimizer = Optimizer(apply_scheme(classifier(tokenizer), make_scheme("lora")), TrainConfig(optimizer="muon"))
    assert [type(part).__name__ for part in optimizer.optimizers] == ["AdamW"]
    whole = Optimizer(apply_scheme(classifier(tokenizer), make_scheme("full")), TrainConfig(optimizer="muon"))
    assert [type(part).__name__ for part in whole.optimizers] == ["AdamW", "Muon"]


def test_the_language_loss_falls_and_its_head_is_dropped(tokenizer: Tokenizer) -> None:
    """Under every objective the language-model loss of the texts falls too; the adapted model has no language head."""
    for number, objective in enumerate(OBJECTIVES):
        language = LanguageTask.of(language_bundle(tokenizer, objective, LANGUAGE_HEADS[number % 2]))
        losses = {}
        for names in ("full", "lm-loss"):
            model = classifier(tokenizer)
            model.causal = OBJECTIVES[objective].causal
            encoded = EncodedTask.of(make_task(), model, tokenizer)
            config = finetune_config(names)
            config = config.model_copy(update={"train": config.train.model_copy(update={"epochs": 4})})
            fine_tune(model, encoded, config, 0, language=language)
            assert not any("language" in name for name in model.state_dict())
            language.attach(model)
            batch = language.batch(encoded.train.rows, np.random.default_rng(0), 32, causal=model.causal)
            with torch.no_grad():
                losses[names] = float(language_batch_loss(model.eval(), batch))
        assert losses["lm-loss"] < losses["full"], objective


def test_the_language_loss_is_equation_5(tokenizer: Tokenizer) -> None:
    """The gradient is that of task loss / texts + weight x next-token loss / texts / tokens of a text, also accumulated."""
    language = require_language_head(LanguageTask.of(language_bundle(tokenizer, "causal")))
    gradients = []
    for size in [(4, 1), (1, 4)]:
        model = classifier(tokenizer)
        language.attach(model)
        weight = 0.5 / mean_targets(language, encode(tokenizer, TEXTS, 32).rows, model)
        for batch in with_language_batches(batches_of(tokenizer, size), language, model, 0)(0):
            loss = model.loss(batch) if batch.count else weight * language_batch_loss(model, batch)
            (loss / 4).backward()
        gradients.append(model.backbone.embedding.weight.grad)
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-4)
    model = classifier(tokenizer)
    (batch,) = batches_of(tokenizer)(0)
    targets = torch.where(batch.attention_mask, batch.ids, IGNORE)[:, 1:]
    states = model.backbone(batch.ids, causal=True).last_hidden_state[:, :-1]
    logits = states @ model.backbone.embedding.weight.T
    expected = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORE)
    (model.loss(batch) / 4 + 0.5 * expected).backward()
    torch.testing.assert_close(gradients[0], model.backbone.embedding.weight.grad, atol=1e-5, rtol=1e-4)


def test_class_weights_agree_with_scikit_learn() -> None:
    """Texts / (classes x texts of the class)."""
    labels = np.array([0, 0, 0, 1, 2, 2])
    theirs = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    np.testing.assert_allclose(class_weights(labels, 3).numpy(), theirs, rtol=1e-6)
    assert class_weights([0, 0], 2).tolist() == [0.5, 0.0]


def test_weights_and_smoothing_reach_the_loss(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of the first batch is torch's own with the same weights and smoothing, with and without cached features."""
    seen = []

    def watch(model: Model, job: TrainingJob, config: TrainConfig, folder: None) -> object:
        batch = job.batches(0)[0]
        seen.append((float(job.loss(batch).detach()), model.eval()(batch.ids, batch.attention_mask).detach(), batch))
        return loop.train(model, job, config)

    monkeypatch.setattr(finetune, "train", watch)
    task = make_task()
    skewed = task.with_train(task.train.take(np.array([0, 1, 2, 4])))
    for names in ("full", "probe"):
        model = classifier(tokenizer)
        config = finetune_config(names, class_weights="balanced", label_smoothing=0.2)
        fine_tune(model, EncodedTask.of(skewed, model, tokenizer), config, 0)
        loss, logits, batch = seen.pop(0)
        labels = batch.targets if names == "full" else torch.from_numpy(skewed.train.labels)[batch.targets]
        weights = class_weights(skewed.train.labels, 2)
        expected = torch.nn.functional.cross_entropy(logits, labels, weights, label_smoothing=0.2, reduction="sum")
        assert loss == pytest.approx(float(expected), rel=1e-4), names


def test_few_texts_are_read_for_sixty_steps_at_least(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten epochs of twelve texts are thirty steps of four; a length that is named counts."""
    monkeypatch.setattr(finetune, "MIN_STEPS", 60)
    encoded = EncodedTask.of(make_task(), classifier(tokenizer), tokenizer)
    for config, steps in ((TrainConfig(batch=4), 60), (TrainConfig(batch=1), 120), (TrainConfig(batch=4, epochs=2), 6)):
        assert finetune.run_length(encoded, config, make_scheme("full"))[0] == steps


def test_patience_stops_a_run_that_no_longer_improves(tokenizer: Tokenizer) -> None:
    """With a rate too small to change anything: after an evaluation and the patience, but not before all is unfrozen."""
    tiny = TrainConfig(learning_rate=1e-9, epochs=20, batch=4)
    done = tuned(tokenizer, classifier(tokenizer), FineTuneConfig(patience=2, train=tiny))
    assert (len(done.curve), done.training.steps) == (3, 9)
    done = tuned(tokenizer, classifier(tokenizer), FineTuneConfig(scheme="gradual", patience=2, train=tiny))
    assert 16 <= len(done.curve) <= 17


def test_a_frozen_group_stays_the_same_until_it_is_unfrozen() -> None:
    """While a group's schedule is 0 nothing of it changes, weight decay included; afterwards it trains."""
    weight, other = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2, 2))
    groups = [ParameterGroup({"late": weight}, schedule=lambda progress: float(progress > 0.5)), ParameterGroup({"early": other})]
    optimizer = Optimizer(groups, TrainConfig(weight_decay=0.5))
    for progress, moved in [(0.1, False), (0.9, True)]:
        optimizer.unfreeze(progress)
        (weight * other).sum().backward()
        assert (weight.grad is not None) == moved
        optimizer.step(1.0, progress)
        assert (not torch.equal(weight, torch.ones(2, 2))) == moved


# -------------------------------------------------------------------------------------------- what frozen blocks read once


DEEP: list[dict[str, Any]] = [
    {"depth": 5, "dropout": 0.3},
    {"depth": 4, "norm": "post", "positions": "learned", "embedding_norm": True, "token_types": 2},
    {"depth": 4, "window": 1, "global_every": 2, "window_rotary_base": 500.0},
    {"depth": 4, "norm_type": "rms", "activation": "swiglu", "bias": False, "kv_heads": 1, "qk_norm": True},
]
"""backbones of which the lower half stays frozen"""


def prepared(tokenizer: Tokenizer, names: str = "contrast", **switches: Any) -> tuple[Model, EncodedTask]:
    """A model as a run of this scheme begins with it, and the task as it reads it."""
    task, config = make_task(), finetune_config(names)
    bundle = language_bundle(tokenizer, **switches)
    model = task_model(bundle, task, config, 0, scratch=False)
    encoded = EncodedTask.of(task, model, tokenizer)
    FineTuning(encoded, config, 0, "", LanguageTask.of(bundle)).prepare(model)
    return model.train(), encoded


@pytest.mark.parametrize("switches", DEEP)
def test_blocks_go_on_from_states(switches: dict[str, Any]) -> None:
    """From what any block read, the others end where all blocks end; a part of the blocks gives a part of the states."""
    backbone, ids = make_backbone(**switches), torch.randint(21, 60, (3, 7), generator=torch.Generator().manual_seed(0))
    batch = Batch(ids, attention_mask=torch.arange(7) < torch.tensor([7, 4, 2])[:, None], causal=False)
    whole = backbone.forward_batch(batch)
    for block in range(switches["depth"] + 1):
        lower = backbone.forward_part(batch, range(block))
        assert len(lower.hidden_states) == block + 1
        torch.testing.assert_close(lower.hidden_states, whole.hidden_states[: block + 1], atol=0, rtol=0)
        upper = backbone.forward_batch(replace(batch, states=lower.hidden_states[-1], from_block=block))
        torch.testing.assert_close(upper.last_hidden_state, whole.last_hidden_state, atol=0, rtol=0)


def test_only_the_last_half_of_the_blocks_trains(tokenizer: Tokenizer) -> None:
    """Of five blocks three, of three blocks all, at the same low rate; the count is what changed."""
    for depth, frozen in ((5, 2), (4, 2), (3, 0)):
        bundle, task, config = language_bundle(tokenizer, depth=depth), make_task(), finetune_config("contrast")
        model = task_model(bundle, task, config, 0, scratch=False)
        before = {name: one.detach().clone() for name, one in model.weights().items()}
        done = fine_tune(model, EncodedTask.of(task, model, tokenizer), config, 0, "")
        changed = {name for name, one in done.model.weights().items() if not one.equal(before[name])}
        below = ("backbone.embedding.", *(f"backbone.blocks.{number}." for number in range(frozen)))
        assert changed == {name for name in before if not frozen or not name.startswith(below)}
        assert done.trainable == sum(before[name].numel() for name in changed)
        *groups, head = apply_scheme(model, make_scheme("contrast"))
        assert ({group.rate_factor for group in groups}, head.rate_factor) == ({0.25}, 50.0)


@pytest.mark.parametrize("switches", DEEP)
def test_kept_states_give_the_same_loss_and_gradients(switches: dict[str, Any], tokenizer: Tokenizer) -> None:
    """Of a batch of texts of different lengths, padded to its own longest, in one batch and in several."""
    model, encoded = prepared(tokenizer, **switches)
    kept = encoded.with_lower_states(model)
    for size in ((5, 1), (3, 2)):
        found = []
        for one in (encoded, kept):
            loss = ContrastiveLoss(model, Contrast(1.0, 0.1), task_loss(None, 0.0))
            batches = labelled_batches(one.train, one.task.train.labels, size, 0, one.pad_id, causal=False)(0)
            assert [batch.states is not None for batch in batches] == [one is kept] * len(batches)
            model.zero_grad()
            total = sum(loss.loss(batch) for batch in loss.prepare(batches))
            assert isinstance(total, torch.Tensor)
            total.backward()
            found.append((total.detach(), [p.grad for p in model.parameters()]))
            assert all((p.grad is not None) == p.requires_grad for p in model.parameters())
        torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-4)


def run(tokenizer: Tokenizer, names: str, limit: int, **changes: Any) -> tuple[FineTuneResult, EncodedTask]:
    """A run that keeps states up to a limit."""
    task, config, bundle = make_task(), finetune_config(names, **changes), language_bundle(tokenizer, depth=4, dropout=0.3)
    if changes:
        texts = tuple(f"{text} {'I rub it and hold it. ' * 4}" for text in task.train.texts)
        task = task.with_train(replace(task.train, texts=texts))
    model = task_model(bundle, task, config, 0, scratch=False)
    encoded = replace(EncodedTask.of(task, model, tokenizer), lower=LowerStates(limit))
    return fine_tune(model, encoded, config, 0, "", LanguageTask.of(bundle)), encoded


CASES = {
    "contrast": 2, "contrast+discriminative": 2, "contrast+lm-loss": 2, "contrast+lp-ft": 2, "contrast+gradual": 2,
    "contrast+lora": 0, "contrast+scalar-mix": 0, "contrast+full": 0,
}  # fmt: skip
"""schemes, and how many blocks of four have read each text before"""


@pytest.mark.parametrize("names", CASES)
def test_a_run_ends_the_same_without_room(names: str, tokenizer: Tokenizer) -> None:
    """With every scheme that contrast goes with; only where the lower blocks are frozen is anything kept."""
    (kept, encoded), (computed, without) = (run(tokenizer, names, limit) for limit in (2**20, 0))
    np.testing.assert_allclose(kept.test_predictions, computed.test_predictions, atol=1e-4)
    np.testing.assert_allclose(kept.validation_predictions, computed.validation_predictions, atol=1e-4)
    assert (kept.trainable, kept.training.tokens) == (computed.trainable, computed.training.tokens)
    different = len(set(encoded.task.train.texts))
    assert (encoded.lower.texts_computed, without.lower.texts_computed) == (different if CASES[names] else 0, 0)
    assert frozen_blocks(prepared(tokenizer, names, depth=4)[0]) == CASES[names]


def test_windows_of_a_text_are_kept_too(tokenizer: Tokenizer) -> None:
    """Each window is a row with states of its own."""
    (kept, encoded), (computed, _) = (run(tokenizer, "contrast", limit, windows="mean") for limit in (2**20, 0))
    assert encoded.lower.texts_computed > len(encoded.train)
    np.testing.assert_allclose(kept.test_predictions, computed.test_predictions, atol=1e-4)


def test_texts_are_read_once_for_all_runs_on_a_backbone(tokenizer: Tokenizer) -> None:
    """Folds, the last fit and another seed compute nothing again; other lower weights do, upper ones do not."""
    model, encoded = prepared(tokenizer, depth=4)
    for learn in (np.arange(8), np.arange(4, 12), np.arange(12)):
        part = replace(encoded, train=encoded.train.take(learn)).with_lower_states(model)
        assert [tuple(states.shape) for states in part.train.states] == [(len(row), 16) for row in part.train.rows]
    assert encoded.lower.texts_computed == 12
    with torch.no_grad():
        model.backbone.blocks[2].norm_1.bias.add_(1)
    encoded.with_lower_states(model)
    assert encoded.lower.texts_computed == 12
    with torch.no_grad():
        model.backbone.blocks[1].norm_1.bias.add_(1)
    found = encoded.with_lower_states(model)
    assert encoded.lower.texts_computed == 24
    expected = model.backbone.forward_batch(encoded.train.batch(np.array([3]), None, 0, causal=False)).hidden_states[2]
    torch.testing.assert_close(found.train.states[3], expected[0], atol=1e-5, rtol=1e-5)


def test_memory_is_bounded(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts that learn come first; those for which there is no room are read at every step; old ones give way."""
    model, encoded = prepared(tokenizer, depth=4)
    texts = encode(tokenizer, SENTENCES, 32)
    sizes = [4 * 16 * sum(map(len, one.rows)) for one in (encoded.train, texts)]
    both, shorter = sum(sizes), sizes[1] < sizes[0]
    for limit, expected in ((both, [True, True]), (both - 1, [True, False]), (sizes[0] - 1, [False, shorter])):
        kept = LowerStates(limit)
        found = kept.added(model, (encoded.train, texts), encoded.pad_id)
        assert [bool(one.states) for one in found] == expected
    kept = LowerStates(max(sizes))
    for number, split in enumerate((texts, encoded.train, encoded.train, texts)):
        (found_now,) = kept.added(model, (split,), encoded.pad_id)
        assert found_now.states
        assert sum(4 * one.numel() for one in kept._known.values()) <= kept.limit, number
    assert kept.texts_computed == 2 * len(texts) + len(encoded.train)
    monkeypatch.setattr(lower_states, "row_keys", pytest.fail)
    assert LowerStates(0).added(model, (texts,), encoded.pad_id) == [texts]
