"""Exports are read by the library that they are for, from the folder alone, and say what we say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.bundles import checked_here
from helpers.foreign import folder_of
from helpers.refusals import refused
from warmstart.cli import main
from warmstart.errors import ModelError
from warmstart.interop import export, readback
from warmstart.interop.convert import from_huggingface
from warmstart.interop.readback import READBACK_TEXTS, compare_in_library, largest_gap, probe_texts
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.files import save


def calibrated(case: str, place: Path) -> Bundle:
    """An imported classifier with a temperature."""
    return replace(from_huggingface(folder_of(case, place)), calibration=Calibration(temperature=20.0))


@pytest.mark.journeys
def test_the_command_asks_the_library_that_will_read_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Probabilities of a calibrated classifier, logits of language models in either direction, vectors; the line says how near."""
    cases = ("bert-labels", "roberta-labels", "llama", "xlm-roberta", "bert-bare")
    with checked_here():
        for case in cases:
            bundle = from_huggingface(folder_of(case, tmp_path / case / "hf"))
            bundle = replace(bundle, calibration=Calibration(temperature=20.0)) if bundle.labels else bundle
            save(bundle, tmp_path / case / "m")
    for case in cases:
        to = "sentence-transformers" if case == "bert-bare" else "hf"
        assert main(["export", str(tmp_path / case / "m"), "--to", to, "--out", str(tmp_path / case / "out")]) == 0
        said = " ".join(capsys.readouterr().err.split())
        assert f"predictions of {len(READBACK_TEXTS) + 1} texts differ by at most" in said, said


@pytest.mark.journeys
def test_a_folder_that_would_be_read_otherwise_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its temperature, with other label names, or with weights that cannot be run; a folder that is not read is said."""
    bundle = calibrated("bert-labels", tmp_path / "hf")
    monkeypatch.setattr(export, "calibrated_model", lambda bundle: bundle.model)

    def check(folder: Path) -> object:
        return compare_in_library(bundle, folder)

    refused(
        ModelError,
        r"must predict what the model predicts, but differs by 0\.",
        export.to_huggingface,
        bundle,
        tmp_path / "no",
        check,
    )
    assert not (tmp_path / "no").exists()
    monkeypatch.undo()
    other = replace(bundle, labels=("no", "yes", "maybe"))
    refused(ModelError, r"must know the labels .* \['maybe', 'perhaps'\]", export.to_huggingface, other, tmp_path / "no", check)
    export.to_huggingface(bundle, tmp_path / "out")
    (tmp_path / "out" / "model.safetensors").write_bytes(b"")
    assert "not compared in transformers" in check(tmp_path / "out").sentence  # type: ignore[attr-defined]


def test_without_the_library_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says so; a model that reads very long texts is given none that is longer."""
    monkeypatch.setattr(readback, "find_spec", lambda name: None)
    said = compare_in_library(calibrated("bert-labels", tmp_path / "hf"), tmp_path).sentence
    assert said == "not compared in transformers: it is not installed"
    assert (len(probe_texts(512)), len(probe_texts(8192))) == (len(READBACK_TEXTS) + 1, len(READBACK_TEXTS))
    assert largest_gap(np.array([[0.5], [2.0]]), [0.5, 1.0]) == 0.5
