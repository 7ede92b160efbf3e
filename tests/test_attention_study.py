"""Attention: figures are what a plain loop gives, whatever the batch; uniform attention differs in nothing; the page has it all."""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from conftest import SENTENCES, make_language_model
from test_schemes import classifier
from warmstart.analysis.attention import KINDS, MEASURES, Looks, looks_of, measured, text_weights, views_of, weights_of
from warmstart.analysis.pieces import is_punctuation, sampled
from warmstart.cli import main
from warmstart.data.batch import encode
from warmstart.errors import DataError, ModelError
from warmstart.model import Bundle, save
from warmstart.report.attention import CELLS, _picture, _strongest, close_up, grid
from warmstart.tokenizer import Tokenizer
from warmstart.types import Batch
from warmstart.workflows.studies.attention import AttentionConfig, judged

TEXTS = [*SENTENCES, "I", "the cat, the cat, the cat, the cat and the dog"]
KINDS_OF_MODEL = {
    "causal": {"causal": True},
    "both ways": {"causal": False, "types": 2},
    "windows": {"causal": False, "window": 3, "global_every": 2},
    "causal windows": {"causal": True, "window": 2, "global_every": 2},
    "synthesizer": {"causal": False, "attention": "synthesizer"},
    "few keys": {"causal": True, "heads": 4, "kv_heads": 2},
}


def bundle_of(tokenizer: Tokenizer, **switches: object) -> Bundle:
    return Bundle(make_language_model(vocab_size=tokenizer.vocab_size, **({"max_tokens": 64} | switches)), tokenizer)  # type: ignore[arg-type]


def by_hand(
    weights: np.ndarray, ids: list[int], marks: set[int], specials: frozenset[int], *, causal: bool, window: int | None
) -> list[list[float]]:
    """For each measure: the sum of one head's values (T, S), the same of uniform attention, and how many tokens were asked."""
    sums = [[0.0, 0.0, 0.0] for _ in MEASURES]
    last = len(ids) - 1
    for t in range(len(ids)):
        seen = [s for s in range(len(ids)) if (s <= t or not causal) and (window is None or abs(s - t) <= window)]
        if len(seen) < 2:
            continue
        bits = -sum(weights[t, s] * math.log2(weights[t, s]) for s in seen if weights[t, s] > 0)
        found = [(bits, math.log2(len(seen))), (bits / math.log2(len(seen)), 1.0)]
        found.append((sum(weights[t, s] * abs(s - t) for s in seen), sum(abs(s - t) for s in seen) / len(seen)))
        kinds = (
            lambda s, t=t: s == t,
            lambda s, t=t: s == t - 1,
            lambda s, t=t: s == t + 1,
            lambda s, t=t: s == 0 != t,
            lambda s, t=t: s == last != t,
            lambda s, t=t: s != t and ids[s] == ids[t] and ids[s] not in specials,
            lambda s, t=t: s != t and ids[s] in marks,
        )
        for place, kind in enumerate(kinds, 3):
            if targets := [s for s in seen if kind(s)]:
                sums[place] = list(np.add(sums[place], (sum(weights[t, s] for s in targets), len(targets) / len(seen), 1)))
        for place, (value, even) in enumerate(found):
            sums[place] = list(np.add(sums[place], (value, even, 1)))
    return sums


@pytest.mark.parametrize("kind", KINDS_OF_MODEL)
def test_figures_are_those_of_a_plain_loop(kind: str, tokenizer: Tokenizer) -> None:
    """For every switch of attention, over passages read in batches with padding, against one passage at a time and loops."""
    bundle = bundle_of(tokenizer, **KINDS_OF_MODEL[kind])
    config, causal = bundle.model.backbone.config, bundle.model.causal
    looks, encoded = looks_of(bundle, TEXTS)
    specials = tokenizer.specials.all()
    marks = {i for i in range(tokenizer.vocab_size) if is_punctuation(tokenizer.token(i))} - specials
    for place, row in enumerate(encoded.rows):
        with torch.inference_mode():
            weights = bundle.model.backbone(torch.from_numpy(row)[None], causal=causal, weights=True).weights
        for layer, found in enumerate(weights):
            window = config.window if config.is_local(layer) else None
            for head in range(config.heads):
                of_head = found[0, head].numpy()
                wanted = np.array(by_hand(of_head, row.tolist(), marks, specials, causal=causal, window=window))
                np.testing.assert_allclose(looks.sums[place, layer, head], wanted[:, 0], atol=1e-4)
                np.testing.assert_allclose(looks.uniform[place, layer], wanted[:, 1], atol=1e-4)
                np.testing.assert_array_equal(looks.counts[place, layer], wanted[:, 2])


