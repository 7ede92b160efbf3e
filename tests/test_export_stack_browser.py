"""An exported page of a stack or a baseline, in a browser: the words, numbers and networks in it say what Python says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.browser import IN_A_BROWSER, watched_page
from helpers.bundles import unread_model
from helpers.models import SENTENCES
from helpers.mutants import LABELS
from helpers.one_file import browser_probabilities, in_browser, labelled, made_texts, rounded
from warmstart.app.models import ServedModel
from warmstart.app.one_file.parts import taken_apart
from warmstart.app.replies import explanation_of
from warmstart.baselines import baselines_for
from warmstart.baselines.choice import fitted_baseline, run_baseline
from warmstart.cli import main
from warmstart.data.budget import label_budget
from warmstart.data.task import Split, Task
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.per_text import ClassificationHeadConfig, MultilabelHeadConfig
from warmstart.model import files
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.files import save
from warmstart.model.fitted import FittedBaseline
from warmstart.model.inference import embed
from warmstart.model.model import swap_head
from warmstart.model.readout import LinearReadout
from warmstart.model.rows import WordRows, word_vectorizer
from warmstart.model.stack import Member, Stack
from warmstart.tasks.predict import predict, raw_predictions, unread
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = IN_A_BROWSER
SAME_ARITHMETIC = 5e-5
"""of a probability, with the same rounded weights"""
ROUNDING = 0.06
"""of a probability: what 8 bits may change"""
METRICS = {"classification": "accuracy", "multilabel": "micro_f1"}
ODD = [
    "", " ", "\u2003", "…", "!!! ???", "ÀÉÎ õü ñ Ärger", "🙂 👩\u200d👩\u200d👧 tea 🙂", "ΟΔΥΣΣΕΥΣ ΣΑΣ. Σ ΑΣ1", "İSTANBUL ıI ﬁ ①²",
    "naïve_name x_1 ___", "שלום عربى 字漢 한국어", "e\u0301 é", "a\u0085b\x1cc\u200bd", "x" * 3000, "don't - co-op; 3.14%",
]  # fmt: skip


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """An empty page that is watched."""
    with watched_page(browser, "file:", "about:") as opened:
        yield opened


def texts_of(count: int, seed: int = 0) -> list[str]:
    """Of accents, emoji, no words, and more words than a network reads."""
    return [*ODD, *made_texts(count - len(ODD) - 1, seed), " ".join(SENTENCES * 20)]


def drinks(kind: str) -> Task:
    """Texts of which a word says the label, with odd ones among them."""
    draw, names = random.Random(0), [*LABELS]

    def split(count: int, seed: int) -> Split:
        labels = np.arange(count) % 3
        texts = [f"{text} {names[label]}" for text, label in zip(texts_of(count, seed), labels, strict=True)]
        several = np.array([[float(label == i or draw.random() < 0.3) for i in range(3)] for label in labels])
        return Split(tuple(texts), several if kind == "multilabel" else labels)

    return Task("drinks", LABELS, split(60, 1), split(30, 2), split(30, 3), METRICS[kind], type=kind)


def fitted(reader: Bundle, kind: str) -> dict[str, Member]:
    """All baselines that can be saved, after a few labels."""
    task, found = drinks(kind), dict[str, Member]()
    budget = label_budget(task, 45, "holdout", 0)
    for name, baseline in baselines_for(task, pool=True, vectors=True).items():
        one = replace(baseline, candidates=baseline.candidates[:1])
        run = run_baseline(one, budget, task.test.texts, lambda inputs: embed(reader, inputs).numpy())
        found[name] = Member(name, fitted_baseline(run, reader), 1.4, 0.7)
    return found


def compare(found: np.ndarray, stack: Stack, texts: list[str]) -> None:
    """What a page predicts (N, C) with what Python does, with the same rounded weights and without rounding."""
    assert np.abs(found - raw_predictions(rounded(stack), texts)).max() < SAME_ARITHMETIC, stack.names
    assert np.abs(found - raw_predictions(stack, texts)).max() < ROUNDING, stack.names


@pytest.fixture(scope="module")
def reader(tokenizer: Tokenizer) -> Bundle:
    """A tiny encoder."""
    return Bundle(swap_head(labelled(tokenizer).model, EmbeddingHeadConfig(normalize=False), 0), tokenizer)


@pytest.fixture(scope="module")
def found(reader: Bundle) -> dict[str, Member]:
    """The baselines for one label."""
    return fitted(reader, "classification")


@pytest.fixture(scope="module")
def found_several(reader: Bundle) -> dict[str, Member]:
    """The baselines for several."""
    return fitted(reader, "multilabel")


def test_words_are_cut_and_weighed_as_in_python(page: Any) -> None:
    """Words, pairs of them, and parts of them; in Python's lower case, and with Python's letters."""
    draw, texts = random.Random(5), texts_of(60)
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    texts += ["".join(draw.choices(part, k=40)) for part in (every[:0x3100], every) for _ in range(60)]
    for characters in (False, True):
        made = word_vectorizer(word_pairs=not characters, weighted=True, characters=characters).fit(texts)
        rows = WordRows(tuple(made.get_feature_names_out()), not characters, made.idf_, characters=characters)
        readout = LinearReadout(np.zeros((len(rows.vocabulary), 3)), np.zeros(3))
        stack = Stack((Member("words", FittedBaseline(rows, readout)),), "classification", LABELS)
        found = in_browser(page, stack, "return given.map((text) => model.members[0].words.row(text));", texts)
        for text, row, wanted in zip(texts, found, rows(texts), strict=True):
            assert dict(row) == pytest.approx(dict(zip(wanted.indices.tolist(), wanted.data.tolist(), strict=True)), abs=1e-5), text


def test_every_baseline_predicts_what_python_predicts(
    page: Any, found: dict[str, Member], found_several: dict[str, Member]
) -> None:
    """Of words, and of the vectors of an encoder; linear, or always the same; one label or several."""
    texts = [text for text in texts_of(40) if "①\u0301" not in text]
    for kind, baselines, least in (("classification", found, 8), ("multilabel", found_several, 7)):
        assert len(baselines) >= least
        members = tuple(baselines.values())
        work = """return model.members.map((one) => {
            const alone = Object.assign(Object.create(Object.getPrototypeOf(model)), model, { members: [{ ...one, share: 1 }] });
            return given.map((text) => alone.probabilities(text));
        });"""
        for member, values in zip(members, in_browser(page, Stack(members, kind, LABELS), work, texts), strict=True):
            compare(np.array(values), Stack((member,), kind, LABELS), texts)


def test_a_stack_predicts_what_python_predicts(page: Any, tokenizer: Tokenizer, found: dict[str, Member]) -> None:
    """Of words alone, with an encoder's vectors, and with a fine-tuned network; a network that two members read is there once."""
    texts = texts_of(40)
    words = [found["TF-IDF + logistic regression"], found["NBSVM"]]
    vectors = [found["frozen vectors"], found["frozen vectors + EM"]]
    network = Member("full", labelled(tokenizer, ClassificationHeadConfig(classes=3, pooling="first")), 0.8, 2.0)
    for members, networks in ((words, 0), ([*words, *vectors], 1), ([*words, network], 1), ([*words, *vectors, network], 2)):
        stack = Stack(tuple(members), "classification", LABELS, calibration=Calibration(temperature=1.3))
        assert len(taken_apart(stack).networks) == networks
        compare(np.array(browser_probabilities(page, stack, texts)), stack, texts)
        cut = in_browser(page, stack, "return given.map((text) => model.encode(text).unread);", texts)
        assert tuple(cut) == unread(stack, texts).tokens


