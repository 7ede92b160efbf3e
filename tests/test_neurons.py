"""Neurons and heads of a model over a text: figures are those of plain loops, and what is found is told from noise."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.numpy import load_file
from scipy import stats

from helpers.bundles import bundle_with
from helpers.models import SENTENCES, make_language_model
from warmstart.cli import main
from warmstart.data.encode import encode
from warmstart.errors import DataError, ModelError
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.inspection.activations import with_random_weights
from warmstart.inspection.attention import attention_masks, attention_sums, attention_weights, measure_attention, text_attention
from warmstart.inspection.head_attention import MEASURES, RELATIONS, HeadAttention, check_heads
from warmstart.inspection.neurons import (
    TEXT_PROPERTIES,
    NeuronCorrelation,
    UntrainedControl,
    activations,
    correlate,
    neuron_layout,
    quotes_and_brackets,
    recorded_feedforward,
    strongest_tokens,
    tagged_properties,
    text_properties,
)
from warmstart.inspection.tokens import is_punctuation
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.report.study_charts import MAX_WEIGHTS, _picture, _strongest, differences_chart, head_chart
from warmstart.studies.attention import attention_findings, relation_rows
from warmstart.studies.neurons import StudyNeuronsConfig, neuron_findings, study_neurons
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import Batch

TEXTS = [*SENTENCES, "I", '"The cat (a dog) rubs", he said.', ""]
WORDS = (("She", "PRON"), ("rubs", "VERB"), ("it", "PRON"))
TAGGED = "".join("\n".join(f"{i}\t{form}\t_\t{tag}" for i, (form, tag) in enumerate(WORDS, 1)) + "\n\n" for _ in range(60))


def bundle_of(tokenizer: Tokenizer, **switches: object) -> Bundle:
    return Bundle(make_language_model(vocab_size=tokenizer.vocab_size, **({"max_length": 64} | switches)), tokenizer)  # type: ignore[arg-type]


def test_neurons_are_the_inputs_of_the_projection_back(tokenizer: Tokenizer) -> None:
    """Recomputed from the block's input; hooks are removed afterwards; batches with padding change nothing."""
    bundle = bundle_of(tokenizer, causal=False, activation="swiglu")
    properties, blocks = text_properties(bundle, TEXTS), bundle.model.backbone.blocks
    values = activations(bundle, properties.encoded, "neurons", range(48))
    assert not any(part._forward_pre_hooks for part in bundle.model.modules())
    for number, row in enumerate(properties.encoded.rows):
        with torch.inference_mode(), recorded_feedforward(bundle.model.backbone) as recorded:
            bundle.model.backbone(torch.from_numpy(row)[None], causal=False)
            expected = torch.cat(recorded, dim=-1)[0, 1:-1]
        np.testing.assert_allclose(values[number], expected, atol=1e-5)
    with torch.inference_mode(), recorded_feedforward(bundle.model.backbone) as recorded:
        states = bundle.model.backbone(torch.from_numpy(properties.encoded.rows[0])[None], causal=False)
        back = blocks[1].feedforward.out(recorded[1])
        middle = states.hidden_states[2] - back
        np.testing.assert_allclose(blocks[1].feedforward(blocks[1].norm_2(middle)), back, atol=1e-4)
    assert activations(bundle, properties.encoded, "states", range(48))[0].shape == (len(properties.values[0]), 48)


def test_correlations_match_scipy(tokenizer: Tokenizer) -> None:
    """Every neuron with every property over a few texts, in one pass."""
    bundle = bundle_of(tokenizer)
    properties = text_properties(bundle, TEXTS)
    result = correlate(bundle, properties, "neurons", 5, 0)
    one, other = np.concatenate(activations(bundle, properties.encoded, "neurons", range(48))), np.concatenate(properties.values)
    assert result.n == len(one)
    for i in range(0, 48, 7):
        for j in range(len(properties.names)):
            assert result.r[i, j] == pytest.approx(stats.pearsonr(one[:, i], other[:, j]).statistic, abs=1e-4)


