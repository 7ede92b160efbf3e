"""Shares of labels: covered by their intervals, better than labels alone, and withheld where the labels were picked."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.figures import repeats

from warmstart.seeding import rng
from warmstart.stats.shares import Sample, estimate_shares, sampled_alike, share_difference, with_known


def population(generator: np.random.Generator, shares: np.ndarray, count: int, quality: float, bias: np.ndarray) -> Sample:
    """Texts of labels with these ``shares``, and predictions of a model that errs on purpose."""
    labels = np.eye(len(shares))[generator.choice(len(shares), count, p=shares)]
    logits = quality * labels + 1.2 * generator.normal(size=labels.shape) + np.log(shares + 1e-3) + bias
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return Sample(labels, odds / odds.sum(axis=1, keepdims=True), np.ones(count))


SETTINGS = [(2, 20), (2, 100), (5, 20), (5, 300), (20, 100), (20, 400)]


@pytest.mark.proofs
@pytest.mark.parametrize(("classes", "labelled"), SETTINGS)
@pytest.mark.parametrize("quality", [0.0, 2.0, 4.0])
def test_shares_are_covered(classes: int, labelled: int, quality: float) -> None:
    """At least 94 of 100 intervals, also of rare labels and of differences of two groups; and they are no worse than labels alone."""
    generator, held, rare, differences, width = rng(0, f"{classes} {labelled} {quality}"), [], [], [], np.zeros(2)
    for _ in range(repeats(1000, 150)):
        shares, bias = generator.dirichlet(np.ones(classes)), generator.normal(size=classes)
        groups = []
        for _ in range(2):
            sample = population(generator, shares, labelled, quality, bias)
            others = population(generator, shares, 1500, quality, bias)
            found, truth = estimate_shares(sample, others.predictions), others.labels.mean(axis=0)
            alone = estimate_shares(sample._replace(predictions=np.zeros_like(sample.predictions)), np.zeros_like(others.predictions))
            covered = np.array([share.low <= value <= share.high for share, value in zip(found, truth, strict=True)])
            assert abs(sum(share.value for share in found) - 1) < 1e-9 and all(0 <= value <= 1 for share in found for value in share)
            held.append(covered.mean())
            rare.extend(covered[shares < 0.05])
            width += [np.mean([share.high - share.low for share in estimates]) for estimates in (found, alone)]
            groups.append((found[0], truth[0]))
            shares = generator.dirichlet(np.ones(classes))
        difference = share_difference(groups[0][0], groups[1][0])
        differences.append(difference.low <= groups[0][1] - groups[1][1] <= difference.high)
    noise = 2 * np.sqrt(0.05 * 0.95 / len(differences))
    assert np.mean(held) >= 0.94 - noise / 2
    assert np.mean(differences) >= 0.94 - noise
    assert len(rare) < 100 or np.mean(rare) >= 0.94 - 2 * np.sqrt(0.05 * 0.95 / len(rare))
    assert width[0] <= 1.01 * width[1] * (0.85 if quality > 3 else 1)


@pytest.mark.proofs
def test_labels_that_were_picked_are_noticed() -> None:
    """A random sample is doubted in about 1 of 100 cases at the level of 1%; equally many texts of each label nearly always."""
    generator, random, picked = rng(0, "picked"), [], []
    shares, bias = np.array([0.75, 0.15, 0.1]), np.array([0.3, 0.0, -0.3])
    for _ in range(repeats(500, 120)):
        others = population(generator, shares, 1500, 2.0, bias)
        random.append(sampled_alike(population(generator, shares, 100, 2.0, bias), others.predictions))
        many = population(generator, shares, 2000, 2.0, bias)
        rows = np.concatenate([np.flatnonzero(many.labels[:, label])[:33] for label in range(3)])
        picked.append(sampled_alike(many.take(rows), others.predictions))
    assert np.mean(np.array(random) <= 0.01) <= 0.04
    assert np.mean(np.array(picked) <= 0.01) >= 0.95


def test_weights_undo_a_choice_of_texts() -> None:
    """Texts that were drawn three times as often as others count a third."""
    generator, shares = rng(0, "weights"), np.array([0.5, 0.3, 0.2])
    pool, errors = population(generator, shares, 4000, 2.0, np.zeros(3)), []
    wanted = np.where(pool.labels[:, 2] > 0, 3.0, 1.0)
    for _ in range(60):
        rows = generator.choice(4000, 200, replace=False, p=wanted / wanted.sum())
        sample = pool.take(rows)._replace(weights=1 / wanted[rows])
        errors.append([share.value for share in estimate_shares(sample, pool.predictions)] - pool.labels.mean(axis=0))
    assert np.abs(np.mean(errors, axis=0)).max() < 0.015


def test_known_texts_count_with_their_labels() -> None:
    """Shares among labelled texts and others together; among labelled texts alone nothing is uncertain."""
    sample = population(rng(0, "known"), np.array([0.6, 0.4]), 60, 3.0, np.zeros(2))
    others = population(rng(1, "known"), np.array([0.6, 0.4]), 40, 3.0, np.zeros(2))
    share = estimate_shares(sample, others.predictions)[0]
    both = with_known(share, 40, sample.labels[:, 0])
    assert both.value == pytest.approx((40 * share.value + sample.labels[:, 0].sum()) / 100)
    assert both.high - both.low == pytest.approx(0.4 * (share.high - share.low))
    assert with_known(share, 0, sample.labels[:, 0]).low == sample.labels[:, 0].mean()
