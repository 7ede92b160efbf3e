"""Saved baselines and stacks: whole, checked, safe to open, and used by every command that a bundle is used by."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from helpers.bundles import language_bundle
from helpers.tasks import write_task
from warmstart.baselines import baselines_for
from warmstart.baselines.choice import fitted_baseline, run_baseline
from warmstart.cli import main
from warmstart.data.budget import label_budget
from warmstart.data.pool import task_pool
from warmstart.errors import BundleError, ModelError
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.interop.load import load, load_model
from warmstart.model import files, stack_files
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.bundle_files import bundle_contents
from warmstart.model.card import card
from warmstart.model.checks import faults
from warmstart.model.files import load_bundle, load_saved, save
from warmstart.model.fitted import FittedBaseline
from warmstart.model.folder import write_files
from warmstart.model.inference import embed
from warmstart.model.model import swap_head
from warmstart.model.readout import LinearReadout
from warmstart.model.rows import BackboneVectors, VectorRows, WordRows
from warmstart.model.selftest import SELFTEST_TEXTS
from warmstart.model.stack import Member, Stack
from warmstart.model.stack_checks import BASELINE_CHECK, run_stack_checks
from warmstart.system.processes import run_python
from warmstart.system.storage import sealed, sha256
from warmstart.tasks import TASK_TYPES
from warmstart.tasks import predict as predicting
from warmstart.tasks.load import load_task
from warmstart.tasks.predict import raw_predictions
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import SelectionName

UNSAVED = {"commonest tag of each word": "most frequent tag", "words and their neighbours": "a linear chain"}
"""the baselines that are never saved, and a part of the reason"""


@pytest.fixture(autouse=True)
def checked_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh process for each save costs seconds; a journey holds that it is really started."""
    if not request.node.get_closest_marker("journeys"):
        monkeypatch.setattr(files, "_fresh_reader", lambda: nullcontext(lambda place: load_saved(place) and None))


def vectors_of(tokenizer: Tokenizer) -> Bundle:
    """A tiny encoder."""
    bundle = language_bundle(tokenizer)
    return Bundle(swap_head(bundle.model, EmbeddingHeadConfig(normalize=False), 0), tokenizer)


def write_bundle(bundle: Bundle, folder: Path) -> Path:
    """A bundle on disk, without the check of a fresh process."""
    folder.mkdir()
    write_files(folder, bundle_contents(bundle))
    return folder


def make_stack(*readouts: float) -> Stack:
    """Linear models of three words, as different as their slopes."""
    words = WordRows(("a", "cat", "dog"), word_pairs=False, idf=np.array([1.0, 2.0, 2.0]))
    members = tuple(
        Member(f"model {i}", FittedBaseline(words, LinearReadout(slope * np.eye(3)[:, 1:], np.zeros(2))), i, i)
        for i, slope in enumerate(readouts, 1)
    )
    return Stack(members, "classification", ("cat", "dog"), calibration=Calibration(temperature=2.0))


LEAST = {"classification": 8, "multilabel": 7, "regression": 3}
"""so many baselines serve a task type at least; others 2"""


