"""Every registered scheme through its whole life: apply, train, change what it should and nothing else, save, load."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.bundles import SCHEME_CASES as CASES
from helpers.bundles import classifier, finetune_config, language_bundle, make_task
from helpers.models import SENTENCES
from warmstart.adapters.insertion import remove_adapters
from warmstart.data.batches import labelled_batches
from warmstart.data.encode import encode
from warmstart.finetuning.apply import apply_scheme
from warmstart.finetuning.compose import make_scheme
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.encoded_task import EncodedTask
from warmstart.finetuning.finetune import fine_tune
from warmstart.finetuning.language_loss import LanguageTask
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle, save
from warmstart.model.model import Model
from warmstart.tasks import task_type_of
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.config import TrainConfig
from warmstart.training.loop import TrainingJob, train

EVERYTHING = {"full", "lp-ft", "gradual", "discriminative", "lm-loss", "contrast", "l2-sp", "dapt"}
MOVES = {
    "bitfit": "bias$",
    "houlsby": r"\.norm(_1|_2)?\.|\.adapter\.",
    "pfeiffer": r"\.adapter\.",
    "lora": r"\.lora_[qv]\.",
    "scalar-mix": r"\.scalar_mix\.",
}
"""which weights each scheme may change beside the head's; written by hand, not read from the schemes"""


def moves(names: str, key: str) -> bool:
    chosen = set(names.split("+"))
    small = chosen & (MOVES.keys() - {"scalar-mix"})
    if chosen & EVERYTHING and not small:
        return True
    return key.startswith("head.") or any(re.search(MOVES[name], key) for name in chosen & MOVES.keys())


@pytest.mark.usefixtures("no_second_process")
@pytest.mark.parametrize("names", CASES)
def test_every_scheme_lives_a_whole_life(names: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The loss falls, the intended parameters change, the others stay the same to the bit, the bundle agrees, undo undoes."""
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


@pytest.mark.parametrize("keep", ["best", "last"])
def test_the_weights_kept_are_those_that_were_scored(keep: str, tokenizer: Tokenizer) -> None:
    """The validation score of the run is that of its kept weights, and the test split is scored with them."""
    task, model = make_task(), classifier(tokenizer)
    config = FineTuneConfig(keep=keep, train=TrainConfig(learning_rate=5e-3, epochs=8, batch=4, precision="float32"))
    done = fine_tune(model, EncodedTask.of(task, model, tokenizer), config, seed=0)
    scores = [score for _, score in done.curve]
    assert done.validation_score == (max(scores) if keep == "best" else scores[-1])
    scored = task_type_of(task).scores(task.test, done.test_predictions, task)
    assert scored.score("accuracy") == done.validation_score  # here validation and test are the same texts
    assert len(scores) == 8


def test_one_seed_one_result(tokenizer: Tokenizer) -> None:
    """The same seed gives the same predictions to the bit."""
    task = make_task()
    config = FineTuneConfig(train=TrainConfig(epochs=2, batch=4))
    predictions = []
    for _ in range(2):
        model = classifier(tokenizer)
        predictions.append(fine_tune(model, EncodedTask.of(task, model, tokenizer), config, seed=3).test_predictions)
    assert (predictions[0] == predictions[1]).all()


@pytest.mark.parametrize(("batch", "accumulate"), [(5, 1), (12, 1), (100, 1), (2, 3)])
def test_an_epoch_is_a_whole_epoch(batch: int, accumulate: int, tokenizer: Tokenizer) -> None:
    """Four epochs read every text four times, whatever the batch size, and are evaluated four times."""
    task, model = make_task(), classifier(tokenizer)
    config = FineTuneConfig(train=TrainConfig(epochs=4, batch=batch, accumulate=accumulate))
    done = fine_tune(model, EncodedTask.of(task, model, tokenizer), config, seed=0)
    assert done.training.tokens == 4 * sum(len(row) for row in EncodedTask.of(task, model, tokenizer).train.rows)
    assert len(done.curve) == 4
