"""Neurons: sums give what numpy and scipy give, planted neurons are found, and noise stays below its floor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from conftest import SENTENCES, make_language_model
from test_schemes import classifier
from warmstart.analysis.activations import with_random_weights
from warmstart.analysis.correlation import Sums, corrected, interval, shifted
from warmstart.analysis.neurons import activations, correlate, overheard, plan_of, strongest
from warmstart.analysis.properties import PLAIN, quoted, told_of_sentences, told_of_texts
from warmstart.cli import main
from warmstart.errors import DataError, ModelError
from warmstart.model import Bundle, save
from warmstart.tokenizer import Tokenizer
from warmstart.workflows.studies.neurons import NeuronsConfig, neurons
from warmstart.workflows.studies.peaks import Peak, Untrained

TEXTS = [*SENTENCES, "I", '"The cat (a dog) rubs", he said.', ""]
WORDS = (("She", "PRON"), ("rubs", "VERB"), ("it", "PRON"))
TAGGED = "".join("\n".join(f"{i}\t{form}\t_\t{tag}" for i, (form, tag) in enumerate(WORDS, 1)) + "\n\n" for _ in range(60))


def bundle_of(tokenizer: Tokenizer, **switches: object) -> Bundle:
    return Bundle(make_language_model(vocab_size=tokenizer.vocab_size, **({"max_tokens": 64} | switches)), tokenizer)  # type: ignore[arg-type]


@given(st.integers(0, 100), st.floats(-1e4, 1e4), st.integers(1, 5))
def test_sums_over_a_stream_are_pearsons_r(seed: int, offset: float, pieces: int) -> None:
    """Rows in any portions, far from zero or not, against numpy on all of them at once; what never varies has 0."""
    draw = np.random.default_rng(seed)
    one, other = draw.normal(offset, 1, (60, 4)).astype(np.float32), draw.normal(size=(60, 3)).astype(np.float32)
    one[:, 1], other[:, 2] = other[:, 0] + 0.3 * draw.normal(size=60), 7
    sums = Sums()
    for places in np.array_split(np.arange(60), pieces):
        sums.add(one[places], other[places])
    wanted = np.corrcoef(one.T.astype(float), other[:, :2].T.astype(float))[:4, 4:]
    np.testing.assert_allclose(sums.r()[:, :2], wanted, atol=1e-5)
    assert (sums.r()[:, 2] == 0).all()


def test_q_is_that_of_scipy() -> None:
    """p of Pearson's r, and Benjamini and Hochberg over all of them."""
    draw = np.random.default_rng(0)
    one, other = draw.normal(size=(50, 6)), draw.normal(size=(50, 4))
    one[:, 0] += other[:, 0]
    sums = Sums()
    sums.add(one, other)
    p = [stats.pearsonr(one[:, i], other[:, j]).pvalue for i in range(6) for j in range(4)]
    np.testing.assert_allclose(corrected(sums.r(), 50), stats.false_discovery_control(p).reshape(6, 4), rtol=1e-3)


def test_the_interval_covers_what_is_true() -> None:
    """About 95 of 100 times over passages; a constant gives 0."""
    draw, inside = np.random.default_rng(0), 0
    for seed in range(100):
        pairs = []
        for _ in range(40):
            x = draw.normal(size=(8,))
            pairs.append((x, 0.6 * x + 0.8 * draw.normal(size=8)))
        low, high = interval(pairs, seed)
        inside += low < 0.6 < high
    assert 88 <= inside <= 99
    assert interval([(np.ones(3), np.arange(3.0))] * 4, 0) == (0, 0)


def test_a_shift_keeps_a_passages_values() -> None:
    """Each column holds the same values, turned round, all properties alike."""
    values = np.arange(10.0).reshape(5, 2)
    found = shifted(values, np.random.default_rng(0), 7).reshape(5, 7, 2)
    for number in range(7):
        assert any(np.array_equal(found[:, number], np.roll(values, by, axis=0)) for by in range(5))