def test_several_labels_are_given_at_their_thresholds(page: Any, tokenizer: Tokenizer, found_several: dict[str, Member]) -> None:
    """A stack of words and a network."""
    texts = texts_of(40)
    network = Member("full", labelled(tokenizer, MultilabelHeadConfig(classes=3)), 1.2)
    stack = Stack((found_several["TF-IDF + logistic regression"], network), "multilabel", LABELS)
    middle = np.median(raw_predictions(stack, texts), axis=0).tolist()
    stack = replace(stack, calibration=Calibration(temperature=0.9, thresholds=tuple(middle)))
    said = in_browser(page, stack, "return given.map((text) => model.predict(text, 3));", texts)
    wanted = predict(rounded(stack), texts)
    assert [one["labels"] for one in said] == [one["labels"] for one in wanted]
    assert len({tuple(one["labels"]) for one in said}) > 2


def test_a_word_matters_as_much_as_the_server_says(page: Any, found: dict[str, Member]) -> None:
    """By what the label loses without it, in nats."""
    stack = Stack(tuple(found[name] for name in ("NBSVM", "frozen vectors")), "classification", LABELS)
    for text in ("She holds the cup of tea", "\u2003naïve  tea\u00a0milk ", "tea"):
        wanted = explanation_of(ServedModel.of(rounded(stack), "drinks"), text, "tea")
        said = in_browser(page, stack, "return model.erasure(...given, () => {});", [text, "tea"])
        assert (said["target"], said["words"]) == (wanted["target"], wanted["words"])
        assert said["importance"]["erasure"] == pytest.approx(wanted["importance"]["erasure"], abs=1e-4)


def test_the_page_of_a_stack_is_used_like_that_of_a_network(
    page: Any, found: dict[str, Member], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``export`` writes it, the panel labels texts, says why, and ``doctor`` finds the weights of the stack in it."""
    monkeypatch.setattr(files, "_fresh_reader", unread_model)
    members = (found["TF-IDF + logistic regression"], found["frozen vectors"])
    stack = Stack(members, "classification", LABELS, calibration=Calibration(temperature=1.3, held_out=((0.9, True),) * 20))
    folder, file = save(stack, tmp_path / "run" / "bundle").parent, tmp_path / "drinks.html"
    assert main(["export", str(folder), "--to", "page", "--out", str(file)]) == 0
    assert "does not mark texts that are like those of none of its labels" in " ".join(capsys.readouterr().err.split())
    assert main(["doctor", str(file), "--bundle", str(folder)]) == 0
    other = save(replace(stack, members=(members[0], replace(members[1], weight=2.0))), tmp_path / "other")
    assert main(["doctor", str(file), "--bundle", str(other)]) == 2
    page.goto(file.as_uri())
    ranked = np.sort(raw_predictions(stack, texts_of(120)), axis=1)
    sure = [text for text, row in zip(texts_of(120), ranked, strict=True) if row[-1] - row[-2] > 2 * ROUNDING]
    texts = [text for text in sure if text.strip() and len(text.splitlines()) == 1][:50]  # as many are drawn at once
    assert len(texts) >= 30
    page.fill("#classify-texts", "\n".join(texts))
    page.click("#classify [type=submit]")
    page.wait_for_selector("#classify-save:not([hidden])")
    shown = page.locator("#classify-results > li .bars > span:first-child").all_inner_texts()
    assert shown == [one["label"] for one in predict(stack, texts)]
    page.get_by_role("button", name="Why?").last.click()
    page.wait_for_selector(".heat span")
