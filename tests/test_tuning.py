"""Fine-tuning under every scheme: frozen means frozen, features are read once, extra losses are the papers' formulas."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from conftest import make_backbone
from test_schemes import classifier, language_bundle, make_task, settings
from warmstart.data.batch import encode, labelled_batches
from warmstart.engine import Group, TrainConfig, Work, train
from warmstart.engine import loop as loop_file
from warmstart.engine.optim import Optimizer
from warmstart.errors import ConfigError, ModelError
from warmstart.heads import ClassifyHeadConfig, LanguageHeadConfig
from warmstart.inserts import undo
from warmstart.model import Model, fresh_head
from warmstart.objectives import OBJECTIVES
from warmstart.schemes import Features, Language, apply_scheme, interpolate, l2_sp, make_scheme
from warmstart.schemes.language import needed, text_loss, tokens_per_text, with_language
from warmstart.schemes.task_loss import class_weights
from warmstart.tokenizer import Tokenizer
from warmstart.types import IGNORE, Batch
from warmstart.workflows import finetune as finetune_file
from warmstart.workflows.finetune import FineTuneConfig, Splits, fine_tune

TEXTS = ["She holds the cat.", "He rubs the river, and I hold it too!", "Where?", "They rub the dogs: the cats, too."]


def batches_of(tokenizer: Tokenizer, size: tuple[int, int] = (4, 1)) -> Callable[[int], list[Batch]]:
    return labelled_batches(encode(tokenizer, TEXTS, 32), np.array([0, 0, 1, 0]), size, 0, 0, causal=False)


@pytest.mark.parametrize("names", ["probe", "mix"])
@pytest.mark.parametrize("pooling", ["mean", "last", "appended"])
def test_reading_once_changes_no_result(names: str, pooling: str, tokenizer: Tokenizer) -> None:
    """With or without kept features: the same weights and probabilities, though the backbone has dropout and the head too."""
    done = []
    for read_once in (True, False):
        backbone = make_backbone(vocab_size=tokenizer.vocab_size, dropout=0.3)
        model = Model(backbone, fresh_head(ClassifyHeadConfig(classes=2, pooling=pooling, dropout=0.2), backbone, 0), causal=False)
        done.append(fine_tune(model, Splits.of(make_task(), model, tokenizer), settings(names, read_once=read_once), seed=0))
    kept, live = (run.model.weights() for run in done)
    for name in kept:
        torch.testing.assert_close(kept[name], live[name], atol=1e-4, rtol=1e-3)
    np.testing.assert_allclose(done[0].probabilities, done[1].probabilities, atol=1e-4)
    assert done[0].trained.tokens == done[1].trained.tokens


def test_frozen_schemes_share_one_reading(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Probe and mix over several seeds read each text once; another process finds them on disk; a damaged file is read anew."""
    task = make_task()
    different = len({*task.train.texts, *task.validation.texts})
    splits = replace(Splits.of(task, classifier(tokenizer), tokenizer), features=Features(tmp_path / "features"))
    for names, seed in [("probe", 0), ("mix", 0), ("mix", 1)]:
        fine_tune(classifier(tokenizer), splits, settings(names), seed)
    assert splits.features.read == different
    fine_tune(classifier(tokenizer), splits.sample(6, 0), settings("probe"), 0)
    assert splits.features.read == different
    again = Features(tmp_path / "features")
    first = splits.features.of(classifier(tokenizer), splits.train, splits.pad_id)
    assert torch.equal(again.of(classifier(tokenizer), splits.train, splits.pad_id), first)
    assert again.read == 0
    (file,) = (tmp_path / "features").iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    hurt = Features(tmp_path / "features")
    assert torch.equal(hurt.of(classifier(tokenizer), splits.train, splits.pad_id), first)
    assert hurt.read == different


def test_features_belong_to_one_backbone(tokenizer: Tokenizer) -> None:
    """Other weights, another direction or another pooling are read for themselves."""
    model, features = classifier(tokenizer), Features()
    encoded = encode(tokenizer, TEXTS, 32)
    one = features.of(model, encoded, 0)
    model.causal = True
    assert not torch.allclose(features.of(model, encoded, 0), one)
    model.causal = False
    with torch.no_grad():
        model.backbone.embedding.weight.mul_(2)
    assert not torch.allclose(features.of(model, encoded, 0), one)
    assert features.read == 3 * len(TEXTS)


