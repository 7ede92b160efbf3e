"""Drift: likeness of states is what theory says, what did not change is said to be the same to the bit, and doubt comes with it."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import ortho_group

from conftest import SENTENCES, make_language_model
from warmstart.analysis.ablate import losses, passages_of
from warmstart.analysis.attention import weights_of
from warmstart.analysis.divergence import attention_moved, divergence, heads_apart
from warmstart.analysis.drift import (
    cka,
    cosines,
    grid,
    jackknifed,
    kernel,
    sample_of,
    speaking,
    token_states,
    weight_changes,
)
from warmstart.analysis.moved import common_words, moved
from warmstart.cli import main
from warmstart.errors import DataError, ModelError
from warmstart.heads import ClassifyHeadConfig
from warmstart.inserts import AdapterConfig, LoraConfig, MixConfig, insert, merge
from warmstart.model import Bundle, Model, fresh_head, save, swap_head
from warmstart.seeding import rng
from warmstart.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from warmstart.types import Batch

WORDS = [a + b + c for a in "bdk" for b in "aeiou" for c in "nst"]
TEXT = [" ".join(rng(number, "text").choice(WORDS, 12)) + "." for number in range(60)]


def bundle_of(tokenizer: Tokenizer, *, causal: bool = True, **switches: object) -> Bundle:
    model = make_language_model(vocab_size=tokenizer.vocab_size, causal=causal, **({"max_tokens": 64, "depth": 3} | switches))
    return Bundle(model, tokenizer)


def classifier_of(bundle: Bundle) -> Bundle:
    """A copy under a new head of two classes."""
    return Bundle(swap_head(copy.deepcopy(bundle.model), ClassifyHeadConfig(classes=2), 0), bundle.tokenizer, ("a", "b"))


def moved_in(bundle: Bundle, block: int) -> Bundle:
    """A copy of which one block, from 1, has other weights."""
    other = copy.deepcopy(bundle)
    with torch.no_grad():
        for parameter in other.model.backbone.blocks[block - 1].parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(block))
    return other


def hsic_by_hand(x: np.ndarray, y: np.ndarray) -> float:
    """Song et al. 2007, equation 5, as it is printed, of states that are neither centred nor scaled."""
    k, l_ = x @ x.T, y @ y.T
    np.fill_diagonal(k, 0)
    np.fill_diagonal(l_, 0)
    n, one = len(x), np.ones(len(x))
    sums = (one @ k @ one) * (one @ l_ @ one) / ((n - 1) * (n - 2)) - 2 / (n - 2) * (one @ k @ l_ @ one)
    return float((np.trace(k @ l_) + sums) / (n * (n - 3)))


def cka_by_hand(x: np.ndarray, y: np.ndarray) -> float:
    return hsic_by_hand(x, y) / math.sqrt(hsic_by_hand(x, x) * hsic_by_hand(y, y))


@given(st.integers(0, 1000), st.integers(2, 6))
@settings(max_examples=25)
def test_cka_is_that_of_the_paper(seed: int, passages: int) -> None:
    """Of all tokens, and with each passage left out; passages of one to five tokens."""
    draw = rng(seed)
    lengths = draw.integers(1, 6, passages) + (3 if passages < 4 else 0)
    starts, owners = np.concatenate([[0], lengths.cumsum()[:-1]]), np.repeat(np.arange(passages), lengths)
    assume(len(owners) - lengths.max() > 4)
    x = draw.normal(size=(len(owners), 3)) + 0.5
    y = x @ draw.normal(size=(3, 4)) + 0.2 * draw.normal(size=(len(owners), 4))
    found = cka(kernel(x, starts), kernel(y, starts))
    wanted = [(x, y), *((x[owners != one], y[owners != one]) for one in range(passages))]
    for value, (one, other) in zip(found, wanted, strict=True):
        if min(hsic_by_hand(one, one), hsic_by_hand(other, other)) > 0.01:
            assert value == pytest.approx(cka_by_hand(one, other), rel=1e-3, abs=1e-3)


@given(st.integers(0, 1000), st.floats(0.01, 100), st.floats(-10, 10))
@settings(max_examples=25)
def test_cka_heeds_no_turn_scale_or_shift(seed: int, scale: float, shift: float) -> None:
    """States turned, scaled and shifted are the same; other states are not, and tokens' cosines fall."""
    draw, starts = rng(seed), np.arange(0, 60, 5)
    x = draw.normal(size=(60, 6)) * np.array([3, 2, 2, 1, 1, 1])
    turned = scale * x @ ortho_group.rvs(6, random_state=seed) + shift
    assert cka(kernel(x, starts), kernel(turned, starts)) == pytest.approx(1, abs=1e-4)
    assert cka(kernel(x, starts), kernel(draw.normal(size=(60, 6)), starts))[0] < 0.5
    assert cosines(x[:, None], 2 * x[:, None]) == pytest.approx(1)


