"""``study probe``: every layer beside its controls; what does not fit, and what cannot be compared, is reported."""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from helpers.models import SENTENCES, make_language_model
from warmstart.cli import main
from warmstart.data.probing import IGNORED, ProbingSplit, ProbingTask
from warmstart.errors import DataError
from warmstart.inspection import probing
from warmstart.inspection.activations import with_random_weights
from warmstart.inspection.probe_scores import BAG, ProbedItems, ProbeScores, pool_scores
from warmstart.inspection.probing import ProbeSplit, probe_layers, probe_splits
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.seeding import rng
from warmstart.studies.probe import measure
from warmstart.studies.probe.command import distinct_names
from warmstart.studies.probe.measure import TaskProbes, probe_models
from warmstart.studies.probe.result import coverage_findings, probe_finding
from warmstart.tokenizer.tokenizer import Tokenizer

COPIES = 2
WORDS = [tuple(sentence.split()) for sentence in SENTENCES]


def bundle_of(tokenizer: Tokenizer, *, causal: bool = False) -> Bundle:
    return Bundle(make_language_model(vocab_size=tokenizer.vocab_size, causal=causal, max_length=64), tokenizer)


def first_word_task() -> ProbingTask:
    """Whether a word is the first of its sentence, in copies of each sentence."""
    part = ProbingSplit(tuple(WORDS * COPIES), tuple(np.array([0] + [1] * (len(text) - 1)) for text in WORDS * COPIES))
    return ProbingTask("first", ("yes", "no"), part, part, part, words=True)


def made_up(model: str, *, bag: float = 0.5, items: int = 40, draws: int = 2) -> TaskProbes:
    """Made-up probes of one item per sentence, most of them right."""
    correct, control = (rng(0, "right").random(items) < 0.8).astype(float)[None], np.zeros((1, items))
    known = ProbedItems(0.5, 0, items, 1.2)
    layer = ProbeScores("1", correct, control, np.arange(items), (0.8,), (1.5,), known)
    of_bag = ProbeScores(BAG, np.full((1, items), bag), control, np.arange(items), (0.5,), (1.1,), known)
    random = ProbeScores("1", np.repeat(1 - correct, draws, axis=0), control, np.arange(items), (0.2,) * draws)
    return TaskProbes(first_word_task(), model, {BAG: of_bag, "1": layer}, {}, {"1": random})


def test_a_bag_holds_the_tokens_over_which_layers_are_averaged(tokenizer: Tokenizer) -> None:
    """Including those that frame the text, and cut alike: without positions the embedding layer is the bag."""
    whole = ProbingSplit(tuple(WORDS), tuple(np.array([i % 2]) for i in range(4)))
    for length in (64, 8):
        model = make_language_model(vocab_size=tokenizer.vocab_size, max_length=length, positions="rotary")
        for split in probe_splits(Bundle(model, tokenizer), ProbingTask("half", ("a", "b"), whole, whole, whole)):
            torch.testing.assert_close(split.states[0], split.states[1])
            assert (split.dropped, split.total) == (0 if length == 64 else 4, 4)


@pytest.mark.proofs
def test_every_layer_of_a_model_is_probed(tokenizer: Tokenizer) -> None:
    """Bag, embedding, blocks, mix; a model that tells the first word is found to do so; the seed decides the controls alone."""
    texts = tuple(tuple(f"{first} {' '.join(rest)}".split()) for first in ("cat", "dog") for rest in WORDS for _ in range(COPIES))
    part = ProbingSplit(texts, tuple(np.array([int(text[0] == "dog")]) for text in texts))
    task = ProbingTask("first word", ("cat", "dog"), part, part, part)
    bundle = bundle_of(tokenizer)
    scores = probe_layers(bundle, task, "linear", [0, 1], with_compression=True)
    assert [one.layer for one in scores] == [BAG, "embedding", "1", "2", "mix"]
    assert {(one.correct.shape, len(one.compression)) for one in scores} == {((2, 8 * COPIES), 2)}
    assert scores[1].accuracy.value > 0.9
    again = probe_layers(bundle, task, "linear", [0, 1])
    assert (again[2].correct == scores[2].correct).all()
    assert (scores[2].correct[0] == scores[2].correct[1]).all()
    assert scores[2].compression[0] != scores[2].compression[1]


def test_scores_of_several_models_count_alike() -> None:
    """Their fits are pooled, and validation is their mean."""
    first = ProbeScores("1", np.ones((2, 5)), np.zeros((2, 5)), np.arange(5), (0.5, 0.5), (1.0,))
    both = pool_scores([first, replace(first, correct=np.zeros((2, 5)), validations=(0.7, 0.7), compression=(2.0,))])
    assert (both.correct.shape, both.accuracy.value, both.compression) == ((4, 5), 0.5, (1.0, 2.0))
    assert both.validation == pytest.approx(0.6)


