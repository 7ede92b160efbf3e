"""A bundle's history: records that survive JSON, the model card that is written from them, and the data that they know."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.bundles import classifier, language_bundle, unread_model, word_stack
from helpers.models import make_language_model
from helpers.multitask import write_inputs
from helpers.tasks import cats, tune, write_task
from warmstart.cli import main
from warmstart.commands.adapt.command import adapt
from warmstart.data import text_key
from warmstart.data.task import Split, Task
from warmstart.data.text_key import BYTES, NO_HASHES, TextHashes, joint_overlap, key_of
from warmstart.errors import ConfigError, ModelError
from warmstart.experiment.config import AdaptConfig
from warmstart.model import files
from warmstart.model.bundle import Bundle, Language
from warmstart.model.card import card, markdown_table
from warmstart.model.files import load_bundle, load_saved, save
from warmstart.model.history import IMPORT, DataRecord, FindingRecord, Provenance, Record, ScoreTable, recorded_tasks, seen_labels
from warmstart.runs.run import provenance
from warmstart.stats.formatting import percent
from warmstart.stats.splits import ONE_SPLIT
from warmstart.tasks.load import save_task
from warmstart.tasks.trained_on import changed_data, known_texts
from warmstart.tokenizer.tokenizer import Tokenizer


def test_it_says_what_an_adaptation_found(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Labels, intervals beside baselines, findings of the audit, the command, and too few seeds as a limit."""
    save(language_bundle(tokenizer), tmp_path / "lm")
    task = str(write_task(tmp_path / "classification", "classification"))
    given = {
        "model": str(tmp_path / "lm"),
        "task": task,
        "out": str(tmp_path / "run"),
        "seeds": 2,
        "details": True,
        "tune": tune(epochs=1),
    }
    outcome = adapt(AdaptConfig.build(given))
    text = (tmp_path / "run" / "bundle" / "README.md").read_text(encoding="utf-8")
    said = ["`cats`", "from scratch", "TF-IDF", "majority", "`classification`: 48 for train", "fewer than 3 seeds"]
    said += ["adapt with `--calibration-fraction`", f"- {ONE_SPLIT}"]
    said += [percent(row.interval.mean) for row in outcome.comparison.rows]
    worse = "whose seed did best on the texts that choose; another seed would do worse on average"
    said += [f"the run that is saved here, {worse}:", *(finding.sentence for finding in outcome.audit.findings())]
    assert [words for words in said if words not in text] == []
    assert ONE_SPLIT in " ".join(capsys.readouterr().err.split())
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert page.count(f"These figures are those of the saved model, {worse}.") == 1
    assert outcome.audit.findings()
    assert text.startswith("---\nlibrary_name: warmstart\npipeline_tag: text-classification\n---\n")


def test_what_the_audit_found_is_told(tokenizer: Tokenizer) -> None:
    """With its severity; and that it found nothing."""
    found = FindingRecord(severity="error", sentence="3 texts stand in both splits")

    def card_of(*findings: FindingRecord) -> str:
        record = Record(command="adapt", data=(DataRecord(name="mine", with_labels=True, audit=findings),))
        return card(Bundle(make_language_model(vocab_size=tokenizer.vocab_size), tokenizer, history=(record,)))

    assert "- error: 3 texts stand in both splits" in card_of(found)
    assert "The audit of the data found nothing." in card_of()


def test_no_history_is_in_its_way(tokenizer: Tokenizer) -> None:
    """Bundles made in Python say little, but they say it."""
    for causal, history in (
        (True, ()),
        (False, (Record(command="pretrain"),)),
        (True, (Record(command="mine", settings={"anything": 1}),)),
    ):
        model = make_language_model(vocab_size=tokenizer.vocab_size, causal=causal)
        assert "## Limits" in card(Bundle(model, tokenizer, history=history))


def test_it_says_what_a_model_is_for_and_how_people_oversee_it(tokenizer: Tokenizer) -> None:
    """By what it learned from; a language model is a beginning, one that writes is no source of facts."""
    record = Record(command="fit", data=(DataRecord(name="mails", with_labels=True, sizes={"train": 120}),))
    words = card(replace(word_stack(), history=(record,)))
    assert "It is for texts like those of `mails` (120 texts that it learned from)" in words
    assert "no ground by itself for a decision about a person" in words
    assert "Its weights are of its maker alone." in words
    assert "it decides nothing" in card(language_bundle(tokenizer))
    assert "nobody should read it as a fact" in card(replace(language_bundle(tokenizer), language=Language(generates=True)))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"source": "owner/small", "licence": "MIT"}, "Of the weights that it began from, `owner/small` has the licence MIT."),
        ({"family": "bert"}, "It began from weights of others; their licence is not recorded here."),
    ],
)
def test_it_names_the_licence_of_the_weights_that_it_began_from(
    tokenizer: Tokenizer, settings: dict[str, str], sentence: str
) -> None:
    """Of encoders by name; of others it says that nothing is recorded."""
    record = Record(command=IMPORT, settings=settings)
    assert sentence in card(replace(language_bundle(tokenizer), history=(record,)))


