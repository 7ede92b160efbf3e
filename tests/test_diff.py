"""Comparing two models: each measure agrees with a plain loop, and what did not change is reported as exactly unchanged."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from helpers.models import SENTENCES, make_language_model
from warmstart.adapters import insert_adapter
from warmstart.adapters.bottleneck import BottleneckConfig
from warmstart.adapters.insertion import merge_adapters
from warmstart.adapters.lora import LoraConfig
from warmstart.adapters.scalar_mix import ScalarMixConfig
from warmstart.cli import main
from warmstart.errors import DataError, ModelError
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.inspection.attention import attention_weights
from warmstart.inspection.cka import cka_grid
from warmstart.inspection.passages import language_passages, passage_losses
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.model import Model, fresh_head, swap_head
from warmstart.seeding import rng
from warmstart.studies.diff.measure import (
    as_language_model,
    attention_change,
    compare_neighbours,
    compare_weights,
    frequent_words,
    head_divergence,
    js_divergence,
    sample_tokens,
    token_states,
)
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import TokenizerConfig, train_tokenizer
from warmstart.types import Batch

WORDS = [a + b + c for a in "bdk" for b in "aeiou" for c in "nst"]
TEXT = [" ".join(rng(number, "text").choice(WORDS, 12)) + "." for number in range(60)]


def bundle_of(tokenizer: Tokenizer, *, causal: bool = True, **switches: object) -> Bundle:
    model = make_language_model(vocab_size=tokenizer.vocab_size, causal=causal, **({"max_length": 64, "depth": 3} | switches))
    return Bundle(model, tokenizer)


def classifier_of(bundle: Bundle) -> Bundle:
    """A copy under a new head of two classes."""
    return Bundle(swap_head(copy.deepcopy(bundle.model), ClassificationHeadConfig(classes=2), 0), bundle.tokenizer, ("a", "b"))


def with_changed_block(bundle: Bundle, block: int) -> Bundle:
    """A copy with other weights in one block, counted from 1."""
    other = copy.deepcopy(bundle)
    with torch.no_grad():
        for parameter in other.model.backbone.blocks[block - 1].parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(block))
    return other


@given(st.integers(0, 1000), st.integers(2, 9))
@settings(max_examples=25)
def test_divergence_matches_scipy(seed: int, wide: int) -> None:
    """Its square root is SciPy's distance; equal distributions have exactly 0, disjoint ones 1."""
    p, q = rng(seed).dirichlet(np.ones(wide), 2)
    value = float(js_divergence(torch.from_numpy(p), torch.from_numpy(q)))
    assert value == pytest.approx(jensenshannon(p, q, base=2) ** 2, abs=1e-9)
    one, other = torch.eye(2)
    assert float(js_divergence(one, other)) == 1
    assert float(js_divergence(torch.from_numpy(p), torch.from_numpy(p))) == 0


def test_attention_change_matches_a_plain_loop(tokenizer: Tokenizer) -> None:
    """Passages are read one at a time; padding and tokens that attend to one token only do not count."""
    for causal in (True, False):
        before = bundle_of(tokenizer, causal=causal)
        after = with_changed_block(before, 1)
        sample = sample_tokens(before, [*SENTENCES, *TEXT[:8]], 20, 100, 0)
        change, between_heads = attention_change(before, after, sample.encoded), head_divergence(before, sample.encoded)
        for number in (0, 3, 9):
            row = sample.encoded.rows[number]
            alone = Batch(torch.from_numpy(row)[None], None, None, causal=causal, count=1)
            with torch.no_grad():
                old, new = (attention_weights(bundle, alone) for bundle in (before, after))
            first = 1 if causal else 0  # the first token of a causal model attends to itself only
            for layer, (p, q) in enumerate(zip(old, new, strict=True)):
                pairs = ((p[0, 0], q[0, 0]), (p[0, 1], q[0, 1]), (p[0, 0], p[0, 1]))
                *own, other = (sum(jensenshannon(a[t], b[t], base=2) ** 2 for t in range(first, len(row))) for a, b in pairs)
                assert change.sums[number, layer] == pytest.approx(own, abs=1e-3)
                assert between_heads.sums[number, layer, 0] == pytest.approx(other, abs=1e-3)
                assert change.counts[number, layer] == between_heads.counts[number, layer] == len(row) - first
        mean, low, high = change.interval(0)
        assert ((low <= mean) & (mean <= high)).all()
        assert change.overall.interval(0)[0] == pytest.approx(mean.mean())


