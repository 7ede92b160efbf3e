"""Probes find what is there and nothing else, as their controls show; the study of layers, and the states that it reads."""

from __future__ import annotations

import gzip
import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neural_network import MLPClassifier

from helpers.models import SENTENCES, make_language_model
from warmstart.cli import main
from warmstart.data.encode import encode
from warmstart.data.probing import BAG, IGNORED, ProbingSplit, ProbingTask
from warmstart.errors import DataError
from warmstart.inspection import probing
from warmstart.inspection.activations import encode_words, run_backbone, text_states, with_random_weights, word_states
from warmstart.inspection.probes import (
    PROBE_STRENGTHS,
    ProbeData,
    control_labels,
    correct_predictions,
    fit_linear_probe,
    fit_probes,
    frequency_compression,
    online_compression,
    standardize,
)
from warmstart.inspection.probing import (
    ProbedItems,
    ProbeScores,
    ProbeSplit,
    TaskProbes,
    pool_scores,
    probe_layers,
    probe_models,
    probe_splits,
)
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.seeding import rng
from warmstart.stats.coding import frequency_code_bits
from warmstart.studies.probe import coverage_findings, distinct_names, learned_finding, probe_finding
from warmstart.tokenizer.tokenizer import Tokenizer


def made_up(
    count: int, representations: int = 3, width: int = 8, classes: int = 3, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """States of which only the second representation tells the label."""
    draw = rng(seed, "states")
    labels = draw.integers(0, classes, count)
    states = draw.normal(size=(representations, count, width))
    states[1, np.arange(count), labels] += 3.0
    return torch.from_numpy(states).float(), torch.from_numpy(labels)


def parts_of(states: np.ndarray, labels: np.ndarray, counts: tuple[int, int]) -> list[ProbeData]:
    """One representation (N, D), standardized, with its labels (N,): training, validation and the rest for test."""
    ends = list(np.cumsum(counts))
    split = [torch.from_numpy(part[None]).float() for part in np.split(states, ends)]
    return [
        ProbeData(x, torch.from_numpy(y)[None])
        for x, y in zip(standardize(split[0], split[1:]), np.split(labels, ends), strict=True)
    ]


def simulated(kind: str, seed: int) -> list[ProbeData]:
    """Classes with normal states: few items of many columns, badly scaled columns, or separable, but by small directions alone."""
    count, width, classes, distance = {
        "separable": (2000, 24, 4, 0.0), "noisy": (2000, 64, 4, 0.15), "few items": (200, 384, 3, 0.12),
        "badly scaled": (1500, 64, 4, 0.2),
    }[kind]  # fmt: skip
    draw = rng(seed, kind)
    labels = draw.integers(0, classes, count + 5000)
    states = draw.normal(size=(len(labels), width)) + distance * draw.normal(size=(classes, width))[labels]
    if kind == "separable":
        states[:, classes:] *= 15
        states[np.arange(len(labels)), labels] += 10
        states = states @ np.linalg.qr(draw.normal(size=(width, width)))[0]
    if kind == "badly scaled":
        states = states @ (np.eye(width) + draw.normal(size=(width, width)) / 2)
        states = states * 10 ** draw.uniform(-4, 4, width) + 100 * draw.normal(size=width)
    return parts_of(states, labels, (count, 1000))


def accuracy_of(parts: list[ProbeData], classes: int, hidden: int | None = None, seed: int = 0) -> float:
    fitted = fit_probes(parts[0], parts[1], torch.ones(1, 1), (classes, hidden), seed)
    return float(correct_predictions(fitted, parts[2]).mean())


@pytest.mark.parametrize("kind", ["separable", "noisy", "few items", "badly scaled"])
def test_a_linear_probe_minimizes_its_loss(kind: str) -> None:
    """The gradient of cross-entropy, penalty and pseudo-items, written anew with autograd, is zero for one of the values of C."""
    parts = simulated(kind, 0)
    x, y = parts[0].states.double(), parts[0].labels[0]
    fitted = fit_linear_probe((x, y), (parts[1].states.double(), parts[1].labels[0]), int(y.max()) + 1)
    weight, bias = fitted.weight.clone().requires_grad_(), (fitted.bias + x[0].mean(dim=0) @ fitted.weight).requires_grad_()
    fit = torch.nn.functional.cross_entropy((x[0] - x[0].mean(dim=0)) @ weight + bias, y)
    pseudo = -bias.log_softmax(dim=0).sum() / (2 * len(y))
    size = min(
        max(
            float(g.abs().max())
            for g in torch.autograd.grad(fit + pseudo + weight.square().sum() / (2 * c * len(y)), (weight, bias), retain_graph=True)
        )
        for c in PROBE_STRENGTHS
    )
    assert size < 1e-3


def test_a_mix_is_fitted_to_convergence() -> None:
    """A thousand steps more, in the plain coordinates, lower its loss by less than a thousandth of a nat; at 0 it is 1.1 nats."""
    states, labels = made_up(600, width=12)
    x, y = states.double() * torch.tensor([3.0, 1.0, 0.3])[:, None, None], labels
    fitted = fit_linear_probe((x[:, :400], y[:400]), (x[:, 400:], y[400:]), 3)
    mean = x[:, :400].mean(dim=1)

    def loss(mix: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, strength: float) -> torch.Tensor:
        logits = torch.tensordot(mix.softmax(dim=0), x[:, :400] - mean[:, None], dims=1) @ weight + bias
        pseudo = -bias.log_softmax(dim=0).sum() / 800
        return torch.nn.functional.cross_entropy(logits, y[:400]) + pseudo + weight.square().sum() / (800 * strength)

    def gain(strength: float) -> float:
        start = [fitted.mix, fitted.weight, fitted.bias + fitted.mix.softmax(dim=0) @ mean @ fitted.weight]
        parameters = [one.clone().requires_grad_() for one in start]
        optimizer = torch.optim.LBFGS(parameters, max_iter=1000, line_search_fn="strong_wolfe")

        def closure() -> float:
            optimizer.zero_grad()
            value = loss(*parameters, strength)
            value.backward()
            return float(value.detach())

        before = closure()
        optimizer.step(closure)
        return before - closure()

    assert min(gain(strength) for strength in PROBE_STRENGTHS) < 1e-3


def test_a_hidden_layer_learns_what_is_not_linearly_separable() -> None:
    """Labels by the product of signs: a linear probe is at chance, an MLP is nearly perfect."""
    x = rng(0, "xor").normal(size=(1, 2000, 2))
    labels = torch.from_numpy((x[0, :, 0] * x[0, :, 1] > 0).astype(np.int64))
    states = torch.from_numpy(x).float()
    parts = [ProbeData(states[:, a:b], labels[None, a:b]) for a, b in ((0, 1400), (1400, 1700), (1700, 2000))]
    linear, mlp = (
        correct_predictions(fit_probes(parts[0], parts[1], torch.ones(1, 1), (2, hidden), 0), parts[2]).mean()
        for hidden in (None, 32)
    )
    assert linear < 0.65
    assert mlp > 0.9


def test_a_mix_is_better_than_each_layer_if_two_tell_half() -> None:
    """Two layers of three tell one of two bits each: their mix knows both and leaves out noise, and what it may not read."""
    draw = rng(0, "halves")
    labels = draw.integers(0, 4, 1500)
    states = draw.normal(size=(3, 1500, 8))
    states[1, :, 0] += 4 * (labels // 2)
    states[2, :, 1] += 4 * (labels % 2)
    items = ProbeData(torch.from_numpy(states).float(), torch.from_numpy(labels).expand(5, -1))
    inputs = torch.cat([torch.eye(3), torch.ones(1, 3), torch.tensor([[1.0, 0.0, 1.0]])])
    fitted = fit_probes(items.take(np.arange(600)), items.take(np.arange(600, 900)), inputs, (4, None), 0)
    accuracy = correct_predictions(fitted, items.take(np.arange(900, 1500))).mean(axis=1)
    assert max(*accuracy[:3], accuracy[4]) < 0.6 < 0.85 < accuracy[3]
    weights = (fitted.mix + fitted.allowed).softmax(dim=-1).detach()
    assert float(weights[3, 0]) < 0.1
    assert float(weights[4, 1]) == 0.0


@given(st.integers(0, 5), st.integers(2, 4))
@settings(max_examples=8, deadline=None)
def test_a_control_label_belongs_to_a_type(seed: int, classes: int) -> None:
    """Items of the same type have the same label in every split, whatever their own; unlabelled items stay unlabelled."""
    types = [["the", "cat", "the"], ["cat", "dog"]]
    labels = [np.arange(3) % classes, np.array([1, IGNORED])]
    one, other = control_labels(types, labels, seed)
    assert one[0] == one[2]
    assert one[1] == other[0]
    assert other[1] == IGNORED


@pytest.mark.proofs
def test_a_hidden_layer_is_as_good_as_that_of_scikit_learn() -> None:
    """Within 1.5 points of its early-stopped MLP or better, on states of every kind, and on linear ones near the linear probe."""
    for kind in ("separable", "noisy", "few items", "badly scaled"):
        parts = simulated(kind, 0)
        x, y = (torch.cat([part.states[0] if i == 0 else part.labels[0] for part in parts[:2]]).numpy() for i in range(2))
        theirs = MLPClassifier(128, early_stopping=True, validation_fraction=1000 / len(y), random_state=0).fit(x, y)
        least = theirs.score(parts[2].states[0].numpy(), parts[2].labels[0].numpy()) - 0.015
        assert accuracy_of(parts, int(y.max()) + 1, 128) > least, kind


def test_the_online_code_is_short_only_if_something_is_learned() -> None:
    """Noise takes about as many bits as a uniform code, the telling representation far fewer."""
    states, labels = made_up(1200)
    items = ProbeData(states, labels.expand(3, -1))
    compression = online_compression(items.take(np.arange(900)), items.take(np.arange(900, 1200)), torch.eye(3), 3, seed=0)
    assert compression[1] > 1.8
    assert 0.9 < compression[0] < 1.05
    assert 0.9 < compression[2] < 1.05


def test_frequencies_alone_give_the_code_of_krichevsky_and_trofimov() -> None:
    """Labels of 85, 5, 5 and 5%: the closed form is the sequential product, near the limit 2.36 (a trained probe gave 1.46)."""
    labels = rng(0, "uneven").permutation(np.repeat(np.arange(4), [1700, 100, 100, 100]))
    seen, bits = np.full(4, 0.5), 0.0
    for label in labels:
        bits -= math.log2(seen[label] / seen.sum())
        seen[label] += 1
    assert frequency_code_bits(seen - 0.5) == pytest.approx(bits, rel=1e-9)
    assert frequency_compression(torch.from_numpy(labels), 4) == pytest.approx(4000 / bits, rel=1e-9)
    assert 4000 / bits == pytest.approx(2.36, abs=0.025)


@given(st.lists(st.integers(0, 500), min_size=2, max_size=8).filter(any), st.randoms(use_true_random=False))
def test_the_frequency_code_keeps_its_bounds(counts: list[int], random: random.Random) -> None:
    """Between the entropy of the labels and that plus (C - 1) / 2 log2 n + log2 C; the order of classes changes nothing."""
    n, shuffled = sum(counts), random.sample(counts, len(counts))
    entropy = -sum(c * math.log2(c / n) for c in counts if c)
    bits = frequency_code_bits(np.array(counts))
    assert entropy < bits <= entropy + (len(counts) - 1) / 2 * math.log2(n) + math.log2(len(counts)) + 1e-6
    assert frequency_code_bits(np.array(shuffled)) == pytest.approx(bits)


def test_labels_of_which_the_states_tell_nothing_take_no_more_than_their_frequencies() -> None:
    """Nine of ten labels equal: noise codes them about as shortly as their frequencies do; an unseen class keeps a finite code."""
    draw = rng(0, "uneven")
    labels = torch.from_numpy((draw.random(800) < 0.1).astype(np.int64))
    items = ProbeData(torch.from_numpy(draw.normal(size=(1, 800, 8))).float(), labels[None])
    alone = frequency_compression(labels[:600], 2)
    noise = online_compression(items.take(np.arange(600)), items.take(np.arange(600, 800)), torch.ones(1, 1), 2, seed=0)
    assert 1.3 < alone < 2.2
    assert alone - 0.3 < noise[0] < alone + 0.02
    assert frequency_compression(torch.arange(200) % 2, 2) == pytest.approx(1, abs=0.03)
    unseen = fit_linear_probe(
        (items.states[:, :20], torch.zeros(20, dtype=torch.int64)), (items.states[:, 20:40], labels[20:40]), 2
    )
    assert 0 < float(unseen.losses(items.states[:, 40:50], torch.ones(10, dtype=torch.int64)).mean()) < 10


WORDS = [tuple(sentence.split()) for sentence in SENTENCES]


def bundle_of(tokenizer: Tokenizer, *, causal: bool = False) -> Bundle:
    return Bundle(make_language_model(vocab_size=tokenizer.vocab_size, causal=causal, max_length=64), tokenizer)


def test_word_states_are_means_over_a_words_tokens(tokenizer: Tokenizer) -> None:
    """Checked one text at a time; a text without words has none; the tokens are those of the text as a whole."""
    for causal in (True, False):
        bundle = bundle_of(tokenizer, causal=causal)
        words = encode_words(bundle, [*WORDS, ()])
        states = word_states(bundle, words)
        assert states[-1].shape == (0, 3, 16)
        for number, text in enumerate(WORDS):
            alone = encode_words(bundle, [text]).encoded
            output = run_backbone(bundle, alone.batch(np.array([0]), None, 0, causal=causal))
            layers = torch.stack([*output.hidden_states[:-1], output.last_hidden_state])[:, 0]
            ends = [*alone.piece_starts[0], len(alone.rows[0]) - 1]
            for i in range(len(text)):
                wanted = layers[:, ends[i] : ends[i + 1]].mean(dim=1).detach().numpy()
                np.testing.assert_allclose(states[number][i], wanted, atol=1e-5)
        whole = encode(tokenizer, [" ".join(text) for text in WORDS], 64)
        for row, own in zip(whole.rows, words.encoded.rows[:-1], strict=True):
            assert row.tolist() == own.tolist()
        assert text_states(bundle, SENTENCES).shape == (4, 3, 16)


COPIES = 2


def first_word_task() -> ProbingTask:
    """Whether a word is the first of its sentence, in copies of each sentence."""
    part = ProbingSplit(tuple(WORDS * COPIES), tuple(np.array([0] + [1] * (len(text) - 1)) for text in WORDS * COPIES))
    return ProbingTask("first", ("yes", "no"), part, part, part, words=True)


def made_up_probes(model: str, *, bag: float = 0.5, items: int = 40, draws: int = 2) -> TaskProbes:
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

    def word_split(read: Bundle, part: ProbingSplit) -> ProbeSplit:
        calls.extend([part] * (read is bundle))
        return splits[0]

    alone = probe_layers(bundle, first_word_task(), "linear", [0])
    monkeypatch.setattr(probing, "_word_split", word_split)
    (probes,) = probe_models({"a": bundle}, [first_word_task()], [0], mlp=True)
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
    assert "sentences" not in probe_finding(made_up_probes("a"))
    assert " on 13 test items of only 13 sentences: " in probe_finding(made_up_probes("a", items=13))
    assert "not significant" not in probe_finding(made_up_probes("a"))
    power = r"\d+\.\d points would have been detected with 80% power"
    assert re.search(rf", not significant; {power}\) against a bag of embeddings", probe_finding(made_up_probes("a", bag=0.95)))


def test_the_first_finding_says_what_was_learned() -> None:
    """In one sentence: what a model tells better than an untrained network; several models are counted."""
    (none, some) = (made_up_probes("a", bag=0.5), made_up_probes("b"))
    assert learned_finding([some]) == "What b has learned: first; an untrained network would tell it less well."
    equal = replace(none, random=none.linear)
    assert learned_finding([equal]) == "Nothing shows that a has learned more than an untrained network would tell."
    assert learned_finding([equal, some]).startswith("Learned, of 1 property: a 0, b 1 (an untrained network")


def test_every_fit_on_random_weights_draws_new_weights(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fit's seed draws the weights; models of one architecture share them; the finding says how many there are."""
    bundle, calls = bundle_of(tokenizer), list[tuple[float, list[int]]]()

    def probe(bundle: Bundle, _: ProbingTask, __: str, seeds: Sequence[int], **___: object) -> list[ProbeScores]:
        calls.append((float(bundle.model.backbone.embedding.weight.detach().abs().sum()), list(seeds)))
        return [*made_up_probes("a").linear.values()]

    monkeypatch.setattr(probing, "probe_layers", probe)
    first, second = probe_models({"a": bundle, "b": bundle}, [first_word_task()], [0, 1], mlp=False)
    sizes = [float(with_random_weights(bundle, seed).model.backbone.embedding.weight.detach().abs().sum()) for seed in (0, 1)]
    assert calls[:2] == [(sizes[0], [0]), (sizes[1], [1])]
    assert sizes[0] != sizes[1]
    assert len(calls) == 4
    assert first.random is second.random
    assert len(first.random["1"].correct) == 2
    assert ") against 2 draws of random weights" in probe_finding(made_up_probes("a"))
    assert "for this draw alone) against one draw of random weights" in probe_finding(made_up_probes("a", draws=1))


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
