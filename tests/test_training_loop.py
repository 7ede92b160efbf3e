"""The training loop: exact resume, exact accumulation, exact budgets."""

from __future__ import annotations

import itertools
import json
import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from helpers.models import make_language_model
from helpers.training import job, ragged_batch
from warmstart.errors import ConfigError, ModelError
from warmstart.stopping import Terminated
from warmstart.training import loop
from warmstart.training.arithmetic import Arithmetic
from warmstart.training.checkpoint import read_checkpoint
from warmstart.training.config import TrainConfig
from warmstart.training.log import MetricsLog, read_metrics
from warmstart.training.loop import train
from warmstart.training.optimizers import Optimizer, ParameterGroup
from warmstart.types import Batch


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("stop", [1, 5, 11])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, optimizer: str, stop: int) -> None:
    """Killed after any step and resumed, a run's weights equal those of one that was never stopped; dropout included."""
    config = TrainConfig(optimizer=optimizer, checkpoint_every=1, learning_rate=0.01)
    whole = make_language_model(dropout=0.2)
    train(whole, job(), config)

    class KilledError(Exception):
        pass

    def kill(step: int) -> list[Batch]:
        if step == stop:
            raise KilledError
        return [ragged_batch(step)]

    with pytest.raises(KilledError):
        train(make_language_model(dropout=0.2), job(batches=kill), config, tmp_path)
    resumed = make_language_model(seed=1, dropout=0.2)  # other weights: all must come from the checkpoint
    train(resumed, job(), config, tmp_path)
    for name, tensor in whole.weights().items():
        assert torch.equal(tensor, resumed.weights()[name]), name
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == sorted(
        row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")
    )


