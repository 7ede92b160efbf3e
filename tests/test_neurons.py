"""Neurons: correlations match SciPy, a planted neuron is found, and noise stays below the permutation threshold."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from scipy import stats

from helpers.bundles import classifier
from helpers.models import SENTENCES, make_language_model
from warmstart.cli import main
from warmstart.errors import DataError, ModelError
from warmstart.inspection.activations import with_random_weights
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.studies.neurons.command import StudyNeuronsConfig, study_neurons
from warmstart.studies.neurons.measure import (
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
from warmstart.studies.neurons.result import neuron_findings
from warmstart.tokenizer.tokenizer import Tokenizer

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
    assert [plan.column(str(plan.neuron(column))) for column in range(48)] == list(range(48))
    assert str(plan.neuron(0)) == "1.1"
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
        assert "and for 0 it is also above 8 untrained backbones" in result.findings[0]


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
    model = classifier(tokenizer)
    save(Bundle(model, tokenizer, tuple("abcdefgh"[: model.head.config.classes])), tmp_path / "m")  # type: ignore[union-attr]
    words = ["study", "neurons", str(tmp_path / "m"), "--passages", "30"]
    own = ["--show", "constructor toString </script>", "--neuron", "1.3", "--shifts", "5"]
    assert main([*words, "--text", str(text), *own, "--out", str(tmp_path / "run")]) == 0
    output = " ".join(capsys.readouterr().err.split())
    assert "above the permutation threshold" in output
    assert "also above 8 untrained backbones" in output
    table = pl.read_csv(tmp_path / "run" / "correlations.csv")
    assert table["property"].n_unique() * neuron_layout(model, "neurons").layers * neuron_layout(model, "neurons").width == len(
        table
    )
    assert set(pl.read_csv(tmp_path / "run" / "passages.csv", schema_overrides={"neuron": pl.String})["neuron"]) == {"1.3"}
    (tmp_path / "t.conllu").write_text(TAGGED)
    tagged = ["--text", str(tmp_path / "t.conllu"), "--units", "states", "--no-control", "--shifts", "3"]
    assert main([*words, *tagged, "--out", str(tmp_path / "states")]) == 0
    assert "PRON" in capsys.readouterr().err
    for flags, why in (([str(text), "--neuron", "9.9"], "LAYER.INDEX"), ([str(text), tagged[1]], "none of them")):
        assert main([*words, "--text", *flags, "--out", str(tmp_path / "wrong")]) == 2
        assert why in capsys.readouterr().err
        assert not (tmp_path / "wrong").exists()