def test_a_planted_neuron_is_found(tokenizer: Tokenizer) -> None:
    """One neuron is made to detect one token: it correlates with that token's tag above the permutation threshold."""
    bundle = bundle_of(tokenizer, causal=False, activation="relu")
    backbone = bundle.model.backbone
    with torch.no_grad():  # dimension 0 encodes "cat" and nothing else, and only neuron 1.6 reads it
        backbone.embedding.weight[:, 0] = 0
        for spelling in ("cat", " cat"):
            backbone.embedding.weight[tokenizer.encode([spelling])[0][0], 0] = 20
        for block in backbone.blocks:
            block.feedforward.inner.weight[:, 0] = 0
        inner = backbone.blocks[0].feedforward.inner
        inner.weight[5], inner.bias[5] = torch.eye(16)[0], -2
    draw = np.random.default_rng(0)
    words = ["She", "cat", "rubs", "the", "dog", "holds"]
    sentences = []
    for _ in range(150):
        drawn = draw.choice(words, size=12)
        sentences.append([(word, "CAT" if word == "cat" else str(draw.choice(["A", "B"]))) for word in drawn])
    properties = tagged_properties(bundle, sentences)
    result = correlate(bundle, properties, "neurons", 20, 0)
    column = {name: properties.names.index(name) for name in ("CAT", "A")}
    assert result.best()[column["CAT"]] == 5
    assert result.r[5, column["CAT"]] > max(0.8, result.threshold[column["CAT"]])
    control = correlate(with_random_weights(bundle, 0), properties, "neurons", 0, 0)
    assert abs(control.r[5, column["CAT"]]) < 0.8
    assert np.isnan(control.threshold).all()


@pytest.mark.proofs
def test_noise_stays_below_the_permutation_threshold(tokenizer: Tokenizer) -> None:
    """With 20 random tags, at most four have a neuron above the threshold."""
    bundle, draw = bundle_of(tokenizer), np.random.default_rng(1)
    names = [f"T{i}" for i in range(20)]
    sentences = [[(str(draw.choice(["She", "cat", "rubs"])), str(draw.choice(names))) for _ in range(15)] for _ in range(100)]
    properties = tagged_properties(bundle, sentences)
    result = correlate(bundle, properties, "neurons", 20, 0)
    columns = [properties.names.index(name) for name in names]
    assert sum(np.abs(result.r[:, j]).max() > result.threshold[j] for j in columns) <= 4


def test_strongest_tokens_match_a_plain_sort() -> None:
    """Each passage is ranked by its largest activation; empty ones are left out."""
    draw = np.random.default_rng(0)
    values = [draw.normal(size=(size, 3)).astype(np.float32) for size in (4, 0, 6, 1, 9)]
    best = [(i, int(np.abs(rows[:, 1]).argmax())) for i, rows in enumerate(values) if len(rows)]
    expected = [(i, token, float(values[i][token, 1])) for i, token in best]
    assert strongest_tokens(values, 1, 3) == sorted(expected, key=lambda one: -abs(one[2]))[:3]


def test_properties_in_literal_numbers(tokenizer: Tokenizer) -> None:
    """Quotation marks by parity, nested brackets, and a token's text; all tokens of a word have its tag."""
    assert quotes_and_brackets(["a", '"', "b", '"', "c"]) == [(0, 0), (1, 0), (1, 0), (1, 0), (0, 0)]
    assert quotes_and_brackets(["(", "a [", "b", "])", ")", "“x", "”"]) == [(0, 1), (0, 2), (0, 2), (0, 2), (0, 0), (1, 0), (1, 0)]
    bundle = bundle_of(tokenizer)
    properties = tagged_properties(bundle, [[("She", "PRON"), ("hippopotamus", "NOUN"), ("1912", "NUM"), (",", "PUNCT")]] * 60)
    assert set(properties.constant) == {"quoted", "brackets"}
    rows, names = properties.values[0], properties.names
    pieces = [tokenizer.token(int(one)) for one in properties.encoded.rows[0][1:-1]]
    long = [i for i in range(len(pieces)) if rows[i, names.index("NOUN")]]
    assert "".join(pieces[i] for i in long) == " hippopotamus"
    assert rows[:, names.index("position")].tolist() == list(range(len(pieces)))
    assert rows[:, names.index("length")].tolist() == [len(piece.strip()) for piece in pieces]
    assert rows[-1, names.index("punctuation")] == rows[-1, names.index("PUNCT")] == 1
    assert rows[0, names.index("capital")] == 1
    assert set(text_properties(bundle, TEXTS).names) | set(text_properties(bundle, TEXTS).constant) == set(TEXT_PROPERTIES)
    with pytest.raises(DataError, match="at least three tokens"):
        text_properties(bundle, [""])