@pytest.mark.parametrize("type_name", TASK_TYPES)
def test_the_life_of_every_baseline(type_name: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Sixteen labels and a pool serve every task type; from its folder a baseline predicts what was scored, or says why not."""
    encoder, task = vectors_of(tokenizer), load_task(write_task(tmp_path / "task", type_name))
    selection: SelectionName = "holdout" if type_name == "multilabel" else "cross-validation"  # five labels, five times, take long
    budget, scores = label_budget(task, 16, selection, 0), TASK_TYPES[type_name].scores
    pool, served = task_pool(task).without(budget).texts, baselines_for(task, pool=True, vectors=True)
    assert len(served) >= LEAST.get(type_name, 2)
    for name, baseline in served.items():
        why = UNSAVED.get(name, "always the" if name == "majority" and type_name not in ("classification", "multilabel") else "")
        run = run_baseline(
            replace(baseline, candidates=baseline.candidates[:2]), budget, pool, lambda inputs: embed(encoder, inputs).numpy()
        )
        for split, predictions in ((task.test, run.test), (budget.choosing, run.choosing)):
            assert len(predictions) == len(split), name
            assert scores(split, predictions, task).score(task.metric) >= -1, name
        if why:
            with pytest.raises(ModelError, match=f"nothing to save: .*{why}"):
                fitted_baseline(run, encoder)
            continue
        folder = save(Stack((Member(name, fitted_baseline(run, encoder)),), type_name, task.labels), tmp_path / name)
        found = raw_predictions(load(folder), task.test.texts)
        np.testing.assert_allclose(found, run.test, rtol=1e-6, atol=1e-6, err_msg=name)
        turned = raw_predictions(load(folder), task.test.texts[::-1])
        np.testing.assert_allclose(turned[::-1], run.test, rtol=1e-6, atol=1e-6, err_msg=name)
        names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        own = {"bundle.json", "README.md", "members/1/baseline.json", "members/1/arrays.safetensors"}
        assert {one for one in names if "backbone" not in one} == own, f"{name}: nothing else, and no pickle"
        assert baseline.needs_vectors == (folder / "backbones/1/bundle.json").is_file(), name


@pytest.mark.journeys
def test_a_saved_stack_predicts_the_same_in_a_new_process(tmp_path: Path) -> None:
    """And was checked in one when it was saved."""
    stack = make_stack(1.0, 3.0)
    folder, texts = save(stack, tmp_path / "saved"), ("a cat", "a dog, a cat", "", "nothing known")
    expected = raw_predictions(stack, texts)
    code = (
        "import json, warmstart as ws; found = ws.predict(ws.load(sys.argv[1]), json.loads(sys.argv[2]));"
        "print(json.dumps(found.probabilities.tolist()))"
    )
    run = run_python(code, str(folder), json.dumps(texts))
    assert run.returncode == 0, run.stderr
    np.testing.assert_allclose(json.loads(run.stdout), expected, atol=1e-12)


def test_a_stack_is_the_weighted_mean_of_calibrated_members() -> None:
    """Each with its temperature, weights 1 and 2; then the temperature of all together."""
    one, other = (1 / (1 + np.exp(-slope / temperature)) for slope, temperature in ((1.0, 1), (3.0, 2)))
    both = (one + 2 * other) / 3
    alone = raw_predictions(replace(make_stack(1.0, 3.0), calibration=None), ["cat"])
    assert alone == pytest.approx(np.array([[both, 1 - both]]))
    odds = np.sqrt(both / (1 - both))
    assert raw_predictions(make_stack(1.0, 3.0), ["cat"])[0, 0] == pytest.approx(odds / (1 + odds))


def test_an_encoder_that_several_members_read_is_saved_once_and_reads_a_text_once(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stack predicts the same from its folder, where the doctor names both readers of the encoder."""
    encoder, width = vectors_of(tokenizer), 16
    rows = VectorRows(BackboneVectors(encoder), np.zeros(width), np.ones(width))
    readouts = (LinearReadout(slope * np.eye(width)[:, :2], np.zeros(2)) for slope in (1.0, -2.0))
    members = (Member(f"reader {slope}", FittedBaseline(rows, readout)) for slope, readout in enumerate(readouts, 1))
    stack = Stack((*members, *make_stack(1).members), "classification", ("cat", "dog"))
    expected, folder = raw_predictions(stack, ["a cat", "a dog"]), save(stack, tmp_path / "stack")
    assert len([*folder.rglob("weights.safetensors")]) == 1
    loaded, read = load_saved(folder), list[int]()
    monkeypatch.setattr(predicting, "embed", lambda bundle, texts: (read.append(len(texts)), embed(bundle, texts))[1])
    np.testing.assert_allclose(raw_predictions(loaded, ["a cat", "a dog"]), expected, atol=1e-9)
    assert read == [2]
    assert {result.part for result in run_stack_checks(loaded, folder)} >= {"reader 1, reader 2"}


def reader_of(encoder: Bundle) -> Stack:
    """A stack of one baseline that reads the vectors of an encoder."""
    rows = VectorRows(BackboneVectors(encoder), np.zeros(16), np.ones(16))
    member = Member("reader", FittedBaseline(rows, LinearReadout(np.eye(16)[:, :2], np.zeros(2))))
    return Stack((member,), "classification", ("cat", "dog"))


def test_an_encoder_is_saved_with_a_stack_as_the_files_that_it_was_read_from(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are proved already, byte by byte, so nothing is made again; those of one that was trained since are made."""
    encoder = load_bundle(write_bundle(vectors_of(tokenizer), tmp_path / "encoder"))
    with monkeypatch.context() as patch:
        patch.setattr(stack_files, "bundle_contents", lambda _bundle: pytest.fail("made again"))
        folder = save(reader_of(encoder), tmp_path / "stack")
    for file in (tmp_path / "encoder").iterdir():
        assert file.read_bytes() == (folder / "backbones/1" / file.name).read_bytes(), file.name
    with torch.no_grad():
        encoder.model.backbone.embedding.weight += 0.01
    trained = reader_of(encoder)
    saved = load_saved(save(trained, tmp_path / "trained"))
    np.testing.assert_allclose(raw_predictions(saved, ["a cat"]), raw_predictions(trained, ["a cat"]), atol=1e-9)


@pytest.mark.parametrize("damaged", ["bundle.json", "tokenizer.json", "selftest.safetensors", "weights.safetensors"])
def test_files_of_an_encoder_that_were_damaged_since_it_was_read_are_not_taken(
    damaged: str, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """What is in memory is sound, and is saved."""
    file = write_bundle(vectors_of(tokenizer), tmp_path / "encoder") / damaged
    encoder = load_bundle(file.parent)
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    assert load_saved(save(reader_of(encoder), tmp_path / "stack"))


def test_an_encoder_that_reads_otherwise_than_its_files_is_not_saved(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Its weights are those of its files, but not what it does with them: the reload gives it away."""
    encoder = load_bundle(write_bundle(vectors_of(tokenizer), tmp_path / "encoder"))
    encoder.model.backbone.blocks[0].norm_first = not encoder.model.backbone.blocks[0].norm_first
    with pytest.raises(BundleError, match=r"members/1 fails its self-test"):
        save(reader_of(encoder), tmp_path / "stack")
    assert not (tmp_path / "stack").exists()


def test_members_must_predict_the_same_labels(tokenizer: Tokenizer) -> None:
    stack = make_stack(1.0)
    with pytest.raises(ModelError, match="must predict 3 columns, but 'model 1' predicts 2"):
        replace(stack, labels=("a", "b", "c"))
    with pytest.raises(ModelError, match=r"labels in the same order, \['cat', 'dog'\], but 'lm' has \[\]"):
        replace(stack, members=(Member("lm", language_bundle(tokenizer)),))
    with pytest.raises(ModelError, match="must have a member"):
        replace(stack, members=())


def test_damage_is_named(tmp_path: Path) -> None:
    """Whatever file is missing, cut, changed or exchanged, the error names it."""
    whole = save(make_stack(1.0, 3.0), tmp_path / "whole")
    stack, arrays, settings = "bundle.json", "members/1/arrays.safetensors", "members/2/baseline.json"
    for number, (name, content, message) in enumerate(
        (
            (arrays, None, "arrays.safetensors is missing; copy"),
            (arrays, b"", "it has 0 bytes instead of"),
            (arrays, (whole / arrays).read_bytes()[:-1] + b"x", "its hash is not the one in bundle.json"),
            (settings, (whole / settings).read_bytes().replace(b"cat", b"cow"), "its hash is not the one in bundle.json"),
            (stack, (whole / stack).read_bytes().replace(b"model 1", b"model 9"), "was edited"),
            (stack, b"[1]", "it must hold values by name, but holds list"),
            (stack, b"[" * 100_000, "it is nested too deeply"),
        )
    ):
        folder = tmp_path / str(number)
        shutil.copytree(whole, folder)
        (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
        with pytest.raises(BundleError, match=message):
            load(folder)
        assert main(["predict", str(folder), "a cat"]) == 2


def forged(folder: Path, change: Any) -> None:
    """Changes a stack and makes every hash right again, as a stranger could."""
    member = folder / "members" / "1"
    manifest = json.loads((folder / "bundle.json").read_text())
    settings, arrays = json.loads((member / "baseline.json").read_text()), load_file(member / "arrays.safetensors")
    change(manifest, settings, arrays)
    (member / "baseline.json").write_text(json.dumps(settings))
    save_file(arrays, member / "arrays.safetensors")
    for name, _ in manifest["members"][0]["files"].items():
        data = (member / name).read_bytes()
        manifest["members"][0]["files"][name] = [len(data), sha256(data)]
    manifest.pop("digest")
    (folder / "bundle.json").write_text(json.dumps(sealed(manifest)))


HOSTILE = {
    "float64 of shape": lambda _m, _s, a: a.update({"0.weights": np.zeros((3, 2), dtype=np.float32)}),
    "be float64 of shape \\[3\\]": lambda _m, _s, a: a.update(idf=np.ones(4)),
    "must hold finite numbers": lambda _m, _s, a: a.update({"0.weights": np.full((3, 2), np.nan)}),
    "must hold the array 0.bias": lambda _m, _s, a: a.pop("0.bias"),
    "must hold no other arrays": lambda _m, _s, a: a.update(extra=np.ones(1)),
    "must hold words, each once": lambda _m, s, _a: s.update(vocabulary=["a", "a", "b"]),
    "unknown key 'token_pattern'": lambda _m, s, _a: s.update(token_pattern="(a+)+"),
    "'rows' must be": lambda _m, s, _a: s.update(rows="pickle"),
    "must predict 1 columns": lambda m, _s, _a: m.update(labels=[]),
    "has format 99": lambda m, _s, _a: m.update(format=99),
    "'type' must be .* but is 'sorcery'": lambda m, _s, _a: m.update(type="sorcery"),
    "must be greater than 0": lambda m, _s, _a: m["members"][0].update(temperature=-1),
}


def test_a_forged_stack_is_refused(tmp_path: Path) -> None:
    """Hashes prove that nothing was damaged, not that it is right: shapes, numbers and names are checked too."""
    whole = save(make_stack(1.0), tmp_path / "saved")
    for number, (message, change) in enumerate(HOSTILE.items()):
        folder = shutil.copytree(whole, tmp_path / str(number))
        forged(folder, change)
        with pytest.raises(BundleError, match=message):
            load(folder)


def test_a_large_manifest_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(make_stack(1.0), tmp_path / "saved")
    monkeypatch.setattr("warmstart.model.folder.MANIFEST_BYTES", 100)
    with pytest.raises(BundleError, match=r"'bundle\.json' must have at most 100 bytes, but has"):
        load(folder)


def test_the_selftest_finds_other_outputs(tmp_path: Path) -> None:
    """Weights that are sound but not those that were saved."""
    folder = save(make_stack(1.0), tmp_path / "saved")
    forged(folder, lambda _m, _s, a: a.update(idf=np.array([1.0, 9.0, 2.0]), selftest=a["selftest"] + 0.1))
    with pytest.raises(BundleError, match="outputs, by label name, differ from the stored ones by 0.1"):
        load(folder)
    assert main(["doctor", str(folder)]) == 2


def test_what_is_no_saved_model_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("dear")
    with pytest.raises(BundleError, match="exists and is not a bundle"):
        save(make_stack(1.0), tmp_path / "mine")
    folder = save(make_stack(1.0), tmp_path / "saved")
    save(make_stack(2.0), folder)
    assert raw_predictions(load(folder), ["cat"])[0, 0] > 0.7


STACK_MUTANTS: dict[str, tuple[str, Any]] = {
    "label names are swapped": ("stored predictions", lambda m, s, a: m.update(labels=["dog", "cat"])),
    "another temperature": ("stored predictions", lambda m, s, a: m["calibration"].update(temperature=3.0)),
    "another temperature of a member": ("stored predictions", lambda m, s, a: m["members"][0].update(temperature=5.0)),
    "another weight of a member": ("stored predictions", lambda m, s, a: m["members"][0].update(weight=9.0)),
    "words in another order": ("model 1: stored outputs", lambda m, s, a: s.update(vocabulary=["a", "dog", "cat"])),
    "other coefficients": ("model 1: stored outputs", lambda m, s, a: a.update({"0.bias": a["0.bias"] + [0.0, 1.0]})),
}


def test_the_doctor_names_what_is_wrong_with_a_stack(tmp_path: Path) -> None:
    """Though every hash matches; a sound one passes every check."""
    whole = save(make_stack(1.0, 3.0), tmp_path / "stack")
    assert not faults(run_stack_checks(load_saved(whole), whole))
    for name, (check, change) in STACK_MUTANTS.items():
        folder = shutil.copytree(whole, tmp_path / name)
        forged(folder, change)
        assert check in {
            one.title for one in run_stack_checks(load_saved(folder, selftest=False), folder) if one.status == "fail"
        }, name
        with pytest.raises(BundleError, match="fails its self-test: outputs, by label name, differ from the stored ones"):
            load_saved(folder)


def test_the_doctor_names_a_baseline_whose_predictions_are_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sound one passes."""
    baseline = make_stack(1.0).members[0].model
    assert isinstance(baseline, FittedBaseline)
    check = partial(BASELINE_CHECK, "stored outputs", (baseline, baseline.predict(SELFTEST_TEXTS)))
    assert check().status == "pass"
    monkeypatch.setattr(FittedBaseline, "predict", lambda self, texts: np.full((len(texts), 2), np.nan))
    assert check().status == "fail"


def test_commands_use_a_stack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also in the folder of a run; what needs a network says so."""
    folder = save(make_stack(1.0, 3.0), tmp_path / "run" / "bundle")
    assert main(["predict", str(folder.parent), "a cat"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["label"] == "cat"
    assert main(["doctor", str(folder.parent)]) == 0
    assert "is sound: every file and tensor matches its hash, and it passes 3 checks" in capsys.readouterr().err
    rows = "text,label\n" + "a cat,cat\na dog,dog\ndog,dog\ncat,cat\n"
    for name in ("train", "validation", "test"):
        (tmp_path / f"{name}.csv").write_text(rows)
    (tmp_path / "task.yaml").write_text("name: pets\ntrain: train.csv\nvalidation: validation.csv\ntest: test.csv\n")
    assert main(["evaluate", str(folder.parent), str(tmp_path / "task.yaml")]) == 0
    assert "accuracy 100.0%" in capsys.readouterr().err
    assert main(["predict", str(folder), "a cat", "--target-error", "0.05"]) == 2
    assert "this model has none" in capsys.readouterr().err
    assert main(["cost", str(folder)]) == 2
    with pytest.raises(ModelError, match="one network is needed, but .* holds model 1, model 2"):
        load_model(folder)
    with pytest.raises(BundleError, match="must be a bundle, but is a stack"):
        load_bundle(folder)


def test_the_card_says_what_it_is(tmp_path: Path, tokenizer: Tokenizer) -> None:
    page = card(make_stack(1.0, 3.0))
    assert "| 2 | model 2 | 3 words | 2 |" in page
    assert "The mean of the calibrated probabilities of 2 models" in page
    assert "A model without a network of its own" in card(make_stack(1.0))
