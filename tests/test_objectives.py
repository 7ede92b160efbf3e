"""Objectives: what they mask and what they predict, by literal numbers and by properties."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.models import make_language_model
from warmstart.errors import ConfigError
from warmstart.objectives import OBJECTIVES
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.masked import mask_tokens
from warmstart.objectives.span import prefix_suffix, sentinel_form, span_mask, span_stride
from warmstart.seeding import rng
from warmstart.types import IGNORE, Batch, SpecialTokens, Vocabulary

WORDS = np.arange(60) % 3 == 0
VOCABULARY = Vocabulary(60, SpecialTokens(pad=0, unk=1, eos=2, mask=3, cls=4, sentinels=tuple(range(5, 21))), WORDS)
FORMS = [
    ObjectiveConfig(name="causal"),
    ObjectiveConfig(name="masked", mask_rate=0.3),
    ObjectiveConfig(name="masked", mask_rate=0.3, whole_words=True),
    ObjectiveConfig(name="span"),
    ObjectiveConfig(name="span", form="prefix-suffix"),
    ObjectiveConfig(name="hybrid"),
    ObjectiveConfig(name="contrastive"),
    ObjectiveConfig(name="detect"),
]


def make(config: ObjectiveConfig, rows: np.ndarray, lengths: np.ndarray | None = None, seed: int = 0) -> Batch:
    lengths = np.full(len(rows), rows.shape[1]) if lengths is None else lengths
    return OBJECTIVES[config.name].make(rows, lengths, rng(seed, "test"), VOCABULARY, config)


def random_rows(config: ObjectiveConfig, tokens: int = 24, count: int = 4, seed: int = 0) -> np.ndarray:
    return rng(seed, "rows").integers(21, 60, (count, OBJECTIVES[config.name].stride(tokens, config) + 1))


@pytest.mark.parametrize("config", FORMS, ids=lambda c: f"{c.name}-{c.form}-{c.whole_words}")
@pytest.mark.parametrize("seed", range(5))
def test_every_objective_keeps_its_contract(config: ObjectiveConfig, seed: int) -> None:
    """Batches fit the row, count their targets, never predict padding, never change their source, and repeat with the seed."""
    rows = random_rows(config, seed=seed)
    lengths = np.array([rows.shape[1], rows.shape[1] - 1, 12, 9])
    before = rows.copy()
    batch = make(config, rows, lengths, seed)
    again = make(config, rows, lengths, seed)
    assert batch.ids.shape == batch.targets.shape
    assert batch.ids.shape[1] <= 24
    assert batch.count == int((batch.targets != IGNORE).sum()) > 0
    assert not (batch.targets == VOCABULARY.specials.pad).any()
    if batch.attention_mask is not None:
        assert (batch.targets[~batch.attention_mask] == IGNORE).all()
    assert (rows == before).all()
    assert torch.equal(batch.ids, again.ids)
    assert torch.equal(batch.targets, again.targets)


@pytest.mark.parametrize("config", FORMS, ids=lambda c: f"{c.name}-{c.form}-{c.whole_words}")
def test_every_objective_can_be_learned(config: ObjectiveConfig) -> None:
    """Sixty steps on one batch lower its loss by half."""
    batch = make(config, random_rows(config))
    model = make_language_model(causal=OBJECTIVES[config.name].causal, init_std=0.02).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        loss = model.loss(batch) / batch.count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2


def test_causal_by_literal_numbers() -> None:
    """Each token predicts the next; tokens past a row's length are never predicted."""
    batch = make(ObjectiveConfig(name="causal"), np.array([[25, 26, 27, 28], [35, 36, 0, 0]]), np.array([4, 2]))
    assert batch.ids.tolist() == [[25, 26, 27], [35, 36, 0]]
    assert batch.targets.tolist() == [[26, 27, 28], [36, IGNORE, IGNORE]]
    assert batch.causal


