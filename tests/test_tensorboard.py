"""TensorBoard shows what metrics.jsonl says, once, and never stops a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.utils.tensorboard import SummaryWriter

from helpers.bundles import language_bundle
from helpers.tasks import cats
from warmstart.cli import main
from warmstart.model.files import save
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training import tensorboard
from warmstart.training.log import read_metrics
from warmstart.training.tensorboard import events_folder, numbers, shown

TINY = ["--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--max-length", "32"]
QUICK = [*TINY, "--tokenizer.vocab-size", "330", "--tokenizer.sentinels", "8", "--batch", "4", "--steps", "20"]
ROWS: list[dict[str, Any]] = [{"step": 1, "loss": 3.0, "note": "x"}, {"step": 2, "loss": 2.5, "held_out": {"loss": 2.75}}]


def seen(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of the event files in a folder: name -> steps and values."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return {tag: [(point.step, point.value) for point in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_every_number_is_shown_once(tmp_path: Path) -> None:
    """By step; a resumed run, which repeats a step after a kill, goes on in the same place."""
    for rows in (ROWS, [*ROWS[1:], {"step": 3, "loss": 2.0}]):
        with shown(tmp_path) as show:
            for row in rows:
                show(row)
    assert seen(tmp_path) == {"loss": [(1, 3.0), (2, 2.5), (3, 2.0)], "held_out/loss": [(2, 2.75)]}


def test_pretraining_is_shown(text: Path, tmp_path: Path) -> None:
    """All lines of metrics.jsonl; resuming a finished run with its settings adds nothing."""
    out = tmp_path / "lm"
    assert main(["pretrain", str(text), *QUICK, "--out", str(out), "--tensorboard"]) == 0
    wanted: dict[str, list[tuple[int, float]]] = {}
    for row in read_metrics(out / "metrics.jsonl"):
        for key, value in numbers(row).items():
            wanted.setdefault(key, []).append((row["step"], pytest.approx(value, rel=1e-6)))
    assert {"loss", "held_out/loss"} <= wanted.keys()
    assert seen(out / "tensorboard") == wanted
    assert main(["pretrain", "--resume", str(out)]) == 0
    assert seen(out / "tensorboard") == wanted


def test_a_failure_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is named once."""

    def fail(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(SummaryWriter, "add_scalar", fail)
    with shown(tmp_path) as show:
        for row in ROWS:
            show(row)
    assert capsys.readouterr().err.count("TensorBoard gets no more of this run: no space left") == 1


def test_a_missing_package_is_named(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is written; by default nothing is shown."""
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    out = tmp_path / "lm"
    assert main(["pretrain", str(text), *QUICK, "--out", str(out), "--tensorboard"]) == 2
    assert '--tensorboard needs tensorboard; pip install "warmstart[tensorboard]"' in capsys.readouterr().err
    assert not out.exists()
    with shown(events_folder(out, wanted=False)) as show:
        assert show is None


def test_every_training_run_of_adapt_is_shown(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Each under its title, as the progress bar says it."""
    save(language_bundle(tokenizer), tmp_path / "lm")
    save_task(cats(), tmp_path / "task")
    out = tmp_path / "cats"
    quick = ["--scheme", "probe", "--seeds", "2", "--epochs", "2", "--no-scratch", "--no-baselines"]
    assert main(["adapt", str(tmp_path / "lm"), str(tmp_path / "task"), *quick, "--out", str(out), "--tensorboard"]) == 0
    for seed in (0, 1):
        assert {"loss", "held_out/accuracy"} <= seen(out / "tensorboard" / f"pretrained-seed-{seed}").keys()