@pytest.mark.parametrize("names", ["probe", "mix", "lora", "gradual"])
def test_a_wholly_frozen_backbone_drops_nothing(names: str, tokenizer: Tokenizer) -> None:
    """In training, two readings of one batch agree if, and only if, nothing in the backbone trains."""
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, dropout=0.5)
    model = Model(backbone, fresh_head(ClassifyHeadConfig(classes=2), backbone, 0), causal=False)
    groups = apply_scheme(model, make_scheme(names))
    Optimizer(groups, TrainConfig()).wake(0.0)  # gradual unfreezing begins with the head alone
    model.train()
    ids = torch.tensor([[5, 9, 2]])
    assert torch.equal(model(ids), model(ids)) == (names != "lora")
    assert model.head.training


def test_no_gradient_is_computed_below_what_trains(tokenizer: Tokenizer) -> None:
    """Under gradual unfreezing with the upper block awake, states below it have no gradient, and neither have its weights."""
    model = classifier(tokenizer)
    groups = apply_scheme(model, make_scheme("gradual"))
    Optimizer(groups, TrainConfig()).wake(0.3)
    states = model.backbone(torch.tensor([[5, 9, 2]]))
    assert [layer.requires_grad for layer in states.layers] == [False, False, True]


@pytest.mark.parametrize("names", ["probe", "mix", "lora", "pfeiffer", "bitfit"])
def test_only_what_trains_has_optimiser_state(names: str, tokenizer: Tokenizer) -> None:
    """Frozen parameters cost no memory beside themselves: no gradient, no moments."""
    model = classifier(tokenizer)
    optimizer = Optimizer(apply_scheme(model, make_scheme(names)), TrainConfig())
    model.loss(batches_of(tokenizer)(0)[0]).backward()
    optimizer.step(1.0)
    trains = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {name.split("|")[0] for name in optimizer.tensors()} == trains == set(optimizer.names.values())
    assert len(trains) < len(list(model.parameters()))


def test_muon_is_not_for_inserted_modules(tokenizer: Tokenizer) -> None:
    """LoRA's matrices stand inside the blocks, but go to AdamW, at the rates that were tried."""
    optimizer = Optimizer(apply_scheme(classifier(tokenizer), make_scheme("lora")), TrainConfig(optimizer="muon"))
    assert [type(part).__name__ for part in optimizer.parts] == ["AdamW"]
    whole = Optimizer(apply_scheme(classifier(tokenizer), make_scheme("full")), TrainConfig(optimizer="muon"))
    assert [type(part).__name__ for part in whole.parts] == ["AdamW", "Muon"]


