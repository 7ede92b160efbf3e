"""A bundle proves itself before it takes its place, and no damage goes unnoticed, not one flipped bit; so does every head."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from helpers.bundles import HEAD_CASES, bundle_with, checked_here, language_bundle
from helpers.models import make_backbone, make_language_model
from helpers.mutants import edit
from helpers.tasks import cats
from warmstart.adapters.registry import insert_adapter
from warmstart.adapters.settings import LoraConfig, ScalarMixConfig
from warmstart.app.models import ServedModel
from warmstart.cli import main
from warmstart.data.scorings import ScoringRun, read_ledger
from warmstart.errors import BundleError, ConfigError, ModelError, StorageError, UncheckedWarning, WarmstartError
from warmstart.estimators import TextClassifier, as_bundle
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.heads.pooled import POOLINGS
from warmstart.heads.registry import HEADS, head_config, make_head
from warmstart.heads.settings import LMHeadConfig
from warmstart.interop.load import load, load_model, load_predictor
from warmstart.model import bundle_files
from warmstart.model.bundle import Bundle
from warmstart.model.bundle_files import read_selftest
from warmstart.model.checks import faults, run_checks
from warmstart.model.files import load_bundle, save
from warmstart.model.history import Record
from warmstart.model.model import parameter_counts, swap_head
from warmstart.system.console import console
from warmstart.system.processes import started_python
from warmstart.tasks.load import load_task, save_task
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from warmstart.training.log import MetricsLog

MODULES_TO_PREDICT = 92


@pytest.fixture(scope="module")
def saved(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved classifier with adapters."""
    bundle = bundle_with(tokenizer, ClassificationHeadConfig(classes=3))
    insert_adapter(bundle.model.backbone, LoraConfig(rank=2), 0)
    insert_adapter(bundle.model.backbone, ScalarMixConfig(), 0)
    with checked_here():
        return save(bundle, tmp_path_factory.mktemp("bundle") / "whole")


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may hurt."""
    return Path(shutil.copytree(saved, tmp_path / "copy"))


PREDICT = """
import sys, warmstart
warmstart.predict(warmstart.load(sys.argv[1]), ["a text"])
print(sum(name.partition(".")[0] == "warmstart" for name in sys.modules))
"""


@pytest.mark.journeys
def test_predicting_loads_few_modules(saved: Path) -> None:
    """What reads tables and other formats, trains, draws and writes cards is not loaded to read a text."""
    run = subprocess.run([sys.executable, "-c", PREDICT, str(saved)], capture_output=True, text=True, check=True)
    assert int(run.stdout) <= MODULES_TO_PREDICT


@pytest.mark.journeys
def test_saving_runs_no_file_of_the_current_folder(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``random.py`` lying where the user stands is not imported by the process that checks the model."""
    for name in ("random.py", "torch.py"):
        (tmp_path / name).write_text("raise SystemExit('executed')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    assert load_bundle(save(load_bundle(saved), "again")).labels == load_bundle(saved).labels


def broken_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process cannot import torch."""
    (folder / "path").mkdir()
    (folder / "path" / "torch.py").write_text("raise ImportError('no torch in the second process')")
    monkeypatch.setenv("PYTHONPATH", str(folder / "path"))


def test_a_model_that_cannot_be_checked_is_kept_and_named(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the check failed, not the model: nothing is lost, and no message claims that it was checked."""
    broken_python(tmp_path, monkeypatch)
    with pytest.warns(UncheckedWarning, match=r"again is saved, but could not be checked .* no torch in the second process; run"):
        save(load_bundle(saved), tmp_path / "again")
    assert load_bundle(tmp_path / "again").labels == load_bundle(saved).labels

    def no_process(*_arguments: str) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("warmstart.system.processes.started_python", no_process)
    with pytest.warns(UncheckedWarning, match="no process could be started"):
        save(load_bundle(saved), tmp_path / "again")


def test_the_fresh_process_ends_with_a_save_that_fails(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts before the model is written, so that no time is lost; what is not written it does not wait for."""
    started, bundle = list[subprocess.Popen[str]](), load_bundle(saved)

    @contextmanager
    def noted(*arguments: str) -> Iterator[subprocess.Popen[str]]:
        with started_python(*arguments) as process:
            started.append(process)
            yield process

    monkeypatch.setattr("warmstart.system.processes.started_python", noted)
    with torch.no_grad():
        bundle.model.backbone.embedding.weight[0] = torch.nan
    with pytest.raises(BundleError, match="a model must be sound to be saved"):
        save(bundle, tmp_path / "again")
    assert [process.poll() is not None for process in started] == [True]


def test_a_command_that_saved_an_unchecked_model_ends_its_work_with_code_1(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pretraining writes its report all the same."""
    broken_python(tmp_path, monkeypatch)
    small = ["--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--tokenizer.vocab-size", "330"]
    assert main(["pretrain", str(text), "--out", str(tmp_path / "run"), "--steps", "1", *small]) == 1
    assert "could not be checked in a fresh process" in capsys.readouterr().err
    assert (tmp_path / "run" / "report.html").exists()
    assert load_bundle(tmp_path / "run" / "bundle")


def test_hurting_any_file_makes_loading_fail(copy: Path) -> None:
    """The error names the file."""
    for name in ("bundle.json", "selftest.safetensors", "tokenizer.json", "weights.safetensors"):
        data = (copy / name).read_bytes()
        middle = len(data) // 2
        for hurt in (None, b"", data[:middle], data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]):
            (copy / name).unlink() if hurt is None else (copy / name).write_bytes(hurt)
            with pytest.raises(BundleError, match=r"copy"):
                load_bundle(copy)
        (copy / name).write_bytes(data)


def test_hurting_any_tensor_makes_loading_fail_and_names_it(copy: Path) -> None:
    """Every single tensor is guarded, also in a file that is otherwise valid, and its place too."""
    file = copy / "weights.safetensors"
    whole = load_file(file)
    for name, tensor in whole.items():
        changed = tensor.clone()
        changed.view(-1)[0] += 1e-3
        turned = tensor.flip(0) if tensor.ndim <= 1 else tensor.flip(0, 1)
        rest = {other: value for other, value in whole.items() if other != name}
        for hurt in ({}, {f"{name}_": tensor}, {name: tensor.flatten()[None]}, {name: turned}, {name: changed}):
            if name in hurt and torch.equal(hurt[name], tensor):
                continue  # all values alike: turning it round changes nothing
            save_file({key: value.contiguous().clone() for key, value in (rest | hurt).items()}, file)
            with pytest.raises(BundleError, match=name.replace(".", r"\.")):
                load_bundle(copy)
    one, two = (f"backbone.blocks.{i}.attention.qkv.weight" for i in (0, 1))
    save_file(whole | {one: whole[two].clone(), two: whole[one].clone()}, file)
    with pytest.raises(BundleError, match=r"does not hold what was saved: .*blocks\.0\.attention\.qkv\.weight has changed; "):
        load_bundle(copy)


def test_an_edited_manifest_is_noticed(copy: Path) -> None:
    """Swapping two label names would swap all answers."""
    manifest = json.loads((copy / "bundle.json").read_text())
    manifest["labels"] = ["b", "a", "c"]
    (copy / "bundle.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match="damaged or was edited"):
        load_bundle(copy)


def test_a_model_whose_labels_changed_places_is_refused_at_every_door(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Though its hashes match: where it predicts, is served, loaded as an estimator or learned from; exit code 2, one message."""
    edit(copy, lambda manifest, tensors, spec: manifest.update(labels=["b", "c", "a"]))
    for door in (load_bundle, load, load_model, load_predictor, TextClassifier.load, ServedModel.open, as_bundle):
        with pytest.raises(BundleError, match="predictions, found by label name, differ from the stored ones"):
            door(str(copy))
    assert main(["predict", str(copy), "a text"]) == 2
    assert capsys.readouterr().err.count("fails its self-test") == 1


def test_the_self_test_notices_other_outputs(copy: Path) -> None:
    """Arithmetic that differs is a fault, with the size of the difference."""
    bundle = load_bundle(copy)
    with torch.no_grad():
        bundle.model.head.score.bias += 1.0
    found = faults(run_checks(bundle, read_selftest(copy), moment="load"))
    assert "outputs differ from the stored ones" in found[0]


def test_a_model_loads_where_products_are_rounded(copy: Path) -> None:
    """A caller's precision changes what it predicts, not whether it is what was saved."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            load_bundle(copy)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_what_is_no_bundle_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """A folder with other files is never replaced; a tokenizer or labels that do not fit are named, with both numbers."""
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(BundleError, match="exists and is not a bundle"):
        save(bundle_with(tokenizer, LMHeadConfig()), tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "mine"
    with pytest.raises(BundleError, match="there is no bundle at"):
        load_bundle(tmp_path / "nothing")
    with pytest.raises(BundleError, match="not a bundle, or its bundle.json is missing"):
        load_bundle(tmp_path)
    (tmp_path / "stack.json").write_text("{}")
    with pytest.raises(BundleError, match="is a stack of a format before 0.3.0; make it again, or use the version that wrote it"):
        load_bundle(tmp_path)
    with pytest.raises(ModelError, match=rf"tokenizer has {tokenizer.vocab_size} tokens, but the backbone's embedding has 60"):
        Bundle(make_language_model(), tokenizer)
    with pytest.raises(ModelError, match="head has 3 classes, but got 2 label names"):
        Bundle(bundle_with(tokenizer, ClassificationHeadConfig(classes=3)).model, tokenizer, ("a", "b"))


def test_a_full_disk_leaves_the_old_bundle(copy: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to do; the old bundle still loads; nothing half-written stays."""

    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(StorageError, match=r"No space left on device; free some space"):
            save(bundle_with(tokenizer, LMHeadConfig()), copy)
    assert load_bundle(copy).labels == ("a", "b", "c")
    assert [place.name for place in copy.parent.iterdir()] == ["copy"]


@pytest.mark.journeys
def test_a_bundle_that_does_not_reproduce_itself_is_not_put_in_place(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the stored outputs are wrong, the fresh process says so and the folder stays empty."""
    wrong = bundle_files.make_selftest

    def lie(bundle: Bundle) -> dict[str, torch.Tensor]:
        stored = wrong(bundle)
        return stored | {"answers": stored["answers"] + 1}

    monkeypatch.setattr(bundle_files, "make_selftest", lie)
    with pytest.raises(BundleError, match="does not reproduce itself in a fresh process.*outputs differ"):
        save(bundle_with(tokenizer, LMHeadConfig()), tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_swapping_the_head_keeps_the_backbone_itself() -> None:
    """The very same object, and the parameters add up part by part; a tied head is the embedding and saved once."""
    tied = make_language_model()
    swapped, free = swap_head(tied, ClassificationHeadConfig(classes=3), seed=0), swap_head(tied, LMHeadConfig(tied=False), seed=0)
    assert swapped.backbone is tied.backbone
    counts = parameter_counts(swapped)
    assert (counts["embedding"], counts["head"]) == (60 * 16, 3 * 16 + 3)
    assert counts["total"] == sum(p.numel() for p in swapped.parameters()) == sum(counts.values()) - counts["total"]
    assert not any(name.startswith("head.") for name in tied.weights())
    assert "head.weight" in free.weights()
    assert (parameter_counts(tied)["head"], parameter_counts(free)["head"]) == (0, 60 * 16)


def test_a_model_of_nans_is_not_whole(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Outputs that are no numbers equal nothing, not even themselves: such a model is never saved."""
    bundle = bundle_with(tokenizer, LMHeadConfig())
    with torch.no_grad():
        bundle.model.backbone.embedding.weight.fill_(float("nan"))
    with pytest.raises(BundleError, match=r"5,216 numbers in the weights are nan, infinite or not float32 \(finite\)"):
        save(bundle, tmp_path / "b")


STATES = torch.arange(24, dtype=torch.float32).view(2, 4, 3)
RIGHT = torch.tensor([[True, True, False, False], [True, True, True, True]])
LEFT = RIGHT.flip(1)


@pytest.mark.parametrize("kind", HEADS)
def test_every_head_keeps_its_contract(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Loaded again it gives the same logits to the bit."""
    cases = [case for case in HEAD_CASES if case.kind == kind]
    assert cases, "a new head joins HEAD_CASES"
    for number, config in enumerate(cases):
        history = (Record(command="test", settings={"kept": [1, 2]}),)
        before = replace(bundle_with(tokenizer, config, causal=number % 2 == 0), history=history)
        with checked_here():
            after = load_bundle(save(before, tmp_path / str(number)))
        with torch.no_grad():
            ids = torch.tensor([[5, 9, 2, 7]])
            assert torch.equal(before.model(ids), after.model(ids)), config
        assert after.tokenizer.digest == tokenizer.digest
        assert (after.labels, after.history, after.model.causal) == (before.labels, before.history, before.model.causal)


def test_padding_is_never_read() -> None:
    """Whatever padding holds, on either side, the pooled state is that of the real tokens alone."""
    for name, pooling in POOLINGS.items():
        for mask in (RIGHT, LEFT):
            pooled = pooling(torch.where(mask[..., None], STATES, 1e6), mask)
            for i in range(2):
                torch.testing.assert_close(pooled[i], pooling(STATES[i][mask[i]][None], None)[0], msg=name)


def test_poolings_by_literal_numbers() -> None:
    """First, last and mean of a two-token text."""
    assert POOLINGS["first"](STATES, RIGHT)[0].tolist() == [0, 1, 2]
    assert POOLINGS["last"](STATES, RIGHT)[0].tolist() == [3, 4, 5]
    assert POOLINGS["mean"](STATES, RIGHT)[0].tolist() == [1.5, 2.5, 3.5]
    assert POOLINGS["last"](STATES, LEFT)[0].tolist() == [9, 10, 11]


def test_a_tied_language_modeling_head_shares_the_embedding() -> None:
    """A tied head uses the embedding itself; an untied one has its own weight, and a bias if it is wanted."""
    backbone = make_backbone()
    tied = make_head(LMHeadConfig(), 16, backbone.embedding.weight)
    assert tied.weight is backbone.embedding.weight
    untied = make_head(LMHeadConfig(tied=False, bias=True), 16, backbone.embedding.weight)
    assert untied.weight is not backbone.embedding.weight
    assert untied(torch.zeros(1, 2, 16)).shape == (1, 2, 60)
    with pytest.raises(ModelError, match="the embedding must have width 8, but has shape"):
        make_head(LMHeadConfig(), 8, backbone.embedding.weight)


def test_settings_of_heads_are_checked() -> None:
    """Errors name unknown kinds, poolings and keys with the nearest known one."""
    with pytest.raises(ConfigError, match="unknown head 'clasification'; did you mean 'classification'"):
        head_config({"kind": "clasification"})
    with pytest.raises(ConfigError, match="unknown pooling 'maen'; did you mean 'mean'"):
        ClassificationHeadConfig(classes=2, pooling="maen")
    with pytest.raises(ModelError, match="must name its kind"):
        head_config({"classes": 2})
    with pytest.raises(ConfigError, match="unknown key 'pool'; did you mean 'pooling'"):
        head_config({"kind": "classification", "classes": 2, "pool": "mean"})


def test_the_classification_loss_is_summed() -> None:
    """It is a sum and not a mean, so that the losses of accumulated batches add up."""
    head = make_head(ClassificationHeadConfig(classes=3), 16, torch.zeros(60, 16))
    logits, targets = torch.randn(6, 3), torch.randint(0, 3, (6,))
    torch.testing.assert_close(head.loss(logits, targets), 6 * F.cross_entropy(logits, targets))


FLIPS = round(200 * float(os.environ.get("CHAOS", "1")))


def of_checkpoint(folder: Path, tokenizer: Tokenizer) -> Any:
    """Of two checkpoints the one that is resumed."""
    if not folder.exists():
        for step in (10, 90):
            write_checkpoint(folder, Checkpoint(step, 1.5 * step, {"w": torch.full((9,), float(step))}, "a", None, "b"))
    found = read_checkpoint(folder, "a")
    assert found
    return found.step, found.seconds, found.log_digest, found.tensors["w"].tolist()


def of_bundle(folder: Path, tokenizer: Tokenizer) -> Any:
    """Every weight, the tokenizer and the history."""
    if not folder.exists():
        save(language_bundle(tokenizer), folder)
    bundle = load_bundle(folder)
    weights = {name: tensor.tolist() for name, tensor in bundle.model.weights().items()}
    return weights, bundle.tokenizer.digest, bundle.labels, bundle.history


def of_log(folder: Path, tokenizer: Tokenizer) -> Any:
    """The lines before a checkpoint."""
    whole = MetricsLog(None)
    for step in (10, 20, 30):
        whole.add({"step": step, "loss": 1 / step, "held_out": {"loss": step / 7}})
    if not folder.exists():
        folder.mkdir()
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in whole.rows))
    return MetricsLog(folder, 30, whole.digest()).rows


def of_ledger(folder: Path, tokenizer: Tokenizer) -> Any:
    """How often a test split was scored, of a ledger that has no copy."""
    if not folder.exists():
        task = load_task(save_task(cats(), folder))
        for seed in range(3):
            ScoringRun(command="race").method(f"full {seed}", [seed]).record(task, seed)
        for file in folder.iterdir():
            if file.suffix == ".jsonl":
                file.rename(folder / "task.ledger.jsonl")
            else:
                file.unlink()
    found = read_ledger(replace(cats(), manifest=folder / "task.yaml"))
    for sentence in found.findings:
        console.print(sentence)
    return found.entries


READERS = (of_checkpoint, of_bundle, of_log, of_ledger)


@pytest.mark.chaos
def test_a_flipped_bit_changes_nothing_in_silence(tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    """Whichever it is."""
    for read in READERS:
        whole, place = (tmp_path / read.__name__ / name for name in ("whole", "place"))
        whole.parent.mkdir()
        expected, chance = read(whole, tokenizer), np.random.default_rng(0)
        for number in range(FLIPS):
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(whole, place)
            files = sorted(file for file in place.rglob("*") if file.is_file())
            file = files[number % len(files)]
            data = bytearray(file.read_bytes())
            bit = int(chance.integers(8 * len(data)))
            data[bit // 8] ^= 1 << bit % 8
            file.write_bytes(data)
            capsys.readouterr()
            try:
                found = read(place, tokenizer)
            except WarmstartError:
                continue
            assert found == expected or "damaged" in capsys.readouterr().err.lower(), f"bit {bit} of {file.relative_to(tmp_path)}"
