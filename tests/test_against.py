"""``evaluate --against``: which of two models is better, and how certain; and texts of none of the labels, marked and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from helpers.bundles import word_model
from warmstart.cli import main
from warmstart.commands.evaluate.command import evaluate
from warmstart.commands.evaluate.result import against_result
from warmstart.commands.predict import predict
from warmstart.commands.settings import EvaluateConfig, PredictConfig
from warmstart.data.text_key import TextHashes, joint_overlap, key_of
from warmstart.errors import DataError
from warmstart.model.bundle import Calibration
from warmstart.model.files import save
from warmstart.model.fitted import FittedBaseline
from warmstart.model.known import KnownTexts
from warmstart.model.readout import LinearReadout
from warmstart.model.rows import WordRows
from warmstart.model.stack import Member, Stack
from warmstart.report.parts import headline
from warmstart.report.result import StudyResult
from warmstart.stats.noise import texts_to_tell
from warmstart.stats.proportions import paired_proportions
from warmstart.tasks.two_models import ModelsCompared
from warmstart.tasks.unknown import texts_compared


def compared(both: int, first: int, second: int, neither: int) -> ModelsCompared:
    """Two models, right together and alone on so many texts."""
    right = np.repeat(np.array([[1, 1], [1, 0], [0, 1], [0, 0]], bool), [both, first, second, neither], axis=0).T
    one, other = right.astype(float)
    scores = (float(one.mean()), float(other.mean()))
    found = paired_proportions([one], [other])
    return ModelsCompared(
        ("tuned", "plain"), "accuracy", scores, found, right, np.arange(len(one)), f"{len(one)} test texts",
        parts=[("all", np.ones(len(one), bool))],
    )  # fmt: skip


def first_finding(found: ModelsCompared) -> str:
    return against_result("mails", found, []).findings[0]


def test_the_answer_is_one_sentence() -> None:
    """Which is better and by how much, or how many more texts would tell."""
    better = "tuned is right on 87 of 100 such texts, plain on 81: tuned is better by 6 (3 to 9)."
    assert first_finding(compared(380, 55, 25, 40)) == better
    assert headline(better) == "tuned is right on 87 of 100 such texts, plain on 81: tuned is better by 6."
    assert first_finding(compared(380, 25, 55, 40)).endswith("plain on 87: plain is better by 6 (3 to 9).")
    assert first_finding(compared(160, 22, 16, 2)) == (
        "Not yet clear: tuned is right on 91 of 100 such texts, plain on 88. "
        "If the lead is real, about 1,500 more labelled texts would tell in 4 of 5 cases."
    )
    assert first_finding(compared(160, 20, 20, 0)).endswith(
        "plain on 90. A lead of 1 point would take about 15,000 more labelled texts to show."
    )
    assert first_finding(compared(160, 0, 0, 40)).endswith("both are right or both are wrong.")


def test_other_findings_say_where_they_differ() -> None:
    found = against_result("mails", compared(380, 55, 25, 40), ["A note."])
    assert found.findings[1:] == [
        "Accuracy 87.0% against 81.0%: +6.0 points (+2.5 to +9.5), the 95% interval over 500 test texts.",
        "Only one of the two is right on 16.0% of the 500 texts: tuned on 55, plain on 25 (exact sign test: p 0.001).",
        "A note.",
    ]
    assert found.summary is not None
    assert found.summary.header == ("texts", "number", "tuned", "plain", "difference (95%)")


@pytest.fixture
def task(tmp_path: Path) -> str:
    """Texts about cats and dogs, some of them kittens."""
    for split, count in (("train", 2), ("test", 120)):
        rows = [f"the {animal} {i} {split},{'cat' if animal in ('cat', 'kitten') else 'a dog'}"
                for i in range(count) for animal in ("cat", "kitten", "dog", "hound")]  # fmt: skip
        (tmp_path / f"{split}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "pets.yaml").write_text("name: pets\ntrain: train.csv\ntest: test.csv\n")
    return str(tmp_path / "pets.yaml")


def test_labels_may_stand_in_another_order(tmp_path: Path, task: str) -> None:
    """Of models with the same labels; the page has the sentence as its headline, and the ledger counts both."""
    one = word_model(tmp_path / "one", ("a dog", "cat"), "cat", "kitten")
    other = word_model(tmp_path / "other", ("cat", "a dog"), "cat")
    found = evaluate(EvaluateConfig(model=one, task=task, against=other, out=str(tmp_path / "out")))
    assert isinstance(found, StudyResult)
    assert found.findings[0] == "one is right on 100 of 100 such texts, other on 75: one is better by 25 (21 to 29)."
    assert ">one is right on 100 of 100 such texts" in (tmp_path / "out" / "report.html").read_text()
    assert any("2 models" in sentence for sentence in found.findings)
    assert [row["part"] for row in found.to_dict()["tables"]["parts"]] == ["all", "a dog", "cat"]


def test_all_labelled_texts_of_a_table_are_scored(
    tmp_path: Path, task: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for those that one of the models has learned from."""
    one = word_model(tmp_path / "one", ("a dog", "cat"), "cat", "kitten")
    table = str(Path(task).with_name("test.csv").rename(tmp_path / "held.csv"))
    assert evaluate(EvaluateConfig(model=one, task=table)).to_dict()["accuracy"] == 1
    assert "480 test texts" in capsys.readouterr().err
    seen = [TextHashes.of([key_of("the cat 7 test"), key_of("the dog 8 test")])]
    monkeypatch.setattr("warmstart.tasks.trained_on.known_texts", lambda _, texts: joint_overlap(seen, [*map(key_of, texts)]))
    evaluate(EvaluateConfig(model=one, task=table))
    said = " ".join(capsys.readouterr().err.split())
    assert "478 test texts" in said
    assert "2 of the 480 labelled texts are left out, since the model has learned from them." in said


