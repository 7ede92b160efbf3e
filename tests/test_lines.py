"""Whole lines of work, by command, and the names of all files and keys that they write; TensorBoard shows their metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.tensorboard import SummaryWriter

from helpers.bundles import bundle_with, language_bundle, unread_model
from helpers.models import SENTENCES
from helpers.settings import in_file
from helpers.tasks import cats
from warmstart.cli import main
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.model.files import load_bundle, save
from warmstart.objectives.registry import OBJECTIVES
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training import log as tensorboard
from warmstart.training.log import events_folder, numbers, read_metrics, shown

QUICK = [
    "--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--max-length", "64", "--batch", "4",
    "--tokenizer.vocab-size", "330", "--tokenizer.sentinels", "16",
]  # fmt: skip


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_by_command(objective: str, text: Path, tmp_path: Path) -> None:
    """It pretrains, its bundle is whole, and its held-out text can be evaluated again."""
    out, rows = tmp_path / "run", "packed" if list(OBJECTIVES).index(objective) % 2 else "documents"
    flags = ["--objective", objective, "--rows", rows, "--steps", "3", *QUICK]
    assert main(["pretrain", str(text), "--out", str(out), *flags]) == 0
    bundle = load_bundle(out / "bundle")
    assert bundle.language.objective.rows == rows
    assert all(np.isfinite(value) for value in bundle.history[-1].scores.values())
    assert main(["doctor", str(out)]) == 0
    assert main(["evaluate", str(out), str(text)]) == 0


def test_pretraining_goes_on_from_a_model(text: Path, tmp_path: Path) -> None:
    """``--init-from`` keeps tokenizer, backbone and language head, and the history names both trainings."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["pretrain", str(text), "--out", str(first), "--steps", "20", *QUICK]) == 0
    go_on = ["--init-from", str(first), "--steps", "20", "--objective", "hybrid", "--batch", "4"]
    assert main(["pretrain", str(text), "--out", str(second), *go_on]) == 0
    before, after = load_bundle(first / "bundle"), load_bundle(second / "bundle")
    assert after.tokenizer.digest == before.tokenizer.digest
    assert after.model.backbone.config == before.model.backbone.config
    assert [record.settings["objective"]["name"] for record in after.history] == ["causal", "hybrid"]
    assert after.history[1].scores["causal loss"] < before.history[0].scores["loss"]


def test_nothing_need_be_held_out_and_a_budget_in_tokens_is_kept(text: Path, tmp_path: Path) -> None:
    """Without held-out text there are no figures of it, as the report says; short documents do not count as full rows."""
    out = tmp_path / "run"
    flags = ["--tokens", "2000", "--rows", "documents", "--held-out", "none"]
    assert main(["pretrain", str(text), "--out", str(out), *flags, *QUICK]) == 0
    record = load_bundle(out / "bundle").history[-1]
    assert record.scores == {}
    assert 1600 < record.data[0].sizes["tokens"] < 2400
    assert not any("held_out" in json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines())
    assert "no text was held out" in (out / "report.html").read_text()


@pytest.mark.journeys
@pytest.mark.parametrize("names", [[], ["encoder"]])
def test_the_quickstart_in_small(names: list[str], tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two libraries' documentation, by words and with an encoder: a model that is whole, and what more labels bring to each."""
    encoders = tuple(str(save(bundle_with(tokenizer, EmbeddingHeadConfig()), tmp_path / name)) for name in names)
    monkeypatch.setattr("warmstart.commands.quickstart.command.encoders_for", lambda *_: (encoders, []))
    small = ["--labels", "32", "64", "--minutes", "0.2", "--packages", "sympy", "networkx"]
    for words, code in (("6400" if word == "64" else word for word in small), 2), (small, 0):  # what is refused leaves no folder
        assert main(["quickstart", "--out", str(tmp_path / "q"), *words]) == code
    page = (tmp_path / "q" / "report.html").read_text()
    assert [said in page for said in ("(words alone)", "(with an encoder)", "pretraining bought")] == [True, *[bool(names)] * 2]
    assert main(["doctor", str(tmp_path / "q")]) == 0


PAGE = (Path(__file__).parents[1] / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
NAMED = {name for span in re.findall(r"`([^`\n]+)`", PAGE) for name in re.split(r"[\s,]+", span)}
"""every word between backticks"""


def keys(file: Path) -> set[str]:
    """Of an object, or of the objects of all lines."""
    lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return {key for values in found for key in values}


def test_a_pretraining_run(tmp_path: Path) -> None:
    """Its log with its metrics, its model, its checkpoint, its tokens."""
    (tmp_path / "text.txt").write_text("\n\n".join(f"{sentence} {i}" for i in range(40) for sentence in SENTENCES))
    run = tmp_path / "run"
    words = ["--steps", "12", *in_file(train={"evaluate_every": 6}), "--out", str(run), *QUICK]
    assert main(["pretrain", str(tmp_path / "text.txt"), *words]) == 0
    assert keys(run / "metrics.jsonl") <= NAMED
    held_out = [
        line["held_out"] for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "held_out" in line
    ]
    assert {key for values in held_out for key in values} <= NAMED
    assert {file.name for file in (run / "bundle").iterdir()} <= NAMED
    assert keys(run / "bundle" / "bundle.json") <= NAMED
    for name in ("checkpoints", "text"):
        files = [file for file in (run / name).rglob("*") if file.is_file()]
        assert {file.name for file in files} <= NAMED
        assert {key for file in files if file.name == "index.json" for key in keys(file)} <= NAMED


@pytest.mark.usefixtures("no_pages")
def test_a_race(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files, the ledger of its test split, and a model that is no network."""
    monkeypatch.setattr("warmstart.model.files._fresh_reader", unread_model)
    manifest = save_task(cats(), tmp_path / "task")
    save(language_bundle(tokenizer), tmp_path / "lm")
    words = ["race", str(manifest), "--backbones", str(tmp_path / "lm"), "--schemes", "full", "--learning-rates", "0.01"]
    assert main([*words, "--seeds", "1", "--steps", "2", "--save", "NBSVM", "--out", str(tmp_path / "race")]) == 0
    assert {"runs.csv", "race.json", "run.json"} <= {file.name for file in (tmp_path / "race").iterdir()}
    assert keys(manifest.parent / "task.ledger.jsonl") <= NAMED
    files = [file for file in (tmp_path / "race" / "bundle").rglob("*") if file.is_file()]
    assert {file.name for file in files} <= NAMED
    assert keys(tmp_path / "race" / "bundle" / "bundle.json") <= NAMED


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
    assert main(["pretrain", str(text), *QUICK, "--steps", "20", "--out", str(out), "--tensorboard"]) == 0
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
    assert main(["pretrain", str(text), *QUICK, "--steps", "20", "--out", str(out), "--tensorboard"]) == 2
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
