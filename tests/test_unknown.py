"""Texts of none of the labels: marked, refused if asked, and counted where their labels are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from warmstart.commands.evaluate.command import evaluate
from warmstart.commands.predict import predict
from warmstart.commands.settings import EvaluateConfig, PredictConfig
from warmstart.errors import DataError
from warmstart.model.bundle import Calibration
from warmstart.stack.files import save_stack
from warmstart.stack.fitted import FittedBaseline
from warmstart.stack.known import KnownTexts
from warmstart.stack.readout import LinearReadout
from warmstart.stack.rows import WordRows
from warmstart.stack.stack import Member, Stack
from warmstart.tasks.unknown import texts_compared

TEXTS = ("the cat", "a zebra", "the dog")


def animals(*, held_out: bool) -> Stack:
    """It knows two words, and is never as unsure as of others."""
    words = WordRows(("cat", "dog"), word_pairs=False, idf=np.ones(2))
    member = Member("words", FittedBaseline(words, LinearReadout(9 * np.eye(2), np.zeros(2))))
    stack = Stack((member,), "classification", ("cat", "dog"))
    return replace(stack, calibration=Calibration(held_out=((0.99, True),) * 40 if held_out else ()))


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(save_stack(animals(held_out=True), tmp_path / "model"))


def test_a_text_of_none_of_the_labels_is_marked_and_keeps_its_label(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = predict(PredictConfig(model=model, texts=TEXTS))
    assert [(row["unknown"], row["label"] is None) for row in rows] == [(False, False), (True, False), (False, False)]
    said = " ".join(capsys.readouterr().err.split())
    assert "1 of 3 texts is marked as unknown: it is like those of none of the labels." in said
    assert "Of texts that belong to a label, on average at most 5% are marked so" in said


def test_it_is_refused_if_asked(model: str, tmp_path: Path) -> None:
    """In words, also in a table; a model that cannot tell says so."""
    out = tmp_path / "found.csv"
    predict(PredictConfig(model=model, texts=TEXTS, refuse_unknown=True, out=str(out)))
    assert [line.split(",")[0] for line in out.read_text().splitlines()] == ["label", "cat", "none of these", "dog"]
    plain = str(save_stack(animals(held_out=False), tmp_path / "plain"))
    assert "unknown" not in predict(PredictConfig(model=plain, texts=TEXTS))[0]
    with pytest.raises(DataError, match="--refuse-unknown needs a model that gives one label"):
        predict(PredictConfig(model=plain, texts=TEXTS, refuse_unknown=True))


def test_no_text_is_refused_that_is_as_unsure_as_a_tenth_of_the_known_ones(tmp_path: Path) -> None:
    """The stated share decides."""
    some = Calibration(held_out=((0.4, True),) * 4 + ((0.99, True),) * 36)
    place = str(save_stack(replace(animals(held_out=True), calibration=some), tmp_path / "model"))
    marked = [predict(PredictConfig(model=place, texts=TEXTS, unknown_share=share))[1]["unknown"] for share in (0.05, 0.2)]
    assert marked == [False, True]


def test_as_many_texts_speak_of_change_as_the_model_compares_with() -> None:
    """Those that a member keeps, if one does, for the others were not asked; else those held out."""
    model = animals(held_out=True)
    (member,) = model.members
    assert isinstance(member.model, FittedBaseline)
    known = replace(member, model=replace(member.model, known=KnownTexts(np.eye(2), np.linspace(0, 1, 7))))
    assert (texts_compared(model), texts_compared(replace(model, members=(known,)))) == (40, 7)
    assert texts_compared(animals(held_out=False)) == 0


def test_texts_of_labels_that_the_model_does_not_know_are_counted_apart(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They change no score."""
    table = tmp_path / "new.csv"
    rows = [(f"{animal} {number}", animal) for animal in ("cat", "dog", "zebra") for number in range(10)]
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    assert evaluate(EvaluateConfig(model=model, task=str(table), out=str(tmp_path / "out"))).to_dict()["accuracy"] == 1
    assert json.loads((tmp_path / "out" / "scores.json").read_text())["accuracy"] == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "10 test texts have a label that the model does not know (zebra), and are not in these scores. It marks 100.0%" in said
    assert "and 0.0% (0.0 to 16.1) of the others, where at most 5 of 100 should be." in said
