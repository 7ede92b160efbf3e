"""Objectives: one contract for all; what they mask and predict, by numbers and properties; the chunked loss is torch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from helpers.models import SENTENCES, VOCABULARY, make_language_model
from helpers.training import job
from warmstart.corpora.rows import PretrainingRows, split_by_length
from warmstart.corpora.store import TokenText
from warmstart.corpora.write import tokenized_text
from warmstart.data.source import Source
from warmstart.errors import ConfigError
from warmstart.objectives import loss
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.loss import language_loss
from warmstart.objectives.masked import mask_tokens
from warmstart.objectives.registry import OBJECTIVES
from warmstart.objectives.span import prefix_suffix, sentinel_form, span_mask
from warmstart.seeding import rng
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.config import TrainConfig
from warmstart.training.held_out import held_out_loss, held_out_metrics
from warmstart.training.loop import train
from warmstart.types import IGNORE, Batch

WORDS = np.arange(60) % 3 == 0
FORMS = [
    ObjectiveConfig(name="causal"),
    ObjectiveConfig(name="masked", mask_rate=0.3),
    ObjectiveConfig(name="span"),
    ObjectiveConfig(name="span", form="prefix-suffix"),
    ObjectiveConfig(name="hybrid"),
    ObjectiveConfig(name="contrastive"),
]


def make(config: ObjectiveConfig, rows: np.ndarray, lengths: np.ndarray | None = None, seed: int = 0) -> Batch:
    lengths = np.full(len(rows), rows.shape[1]) if lengths is None else lengths
    return OBJECTIVES[config.name].make(rows, lengths, rng(seed, "test"), VOCABULARY, config)


def random_rows(config: ObjectiveConfig, tokens: int = 24, count: int = 4, seed: int = 0) -> np.ndarray:
    return rng(seed, "rows").integers(21, 60, (count, OBJECTIVES[config.name].stride(tokens, config) + 1))


@pytest.mark.parametrize("config", FORMS, ids=lambda c: f"{c.name}-{c.form}")
def test_every_objective_keeps_its_contract(config: ObjectiveConfig) -> None:
    """Batches fit the row, count their targets, predict no padding, leave their source and repeat; sixty steps halve the loss."""
    for seed in range(4):
        rows = random_rows(config, seed=seed)
        lengths, before = np.array([rows.shape[1], rows.shape[1] - 1, 12, 9]), rows.copy()
        batch, again = (make(config, rows, lengths, seed) for _ in range(2))
        assert batch.ids.shape == batch.targets.shape
        assert batch.ids.shape[1] <= 24
        assert batch.count == int((batch.targets != IGNORE).sum()) > 0
        assert not (batch.targets == VOCABULARY.specials.pad).any()
        assert batch.attention_mask is None or (batch.targets[~batch.attention_mask] == IGNORE).all()
        assert (rows == before).all()
        assert torch.equal(batch.ids, again.ids)
        assert torch.equal(batch.targets, again.targets)
    batch = make(config, random_rows(config))
    model = make_language_model(causal=OBJECTIVES[config.name].causal, init_std=0.02)
    losses = train(model, job(60, batches=lambda _: [batch]), TrainConfig(learning_rate=0.02)).log
    assert losses[-1]["loss"] < losses[0]["loss"] / 2


@pytest.fixture(scope="module")
def store(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> TokenText:
    """Short documents of different length."""
    folder = tmp_path_factory.mktemp("sentences")
    (folder / "text.txt").write_text("\n".join(" ".join(SENTENCES[: 1 + i % 3]) for i in range(12)))
    return tokenized_text([Source(path=str(folder / "text.txt"), document="line")], tokenizer, folder / "cache")


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_reads_whole_documents(name: str, store: TokenText, tokenizer: Tokenizer) -> None:
    """Each begins its row, alone; parts of like length have the loss of the whole; held-out figures repeat, by document too."""
    config = ObjectiveConfig(name=name, rows="documents", mask_rate=0.3)
    rows = PretrainingRows(store, tokenizer.vocabulary(), config, 96)
    assert len(rows) == store.documents == 12
    batch = rows.batch(np.arange(12), rng(0, "documents"))
    assert (batch.ids[:, 0] == tokenizer.specials.eos).all()
    assert int((batch.targets != IGNORE).sum()) == batch.count
    padded = torch.arange(batch.ids.shape[1]) >= batch.lengths[:, None]
    assert (batch.targets[padded] == IGNORE).all()
    assert set(batch.ids[padded].tolist()) <= {tokenizer.specials.pad, *batch.ids[:, 0].tolist(), *tokenizer.specials.sentinels}
    parts = split_by_length(batch, 64)
    assert len(parts) > 1
    assert (sum(part.count for part in parts), sum(len(part.ids) for part in parts)) == (batch.count, len(batch.ids))
    assert sum(part.ids.numel() for part in parts) < batch.ids.numel()
    assert sum(int(part.lengths.sum()) for part in parts) == int(batch.lengths.sum())
    model = make_language_model(vocab_size=tokenizer.vocab_size, max_length=96)
    with torch.no_grad():
        assert float(sum(model.loss(part) for part in parts)) == pytest.approx(float(model.loss(batch)), rel=1e-5)
    for layout in ("packed", "documents"):
        held = PretrainingRows(store, tokenizer.vocabulary(), config.model_copy(update={"rows": layout}), 16)
        figures, by_document = held_out_metrics(model, held), held_out_loss(model, held)
        assert figures == held_out_metrics(model, held)
        assert np.isfinite([*figures.values()]).all()
        assert by_document.value == pytest.approx(np.mean([figures[key] for key in figures if key.endswith("loss")]), rel=1e-5)
        assert by_document.sums.shape == by_document.counts.shape
        assert 2 <= len(by_document.sums) <= store.documents
        assert (held_out_loss(model, held).sums == by_document.sums).all(), "two readings are paired"
        if layout == "packed":  # only what reads what stands before it has a likelihood
            likelihoods = {"causal": ["word_perplexity"], "hybrid": ["causal word_perplexity"]}.get(name, [])
            assert [key for key in figures if "word_perplexity" in key] == likelihoods


def test_the_fraction_of_targets_is_that_of_the_objective() -> None:
    """Counted over many batches, as the cost of a run states it."""
    for name, objective in OBJECTIVES.items():
        config, draw = ObjectiveConfig(name=name), rng(0, "fractions")
        rows = draw.integers(21, 60, (1000, objective.stride(64, config) + 1))
        batches = [make(config, part, seed=seed) for seed, part in enumerate(np.split(rows, 100))]
        found = sum(batch.count for batch in batches) / sum(batch.ids.numel() for batch in batches)
        assert found == pytest.approx(objective.target_fractions(config)[0], rel=0.12), name


def test_causal_by_literal_numbers() -> None:
    """Each token predicts the next; tokens past a row's length are never predicted."""
    batch = make(ObjectiveConfig(name="causal"), np.array([[25, 26, 27, 28], [35, 36, 0, 0]]), np.array([4, 2]))
    assert batch.ids.tolist() == [[25, 26, 27], [35, 36, 0]]
    assert batch.targets.tolist() == [[26, 27, 28], [36, IGNORE, IGNORE]]
    assert batch.causal


