"""The first screen after training: short, without a statistician's words, the same on every page that shows it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.fits import fit_result, quickstart_result
from helpers.races import FAMILIES, LADDER, race_result
from helpers.tasks import cats
from warmstart.commands.adapt.page import adapt_verdict
from warmstart.commands.fit.page import write_fit_page
from warmstart.config import Config
from warmstart.data.audit import audit
from warmstart.data.source import Source
from warmstart.data.task import Task
from warmstart.experiment.config import AdaptConfig
from warmstart.experiment.race_verdict import race_verdict
from warmstart.report.templates import verdict_html
from warmstart.runs.steps import TaskPlace, label_step, own_text, steps_after
from warmstart.runs.verdict import NOT_CLEAR, Verdict, failures, read_verdict, row_of, use_sentence
from warmstart.stats.comparison import MethodResult, MethodTable
from warmstart.stats.formatting import of_100
from warmstart.stats.intervals import Estimate

BANNED = re.compile(r"\b(p|power|seeds?|draws?|significant\w*|null|confidence interval)\b", re.IGNORECASE)


def verdicts(folder: Path = Path("runs/some where")) -> dict[str, Verdict]:
    """One of each command."""
    race = race_result(LADDER, families=FAMILIES)
    fit = replace(fit_result(), task=replace(cats(), unlabelled_texts=("a boat",)))
    return {"fit": fit.verdict(folder, TaskPlace("mails.csv")), "race": race_verdict(race, folder)}


@pytest.mark.parametrize("name", verdicts())
def test_the_first_screen_is_short_and_needs_no_statistics(name: str) -> None:
    """At most 25 words in its headline, four rows, complete sentences, and steps that can be copied."""
    found = verdicts()[name]
    assert len(found.headline.split()) <= 25
    assert 2 <= len(found.rows) <= 4
    assert [sentence for sentence in found.sentences if BANNED.search(sentence) or not sentence.endswith((".", "?"))] == []
    assert all(step.command.startswith("warmstart ") and not step.title.endswith(".") for step in found.steps)
    assert "'runs/some where" in found.steps[0].command


def test_a_race_shows_the_scores_of_the_methods_that_it_names() -> None:
    """The recommended one first, then the best of the other side, both by their own scores."""
    result = race_result(LADDER, families=FAMILIES)
    found = race_verdict(result)
    own = {one.name: f"{of_100(np.mean(one.test_scores.scores))} of 100" for one in result.ranking.methods}
    assert [row.role for row in found.rows] == ["", "best without pretraining", "", ""]
    assert {row.name: row.score for row in found.rows[:3]}.items() <= own.items()
    assert found.rows[0].name == result.recommended.name
    assert found.rows[1].name == "TF-IDF + logistic regression"
    assert found.rows[0].score in found.headline


def test_a_model_that_loses_is_not_recommended(tmp_path: Path) -> None:
    """The rival is named first, both scores stand beside each other, and the next step keeps the better method."""
    rows = (MethodResult("pretrained", (0.2, 0.26)), MethodResult("TF-IDF", (0.3, 0.38)), MethodResult("majority", (0.2,)))
    table, task = MethodTable("accuracy", rows), cats()
    result = SimpleNamespace(
        task=task,
        comparison=table,
        method="pretrained",
        transfer=table.compared()[0],
        labels=160,
        test_predictions=None,
        audit=audit(task),
    )
    found = adapt_verdict(result, tmp_path, AdaptConfig(model="lm", task="mails.csv"))  # type: ignore[arg-type]
    assert found.headline.startswith("Use TF-IDF")
    assert [row.name for row in found.rows] == ["TF-IDF", "this model", "always the most frequent label"]
    assert [step.command for step in found.steps] == ["warmstart race mails.csv --backbones lm --budget 30m --save recommended"], (
        "nothing that uses the model"
    )
    assert NOT_CLEAR in found.use


def test_only_texts_without_labels_are_labelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the table or of the file that was given beside it, in a new folder; those of a project go on in it."""
    monkeypatch.chdir(tmp_path)
    some, other = replace(cats(), unlabelled_texts=("a boat",)), replace(cats(), unlabelled=(Source(path="my pool.txt"),))
    table, flags = TaskPlace("t.csv"), TaskPlace("t.csv", ("--text-column", "a+b"))

    def labels(place: TaskPlace | None, task: Task) -> str | None:
        step = label_step(place, task, "Label more")
        return step.command if step else None

    assert labels(table, some) == "warmstart label --task t.csv --out labels"
    assert labels(flags, some) == "warmstart label --task t.csv --text-column a+b --out labels"
    assert labels(table, other) == "warmstart label 'my pool.txt' --task t.csv --out labels"
    assert labels(TaskPlace("t.yaml"), other) == "warmstart label --task t.yaml --out labels"
    for place, task in ((table, cats()), (None, some), (TaskPlace("t.csv", None), some)):
        assert labels(place, task) is None, "nothing to label, nowhere, or read as no flags say"
    (tmp_path / "labels").mkdir()
    assert labels(table, some) == "warmstart label --task t.csv --out labels-2"
    (tmp_path / "labels" / "project.sqlite").touch()
    assert labels(TaskPlace("labels/task/task.yaml"), some) == "warmstart label --out labels"