@pytest.mark.parametrize(
    ("config", "rate"), [(ObjectiveConfig(name="masked"), 0.3), (ObjectiveConfig(name="masked", mask_rate=0.15), 0.15)]
)
def test_masked_masks_at_the_stated_rate(config: ObjectiveConfig, rate: float) -> None:
    """Of the chosen tokens 80% become the mask, 10% another token, 10% stay; tokens that are not chosen stay."""
    ids = rng(0, "ids").integers(21, 60, (400, 100))
    hidden, chosen = mask_tokens(ids, np.ones_like(ids, bool), rng(0, "x"), VOCABULARY, config)
    assert chosen.mean() == pytest.approx(rate, abs=0.005)
    assert (hidden[chosen] == VOCABULARY.specials.mask).mean() == pytest.approx(0.8, abs=0.02)
    # a random token is the old one in 1 of 39 cases
    assert (hidden[chosen] == ids[chosen]).mean() == pytest.approx(0.1 + 0.1 / 39, abs=0.02)
    assert (hidden[~chosen] == ids[~chosen]).all()
    assert not np.isin(hidden[chosen], [0, 1, 2, 4]).any()


def test_each_objective_has_a_mask_rate_of_its_own() -> None:
    """By default 0.3 for masked, and for the others that of T5 and BERT."""
    assert {name: ObjectiveConfig(name=name).effective_mask_rate for name in OBJECTIVES} == {
        "causal": 0.15, "masked": 0.3, "span": 0.15, "hybrid": 0.15, "contrastive": 0.15, "detect": 0.15,
    }  # fmt: skip
    assert ObjectiveConfig(name="span", mask_rate=0.5).effective_mask_rate == 0.5


def test_special_tokens_are_never_masked() -> None:
    """End-of-text and padding stay, whatever the rate."""
    ids = np.array([[2, 30, 31, 2, 32, 0]])
    real = ids != 0
    _, chosen = mask_tokens(ids, real, rng(0, "x"), VOCABULARY, ObjectiveConfig(name="masked", mask_rate=0.99))
    assert not chosen[0, [0, 3, 5]].any()


def test_at_least_one_token_is_masked() -> None:
    """A short batch at a small rate still has something to learn from."""
    ids = np.array([[2, 30, 31, 2]])
    for seed in range(20):
        _, chosen = mask_tokens(ids, ids > 0, rng(seed, "x"), VOCABULARY, ObjectiveConfig(name="masked", mask_rate=0.01))
        assert chosen.sum() >= 1


@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=50)
def test_whole_words_are_masked_whole(seed: int) -> None:
    """With whole_words, all pieces of a word are chosen or none."""
    ids = rng(seed, "ids").integers(21, 60, (2, 30))
    config = ObjectiveConfig(name="masked", mask_rate=0.4, whole_words=True)
    _, chosen = mask_tokens(ids, np.ones_like(ids, bool), rng(seed, "x"), VOCABULARY, config)
    words = WORDS[ids].cumsum(axis=1)
    for row, flags in zip(words, chosen, strict=True):
        for word in set(row):
            assert len(set(flags[row == word])) == 1


def test_hybrid_is_causal_or_masked_next_token() -> None:
    """In a masked batch a masked token is predicted one position before it, and nothing else is predicted."""
    rows = random_rows(ObjectiveConfig(name="hybrid"))
    causal = make(ObjectiveConfig(name="hybrid", causal_fraction=1), rows)
    assert causal.causal
    assert causal.ids.tolist() == rows[:, :-1].tolist()
    both = make(ObjectiveConfig(name="hybrid", causal_fraction=0, mask_rate=0.3), rows)
    assert not both.causal
    wanted = (both.targets != IGNORE).numpy()
    assert (both.targets.numpy()[wanted] == rows[:, 1:][wanted]).all()
    changed = both.ids.numpy() != rows[:, :-1]
    assert not (changed[:, 1:] & ~wanted[:, :-1]).any()
    assert not changed[:, 0].any()


def test_hybrid_is_causal_at_the_stated_fraction() -> None:
    """A quarter of the batches is causal."""
    rows = random_rows(ObjectiveConfig(name="hybrid"))
    config = ObjectiveConfig(name="hybrid", causal_fraction=0.25)
    fraction = np.mean([make(config, rows, seed=seed).causal for seed in range(400)])
    assert fraction == pytest.approx(0.25, abs=0.07)