def test_names_of_neurons(tokenizer: Tokenizer) -> None:
    """LAYER.INDEX from 1, states from layer 0, and back; other names are errors."""
    model = bundle_of(tokenizer).model
    plan = neuron_layout(model, "neurons")
    assert [plan.column(plan.name(column)) for column in range(48)] == list(range(48))
    assert plan.name(0) == "1.1"
    assert neuron_layout(model, "states").column("0.16") == 15
    for name in ("0.1", "3.1", "1.25", "1.0", "1", "a.b", "-1.2"):
        with pytest.raises(ModelError, match=r"LAYER\.INDEX"):
            plan.column(name)
    flat = bundle_of(tokenizer, depth=0).model
    with pytest.raises(ModelError, match="--units states"):
        neuron_layout(flat, "neurons")


@pytest.mark.proofs
def test_the_threshold_holds_for_one_more_untrained_backbone() -> None:
    """For 20 properties at once it is exceeded in about 2.5% of trials; it is never below the first backbone's interval."""
    draw, passed = np.random.default_rng(0), 0
    for _ in range(300):
        sizes = np.abs(draw.normal(0.3, 0.02, (20, 9)))
        controls = [UntrainedControl(row[:8].tolist(), NeuronCorrelation(0, 0.3, 0.3, 0.3), 20) for row in sizes]
        passed += any(row[8] > control.threshold for row, control in zip(sizes, controls, strict=True))
    assert 1 <= passed <= 20
    assert UntrainedControl([0.3, 0.31], NeuronCorrelation(0, -0.3, -0.9, -0.1), 1).threshold == 0.9
    assert UntrainedControl([0.1, 0.9], NeuronCorrelation(0, 0.1, 0.1, 0.1), 20).threshold == 1


