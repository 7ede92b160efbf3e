"""The doctor finds what is broken, names it, and is content with what is sound."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.bundles import HEAD_CASES, language_bundle, make_task
from helpers.foreign import CASES, folder_of
from helpers.models import BACKBONE_CASES, SENTENCES, make_backbone
from helpers.mutants import HARMLESS, IN_CODE, IN_FILES, IN_TRAINING, RELOAD, bases, edit
from warmstart.cli import main
from warmstart.commands.adapt import command
from warmstart.data.task import Split
from warmstart.errors import BundleError, UncheckedWarning
from warmstart.finetuning.saved import warn_of_other_predictions
from warmstart.interop.convert import from_huggingface
from warmstart.model.bundle import Bundle
from warmstart.model.checks import CHECKS, Subject, faults, run_checks
from warmstart.model.files import load_bundle, read_selftest, save
from warmstart.model.model import Model, fresh_head
from warmstart.model.selftest import make_selftest
from warmstart.tasks.load import save_task
from warmstart.tasks.predict import uncalibrated_predictions
from warmstart.tokenizer.tokenizer import Tokenizer

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "doctor.md"


@pytest.fixture(scope="module")
def sound(tokenizer: Tokenizer) -> dict[str, Bundle]:
    """The models that mutants are made of."""
    return bases(tokenizer)


@pytest.fixture(scope="module")
def saved(sound: dict[str, Bundle], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, each in a folder."""
    place = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warmstart.model.files._verify_in_fresh_process", lambda folder: None)
        for name, bundle in sound.items():
            save(bundle, place / name)
    return place


def status(check: str, bundle: Bundle, folder: Path | None = None) -> str:
    """What one check says of a model."""
    return CHECKS[check](check, Subject(bundle, read_selftest(folder) if folder else {})).status


def test_what_is_sound_and_harmless_changes_of_it_pass_every_check(saved: Path, tmp_path: Path) -> None:
    """What every mutant is made of, and edits that change no output."""
    for folder in saved.iterdir():
        assert not faults(run_checks(load_bundle(folder), read_selftest(folder))), folder.name
    for number, mutant in enumerate(HARMLESS):
        folder = shutil.copytree(saved / mutant.base, tmp_path / str(number))
        edit(folder, mutant.change)
        assert not faults(run_checks(load_bundle(folder), read_selftest(folder))), mutant.name


@pytest.mark.chaos
def test_a_model_broken_in_code_is_caught_by_name_and_not_saved(sound: dict[str, Bundle], tmp_path: Path) -> None:
    """By a quick check before, or when it is read again and differs from its settings."""
    for mutant in IN_CODE:
        bundle = mutant.broken(sound)
        if mutant.check != RELOAD:
            assert status(mutant.check, sound[mutant.base]) == "pass", mutant.name
            assert status(mutant.check, bundle) == "fail", mutant.name
        with pytest.raises(BundleError, match="must be sound to be saved|fails its self-test|the weights disagree"):
            save(bundle, tmp_path / "broken")
        assert not (tmp_path / "broken").exists(), mutant.name


@pytest.mark.chaos
def test_an_edited_model_is_caught_by_name(saved: Path, tmp_path: Path) -> None:
    """Its hashes match; what it does gives it away, and if it differs from what was stored, nothing loads it."""
    for number, mutant in enumerate(IN_FILES):
        folder = shutil.copytree(saved / mutant.base, tmp_path / str(number))
        assert status(mutant.check, load_bundle(folder), folder) == "pass", mutant.name
        edit(folder, mutant.change)
        assert status(mutant.check, load_bundle(folder, selftest=False), folder) == "fail", mutant.name
        if "load" in CHECKS[mutant.check].moments:
            with pytest.raises(BundleError, match="fails its self-test: .* it was changed after it was saved"):
                load_bundle(folder)


def alarms(seed: int, tokenizer: Tokenizer) -> list[str]:
    """What is found wrong with sound models: of every kind of backbone, with one head after the other, then of every head."""
    cases = [(switches, HEAD_CASES[(i + seed) % len(HEAD_CASES)]) for i, switches in enumerate(BACKBONE_CASES)]
    found = []
    for switches, head in [*cases, *(({}, head) for head in HEAD_CASES)]:
        backbone = make_backbone(seed, tokenizer.vocab_size, **switches)
        model = Model(backbone, fresh_head(head, backbone, seed), causal=seed % 2 == 0).eval()
        bundle = Bundle(model, tokenizer, tuple("abc") if hasattr(head, "classes") else ())
        found += [f"{switches} {head.kind} {seed}: {one}" for one in faults(run_checks(bundle, make_selftest(bundle)))]
    return found


def alarms_imported(seed: int, place: Path) -> list[str]:
    """What is found wrong with models of transformers: every family, as it writes it."""
    found = {name: faults(run_checks(from_huggingface(folder_of(name, place / f"{name}-{seed}", seed)))) for name in CASES}
    return [f"{name} {seed}: {one}" for name, faulty in found.items() for one in faulty]