def test_masked_masks_at_the_stated_rate() -> None:
    """Of the chosen tokens 80% become the mask, 10% another token, 10% stay; tokens that are not chosen stay."""
    ids = rng(0, "ids").integers(21, 60, (400, 100))
    for config, rate in ((ObjectiveConfig(name="masked"), 0.3), (ObjectiveConfig(name="masked", mask_rate=0.15), 0.15)):
        hidden, chosen = mask_tokens(ids, np.ones_like(ids, bool), rng(0, "x"), VOCABULARY, config)
        assert chosen.mean() == pytest.approx(rate, abs=0.005)
        assert (hidden[chosen] == VOCABULARY.specials.mask).mean() == pytest.approx(0.8, abs=0.02)
        # a random token is the old one in 1 of 39 cases
        assert (hidden[chosen] == ids[chosen]).mean() == pytest.approx(0.1 + 0.1 / 39, abs=0.02)
        assert (hidden[~chosen] == ids[~chosen]).all()
        assert not np.isin(hidden[chosen], [0, 1, 2, 4]).any()


def test_special_tokens_are_never_masked() -> None:
    """End-of-text and padding stay, whatever the rate; a short batch at a small rate still has something to learn from."""
    ids = np.array([[2, 30, 31, 2, 32, 0]])
    for seed in range(20):
        for rate in (0.01, 0.99):
            config = ObjectiveConfig(name="masked", mask_rate=rate)
            _, chosen = mask_tokens(ids, ids != 0, rng(seed, "x"), VOCABULARY, config)
            assert not chosen[0, [0, 3, 5]].any()
            assert chosen.sum() >= 1


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
    """A quarter of the batches is causal; the others mask their padding, which would change the states of real tokens."""
    config = ObjectiveConfig(name="hybrid", causal_fraction=0.25)
    rows = random_rows(config)
    batches = [make(config, rows, np.array([25, 20, 12, 9]), seed) for seed in range(400)]
    assert np.mean([batch.causal for batch in batches]) == pytest.approx(0.25, abs=0.07)
    batch = next(batch for batch in batches if not batch.causal)
    assert batch.attention_mask.sum(dim=1).tolist() == batch.lengths.tolist() == [24, 20, 12, 9]


