"""A bundle cannot lose, exchange or damage anything unnoticed, and proves itself before it takes its place."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers.bundles import HEAD_CASES
from helpers.models import make_backbone, make_language_model
from warmstart.cli import main
from warmstart.errors import BundleError, ModelError, StorageError, UncheckedWarning
from warmstart.heads import HEADS
from warmstart.heads.classification import ClassificationHeadConfig
from warmstart.heads.head import HeadConfig
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.model import files as bundle_file
from warmstart.model.bundle import Bundle
from warmstart.model.checks import faults, run_checks
from warmstart.model.files import load_bundle, read_selftest, save
from warmstart.model.history import OtherRecord
from warmstart.model.model import Model, fresh_head, parameter_counts, swap_head
from warmstart.tokenizer.tokenizer import Tokenizer


def make_bundle(tokenizer: Tokenizer, head: HeadConfig, *, causal: bool = True) -> Bundle:
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    model = Model(backbone, fresh_head(head, backbone, 0), causal=causal)
    return Bundle(model, tokenizer, tuple("abc") if hasattr(head, "classes") else ())


@pytest.fixture(scope="module")
def saved(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved classifier."""
    folder = tmp_path_factory.mktemp("bundle") / "whole"
    return save(make_bundle(tokenizer, ClassificationHeadConfig(classes=3)), folder)


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may hurt."""
    place = tmp_path / "copy"
    place.mkdir()
    for file in saved.iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    return place


@pytest.mark.parametrize("head", HEAD_CASES, ids=str)
def test_every_head_comes_back_with_the_same_outputs(tokenizer: Tokenizer, head: HeadConfig, tmp_path: Path) -> None:
    """Save, load, self-test: the same logits to the bit, the same tokenizer, labels and history."""
    before = replace(make_bundle(tokenizer, head), history=(OtherRecord(name="test", details={"kept": [1, 2]}),))
    after = load_bundle(save(before, tmp_path / "b"), selftest=True)
    ids = torch.tensor([[5, 9, 2, 7]])
    with torch.no_grad():
        assert torch.equal(before.model(ids), after.model(ids))
    assert after.tokenizer.digest == tokenizer.digest
    assert (after.labels, after.history, after.model.causal) == (before.labels, before.history, before.model.causal)


def test_every_registered_head_is_tested() -> None:
    """A new head joins the cases above."""
    assert {case.kind for case in HEAD_CASES} == set(HEADS)


def test_saving_really_reloads_in_a_fresh_process(saved: Path) -> None:
    """The fixture's save ran it; nothing temporary is left beside the bundle."""
    assert sorted(file.name for file in saved.iterdir()) == [
        "README.md", "bundle.json", "selftest.safetensors", "tokenizer.json", "weights.safetensors",
    ]  # fmt: skip
    assert [place.name for place in saved.parent.iterdir()] == ["whole"]


