"""Trackers show what metrics.jsonl says, once, and never stop a run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from helpers.bundles import language_bundle
from helpers.fake_trackers import FakeTrackio, FakeWandb, install
from helpers.tasks import cats
from warmstart.cli import main
from warmstart.model.files import save
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.log import read_metrics
from warmstart.training.trackers import SILENT, TRACKERS, Mirror, numbers

Fakes = tuple[FakeWandb, FakeTrackio]
TINY = ["--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--max-length", "32"]
QUICK = [*TINY, "--tokenizer.vocab-size", "330", "--tokenizer.sentinels", "8", "--batch", "4", "--steps", "20"]
ROWS: list[dict[str, Any]] = [{"step": 1, "loss": 3.0, "note": "x"}, {"step": 2, "loss": 2.5, "held_out": {"loss": 2.75}}]


def seen(name: str, folder: Path, fakes: Fakes, file_name: str = "run") -> dict[str, list[tuple[int, float]]]:
    """What a tracker shows of a training run: name -> steps and values."""
    if name in ("wandb", "trackio"):
        kept = json.loads((folder / name / f"{file_name}.json").read_text())["id"]
        return fakes[0].points[f"{folder}/{kept}"] if name == "wandb" else fakes[1].points(kept)
    if name == "tensorboard":
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        found = EventAccumulator(str(folder / "tensorboard" / ("" if file_name == "run" else file_name)))
        found.Reload()
        return {tag: [(one.step, one.value) for one in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=(folder / "mlruns").resolve().as_uri())
    runs = client.search_runs([client.get_experiment_by_name("warmstart").experiment_id])
    [run] = [one for one in runs if file_name == "run" or one.data.tags["warmstart.folder"].endswith(f"/{file_name}")]
    names = run.data.metrics
    return {tag: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, tag)] for tag in names}


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    """Recorders in the place of the heavy packages."""
    return install(monkeypatch)


@pytest.fixture(autouse=True)
def _no_store_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def test_a_tracker_shows_every_number_once(tmp_path: Path, fakes: Fakes) -> None:
    """By step; a resumed run, which repeats a step after a kill, goes on in the same place."""
    for name in TRACKERS:
        (folder := tmp_path / name).mkdir()
        for rows in (ROWS, [*ROWS[1:], {"step": 3, "loss": 2.0}]):
            with Mirror((name,), folder, {"train.batch": 4}).opened() as observe:
                for row in rows:
                    observe(row)
        assert seen(name, folder, fakes) == {"loss": [(1, 3.0), (2, 2.5), (3, 2.0)], "held_out/loss": [(2, 2.75)]}, name


def test_a_run_is_mirrored(text: Path, tmp_path: Path, fakes: Fakes) -> None:
    """All lines of metrics.jsonl, in every tracker; resuming a finished run with its settings adds nothing."""
    out = tmp_path / "lm"
    assert main(["pretrain", str(text), *QUICK, "--out", str(out), "--tracker", *TRACKERS]) == 0
    wanted: dict[str, list[tuple[int, float]]] = {}
    for row in read_metrics(out / "metrics.jsonl"):
        for key, value in numbers(row).items():
            wanted.setdefault(key, []).append((row["step"], pytest.approx(value, rel=1e-6)))
    assert {"loss", "held_out/loss"} <= wanted.keys()
    for name in TRACKERS:
        assert seen(name, out, fakes) == wanted
    before = json.dumps([seen(name, out, fakes) for name in TRACKERS])
    assert main(["pretrain", "--resume", str(out)]) == 0
    assert json.dumps([seen(name, out, fakes) for name in TRACKERS]) == before
    assert SILENT.items() <= os.environ.items()


def test_a_tracker_that_fails_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fakes: Fakes
) -> None:
    """It is named once, and the others go on."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "no-such-scheme://nowhere")
    with Mirror(("mlflow", "tensorboard"), tmp_path).opened() as observe:
        assert observe is not None
        for row in ROWS:
            observe(row)
    assert capsys.readouterr().err.count("mlflow gets no more of this run") == 1
    assert seen("tensorboard", tmp_path, fakes)["loss"] == [(1, 3.0), (2, 2.5)]


def test_a_missing_package_is_named(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is written; an unknown tracker too, and by default there is none."""
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    monkeypatch.delitem(__import__("sys").modules, "warmstart.training.trackers.mlflow", raising=False)
    out = tmp_path / "lm"
    assert main(["pretrain", str(text), *QUICK, "--out", str(out), "--tracker", "mlflow"]) == 2
    assert 'pip install "warmstart[mlflow]"' in capsys.readouterr().err
    assert main(["pretrain", str(text), *QUICK, "--out", str(out), "--tracker", "paper"]) == 2
    assert not out.exists()
    with Mirror((), tmp_path).opened() as observe:
        assert observe is None


def test_wandb_is_offline_and_keeps_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fakes: Fakes) -> None:
    """Whatever the environment says; the settings are its configuration, and another folder is another run."""
    monkeypatch.setenv("WANDB_MODE", "online")
    for folder in (tmp_path / "one", tmp_path / "two"):
        with Mirror(("wandb",), folder, {"train.batch": 4}).opened("pretrained, seed 0") as observe:
            assert observe is not None
            observe(ROWS[0])
    one, two = fakes[0].opened
    assert (one["mode"], one["project"], one["config"], one["group"]) == ("offline", "warmstart", {"train.batch": 4}, "one")
    assert (one["name"], two["name"]) == ("one: pretrained, seed 0", "two: pretrained, seed 0")
    assert one["id"] != two["id"]
    assert one["settings"] | {"save_code": False, "console": "off"} == one["settings"]


def test_every_training_run_of_adapt_is_mirrored(tmp_path: Path, tokenizer: Tokenizer, fakes: Fakes) -> None:
    """Each under its title, as the progress bar says it; the settings of trackers change nothing that a run depends on."""
    save(language_bundle(tokenizer), tmp_path / "lm")
    save_task(cats(), tmp_path / "task")
    out = tmp_path / "cats"
    quick = ["--scheme", "probe", "--seeds", "2", "--epochs", "2", "--no-scratch", "--no-baselines"]
    assert main(["adapt", str(tmp_path / "lm"), str(tmp_path / "task"), *quick, "--out", str(out), "--tracker", *TRACKERS]) == 0
    for seed in (0, 1):
        wanted, *others = (seen(name, out, fakes, f"pretrained-seed-{seed}") for name in TRACKERS)
        assert {"loss", "held_out/accuracy"} <= wanted.keys()
        for other in others:
            assert {key: [step for step, _ in points] for key, points in other.items()} == {
                key: [step for step, _ in points] for key, points in wanted.items()
            }
    assert {name for name, _ in fakes[1].names.values()} == {"cats: pretrained, seed 0", "cats: pretrained, seed 1"}
