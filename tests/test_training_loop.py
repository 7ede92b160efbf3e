"""The training loop: exact resume, accumulation and budgets; checkpoints, schedules, compiled steps, and draws from seeds."""

from __future__ import annotations

import itertools
import math
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.models import make_language_model
from helpers.training import KilledError, job, killed_at, ragged_batch
from warmstart.commands.settings import PretrainConfig
from warmstart.errors import CheckpointError, ConfigError, ModelError
from warmstart.model.model import Model
from warmstart.seeding import derive, rng, seed_torch
from warmstart.training import loop
from warmstart.training.arithmetic import Arithmetic, check_compiler
from warmstart.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from warmstart.training.config import SCHEDULES, TrainConfig, learning_rate_factor
from warmstart.training.log import MetricsLog, read_metrics
from warmstart.training.loop import train
from warmstart.training.muon import Muon
from warmstart.training.optimizers import Optimizer, ParameterGroup
from warmstart.types import Batch


def groups_of(model: Model, *, late: bool) -> list[ParameterGroup] | None:
    """The lower block stays frozen for half of the run; None: all trains alike."""
    lower, rest = dict[str, torch.nn.Parameter](), dict[str, torch.nn.Parameter]()
    for name, parameter in model.named_parameters():
        (lower if ".blocks.0." in name else rest)[name] = parameter
    return [ParameterGroup(lower, schedule=lambda progress: float(progress > 0.5)), ParameterGroup(rest, 0.5)] if late else None


@pytest.mark.parametrize(
    ("optimizer", "stop", "late"),
    [("adamw", 5, False), ("muon", 1, False), ("muon", 11, False), ("adamw", 3, True), ("muon", 8, True)],
)
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, optimizer: str, stop: int, late: bool) -> None:
    """Killed after any step and resumed, the weights are those of a run that was never stopped; with dropout and frozen groups."""
    config = TrainConfig(optimizer=optimizer, checkpoint_every=1, learning_rate=0.01)

    def run(model: Model, folder: Path | None = None, stop: int | None = None) -> Model:
        train(model, job(batches=killed_at(stop), groups=groups_of(model, late=late)), config, folder)
        return model

    whole = run(make_language_model(dropout=0.2))
    with pytest.raises(KilledError):
        run(make_language_model(dropout=0.2), tmp_path, stop)
    resumed = run(make_language_model(seed=1, dropout=0.2), tmp_path)  # other weights: all must come from the checkpoint
    for name, tensor in whole.weights().items():
        assert torch.equal(tensor, resumed.weights()[name]), name
    steps = [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")]
    assert steps == sorted({*steps})


def test_a_run_that_goes_on_with_other_threads_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, and again if the number changes back: each checkpoint has that of the steps before it."""
    before, said = torch.get_num_threads(), list[bool]()
    try:
        for threads, steps in ((1, 2), (1, 4), (2, 6), (2, 8), (1, 10)):
            torch.set_num_threads(threads)
            train(make_language_model(), job(steps=steps), TrainConfig(), tmp_path)
            said.append("threads, so its last digits" in " ".join(capsys.readouterr().err.split()))
    finally:
        torch.set_num_threads(before)
    assert said == [False, False, True, False, True]


def test_a_resumed_run_keeps_its_arithmetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever another machine, or this one a day later, would choose."""
    recorded, used = Arithmetic("bfloat16", "onednn"), list[Arithmetic]()
    for chosen, steps in ((recorded, 2), (Arithmetic("float32", "default"), 4)):
        monkeypatch.setattr(Arithmetic, "choose", lambda *_, chosen=chosen: chosen)
        train(make_language_model(), job(steps=steps), TrainConfig(), tmp_path)
        monkeypatch.setattr(Arithmetic, "use", lambda self, device: used.append(self) or nullcontext())
    assert used == [recorded] * 2


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


def test_training_lowers_the_loss() -> None:
    """Both optimisers learn a batch by heart."""
    for optimizer in ("adamw", "muon"):
        config = TrainConfig(optimizer=optimizer, learning_rate=0.01)
        out = train(make_language_model(init_std=0.02), job(80, batches=lambda _: [ragged_batch(0)]), config)
        assert out.log[-1]["loss"] < out.log[0]["loss"] / 2, optimizer
        assert out.tokens == 80 * int(ragged_batch(0).attention_mask.sum())


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path) -> None:
    """The error names the step and what to do; one that breaks between two log lines is noticed before a checkpoint is written."""
    model, fresh = make_language_model(), make_language_model()

    def spoil(step: int) -> list[Batch]:
        if step == 3:
            with torch.no_grad():
                model.backbone.embedding.weight.fill_(float("nan"))
        return [ragged_batch(step)]

    with pytest.raises(ModelError, match="the loss became nan at step 4"):
        train(model, job(batches=spoil), TrainConfig(checkpoint_every=1), tmp_path)
    found = read_checkpoint(tmp_path / "checkpoints", "a")
    assert found.step == 3
    assert all(tensor.isfinite().all() for tensor in found.tensors.values())
    with torch.no_grad():
        fresh.backbone.embedding.weight.fill_(float("nan"))
    with pytest.raises(ModelError, match=r"the loss became nan at step 10; lower the learning rate \(now 0.001\)"):
        train(fresh, job(), TrainConfig())