def test_noise_has_no_likeness_where_tokens_are_few() -> None:
    """The unbiased estimate is near 0, and its interval holds 0; the usual one takes noise in a wide space for the same."""
    draw, starts = rng(0), np.arange(0, 100, 5)
    x, y = draw.normal(size=(2, 100, 1000))
    value, low, high = jackknifed(cka(kernel(x, starts), kernel(y, starts)))
    assert abs(value) < 0.02
    assert low < 0 < high
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    usual = np.square(x.T @ y).sum() / math.sqrt(np.square(x.T @ x).sum() * np.square(y.T @ y).sum())
    assert usual > 0.8
    still = kernel(np.ones((100, 4)), starts)
    assert np.isnan(cka(still, kernel(x, starts))).all()


def test_the_jackknife_knows_the_error_of_a_mean() -> None:
    """Of a plain mean it is the usual one, with Student's t."""
    values = rng(1).normal(size=12)
    left = [np.delete(values, place).mean() for place in range(12)]
    mean, low, high = jackknifed(np.array([values.mean(), *left]))
    assert mean == pytest.approx(values.mean())
    assert (high - low) / 2 == pytest.approx(2.200985 * values.std(ddof=1) / math.sqrt(12))


@given(st.integers(0, 1000), st.integers(2, 9))
@settings(max_examples=25)
def test_divergence_is_scipys(seed: int, wide: int) -> None:
    """Its square root is the distance there; the same shares have exactly 0, disjoint ones 1."""
    p, q = rng(seed).dirichlet(np.ones(wide), 2)
    found = float(divergence(torch.from_numpy(p), torch.from_numpy(q)))
    assert found == pytest.approx(jensenshannon(p, q, base=2) ** 2, abs=1e-9)
    one, other = torch.eye(2)
    assert float(divergence(one, other)) == 1
    assert float(divergence(torch.from_numpy(p), torch.from_numpy(p))) == 0


@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_compared_token_by_token(tokenizer: Tokenizer, causal: bool) -> None:
    """By plain loops over passages read alone; padding and tokens without a choice count nothing."""
    before = bundle_of(tokenizer, causal=causal)
    after = moved_in(before, 1)
    sample = sample_of(before, [*SENTENCES, *TEXT[:8]], 20, 100, 0)
    gone, apart = attention_moved(before, after, sample.encoded), heads_apart(before, sample.encoded)
    for number in (0, 3, 9):
        row = sample.encoded.rows[number]
        alone = Batch(torch.from_numpy(row)[None], None, None, causal=causal, count=1)
        with torch.no_grad():
            old, new = (weights_of(bundle, alone) for bundle in (before, after))
        first = 1 if causal else 0  # the first token of a causal model sees itself alone
        for layer, (p, q) in enumerate(zip(old, new, strict=True)):
            wanted = [sum(jensenshannon(p[0, h, t], q[0, h, t], base=2) ** 2 for t in range(first, len(row))) for h in range(2)]
            assert gone.sums[number, layer] == pytest.approx(wanted, abs=1e-3)
            between = sum(jensenshannon(p[0, 0, t], p[0, 1, t], base=2) ** 2 for t in range(first, len(row)))
            assert apart.sums[number, layer, 0] == pytest.approx(between, abs=1e-3)
            assert gone.counts[number, layer] == apart.counts[number, layer] == len(row) - first
    mean, low, high = gone.interval(0)
    assert ((low <= mean) & (mean <= high)).all()
    assert gone.over_all.interval(0)[0] == pytest.approx(mean.mean())


@pytest.mark.parametrize("causal", [True, False])
def test_a_model_did_not_drift_from_itself(tokenizer: Tokenizer, causal: bool) -> None:
    """CKA is 1, attention moved by 0, neighbours stay, and nothing was forgotten: all exactly."""
    before = bundle_of(tokenizer, causal=causal)
    after = copy.deepcopy(before)
    sample = sample_of(before, TEXT, 40, 200, 0)
    old, new = token_states(before, sample), token_states(after, sample)
    assert np.array_equal(old, new)
    assert grid(old, new, sample.starts)[range(4), range(4)] == pytest.approx(1)
    assert (attention_moved(before, after, sample.encoded).sums == 0).all()
    assert (attention_moved(before, before, sample.encoded).sums == 0).all()
    for one in moved(before, after, common_words(before, TEXT, 60, 0), [2, 3]):
        assert (one.same == 1).all()
        assert (one.stayed == 1).all()
    assert all(change.moved == 0 for change in weight_changes(before, after))
    passages = passages_of(before, TEXT, 20, 0)
    same = losses(speaking(before, classifier_of(before)), passages, tokenizer.specials.pad)
    assert np.array_equal(same, losses(before.model, passages, tokenizer.specials.pad))


