"""The audit: every mistake in the data is counted and named with an example, and leaks are dropped on request."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from helpers.tasks import cats
from warmstart.commands.audit import audit_task
from warmstart.commands.settings import AuditConfig, TokenizeConfig
from warmstart.commands.tokenize import left_out_sentences, tokenize
from warmstart.corpora import pieces as pieces_module
from warmstart.corpora.rows import shard_folders
from warmstart.corpora.store import LeftOut, text_of_shards
from warmstart.data import units
from warmstart.data.audit import audit, drop_leaks
from warmstart.data.encode import encode
from warmstart.data.splits import NO_TEXTS
from warmstart.data.task import Split, Task
from warmstart.data.text_key import text_words
from warmstart.errors import DataError
from warmstart.seeding import rng
from warmstart.stats.formatting import percent
from warmstart.tasks.load import save_task
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer

RECIPES = Path(__file__).parents[1] / "recipes" / "tasks"


def split(*examples: tuple[str, int]) -> Split:
    return Split(tuple(text for text, _ in examples), np.array([label for _, label in examples], dtype=np.int64))


def filled(start: str, count: int = 10) -> list[tuple[str, int]]:
    """Examples of both labels that occur nowhere else."""
    return [(f"{start} {number} {label}", label) for number in range(count) for label in (0, 1)]


TASK = Task(
    "toy",
    ("no", "yes"),
    split(*filled("train"), ("The  cat", 0), ("the cat ", 0), ("", 1), (" \t", 1), ("a leak", 1), ("both", 0), ("two labels", 0)),
    split(*filled("validation"), ("BOTH", 0), ("a held-out leak", 1), ("two labels", 1)),
    split(*filled("test"), ("A leak", 1), ("a  held-out leak", 1)),
)
CLEAN = Task("clean", ("no", "yes"), split(*filled("a")), split(*filled("b")), split(*filled("c")))


def test_counts_and_findings() -> None:
    """Empty texts, repeats, leaks, conflicts and lengths; the worst comes first; each sentence has a number and an example."""
    found = audit(TASK)
    train = found.splits[0]
    assert (train.name, train.examples, train.classes) == ("train", 27, {"no": 14, "yes": 13})
    assert (train.empty, train.duplicates, train.duplicate) == (2, 1, "the cat ")
    assert (train.words["longest"], train.words["median"]) == (3.0, 3.0)
    assert {"split": "train", "label": "no", "count": 14, "fraction": 14 / 27} in found.balance()
    assert [(finding.severity, finding.sentence) for finding in found.findings()] == [
        ("error", "1 text of test (4.5%) also occurs in train, such as 'A leak'."),
        ("error", "1 text of test (4.5%) also occurs in validation, such as 'a  held-out leak'."),
        ("warning", "2 texts of validation (8.7%) also occur in train, such as 'BOTH'."),
        ("warning", "1 text has more than one label, such as 'two labels' (no, yes)."),
        ("warning", "2 texts of 27 in train are empty."),
        ("note", "1 text of train (3.7%) repeats an earlier one, such as 'the cat '."),
    ]
    assert audit(CLEAN).findings() == []
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["task"] == "toy"
    assert plain["leaks"][1] == {"split": "test", "other": "train", "count": 1, "example": "A leak", "like": "", "groups": 0}
    assert plain["findings"][0]["severity"] == "error"


def test_rare_labels() -> None:
    """A label with few training examples, or with none to score, is named with its count."""
    task = replace(CLEAN, train=split(*filled("a")[:3]), test=split(("c", 0)))
    assert [(finding.severity, finding.sentence) for finding in audit(task).findings()] == [
        ("warning", "Labels with fewer than 10 examples in train: 'yes' (1), 'no' (2)."),
        ("warning", "Labels without an example in test: 'yes' (0)."),
    ]


def test_label_names_that_a_person_would_call_equal() -> None:
    """Spellings of one name are found together; names that differ in a sign, an accent or a number are not the same."""
    same = [
        ("Refund", "refund"), ("e-mail", "email", "E Mail"), ("after_sales", "after sales", "AfterSales"), ("ship.", "ship"),
        ("café", "cafe\u0301"), ("１２", "12", "12.0"), ("\u200bhidden", "hidden"), ("Сold", "cold"), ("don't", "don’t"),
    ]  # fmt: skip
    other = ["C", "C++", "C#", "A", "A-", "A+", "-1", "1", "resume", "résumé", "<5", ">5", "1.5", "15", "nan", "5", "5%"]
    task = replace(CLEAN, labels=tuple(name for names in [*same, other] for name in names))
    found = audit(task)
    assert {*found.same_labels} == {*same}
    assert "The labels 'Refund' (30) and 'refund' (30) look like one label in 2 spellings; write them alike." in [
        finding.sentence for finding in found.findings()
    ]
    assert [one.sentence for one in found.findings() if "missing" in one.sentence] == [
        f"The label {name!r} (0) often stands for a missing one; then leave such rows out." for name in ("-1", "nan")
    ]
    for numbers, found_missing in ((("-1", "0", "1"), False), (("-1", "1", "2", "3", "4"), True)):
        said = [one.sentence for one in audit(replace(CLEAN, labels=numbers)).findings()]
        assert any("'-1'" in sentence and "missing" in sentence for sentence in said) == found_missing


def test_lengths_in_tokens(tokenizer: Tokenizer) -> None:
    """What is cut is exactly what the encoder of the batches cuts."""
    task = replace(CLEAN, train=split(*filled("a"), ("the cat " * 30, 0), ("the cat " * 9, 1)))
    found = audit(task, tokenizer, max_length=20).splits[0].tokens
    encoded = encode(tokenizer, task.train.texts, 20)
    whole = encode(tokenizer, task.train.texts, 10_000)
    assert found is not None
    assert found.cut == pytest.approx((encoded.cut > 0).mean())
    assert found.lost == pytest.approx(encoded.cut.sum() / sum(map(len, whole.rows)))
    assert found.longest == max(map(len, whole.rows))
    sentences = [finding.sentence for finding in audit(task, tokenizer, 20).findings()]
    assert sentences[0].startswith(f"{percent(found.cut)} of the texts in train are longer than 20 tokens (up to {found.longest})")
    assert audit(task, tokenizer).splits[0].tokens == replace(found, cut=None, lost=None)


def test_unknown_tokens() -> None:
    """Words that the tokenizer does not know are counted as a fraction of all tokens."""
    words = train_tokenizer(["a 0 1 2 3 4 5 6 7 8 9"] * 3, TokenizerConfig(type="word", vocab_size=60, sentinels=0))
    found = audit(CLEAN, words)
    assert [part.tokens.unknown for part in found.splits if part.tokens] == pytest.approx([0, 1 / 5, 1 / 5])
    assert "20.00% of the tokens in test are unknown to the tokenizer." in [finding.sentence for finding in found.findings()]


def test_drop_leaks() -> None:
    """Test stays as it is; validation loses what is in test, training what is in either; empty texts stay."""
    repaired = drop_leaks(TASK)
    assert repaired.test is TASK.test
    assert len(repaired.validation) == len(TASK.validation) - 1
    assert set(TASK.train.texts) - set(repaired.train.texts) == {"a leak", "both", "two labels"}
    assert audit(repaired).leaks == ()
    assert drop_leaks(CLEAN).train.texts == CLEAN.train.texts


LONGER = "one of many sentences that all have the same beginning and then go on {} until they end" + " without ever changing" * 4
NEAR = replace(
    CLEAN,
    train=split(*filled("a"), (LONGER.format("here"), 1), ("short ones differ", 0)),
    test=split(*filled("c"), (LONGER.format("there"), 1), ("Short ones, differing", 0)),
)


def test_near_leaks() -> None:
    """A text that is nearly the same is counted apart, named with the text that it is like, and dropped only on request."""
    found = audit(NEAR)
    assert found.leaks == ()
    assert [(finding.severity, finding.sentence) for finding in found.findings()] == [
        (
            "warning",
            "1 text of test (4.5%) is nearly the same as a text of train, such as "
            "'one of many sentences that all have the same beginning and …' and "
            "'one of many sentences that all have the same beginning and …'.",
        )
    ]
    assert (found.near_leaks[0].count, found.near_leaks[0].like) == (1, LONGER.format("here"))
    assert drop_leaks(NEAR).train.texts == NEAR.train.texts
    repaired = drop_leaks(NEAR, near=True)
    assert set(NEAR.train.texts) - set(repaired.train.texts) == {LONGER.format("here")}
    assert repaired.test is NEAR.test
    assert audit(repaired).near_leaks == ()
    copy = audit(replace(NEAR, test=split(*filled("c"), (LONGER.format("HERE!"), 1))))
    assert (copy.leaks[0].count, copy.near_leaks) == (1, ()), "a copy is no near leak"


def test_texts_are_grouped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit, what spells a label, and what learns from the training texts use the same units."""
    sizes, group = list[int](), units.near_copies
    monkeypatch.setattr(units, "near_copies", lambda texts: (sizes.append(len(texts)), group(texts))[1])
    task = spelling(FORMS[0])
    assert audit(task).spelled
    assert task.train.units.max()
    assert sizes == [len(task.train)]