def test_an_untrained_model_is_not_above_untrained_backbones(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Even on a long text with narrow intervals."""
    draw = np.random.default_rng(0)
    words = [("She", "PRON"), ("cat", "NOUN"), ("rubs", "VERB"), ("the", "DET"), ("dog", "NOUN"), ("it", "PRON"), ("holds", "VERB")]
    rows = [[words[i] for i in draw.integers(len(words), size=12)] for _ in range(300)]
    sentences = ["".join(f"{i}\t{form}\t_\t{tag}\n" for i, (form, tag) in enumerate(row, 1)) for row in rows]
    (tmp_path / "t.conllu").write_text("\n".join(sentences) + "\n")
    for seed in (101, 102):
        save(with_random_weights(bundle_of(tokenizer), seed), tmp_path / str(seed))
        given = {"model": str(tmp_path / str(seed)), "text": (str(tmp_path / "t.conllu"),), "shifts": 5, "passages": 300}
        result = study_neurons(StudyNeuronsConfig.build(given | {"out": str(tmp_path / f"run{seed}")}))
        assert any(one.above_chance for one in result.details.results)
        assert not any(one.learned for one in result.details.results)
        unreached = replace(result.details, results=[replace(one, threshold=0.9) for one in result.details.results])
        limit = r"; an absolute r of 0\.9\d( to (0\.9\d|1\.00))? would have been detected with 80% power\."
        assert re.search(limit, " ".join(neuron_findings(unreached)))
        assert result.findings[0].startswith("No neuron follows any of ")
        assert "and for 0 it is also above 8 untrained backbones" in result.findings[1]
        assert any("more than untrained networks have" in one for one in neuron_findings(unreached)[:1])


def test_few_passages_are_an_error_or_a_warning(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Below 8 there are no intervals, below 30 they are too narrow. One token of the user's own is enough, none is an error."""
    save(bundle_of(tokenizer), tmp_path / "m")
    given = {"model": str(tmp_path / "m"), "text": (str(tmp_path / "t.txt"),), "shifts": 3, "control": False}

    def study(out: str, **settings: object) -> list[str]:
        return list(study_neurons(StudyNeuronsConfig.build(given | {"out": str(tmp_path / out)} | settings)).findings)

    (tmp_path / "t.txt").write_text(" ".join(SENTENCES * 9))
    with pytest.raises(DataError, match=r"at least 8 passages with tokens.*but there are 1.*blank lines"):
        study("no")
    (tmp_path / "t.txt").write_text("\n\n".join(SENTENCES * 9)[: 9 * len(SENTENCES[0])])
    findings = " ".join(study("run", show="I"))
    assert "passages are too narrow" in findings
    assert "constant in this text as tokenized: " in findings
    assert (tmp_path / "run" / "report.html").exists()
    for show in ("", " \n"):
        with pytest.raises(DataError, match="--show must be a text with at least one token"):
            study("no", show=show)
    assert not (tmp_path / "no").exists()


def test_the_command_reports_what_neurons_correlate_with(
    tokenizer: Tokenizer, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a classifier with a text to colour, and on states with tags; bad names and mixed files end with code 2."""
    bundle = bundle_with(tokenizer, ClassificationHeadConfig(classes=2))
    save(bundle, tmp_path / "m")
    words = ["study", "neurons", str(tmp_path / "m"), "--passages", "30"]
    own = ["--show", "constructor toString </script>", "--neuron", "1.3", "--shifts", "5"]
    assert main([*words, "--text", str(text), *own, "--out", str(tmp_path / "run")]) == 0
    output = " ".join(capsys.readouterr().err.split())
    assert "above the permutation threshold" in output
    assert "also above 8 untrained backbones" in output
    table = pl.read_csv(tmp_path / "run" / "correlations.csv")
    layout = neuron_layout(bundle.model, "neurons")
    assert table["property"].n_unique() * layout.layers * layout.width == len(table)
    assert set(pl.read_csv(tmp_path / "run" / "passages.csv", schema_overrides={"neuron": pl.String})["neuron"]) == {"1.3"}
    (tmp_path / "t.conllu").write_text(TAGGED)
    tagged = ["--text", str(tmp_path / "t.conllu"), "--units", "states", "--no-control", "--shifts", "3"]
    assert main([*words, *tagged, "--out", str(tmp_path / "states")]) == 0
    assert "PRON" in capsys.readouterr().err
    for flags, why in (([str(text), "--neuron", "9.9"], "LAYER.INDEX"), ([str(text), tagged[1]], "none of them")):
        assert main([*words, "--text", *flags, "--out", str(tmp_path / "wrong")]) == 2
        assert why in capsys.readouterr().err
        assert not (tmp_path / "wrong").exists()


LINES = [*SENTENCES, "I", "the cat, the cat, the cat, the cat and the dog"]
MODELS = {
    "causal": {"causal": True},
    "bidirectional": {"causal": False, "token_types": 2},
    "windows": {"causal": False, "window": 3, "global_every": 2},
    "causal windows": {"causal": True, "window": 2, "global_every": 2},
    "synthesizer": {"causal": False, "attention": "synthesizer"},
    "few key heads": {"causal": True, "heads": 4, "kv_heads": 2},
}


def by_hand(
    weights: np.ndarray, ids: list[int], marks: set[int], specials: frozenset[int], *, causal: bool, window: int | None
) -> list[list[float]]:
    """For each measure: the sum of one head's values (T, S), the same of uniform attention, and how many tokens count."""
    sums = [[0.0, 0.0, 0.0] for _ in MEASURES]
    last = len(ids) - 1
    for t in range(len(ids)):
        seen = [s for s in range(len(ids)) if (s <= t or not causal) and (window is None or abs(s - t) <= window)]
        if len(seen) < 2:
            continue
        bits = -sum(weights[t, s] * math.log2(weights[t, s]) for s in seen if weights[t, s] > 0)
        values = [(bits, math.log2(len(seen))), (bits / math.log2(len(seen)), 1.0)]
        values.append((sum(weights[t, s] * abs(s - t) for s in seen), sum(abs(s - t) for s in seen) / len(seen)))
        relations = (
            lambda s, t=t: s == t,
            lambda s, t=t: s == t - 1,
            lambda s, t=t: s == t + 1,
            lambda s, t=t: s == 0 != t,
            lambda s, t=t: s == last != t,
            lambda s, t=t: s != t and ids[s] == ids[t] and ids[s] not in specials,
            lambda s, t=t: s != t and ids[s] in marks,
        )
        for place, relation in enumerate(relations, 3):
            if targets := [s for s in seen if relation(s)]:
                sums[place] = list(np.add(sums[place], (sum(weights[t, s] for s in targets), len(targets) / len(seen), 1)))
        for place, (value, uniform) in enumerate(values):
            sums[place] = list(np.add(sums[place], (value, uniform, 1)))
    return sums


def test_figures_are_those_of_a_plain_loop(tokenizer: Tokenizer) -> None:
    """For every variant of attention: passages in padded batches against one passage at a time and loops."""
    encoded, specials = encode(tokenizer, LINES, 64), tokenizer.specials.all()
    marks = {i for i in range(tokenizer.vocab_size) if is_punctuation(tokenizer.token(i))} - specials
    for name, switches in MODELS.items():
        bundle = bundle_of(tokenizer, **switches)
        config, causal = bundle.model.backbone.config, bundle.model.causal
        attention = measure_attention(bundle, LINES)
        for place, row in enumerate(encoded.rows):
            with torch.inference_mode():
                weights = bundle.model.backbone(torch.from_numpy(row)[None], causal=causal, need_weights=True).attention_weights
            for layer, found in enumerate(weights):
                window = config.window if config.is_local(layer) else None
                for head in range(config.heads):
                    wanted = np.array(by_hand(found[0, head].numpy(), row.tolist(), marks, specials, causal=causal, window=window))
                    np.testing.assert_allclose(attention.sums[place, layer, head], wanted[:, 0], atol=1e-4, err_msg=name)
                    np.testing.assert_allclose(attention.uniform_sums[place, layer], wanted[:, 1], atol=1e-4, err_msg=name)
                    np.testing.assert_array_equal(attention.counts[place, layer], wanted[:, 2], err_msg=name)


def test_a_head_that_attends_to_the_previous_token_is_found() -> None:
    """By hand: with all weight on the previous token, that weight is 1, the distance 1 and the entropy 0, without uncertainty."""
    wide, passages, none = 8, [], torch.tensor([])
    for _ in range(5):
        weights = torch.eye(wide).roll(-1, dims=1)
        weights[0] = 0
        weights[0, 0] = 1
        batch = Batch(torch.arange(wide)[None])
        seen = torch.ones(1, wide, wide).tril().bool()
        passages.append(attention_sums(batch, [weights[None, None]], [seen], none, none).numpy())
    out = np.concatenate(passages).astype(float)
    attention = HeadAttention(out[:, :, :-2], out[:, :, -2], out[:, :, -1])
    found = dict(zip(MEASURES, attention.means[0, 0], strict=True))
    assert (found["previous"], found["distance"], found["entropy"], found["itself"]) == (1, 1, 0, 0)
    assert found["first"] == pytest.approx(1 / 7)
    assert np.isnan(found["next"]), "no token sees a later one"
    heads = check_heads(attention, 0)
    assert heads.above_threshold("previous") == [(0, 0)]
    assert heads.above_threshold("itself") == []
    assert attention_findings(heads)[0] == "1 of 1 head seeks one kind of token, most often the previous token."
    assert any("1 of 1 heads attends to the previous token: 1.1 (1.00)" in sentence for sentence in attention_findings(heads))


def noise_of(passages: np.ndarray, heads: int, error: object, draw: np.random.Generator) -> HeadAttention:
    """Heads that are uniform but for noise, over passages with so many tokens."""
    counts = np.broadcast_to(passages, (60, 1, len(MEASURES))).astype(float)
    uniform = 0.2 * counts
    return HeadAttention(uniform[:, :, None] + error * draw.normal(0, 0.1, (60, 1, heads, len(MEASURES))), uniform, counts)  # type: ignore[operator]


def test_uncertainty_is_that_of_passages() -> None:
    """Of noise: few intervals exclude zero, over few passages too, tests agree with them, and Holm's correction finds no head."""
    draw = np.random.default_rng(0)
    tokens = draw.integers(5, 30, (60, 1, len(MEASURES)))
    attention = noise_of(tokens, 40, np.sqrt(tokens)[:, :, None], draw)
    low, high = attention.interval(0)
    assert 0.01 < np.mean((low > 0) | (high < 0)) < 0.12
    assert np.mean(attention.p_values() < 0.05) == pytest.approx(0.05, abs=0.04)
    heads = check_heads(attention, 0)
    first, differ, _, *others = attention_findings(heads)
    assert re.fullmatch(r"No head seeks one kind of token; the most focused is head 1\.\d+\.", first)
    assert "0 of 40 heads differ significantly" in differ
    limit = r"of any head, (0\.\d\d) more weight than uniform attention would have been detected with 80% power\.$"
    sizes = [float(found[1]) for sentence in others if (found := re.search(limit, sentence))]
    assert len(sizes) == len(RELATIONS)
    assert all(0.2 < size < 0.3 for size in sizes)
    assert np.isnan(heads.p[:, :, : len(MEASURES) - len(RELATIONS)]).all(), "only relations are tested"
    three = 10 * (np.arange(60) < 3)[:, None, None]
    few = noise_of(three, 200, three[:, :, None], np.random.default_rng(0))
    low, high = few.interval(0)
    assert np.mean((low > 0) | (high < 0)) == pytest.approx(0.05, abs=0.02)
    np.testing.assert_array_equal((low > 0) | (high < 0), few.p_values() < 0.05)


def test_what_fewer_than_two_passages_contain_is_not_tested(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With random weights: punctuation in one passage of many, or in none, makes no difference significant."""
    monkeypatch.setattr("warmstart.inspection.head_attention.THRESHOLD", 0.01)
    bundle, mark = bundle_of(tokenizer, heads=4, width=32), MEASURES.index("punctuation")
    for holding in (0, 1):
        texts = ["She holds the cat, the dog" if place < holding else "the dog and the cat" for place in range(20)]
        attention = measure_attention(bundle, texts)
        assert (attention.passages[:, mark] == holding).all()
        for figure in (*attention.interval(0), attention.p_values()):
            assert np.isnan(figure[:, :, mark]).all()
            assert not np.isnan(figure[:, :, MEASURES.index("itself")]).any()
        heads = check_heads(attention, 0)
        assert heads.above_threshold("punctuation") == []
        said = [one for one in attention_findings(heads) if "punctuation cannot be tested, as only one passage" in one]
        assert len(said) == holding
        rows = [row for row in relation_rows(heads) if row[0] == "punctuation"]
        assert [(row[4].split()[-1], row[5]) for row in rows] == [("(-)", "-")] * holding


def test_pictures_hold_the_weights() -> None:
    """The PNG of a head is its weights' roots, pooled by the largest; the close-up keeps the strongest; a chart, missing ones."""
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
    row = {"layer": 1, "head": 1, "measure": "same", "value": 0.5, "uniform": 0.2, "difference": 0.3, "low": np.nan, "high": np.nan}
    drawn = differences_chart([row, {**row, "head": 2, "low": 0.1, "high": 0.25}]).to_dict()["data"]["values"]
    assert [(one["low"], one["high"]) for one in drawn] == [("-", "-"), ("0.100", "0.250")]


def test_long_texts_stay_within_a_page() -> None:
    """512 tokens, 4 layers and 4 heads of uniform attention take less than 10 MB of the page."""
    weights = np.full((4, 4, 512, 512), 1 / 512, dtype=np.float32)
    spec = head_chart(weights, ["constructor"] * 512, (1, 1)).to_dict()
    assert len(json.dumps(spec)) < 7e6
    assert sum(len(row["query"].split()) for row in spec["data"]["values"]) <= MAX_WEIGHTS


def test_weights_over_a_text_are_the_backbones_own(tokenizer: Tokenizer) -> None:
    """Also under the head of a classifier; a backbone without blocks is refused."""
    bundle = bundle_with(tokenizer, ClassificationHeadConfig(classes=2))
    weights, encoded = text_attention(bundle, LINES[0])
    batch = encode(tokenizer, [LINES[0]], 64).batch(np.array([0]), None, 0, causal=bundle.model.causal)
    with torch.inference_mode():
        np.testing.assert_allclose(weights, torch.stack(attention_weights(bundle, batch), dim=1)[0], atol=1e-6)
    assert weights.shape[-1] == len(encoded.rows[0]) == attention_masks(bundle, batch)[0].shape[-1]
    with pytest.raises(ModelError, match="depth 0"):
        text_attention(bundle_of(tokenizer, depth=0), "a")


def test_the_command_draws_and_measures(
    tokenizer: Tokenizer, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a corpus and without one; with tokens named like JavaScript's own properties; a blank text ends with code 2."""
    save(bundle_of(tokenizer, causal=False), tmp_path / "lm")
    words = ["study", "attention", str(tmp_path / "lm")]
    odd = 'constructor toString </script> "the cat"\nthe cat, ' + "the dog and " * 30
    assert main([*words, odd, "--text", str(text), "--passages", "20", "--out", str(tmp_path / "run")]) == 0
    printed = " ".join(capsys.readouterr().err.split())
    assert "Over 20 passages" in printed
    assert "No head attends to the next token" in printed
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
    assert "These figures are of one text" in capsys.readouterr().err
    assert main([*words, " ", "--out", str(tmp_path / "blank")]) == 2
    assert "must have at least one character" in capsys.readouterr().err
    assert not (tmp_path / "blank").exists()