def test_a_change_of_block_2_stays_above_it(tokenizer: Tokenizer) -> None:
    """The embedding and layer 1 are the same to the bit, layers 2 and 3 are not; only block 2's weights went anywhere."""
    before = bundle_of(tokenizer)
    after = moved_in(before, 2)
    sample = sample_of(before, TEXT, 40, 200, 0)
    old, new = token_states(before, sample), token_states(after, sample)
    assert [np.array_equal(old[:, layer], new[:, layer]) for layer in range(4)] == [True, True, False, False]
    own = grid(old, new, sample.starts)[range(4), range(4), 0]
    assert own[:2] == pytest.approx([1, 1])
    assert (own[2:] < 0.999).all()
    gone = attention_moved(before, after, sample.encoded).interval(0)[0]
    assert (gone[0] == 0).all()
    assert (gone[1:] > 0).all()
    assert {change.block for change in weight_changes(before, after) if change.moved} == {2}


def test_states_are_those_of_the_chosen_tokens(tokenizer: Tokenizer) -> None:
    """By one passage at a time; frames are never chosen, and long texts are cut into passages."""
    bundle = bundle_of(tokenizer, causal=False, max_tokens=20)
    sample = sample_of(bundle, TEXT, 30, 100, 0)
    assert max(len(row) for row in sample.encoded.rows) == 20
    states = token_states(bundle, sample)
    for number, (row, places) in enumerate(zip(sample.encoded.rows, sample.places, strict=True)):
        assert places.min() >= 1
        assert places.max() <= len(row) - 2
        with torch.no_grad():
            said = bundle.model.backbone(torch.from_numpy(row)[None], causal=False)
        wanted = torch.stack([*said.layers[:-1], said.last], dim=2)[0, places].numpy()
        assert states[sample.owners == number] == pytest.approx(wanted, abs=1e-4)
    with pytest.raises(DataError, match="at least 8 passages"):
        sample_of(bundle, TEXT[:1], 30, 100, 0)


def test_inserts_count_by_what_they_do(tokenizer: Tokenizer) -> None:
    """LoRA is folded into the weights it changes; adapters change states and no weight; the old head reads no mix."""
    before = bundle_of(tokenizer)
    sample = sample_of(before, TEXT, 30, 100, 0)
    lora, adapted, mixed = (classifier_of(before) for _ in range(3))
    insert(lora.model.backbone, LoraConfig(rank=2), 0)
    insert(adapted.model.backbone, AdapterConfig(), 0)
    insert(mixed.model.backbone, MixConfig(), 0)
    with torch.no_grad():
        for name, parameter in [*lora.model.named_parameters(), *adapted.model.named_parameters()]:
            if "lora" in name or "adapter" in name:
                parameter += 0.2
    folded = copy.deepcopy(lora)
    merge(folded.model.backbone)
    changes = weight_changes(before, lora)
    assert changes == weight_changes(before, folded)
    assert {change.part for change in changes if change.moved} == {"attention"}
    assert any("lora" in name for name, _ in lora.model.named_parameters()), "the model itself stays as it was"
    assert not any(change.moved for change in weight_changes(before, adapted))
    old = token_states(before, sample)
    for bundle in (lora, adapted, mixed):
        assert np.array_equal(old[:, 0], token_states(bundle, sample)[:, 0])
        assert not np.array_equal(old[:, -1], token_states(bundle, sample)[:, -1])
    passages, pad = passages_of(before, TEXT, 20, 0), tokenizer.specials.pad
    assert np.array_equal(losses(speaking(before, mixed), passages, pad), losses(before.model, passages, pad))
    assert speaking(lora, before) is before.model
    with pytest.raises(ModelError, match="neither model has one"):
        speaking(adapted, adapted)


def run(before: Path, after: Path, *words: str) -> int:
    return main(["study", "drift", str(before), str(after), "--passages", "30", "--tokens", "120", *words])