def test_neurons_are_what_the_projection_back_is_given(tokenizer: Tokenizer) -> None:
    """By recomputing each from the block's input; hooks are gone afterwards; batches with padding change nothing."""
    bundle = bundle_of(tokenizer, causal=False, activation="swiglu")
    told, blocks = told_of_texts(bundle, TEXTS), bundle.model.backbone.blocks
    found = activations(bundle, told.encoded, "neurons", range(48))
    assert not any(part._forward_pre_hooks for part in bundle.model.modules())
    for place, row in enumerate(told.encoded.rows):
        with torch.inference_mode(), overheard(bundle.model.backbone) as heard:
            bundle.model.backbone(torch.from_numpy(row)[None], causal=False)
            wanted = torch.cat(heard, dim=-1)[0, 1:-1]
        np.testing.assert_allclose(found[place], wanted, atol=1e-5)
    with torch.inference_mode(), overheard(bundle.model.backbone) as heard:
        states = bundle.model.backbone(torch.from_numpy(told.encoded.rows[0])[None], causal=False)
        back = blocks[1].feedforward.out(heard[1])
        middle = states.layers[2] - back
        np.testing.assert_allclose(blocks[1].feedforward(blocks[1].norm_2(middle)), back, atol=1e-4)
    assert activations(bundle, told.encoded, "states", range(48))[0].shape == (len(told.values[0]), 48)


def test_correlations_are_those_of_scipy(tokenizer: Tokenizer) -> None:
    """Over a few texts, every neuron with every property, read at once."""
    bundle = bundle_of(tokenizer)
    told = told_of_texts(bundle, TEXTS)
    found = correlate(bundle, told, "neurons", 5, 0)
    one, other = np.concatenate(activations(bundle, told.encoded, "neurons", range(48))), np.concatenate(told.values)
    assert found.n == len(one)
    for i in range(0, 48, 7):
        for j in range(len(told.names)):
            assert found.r[i, j] == pytest.approx(stats.pearsonr(one[:, i], other[:, j]).statistic, abs=1e-4)


def test_a_planted_neuron_is_found_and_noise_is_not(tokenizer: Tokenizer) -> None:
    """One neuron is made to see one token: it goes with that token's tag above the floor; drawn tags stay below theirs."""
    bundle = bundle_of(tokenizer, causal=False, activation="relu")
    backbone = bundle.model.backbone
    with torch.no_grad():  # dimension 0 says "cat" and nothing else, and only neuron 1.6 looks at it
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
    told = told_of_sentences(bundle, sentences)
    found = correlate(bundle, told, "neurons", 20, 0)
    place = {name: told.names.index(name) for name in ("CAT", "A")}
    assert found.best()[place["CAT"]] == 5
    assert found.r[5, place["CAT"]] > max(0.8, found.floor[place["CAT"]])
    control = correlate(with_random_weights(bundle, 0), told, "neurons", 0, 0)
    assert abs(control.r[5, place["CAT"]]) < 0.8
    assert np.isnan(control.floor).all()


def test_noise_stays_below_its_floor(tokenizer: Tokenizer) -> None:
    """Tags drawn by chance: of 20 properties, hardly one has a neuron above the floor."""
    bundle, draw = bundle_of(tokenizer), np.random.default_rng(1)
    names = [f"T{i}" for i in range(20)]
    sentences = [[(str(draw.choice(["She", "cat", "rubs"])), str(draw.choice(names))) for _ in range(15)] for _ in range(100)]
    told = told_of_sentences(bundle, sentences)
    found = correlate(bundle, told, "neurons", 20, 0)
    places = [told.names.index(name) for name in names]
    assert sum(np.abs(found.r[:, j]).max() > found.floor[j] for j in places) <= 4


def test_strongest_passages_are_those_of_a_plain_sort() -> None:
    """Each passage by its strongest token; empty ones are passed over."""
    draw = np.random.default_rng(0)
    values = [draw.normal(size=(size, 3)).astype(np.float32) for size in (4, 0, 6, 1, 9)]
    ranked = sorted(
        ((place, token, float(rows[token, 1])) for place, rows in enumerate(values) for token in range(len(rows))),
        key=lambda one: -abs(one[2]),
    )
    wanted = {place: (place, token, value) for place, token, value in reversed(ranked)}.values()
    assert strongest(values, 1, 3) == sorted(wanted, key=lambda one: -abs(one[2]))[:3]