def test_a_model_is_tried_on_a_text_of_its_user() -> None:
    """One that needs no escapes, is no flag and is short; of long ones the beginning."""
    assert own_text(["-x y", "it's his", "word", "a  plain\ntext"]) == "a plain text"
    assert own_text(["it's his"]) == "it's his"
    assert own_text(["so " * 40]) == "so " * 15 + "so"
    assert own_text(["word", ("a", "pair")]) is None


def test_the_run_keeps_what_its_page_shows(tmp_path: Path) -> None:
    """Beside the model, where the folder and the bundle in it find it; what is damaged is none."""
    result = fit_result()
    write_fit_page(result, Config(), tmp_path)
    kept = read_verdict(tmp_path)
    assert kept == result.verdict(tmp_path)
    assert read_verdict(tmp_path / "bundle") == kept
    assert kept.headline in (tmp_path / "report.html").read_text()
    for damage in ("{", "[]", '{"headline": 1}'):
        (tmp_path / "verdict.json").write_text(damage)
        assert read_verdict(tmp_path) is None


def test_a_page_with_a_server_has_a_box_and_buttons() -> None:
    """In place of commands; a step can be left out; texts are escaped and the box is not."""
    found = verdicts()["fit"]
    html = verdict_html(found, box="<input name=text>", actions={"serve": None, "label": "/label"})
    assert "<input name=text>" in html
    assert 'href="/label"' in html
    assert "warmstart predict" not in html
    assert "warmstart serve" not in html
    assert "warmstart export" in html
    assert "&lt;b&gt;" in verdict_html(Verdict("<b>", "", 0, "Use it."))


def test_a_score_that_is_hardly_known_is_no_number() -> None:
    """Wider than 40 points: the texts that are too few are named instead."""
    wide = Estimate(0.6, 0.3, 0.8)
    assert use_sentence("A", "accuracy", wide, "22 test texts") == "Use A; 22 test texts are too few to say how often it is right."
    assert row_of("A", "accuracy", wide).ends is None
    assert use_sentence("A", "macro_f1", Estimate(0.8, 0.7, 0.9), "") == "Use A: macro-F1 0.80 on new texts (likely 0.70 to 0.90)."


def test_failures_name_the_surest_mistakes_and_the_weakest_label() -> None:
    """Of three labels also the pair that is confused most."""
    labels = np.array([0, 0, 1, 1, 2])
    sure = np.array([[0.9, 0.1, 0], [0.2, 0.8, 0], [0.6, 0.4, 0], [0.7, 0.3, 0], [0, 0, 1]])
    mistakes, said = failures([*"abcde"], labels, sure, ["x", "y", "z"])
    assert [one.text for one in mistakes] == ["b", "d", "c"]
    assert said == ('Most confused: "y" taken for "x", 2 of 2 times.', 'Weakest label: "y", right on 0 of 2.')
    assert failures(["a"], labels[:1], sure[:1], ["x", "y", "z"]) == ((), ())


def test_the_quickstart_names_the_model_that_it_saved() -> None:
    """Its headline, its chart and its file are of one model; what pretraining bought follows."""
    result = quickstart_result()
    assert result.rows[0].name in result.fit.headline
    assert "60 of 100" in {row.score for row in result.rows}


def test_what_is_saved_goes_into_one_file_if_a_page_can_hold_it(tmp_path: Path) -> None:
    """A stack as well as a network; numbers, and what SentencePiece's tokenizer reads, are for other programs."""
    sentencepiece = {"type": "classification", "normalizer": {"normalizers": [{"type": "NFC"}, {"type": "Precompiled"}]}}
    for number, (name, saved, form) in enumerate((
        ("stack.json", {"type": "classification"}, "page"), ("stack.json", {"type": "regression"}, "onnx"),
        ("bundle.json", {"head": {"kind": "multilabel"}}, "page"), ("bundle.json", {"head": {"kind": "regression"}}, "onnx"),
        ("backbones/1/tokenizer.json", sentencepiece, "onnx"),
    )):  # fmt: skip
        file = tmp_path / str(number) / "bundle" / name
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(saved))
        assert f"--to {form}" in steps_after(tmp_path / str(number), cats(), None)[-1].command