def test_sentinel_form_by_literal_numbers() -> None:
    """The example of the docstring."""
    hidden = np.array([False, True, True, False, True])
    inputs, targets = sentinel_form(np.array([35, 36, 37, 38, 39]), hidden, (5, 6, 7))
    assert inputs.tolist() == [35, 5, 38, 6]
    assert targets.tolist() == [5, 36, 37, 6, 39, 7]


@given(st.integers(3, 200), st.floats(0.05, 0.8), st.floats(1, 6), st.integers(0, 1000))
@settings(deadline=None, max_examples=200)
def test_spans_have_the_stated_rate_and_length(length: int, rate: float, mean: float, seed: int) -> None:
    """The number of masked tokens is exact (to one), the first token stays, and spans never touch."""
    hidden = span_mask(length, rate, mean, rng(seed, "x"))
    assert len(hidden) == length
    assert hidden.sum() == min(max(1, round(length * rate)), length - 1)
    assert not hidden[0]
    spans = int((hidden[1:] & ~hidden[:-1]).sum())
    assert spans == min(max(1, round(hidden.sum() / mean)), hidden.sum(), length - hidden.sum())


@given(st.integers(3, 60), st.integers(0, 1000))
@settings(deadline=None, max_examples=100)
def test_span_corruption_loses_nothing(length: int, seed: int) -> None:
    """Replacing the sentinels by the predicted spans restores the text."""
    ids = rng(seed, "ids").integers(21, 60, length)
    inputs, targets = sentinel_form(ids, span_mask(length, 0.3, 2.0, rng(seed, "x")), tuple(range(5, 21)) + tuple(range(100, 130)))
    spans: dict[int, list[int]] = {}
    for token in targets:
        if not 21 <= token < 60:
            spans[current := int(token)] = []
        else:
            spans[current].append(int(token))
    restored = [part for token in inputs for part in spans.get(int(token), [int(token)])]
    assert restored == ids.tolist()


@given(st.integers(8, 300), st.floats(0.05, 0.5), st.floats(1, 5))
@settings(deadline=None, max_examples=100)
def test_span_rows_fit_the_model(tokens: int, rate: float, mean: float) -> None:
    """A corrupted row and its spans together never exceed the model's row."""
    config = ObjectiveConfig(name="span", mask_rate=rate, mean_span=mean)
    length = span_stride(tokens, config)
    hidden = span_mask(length, rate, mean, rng(0, "x"))
    spans = int((hidden[1:] & ~hidden[:-1]).sum())
    assert length + 2 * spans <= tokens


@given(st.integers(1, 40), st.integers(0, 1000))
@settings(deadline=None, max_examples=100)
def test_prefix_suffix_moves_one_span_to_the_end(length: int, seed: int) -> None:
    """From prefix M suffix M span the text can be restored, truncated to at most 7/8 of a row."""
    ids = rng(seed, "ids").integers(21, 60, length)
    sequence, first = prefix_suffix(ids, 32, rng(seed, "x"), VOCABULARY)
    a, b = np.flatnonzero(sequence == 3)
    restored = [*sequence[:a], *sequence[b + 1 :], *sequence[a + 1 : b]]
    assert restored == ids[: len(restored)].tolist()
    assert len(restored) <= 28
    assert first == 0


def test_too_few_sentinels_are_named() -> None:
    """The error says how many sentinels a row needs."""
    config = ObjectiveConfig(name="span", mask_rate=0.5, mean_span=1)
    with pytest.raises(ConfigError, match=r"needs \d+ sentinels, but the tokenizer has 16"):
        make(config, random_rows(config, tokens=100))


def test_an_unknown_objective_is_named() -> None:
    """The error suggests the nearest name."""
    with pytest.raises(ConfigError, match="unknown objective 'maskd'; did you mean 'masked'"):
        OBJECTIVES["maskd"]


def test_a_short_row_with_bidirectional_attention_masks_its_padding() -> None:
    """A masked batch of hybrid has an attention mask: padding would otherwise change the states of real tokens."""
    config = ObjectiveConfig(name="hybrid", causal_fraction=0.0)
    batch = make(config, random_rows(config), np.array([25, 20, 12, 9]))
    assert batch.attention_mask is not None
    assert batch.attention_mask.sum(dim=1).tolist() == [24, 20, 12, 9]
    assert batch.lengths.tolist() == [24, 20, 12, 9]
