"""The speed tables: whom we are timed against, by which clock, and how much work a step is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from benchmarks import training
from benchmarks.command import Measured
from benchmarks.harness import Clock, Spent, clock_note, clock_of, seconds_by
from benchmarks.limit import WAYS, bare, work
from benchmarks.speed_peers import nanogpt_file, transformers_modernbert
from benchmarks.table import origin
from benchmarks.training import PEERS, Size, batches, build, remarks
from torch.utils.flop_counter import FlopCounterMode

TINY = Size("tiny", 24, 2, 2, 36, 64, 16, 3)


def test_every_contender_takes_a_step() -> None:
    """Ours and all peers but nanoGPT, whose file is not here."""
    for objective, peers in PEERS.items():
        for name in ("warmstart", *peers):
            for precision in ("float32", "bfloat16") if name != "nanoGPT" else ():
                build(name, TINY, objective, precision)()


def test_nanogpt_is_left_out_where_its_file_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables say so; a path that does not exist is an error; a file is identified by its hash."""
    monkeypatch.delenv("NANOGPT", raising=False)
    assert remarks()[0] == "nanoGPT is left out: set NANOGPT to the path of its model.py."
    timed: list[str] = []
    monkeypatch.setattr(training, "time_in_turn", lambda contenders, rounds: timed.extend(contenders) or [])
    training.rows_of(TINY, "causal", "float32", 1)
    assert timed == [f"{name}, float32" for name in ("warmstart", "plain GPT", "GPT-2", "tutorial's backbone")]
    monkeypatch.setenv("NANOGPT", str(tmp_path / "model.py"))
    with pytest.raises(SystemExit, match="NANOGPT must be the path of nanoGPT's model.py, but there is no file"):
        nanogpt_file()
    (tmp_path / "model.py").write_text("")
    assert remarks()[0] == "nanoGPT's model.py: SHA-256 e3b0c44298fc."


def test_modernbert_has_as_many_weights_as_ours() -> None:
    """Its feed-forward has three matrices for our two, so they are two thirds as wide; it scores masked tokens only."""
    size = training.SMALL
    model = transformers_modernbert(*size.shape)
    batch = batches(size)["masked"]
    assert batch.targets is not None
    layer = model.model.layers[0].mlp
    assert layer.Wi.weight.numel() + layer.Wo.weight.numel() == pytest.approx(2 * size.width * size.inner, rel=0.01)
    with torch.inference_mode():
        assert len(model(input_ids=batch.ids[:1], labels=batch.targets[:1]).logits) == int((batch.targets[0] != -100).sum())


def test_the_products_alone_are_the_work_of_a_step() -> None:
    """As torch counts their operations."""
    for objective in PEERS:
        with FlopCounterMode(display=False) as counted:
            bare(WAYS[0], TINY, objective, "float32")()
        assert counted.get_total_flops() == work(TINY, batches(TINY)[objective])
        bare(WAYS[1], TINY, objective, "float32")()


def test_a_busy_machine_is_timed_by_the_processor() -> None:
    """One thread beside other programs; on an idle machine, and with several threads, seconds are those on the wall."""
    steps = [Spent(2.0, 1.0, 1), Spent(3.0, 1.1, 1)]
    assert seconds_by(clock_of([1.0, 0.5], steps), steps) == (1.0, 1.1)
    assert seconds_by(clock_of([0.1, 0.2], steps), steps) == (2.0, 3.0)
    for several in ([Spent(2.0, 1.0, 2)], [Spent(1.0, 1.9, 1)]):
        assert seconds_by(clock_of([1.0], several), several) == (several[0].wall,)


def test_the_line_under_a_table_says_what_disturbed_it() -> None:
    """Nothing, if the machine was idle."""
    idle, busy, several = Clock(0.1, True), Clock(1.64, False), Clock(1.2, True)
    assert clock_note([]) == clock_note([idle]) == ""
    assert clock_note([idle, busy]).startswith("seconds of processor time, because other programs used up to 1.6 of ")
    assert clock_note([busy, several]).startswith("seconds are unreliable: other programs used up to 1.6 of ")
    measured = [Measured({}, 60.0, "2026-11-22", "here", clock) for clock in ("", "disturbed")]
    assert origin("t", measured[:1]) == "here, 2026-11-22, 1.0 minutes, `python -m benchmarks t`"
    assert origin("t", measured[1:]) == "here, disturbed, 2026-11-22, 1.0 minutes, `python -m benchmarks t`"
