"""Every registered scheme through its whole life: apply, step, move what it should and nothing else, save, load."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import SENTENCES, make_backbone
from warmstart.data import Split, Task
from warmstart.data.batch import encode, labelled_batches
from warmstart.engine import TrainConfig, Work, train
from warmstart.heads import ClassifyHeadConfig, LanguageHeadConfig
from warmstart.inserts import undo
from warmstart.model import Bundle, Model, fresh_head, load, save
from warmstart.objectives import OBJECTIVES
from warmstart.schemes import SCHEMES, Language, apply_scheme, make_scheme
from warmstart.tokenizer import Tokenizer
from warmstart.workflows.finetune import FineTuneConfig, Splits, fine_tune


def make_task() -> Task:
    """Sentences about cats against sentences about other things; easy."""
    texts = tuple(
        f"{who} {does} the {what}." for who in ("She", "He", "I") for does in ("holds", "rubs") for what in ("cat", "river")
    )
    labels = np.array(["cat" not in text for text in texts], dtype=np.int64)
    split = Split(texts, labels)
    return Task("cats", ("cat", "other"), split, split, split, "accuracy")


def classifier(tokenizer: Tokenizer) -> Model:
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    return Model(backbone, fresh_head(ClassifyHeadConfig(classes=2), backbone, 0), causal=False)


COMPOSITIONS = ["full+mix", "lora+mix", "houlsby+lm-loss", "gradual+discriminative", "lora+bitfit", "lp-ft+l2-sp", "mix+gradual"]
CASES = [*SCHEMES, *COMPOSITIONS]
EVERYTHING = {"full", "lp-ft", "gradual", "discriminative", "lm-loss", "l2-sp", "dapt"}
MOVES = {
    "bitfit": "bias$",
    "houlsby": r"\.norm(_1|_2)?\.|\.adapter\.",
    "pfeiffer": r"\.adapter\.",
    "lora": r"\.lora_[qv]\.",
    "mix": r"\.mix\.",
}
"""Written by hand, not read off the schemes: which weights each name may move, beside the head's."""


def moves(names: str, key: str) -> bool:
    chosen = set(names.split("+"))
    small = chosen & (MOVES.keys() - {"mix"})
    if chosen & EVERYTHING and not small:
        return True
    return key.startswith("head.") or any(re.search(MOVES[name], key) for name in chosen & MOVES.keys())


def settings(names: str, **changes: object) -> FineTuneConfig:
    train_ = TrainConfig(learning_rate=5e-3, epochs=10, batch=4, precision="float32")
    return FineTuneConfig.build(
        {"scheme": names, "keep": "last", "train": train_.plain(), "options": {"adapter_width": 4}, **changes}
    )


@pytest.mark.usefixtures("no_second_process")
@pytest.mark.parametrize("names", CASES)
def test_every_scheme_lives_a_whole_life(names: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The loss falls, exactly the intended parameters move, the others are equal to the bit, the bundle agrees, undo undoes."""
    model, task = classifier(tokenizer), make_task()
    before = {key: tensor.detach().clone() for key, tensor in model.weights().items()}
    splits = Splits.of(task, model, tokenizer)
    first = mean_loss(model, splits)
    done = fine_tune(model, splits, settings(names), 0, language=Language.of(language_bundle(tokenizer)))
    assert mean_loss(model, splits) < first
    after = model.weights()
    for key, tensor in after.items():
        if key in before:
            assert torch.equal(tensor, before[key]) != moves(names, key), key
        else:
            assert moves(names, key), key
            assert bool(tensor.any()), f"{key} began at zero and stayed there, or vanished"
    assert done.trainable == sum(tensor.numel() for key, tensor in after.items() if moves(names, key))
    again = load(save(Bundle(model, tokenizer, ("a", "b")), tmp_path / "b"))
    ids = torch.tensor([[5, 9, 2]])
    with torch.no_grad():
        assert torch.equal(model(ids), again.model(ids))
    undo(model)
    assert model.weights().keys() == before.keys()


def mean_loss(model: Model, splits: Splits) -> float:
    labels = splits.task.train.labels
    with torch.no_grad():
        (batch,) = labelled_batches(splits.train, labels, (len(labels), 1), 0, splits.pad_id, causal=model.causal)(0)
        return float(model.eval().loss(batch)) / len(labels)


def language_bundle(tokenizer: Tokenizer, objective: str = "masked", head: LanguageHeadConfig = LanguageHeadConfig()) -> Bundle:  # noqa: B008
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    model = Model(backbone, fresh_head(head, backbone, 0), causal=OBJECTIVES[objective].causal)
    return Bundle(model, tokenizer, history=({"objective": {"name": objective}},))


def test_a_frozen_backbone_wakes_again(tokenizer: Tokenizer) -> None:
    """After a probe, applying ``full`` makes the backbone's parameters really move."""
    model = classifier(tokenizer)
    apply_scheme(model, make_scheme("probe"))
    before = model.backbone.embedding.weight.detach().clone()
    batches = labelled_batches(encode(tokenizer, SENTENCES, 32), np.array([0, 0, 1, 0]), (4, 1), 0, 0, causal=False)
    train(model, Work(batches, 3, 0, groups=apply_scheme(model, make_scheme("full")), show=False), TrainConfig())
    assert not torch.equal(model.backbone.embedding.weight, before)


@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_weights_kept_are_those_that_were_scored(keep: str, tokenizer: Tokenizer) -> None:
    """The validation score of the run is that of its kept weights, and the test split is scored with them."""
    task, model = make_task(), classifier(tokenizer)
    config = FineTuneConfig(keep=keep, train=TrainConfig(learning_rate=5e-3, epochs=8, batch=4, precision="float32"))
    done = fine_tune(model, Splits.of(task, model, tokenizer), config, seed=0)
    scores = [score for _, score in done.curve]
    assert done.validation == (max(scores) if keep == "best" else scores[-1])
    assert done.test.accuracy == done.validation  # here validation and test are the same texts
    assert len(scores) == 8


def test_one_seed_one_result(tokenizer: Tokenizer) -> None:
    """The same seed gives the same probabilities to the bit."""
    task = make_task()
    config = FineTuneConfig(train=TrainConfig(epochs=2, batch=4))
    said = []
    for _ in range(2):
        model = classifier(tokenizer)
        said.append(fine_tune(model, Splits.of(task, model, tokenizer), config, seed=3).probabilities)
    assert (said[0] == said[1]).all()


@pytest.mark.parametrize(("batch", "accumulate"), [(5, 1), (12, 1), (100, 1), (2, 3)])
def test_an_epoch_is_a_whole_epoch(batch: int, accumulate: int, tokenizer: Tokenizer) -> None:
    """Four epochs read every text four times, however the batches divide them, and are scored four times."""
    task, model = make_task(), classifier(tokenizer)
    config = FineTuneConfig(train=TrainConfig(epochs=4, batch=batch, accumulate=accumulate))
    done = fine_tune(model, Splits.of(task, model, tokenizer), config, seed=0)
    assert done.trained.tokens == 4 * sum(len(row) for row in Splits.of(task, model, tokenizer).train.rows)
    assert len(done.curve) == 4