def test_a_model_does_not_differ_from_itself(tokenizer: Tokenizer) -> None:
    """CKA is 1, attention and language loss do not change, and neighbours stay: all exactly."""
    for causal in (True, False):
        before = bundle_of(tokenizer, causal=causal)
        after = copy.deepcopy(before)
        sample = sample_tokens(before, TEXT, 40, 200, 0)
        old, new = token_states(before, sample), token_states(after, sample)
        assert np.array_equal(old, new)
        assert cka_grid(old, new, sample.starts)[range(4), range(4)] == pytest.approx(1)
        assert (attention_change(before, after, sample.encoded).sums == 0).all()
        for one in compare_neighbours(before, after, frequent_words(before, TEXT, 60, 0), [2, 3]):
            assert (one.overlap == 1).all()
            assert (one.overlap_of_all == 1).all()
        assert all(change.change == 0 for change in compare_weights(before, after))
        passages = language_passages(before, TEXT, 20, 0)
        same = passage_losses(as_language_model(before, classifier_of(before)), passages, tokenizer.specials.pad)
        assert np.array_equal(same, passage_losses(before.model, passages, tokenizer.specials.pad))


def test_a_change_of_block_2_stays_above_it(tokenizer: Tokenizer) -> None:
    """The embedding and layer 1 are identical to the last bit, layers 2 and 3 are not; only weights of block 2 changed."""
    before = bundle_of(tokenizer)
    after = with_changed_block(before, 2)
    sample = sample_tokens(before, TEXT, 40, 200, 0)
    old, new = token_states(before, sample), token_states(after, sample)
    assert [np.array_equal(old[:, layer], new[:, layer]) for layer in range(4)] == [True, True, False, False]
    own = cka_grid(old, new, sample.starts)[range(4), range(4), 0]
    assert own[:2] == pytest.approx([1, 1])
    assert (own[2:] < 0.999).all()
    divergence = attention_change(before, after, sample.encoded).interval(0)[0]
    assert (divergence[0] == 0).all()
    assert (divergence[1:] > 0).all()
    assert {change.block for change in compare_weights(before, after) if change.change} == {2}


def test_states_are_those_of_the_sampled_tokens(tokenizer: Tokenizer) -> None:
    """Read one passage at a time; tokens that frame a text are never sampled, and long texts are cut into passages."""
    bundle = bundle_of(tokenizer, causal=False, max_length=20)
    sample = sample_tokens(bundle, TEXT, 30, 100, 0)
    assert max(len(row) for row in sample.encoded.rows) == 20
    states = token_states(bundle, sample)
    for number, (row, positions) in enumerate(zip(sample.encoded.rows, sample.positions, strict=True)):
        assert positions.min() >= 1
        assert positions.max() <= len(row) - 2
        with torch.no_grad():
            states_of_row = bundle.model.backbone(torch.from_numpy(row)[None], causal=False)
        expected = torch.stack([*states_of_row.hidden_states[:-1], states_of_row.last_hidden_state], dim=2)[0, positions].numpy()
        assert states[sample.owners == number] == pytest.approx(expected, abs=1e-4)
    with pytest.raises(DataError, match="at least 8 passages"):
        sample_tokens(bundle, TEXT[:1], 30, 100, 0)


def test_adapters_count_by_what_they_do(tokenizer: Tokenizer) -> None:
    """LoRA is merged into the weights it changes; adapters change states and no weight; the old head reads no scalar mix."""
    before = bundle_of(tokenizer)
    sample = sample_tokens(before, TEXT, 30, 100, 0)
    lora, adapted, mixed = (classifier_of(before) for _ in range(3))
    insert_adapter(lora.model.backbone, LoraConfig(rank=2), 0)
    insert_adapter(adapted.model.backbone, BottleneckConfig(), 0)
    insert_adapter(mixed.model.backbone, ScalarMixConfig(), 0)
    with torch.no_grad():
        for name, parameter in [*lora.model.named_parameters(), *adapted.model.named_parameters()]:
            if "lora" in name or "adapter" in name:
                parameter += 0.2
    folded = copy.deepcopy(lora)
    merge_adapters(folded.model.backbone)
    changes = compare_weights(before, lora)
    assert changes == compare_weights(before, folded)
    assert {change.part for change in changes if change.change} == {"attention"}
    assert any("lora" in name for name, _ in lora.model.named_parameters()), "the model itself stays unchanged"
    assert not any(change.change for change in compare_weights(before, adapted))
    old = token_states(before, sample)
    for bundle in (lora, adapted, mixed):
        assert np.array_equal(old[:, 0], token_states(bundle, sample)[:, 0])
        assert not np.array_equal(old[:, -1], token_states(bundle, sample)[:, -1])
    passages, pad = language_passages(before, TEXT, 20, 0), tokenizer.specials.pad
    assert np.array_equal(
        passage_losses(as_language_model(before, mixed), passages, pad), passage_losses(before.model, passages, pad)
    )
    assert as_language_model(lora, before) is before.model
    with pytest.raises(ModelError, match="neither model has one"):
        as_language_model(adapted, adapted)


def run(before: Path, after: Path, *words: str) -> int:
    return main(["study", "diff", str(before), str(after), "--passages", "30", "--tokens", "120", *words])