def test_data_brings_no_markup_into_a_card(tokenizer: Tokenizer) -> None:
    """Names of labels and tasks and quoted texts add no HTML, picture or link, end no code, and stay in their cell of a table."""
    assert markdown_table(("a", "b"), [["x|y", "1\n2"]]) == "| a | b |\n| --- | --- |\n| x\\|y | 1 2 |"
    evil = "`<script>alert(1)</script>\n# ![x](http://a)`"
    found = FindingRecord(severity="error", sentence=f"a text is in both, such as '{evil}'")
    task = DataRecord(name=evil, with_labels=True, sizes={"train": 9}, audit=(found,))
    table = ScoreTable(title=evil, header=("method", evil), rows=((evil, "1"),))
    record = Record(command=evil, data=(task,), tables=(table,), scores={evil: 1.0}, notes=(evil,))
    text = card(Bundle(classifier(tokenizer), tokenizer, (evil, "b"), (record,)))
    outside = re.sub(r"`[^`\n]*`", "", text)
    assert not any(mark in outside for mark in ("<script", "![x]"))
    assert "\n# !" not in text


def test_nothing_reads_it_back(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """It may be edited, or removed, and the bundle is as whole as before."""
    bundle = language_bundle(tokenizer)
    place = save(bundle, tmp_path / "b")
    (place / "README.md").write_text("mine")
    load_bundle(place)
    (place / "README.md").unlink()
    again = load_bundle(place)
    assert torch.equal(again.model.backbone.embedding.weight, bundle.model.backbone.embedding.weight)


ORIGIN = Provenance(command="warmstart x", machine="a laptop", date="2026-11-22", warmstart="0.1.0")
TEXTS = TextHashes.of(["a text", ["two", "parts"]], [0, 1])
TASK = DataRecord(
    name="topics", with_labels=True, type="classification", labels=("a", "b"), sizes={"train": 8, "validation": 2, "test": 4},
    splits={"train": TEXTS}, labelled=TEXTS,
)  # fmt: skip
TABLE = ScoreTable(title="accuracy on the test split", header=("method", "score"), rows=(("full", "75.0%"), ("probe", "50.0%")))
READ = DataRecord(name="NLI", with_labels=True, source="a paper")
RECORD_CASES: dict[str, Record] = {
    "pretrain": Record(
        command="pretrain", seed=1, seconds=0.5, provenance=ORIGIN, scores={"loss": 1.5},
        data=(DataRecord(name="corpus", sizes={"tokens": 9}, digest="f" * 64), DataRecord(name="topics", sizes={"texts": 9})),
    ),
    "adapt": Record(command="adapt", data=(TASK,), seed=0, tables=(TABLE,), scores={"accuracy": 0.5}, notes=("Few labels.",)),
    "continual": Record(command="continual", data=(DataRecord(name="moods", with_labels=True), TASK), seed=0),
    "import": Record(command="import", settings={"family": "gpt2"}, data=(READ,)),
}  # fmt: skip


def test_every_record_survives_json(tokenizer: Tokenizer) -> None:
    """A record that is written to JSON and read back equals itself; what is no record is refused, with what to do."""
    for record in RECORD_CASES.values():
        assert Record.build(json.loads(json.dumps(record.to_dict()))) == record
    with pytest.raises(ConfigError, match="command"):
        Record.build({"kind": "adapt"})
    with pytest.raises(ModelError, match=r"Record\(command=\.\.\., settings=\{\.\.\.\}\) holds anything"):
        replace(language_bundle(tokenizer), history=({"command": "mine"},))


def test_a_card_prints_every_record(tokenizer: Tokenizer) -> None:
    """What each step measured, noted, read and ran."""
    text = card(replace(language_bundle(tokenizer), history=tuple(RECORD_CASES.values())))
    for words in (
        "| loss | 1.5 |", "accuracy on the test split:", "| full | 75.0% |", "- Few labels.", "**import (gpt2)**",
        "`corpus`, without labels: 9 tokens, with the digest `ffffffffffffffff`.", "`topics`, without labels: 9 texts.",
        "`topics`: 8 for train, 2 for validation, 4 for test.", "Before it was imported, it has read NLI, says a paper.",
        "**pretrain**: seed 1, 0 s, 2026-11-22, a laptop, warmstart 0.1.0", "warmstart x",
    ):  # fmt: skip
        assert words in text, words


def test_labels_seen_before_are_known(tokenizer: Tokenizer) -> None:
    """Labels of a task and of several tasks count; text read without its labels, or before an import, does not."""

    def after(name: str) -> Bundle:
        return replace(language_bundle(tokenizer), history=(RECORD_CASES[name],))

    assert all(seen_labels(after(name).history, "topics") for name in ("adapt", "continual"))
    assert seen_labels(after("continual").history, "moods")
    assert not seen_labels(after("pretrain").history, "topics")
    assert not seen_labels(after("adapt").history, "moods")
    assert not seen_labels(after("import").history, "NLI")


def keys(start: int, stop: int) -> list[str | list[str]]:
    """Those of different texts."""
    return [key_of(f"text number {number}") for number in range(start, stop)]


def test_few_texts_are_counted_exactly() -> None:
    """Copies count each; case and punctuation make no other text; a text of two parts is none of one."""
    before, now = TextHashes.of(keys(0, 100)), TextHashes.of(keys(10, 150))
    assert before.changes(now) == (50, 10)
    overlap = joint_overlap([before], [*map(key_of, ["Text number 7!", "text number 7", "new", ("text", "number 7")])])
    assert overlap == (2, (0, 1), True)
    assert overlap.words == "2"
    assert TextHashes.of(keys(0, 3)) == TextHashes.of(keys(0, 3)[::-1])
    assert TextHashes.of(keys(0, 2), ["a", "b"]).digest != TextHashes.of(keys(0, 2), ["b", "a"]).digest
    assert joint_overlap([TextHashes.of([])], keys(0, 2)) == (0, (), True)


def test_texts_of_several_records_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, whichever record knows it; an estimate is never above the number of texts."""
    known = [TextHashes.of(keys(0, 3)), TextHashes.of(keys(2, 7))]
    assert joint_overlap(known, keys(0, 8)) == (7, tuple(range(7)), True)
    assert joint_overlap([], keys(0, 8)) == (0, (), True)
    monkeypatch.setattr(text_key, "MOST", 100)
    large = TextHashes.of(keys(0, 400))
    assert all(joint_overlap([large], keys(start, start + 5)).number <= 5 for start in range(0, 400, 5))


def test_many_texts_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hashes of a large split take no more room; its counts are near the truth, and said to be estimates."""
    monkeypatch.setattr(text_key, "MOST", 1000)
    before, now = TextHashes.of(keys(0, 10_000)), TextHashes.of(keys(2000, 14_000))
    assert len(before.kept) == len(now.kept) == 1000
    assert len(before.hashes) == pytest.approx(1000 * BYTES * 4 / 3, abs=4)
    new, missing = before.changes(now)
    assert new == pytest.approx(4000, rel=0.2)
    assert missing == pytest.approx(2000, rel=0.2)
    overlap = joint_overlap([before], keys(5000, 20_000))
    assert overlap.number == pytest.approx(5000, rel=0.15)
    assert overlap.words == f"about {overlap.number:,}"
    assert TextHashes.of(keys(0, 900)).changes(before)[1] == 0
    assert joint_overlap([before], keys(20_000, 60_000)).number == 0, "other texts are not taken for known ones"


# ---------------------------------------------------------------------------------------------------- commands


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """Tasks and a language model."""
    return write_inputs(tmp_path, tokenizer)


def adapted(place: Path, *more: str) -> Path:
    """A model of the task."""
    words = ["adapt", str(place / "lm"), str(place / "cats"), "--steps", "2", "--batch", "8", "--no-scratch", "--no-baselines"]
    assert main([*words, "--out", str(place / "run"), *more]) == 0
    return place / "run"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command says."""
    capsys.readouterr()
    assert main([*words]) == 0
    return " ".join(capsys.readouterr().err.split())


def written(task: Task, place: Path) -> str:
    """The manifest of a task."""
    return str(save_task(task, place))


def changed(task: Task, add: tuple[str, ...], drop: int) -> Task:
    """With other training texts."""
    labels = np.concatenate([task.train.labels[drop:], np.zeros(len(add), dtype=np.int64)])
    return task.with_train(Split((*task.train.texts[drop:], *add), labels))


def test_data_that_has_changed_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which split, and how many texts are new and missing; also other labels. Unchanged data, and another task, are not named."""
    run, task = str(adapted(place, "--seeds", "1")), cats()
    assert "changed since" not in said(capsys, "evaluate", run, str(place / "cats"))
    grown = written(changed(task, ("Dogs bark.", "A bird sings."), 1), place / "grown")
    found = said(capsys, "evaluate", run, grown)
    assert "The train split of 'cats' has changed since the model was trained: 2 texts are new and 1 text is missing." in found
    assert "The test split of 'cats'" not in found
    relabelled = written(replace(task, test=Split(task.test.texts, 1 - task.test.labels)), place / "relabelled")
    same = "its texts are the same, but have other labels, or other numbers of copies."
    assert f"The test split of 'cats' has changed since the model was trained: {same}" in said(capsys, "evaluate", run, relabelled)
    other = written(replace(changed(task, ("Dogs bark.",), 1), name="dogs"), place / "dogs")
    assert "changed since" not in said(capsys, "evaluate", run, other)
    leaky = written(replace(task, test=Split((*task.test.texts, "New."), np.r_[task.test.labels, 0])), place / "more")
    assert "since the model was trained: 1 text is new." in said(capsys, "evaluate", run, leaky)
    empty = changed_data(load_bundle(place / "run" / "bundle"), "cats", {})
    assert "has changed since the model was trained: it has no texts any more." in empty[0]


def test_test_texts_that_were_learned_are_counted(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of training and validation; predictions for them are no evidence either. With --labels, only those looked at count."""
    task = cats()
    run = adapted(place, "--seeds", "1")
    known = (task.train.texts[0].upper(), task.validation.texts[3])
    test = Split((*known, *task.test.texts), np.r_[0, 1, task.test.labels])
    found = said(capsys, "evaluate", str(run), written(replace(task, name="leaky", test=test), place / "leaky"))
    expected = "The model has seen the labels of 2 of the 32 test texts, to learn or to choose, such as "
    assert f"{expected}'{known[0]}' and '{known[1]}'; its score is too high." in found
    file = place / "texts.txt"
    file.write_text(f"{known[0]}\nSomething else.\n")
    found = said(capsys, "predict", str(run), "--file", str(file))
    assert f"of 1 of the 2 texts, to learn or to choose, such as '{known[0]}'; what it predicts for them says little" in found
    assert "has seen" not in said(capsys, "predict", str(run), "Something else.")
    few = adapted(place, "--seeds", "1", "--labels", "10", "--out", str(place / "few"))
    assert few
    bundle = load_bundle(place / "few" / "bundle")
    assert known_texts(bundle, [*task.train.texts, *task.validation.texts]).number == 10
    assert "has seen" not in said(capsys, "evaluate", str(place / "few"), str(place / "cats"))


def test_a_stack_knows_its_texts(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its networks do."""
    monkeypatch.setattr(files, "_fresh_reader", unread_model)
    adapted(place, "--seeds", "2", "--ensemble", "--selection", "none")
    stack = load_saved(place / "run" / "bundle")
    assert known_texts(stack, cats().train.texts).number == 60
    assert not changed_data(stack, "cats", cats().text_hashes())


def test_models_of_several_tasks_know_their_texts(place: Path) -> None:
    """Each bundle those of its own task."""
    for name in ("joint", "none"):
        words = ["continual", str(place / "lm"), str(place / "cats"), str(place / "who"), "--out", str(place / name)]
        assert main([*words, "--epochs", "1", "--batch", "16", "--seeds", "1", "--strategies", name]) == 0
        (bundle,) = (place / name / "bundles").rglob("cats")
        assert known_texts(load_bundle(bundle), cats().train.texts).number == 60, name
        assert not changed_data(load_bundle(bundle), "cats", cats().text_hashes()), name


def test_hashes_can_be_left_out(place: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer) -> None:
    """By an environment variable; a language model has none."""
    monkeypatch.setenv(NO_HASHES, "1")
    adapted(place, "--seeds", "1")
    bundle = load_bundle(place / "run" / "bundle")
    assert not recorded_tasks(bundle.history)[-1].splits
    assert known_texts(bundle, cats().train.texts).number == 0
    assert changed_data(bundle, "cats", cats().text_hashes()) == []
    assert known_texts(language_bundle(tokenizer), ["a"]).number == 0


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("/usr/bin/warmstart", "warmstart fit 'my mails.csv'"),
        ("/lib/warmstart/__main__.py", "warmstart fit 'my mails.csv'"),
        ("/lib/ipykernel_launcher.py", "# called in Python"),
    ],
)
def test_a_notebook_is_not_mistaken_for_a_command(program: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was typed is recorded; the arguments of another program are none of warmstart."""
    monkeypatch.setattr("sys.argv", [program, "fit", "my mails.csv"])
    assert provenance().command == command
