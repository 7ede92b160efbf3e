"""Pretraining on a task's domain or own text, anew or continued: what is read, what never is, and what decides."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.bundles import language_bundle
from helpers.settings import in_file
from helpers.tasks import cats
from warmstart.cli import main
from warmstart.commands.race.command import race
from warmstart.corpora import relevant
from warmstart.corpora.relevant import DOMAIN, LEFT_OUT, TIMES, DomainSource, DomainText, domain_text, passages_of, relevances
from warmstart.data.budget import label_budget
from warmstart.data.pool import Pool, texts_to_read
from warmstart.data.source import DomainConfig, Source
from warmstart.data.task import Split, Task
from warmstart.errors import DataError
from warmstart.experiment.config import RaceConfig
from warmstart.finetuning import further
from warmstart.finetuning.further import pretrain_on_own_text
from warmstart.model.bundle import Bundle
from warmstart.model.card import card
from warmstart.model.files import load_bundle, save
from warmstart.model.history import Record, seen_labels
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer

FLAGS = ["--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--max-length", "32", "--batch", "4",
         "--tokenizer.vocab-size", "300", "--objective", "masked"]  # fmt: skip
NEAR = [f"They say that she holds the cat near a river in {year}." for year in range(1000, 1040)]
FAR = [f"Gross domestic product rose by {year} percent, analysts told reporters." for year in range(1000, 1040)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Sentences of which half are about cats, and one that has a test text in it."""
    file = tmp_path / "corpus.txt"
    lines = [line for both in zip(FAR, NEAR, strict=True) for line in both]
    file.write_text("\n\n".join([*lines, f"It is known that {cats().test.texts[0].lower()} This was long ago."]))
    return file


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """The task about cats in a file."""
    return save_task(cats(), tmp_path / "task")


def choose(folder: Path, *text: Path, relevant_words: int | None = None) -> tuple[DomainText, list[str]]:
    """The text that is chosen for the task about cats, and all that is read in one pass."""
    folder.mkdir()
    sources = [Source(path=str(path)) for path in text]
    source = DomainSource.of(DomainConfig(for_task="t", relevant_words=relevant_words), cats(), sources, 0.1)
    found, training, _ = domain_text(source, folder)
    return found, [json.loads(line)["text"] for line in Path(training[0].path).read_text().splitlines()]


def run(out: Path, *words: str | Path) -> Bundle:
    """The bundle of a pretraining run by command."""
    assert main(["pretrain", *map(str, words), "--out", str(out), *FLAGS]) == 0
    return load_bundle(out / "bundle")


def weights(bundle: Bundle) -> torch.Tensor:
    """All weights in a row."""
    return torch.cat([tensor.detach().flatten() for tensor in bundle.model.weights().values()])


def test_the_most_relevant_passages_are_kept_and_read_most_often(tmp_path: Path, corpus: Path) -> None:
    """Those with words of the task come first, up to the number of words; the first are read four times, the last once."""
    found, read = choose(tmp_path / "run", corpus, relevant_words=200)
    assert found.corpora[0].passages == 81
    assert 200 <= found.corpora[0].words < 220
    assert not {*FAR} & {*read}
    kept = [json.loads(line) for line in (tmp_path / "run" / DOMAIN / "passages.ndjson").read_text().splitlines()]
    assert [one["times"] for one in kept] == sorted((one["times"] for one in kept), reverse=True)
    assert {one["times"] for one in kept} == {1, 2, 3, 4}
    assert all(read.count(one["text"]) == one["times"] for one in kept)
    assert found.most.relevance >= found.least.relevance > 0


def test_the_pool_is_read_as_often_as_the_best_passages(tmp_path: Path, corpus: Path) -> None:
    """Alone it is read once in a pass. A part is held out, and is not trained on."""
    alone, read = choose(tmp_path / "alone")
    assert alone.pool_times == 1
    assert len(read) == len({*read}) == alone.pool_texts - alone.held_out
    assert alone.held_out
    found, read = choose(tmp_path / "run", corpus)
    assert found.pool_times == TIMES
    assert read.count(read[0]) == TIMES


def test_scored_texts_are_no_passages(tmp_path: Path, corpus: Path) -> None:
    """Neither as texts of the pool nor as passages, however they are written, nor inside a longer passage."""
    scored = [text.casefold() for split in cats().held_out().values() for text in split.texts]
    other = tmp_path / "other.txt"
    other.write_text("\n\n".join([text.upper() for text in scored] + NEAR[:5]))
    found, read = choose(tmp_path / "run", corpus, other)
    assert not any(one in text.casefold() for one in scored for text in read)
    assert [one.left_out for one in found.corpora] == [1, len({*scored})]
    assert found.corpora[1].known == 5, "known from the first corpus"


