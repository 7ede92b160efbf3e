"""A bundle cannot lose, exchange or damage anything unnoticed, and proves itself before it takes its place."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers.bundles import bundle_with
from helpers.models import make_language_model
from warmstart.adapters import insert_adapter
from warmstart.adapters.lora import LoraConfig
from warmstart.adapters.scalar_mix import ScalarMixConfig
from warmstart.cli import main
from warmstart.errors import BundleError, ModelError, StorageError, UncheckedWarning
from warmstart.heads.classification import ClassificationHeadConfig
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.model import files as bundle_file
from warmstart.model.bundle import Bundle
from warmstart.model.checks import faults, run_checks
from warmstart.model.files import load_bundle, read_selftest, save
from warmstart.model.model import parameter_counts, swap_head
from warmstart.tokenizer.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def saved(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved classifier with adapters."""
    bundle = bundle_with(tokenizer, ClassificationHeadConfig(classes=3))
    insert_adapter(bundle.model.backbone, LoraConfig(rank=2), 0)
    insert_adapter(bundle.model.backbone, ScalarMixConfig(), 0)
    return save(bundle, tmp_path_factory.mktemp("bundle") / "whole")


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may hurt."""
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def test_saving_really_reloads_in_a_fresh_process(saved: Path) -> None:
    """The fixture's save ran it; nothing temporary is left beside the bundle."""
    assert sorted(file.name for file in saved.iterdir()) == [
        "README.md", "bundle.json", "selftest.safetensors", "tokenizer.json", "weights.safetensors",
    ]  # fmt: skip
    assert [place.name for place in saved.parent.iterdir()] == ["whole"]


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
    assert load_bundle(tmp_path / "again", selftest=True).labels == load_bundle(saved).labels

    def no_process(*_arguments: str) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("warmstart.model.files.run_python", no_process)
    with pytest.warns(UncheckedWarning, match="no process could be started"):
        save(load_bundle(saved), tmp_path / "again")


def test_a_command_that_saved_an_unchecked_model_ends_its_work_with_code_1(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pretraining writes its report all the same."""
    broken_python(tmp_path, monkeypatch)
    small = ["--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--tokenizer.vocab-size", "330"]
    assert main(["pretrain", str(text), "--out", str(tmp_path / "run"), "--steps", "1", *small]) == 1
    assert "could not be checked in a fresh process" in capsys.readouterr().err
    assert (tmp_path / "run" / "report.html").exists()
    assert load_bundle(tmp_path / "run" / "bundle", selftest=True)


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
    with pytest.raises(BundleError, match=r"blocks\.0\.attention\.qkv\.weight has changed; .*blocks\.1"):
        load_bundle(copy)


def test_an_edited_manifest_is_noticed(copy: Path) -> None:
    """Swapping two label names would swap all answers."""
    manifest = json.loads((copy / "bundle.json").read_text())
    manifest["labels"] = ["b", "a", "c"]
    (copy / "bundle.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match="damaged or was edited"):
        load_bundle(copy)


def test_the_self_test_notices_other_outputs(copy: Path) -> None:
    """A load whose arithmetic differs fails on request, with the size of the difference."""
    bundle = load_bundle(copy)
    with torch.no_grad():
        bundle.model.head.score.bias += 1.0
    found = faults(run_checks(bundle, read_selftest(copy), moment="load"))
    assert "outputs differ from the stored ones" in found[0]


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


def test_a_bundle_that_does_not_reproduce_itself_is_not_put_in_place(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the stored outputs are wrong, the fresh process says so and the folder stays empty."""
    wrong = bundle_file.make_selftest

    def lie(bundle: Bundle) -> dict[str, torch.Tensor]:
        stored = wrong(bundle)
        return stored | {"answers": stored["answers"] + 1}

    monkeypatch.setattr(bundle_file, "make_selftest", lie)
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
    with pytest.raises(BundleError, match=r"5,216 numbers in the weights are nan or infinite \(finite\)"):
        save(bundle, tmp_path / "b")
