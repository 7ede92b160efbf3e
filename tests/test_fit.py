"""``fit``: from labels to a model that says how good it will be on new texts."""

from __future__ import annotations

import json
import random
import re
import time
from contextlib import redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars
import pytest
from sklearn.metrics import f1_score

import warmstart as ws
from helpers.bundles import language_bundle
from helpers.fits import fit_result
from helpers.multitask import who
from helpers.tasks import LETTERS, cats, write_task
from warmstart.cli import main
from warmstart.commands.fit.command import fit_data, read_labelled
from warmstart.data.audit import audit
from warmstart.data.budget import label_budget
from warmstart.data.read import documents_of
from warmstart.data.text_key import NO_HASHES
from warmstart.errors import ConfigError, DataError
from warmstart.experiment import execution
from warmstart.experiment import fit as fitting
from warmstart.experiment.config import FitConfig
from warmstart.experiment.fit import check_labels
from warmstart.experiment.fit_lines import fit_lines
from warmstart.experiment.fit_result import FitResult
from warmstart.experiment.store import SweepContext
from warmstart.experiment.trial import Trial, TrialResult
from warmstart.finetuning.calibration import confidence_and_correct
from warmstart.finetuning.finetune import FineTuneResult, FineTuning
from warmstart.model.files import save
from warmstart.model.model import Model
from warmstart.runs.state import RunState
from warmstart.runs.steps import TaskPlace
from warmstart.runs.verdict import MOST_LINES, glossed
from warmstart.stats.abstention import find_threshold
from warmstart.stats.calibration import apply_temperature, fit_temperature
from warmstart.stats.intervals import Estimate
from warmstart.tasks.guess import guess_task
from warmstart.tasks.load import read_descriptions
from warmstart.tasks.predict import confidences_of
from warmstart.tasks.unknown import drift_sentence
from warmstart.tokenizer.tokenizer import Tokenizer

BANNED = ("p-value", "p =", "power", "seed", "draw", "significan")
"""words for statisticians, which the first screen does without"""
pytestmark = pytest.mark.usefixtures("few_baselines", "words_alone")


def table(folder: Path, labelled: int = 40) -> Path:
    """A csv of texts, of which the first ones have a label."""
    task = cats()
    topics = [task.labels[number] if place < labelled else None for place, number in enumerate(task.train.labels)]
    polars.DataFrame({"body": task.train.texts, "topic": topics}).write_csv(folder / "texts.csv")
    return folder / "texts.csv"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer, few_baselines: None) -> tuple[Path, FitResult, str]:
    """A fit of a table with a small encoder, and what it printed."""
    place = tmp_path_factory.mktemp("fit")
    save(language_bundle(tokenizer), place / "lm")
    with redirect_stderr(StringIO()) as said:
        how = {"encoders": (str(place / "lm"),), "schemes": (), "minutes": 30, "out": str(place / "run")}
        found = fit_data(FitConfig(data=str(table(place)), **how))
    return place, found, said.getvalue()


def test_a_table_becomes_a_model_that_predicts(fitted: tuple[Path, FitResult, str]) -> None:
    """Rows without a label are read as texts; the model is saved, with its report, and labels the next table."""
    place, found, _ = fitted
    assert (len(found.task.train), found.unlabelled) == (40, 20)
    assert found.shares
    assert found.shares.groups[0].texts == 20
    assert found.counted_labels.startswith("Of 100 of the 20 texts without labels, ")
    assert {"majority", "naive Bayes + EM", "stack"} <= {one.name for one in found.candidates}
    assert (place / "run" / "report.html").is_file()
    assert json.loads((place / "run" / "fit.json").read_text())["recommended"] == found.best.name
    assert main(["predict", str(place / "run"), str(place / "texts.csv"), "--out", str(place / "labelled.csv")]) == 0
    before, after = polars.read_csv(place / "texts.csv"), polars.read_csv(place / "labelled.csv")
    assert after.select(before.columns).equals(before), "the table goes back with all its columns"
    assert {"label", "probability"} <= {*after.columns} - {*before.columns}, after.columns


TAKEN = "label,predicted_label,body,predicted_predicted_label,"
SHEET = '\ufeffNr;label;body\r\n7;?;"a cat\nin a river"\r\n;;\r\n'
LISTS = '{"body": "a cat", "words": ["the", "cat"], "numbers": [1, 2]}\n'


@pytest.mark.parametrize(
    ("name", "before", "header", "row"),
    [
        ("one.csv", "body\na cat\n", "body,label,", "a cat,"),
        ("mac.csv", "id;body\r1;a cat, a river\r", "id;body;label;", "1;a cat, a river;"),
        ("taken.csv", "label,predicted_label,body\nx,y,a cat\n", TAKEN, "x,y,a cat,"),
        ("sheet.csv", SHEET, "\ufeffNr;label;body;predicted_label;", '7;?;"a cat\nin a river";'),
        ("lists.ndjson", LISTS, "body,words,numbers,label,", 'a cat,the|cat,"[1, 2]",'),
    ],
)
def test_a_table_is_given_back_as_it_is_written(
    fitted: tuple[Path, FitResult, str], name: str, before: str, header: str, row: str
) -> None:
    """With its delimiter, a comma if it has one column; no column of it is replaced, and lists are as those predicted are."""
    place = fitted[0]
    (place / name).write_text(before, newline="", encoding="utf-8")
    assert main(["predict", str(place / "run"), str(place / name), "--out", str(place / "given.csv")]) == 0
    after = (place / "given.csv").read_text(encoding="utf-8")
    assert after.startswith(header)
    assert f"\n{row}" in after