def test_properties_in_literal_numbers(tokenizer: Tokenizer) -> None:
    """Quotation marks by parity, nested brackets, and what a token's text tells; a word's tokens all have its tag."""
    assert quoted(["a", '"', "b", '"', "c"]) == [(0, 0), (1, 0), (1, 0), (1, 0), (0, 0)]
    assert quoted(["(", "a [", "b", "])", ")", "“x", "”"]) == [(0, 1), (0, 2), (0, 2), (0, 2), (0, 0), (1, 0), (1, 0)]
    bundle = bundle_of(tokenizer)
    told = told_of_sentences(bundle, [[("She", "PRON"), ("hippopotamus", "NOUN"), ("1912", "NUM"), (",", "PUNCT")]] * 60)
    assert set(told.still) == {"quoted", "brackets"}
    rows, names = told.values[0], told.names
    pieces = [tokenizer.token(int(one)) for one in told.encoded.rows[0][1:-1]]
    long = [i for i in range(len(pieces)) if rows[i, names.index("NOUN")]]
    assert "".join(pieces[i] for i in long) == " hippopotamus"
    assert rows[:, names.index("place")].tolist() == list(range(len(pieces)))
    assert rows[:, names.index("length")].tolist() == [len(piece.strip()) for piece in pieces]
    assert rows[-1, names.index("punctuation")] == rows[-1, names.index("PUNCT")] == 1
    assert rows[0, names.index("capital")] == 1
    assert set(told_of_texts(bundle, TEXTS).names) | set(told_of_texts(bundle, TEXTS).still) == set(PLAIN)
    with pytest.raises(DataError, match="at least three tokens"):
        told_of_texts(bundle, [""])


def test_names_of_neurons(tokenizer: Tokenizer) -> None:
    """LAYER.PLACE from 1, states from layer 0, and back; others are refused."""
    model = bundle_of(tokenizer).model
    plan = plan_of(model, "neurons")
    assert [plan.column(str(plan.neuron(column))) for column in range(48)] == list(range(48))
    assert str(plan.neuron(0)) == "1.1"
    assert plan_of(model, "states").column("0.16") == 15
    for name in ("0.1", "3.1", "1.25", "1.0", "1", "a.b", "-1.2"):
        with pytest.raises(ModelError, match=r"LAYER\.PLACE"):
            plan.column(name)
    flat = bundle_of(tokenizer, depth=0).model
    with pytest.raises(ModelError, match="--of states"):
        plan_of(flat, "neurons")


def test_the_bar_holds_one_more_untrained_backbone() -> None:
    """Of 20 properties at once, in hardly one of 30 trials; and it is never below the first one's interval."""
    draw, passed = np.random.default_rng(0), 0
    for _ in range(300):
        sizes = np.abs(draw.normal(0.3, 0.02, (20, 9)))
        passed += any(row[8] > Untrained(row[:8].tolist(), Peak(0, 0.3, 0.3, 0.3), 20).bar for row in sizes)
    assert 1 <= passed <= 20
    assert Untrained([0.3, 0.31], Peak(0, -0.3, -0.9, -0.1), 1).bar == 0.9
    assert Untrained([0.1, 0.9], Peak(0, 0.1, 0.1, 0.1), 20).bar == 1