SHAPES = ((12, 8), (8, 8), (12, 8), (8, 20), (8, 8), (12, 8))  # of matrices, some of which are alike


def muon_steps(numbers: Sequence[int], make: Callable[..., torch.optim.Optimizer] = Muon) -> list[torch.Tensor]:
    """The matrices of these numbers after four steps together; the second has no gradient in the first step."""
    matrices = [torch.nn.Parameter(torch.from_numpy(rng(0, "matrix", n).normal(size=SHAPES[n])).float()) for n in numbers]
    optimizer = make([{"params": matrices, "lr": 0.1}], weight_decay=0.1, momentum=0.95)
    for step in range(4):
        for number, matrix in zip(numbers, matrices, strict=True):
            gradient = torch.from_numpy(rng(step, "gradient", number).normal(size=SHAPES[number])).float()
            matrix.grad = None if (step, number) == (0, 1) else gradient
        optimizer.step()
    return [matrix.detach() for matrix in matrices]


def test_muon_steps_for_matrices_together_as_for_each_alone() -> None:
    """Those of one shape are multiplied in one product."""
    alone = [matrix for number in range(6) for matrix in muon_steps([number])]
    torch.testing.assert_close(muon_steps(range(6)), alone, atol=1e-6, rtol=0)


def test_muon_evens_out_the_rows_of_torchs_muon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without that its steps are torch's; with it they are as long, and the rows move alike."""
    evened = Muon([{"params": []}], 0, 0)._even([torch.nn.Parameter(torch.zeros(12, 8))], changes := torch.randn(1, 12, 8))
    assert evened.norm() == pytest.approx(float(changes.norm()), rel=1e-5)
    torch.testing.assert_close(evened[0].norm(dim=1), evened[0].norm(dim=1).mean().expand(12))
    monkeypatch.setattr(Muon, "_even", lambda self, matrices, changes: changes)
    torch.testing.assert_close(muon_steps(range(6)), muon_steps(range(6), torch.optim.Muon), atol=1e-6, rtol=0)


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


def test_a_resumed_log_says_what_was_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checkpoint knows the lines before it; what follows it, and a line that was cut short, goes; everything else stays."""
    monkeypatch.chdir(tmp_path)
    lost = "metrics.jsonl is damaged: lines before step 1 are lost or changed"
    for before, lines, message in (
        (b'{"step": 1, "loss": 2.5}\n{"step": 2, "loss"', 1, "the last line of metrics.jsonl was cut short, and is removed"),
        (b'{"step": 1, "loss": 2.5}\n{"step": 9}\n', 1, ""),
        (b'{"step": 1, "loss": 2.4}\n', 1, lost),
        (b'{"step": 1, "lo\xff"\n', 0, lost),
        (b'{"step": "x"}\n[]\n7\n', 0, lost),
    ):
        Path("metrics.jsonl").unlink(missing_ok=True)
        (log := MetricsLog(Path())).add({"step": 1, "loss": 2.5})
        Path("metrics.jsonl").write_bytes(before)
        resumed = MetricsLog(Path(), 1, log.digest())
        assert len(resumed.rows) == lines, before
        resumed.add({"step": 2})
        assert read_metrics(Path("metrics.jsonl")) == [*resumed.rows[:-1], {"step": 2}], before
        assert message in " ".join(capsys.readouterr().err.split()), before


def checkpoint(step: int, identity: str = "a") -> Checkpoint:
    return Checkpoint(step, 1.5 * step, {"w": torch.full((3,), float(step))}, identity, Arithmetic("bfloat16", "onednn"))


def test_a_short_run_writes_one_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an interval in the settings they are a minute apart; the last step always has one, and the log is the same."""
    written, logs = list[int](), list[list[int]]()
    monkeypatch.setattr(loop, "save_checkpoint", lambda folder, state: written.append(state.step))
    for seconds, expected in ((60.0, [20]), (0.0, [*range(2, 21, 2)])):
        (tmp_path / str(seconds)).mkdir()
        monkeypatch.setattr(loop, "FIRST_CHECKPOINT", seconds)
        monkeypatch.setattr(loop, "CHECKPOINT_SHARE", 1e9)
        written.clear()
        logs.append([row["step"] for row in train(make_language_model(), job(20), TrainConfig(), tmp_path / str(seconds)).log])
        assert written == expected
    assert logs[0] == logs[1]