def test_what_fills_a_short_question_makes_another_one() -> None:
    """Another word in a slot makes no copy; another number does."""
    task = replace(
        CLEAN,
        train=split(*filled("a"), ("please set an alarm for 7 am", 1), ("What is the capital of Chad ?", 0)),
        test=split(*filled("c"), ("please set an alarm for 8 am", 1), ("What is the capital of Peru ?", 0)),
    )
    assert [(leak.count, leak.example, leak.like) for leak in audit(task).near_leaks] == [
        (1, "please set an alarm for 8 am", "please set an alarm for 7 am")
    ]


FORMS = (
    "Category: {name}\n{text}", "[{name}] {text}", "{text} #{name}", "{name}: {text}", "{text} {name}", "{text}\n{name}",
    "{text}\n> Thank you, it was passed on to the {name} team.", "{text} (for the {name} desk)", "{text} Queue={name}; prio 2",
)  # fmt: skip
"""how texts spell their label"""


def spelling(form: str, share: float = 1.0) -> Task:
    """A hundred sentences of words at random, of which a share spells its label, in any case."""
    draw = random.Random(form)
    words, names = [f"w{one}" for one in "abcdefghijklmnopqrstuvwxyz"], ("human", "place", "number")
    rows = [(" ".join(draw.choices(words, k=9)), draw.randrange(3)) for _ in range(100)]
    cased = [draw.choice([str.upper, str.lower])(names[label]) for _, label in rows]
    texts = [
        form.format(text=text, name=name) if draw.random() < share else text for (text, _), name in zip(rows, cased, strict=True)
    ]
    train = Split(tuple(texts), np.array([label for _, label in rows]))
    return Task("spelled", names, train, train.take(NO_TEXTS), train.take(NO_TEXTS))