@pytest.mark.parametrize("causal", [True, False])
def test_batches_change_nothing(causal: bool, tokenizer: Tokenizer) -> None:
    """Several passages with a mask give what each gives alone."""
    bundle = bundle_of(tokenizer, causal=causal)
    together, _ = looks_of(bundle, TEXTS)
    for place, text in enumerate(TEXTS):
        alone, _ = looks_of(bundle, [text])
        for name in ("sums", "uniform", "counts"):
            np.testing.assert_allclose(getattr(together, name)[place], getattr(alone, name)[0], atol=1e-4)


@given(st.lists(st.integers(0, 5), min_size=3, max_size=9), st.booleans())
def test_uniform_attention_differs_in_nothing(ids: list[int], causal: bool) -> None:
    """Any row, either way, with padding after it: every measure is that of uniform attention."""
    row = torch.tensor([[*ids, 9, 9]])
    mask = torch.tensor([[True] * len(ids) + [False] * 2])
    seen = mask[:, None] & mask[:, :, None]
    seen = seen.tril() if causal else seen
    weights = seen / seen.sum(dim=-1, keepdim=True).clamp(min=1)
    marks, specials = torch.tensor([1, 2]), torch.tensor([0])
    found = measured(Batch(row, mask=mask), [weights[:, None].float()], [seen], marks, specials)[0, 0].numpy()
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


def test_a_head_that_looks_back_one_token_is_found(tokenizer: Tokenizer) -> None:
    """By hand: all weight on the token before has the share 1, distance 1 and no entropy; no interval doubts it."""
    wide, passages, none = 8, [], torch.tensor([])
    for _ in range(5):
        weights = torch.eye(wide).roll(-1, dims=1)
        weights[0] = 0
        weights[0, 0] = 1
        batch = Batch(torch.arange(wide)[None])
        seen = torch.ones(1, wide, wide).tril().bool()
        passages.append(measured(batch, [weights[None, None]], [seen], none, none).numpy())
    out = np.concatenate(passages).astype(float)
    looks = Looks(out[:, :, :-2], out[:, :, -2], out[:, :, -1])
    found = dict(zip(MEASURES, looks.means[0, 0], strict=True))
    assert (found["previous"], found["distance"], found["entropy"], found["itself"]) == (1, 1, 0, 0)
    assert found["first"] == pytest.approx(1 / 7)
    assert np.isnan(found["next"]), "no token sees a later one"
    heads = judged(looks, AttentionConfig(model="m", sentence="a"))
    assert heads.past("previous") == [(0, 0)]
    assert heads.past("itself") == []
    said = " ".join(heads.sentences())
    assert "1 of 1 heads surely look at the previous token: 1.1 (1.00)" in said


def test_doubt_is_that_of_passages() -> None:
    """Heads that look as uniform attention does, but for noise: few intervals miss zero, and Holm's correction finds none."""
    draw = np.random.default_rng(0)
    counts = draw.integers(5, 30, (60, 1, len(MEASURES))).astype(float)
    uniform = 0.2 * counts
    sums = uniform[:, :, None] + np.sqrt(counts)[:, :, None] * draw.normal(0, 0.1, (60, 1, 40, len(MEASURES)))
    looks = Looks(sums, uniform, counts)
    low, high = looks.interval(0)
    missed = np.mean((low > 0) | (high < 0))
    assert 0.01 < missed < 0.12
    assert np.mean(looks.chances() < 0.05) == pytest.approx(0.05, abs=0.04)
    heads = judged(looks, AttentionConfig(model="m", sentence="a"))
    assert "0 of 40 heads surely differ" in heads.sentences()[0]
    assert np.isnan(heads.p[:, :, : len(MEASURES) - len(KINDS)]).all(), "only what is looked at is tested"


