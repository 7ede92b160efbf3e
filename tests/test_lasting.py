"""What a release has saved, later versions read: archives made by the wheel of each release, and the upgrade of older formats."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import warmstart as ws
from helpers.bundles import word_model
from helpers.release import ANIMAL, TEXTS, answers_of
from warmstart.app.project import Project
from warmstart.cli import main
from warmstart.errors import BundleError
from warmstart.model import folder as model_folder
from warmstart.model.files import load_saved
from warmstart.system.storage import MODEL_FORMAT, SEAL, sealed

ARCHIVES = sorted((Path(__file__).parent / "saved").glob("*.tar.xz"))
DIGITS = 1e-4
"""difference of probabilities, correlations and vectors that docs/explanation/lasting.md allows"""


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda archive: archive.name)
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what one release has saved."""
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(request.param) as archive:
        archive.extractall(folder, filter="data")
    return folder


def same(answer: Any, stored: Any) -> bool:
    """True if answers agree, numbers to four digits."""
    if isinstance(stored, float):
        return abs(answer - stored) <= DIGITS
    if isinstance(stored, Mapping):
        return dict(stored).keys() == answer.keys() and all(same(answer[key], value) for key, value in stored.items())
    if isinstance(stored, list):
        return len(answer) == len(stored) and all(map(same, answer, stored))
    return bool(answer == stored)


def test_every_saved_model_of_a_release_loads_and_answers_as_it_did(release: Path) -> None:
    """Each kind of head, of language model, and of stack; none is left out."""
    answers = json.loads((release / "answers.json").read_text())
    assert len(answers) >= 13
    for name, stored in answers.items():
        assert same(answers_of(release / name), stored), name


def test_every_saved_model_of_a_release_is_sound(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``doctor`` finds nothing, and names the format and the version that wrote it."""
    for name in ("words", "columns", "network"):
        main(["doctor", str(release / name)])
        assert "It has format 2 of warmstart 0.3.0" in " ".join(capsys.readouterr().err.split())


def test_a_labelling_project_of_a_release_opens_with_all_answers(release: Path) -> None:
    """Texts, labels and answers."""
    project = Project.open(release / "project")
    try:
        assert project.texts == tuple(TEXTS[:30])
        assert sorted(label.name for label in project.labels()) == sorted(set(ANIMAL))
        assert len(project.answers()) == 30
    finally:
        project.close()


def in_format(folder: Path, form: int, **changed: Any) -> bytes:
    """Give a saved model another format, and change its manifest; returns the bytes of the manifest."""
    file = folder / "bundle.json"
    manifest = {key: value for key, value in json.loads(file.read_text()).items() if key != SEAL}
    file.write_text(json.dumps(sealed({**manifest, "format": form, **changed})))
    return file.read_bytes()


def test_an_earlier_format_is_upgraded_in_memory_and_stays_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two formats back; ``doctor`` says so, and saving writes the present one."""
    folder = Path(word_model(tmp_path / "model", ("bill", "order"), "parcel"))
    names = json.loads((folder / "bundle.json").read_text())["labels"]
    before = in_format(folder, MODEL_FORMAT - 2, names=names, labels=None)
    steps = {
        MODEL_FORMAT - 2: lambda manifest: {**manifest, "labels": manifest["names"]},
        MODEL_FORMAT - 1: lambda manifest: {key: value for key, value in manifest.items() if key != "names"},
    }
    monkeypatch.setattr(model_folder, "UPGRADES", steps)
    model = load_saved(folder)
    assert model.labels == ("bill", "order")
    assert (folder / "bundle.json").read_bytes() == before
    main(["doctor", str(folder)])
    said = " ".join(capsys.readouterr().err.split())
    assert f"It has format {MODEL_FORMAT - 2} of warmstart {ws.__version__}, read as format {MODEL_FORMAT};" in said
    again = ws.save(model, tmp_path / "again")
    assert json.loads((again / "bundle.json").read_text())["format"] == MODEL_FORMAT


@pytest.mark.parametrize(("form", "way"), [(MODEL_FORMAT + 1, "update warmstart"), (1, "make it again, or use that version")])
def test_a_format_that_is_not_read_gets_one_sentence_with_the_way(form: int, way: str, tmp_path: Path) -> None:
    """Newer than this version, and older than 0.3.0."""
    folder = Path(word_model(tmp_path / "model", ("bill", "order"), "parcel"))
    in_format(folder, form)
    with pytest.raises(BundleError, match=f"has format {form} of warmstart .*{way}"):
        load_saved(folder)