@pytest.fixture
def written(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """A folder with a text, a task, a language model and a classifier with adapters made of it."""
    (tmp_path / "t.txt").write_text("\n\n".join(TEXT))
    rows = [f"{part}\t{word[0]}\t{word} {WORDS[-1]}" for part in ("tr", "va", "te") for word in WORDS[:30]]
    (tmp_path / "first_letter.txt").write_text("\n".join(rows))
    before = bundle_of(tokenizer)
    after = classifier_of(moved_in(before, 3))
    insert(after.model.backbone, AdapterConfig(), 0)
    save(before, tmp_path / "before")
    save(after, tmp_path / "after")
    return tmp_path


@pytest.mark.usefixtures("no_second_process")
def test_the_command_says_what_changed(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every part on a page, and a table of each beside it."""
    out, text = written / "run", str(written / "t.txt")
    words = ["--text", text, "--held-out", text, "--tasks", str(written / "first_letter.txt"), "--out", str(out)]
    assert run(written / "before", written / "after", *words) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "The same bit for bit: the embedding, layer 1, layer 2." in said
    assert "Layer 3 changed most" in said
    assert "there (mean of 3 draws)" in said
    assert "Weights went furthest in block 3" in said
    assert "nats per token under the language head from before" in said
    assert "Word perplexity there is" in said
    assert "stay when only the occurrences change" in said
    assert "first letter: of 5 readings" in said.lower()
    shapes = {name: pl.read_csv(out / f"{name}.csv").shape for name in ("cka", "cosines", "attention", "neighbours", "probes")}
    assert shapes == {
        "cka": (4 * 4 + 4, 6),
        "cosines": (4, 4),
        "attention": (3 * 2, 6),
        "neighbours": (3 * 45, 8),
        "probes": (6, 8),
    }
    assert set(pl.read_csv(out / "weights.csv").filter(pl.col("moved") > 0)["block"]) == {3}
    assert len(pl.read_csv(out / "language.csv")) == 30
    page = (out / "report.html").read_text()
    for title in ("States", "Weights", "Attention", "Neighbours", "Probes", "What was forgotten of language"):
        assert f"{title}</h2>" in page


@pytest.mark.usefixtures("no_second_process")
def test_the_command_leaves_out_what_it_cannot_tell(
    tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that did not change, masked, without a language head, on a text of few words, with one head and one block."""
    (tmp_path / "t.txt").write_text("\n\n".join(SENTENCES * 3))
    model = make_language_model(vocab_size=tokenizer.vocab_size, causal=False, max_tokens=24, heads=1, depth=1)
    head = fresh_head(ClassifyHeadConfig(classes=2), model.backbone, 0)
    save(Bundle(Model(model.backbone, head, causal=False), tokenizer, ("a", "b")), tmp_path / "one")
    words = ["--text", str(tmp_path / "t.txt"), "--out", str(tmp_path / "run")]
    assert run(tmp_path / "one", tmp_path / "one", *words) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "No layer changed" in said
    assert "No weight changed" in said
    assert "Attention did not move" in said
    assert "most in layer" not in said
    assert "neighbours are not compared" in said.lower()
    assert "never learned to predict plain text" in said
    assert "apart" not in said
    words[-1] = str(tmp_path / "no")
    assert run(tmp_path / "one", tmp_path / "one", *words, "--held-out", str(tmp_path / "t.txt")) == 2
    assert "--held-out needs a model" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "no").exists()


@pytest.mark.usefixtures("no_second_process")
def test_a_folder_has_its_name_however_it_is_given(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``.`` is the folder one stands in."""
    monkeypatch.chdir(written / "after")
    assert run(written / "before", Path("."), "--text", str(written / "t.txt"), "--out", str(written / "run")) == 0
    assert "Drift: from before to after" in (written / "run" / "report.html").read_text()


@pytest.mark.usefixtures("no_second_process")
def test_a_text_of_one_token_says_little(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All tokens have one state, so there is no likeness to tell; the rest of the study stands."""
    (tmp_path / "t.txt").write_text("a\n\n" * 9)
    before = bundle_of(tokenizer)
    save(before, tmp_path / "one")
    save(moved_in(before, 1), tmp_path / "other")
    assert run(tmp_path / "one", tmp_path / "other", "--text", str(tmp_path / "t.txt"), "--out", str(tmp_path / "run")) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "Likeness cannot be told" in said
    assert "nats per token under its own language head" in said
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.usefixtures("no_second_process")
def test_models_that_do_not_compare_are_refused(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other tokenizers, shapes or ways to look, before anything is made."""
    (tmp_path / "t.txt").write_text("\n\n".join(TEXT))
    other = train_tokenizer([*SENTENCES, *TEXT], TokenizerConfig(vocab_size=330, sentinels=16))
    save(bundle_of(tokenizer), tmp_path / "one")
    cases = {
        "must have the same tokenizer": bundle_of(other),
        "must have the same depth, but have 3 and 2": bundle_of(tokenizer, depth=2),
        "must have the same heads, but have 2 and 4": bundle_of(tokenizer, heads=4),
        "must look the same way": bundle_of(tokenizer, causal=False),
    }
    for number, (said, bundle) in enumerate(cases.items()):
        save(bundle, tmp_path / str(number))
        out = ["--text", str(tmp_path / "t.txt"), "--out", str(tmp_path / "run")]
        assert run(tmp_path / "one", tmp_path / str(number), *out) == 2
        assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()