def test_saving_runs_no_file_of_the_current_folder(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``random.py`` lying where the user stands is not imported by the process that checks the model."""
    (tmp_path / "random.py").write_text("raise SystemExit('executed')")
    (tmp_path / "torch.py").write_text("raise SystemExit('executed')")
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
    monkeypatch.setattr("warmstart.model.files.run_python", no_process)
    with pytest.warns(UncheckedWarning, match="no process could be started"):
        save(load_bundle(saved), tmp_path / "again")


def no_process(*_arguments: str) -> None:
    raise BlockingIOError(11, "Resource temporarily unavailable")


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


@pytest.mark.parametrize("name", ["bundle.json", "selftest.safetensors", "tokenizer.json", "weights.safetensors"])
@pytest.mark.parametrize("damage", ["delete", "cut", "flip", "empty"])
def test_hurting_any_file_makes_loading_fail(copy: Path, name: str, damage: str) -> None:
    """The error names the file."""
    file = copy / name
    data = bytearray(file.read_bytes())
    if damage == "delete":
        file.unlink()
    elif damage == "flip":
        data[len(data) // 2] ^= 0x10
        file.write_bytes(data)
    else:
        file.write_bytes(data[: len(data) // 2] if damage == "cut" else b"")
    with pytest.raises(BundleError, match=r"copy"):
        load_bundle(copy)


def names_of(folder: Path) -> list[str]:
    return sorted(load_file(folder / "weights.safetensors"))


@pytest.mark.parametrize("damage", ["delete", "permute", "change", "rename", "reshape"])
def test_hurting_any_tensor_makes_loading_fail_and_names_it(copy: Path, damage: str) -> None:
    """Every single tensor is guarded, also in a file that is otherwise valid."""
    whole = load_file(copy / "weights.safetensors")
    for name, tensor in whole.items():
        hurt = dict(whole)
        if damage == "delete":
            del hurt[name]
        elif damage == "rename":
            hurt[f"{name}_"] = hurt.pop(name)
        elif damage == "reshape":
            hurt[name] = tensor.flatten()[None].clone()
        elif damage == "permute":
            if tensor.unique().numel() < 2:
                continue  # all values alike: turning it round changes nothing
            hurt[name] = tensor.flip(0).clone() if tensor.ndim == 1 else tensor.flip(0, 1).contiguous().clone()
        else:
            hurt[name] = tensor.clone()
            hurt[name].view(-1)[0] += 1e-3
        save_file(hurt, copy / "weights.safetensors")
        with pytest.raises(BundleError, match=name.replace(".", r"\.")):
            load_bundle(copy)


def test_exchanging_two_tensors_is_noticed(copy: Path) -> None:
    """Two blocks' weights have the same shapes; their places are guarded too."""
    tensors = load_file(copy / "weights.safetensors")
    one, two = (f"backbone.blocks.{i}.attention.qkv.weight" for i in (0, 1))
    tensors[one], tensors[two] = tensors[two].clone(), tensors[one].clone()
    save_file(tensors, copy / "weights.safetensors")
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


def test_saving_over_something_else_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """A folder with other files is never replaced."""
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(BundleError, match="exists and is not a bundle"):
        save(make_bundle(tokenizer, LMHeadConfig()), tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_a_full_disk_leaves_the_old_bundle(copy: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to do; the old bundle still loads; nothing half-written stays."""

    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(StorageError, match=r"No space left on device; free some space"):
            save(make_bundle(tokenizer, LMHeadConfig()), copy)
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
        save(make_bundle(tokenizer, LMHeadConfig()), tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_that_does_not_fit_the_weights_is_refused(tokenizer: Tokenizer) -> None:
    """The error names both sizes."""
    with pytest.raises(ModelError, match=rf"tokenizer has {tokenizer.vocab_size} tokens, but the backbone's embedding has 60"):
        Bundle(make_language_model(), tokenizer)


def test_labels_must_match_the_head(tokenizer: Tokenizer) -> None:
    """The error names both numbers."""
    model = make_bundle(tokenizer, ClassificationHeadConfig(classes=3)).model
    with pytest.raises(ModelError, match="head has 3 classes, but got 2 label names"):
        Bundle(model, tokenizer, ("a", "b"))


def test_no_folder_no_bundle(tmp_path: Path) -> None:
    """The errors say what was expected."""
    with pytest.raises(BundleError, match="there is no bundle at"):
        load_bundle(tmp_path / "nothing")
    with pytest.raises(BundleError, match="not a bundle, or its bundle.json is missing"):
        load_bundle(tmp_path)


def test_swapping_the_head_keeps_the_backbone_itself() -> None:
    """The very same object, and the parameters add up part by part."""
    model = make_language_model()
    swapped = swap_head(model, ClassificationHeadConfig(classes=3), seed=0)
    assert swapped.backbone is model.backbone
    counts = parameter_counts(swapped)
    assert counts["embedding"] == 60 * 16
    assert counts["head"] == 3 * 16 + 3
    assert counts["total"] == sum(p.numel() for p in swapped.parameters()) == sum(counts.values()) - counts["total"]


def test_a_tied_head_is_saved_once() -> None:
    """Its weight is the embedding; a free head's is its own."""
    tied = make_language_model()
    assert not any(name.startswith("head.") for name in tied.weights())
    free = swap_head(tied, LMHeadConfig(tied=False), seed=0)
    assert "head.weight" in free.weights()
    assert parameter_counts(tied)["head"] == 0
    assert parameter_counts(free)["head"] == 60 * 16


def test_a_model_of_nans_is_not_whole(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Outputs that are no numbers equal nothing, not even themselves: such a model is never saved."""
    bundle = make_bundle(tokenizer, LMHeadConfig())
    with torch.no_grad():
        bundle.model.backbone.embedding.weight.fill_(float("nan"))
    with pytest.raises(BundleError, match=r"5,216 numbers in the weights are nan or infinite \(finite\)"):
        save(bundle, tmp_path / "b")