@pytest.fixture
def written(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """A folder with a text, a task, a language model and a classifier with adapters made of it."""
    (tmp_path / "t.txt").write_text("\n\n".join(TEXT))
    rows = [f"{part}\t{word[0]}\t{word} {WORDS[-1]}" for part in ("tr", "va", "te") for word in WORDS[:30]]
    (tmp_path / "first_letter.txt").write_text("\n".join(rows))
    before = bundle_of(tokenizer)
    after = classifier_of(with_changed_block(before, 3))
    insert_adapter(after.model.backbone, BottleneckConfig(), 0)
    save(before, tmp_path / "before")
    save(after, tmp_path / "after")
    return tmp_path


@pytest.mark.journeys
def test_the_command_reports_what_changed(
    written: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every comparison has a section on the page and a CSV file beside it; a model is called after its folder."""
    out, text = written / "run", str(written / "t.txt")
    monkeypatch.chdir(written / "after")
    words = ["--text", text, "--held-out", text, "--tasks", str(written / "first_letter.txt"), "--out", str(out)]
    assert run(written / "before", Path("."), *words) == 0
    output = " ".join(capsys.readouterr().err.split())
    for said in (
        "Identical to the last bit: the embedding, layer 1, layer 2.",
        "Layer 3 changed most on this text",
        "there (mean of 3 draws)",
        "Weights changed most in block 3",
        "the second model's loss under the first model's language head",
        "Word perplexity is",
        "remain if only the occurrences change",
        "Task 'first letter': of 5 probes",
    ):
        assert said in output
    wanted = {"cka": (4 * 4 + 4, 6), "cosines": (4, 4), "attention": (3 * 2, 8), "neighbours": (3 * 45, 8), "probes": (6, 8)}
    assert {name: pl.read_csv(out / f"{name}.csv").shape for name in wanted} == wanted
    assert set(pl.read_csv(out / "weights.csv").filter(pl.col("change") > 0)["block"]) == {3}
    assert len(pl.read_csv(out / "language.csv")) == 30
    page = (out / "report.html").read_text()
    assert "Differences: from before to after" in page
    for title in ("Hidden states", "Weights", "Attention", "Neighbours", "Probes", "Language loss"):
        assert f"{title}</h2>" in page


def test_the_command_leaves_out_what_cannot_be_compared(
    tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model compared with itself: masked, without a language head, one attention head and one block, on a text of few words."""
    text = tmp_path / "t.txt"
    text.write_text("\n\n".join(SENTENCES * 3))
    model = make_language_model(vocab_size=tokenizer.vocab_size, causal=False, max_length=24, heads=1, depth=1)
    head = fresh_head(ClassificationHeadConfig(classes=2), model.backbone, 0)
    one = save(Bundle(Model(model.backbone, head, causal=False), tokenizer, ("a", "b")), tmp_path / "one")
    assert run(one, one, "--text", str(text), "--out", str(tmp_path / "run")) == 0
    output = " ".join(capsys.readouterr().err.split())
    for said in ("No layer changed", "No weight changed", "Attention did not change", "Neighbours were not compared",
                 "was not trained to predict plain text"):  # fmt: skip
        assert said in output
    for unsaid in ("most in layer", "two heads of one layer differ"):
        assert unsaid not in output
    assert run(one, one, "--text", str(text), "--out", str(tmp_path / "no"), "--held-out", str(text)) == 2
    assert "--held-out needs a model" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "no").exists()


def test_a_text_of_one_repeated_token_has_no_cka(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All tokens have the same state, so CKA is undefined; the other comparisons are still made."""
    (tmp_path / "t.txt").write_text("a\n\n" * 9)
    before = bundle_of(tokenizer)
    save(before, tmp_path / "one")
    save(with_changed_block(before, 1), tmp_path / "other")
    assert run(tmp_path / "one", tmp_path / "other", "--text", str(tmp_path / "t.txt"), "--out", str(tmp_path / "run")) == 0
    output = " ".join(capsys.readouterr().err.split())
    assert "CKA is undefined" in output
    assert "the second model's loss under its own language head" in output
    assert (tmp_path / "run" / "report.html").exists()


def test_models_that_cannot_be_compared_are_refused(
    tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other tokenizers, shapes or attention directions are refused before a folder is made."""
    (tmp_path / "t.txt").write_text("\n\n".join(TEXT))
    other = train_tokenizer([*SENTENCES, *TEXT], TokenizerConfig(vocab_size=330, sentinels=16))
    save(bundle_of(tokenizer), tmp_path / "one")
    cases = {
        "must have the same tokenizer": bundle_of(other),
        "must have the same depth, but have 3 and 2": bundle_of(tokenizer, depth=2),
        "must have the same heads, but have 2 and 4": bundle_of(tokenizer, heads=4),
        "must be causal, or both bidirectional": bundle_of(tokenizer, causal=False),
    }
    for number, (message, bundle) in enumerate(cases.items()):
        save(bundle, tmp_path / str(number))
        out = ["--text", str(tmp_path / "t.txt"), "--out", str(tmp_path / "run")]
        assert run(tmp_path / "one", tmp_path / str(number), *out) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()