@pytest.mark.parametrize("holding", [0, 1])
def test_nothing_is_sure_of_what_fewer_than_two_passages_hold(holding: int, tokenizer: Tokenizer) -> None:
    """Of a random model: punctuation in one passage of many, or in none, makes no head differ surely, whatever it does there."""
    bundle = bundle_of(tokenizer, heads=4, width=32)
    looks, _ = looks_of(bundle, ["She holds the cat, the dog" if place < holding else "the dog and the cat" for place in range(20)])
    (low, high), p, mark = looks.interval(0), looks.chances(), MEASURES.index("punctuation")
    assert (looks.seen[:, mark] == holding).all()
    for figure in (low, high, p):
        assert np.isnan(figure[:, :, mark]).all()
        assert not np.isnan(figure[:, :, MEASURES.index("itself")]).any()
    heads = judged(looks, AttentionConfig(model="m", sentence="a", bar=0.01))
    assert heads.past("punctuation") == []
    assert sum("punctuation: only one passage" in said for said in heads.sentences()) == holding
    rows = [row for row in heads.rows() if row[0] == "punctuation"]
    assert [(row[4].split()[-1], row[5]) for row in rows] == [("(-)", "-")] * holding


def test_few_passages_that_hold_something_are_doubted_as_few() -> None:
    """Noise alone: of intervals over three passages among 60 about 95 % hold zero, as many as a test at 5 % lets through."""
    draw = np.random.default_rng(0)
    counts = np.zeros((60, 1, len(MEASURES)))
    counts[:3] = 10.0
    uniform = 0.2 * counts
    sums = uniform[:, :, None] + counts[:, :, None] * draw.normal(0, 0.1, (60, 1, 200, len(MEASURES)))
    looks = Looks(sums, uniform, counts)
    low, high = looks.interval(0)
    assert np.mean((low > 0) | (high < 0)) == pytest.approx(0.05, abs=0.02)
    np.testing.assert_array_equal((low > 0) | (high < 0), looks.chances() < 0.05)


def test_what_frames_a_text_is_not_the_same_token(tokenizer: Tokenizer) -> None:
    """Where one id begins and ends a text, the end does not see another of the same; a word that comes twice does."""
    places = [MEASURES.index(name) for name in ("same", "last")]
    looks, encoded = looks_of(bundle_of(tokenizer, causal=False), ["She holds the cat", "I rub the cat, the dog"])
    assert encoded.rows[0][0] == encoded.rows[0][-1]
    assert looks.counts[0][:, places[0]].tolist() == [0, 0]
    assert looks.counts[1][:, places[0]].tolist() != [0, 0]
    assert (looks.counts[0][:, places[1]] > 0).all()


def test_a_chart_tells_what_is_not_known_as_a_dash() -> None:
    """An interval that is nan is no interval from 0 to 0."""
    row = {"layer": 1, "head": 1, "measure": "same", "value": 0.5, "uniform": 0.2, "difference": 0.3, "low": np.nan, "high": np.nan}
    drawn = grid([row, {**row, "head": 2, "low": 0.1, "high": 0.25}]).to_dict()["data"]["values"]
    assert [(one["low"], one["high"]) for one in drawn] == [("-", "-"), ("0.100", "0.250")]