@pytest.mark.usefixtures("no_second_process")
def test_an_untrained_model_has_nothing_clearly_more(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Against others of its kind, on much text, whose intervals are narrow."""
    draw = np.random.default_rng(0)
    words = [("She", "PRON"), ("cat", "NOUN"), ("rubs", "VERB"), ("the", "DET"), ("dog", "NOUN"), ("it", "PRON"), ("holds", "VERB")]
    rows = [[words[place] for place in draw.integers(len(words), size=12)] for _ in range(300)]
    sentences = ["".join(f"{i}\t{form}\t_\t{tag}\n" for i, (form, tag) in enumerate(row, 1)) for row in rows]
    (tmp_path / "t.conllu").write_text("\n".join(sentences) + "\n")
    for seed in (101, 102):
        save(with_random_weights(bundle_of(tokenizer), seed), tmp_path / str(seed))
        given = {"model": str(tmp_path / str(seed)), "text": (str(tmp_path / "t.conllu"),), "shifts": 5, "passages": 300}
        found = neurons(NeuronsConfig.build(given | {"out": str(tmp_path / f"run{seed}")}))
        assert any(one.above for one in found.best)
        assert not any(one.learned for one in found.best)
        assert "for 0 clearly more than in 8 untrained backbones" in found.sentences()[0]


@pytest.mark.usefixtures("no_second_process")
def test_few_passages_are_refused_or_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Below 8 there are no intervals, below 30 they are too narrow; what the tokenizer hides is not said of the text."""
    save(bundle_of(tokenizer), tmp_path / "m")
    given = {"model": str(tmp_path / "m"), "text": (str(tmp_path / "t.txt"),), "out": str(tmp_path / "run"), "shifts": 3}
    (tmp_path / "t.txt").write_text(" ".join(SENTENCES * 9))
    with pytest.raises(DataError, match=r"at least 8 passages with tokens.*but 1 came.*blank lines"):
        neurons(NeuronsConfig.build(given))
    assert not (tmp_path / "run").exists()
    (tmp_path / "t.txt").write_text("\n\n".join(SENTENCES * 9)[: 9 * len(SENTENCES[0])])
    said = " ".join(neurons(NeuronsConfig.build(given | {"control": False})).sentences())
    assert "passages are too narrow" in said
    assert "never vary in this text as the tokenizer spells it: " in said


@pytest.mark.usefixtures("no_second_process")
def test_a_short_text_of_ones_own_is_coloured(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """One token is enough, alike or not; an empty one is refused by name before the run."""
    save(bundle_of(tokenizer), tmp_path / "m")
    (tmp_path / "t.txt").write_text("\n\n".join(SENTENCES * 9))
    given = {"model": str(tmp_path / "m"), "text": (str(tmp_path / "t.txt"),), "shifts": 3, "control": False}
    for number, show in enumerate(("I", "the the")):
        neurons(NeuronsConfig.build(given | {"out": str(tmp_path / str(number)), "show": show}))
        assert (tmp_path / str(number) / "report.html").exists()
    for show in ("", " \n"):
        with pytest.raises(DataError, match="--show must be a text with at least one token"):
            neurons(NeuronsConfig.build(given | {"out": str(tmp_path / "run"), "show": show}))
        assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_second_process")
def test_the_command_says_what_neurons_go_with(
    tokenizer: Tokenizer, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a classifier with text and a text of one's own, on states with tags; bad names and mixed files end with code 2."""
    model = classifier(tokenizer)
    save(Bundle(model, tokenizer, tuple("abcdefgh"[: model.head.config.classes])), tmp_path / "m")  # type: ignore[union-attr]
    words = ["study", "neurons", str(tmp_path / "m"), "--passages", "30"]
    own = ["--show", "constructor toString </script>", "--neuron", "1.3", "--shifts", "5"]
    assert main([*words, "--text", str(text), *own, "--out", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "above the floor of chance" in said
    assert "clearly more than in 8 untrained backbones" in said
    table = pl.read_csv(tmp_path / "run" / "correlations.csv")
    assert table["property"].n_unique() * plan_of(model, "neurons").layers * plan_of(model, "neurons").width == len(table)
    assert set(pl.read_csv(tmp_path / "run" / "passages.csv", schema_overrides={"neuron": pl.String})["neuron"]) == {"1.3"}
    (tmp_path / "t.conllu").write_text(TAGGED)
    tagged = ["--text", str(tmp_path / "t.conllu"), "--of", "states", "--no-control", "--shifts", "3"]
    assert main([*words, *tagged, "--out", str(tmp_path / "states")]) == 0
    assert "PRON" in capsys.readouterr().err
    for flags, why in (([str(text), "--neuron", "9.9"], "LAYER.PLACE"), ([str(text), tagged[1]], "none of them")):
        assert main([*words, "--text", *flags, "--out", str(tmp_path / "wrong")]) == 2
        assert why in capsys.readouterr().err
        assert not (tmp_path / "wrong").exists()