def test_each_file_of_a_folder_is_a_text(
    fitted: tuple[Path, FitResult, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder is named without a slash, and each prediction has the name of its file, of an empty one and a very long one too."""
    monkeypatch.chdir(fitted[0])
    monkeypatch.setattr("warmstart.data.read.MAX_CHARACTERS", 20)
    texts = {"empty.txt": "", "inbox/1.txt": "a cat\n\nin a river", "sent/1.txt": "a dog sleeps\nin a river\nall day"}
    for name, text in texts.items():
        Path("post", name).parent.mkdir(parents=True, exist_ok=True)
        Path("post", name).write_text(text + "\n" * bool(text))
    assert main(["predict", "run", "post"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["file"]: row["text"] for row in rows} == texts
    assert [row["label"] is None for row in rows] == [True, False, False]
    assert main(["predict", "run", "post/sent"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == "1.txt", "of the only one too"


def test_texts_that_have_changed_are_told() -> None:
    """Of texts like those held out, in 1 of 100 cases; of less typical ones, nearly always."""
    draws = np.random.default_rng(0)

    def told(shift: float) -> float:
        found = 0
        for _ in range(1000):
            held, new = np.sort(draws.normal(size=200)), draws.normal(-shift, size=500)
            found += drift_sentence(range(500), (1 + np.searchsorted(held, new, side="right")) / 201, 200) is not None
        return found / 1000

    assert told(0) < 0.02
    assert told(0.5) > 0.95
    likely, strange = ["a cat", "a dog", ["a", "cow"]], [["a", "zebra"]] * 200 + [" "] * 200
    assert drift_sentence([*likely, *strange], np.array([0.5] * 3 + [0.01] * 400), 200) is None, "each counts once, a blank not"
    assert drift_sentence([""], np.array([0.01]), 200) is None


def test_several_columns_are_one_text(tmp_path: Path) -> None:
    """A subject is read above its body, which is said with the flag that reads one; other texts are named."""
    rows = [f"Re: mail {number};It says {number}.;{'ab'[number % 2]}" for number in range(8)]
    (tmp_path / "mails.csv").write_text("\n".join(["Betreff;Text;Kategorie", "kein Text hier;;b", *rows]))
    said = guess_task(tmp_path / "mails.csv").sentences()[0]
    assert "read from column 'Betreff+Text', the label from 'Kategorie'. --text-column Text reads the latter alone." in said
    task = read_labelled(FitConfig(data=str(tmp_path / "mails.csv")))
    assert sorted(map(str, task.train.texts))[:2] == ["Re: mail 0\nIt says 0.", "Re: mail 1\nIt says 1."]
    assert "kein Text hier" in task.train.texts
    assert task.reading["text"] == "Betreff+Text"
    rows = [f"{'cd'[number % 2]},What of number {number}?,{'xyz'[number % 3]},Dear {number} and all" for number in range(8)]
    (tmp_path / "topics.csv").write_text("\n".join(["topic,text,intent,greeting", *rows]))
    assert '--text-column "greeting+text" reads both' in guess_task(tmp_path / "topics.csv").sentences()[0]
    parts = FitConfig(data=str(tmp_path / "topics.csv"), text_column="topic+text")
    assert read_labelled(parts).labels == ("x", "y", "z"), "no part of the text is the label"
    with pytest.raises(DataError, match="has no column 'Betref'; did you mean 'Betreff'"):
        read_labelled(FitConfig(data=str(tmp_path / "mails.csv"), text_column="Betref+Text"))


def test_the_terminal_says_what_to_use_how_good_against_what_and_what_next(fitted: tuple[Path, FitResult, str]) -> None:
    """In at most sixteen lines and without a statistician's words; the headline has at most 25 words."""
    place, found, said = fitted
    lines = fit_lines(found, place / "run", place / "run" / "report.html", TaskPlace(str(place / "texts.csv")), 1)
    assert len(lines) <= MOST_LINES
    untimed = [line for line in lines if " texts a second here" not in line]
    assert len(untimed) == len(lines) - 1
    assert [line for line in said.splitlines()[-len(lines) :] if " texts a second here" not in line] == untimed
    assert "seed 0" not in said, "nothing of each trial"
    assert len(found.headline.split()) <= 25
    assert not [word for word in BANNED if word in " ".join(lines).lower()]
    best = f"Use {glossed(found.best.name)}: right on 100 of 100 new texts (likely "
    for part in (best, 'always "', "best with", "  warmstart predict "):
        assert part in said, part
    sure = replace(found, tested=Estimate(0.86, 0.81, 0.9))
    assert sure.headline == f"Use {glossed(found.best.name)}: right on 86 of 100 new texts (likely 81 to 90)."


def test_the_page_shows_the_surest_mistakes_and_every_label(fitted: tuple[Path, FitResult, str]) -> None:
    """And folds what is for statisticians."""
    place, found, _ = fitted
    assert {row[0] for row in found.label_rows()} == {"cat", "other"}
    assert all(one.label != one.predicted for one in found.failures[0])
    page = (place / "run" / "report.html").read_text()
    assert "For statisticians" in page.partition("<details")[2]
    assert "learned from the labels, from words, characters and vectors, p = 0.0" in page.partition("<details")[2]
    assert ws.FitResult is FitResult
    assert found.headline in found._repr_html_()


def test_the_list_of_runs_names_a_fit_with_its_data_and_score(fitted: tuple[Path, FitResult, str]) -> None:
    """As it was called, not as the comparison inside it."""
    place, found, _ = fitted
    state = RunState(place / "run", "run")
    assert (state.command, state.subject) == ("fit", str(place / "texts.csv"))
    assert state.score == (found.best.name, pytest.approx(found.selected.expected.value))


def test_lists_in_memory_are_fitted_and_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``ws.fit`` gives the model itself; each of three labels is predicted where it belongs, also by the model that was saved."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    task = who()
    found = ws.fit(task.train.texts[:36], [task.labels[number] for number in task.train.labels[:36]])
    predicted = [one["label"] for one in ws.predict(found.model, task.test.texts)]
    assert np.mean(np.array(task.labels)[task.test.labels] == predicted) > 0.9
    saved = ws.load(str(ws.save(found.model, tmp_path / "kept")))
    assert [one["label"] for one in ws.predict(saved, task.test.texts)] == predicted
    assert not [*tmp_path.glob("warmstart-*")]


def test_an_encoder_is_fine_tuned_once_if_there_is_time(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By ``contrast``, or as named, beside words and frozen vectors; one that would not end in time has one fold."""
    save(language_bundle(tokenizer), tmp_path / "lm")
    monkeypatch.setattr(execution, "out_of_reach", lambda *_: False)
    config = FitConfig(data=str(table(tmp_path, 20)), encoders=(str(tmp_path / "lm"),), minutes=30, out=str(tmp_path / "run"))
    found = fit_data(config)
    assert {one.name for one in found.candidates} >= {"contrast", "stack"}
    folds = list[str]()

    def slow(self: FineTuning, model: Model) -> FineTuneResult:
        folds.append(self.title)
        time.sleep(0.1)
        return fine_tune(self, model)

    fine_tune = FineTuning.run
    monkeypatch.setattr(FineTuning, "run", slow)
    monkeypatch.setattr("warmstart.experiment.execution.time.time", lambda: time.monotonic() + 1e9 * bool(folds))
    named = fit_data(config.model_copy(update={"schemes": ("full",), "out": str(tmp_path / "slow")}))
    assert (named.missing, len(folds)) == (("full",), 1)
    folds.clear()
    monkeypatch.setattr("warmstart.experiment.fit.FIRST_FOLD", 1e9)
    never = fit_data(config.model_copy(update={"schemes": ("full",), "out": str(tmp_path / "never")}))
    assert (never.missing, len(folds)) == (("full",), 0), "nor is one begun whose first fold would not end"


def test_a_network_that_can_hardly_win_learns_no_further_folds(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is then no method for which the time was too short."""
    save(language_bundle(tokenizer), tmp_path / "lm")
    monkeypatch.setattr(execution, "out_of_reach", lambda *_: True)
    how = {"encoders": (str(tmp_path / "lm"),), "minutes": 30, "out": str(tmp_path / "run")}
    found = fit_data(FitConfig(data=str(table(tmp_path, 20)), **how))
    assert found.missing == ()
    assert not [one for one in found.candidates if one.family == "adapted"]


def test_ctrl_c_ends_with_the_best_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is saved, and what was not tried is named."""
    original, told = execution.result_of, list[str]()

    def interrupted(trial: Trial, context: SweepContext) -> TrialResult | None:
        told.append(trial.method.name)
        if told.count("NBSVM") == 1:
            raise KeyboardInterrupt
        return original(trial, context)

    monkeypatch.setattr(execution, "result_of", interrupted)
    found = fit_data(FitConfig(data=str(table(tmp_path)), out=str(tmp_path / "run")))
    assert found.missing == ("NBSVM", "naive Bayes + EM")
    assert found.no_time == "Interrupted, so these did not run: NBSVM, naive Bayes + EM."
    assert (tmp_path / "run" / "bundle").is_dir()


def test_ctrl_c_before_anything_has_learned_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The majority label alone is no result."""
    original = execution.result_of

    def interrupted(trial: Trial, context: SweepContext) -> TrialResult | None:
        if trial.method.name != "majority":
            raise KeyboardInterrupt
        return original(trial, context)

    monkeypatch.setattr(execution, "result_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_data(FitConfig(data=str(table(tmp_path)), out=str(tmp_path / "run")))


def test_what_is_cheap_runs_first_and_a_fit_holds_what_there_was_time_for(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest encoder, then words, before a larger one, which is missing here."""
    save(language_bundle(tokenizer, width=64), tmp_path / "large")
    save(language_bundle(tokenizer), tmp_path / "small")
    order, original = list[str](), execution.result_of

    def short(trial: Trial, context: SweepContext) -> TrialResult | None:
        order.append(Path(trial.method.backbone).name)
        return None if order[-1] == "large" else original(trial, context)

    monkeypatch.setattr(execution, "result_of", short)
    monkeypatch.setattr("warmstart.experiment.fit.SOON", 1)
    encoders = (str(tmp_path / "large"), str(tmp_path / "small"))
    found = fit_data(FitConfig(data=str(table(tmp_path)), encoders=encoders, schemes=(), out=str(tmp_path / "run")))
    assert order[0] == "small"
    assert {*order[: order.index("large")]} == {"", "small"}
    assert [one.name for one in found.candidates if one.name.endswith("small")] == ["frozen vectors · small"]
    assert {name.partition(" · ")[2] for name in found.missing} == {"large"}
    assert "stack" in {one.name for one in found.candidates}


def test_a_quick_encoder_has_a_turn_in_any_time(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As words have; an encoder that takes long has none, and no network is trained."""
    save(language_bundle(tokenizer), tmp_path / "lm")
    monkeypatch.delattr(FineTuning, "run")
    config = FitConfig(data=str(table(tmp_path)), encoders=(str(tmp_path / "lm"),), minutes=0.0001, out=str(tmp_path / "run"))
    assert {one.name for one in fit_data(config).candidates if one.family == "frozen"} == {"frozen vectors"}
    monkeypatch.setattr("warmstart.experiment.fit.SOON", 1)
    found = fit_data(config.model_copy(update={"out": str(tmp_path / "slow")}))
    assert not [one for one in found.candidates if one.family == "frozen"]


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory, few_baselines: None, words_alone: None) -> tuple[Path, FitResult]:
    """A fit by macro F1 and words alone, with test texts."""
    place = tmp_path_factory.mktemp("tested")
    held_out = {"body": cats(1).test.texts, "topic": [cats(1).labels[n] for n in cats(1).test.labels]}
    polars.DataFrame(held_out).write_csv(place / "held_out.csv")
    how = {"test": str(place / "held_out.csv"), "metric": "macro_f1", "out": str(place / "run")}
    return place, fit_data(FitConfig(data=str(table(place, 60)), **how))


def test_test_texts_that_are_given_are_scored_once(tested: tuple[Path, FitResult]) -> None:
    """Then they say how good the model is, by the metric."""
    _, found = tested
    assert found.how == "Scored once, on 30 test texts."
    predicted = [one["label"] for one in ws.predict(found.model, cats(1).test.texts)]
    right = f1_score(np.array(cats(1).labels)[cats(1).test.labels], predicted, average="macro")
    assert found.tested.value == pytest.approx(right)
    assert found.tested.low <= right <= found.tested.high


def test_macro_f1_chooses_where_it_is_asked_for(tested: tuple[Path, FitResult]) -> None:
    """It is said as such, of the chosen method and its rival with intervals; nothing is of 100."""
    place, found = tested
    page = (place / "run" / "report.html").read_text()
    assert "macro-F1, %" in page
    assert "of 100 of your texts" not in page
    found = replace(found, tested=None)
    value, low, high = found.selected.expected
    assert found.headline == f"Use {glossed(found.best.name)}: macro-F1 {value:.2f} on new texts (likely {low:.2f} to {high:.2f})."
    assert all("macro-F1 0." in row.score or "macro-F1 1." in row.score for row in found.rows)


def test_frequent_labels_are_likelier_only_in_a_random_sample(tmp_path: Path) -> None:
    """Of a text that says nothing, by the model that was saved; else every label is about as likely."""
    labels = ["cat"] * 27 + ["dog"] * 9
    rows = [
        (f"{'She has' if label == 'cat' else 'He sees'} a {label} {number}.".translate(LETTERS), label)
        for number, label in enumerate(labels)
    ]
    polars.DataFrame(rows, schema=["text", "label"], orient="row").write_csv(tmp_path / "texts.csv")
    likely = dict[bool, float]()
    for drawn in (True, False):
        out = str(tmp_path / f"run-{drawn}")
        fit_data(FitConfig(data=str(tmp_path / "texts.csv"), random_sample=drawn, out=out))
        likely[drawn] = ws.predict(ws.load(out), ["zebra"])[0]["probabilities"]["cat"]
    assert likely[True] > 0.6
    assert abs(likely[False] - 0.5) < 0.15


def test_rows_without_a_text_and_copies_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row without a text is left out, a copy is kept."""
    words = "label,text\n" + "cat,She has a cat.\ndog,He sees a dog.\n" * 3 + "cat,\n"
    (tmp_path / "texts.csv").write_text(words)
    task = read_labelled(FitConfig(data=str(tmp_path / "texts.csv")))
    assert "since they have no text: 1 of 7 rows of" in capsys.readouterr().err
    assert audit(task).copies == ["4 texts of train (66.7%) repeat an earlier one, such as 'She has a cat.'."]


def test_a_few_texts_without_labels_teach_nothing(fitted: tuple[Path, FitResult, str]) -> None:
    """No method reads fewer of them than five; twenty are read."""
    task = cats()
    one = ws.fit(task.train.texts[:20], [task.labels[n] for n in task.train.labels[:20]], unlabelled=task.train.texts[20:21])
    for found, few in ((one, True), (fitted[1], False)):
        assert ("naive Bayes + EM" in {candidate.name for candidate in found.candidates}) != few
        assert ("too few to learn from" in fit_lines(found, None, None, None)[0]) == few


def test_more_texts_are_read_as_the_table_was(tmp_path: Path) -> None:
    """A table of texts without labels by the same column, and lines of a text file; pairs and a manifest's --test are refused."""
    place = table(tmp_path, 60)
    polars.DataFrame({"body": ["I see a dog.", "We see the river."]}).write_csv(tmp_path / "more.csv")
    (tmp_path / "lines.txt").write_text("She has a boat.\n")
    config = FitConfig(data=str(place), unlabelled=(str(tmp_path / "more.csv"), str(tmp_path / "lines.txt")))
    task = read_labelled(config)
    assert [*documents_of(task.unlabelled)] == ["I see a dog.", "We see the river.", "She has a boat."]
    with pytest.raises(ConfigError, match="--test goes with a table"):
        read_labelled(FitConfig(data=str(write_task(tmp_path / "pairs", "classification")), test="other.csv"))
    with pytest.raises(DataError, match="of pairs of texts; `warmstart adapt`"):
        fit_data(FitConfig(data=str(tmp_path / "pairs" / "task.yaml"), out=str(tmp_path / "run")))


@pytest.mark.parametrize(
    ("name", "text", "cat"),
    [
        ("labels.txt", "cat\ta pet that purrs\nother\tanything else\n", "a pet that purrs"),
        ("labels.csv", "label,description\ncat,a pet that purrs\nother,anything else\n", "a pet that purrs"),
        ("labels.yaml", "cat: a pet that purrs\nother: anything else\n", "a pet that purrs"),
        ("labels.tsv", 'cat\t"a pet\nother\tanything else\n', '"a pet'),
    ],
)
def test_a_file_says_what_labels_mean(tmp_path: Path, name: str, text: str, cat: str) -> None:
    """Lines, a csv or YAML; also of labels that no text has. A quotation mark after a tab is a character."""
    (tmp_path / name).write_text(text)
    for labels in (("cat", "other"), ("cat", "dog")):
        assert read_descriptions(tmp_path / name, labels) == {"cat": cat, "other": "anything else"}


def test_descriptions_without_words_and_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_bytes("cat\tété\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"labels\.tsv.*must be UTF-8"):
        read_descriptions(tmp_path / "labels.tsv", ("cat", "other"))
    (tmp_path / "labels.yaml").write_text("cat:\n")
    with pytest.raises(ConfigError, match="must have words, but that of 'cat' is empty"):
        read_descriptions(tmp_path / "labels.yaml", ("cat", "other"))


def test_descriptions_of_labels_reach_the_methods(tmp_path: Path) -> None:
    """By the command's flag; a label that no text has is a label of the model."""
    (tmp_path / "labels.txt").write_text("cat\ta pet that purrs\nbird\tit flies\n")
    given = FitConfig(data=str(table(tmp_path)), labels_file=str(tmp_path / "labels.txt"), minutes=0.01, out=str(tmp_path / "run"))
    found = fit_data(given)
    assert found.task.label_meanings == ("a pet that purrs", "other", "it flies")
    assert found.model.labels == ("cat", "other", "bird")


def test_labels_that_say_nothing_make_no_model(tmp_path: Path) -> None:
    """If no method gains anything over the most frequent label, the advice is to label more.

    What an earlier fit left in the folder, its model and its score, is removed.
    """
    rows = {"body": [f"word{number} " * 3 for number in range(40)], "topic": ["a", "a", "a", "b"] * 10}
    polars.DataFrame(rows).write_csv(tmp_path / "nothing.csv")
    first = FitConfig(data=str(table(tmp_path, 20)), out=str(tmp_path / "run"))
    assert fit_data(first).learned
    assert (tmp_path / "run" / "bundle").is_dir()
    found = fit_data(first.model_copy(update={"data": str(tmp_path / "nothing.csv")}))
    assert (found.learned, found.model) == (False, None)
    assert found.headline == "Label more texts first: no method does better than always saying a."
    place = TaskPlace("texts.csv", ("--label-column", "topic"))
    assert fit_lines(found, None, None, place)[-2:] == ["Next", "  warmstart fit texts.csv --label-column topic"]
    assert not (tmp_path / "run" / "bundle").exists()
    assert RunState(tmp_path / "run", "run").score is None


def test_a_figure_that_is_not_known_well_is_nowhere_said(tmp_path: Path) -> None:
    """Neither on the terminal nor on the page, and the headline names the texts that are too few."""
    task = cats()
    known = fit_result()
    few = replace(known, task=replace(task, test=task.test.take(np.arange(5))), tested=Estimate(0.8, 0.38, 0.96))
    assert (known.told, few.told) == (True, False)
    assert few.headline == f"Use {glossed(few.best.name)}; 5 test texts are too few to say how often it is right."
    right, left_out = known.best.right[:8], known.left_out.take(np.arange(8))
    eight = replace(known.task, train=left_out)
    labels = replace(known, task=eight, left_out=left_out, candidates=(known.best._replace(right=right),))
    assert labels.headline == f"Use {glossed(few.best.name)}; 8 labels are too few to say how often it is right."
    assert few.how == labels.how == ""
    assert (few.rows[0].score, few.rows[0].ends) == ("too few texts to say", None)
    assert "80 of 100" not in " ".join([*fit_lines(few, tmp_path, tmp_path, None), *few.findings])


def test_the_best_without_pretraining_is_named_so_only_beside_pretraining() -> None:
    """A stack of methods without any has a best single one."""
    found = fit_result()
    alone = tuple(one for one in found.candidates if one.family != "frozen")
    rivals = [one.rows[1] for one in (found, replace(found, candidates=alone))]
    assert {one.name for one in rivals} == {"naive Bayes + EM"}
    assert [one.role for one in rivals] == ["best without pretraining", "best single method"]


def test_a_rival_that_may_be_as_good_is_said_to_be_so() -> None:
    """A higher figure beside the recommended one says why it is not taken; nothing is said of a rival that is clearly worse."""
    found = fit_result()
    best, rival, places = found.best, found.rival, np.arange(len(found.best.right))
    figures = (best.right * (places != best.right.argmax()), np.maximum(best.right, places == best.right.argmin()), 0 * best.right)
    close, lucky, worse = (
        replace(found, candidates=tuple(one._replace(right=right) if one is rival else one for one in found.candidates))
        for right in figures
    )
    assert any(line.startswith("Not yet clear") for line in fit_lines(close, None, None, None))
    assert worse.unclear == ""
    assert [one.rows[1].role.endswith("ahead by no more than luck") for one in (lucky, worse)] == [True, False]


def test_frames_and_files_are_fitted_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the command reads them, in silence on temporary files; the result is five lines, predicts and saves."""
    monkeypatch.chdir(tmp_path)
    task = who()
    labels = [task.labels[number] for number in task.train.labels[:24]]
    frame = {"subject": [*"abcdefghijkl"] * 2, "body": [*task.train.texts[:24]], "kind": [*labels[:22], None, None]}
    found = ws.fit(frame, text="subject+body", label="kind", minutes=0.1)
    assert "the frame: 2 of 24 rows have no label" in (said := capsys.readouterr().err)
    assert "ndjson" not in said
    assert [*map(len, (found.task.train, found.task.unlabelled_texts))] == [22, 2]
    assert found.task.train.texts[0] == f"a\n{task.train.texts[0]}"
    assert 4 <= len(repr(found).splitlines()) <= 5
    assert {*found.predict(frame["body"])} <= {*labels}
    assert {*ws.predict(ws.load(found.save("kept")), frame["body"])[0]} == {"label", "probabilities"}
    rows = zip(["text", *frame["body"]], ["label", *labels], strict=True)
    (tmp_path / "mails.csv").write_text("".join(f"{text},{label}\n" for text, label in rows))
    assert len(ws.fit("mails.csv", minutes=0.1).task.train) == 24
    with pytest.raises(ConfigError, match="fit has no option 'minute'; did you mean 'minutes'"):
        ws.fit(frame, minute=1)  # type: ignore[call-arg]


def test_the_model_keeps_how_sure_it_was_of_texts_left_out(fitted: tuple[Path, FitResult, str]) -> None:
    """So that ``predict`` can abstain, if it is asked to; without a guarantee the terminal says nothing of it."""
    place, found, said = fitted
    held_out = ws.load(str(place / "run" / "bundle")).calibration.held_out
    assert (found.alone.examples, len(held_out)) == (40, 40)
    assert "Answers alone" not in said, "59 right answers are the fewest that guarantee an error rate of 5%"
    asked = [str(place / "run"), str(place / "texts.csv"), "--target-error", "0.4", "--out", str(place / "sure.csv")]
    assert main(["predict", *asked]) == 0
    labelled = polars.read_csv(place / "sure.csv")
    assert labelled["label"].is_not_null().sum() >= 30
    assert labelled["abstained"].to_list() == labelled["label"].is_null().to_list()
    sure = replace(found, alone=find_threshold(np.linspace(0.5, 1, 200), np.ones(200, dtype=bool), 0.05))
    assert "Answers alone: 100 of 100, with at most 5 of 100 of these wrong (predict --target-error 0.05)." in sure.findings


def rare(share: float) -> FitResult:
    """A fit of sixty labels of which so many are the first."""
    found, labels = fit_result(), (np.arange(60) >= round(60 * share)).astype(np.int64)
    split = replace(found.left_out, labels=labels)
    always = np.eye(2)[np.zeros(60, dtype=int)]
    first = found.candidates[0]._replace(predicted=always, right=(labels == 0).astype(float), score=share)
    careful = found.candidates[2]._replace(predicted=np.eye(2)[np.where(np.arange(60) % 7, labels, 1 - labels)])
    careful = careful._replace(right=careful.predicted[np.arange(60), labels], score=0.85)
    return replace(found, task=found.task.with_train(split), left_out=split, candidates=(first, careful))


SAID = 'Of the texts with "cold" none is recognised.'


def test_a_label_that_is_never_recognised_is_named() -> None:
    """Where accuracy chose the method, and at least five texts have the label."""
    found, labels = rare(0.5), np.repeat([0, 1, 2], [30, 24, 6])
    split = replace(found.left_out, labels=labels)
    task = replace(found.task.with_train(split), labels=("hot", "warm", "cold"))
    for most, said in ((1, True), (2, False)):
        best = found.candidates[1]._replace(right=(labels <= most).astype(float))
        always = found.candidates[0]._replace(right=(labels == 0).astype(float))
        one_sided = replace(found, task=task, left_out=split, candidates=(always, best))
        assert (one_sided.unrecognised == SAID) == said


def test_a_method_that_ignores_the_rare_label_is_not_chosen_by_macro_f1() -> None:
    """By accuracy it would be, and then it is said that accuracy misleads; without a rare label nothing is said."""
    found = rare(0.9)
    by_f1 = replace(found, task=replace(found.task, metric="macro_f1"))
    assert (found.best.name, by_f1.best.family) == ("majority", "frozen")
    assert [row.score for row in by_f1.rows if row.name.startswith("always")] == ["macro-F1 0.47"]
    said = 'Always "other" is right on 90 of 100, so accuracy misleads.'
    assert found.misleads == said
    assert said in found.warnings
    assert f"{said[:-1]}; --metric macro_f1 chooses by the mean over labels." in found.to_dict()["warnings"]
    known = fit_result()
    rival = replace(known, task=replace(known.task, metric="macro_f1")).findings[2]
    assert re.search(r"naive Bayes \+ EM, macro-F1 0\.\d\d\.$", rival)
    assert (by_f1.misleads, rare(0.5).misleads) == ("", "")
    assert rare(0.75).misleads, "within the interval of the chosen method"


def test_labels_that_no_text_has_yet_are_counted() -> None:
    """By those seen once; a few are not worth a sentence."""
    found = fit_result()
    many, few = (np.where(np.arange(60) < once, np.arange(60), 60) for once in (6, 1))
    seen = [replace(found, task=found.task.with_train(replace(found.task.train, labels=labels))) for labels in (many, few)]
    assert seen[0].unseen.startswith("About 10 of 100 new texts have a label that none of your texts has; ")
    assert seen[1].unseen == ""
    described = replace(seen[0], task=replace(seen[0].task, label_descriptions={"no": "a refusal"}))
    assert "so the score may be too low" in described.unseen


def test_what_more_labels_would_bring_is_said_where_it_is_known(fitted: tuple[Path, FitResult, str]) -> None:
    """Of a round number of them; not with a range that says nothing. Where the time was too short, that is said."""
    found = fitted[1]
    assert (found.more[0], found.more[1].low <= found.more[1].value <= found.more[1].high) == (20, True)
    known, wide = (replace(found, more=(20, Estimate(0.03, low, high))) for low, high in ((-0.01, 0.05), (-0.3, 0.3)))
    assert known.outlook == "20 more labels: about 3 of 100 more right (likely 0 to 5)."
    assert replace(found, more=(20, Estimate(0.001, 0, 0.05))).outlook.startswith("20 more labels: hardly any of 100 more right")
    assert wide.outlook == ""
    late = replace(found, more=None, late=True, missing=("contrast",))
    assert late.no_time == "The time was too short for contrast and to say what more labels would add."
    assert late.findings[-1] == f"{late.no_time[:-1]}; --minutes gives more."


def test_labels_are_counted_among_as_many_texts_as_the_time_allows(
    fitted: tuple[Path, FitResult, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow encoder reads fewer of them, and where there is no time for twenty, none."""
    pool = [f"I see a cat and {number} rivers." for number in range(60)]
    for seconds, count in ((1.0, None), (5.0, 50), (500.0, 60)):
        clock = iter((0.0, 2.0))  # the first twenty texts take two seconds
        monkeypatch.setattr(fitting, "time", SimpleNamespace(monotonic=clock.__next__))
        counted = fitting._shares(fitted[1].model, pool, seconds)
        assert (counted and counted.groups[0].texts, counted and counted.asked) == (count, count and 60)


def test_the_answers_that_a_model_keeps_hold_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """As SECURITY.md says: a hash, the label and the probabilities of each; no hash where none is wanted."""
    task = cats().train.take(range(12))
    kept = fitting._left_out_answers(task, np.full((12, 2), 0.5), None)
    assert not any(word in kept.model_dump_json() for text in task.texts for word in text.lower().split() if len(word) > 3)
    assert {*map(len, kept.hashes)} == {10}, "40 bits in hexadecimal"
    assert kept.labels == tuple((int(label),) for label in task.labels)
    assert kept.random == (True,) * 12
    some = replace(cats(), random_texts=frozenset(kept.hashes[:5]))
    assert fitting._left_out_answers(task, np.full((12, 2), 0.5), some).random == (True,) * 5 + (False,) * 7
    assert fitting._left_out_answers(task, np.full((12, 2), 0.5), cats()).random == ()
    monkeypatch.setenv(NO_HASHES, "1")
    assert fitting._left_out_answers(task, np.full((12, 2), 0.5), None) == kept.model_copy(update={"hashes": ()})


def test_folds_with_a_share_of_the_labels_predict_the_same_texts() -> None:
    """Of those that learn, so many fewer, and one of each class at least."""
    budget = label_budget(cats(), 40, "none", 0)
    for whole, part in zip(budget.folds, replace(budget, share=0.5).folds, strict=True):
        assert {*part.learn} < {*whole.learn}
        assert len(part.learn) == round(len(whole.learn) / 2)
        assert (part.choose == whole.choose).all()


def test_the_curve_of_more_labels_counts_those_that_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many classes a small share of the labels is still one of each."""
    numbers = list[list[int]]()
    monkeypatch.setattr(fitting, "extrapolate", lambda scores, pool: numbers.append([*scores]))
    names = [f"class{number % 12}" for number in range(36)]
    assert ws.fit([f"about {name} {place}" for place, name in enumerate(names)], names).learned
    assert numbers == [[12, 14, 20, 29]]


def test_labels_of_which_nothing_can_be_learned_are_refused() -> None:
    """With what must hold, what came, and what to do."""
    for labels, message in (
        (["a"] * 12, "texts of at least two labels, but all 12 have 'a'"),
        ([f"id {number}" for number in range(12)], "nearly every text has a label of its own"),
        ([f"id {number % 40}" for number in range(60)], "labels must repeat, but 60 texts have 40 different ones"),
    ):
        with pytest.raises(DataError, match=message):
            ws.fit([f"text {number}" for number in range(len(labels))], labels)


def test_many_classes_with_names_may_have_fewer_than_two_texts_each() -> None:
    """Methods that read names answer with them; of ids and numbers as many are refused above."""
    names = [one + other for one in "abcdefgh" for other in "abcde"]  # 40, of which the first 20 repeat
    check_labels(ws.Task.from_lists([f"text {number}" for number in range(60)], [*names, *names[:20]], test=0))


def test_a_table_without_labels_is_refused_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, one message, no folder."""
    place = table(tmp_path, 0)
    assert main(["fit", str(place), "--text-column", "body", "--label-column", "topic", "--out", str(tmp_path / "run")]) == 2
    assert "has none (blank 60); name another with --label-column" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()
    polars.DataFrame({"body": ["I see a cat."], "topic": [""]}).write_csv(tmp_path / "held_out.csv")
    with pytest.raises(DataError, match=r"held_out\.csv must have labels in column 'topic', but has none"):
        read_labelled(FitConfig(data=str(table(tmp_path)), test=str(tmp_path / "held_out.csv")))
    (tmp_path / "held_out.csv").rename(tmp_path / "test.csv")  # beside train.csv: not named, so not refused
    assert not len(read_labelled(FitConfig(data=str(table(tmp_path).rename(tmp_path / "train.csv")))).test)
    assert "Not used as the test split: " in capsys.readouterr().err


@pytest.mark.proofs
def test_the_texts_left_out_guarantee_what_the_model_answers_alone() -> None:
    """Of 400 users with 200 labels each, at most 5% get a model that errs more often than promised, also where it was chosen.

    Each chooses the best of three classifiers by five folds, fits its temperature to all that was left out, and the threshold too.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier

    chance, kinds, users, broken, found = np.random.default_rng(0), 3, 400, 0, 0
    for _ in range(users):
        centres = chance.normal(0, 1.0, (kinds, 8))

        def texts(count: int, centres: np.ndarray = centres) -> tuple[np.ndarray, np.ndarray]:
            labels = chance.integers(0, kinds, count)
            return centres[labels] + chance.normal(0, 1.2, (count, 8)), labels

        (rows, labels), (new, truth) = texts(200), texts(4000)
        models = [LinearDiscriminantAnalysis(), GaussianNB(), KNeighborsClassifier(15)]
        folds, left_out = np.array_split(chance.permutation(200), 5), np.zeros((3, 200, kinds))
        for fold in folds:
            learn = np.setdiff1d(np.arange(200), fold)
            for number, model in enumerate(models):
                left_out[number, fold] = model.fit(rows[learn], labels[learn]).predict_proba(rows[fold])
        best = int((left_out.argmax(axis=2) == labels).mean(axis=1).argmax())
        temperature = fit_temperature(left_out[best], labels)
        confidence, right = confidence_and_correct(apply_temperature(left_out[best], temperature), labels)
        threshold = find_threshold(confidence, right, 0.05).threshold
        answers = apply_temperature(models[best].fit(rows, labels).predict_proba(new), temperature)
        alone = confidences_of(answers) >= threshold
        found += bool(alone.any())
        broken += bool(alone.any()) and (answers[alone].argmax(axis=1) != truth[alone]).mean() > 0.05
    print(f"{found} of {users} users have a threshold, which breaks its promise for {broken}")
    assert found > users / 4
    assert broken / users <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / users)


def test_nothing_is_promised_of_texts_that_spell_their_label_nor_of_noise(tmp_path: Path) -> None:
    """No figure stands in any line, and the headline or a warning says why; the model is saved."""
    draw = random.Random(0)
    words = [f"w{chr(97 + one)}" for one in range(20)]
    for form, why in (("Category: {label}\n{text}", "your texts spell their label"), ("{text}", "anything can be learned")):
        rows = [(" ".join(draw.choices(words, k=8)), draw.choice(["ship", "bill"])) for _ in range(60)]
        texts = [form.format(text=text, label=label) for text, label in rows]
        found = ws.fit(texts, [label for _, label in rows])
        lines = fit_lines(found, None, tmp_path / "report.html", None)
        assert not found.told
        assert "of 100 new texts" not in " ".join(lines)
        assert "Answers alone" not in " ".join(lines)
        assert not found.learned or why in found.headline
        assert any("of the training texts spell their label" in line for line in lines) == ("Category" in form)
