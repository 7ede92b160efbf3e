"""The loop: exact resume, exact accumulation, honest budgets, and checkpoints that survive a kill."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import make_language_model
from warmstart.engine import TrainConfig, Work, device, read_metrics, train
from warmstart.engine.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from warmstart.engine.optim import Group, Optimizer
from warmstart.engine.schedule import SCHEDULES, rate_at
from warmstart.errors import CheckpointError, ConfigError, ModelError
from warmstart.seeding import rng
from warmstart.types import IGNORE, Batch


def ragged_batch(step: int, part: int = 0, rows: int = 4) -> Batch:
    """Random rows of random lengths; every real token predicts the next."""
    draw = rng(0, "ragged", step, part)
    lengths = draw.integers(2, 9, rows)
    ids = torch.from_numpy(draw.integers(5, 60, (rows, 9)))
    real = torch.from_numpy(np.arange(9) < lengths[:, None])
    targets = torch.where(real[:, 1:], ids[:, 1:], IGNORE)
    return Batch(ids[:, :-1], targets, real[:, :-1], count=int((targets != IGNORE).sum()))


def work(steps: int | None = 12, **changes: object) -> Work:
    return replace(Work(lambda step: [ragged_batch(step)], steps, seed=0, identity="a", show=False), **changes)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("stop", [1, 5, 11])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, optimizer: str, stop: int) -> None:
    """Killed after any step and resumed, a run's weights equal those of one that was never stopped; dropout included."""
    config = TrainConfig(optimizer=optimizer, checkpoint_every=1, learning_rate=0.01)
    whole = make_language_model(dropout=0.2)
    train(whole, work(), config)

    class KilledError(Exception):
        pass

    def kill(step: int) -> list[Batch]:
        if step == stop:
            raise KilledError
        return [ragged_batch(step)]

    with pytest.raises(KilledError):
        train(make_language_model(dropout=0.2), work(batches=kill), config, tmp_path)
    resumed = make_language_model(seed=1, dropout=0.2)  # other weights: all must come from the checkpoint
    train(resumed, work(), config, tmp_path)
    for name, tensor in whole.weights().items():
        assert torch.equal(tensor, resumed.weights()[name]), name
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == sorted(
        row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")
    )


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not() -> None:
    """Every random choice of a step comes from the run's seed."""
    models = [make_language_model(dropout=0.2) for _ in range(3)]
    for model, seed in zip(models, [0, 0, 1], strict=True):
        train(model, work(seed=seed), TrainConfig())
    one, two, three = (model.weights()["backbone.embedding.weight"] for model in models)
    assert torch.equal(one, two)
    assert not torch.equal(one, three)