@pytest.mark.parametrize("recorded", [Arithmetic("bfloat16", "onednn"), Arithmetic("float32", "default")])
def test_a_resumed_run_keeps_its_arithmetic(tmp_path: Path, recorded: Arithmetic, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever another machine, or this one a day later, would choose."""
    monkeypatch.setattr(Arithmetic, "choose", lambda *_: recorded)
    train(make_language_model(), job(steps=2), TrainConfig(), tmp_path)
    monkeypatch.setattr(Arithmetic, "choose", lambda *_: Arithmetic("float32", "onednn"))
    used: list[Arithmetic] = []
    monkeypatch.setattr(Arithmetic, "use", lambda self, device: used.append(self) or nullcontext())
    train(make_language_model(), job(steps=4), TrainConfig(), tmp_path)
    assert used == [recorded] * 2


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not() -> None:
    """Every random choice of a step comes from the run's seed."""
    models = [make_language_model(dropout=0.2) for _ in range(3)]
    for model, seed in zip(models, [0, 0, 1], strict=True):
        train(model, job(seed=seed), TrainConfig())
    one, two, three = (model.weights()["backbone.embedding.weight"] for model in models)
    assert torch.equal(one, two)
    assert not torch.equal(one, three)


def test_accumulated_ragged_batches_equal_one_big_batch() -> None:
    """Three batches of unequal numbers of targets, summed up, give the gradient of all their rows at once."""
    parts = [ragged_batch(0, part, rows) for part, rows in enumerate([1, 4, 2])]
    big = Batch(
        torch.cat([part.ids for part in parts]),
        torch.cat([part.targets for part in parts]),
        torch.cat([part.attention_mask for part in parts]),
        count=sum(part.count for part in parts),
    )
    config = TrainConfig(clip=0, precision="float32")
    split, whole = make_language_model(), make_language_model()
    train(split, job(1, batches=lambda _: parts), config)
    train(whole, job(1, batches=lambda _: [big]), config)
    for name, tensor in split.weights().items():
        torch.testing.assert_close(tensor, whole.weights()[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_training_lowers_the_loss(optimizer: str) -> None:
    """Both optimisers learn a batch by heart."""
    model = make_language_model(init_std=0.02)
    config = TrainConfig(optimizer=optimizer, learning_rate=0.01)
    out = train(model, job(80, batches=lambda _: [ragged_batch(0)]), config)
    assert out.log[-1]["loss"] < out.log[0]["loss"] / 2
    assert out.tokens == 80 * int(ragged_batch(0).attention_mask.sum())


def test_a_loss_that_is_no_number_stops_the_run() -> None:
    """The error names the step and what to do."""
    model = make_language_model()
    with torch.no_grad():
        model.backbone.embedding.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match=r"the loss became nan at step 10; lower the learning rate \(now 0.001\)"):
        train(model, job(), TrainConfig())


def test_only_the_groups_given_move() -> None:
    """Parameters outside the groups stay equal to the bit."""
    model = make_language_model()
    before = {name: tensor.detach().clone() for name, tensor in model.weights().items()}
    chosen = {name: p for name, p in model.named_parameters() if "blocks.1." in name}
    train(model, job(groups=[ParameterGroup(chosen)]), TrainConfig())
    for name, tensor in model.weights().items():
        assert torch.equal(tensor, before[name]) == (name not in chosen), name


def test_a_groups_rate_scales_its_steps() -> None:
    """A group at rate 0.5 takes half the step of one at rate 1 (AdamW's first step has the size of its rate)."""
    sizes = []
    for rate in (1.0, 0.5):
        weight = torch.nn.Parameter(torch.ones(3, 3))
        optimizer = Optimizer([ParameterGroup({"w": weight}, rate)], TrainConfig(weight_decay=0, learning_rate=0.1))
        weight.grad = torch.ones(3, 3)
        optimizer.step(1.0)
        sizes.append(float((1 - weight).detach().mean()))
    assert sizes == pytest.approx([0.1, 0.05], rel=1e-4)


def test_a_budget_in_minutes_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run stops when its time is spent: by a clock on which every step takes a tenth of a second."""
    clock = itertools.count(0, 0.1)
    ticking = SimpleNamespace(perf_counter=lambda: next(clock), process_time=lambda: 0.0, monotonic=lambda: 0.0)
    monkeypatch.setattr(loop, "time", ticking)
    out = train(make_language_model(), job(None), TrainConfig(minutes=0.01), tmp_path)
    assert out.seconds == pytest.approx(0.6)
    assert out.steps == 6
    assert out.log[-1]["step"] == out.steps


def test_budgets_convert_to_steps() -> None:
    """100 rows of 10 tokens, 5 rows a step: 2 epochs, 2,000 tokens and 40 steps are the same."""
    for budget in ({"epochs": 2}, {"tokens": 2000}, {"steps": 40}):
        assert TrainConfig.build({"batch": 5, **budget}).count_steps(100, 10, epochs=1) == 40
    assert TrainConfig(batch=5).count_steps(100, 10, epochs=3) == 60
    assert TrainConfig(minutes=1).count_steps(100, 10, epochs=1) is None
    with pytest.raises(ConfigError, match="name one budget, not 2: steps, minutes"):
        TrainConfig.build({"steps": 3, "minutes": 1})
    with pytest.raises(ConfigError, match="unknown schedule 'cosin'; did you mean 'cosine'"):
        TrainConfig.build({"schedule": "cosin"})


def test_a_torn_metrics_line_is_dropped(tmp_path: Path) -> None:
    """A kill in the middle of a line loses that line only."""
    file = tmp_path / "metrics.jsonl"
    file.write_text(json.dumps({"step": 10}) + "\n" + '{"step": 2')
    assert read_metrics(file) == [{"step": 10}]


@pytest.mark.parametrize(("before", "lines", "message"), [
    (b'{"step": 1, "loss": 2.5}\n{"step": 2, "loss"', 1, "the last line of metrics.jsonl was cut short, and is removed"),
    (b'{"step": 1, "loss": 2.5}\n{"step": 9}\n', 1, ""),
    (b'{"step": 1, "loss": 2.4}\n', 1, "metrics.jsonl is damaged: lines before step 1 are lost or changed"),
    (b'{"step": 1, "lo\xff"\n', 0, "metrics.jsonl is damaged: lines before step 1 are lost or changed"),
    (b'{"step": "x"}\n[]\n7\n', 0, "metrics.jsonl is damaged: lines before step 1 are lost or changed"),
])  # fmt: skip
def test_a_resumed_log_says_what_was_damaged(
    tmp_path: Path, before: bytes, lines: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checkpoint knows the lines before it; what follows it is cut off, and everything else stays."""
    monkeypatch.chdir(tmp_path)
    (log := MetricsLog(Path())).add({"step": 1, "loss": 2.5})
    Path("metrics.jsonl").write_bytes(before)
    resumed = MetricsLog(Path(), 1, log.digest())
    assert len(resumed.rows) == lines
    resumed.add({"step": 2})
    assert read_metrics(Path("metrics.jsonl")) == [*resumed.rows[:-1], {"step": 2}]
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_ends_a_run_after_its_step(tmp_path: Path, number: int, code: type[BaseException]) -> None:
    """A checkpoint keeps the step; the log, the checkpoints and the weights are in the end those of a run without a signal."""

    def batches(step: int) -> list[Batch]:
        if step == 3 and not (tmp_path / "cut" / "checkpoints" / "step-00000004").exists():
            signal.raise_signal(number)
        return [ragged_batch(step)]

    config, runs = TrainConfig(checkpoint_every=5), dict[str, Any]()
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
        model = make_language_model()
        if name == "cut":
            with pytest.raises(code) as raised:
                train(model, job(batches=batches), config, tmp_path / name)
            assert raised.type is code
            assert [place.name for place in (tmp_path / "cut" / "checkpoints").iterdir()] == ["step-00000004"]
            model = make_language_model()
        train(model, job(batches=lambda step: [ragged_batch(step)]), config, tmp_path / name)
        kept = {place.name for place in (tmp_path / name / "checkpoints").iterdir()}
        lines = [{key: row[key] for key in row if "second" not in key} for row in read_metrics(tmp_path / name / "metrics.jsonl")]
        runs[name] = kept, lines, {key: tensor.tolist() for key, tensor in model.weights().items()}
    assert runs["cut"] == runs["whole"]


def test_weights_that_are_no_numbers_are_never_kept(tmp_path: Path) -> None:
    """A loss that breaks between two log lines is noticed before a checkpoint is written."""
    model = make_language_model()

    def spoil(step: int) -> list[Batch]:
        if step == 3:
            with torch.no_grad():
                model.backbone.embedding.weight.fill_(float("nan"))
        return [ragged_batch(step)]

    with pytest.raises(ModelError, match="the loss became nan at step 4"):
        train(model, job(batches=spoil), TrainConfig(checkpoint_every=1), tmp_path)
    found = read_checkpoint(tmp_path / "checkpoints", "a")
    assert found is not None
    assert found.step == 3
    assert all(tensor.isfinite().all() for tensor in found.tensors.values())