def test_pictures_hold_the_weights() -> None:
    """The PNG of a head is its weights' square roots, pooled by the largest; the close-up keeps the strongest weights."""
    weights = np.random.default_rng(0).dirichlet(np.full(300, 0.1), 300).astype(np.float32)
    data = base64.b64decode(_picture(weights).removeprefix("data:image/png;base64,"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (100, 100)
    start = data.index(b"IDAT")
    pixels = np.frombuffer(zlib.decompress(data[start + 4 : -16]), np.uint8).reshape(100, 101)[:, 1:]
    wanted = weights.reshape(100, 3, 100, 3).max(axis=(1, 3))
    np.testing.assert_array_equal(pixels, np.round(255 * np.sqrt(wanted)))
    kept = _strongest(weights, 50)
    numbers = [[int(one) for one in column.split()] for column in kept.values()]
    assert sorted(numbers[2]) == np.round(1000 * np.sort(weights.ravel())[-50:]).astype(int).tolist()
    assert all(round(1000 * float(weights[q, k])) == w for q, k, w in zip(*numbers, strict=True))


def test_long_texts_stay_within_a_page() -> None:
    """512 tokens, 4 layers and 4 heads of even attention: less than 10 MB in the page."""
    weights = np.full((4, 4, 512, 512), 1 / 512, dtype=np.float32)
    spec = close_up(weights, ["constructor"] * 512, (1, 1)).to_dict()
    assert len(json.dumps(spec)) < 7e6
    assert sum(len(row["query"].split()) for row in spec["data"]["values"]) <= CELLS


def test_passages_are_drawn_evenly() -> None:
    """All where there are few; else each as likely as any other, in their order; none is an error."""
    assert sampled(iter("abc"), 5, 0) == ["a", "b", "c"]
    drawn = [sampled((str(i) for i in range(10)), 3, seed) for seed in range(2000)]
    assert all(found == sorted(found) and len(set(found)) == 3 for found in drawn)
    counts = np.unique(drawn, return_counts=True)[1]
    assert abs(counts - 600).max() < 100
    with pytest.raises(DataError, match="at least one passage"):
        sampled(iter(()), 3, 0)


def test_weights_of_a_text_are_the_backbones_own(tokenizer: Tokenizer) -> None:
    """Also under the head of a classifier; a backbone without blocks is refused."""
    model = classifier(tokenizer)
    bundle = Bundle(model, tokenizer, tuple("abcdefgh"[: model.head.config.classes]))  # type: ignore[union-attr]
    weights, encoded = text_weights(bundle, TEXTS[0])
    batch = encode(tokenizer, [TEXTS[0]], 64).batch(np.array([0]), None, 0, causal=model.causal)
    with torch.inference_mode():
        np.testing.assert_allclose(weights, torch.stack(weights_of(bundle, batch), dim=1)[0], atol=1e-6)
    assert weights.shape[-1] == len(encoded.rows[0]) == views_of(bundle, batch)[0].shape[-1]
    with pytest.raises(ModelError, match="depth 0"):
        text_weights(bundle_of(tokenizer, depth=0), "a")


@pytest.mark.usefixtures("no_second_process")
def test_the_command_draws_and_measures(
    tokenizer: Tokenizer, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a corpus and without one; tokens whose names are those of JavaScript's own; blank texts end with code 2."""
    save(bundle_of(tokenizer, causal=False), tmp_path / "lm")
    words = ["study", "attention", str(tmp_path / "lm")]
    odd = 'constructor toString </script> "the cat"\nthe cat, ' + "the dog and " * 30
    assert main([*words, odd, "--text", str(text), "--passages", "20", "--out", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "Over 20 passages" in said
    assert "weight on the next token than uniform attention" in said
    table = pl.read_csv(tmp_path / "run" / "heads.csv")
    assert len(table) == 2 * 2 * len(MEASURES)
    assert (table["low"].drop_nulls() <= table["high"].drop_nulls()).all()
    weights = load_file(tmp_path / "run" / "weights.safetensors")["weights"]
    tokens = json.loads((tmp_path / "run" / "tokens.json").read_text())
    assert weights.shape == (2, 2, 64, 64)
    assert len(tokens) == 64
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "The text was cut" in page
    assert main([*words, "I", "--out", str(tmp_path / "alone")]) == 0
    assert "without a corpus" in capsys.readouterr().err
    assert main([*words, " ", "--out", str(tmp_path / "blank")]) == 2
    assert "must hold at least one character" in capsys.readouterr().err
    assert not (tmp_path / "blank").exists()