def test_the_newest_two_checkpoints_are_kept(tmp_path: Path) -> None:
    """Older ones go only after a newer one is whole; other data or settings never go on from them."""
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, checkpoint(step))
    assert sorted(place.name for place in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]
    found = read_checkpoint(tmp_path, "a")
    assert (found.step, found.seconds, found.tensors["w"].tolist()) == (3, 4.5, [3.0] * 3)
    assert found.arithmetic == Arithmetic("bfloat16", "onednn")
    with pytest.raises(CheckpointError, match="a run with other data, another tokenizer or other settings"):
        read_checkpoint(tmp_path, "b")


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    """Where the newest is gone, empty or cut, the one before it is taken."""
    for step in (1, 2):
        write_checkpoint(tmp_path, checkpoint(step))
    for name in ("tensors.safetensors", "state.json"):
        file = tmp_path / "step-00000002" / name
        data = file.read_bytes()
        for hurt in (None, b"", data[:-3]):
            file.unlink() if hurt is None else file.write_bytes(hurt)
            found = read_checkpoint(tmp_path, "a")
            assert (found.step, found.seconds, found.tensors["w"].tolist()) == (1, 1.5, [1.0] * 3), (name, hurt)
        file.write_bytes(data)


def test_damaged_checkpoints_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is passed over; where all are damaged, nothing starts over in silence. The next one written replaces them."""
    for step in (1, 2):
        write_checkpoint(tmp_path, checkpoint(step))
    (tmp_path / "step-00000002" / "state.json").write_text("{}")
    assert read_checkpoint(tmp_path, "a") is not None
    assert "step-00000002 is damaged and is passed over" in "".join(capsys.readouterr().err.split("\n"))
    (tmp_path / "step-00000001").rename(tmp_path / "step-00000009")  # a step that its state does not have
    with pytest.raises(CheckpointError, match="every checkpoint in .* is damaged; restore one from a copy, or start a new run"):
        read_checkpoint(tmp_path, "a")
    write_checkpoint(tmp_path, checkpoint(3))
    assert sorted(place.name for place in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]


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
    with pytest.raises(KilledError):
        train(killed, job(batches=killed_at(7), compile=tuple(killed.backbone.blocks)), config, tmp_path)
    train(resumed, job(compile=tuple(resumed.backbone.blocks)), config, tmp_path)
    for name, tensor in whole.weights().items():
        assert torch.equal(tensor, resumed.weights()[name]), name
    assert all("forward" not in block.__dict__ for block in whole.backbone.blocks)


def test_what_cannot_be_compiled_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no C++ compiler is found the message says what to install; minutes would be spent on compiling."""
    monkeypatch.setenv("CXX", "/nowhere/c++")
    from torch._inductor import config

    with config.patch({"cpp.cxx": (None, "/nowhere/c++")}), pytest.raises(ConfigError, match=r"install g\+\+"):
        check_compiler(torch.device("cpu"))
    with pytest.raises(ConfigError, match="name a budget in tokens"):
        PretrainConfig.build({"text": ["x"], "train": {"compile": True, "minutes": 1}})


@given(st.sampled_from(sorted(SCHEDULES)), st.floats(0, 1), st.floats(0, 0.9))
@settings(deadline=None)
def test_rates_stay_between_nothing_and_the_full_rate(schedule: str, progress: float, warmup: float) -> None:
    """Every schedule is a share of the full rate, and the highest at the end of the warm-up."""
    share = learning_rate_factor(progress, schedule, warmup)
    assert 0 <= share <= 1 + 1e-9
    assert learning_rate_factor(max(warmup, 1e-12), schedule, warmup) == pytest.approx(1.0)


def test_schedules_by_literal_numbers() -> None:
    """Half-way: cosine and linear are at one half, the trapezoid is still at the top."""
    assert SCHEDULES["cosine"](0.5) == pytest.approx(0.5)
    assert SCHEDULES["linear"](0.25) == pytest.approx(0.75)
    assert SCHEDULES["trapezoid"](0.5) == 1.0
    assert SCHEDULES["trapezoid"](0.85) == pytest.approx(0.5)
    assert learning_rate_factor(1.0, "cosine", 0.1) == pytest.approx(0.0)
    assert learning_rate_factor(0.05, "linear", 0.1) == pytest.approx(0.5)
    assert math.isclose(learning_rate_factor(0.55, "linear", 0.1), 0.5)


def test_draws_depend_on_the_seed_and_on_names_alone() -> None:
    """A stored run draws the same numbers in every later version, whatever was drawn before."""
    assert derive(0, "dropout", 7) == 7277878575559796213
    assert rng(0, "a", 1).integers(0, 10**9) == rng(0, "a", 1).integers(0, 10**9)
    assert len({derive(seed, name) for seed in range(20) for name in ("a", "b", "ab")}) == 60
    drawn = []
    for _ in range(2):
        seed_torch(0, "head")
        drawn.append(torch.randn(3))
    assert torch.equal(*drawn)