@pytest.mark.parametrize("names", ["gradual+discriminative", "lp-ft+l2-sp", "lora+mix", "houlsby+bitfit"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_resumed_scheme_ends_with_the_same_bits(names: str, optimizer: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Killed in the middle and resumed, sleeping groups, inserted modules and pulls go on as if nothing had been."""
    config = TrainConfig(optimizer=optimizer, checkpoint_every=1)
    source = batches_of(tokenizer, (2, 2))

    class KilledError(Exception):
        pass

    def run(stop: int | None, folder: Path | None) -> Model:
        backbone = make_backbone(vocab_size=tokenizer.vocab_size, dropout=0.2)
        model = Model(backbone, fresh_head(ClassifyHeadConfig(classes=2), backbone, 0), causal=False)
        scheme = make_scheme(names)
        penalty = l2_sp(model, 0.1, 0.1) if scheme.pull else None

        def batches(step: int) -> list[Batch]:
            if step == stop:
                raise KilledError
            return source(step)

        groups = apply_scheme(model, scheme)
        train(model, Work(batches, 12, 0, groups=groups, penalty=penalty, show=False), config, folder)
        return model

    whole = run(None, None).weights()
    with pytest.raises(KilledError):
        run(7, tmp_path)
    resumed = run(None, tmp_path).weights()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_the_pull_is_the_papers_formula(tokenizer: Tokenizer) -> None:
    """Its gradient is alpha (w - w0) for the backbone, beta v for the head, and nothing for inserted modules."""
    model = classifier(tokenizer)
    apply_scheme(model, make_scheme("full+mix"))
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    penalty = l2_sp(model, 0.3, 0.7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    penalty().backward()
    for name, parameter in model.named_parameters():
        if ".mix." in name:
            assert parameter.grad is None
        else:
            expected = 0.7 * parameter if name.startswith("head.") else 0.3 * (parameter - start[name])
            torch.testing.assert_close(parameter.grad, expected.detach())


def test_a_stronger_pull_keeps_closer_to_the_pretrained_weights(tokenizer: Tokenizer) -> None:
    """And AdamW's own decay, a pull towards zero, is off."""
    moved = []
    for pull in (0.0, 1.0, 100.0):
        model = classifier(tokenizer)
        before = copy.deepcopy(model.backbone.state_dict())
        fine_tune(model, Splits.of(make_task(), model, tokenizer), settings("l2-sp", options={"pull": pull}), 0)
        moved.append(sum(float((tensor - before[name]).square().sum()) for name, tensor in model.backbone.state_dict().items()))
    assert moved[0] > moved[1] > moved[2]
    splits = Splits.of(make_task(), model, tokenizer)
    assert finetune_file._pace(splits, settings("l2-sp"), make_scheme("l2-sp"))[1].weight_decay == 0


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("head", [LanguageHeadConfig(), LanguageHeadConfig(tied=False, bias=True)], ids=["tied", "free"])
def test_the_language_loss_falls_and_its_head_is_dropped(objective: str, head: LanguageHeadConfig, tokenizer: Tokenizer) -> None:
    """Under every objective the texts' own loss falls beside the task's; the adapted model has no language head."""
    language = Language.of(language_bundle(tokenizer, objective, head))
    assert language is not None
    losses = {}
    for names in ("full", "lm-loss"):
        model = classifier(tokenizer)
        model.causal = OBJECTIVES[objective].causal
        splits = Splits.of(make_task(), model, tokenizer)
        fine_tune(model, splits, settings(names, options={"lm_weight": 1.0}), 0, language=language)
        assert not any("language" in name for name in model.state_dict())
        language.attach(model)
        draw = np.random.default_rng(0)
        batch = language.batch(splits.train.rows, draw, 32, causal=model.causal)
        with torch.no_grad():
            losses[names] = float(text_loss(model.eval(), batch))
    assert losses["lm-loss"] < losses["full"]


def test_the_language_loss_is_equation_5(tokenizer: Tokenizer) -> None:
    """The gradient is that of task loss / texts + weight x next-token loss / texts / tokens of a text, also accumulated."""
    language = needed(Language.of(language_bundle(tokenizer, "causal")))
    gradients = []
    for size in [(4, 1), (1, 4)]:
        model = classifier(tokenizer)
        language.attach(model)
        share = 0.5 / tokens_per_text(language, encode(tokenizer, TEXTS, 32).rows, model)
        for batch in with_language(batches_of(tokenizer, size), language, model, 0)(0):
            loss = model.loss(batch) if batch.count else share * text_loss(model, batch)
            (loss / 4).backward()
        gradients.append(model.backbone.embedding.weight.grad)
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-4)
    model = classifier(tokenizer)
    (batch,) = batches_of(tokenizer)(0)
    targets = torch.where(batch.mask, batch.ids, IGNORE)[:, 1:]
    states = model.backbone(batch.ids, causal=True).last[:, :-1]
    logits = states @ model.backbone.embedding.weight.T
    spoken = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORE)
    (model.loss(batch) / 4 + 0.5 * spoken).backward()
    torch.testing.assert_close(gradients[0], model.backbone.embedding.weight.grad, atol=1e-5, rtol=1e-4)


def test_the_language_loss_needs_a_language_model(tokenizer: Tokenizer) -> None:
    """A model that was adapted before has lost its language head; the message says so."""
    model = classifier(tokenizer)
    with pytest.raises(ModelError, match="lm-loss and dapt need a pretrained language head.*start from a language model"):
        fine_tune(model, Splits.of(make_task(), model, tokenizer), settings("lm-loss"), 0)


def test_class_weights_agree_with_scikit_learn() -> None:
    """Texts / (classes x texts of the class)."""
    labels = np.array([0, 0, 0, 1, 2, 2])
    theirs = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    np.testing.assert_allclose(class_weights(labels, 3).numpy(), theirs, rtol=1e-6)
    assert class_weights([0, 0], 2).tolist() == [0.5, 0.0]


@pytest.mark.parametrize("names", ["full", "probe"])
def test_weights_and_smoothing_reach_the_loss(names: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of the first batch is torch's own with the same weights and smoothing, with and without kept features."""
    seen = []
    keep = loop_file.train

    def watch(model: Model, work: Work, config: TrainConfig) -> object:
        batch = work.batches(0)[0]
        seen.append((float(work.loss(batch).detach()), model.eval()(batch.ids, batch.mask).detach(), batch))
        return keep(model, work, config)

    monkeypatch.setattr(finetune_file, "train", watch)
    task = make_task()
    skewed = task.with_train(task.train.take(np.array([0, 1, 2, 4])))
    model = classifier(tokenizer)
    splits = Splits.of(skewed, model, tokenizer)
    fine_tune(model, splits, settings(names, class_weights="balanced", label_smoothing=0.2), 0)
    loss, logits, batch = seen[0]
    labels = batch.targets if names == "full" else torch.from_numpy(skewed.train.labels)[batch.targets]
    expected = torch.nn.functional.cross_entropy(
        logits, labels, class_weights(skewed.train.labels, 2), label_smoothing=0.2, reduction="sum"
    )
    assert loss == pytest.approx(float(expected), rel=1e-4)


def test_patience_stops_a_run_that_gains_nothing(tokenizer: Tokenizer) -> None:
    """At a rate too small to change anything, the run ends after the first evaluation and as many as patience says."""
    model = classifier(tokenizer)
    tiny = TrainConfig(learning_rate=1e-9, epochs=10, batch=4)
    done = fine_tune(model, Splits.of(make_task(), model, tokenizer), FineTuneConfig(patience=2, train=tiny), 0)
    assert len(done.curve) == 3
    assert done.trained.steps == 9


def test_patience_waits_until_every_part_is_awake(tokenizer: Tokenizer) -> None:
    """Under gradual unfreezing with two blocks, the first three quarters of the run do not count against it."""
    model = classifier(tokenizer)
    tiny = TrainConfig(learning_rate=1e-9, epochs=20, batch=4)
    done = fine_tune(model, Splits.of(make_task(), model, tokenizer), FineTuneConfig(scheme="gradual", patience=2, train=tiny), 0)
    assert 16 <= len(done.curve) <= 17


def test_interpolation_lies_between_the_weights(tokenizer: Tokenizer) -> None:
    """Share 0 is the pretrained backbone, 1 the adapted model, one half their mean; the models given are left alone."""
    before = language_bundle(tokenizer).model
    after = classifier(tokenizer)
    fine_tune(after, Splits.of(make_task(), after, tokenizer), settings("full"), 0)
    old, new = before.backbone.embedding.weight.detach().clone(), after.backbone.embedding.weight.detach().clone()
    for share, expected in [(0, old), (1, new), (0.5, (old + new) / 2)]:
        made = interpolate(before, after, share)
        torch.testing.assert_close(made.backbone.embedding.weight.detach(), expected)
        assert torch.equal(made.head.score.weight, after.head.score.weight)
    assert torch.equal(after.backbone.embedding.weight, new)
    assert torch.equal(before.backbone.embedding.weight, old)
    with pytest.raises(ConfigError, match="share must lie between 0 .* and 1 .*, but is 1.5"):
        interpolate(before, after, 1.5)
    apply_scheme(after, make_scheme("lora"))
    with pytest.raises(ModelError, match=r"same backbone weights, but these differ: blocks.0.attention.qkv.lora_q"):
        interpolate(before, after, 0.5)
    interpolate(before, undo(after), 0.5)


def test_a_sleeping_group_is_not_touched_and_then_moves() -> None:
    """A group's course decides: while it is 0 nothing of it changes, decay included; afterwards it trains."""
    weight, other = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2, 2))
    groups = [Group({"late": weight}, course=lambda progress: float(progress > 0.5)), Group({"early": other})]
    optimizer = Optimizer(groups, TrainConfig(weight_decay=0.5))
    for progress, moved in [(0.1, False), (0.9, True)]:
        optimizer.wake(progress)
        (weight * other).sum().backward()
        assert (weight.grad is not None) == moved
        optimizer.step(1.0, progress)
        assert (not torch.equal(weight, torch.ones(2, 2))) == moved