def test_other_metrics_and_groups_are_compared_by_resamples(tmp_path: Path, task: str) -> None:
    """Of texts or groups; the accuracy of grouped texts keeps its sentence."""
    models = [word_model(tmp_path / name, ("a dog", "cat"), *known) for name, known in (("one", ["cat"]), ("two", ["kitten"]))]
    manifest = Path(task).read_text()
    Path(task).write_text(manifest + "metric: macro_f1\n")
    settings = {"model": models[0], "task": task, "against": models[1], "out": str(tmp_path / "out")}
    found = evaluate(EvaluateConfig.build(settings))
    assert isinstance(found, StudyResult)
    assert found.findings[0].startswith(
        "Not yet clear which is better: macro f1 of one 0.733, of two 0.733; difference +0.000 (95%"
    )
    rows = (tmp_path / "test.csv").read_text().splitlines()
    (tmp_path / "test.csv").write_text("\n".join([f"{rows[0]},person", *(f"{row},{i % 40}" for i, row in enumerate(rows[1:]))]))
    (tmp_path / "train.csv").write_text("text,label,person\na cat,cat,x\na dog,a dog,y\n")
    Path(task).write_text(manifest + "source: {group: person}\n")
    found = evaluate(EvaluateConfig.build(settings | {"out": str(tmp_path / "groups")}))
    assert isinstance(found, StudyResult)
    assert found.findings[0].startswith("Not yet clear: one is right on 75 of 100 such texts, two on 75. A lead of 1 point would")
    assert found.findings[1].endswith("the 95% interval over 40 groups of test texts.")


def test_models_of_other_labels_are_refused(tmp_path: Path, task: str) -> None:
    one = word_model(tmp_path / "one", ("a dog", "cat"), "cat")
    other = word_model(tmp_path / "other", ("bird", "cat"), "cat")
    assert main(["evaluate", one, task, "--against", other]) == 2


@pytest.mark.proofs
def test_so_many_texts_tell_in_four_of_five_cases() -> None:
    """Pairs of classifiers with a true difference, on as many texts as are named: 77 to 84% of differences are significant."""
    chance = np.random.default_rng(20261126)
    for shared, leads in ((0.9, (0.02, 0.05)), (0.6, (0.03, 0.08))):
        for lead in leads:
            levels = norm.ppf([0.8 + lead, 0.8])
            many = shared**0.5 * chance.normal(size=(1, 400_000)) + (1 - shared) ** 0.5 * chance.normal(size=(2, 400_000))
            sides = many < levels[:, None]
            count = texts_to_tell(float((sides[0] != sides[1]).mean()), lead)
            found = 0
            for _ in range(400):
                one, other = sides[:, chance.integers(0, 400_000, count)].astype(float)
                found += paired_proportions([one], [other]).sign > 0
            print(f"correlation {shared}, lead {lead:.2f}: {count} texts, found {found / 400:.3f}")
            assert 0.75 <= found / 400 <= 0.86


TEXTS = ("the cat", "a zebra", "the dog")


def animals(*, held_out: bool) -> Stack:
    """It knows two words, and is never as unsure as of others."""
    words = WordRows(("cat", "dog"), word_pairs=False, idf=np.ones(2))
    member = Member("words", FittedBaseline(words, LinearReadout(9 * np.eye(2), np.zeros(2))))
    stack = Stack((member,), "classification", ("cat", "dog"))
    return replace(stack, calibration=Calibration(held_out=((0.99, True),) * 40 if held_out else ()))


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(save(animals(held_out=True), tmp_path / "model"))


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
    plain = str(save(animals(held_out=False), tmp_path / "plain"))
    assert "unknown" not in predict(PredictConfig(model=plain, texts=TEXTS))[0]
    with pytest.raises(DataError, match="--refuse-unknown needs a model that gives one label"):
        predict(PredictConfig(model=plain, texts=TEXTS, refuse_unknown=True))


def test_no_text_is_refused_that_is_as_unsure_as_a_tenth_of_the_known_ones(tmp_path: Path) -> None:
    """The stated share decides."""
    some = Calibration(held_out=((0.4, True),) * 4 + ((0.99, True),) * 36)
    place = str(save(replace(animals(held_out=True), calibration=some), tmp_path / "model"))
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