@pytest.mark.proofs
def test_a_model_reads_a_task_once_for_linear_probes_and_mlps(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the three splits; the scores are those of probes that read it themselves."""
    bundle, calls = bundle_of(tokenizer), list[ProbingSplit]()
    splits = probe_splits(bundle, first_word_task())

    def word_split(_: Bundle, part: ProbingSplit) -> ProbeSplit:
        calls.append(part)
        return splits[0]

    alone = probe_layers(bundle, first_word_task(), "linear", [0])
    monkeypatch.setattr(probing, "_word_split", word_split)
    (probes,) = probe_models({"a": bundle}, [first_word_task()], [0], mlp=True, random=False)
    assert len(calls) == 3
    assert set(probes.mlp) == set(probes.linear)
    for score in alone:
        np.testing.assert_array_equal(probes.linear[score.layer].correct, score.correct)


@pytest.mark.proofs
def test_words_that_do_not_fit_are_reported(tokenizer: Tokenizer) -> None:
    """With their number; the majority baseline is that of the words that fit; models with different items are named."""
    probes = []
    for name, length in (("long", 64), ("short", 7)):
        bundle = Bundle(make_language_model(vocab_size=tokenizer.vocab_size, max_length=length), tokenizer)
        scores = probe_layers(bundle, first_word_task(), "linear", [0])
        probes.append(TaskProbes(first_word_task(), name, {one.layer: one for one in scores}, {}, {}))
    long, short = (one.items for one in probes)
    words = COPIES * sum(map(len, WORDS))
    left = len(probes[1].best.sentences)
    assert (long.dropped, long.total, short.dropped) == (0, 3 * words, 3 * (words - left))
    assert 0 < left < words
    assert long.majority == pytest.approx(1 - 4 * COPIES / words)
    assert short.majority == pytest.approx(max(4 * COPIES / left, 1 - 4 * COPIES / left))
    first, second = coverage_findings(probes)
    assert first == f"First: {short.dropped} of {3 * words:,} words do not fit into short and are left out."
    assert f"different test items, as not all words fit (long: {words}, short: {left})" in second
    assert coverage_findings(probes[:1]) == []


def test_a_task_with_too_little_data_is_refused(tokenizer: Tokenizer) -> None:
    """Nothing in validation, one sentence in test, one label in training."""
    task, bundle = first_word_task(), bundle_of(tokenizer)
    unlabelled = ProbingSplit(task.train.texts, tuple(np.full(len(text), IGNORED) for text in task.train.texts))
    single = ProbingSplit(task.train.texts[:1], task.train.targets[:1])
    same = ProbingSplit(task.train.texts, tuple(np.zeros(len(text), dtype=np.int64) for text in task.train.texts))
    for bad in (replace(task, validation=unlabelled), replace(task, test=single), replace(task, train=same)):
        with pytest.raises(DataError, match="'first' must have two labels"):
            probe_splits(bundle, bad)


def test_a_finding_names_few_sentences_and_what_is_not_significant() -> None:
    """Below thirty sentences, their number; after an interval that contains zero, a note."""
    assert "sentences" not in probe_finding(made_up("a"))
    assert " on 13 test items of only 13 sentences: " in probe_finding(made_up("a", items=13))
    assert "not significant" not in probe_finding(made_up("a"))
    power = r"\d+\.\d points would have been detected with 80% power"
    assert re.search(rf", not significant; {power}\) against a bag of embeddings", probe_finding(made_up("a", bag=0.95)))


def test_every_fit_on_random_weights_draws_new_weights(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit's seed draws the weights; models of one architecture share them; the finding says how many there are."""
    bundle, calls = bundle_of(tokenizer), list[tuple[float, list[int]]]()

    def probe(bundle: Bundle, _: ProbingTask, __: str, seeds: Sequence[int], **___: object) -> list[ProbeScores]:
        calls.append((float(bundle.model.backbone.embedding.weight.detach().abs().sum()), list(seeds)))
        return [*made_up("a").linear.values()]

    monkeypatch.setattr(measure, "probe_layers", probe)
    first, second = probe_models({"a": bundle, "b": bundle}, [first_word_task()], [0, 1], mlp=False, random=True)
    sizes = [float(with_random_weights(bundle, seed).model.backbone.embedding.weight.detach().abs().sum()) for seed in (0, 1)]
    assert calls[:2] == [(sizes[0], [0]), (sizes[1], [1])]
    assert len(calls) == 4
    assert first.random is second.random
    assert len(first.random["1"].correct) == 2
    assert ") against 2 draws of random weights" in probe_finding(made_up("a"))
    assert "for this draw alone) against one draw of random weights" in probe_finding(made_up("a", draws=1))


def test_models_and_tasks_have_distinct_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model is called after its folder, wherever the command runs; two tasks of one name are refused."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.txt").write_text("tr\tA\ta\ntr\tB\tb\nva\tA\ta\nte\tA\ta\nte\tB\tb\n")
    monkeypatch.chdir(tmp_path / "one")
    assert distinct_names((".", "../two/bundle")) == ["one", "two"]
    assert main(["study", "probe", "x", "--tasks", "same.txt", "../two/same.txt", "--out", "out"]) == 2
    assert "must have its own name" in " ".join(capsys.readouterr().err.split())


@pytest.mark.journeys
def test_the_command_writes_a_page(tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    """Two models side by side, one causal, one bidirectional; the scores of all probes as a table; errors say what is missing."""
    one = save(bundle_of(tokenizer), tmp_path / "one")
    other = save(bundle_of(tokenizer, causal=True), tmp_path / "other")
    rows = [
        f"{split}\t{label}\t{label.lower()} {SENTENCES[i % 4]}" for split in ("tr", "va", "te") for i in range(20) for label in "AB"
    ]
    with gzip.open(tmp_path / "first_word.txt.gz", "wt") as file:
        file.write("\n".join(rows))
    out, tasks = tmp_path / "out", str(tmp_path / "first_word.txt.gz")
    assert main(["study", "probe", str(one), str(other), "--tasks", tasks, "--out", str(out), "--seeds", "1"]) == 0
    printed = " ".join(capsys.readouterr().err.split())
    assert "First word: a linear probe of" in printed
    assert "against one draw of random weights" in printed
    table = pl.read_csv(out / "probes.csv")
    assert set(table["model"]) == {"one", "other"}
    assert set(table["probe"]) == {"linear", "mlp", "linear, random weights"}
    assert (out / "figures" / "probes.svg").exists()
    assert main(["study", "probe", str(one), "--out", str(tmp_path / "none")]) == 2
    assert "--tasks" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