def test_sentinel_form_by_literal_numbers() -> None:
    """The example of the docstring."""
    hidden = np.array([False, True, True, False, True])
    inputs, targets = sentinel_form(np.array([35, 36, 37, 38, 39]), hidden, (5, 6, 7))
    assert inputs.tolist() == [35, 5, 38, 6]
    assert targets.tolist() == [5, 36, 37, 6, 39, 7]


@given(st.integers(3, 200), st.floats(0.05, 0.8), st.integers(0, 1000))
@settings(deadline=None, max_examples=200)
def test_spans_have_the_stated_rate_and_length(length: int, rate: float, seed: int) -> None:
    """The number of masked tokens is exact (to one), the first token stays, and spans never touch."""
    hidden = span_mask(length, rate, rng(seed, "x"))
    assert len(hidden) == length
    assert hidden.sum() == min(max(1, round(length * rate)), length - 1)
    assert not hidden[0]
    spans = int((hidden[1:] & ~hidden[:-1]).sum())
    assert spans == min(max(1, round(hidden.sum() / 3)), hidden.sum(), length - hidden.sum())


@given(st.integers(3, 60), st.integers(0, 1000))
@settings(deadline=None, max_examples=100)
def test_span_corruption_loses_nothing(length: int, seed: int) -> None:
    """Replacing the sentinels by the predicted spans restores the text."""
    ids = rng(seed, "ids").integers(21, 60, length)
    inputs, targets = sentinel_form(ids, span_mask(length, 0.3, rng(seed, "x")), tuple(range(5, 21)) + tuple(range(100, 130)))
    spans: dict[int, list[int]] = {}
    for token in targets:
        if not 21 <= token < 60:
            spans[current := int(token)] = []
        else:
            spans[current].append(int(token))
    restored = [part for token in inputs for part in spans.get(int(token), [int(token)])]
    assert restored == ids.tolist()


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
    config = ObjectiveConfig(name="span", mask_rate=0.5)
    with pytest.raises(ConfigError, match=r"needs \d+ sentinels, but the tokenizer has 16"):
        make(config, random_rows(config, tokens=200))


@pytest.mark.parametrize(("chunk", "with_bias"), [(1, True), (3, False), (1000, True)])
def test_equals_torchs_cross_entropy(monkeypatch: pytest.MonkeyPatch, with_bias: bool, chunk: int) -> None:
    """Loss and all gradients agree, for ragged targets and chunks of any size."""
    monkeypatch.setattr(loss, "CHUNK", chunk)
    torch.manual_seed(0)
    states, weight, bias = (torch.randn(shape, requires_grad=True) for shape in ((2, 5, 8), (11, 8), (11,)))
    targets = torch.randint(0, 11, (2, 5))
    targets[0, 1:3] = IGNORE
    parts = [states, weight, bias] if with_bias else [states, weight]
    ours = language_loss(states, weight, bias if with_bias else None, targets)
    logits = F.linear(*parts).flatten(0, 1)
    theirs = F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORE, reduction="sum")
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(torch.autograd.grad(3 * ours, parts), torch.autograd.grad(3 * theirs, parts), strict=True):
        torch.testing.assert_close(mine, other)


def test_gradients_pass_torchs_own_check() -> None:
    """Numerical differentiation in double precision agrees; where nothing is predicted the loss is 0, not nan."""
    torch.manual_seed(0)
    states = torch.randn(1, 4, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([[1, IGNORE, 4, 0]])
    assert gradcheck(lambda s, w: language_loss(s, w, None, targets), (states, weight), atol=1e-3, eps=1e-3)
    assert language_loss(states, weight, None, torch.full((1, 4), IGNORE)).item() == 0.0


def test_logits_of_all_positions_are_never_in_memory() -> None:
    """The largest tensor has ``chunk`` rows of logits, however many positions there are."""
    states, weight = torch.randn(1, 4096, 4), torch.randn(500, 4, requires_grad=True)
    targets = torch.randint(0, 500, (1, 4096))
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    with Watch():
        language_loss(states, weight, None, targets).backward()
    assert largest <= loss.CHUNK * 500


def test_bfloat16_stays_close() -> None:
    """Under autocast the loss is summed in float32 and stays within one percent."""
    torch.manual_seed(0)
    states, weight = torch.randn(1, 64, 16), torch.randn(50, 16)
    targets = torch.randint(0, 50, (1, 64))
    full = language_loss(states, weight, None, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = language_loss(states, weight, None, targets)
    assert half.dtype is torch.float32
    torch.testing.assert_close(half, full, rtol=0.01, atol=0.0)