def test_texts_that_spell_their_label_are_told() -> None:
    """All of them or a part, in whatever form; with the words, and what remains without them. A word that belongs to it is none."""
    for form in FORMS:
        for share in (1.0, 0.6):
            found = audit(spelling(form, share)).spelled
            assert found is not None, form
            assert found.share == pytest.approx(share, abs=0.15), form
            assert found.misleads, form
            assert found.without < 0.5 < found.with_it, form
    said = audit(spelling(FORMS[0])).warnings
    assert any("% of the training texts spell their label, such as 'Category: " in sentence for sentence in said)
    words = ("refund", "loan", "rate", "card", "fee", "coin")
    texts = [f"I want a {words[number % 6]} for {chr(97 + number)} now" for number in range(24)]
    train = Split(tuple(texts), np.array([number % 6 // 3 for number in range(24)]))
    honest = Task("honest", ("refund", "card"), train, train.take(NO_TEXTS), train.take(NO_TEXTS))
    assert audit(honest).spelled is None


def test_one_of_several_labels_that_is_spelled_is_told() -> None:
    """With several labels per text too, whether all of them are spelled or the first; texts alone spell none."""
    task = spelling("{text}")
    draw, names = random.Random(0), task.labels
    labels = np.array([[draw.random() < 0.4 for _ in names] for _ in task.train.texts]).astype(np.int64)
    for most in (1, 3):
        tags = [", ".join(np.array(names)[row > 0][:most]) for row in labels]
        texts = tuple(f"{text}\nTags: {tag}." for text, tag in zip(task.train.texts, tags, strict=True))
        spelled = replace(task, type="multilabel", metric="micro_f1", train=Split(texts, labels))
        spelled = replace(spelled, validation=spelled.train.take(NO_TEXTS), test=spelled.train.take(NO_TEXTS))
        found = audit(spelled).spelled
        assert found is not None
        assert "Tags: " in found.example
        assert found.misleads
    plain = replace(spelled, train=Split(task.train.texts, labels))
    assert audit(plain).spelled is None


def test_pretraining_text() -> None:
    """Test texts in the plain text are counted, whole and nearly; short ones are not looked for."""
    test = split(*filled("c"), (LONGER.format("there"), 1), (LONGER.format("there").replace("many", "ten"), 1))
    documents = ["before", LONGER.format("THERE,") + " after"]
    findings = audit(replace(CLEAN, test=test), pretraining=documents).findings()
    assert [(finding.severity, finding.sentence) for finding in findings if "looked for" in finding.sentence] == [
        (
            "warning",
            "Of 2 test texts looked for in the pretraining text, 1 (50.0%) occurs there and 1 more (50.0%) nearly, "
            "such as 'one of many sentences that all have the same beginning and …'.",
        )
    ]
    assert "Of 2 test texts looked for in the pretraining text, none occurs there." in [
        finding.sentence for finding in audit(replace(CLEAN, test=test), pretraining=["other"]).findings()
    ]
    assert [finding.sentence for finding in audit(CLEAN, pretraining=documents).findings()] == [
        "The test texts have under 5 words: too few to be looked for in the pretraining text."
    ]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It compares the test texts with files of plain text, and drops what it is told to."""
    save_task(NEAR, tmp_path / "task")
    (tmp_path / "text.txt").write_text("nothing\n\n" + LONGER.format("there"))
    audit_task(AuditConfig(task=str(tmp_path / "task"), text=(str(tmp_path / "text.txt"),)))
    printed = " ".join(capsys.readouterr().err.split())
    assert "is nearly the same as a text of train" in printed
    assert "Of 1 test text looked for in the pretraining text, 1 (100.0%) occurs there" in printed
    audit_task(AuditConfig(task=str(tmp_path / "task"), drop_near_leaks=True))
    assert "nearly" not in capsys.readouterr().err


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("aAbBcd"), st.integers(0, 1)), min_size=3, max_size=12))
def test_no_leak_survives(examples: list[tuple[str, int]]) -> None:
    """After drop_leaks the audit finds no leak, whatever the task was."""
    task = Task("t", ("n", "y"), split(*filled("x"), *examples), split(("v", 0), *examples[::2]), split(*examples[1::2]))
    assert audit(drop_leaks(task)).leaks == ()


def test_nothing_left() -> None:
    """A task whose splits are the same is refused with what would be missing."""
    train, validation = replace(CLEAN, train=CLEAN.test), replace(CLEAN, validation=CLEAN.test)
    refused(DataError, "leaks of 'clean', no training example of no, yes is left; split the data", drop_leaks, train)
    refused(DataError, "no validation example is left", drop_leaks, validation)


def random_text(name: str, words: int) -> list[str]:
    """Words of a vocabulary of ten thousand."""
    return [f"w{number}" for number in rng(0, name).integers(0, 10_000, words)]


def documents_in(folder: Path, tokenizer: Tokenizer) -> list[str]:
    """The documents of shards of which nothing is held out."""
    text = text_of_shards(shard_folders([str(folder)]), tokenizer, held_out=False)
    assert text is not None
    ids, lengths = text.documents_block(np.arange(text.documents), 4000, tokenizer.specials.pad)
    return [tokenizer.decode(row[1 : length - 1]) for row, length in zip(ids, lengths, strict=True)]


def test_what_is_left_out_is_counted_and_said(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Documents around a test text, in any file; the others stay."""
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 2000)
    task = cats()
    manifest = save_task(task, tmp_path / "task")
    tokenizer.save(tmp_path / "tokenizer.json")
    plain = [" ".join(random_text(f"{number}", 30)) for number in range(20)]
    scored = [text for split in (task.test, task.validation) for text in split.texts if len(text_words(text)) >= 5]
    holding = [f"Somebody said: {text} Nobody knew why." for text in scored[:3]]
    (tmp_path / "a.txt").write_text("\n\n".join([*plain[:10], *holding[:2]]))
    (tmp_path / "b.txt").write_text("\n\n".join([holding[2], *plain[10:]]))
    config = TokenizeConfig(
        text=(str(tmp_path / "a.txt"), str(tmp_path / "b.txt")),
        out=str(tmp_path / "out"),
        held_out="none",
        tokenizer_file=str(tmp_path / "tokenizer.json"),
        drop_test_texts_of=(str(manifest),),
    )
    index = tokenize(config)
    assert documents_in(tmp_path / "out", tokenizer) == plain
    assert index.left_out == LeftOut(test_texts=3)
    assert index.filters == (f"test texts of {task.name}",)
    printed = capsys.readouterr().err
    assert "3 documents are left out: a test or validation text of the task occurs in each." in printed
    assert left_out_sentences(LeftOut(), ()) == []
    assert left_out_sentences(LeftOut(empty=2), ()) == ["2 documents are left out: the tokenizer makes no token of them."]
