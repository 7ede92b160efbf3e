"""torch.compile as an option of training: the same learning, and nothing left behind."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from helpers.models import make_language_model
from helpers.training import job, ragged_batch
from warmstart.commands.pretrain.command import PretrainConfig
from warmstart.errors import ConfigError
from warmstart.training.compiled import check_compiler, compiled
from warmstart.training.config import TrainConfig
from warmstart.training.loop import train
from warmstart.types import Batch

CPU = torch.device("cpu")


@pytest.mark.journeys
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own inner ways
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++ on a processor")
def test_a_compiled_run_learns_as_a_plain_one_and_resumes_to_the_bit(tmp_path: Path) -> None:
    """Same losses to rounding, ragged rows included; stopped and resumed, the same bits; afterwards the model is as it was."""
    config = TrainConfig(precision="float32", checkpoint_every=1, learning_rate=0.01)
    plain, whole, killed, resumed = (make_language_model() for _ in range(4))
    as_it_is = train(plain, job(), config)
    faster = train(whole, job(compile=tuple(whole.backbone.blocks)), config)
    assert [row["loss"] for row in faster.log] == pytest.approx([row["loss"] for row in as_it_is.log], abs=1e-4)

    class KilledError(Exception):
        pass

    def kill(step: int) -> list[Batch]:
        if step == 7:
            raise KilledError
        return [ragged_batch(step)]

    with pytest.raises(KilledError):
        train(killed, job(batches=kill, compile=tuple(killed.backbone.blocks)), config, tmp_path)
    train(resumed, job(compile=tuple(resumed.backbone.blocks)), config, tmp_path)
    for name, tensor in whole.weights().items():
        assert torch.equal(tensor, resumed.weights()[name]), name
    assert all("forward" not in block.__dict__ for block in whole.backbone.blocks)


def test_modules_run_their_compiled_forward_only_while_it_is_open() -> None:
    """Outside, and after an error inside, they are what they were."""
    module = nn.Linear(2, 2)
    x = torch.ones(1, 2)
    before = module(x)

    def inside() -> None:
        with compiled([(module, lambda _: "compiled")]):
            assert module(x) == "compiled"
            raise KeyError

    with pytest.raises(KeyError):
        inside()
    assert torch.equal(module(x), before)


def test_a_missing_compiler_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no C++ compiler is found the message says what to install."""
    monkeypatch.setenv("CXX", "/nowhere/c++")
    from torch._inductor import config

    monkeypatch.setattr(config.cpp, "cxx", (None, "/nowhere/c++"))
    with pytest.raises(ConfigError, match=r"install g\+\+"):
        check_compiler(CPU)


def test_a_budget_in_minutes_does_not_go_with_compiling() -> None:
    """The minutes would be spent on compiling."""
    with pytest.raises(ConfigError, match="name a budget in tokens"):
        PretrainConfig.build({"text": ["x"], "train": {"compile": True, "minutes": 1}})
