"""Probes find what is there and nothing else, and their controls show what they learn by themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from warmstart.data.probing import IGNORED
from warmstart.inspection.probes import (
    ProbeData,
    control_labels,
    correct_predictions,
    fit_probes,
    frequency_compression,
    online_compression,
    standardize,
)
from warmstart.seeding import rng


def made_up(
    count: int, representations: int = 3, width: int = 8, classes: int = 3, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """States of which only the second representation tells the label."""
    draw = rng(seed, "states")
    labels = draw.integers(0, classes, count)
    states = draw.normal(size=(representations, count, width))
    states[1, np.arange(count), labels] += 3.0
    return torch.from_numpy(states).float(), torch.from_numpy(labels)


def test_a_linear_probe_finds_what_logistic_regression_finds() -> None:
    """Its accuracy is within 0.02; representations that tell nothing stay at chance."""
    states, labels = made_up(2000)
    train, validation, test = standardize(states[:, :1200], [states[:, 1200:1500], states[:, 1500:]])
    parts = [
        ProbeData(x, y.expand(3, -1))
        for x, y in zip((train, validation, test), (labels[:1200], labels[1200:1500], labels[1500:]), strict=True)
    ]
    accuracy = correct_predictions(fit_probes(parts[0], parts[1], torch.eye(3), (3, None), seed=0), parts[2]).mean(axis=1)
    theirs = LogisticRegression(C=0.1).fit(train[1].numpy(), labels[:1200]).score(test[1].numpy(), labels[1500:])
    assert accuracy[1] == pytest.approx(theirs, abs=0.02)
    assert accuracy[1] > 0.85 > 0.42 > max(accuracy[0], accuracy[2])


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


def test_a_mix_learns_which_layer_tells_the_label() -> None:
    """The telling representation gets the largest weight; one that a probe may not read has weight 0."""
    states, labels = made_up(900)
    items = ProbeData(states, labels.expand(2, -1))
    fitted = fit_probes(
        items.take(np.arange(600)), items.take(np.arange(600, 900)), torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]]), (3, None), 0
    )
    weights = (fitted.mix + fitted.allowed).softmax(dim=-1).detach()
    assert int(weights[0].argmax()) == 1
    assert float(weights[1, 1]) == 0.0
    accuracy = correct_predictions(fitted, items).mean(axis=1)
    assert accuracy[0] > 0.85 > 0.5 > accuracy[1]


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


def test_the_online_code_is_short_only_if_something_is_learned() -> None:
    """Noise takes about as many bits as a uniform code, the telling representation far fewer."""
    states, labels = made_up(1200)
    items = ProbeData(states, labels.expand(3, -1))
    compression = online_compression(items.take(np.arange(900)), items.take(np.arange(900, 1200)), torch.eye(3), 3, seed=0)
    assert compression[1] > 1.8
    assert compression[0] < 1.1
    assert compression[2] < 1.1


def test_unequal_label_frequencies_alone_shorten_the_code() -> None:
    """Nine of ten labels equal: noise shortens their code no more than no input at all; balanced labels stay as long."""
    draw = rng(0, "uneven")
    labels = torch.from_numpy((draw.random(800) < 0.1).astype(np.int64))
    items = ProbeData(torch.from_numpy(draw.normal(size=(1, 800, 8))).float(), labels[None])
    alone = frequency_compression(labels[:600], labels[600:], 2, seed=0)
    noise = online_compression(items.take(np.arange(600)), items.take(np.arange(600, 800)), torch.ones(1, 1), 2, seed=0)
    assert 1.3 < alone < 2.2
    assert noise[0] < alone + 0.05
    assert frequency_compression(torch.arange(200) % 2, torch.arange(200) % 2, 2, seed=0) == pytest.approx(1, abs=0.02)
