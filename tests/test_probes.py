"""Probes find what is there and nothing else, as their controls show; hidden states of words and texts that they read."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier

from helpers.figures import repeats
from helpers.models import SENTENCES, make_language_model
from warmstart.data.encode import encode
from warmstart.data.probing import IGNORED
from warmstart.inspection.activations import encode_words, run_backbone, text_states, with_random_weights, word_states
from warmstart.inspection.linear_probes import PROBE_STRENGTHS, fit_linear_probe
from warmstart.inspection.probes import (
    ProbeData,
    control_labels,
    correct_predictions,
    fit_probes,
    frequency_compression,
    online_compression,
    standardize,
)
from warmstart.model.bundle import Bundle
from warmstart.seeding import rng
from warmstart.stats.coding import frequency_code_bits
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


def tuned_accuracy(parts: list[ProbeData]) -> float:
    """Of scikit-learn's logistic regression on test, with the C of the lowest cross-entropy on validation."""
    (x, y), (x_validation, y_validation), (x_test, y_test) = ((part.states[0].numpy(), part.labels[0].numpy()) for part in parts)
    fits = [LogisticRegression(C=strength, max_iter=5000).fit(x, y) for strength in PROBE_STRENGTHS]
    best = min(fits, key=lambda fit: float(log_loss(y_validation, fit.predict_proba(x_validation))))
    return float(best.score(x_test, y_test))


@pytest.mark.proofs
def test_a_linear_probe_is_as_accurate_as_tuned_logistic_regression() -> None:
    """Within 0.5 points of scikit-learn, over draws of 4,000 test items; unconverged probes were up to 4.4 points below."""
    for kind in ("separable", "noisy", "few items", "badly scaled"):
        for seed in range(repeats(4, 2)):
            parts = simulated(kind, seed)
            ours = accuracy_of(parts, int(parts[0].labels.max()) + 1)
            assert ours == pytest.approx(tuned_accuracy(parts), abs=0.005), (kind, seed)


def test_a_linear_probe_minimizes_its_loss() -> None:
    """The gradient of cross-entropy, penalty and pseudo-items, written anew with autograd, is zero for one of the values of C."""
    parts = simulated("noisy", 0)
    x, y = parts[0].states.double(), parts[0].labels[0]
    fitted = fit_linear_probe((x, y), (parts[1].states.double(), parts[1].labels[0]), 4)
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


@pytest.mark.proofs
def test_a_separable_layer_is_coded_almost_for_free() -> None:
    """2,000 items of four classes, separable: at least 26 times shorter (1.5 times before probes were fitted to convergence)."""
    for seed in range(2):
        parts = simulated("separable", seed)
        compression = online_compression(parts[0], parts[1], torch.ones(1, 1), 4, seed)
        assert compression[0] > 26


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


def test_random_weights_keep_the_architecture(tokenizer: Tokenizer) -> None:
    """The same configuration, other weights; the seed decides which."""
    bundle = bundle_of(tokenizer)
    other, again = with_random_weights(bundle, 1), with_random_weights(bundle, 1)
    assert other.model.backbone.config == bundle.model.backbone.config
    assert not torch.equal(other.model.backbone.embedding.weight, bundle.model.backbone.embedding.weight)
    assert torch.equal(other.model.backbone.embedding.weight, again.model.backbone.embedding.weight)