def test_what_is_held_out_is_no_passage(tmp_path: Path) -> None:
    """A passage that is equal to a text of the pool is known already."""
    pool = tmp_path / "pool.txt"
    pool.write_text("\n\n".join([*cats().train.texts, *NEAR]))
    found, read = choose(tmp_path / "run", pool)
    assert found.corpora[0].kept == len(NEAR)
    held = [json.loads(line)["text"] for line in (tmp_path / "run" / DOMAIN / "held_out.ndjson").read_text().splitlines()]
    assert held
    assert not {*held} & {*read}


def test_the_ranking_does_not_depend_on_chunks(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passages are ranked a few at a time as all at once. A long document is cut into several, and no word is lost."""
    file = tmp_path / "long.txt"
    file.write_text("one two three\n\n" + "\n".join(f"word{i} and" for i in range(250)))
    found = list(passages_of([Source(path=str(file))]))
    assert [len(one.split()) for one in found] == [166, 167, 167]
    assert " ".join(found).split() == file.read_text().split()[3:], "short documents are passed over"
    given = [Source(path=str(corpus))], cats().train.texts, cats().test.texts
    whole = relevances(*given)
    monkeypatch.setattr(relevant, "PASSAGES_AT_ONCE", 7)
    parts = relevances(*given)
    assert np.allclose(parts.values, whole.values, atol=1e-6)
    assert parts.words.tolist() == whole.words.tolist()
    assert (whole.values == LEFT_OUT).sum() == 1


def test_a_resumed_run_ends_with_the_same_bits(
    manifest: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the corpus has changed, even by a passage that would not be kept, the run is not resumed."""
    out = tmp_path / "run"
    rare = ["--relevant-words", "100", *in_file(train={"checkpoint_every": 3})]
    bundle = run(out, corpus, "--for", manifest, "--steps", "6", *rare)
    shutil.rmtree(out / "checkpoints" / "step-00000006")
    shutil.rmtree(out / "bundle")
    assert main(["pretrain", "--resume", str(out)]) == 0
    assert torch.equal(weights(load_bundle(out / "bundle")), weights(bundle))
    corpus.write_text(corpus.read_text() + "\n\nInterest rates were cut by the central bank.")
    assert main(["pretrain", "--resume", str(out)]) == 2
    assert "the task's text or TEXT changed since the run began" in capsys.readouterr().err


def test_text_may_be_a_column_of_any_name(manifest: Path, corpus: Path, tmp_path: Path) -> None:
    """The task's texts, and what is held out of them, are found all the same."""
    table = tmp_path / "corpus.tsv"
    table.write_text("\n".join(["question", *(line for line in corpus.read_text().splitlines() if line)]) + "\n")
    words = ["--for", manifest, "--text-column", "question", "--steps", "3", "--held-out", "0.1"]
    record = run(tmp_path / "run", table, *words).history[-1]
    assert [data.name for data in record.data] == ["corpus", "cats"]


def test_no_label_is_read(manifest: Path, tmp_path: Path) -> None:
    """Other labels change nothing, and the history names the task for its text alone."""
    other = replace(cats(), train=replace(cats().train, labels=1 - cats().train.labels))
    changed = save_task(other, tmp_path / "changed")
    first, second = (run(tmp_path / name, "--for", path, "--steps", "3") for name, path in (("a", manifest), ("b", changed)))
    assert torch.equal(weights(first), weights(second))
    assert not seen_labels(first.history, "cats")
    task = first.history[-1].data[-1]
    assert {*task.sizes} == {"texts", "left out", "passages of other text"}
    assert f"`cats`, without labels: {task.sizes['texts']} texts" in card(first)


def test_wrong_inputs(manifest: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is refused with what to do, and no bundle is left."""
    foreign = tmp_path / "foreign.txt"
    foreign.write_text("Lorem ipsum dolor sit amet consectetur.")
    names = {"TASK": str(manifest), "TEXT": str(corpus), "FOREIGN": str(foreign)}
    for number, (words, message) in enumerate([
        ("TEXT --relevant-words 9", "goes with --for TASK"),
        ("FOREIGN --for TASK", "TEXT must have passages with words of the texts of 'cats'"),
        ("missing.txt --for TASK", "no such file or folder"),
        ("--for missing.yaml", "no such file"),
        ("", "or a task, `warmstart pretrain --for TASK`"),
        ("--for TASK --max-words 100", "with --for the number of words is --relevant-words"),
        ("TEXT --max-words 1", "the first document drawn has"),
    ]):  # fmt: skip
        out = tmp_path / f"run-{number}"
        assert main(["pretrain", *(names.get(word, word) for word in words.split()), "--out", str(out)]) == 2, words
        assert message in capsys.readouterr().err, words
        assert not (out / "bundle").exists()


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """Sentences about cats, with more text like them; two of its lines are in the test split."""
    base = cats()
    more = [f"We found {what} in {year}." for what in ("a cat", "the river", "a dog") for year in range(1900, 1960)]
    file = tmp_path / "more.txt"
    file.write_text("\n\n".join([*more, base.test.texts[0].upper(), "  " + base.test.texts[1]]))
    return replace(base, unlabelled=(Source(path=str(file)),))


def test_scored_texts_are_never_read(task: Task) -> None:
    """A pair is one text, and case is ignored as in the audit."""
    read = texts_to_read(label_budget(task, None, "holdout", 0))
    assert (read.left_out, len(read)) == (2, 240)
    train = Split((("STRASSE nach", "Norden"), ("one", "other")), np.array([0, 1]))
    pairs = replace(task, train=train, test=Split(("Straße nach Norden",), task.test.labels[:1]), unlabelled=())
    assert texts_to_read(label_budget(pairs, None, "holdout", 0)) == Pool(("one other",), 1)


def test_the_pool_says_what_is_read(task: Task, tmp_path: Path) -> None:
    """With ``none`` the texts of the budget alone, with a file these and its own; none that is nearly a test text."""
    long = "We saw how the old cat sat by the wide river for a whole long day in"
    task = replace(task, test=replace(task.test, texts=(f"{long} 1907", *task.test.texts[1:])))
    budget = label_budget(task, 20, "cross-validation", 0)
    own = {*texts_to_read(budget, "none").texts}
    assert own <= {str(task.train.texts[i]) for i in budget.train}
    (tmp_path / "pool.txt").write_text(f"first\nsecond\n{long} 1908\n")
    read = texts_to_read(budget, str(tmp_path / "pool.txt"))
    assert {*read.texts} == own | {"first", "second"}
    assert read.left_out == 1 + texts_to_read(budget, "none").left_out
    assert {*texts_to_read(budget).texts} > own


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backbone of the task's own text that is pretrained at once."""
    monkeypatch.setattr(further, "MOST_PASSES", 1)
    for name, value in {"width": 16, "depth": 1, "heads": 2, "max_length": 16}.items():
        monkeypatch.setitem(further.OWN_BACKBONE_SETTINGS, name, value)


def record_of(bundle: Bundle) -> Record:
    """The one entry of a history."""
    (record,) = bundle.history
    return record


def pretrained(task: Task) -> Record:
    """How a backbone on the task's own text was made."""
    return record_of(pretrain_on_own_text(task.name, texts_to_read(label_budget(task, 20, "cross-validation", 0)), 0))


@pytest.mark.usefixtures("no_pages", "small")
def test_a_race_pretrains_once_and_says_what_it_cost(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its methods share one backbone, beside a given one; the next call finds it."""
    manifest = save_task(cats(), tmp_path / "task")
    save(language_bundle(tokenizer), tmp_path / "lm")
    config = RaceConfig.build({
        "task": str(manifest), "backbones": ["pool", str(tmp_path / "lm")], "schemes": ["full"], "seeds": 1, "labels": 20,
        "out": str(tmp_path / "race"), "tune": {"train": {"steps": 3}},
    })  # fmt: skip
    found = race(config)
    rows = {row.name: row for row in found.ranking.methods}
    assert {"probe · pool", "full · pool", "full · lm", "from scratch · pool"} <= {*rows}
    assert len(list((tmp_path / "race" / "own").iterdir())) == 1
    assert "s of pretraining on" in rows["full · pool"].note
    assert rows["full · pool"].method.pretraining_seconds > 0
    assert rows["from scratch · pool"].method.pretraining_seconds == 0
    assert "adapted/full/pool" in {row.method.id_over_tasks for row in rows.values()}, "the same for every task"
    monkeypatch.setattr("warmstart.experiment.methods.pretrain_on_own_text", lambda *_: pytest.fail("it was done already"))
    assert race(config).to_dict()["methods"] == found.to_dict()["methods"]


@pytest.mark.usefixtures("small")
def test_crops_are_compared_where_texts_are_long_enough() -> None:
    """By the median text. A text that is shorter than a row is refused."""
    for words, objective in ((5, "masked"), (60, "contrastive")):
        task, draw = cats(), np.random.default_rng(0)
        texts = tuple(" ".join(draw.choice(text.split(), words)) for text in task.train.texts)
        task = replace(task, train=Split(texts, task.train.labels))
        assert pretrained(task).settings["objective"]["name"] == objective
    with pytest.raises(DataError, match="remove pool from --backbones"):
        pretrain_on_own_text(task.name, Pool(("a cat",)), 0)


def test_wrong_inputs_are_refused_and_an_estimate_leaves_it_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is refused with what to do; an estimate says what is not in it, and trains and writes nothing."""
    manifest = save_task(cats(), tmp_path / "task")
    line = ["race", str(manifest), "--labels", "20", "--out"]
    for words, message in (
        (["pool", "--resample"], "pool pretrains once, on texts that other splits test on; remove pool or --resample"),
        (["pool", "pool"], "--backbones names pool twice"),
    ):
        assert main([*line, str(tmp_path / "race"), "--backbones", *words]) == 2
        assert message in capsys.readouterr().err
    assert main([*line, str(tmp_path / "estimate"), "--backbones", "pool", "--estimate"]) == 0
    assert "are not in the estimate" in capsys.readouterr().err
    assert not (tmp_path / "estimate").exists()