def test_sound_models_raise_no_alarm(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Every kind of backbone, every head and every imported family, with random weights."""
    assert not [*alarms(0, tokenizer), *alarms_imported(0, tmp_path)]


@pytest.mark.chaos
def test_no_false_alarm_over_five_seeds(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Neither of ours nor of theirs."""
    for seed in range(1, 5):
        assert not [*alarms(seed, tokenizer), *alarms_imported(seed, tmp_path)]


def test_the_command_prints_a_table_or_json(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 for a sound model; 2 for a broken one, with the name of the check and what to do."""
    assert main(["doctor", str(saved / "labels")]) == 0
    printed = capsys.readouterr().err
    assert "stored predictions" in printed
    assert "not applicable: objective (its history names no objective of its head)" in printed
    folder = shutil.copytree(saved / "labels", tmp_path / "edited")
    edit(folder, lambda manifest, tensors, spec: manifest.update(labels=["milk", "tea", "water"]))
    assert main(["doctor", str(folder), "--json"]) == 2
    printed = capsys.readouterr()
    rows = {row["check"]: row for row in json.loads(printed.out)["result"]}
    assert set(rows) == set(CHECKS)
    assert rows["label names"]["status"] == rows["stored predictions"]["status"] == "fail"
    assert rows["label names"]["value"] == 2
    assert "2 label names are empty, repeated, or those of other classes of the task" in printed.err
    assert "give `labels` in the order of the classes" in printed.err


def test_the_command_reads_a_folder_of_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is stored with it, and no hash is claimed."""
    assert main(["doctor", f"hf:{folder_of('bert-labels', tmp_path)}"]) == 0
    printed = capsys.readouterr().err
    assert "stored outputs (it is not a bundle, so nothing is stored)" in printed
    assert "hash" not in printed


def test_a_model_that_does_not_predict_what_was_scored_is_named(saved: Path, tmp_path: Path) -> None:
    """Even if it agrees with all that is stored with it: the labels of test texts are other ones, by name."""
    bundle = load_bundle(saved / "labels")
    with torch.no_grad():
        bundle.model.head.score.weight.normal_(std=5.0, generator=torch.Generator().manual_seed(0))
    texts = tuple(f"{one} {other}" for one in SENTENCES for other in SENTENCES)
    task = replace(make_task(), labels=bundle.labels, test=Split(texts, np.zeros(len(texts), dtype=np.int64)))
    with torch.no_grad():  # no label is always the most probable one
        bundle.model.head.score.bias -= torch.from_numpy(np.log(uncalibrated_predictions(bundle, texts)).mean(axis=0))
    scored = uncalibrated_predictions(bundle, texts)
    assert len(set(scored.argmax(axis=1))) == 3
    weights = {name: one.detach() for name, one in bundle.model.weights().items()}
    for number, mutant in enumerate(IN_TRAINING):
        folder = shutil.copytree(saved / mutant.base, tmp_path / str(number))
        edit(folder, lambda _, tensors, __: tensors.update(weights))
        save(load_bundle(folder, selftest=False), folder)
        warn_of_other_predictions(folder, task, scored)  # warnings are errors
        edit(folder, mutant.change)
        save(load_bundle(folder, selftest=False), folder)
        with pytest.warns(UncheckedWarning, match="does not predict what was scored: .* of 16 test texts get another label"):
            warn_of_other_predictions(folder, task, scored)


def test_adapt_tells_of_a_model_that_was_broken_before_it_was_saved(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report is written, the fault named, and the exit code 1."""
    whole = command.adapted_bundle

    def broken(*arguments: Any) -> Any:
        bundle = whole(*arguments)
        with torch.no_grad():
            for parameter in bundle.model.head.parameters():
                parameter.copy_(parameter.flip(0))
        return bundle

    monkeypatch.setattr(command, "adapted_bundle", broken)
    task = save_task(make_task(), tmp_path / "task")
    save(language_bundle(tokenizer), tmp_path / "lm")
    words = ["--out", str(tmp_path / "run"), "--seeds", "1", "--steps", "40", "--no-scratch", "--no-baselines"]
    assert main(["adapt", str(tmp_path / "lm"), str(task), *words]) == 1
    assert "12 of 12 test texts get another label" in capsys.readouterr().err


def test_every_check_has_an_edited_file_and_a_row_on_its_page() -> None:
    """A check that no file fails belongs into the tests of the code; docs/how-to/doctor.md says what each one holds."""
    assert {one.check for one in IN_FILES} == set(CHECKS)
    rest = PAGE.read_text(encoding="utf-8").partition("| --- | --- | --- |\n")[2]
    rows = rest.partition("\n\n")[0].splitlines()
    assert rows == [f"| {name} | {one.promise} | {', '.join(one.moments)} |" for name, one in CHECKS.items()]