def test_accumulated_ragged_batches_equal_one_big_batch() -> None:
    """Three batches of unequal numbers of targets, summed up, give the gradient of all their rows at once."""
    parts = [ragged_batch(0, part, rows) for part, rows in enumerate([1, 4, 2])]
    big = Batch(
        torch.cat([part.ids for part in parts]),
        torch.cat([part.targets for part in parts]),
        torch.cat([part.mask for part in parts]),
        count=sum(part.count for part in parts),
    )
    config = TrainConfig(clip=0, precision="float32")
    split, whole = make_language_model(), make_language_model()
    train(split, work(1, batches=lambda _: parts), config)
    train(whole, work(1, batches=lambda _: [big]), config)
    for name, tensor in split.weights().items():
        torch.testing.assert_close(tensor, whole.weights()[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_training_lowers_the_loss(optimizer: str) -> None:
    """Both optimisers learn a batch by heart."""
    model = make_language_model(init_std=0.02)
    config = TrainConfig(optimizer=optimizer, learning_rate=0.01)
    out = train(model, work(80, batches=lambda _: [ragged_batch(0)]), config)
    assert out.rows[-1]["loss"] < out.rows[0]["loss"] / 2
    assert out.tokens == 80 * int(ragged_batch(0).mask.sum())


def test_a_loss_that_is_no_number_stops_the_run() -> None:
    """The error names the step and what to do."""
    model = make_language_model()
    with torch.no_grad():
        model.backbone.embedding.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match=r"the loss became nan at step 10; lower the learning rate \(now 0.001\)"):
        train(model, work(), TrainConfig())


def test_only_the_groups_given_move() -> None:
    """Parameters outside the groups stay equal to the bit."""
    model = make_language_model()
    before = {name: tensor.detach().clone() for name, tensor in model.weights().items()}
    chosen = {name: p for name, p in model.named_parameters() if "blocks.1." in name}
    train(model, work(groups=[Group(chosen)]), TrainConfig())
    for name, tensor in model.weights().items():
        assert torch.equal(tensor, before[name]) == (name not in chosen), name


def test_a_groups_rate_scales_its_steps() -> None:
    """A group at rate 0.5 takes half the step of one at rate 1 (AdamW's first step has the size of its rate)."""
    sizes = []
    for rate in (1.0, 0.5):
        weight = torch.nn.Parameter(torch.ones(3, 3))
        optimizer = Optimizer([Group({"w": weight}, rate)], TrainConfig(weight_decay=0, learning_rate=0.1))
        weight.grad = torch.ones(3, 3)
        optimizer.step(1.0)
        sizes.append(float((1 - weight).detach().mean()))
    assert sizes == pytest.approx([0.1, 0.05], rel=1e-4)


def test_a_budget_in_minutes_ends(tmp_path: Path) -> None:
    """The rate follows the time spent, and the run stops when it is spent."""
    out = train(make_language_model(), work(None), TrainConfig(minutes=0.01), tmp_path)
    assert out.steps > 3
    assert 0.6 <= out.seconds < 3
    assert out.rows[-1]["step"] == out.steps


def test_budgets_convert_to_steps() -> None:
    """100 rows of 10 tokens, 5 rows a step: 2 epochs, 2,000 tokens and 40 steps are the same."""
    for budget in ({"epochs": 2}, {"tokens": 2000}, {"steps": 40}):
        assert TrainConfig.build({"batch": 5, **budget}).count_steps(100, 10, epochs=1) == 40
    assert TrainConfig(batch=5).count_steps(100, 10, epochs=3) == 60
    assert TrainConfig(minutes=1).count_steps(100, 10, epochs=1) is None
    with pytest.raises(ConfigError, match="name one budget, but 2 came: steps, minutes"):
        TrainConfig.build({"steps": 3, "minutes": 1})
    with pytest.raises(ConfigError, match="unknown schedule 'cosin'; did you mean 'cosine'"):
        TrainConfig.build({"schedule": "cosin"})


@given(st.sampled_from(sorted(SCHEDULES)), st.floats(0, 1), st.floats(0, 0.9), st.floats(0, 1))
@settings(deadline=None)
def test_rates_stay_between_nothing_and_the_full_rate(schedule: str, progress: float, warmup: float, floor: float) -> None:
    """Every schedule is a share of the full rate, and the highest at the end of the warm-up."""
    share = rate_at(progress, schedule, warmup, floor)
    assert 0 <= share <= 1 + 1e-9
    assert rate_at(max(warmup, 1e-12), schedule, warmup, floor) == pytest.approx(1.0)


def test_schedules_by_literal_numbers() -> None:
    """Half-way: cosine and linear are at one half, the trapezoid is still at the top."""
    assert SCHEDULES["cosine"](0.5) == pytest.approx(0.5)
    assert SCHEDULES["linear"](0.25) == pytest.approx(0.75)
    assert SCHEDULES["trapezoid"](0.5) == 1.0
    assert SCHEDULES["trapezoid"](0.85) == pytest.approx(0.5)
    assert rate_at(1.0, "cosine", 0.1, 0.1) == pytest.approx(0.1)
    assert rate_at(0.05, "linear", 0.1, 0.0) == pytest.approx(0.5)
    assert math.isclose(rate_at(0.55, "linear", 0.1, 0.0), 0.5)


def checkpoint(step: int, identity: str = "a") -> Checkpoint:
    return Checkpoint(step, 1.5 * step, {"w": torch.full((3,), float(step))}, identity)


def test_the_newest_two_checkpoints_are_kept(tmp_path: Path) -> None:
    """Older ones go only after a newer one is whole."""
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, checkpoint(step))
    assert sorted(place.name for place in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]
    found = read_checkpoint(tmp_path, "a")
    assert found is not None
    assert (found.step, found.seconds, found.tensors["w"].tolist()) == (3, 4.5, [3.0] * 3)


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "delete"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, name: str, damage: str) -> None:
    """Where the newest is hurt, the one before it is taken."""
    for step in (1, 2):
        write_checkpoint(tmp_path, checkpoint(step))
    file = tmp_path / "step-00000002" / name
    data = bytearray(file.read_bytes())
    if damage == "delete":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(data[:-3])
    else:
        data[-2] ^= 0xFF
        file.write_bytes(data)
    found = read_checkpoint(tmp_path, "a")
    assert found is not None
    assert found.step == 1


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    """Other data or settings never go on from it."""
    write_checkpoint(tmp_path, checkpoint(1))
    with pytest.raises(CheckpointError, match="other data, tokenizer or settings"):
        read_checkpoint(tmp_path, "b")


def test_a_torn_metrics_line_is_dropped(tmp_path: Path) -> None:
    """A kill in the middle of a line loses that line only."""
    file = tmp_path / "metrics.jsonl"
    file.write_text(json.dumps({"step": 10}) + "\n" + '{"step": 2')
    assert read_metrics(file) == [{"step": 10}]


def test_weights_that_are_no_numbers_are_never_kept(tmp_path: Path) -> None:
    """A loss that breaks between two log lines is noticed before a checkpoint is written."""
    model = make_language_model()

    def spoil(step: int) -> list[Batch]:
        if step == 3:
            with torch.no_grad():
                model.backbone.embedding.weight.fill_(float("nan"))
        return [ragged_batch(step)]

    with pytest.raises(ModelError, match="the loss became nan at step 4"):
        train(model, work(batches=spoil), TrainConfig(checkpoint_every=1), tmp_path)
    found = read_checkpoint(tmp_path / "checkpoints", "a")
    assert found is not None
    assert found.step == 3
    assert all(tensor.isfinite().all() for tensor in found.tensors.values())


def test_a_busy_machine_is_told_with_the_threads_that_would_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads beside a busy core wait for each other; one thread has a core of its own, and nothing is said."""
    monkeypatch.setattr(device, "_allowed", lambda: {0, 1})
    ticks = iter([(0, 0), (20, 10), (20, 10), (40, 20), (40, 20), (60, 40)])  # all, idle: half of them busy, twice, then none
    monkeypatch.setattr(device, "_ticks", lambda: next(ticks))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert "keep 1.0 of 2 cores busy, and this one runs 2 threads" in str(device.busy())
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert device.busy() is None
    assert device.used_by_others() == 0


def test_busy_cores_are_counted_where_the_system_tells() -> None:
    """Never fewer than none, nor more than there are."""
    assert 0 <= device.used_by_others(0.05) <= len(device._allowed())
