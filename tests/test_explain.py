"""Explanations: each method is what it says, and is tested by what it claims."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import SENTENCES, make_backbone, make_language_model
from warmstart.analysis.explain import (
    Question,
    areas,
    curves,
    erasure,
    gradient_input,
    integrated,
    phrases,
    question,
)
from warmstart.backbone import tapped
from warmstart.cli import main
from warmstart.errors import ModelError
from warmstart.evaluate import predict
from warmstart.generation import GenerateConfig, continue_prompts
from warmstart.heads import ClassifyHeadConfig
from warmstart.model import Bundle, Calibration, Model, fresh_head, save
from warmstart.report.explain import heat_chart, heat_text
from warmstart.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from warmstart.types import Batch
from warmstart.workflows.studies.explain import METHODS, ExplainConfig, Explained, _said_of_many, _said_of_one, _tested

LABELS = ("animals", "rivers", "years")
TEXT = SENTENCES[0]


def classifier_of(tokenizer: Tokenizer, pooling: str = "mean", **switches: object) -> Bundle:
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, max_tokens=64, **switches)
    head = fresh_head(ClassifyHeadConfig(classes=3, pooling=pooling), backbone, 0)
    torch.nn.init.normal_(head.score.weight)  # type: ignore[union-attr, arg-type]
    return Bundle(Model(backbone, head, causal=pooling == "last").eval(), tokenizer, LABELS)


def writer_of(tokenizer: Tokenizer) -> Bundle:
    return Bundle(make_language_model(vocab_size=tokenizer.vocab_size, max_tokens=64), tokenizer)


@pytest.mark.parametrize("by", ["delete", "mask"])
@pytest.mark.parametrize("pooling", ["mean", "last", "appended"])
def test_erasure_is_what_the_text_loses(tokenizer: Tokenizer, pooling: str, by: str) -> None:
    """By a plain loop over words, whose tokens go or become mask tokens; the frame stays."""
    bundle = classifier_of(tokenizer, pooling)
    asked = question(bundle, TEXT, "rivers", by)  # type: ignore[arg-type]
    found = erasure(asked)
    assert asked.words == tuple(TEXT.replace(".", " .").split()) or " ".join(asked.words).replace(" .", ".") == TEXT

    def said(row: np.ndarray) -> float:
        with torch.no_grad():
            return float(bundle.model(torch.from_numpy(row)[None])[0].log_softmax(dim=-1)[1])

    for place in range(len(asked.words)):
        inside = asked.owner == place
        row = asked.row[~inside] if by == "delete" else np.where(inside, tokenizer.specials.mask, asked.row)
        assert found[place] == pytest.approx(said(asked.row) - said(row), abs=1e-5)


def test_of_a_writer_the_next_token_is_explained(tokenizer: Tokenizer) -> None:
    """The likeliest one where none is named; the row does not end with an end-of-text token."""
    bundle = writer_of(tokenizer)
    asked = question(bundle, TEXT)
    with torch.no_grad():
        logits = bundle.model(torch.tensor([[tokenizer.specials.begin, *tokenizer.encode([TEXT])[0]]]))[0, -1]
    logits[sorted(tokenizer.specials.all() - {tokenizer.specials.eos})] = -torch.inf  # these are never written
    assert asked.outcome == int(logits.argmax())
    assert asked.said([asked.row])[0] == pytest.approx(float(logits.log_softmax(dim=-1).max()), abs=1e-5)
    named = question(bundle, TEXT, tokenizer.token(asked.outcome))
    assert named.outcome == asked.outcome


@given(st.sampled_from(["mean", "last"]), st.sampled_from(SENTENCES), st.sampled_from(LABELS))
@settings(max_examples=8, deadline=None)
def test_integrated_gradients_are_complete(pooling: str, text: str, label: str) -> None:
    """Their sum is the difference between the text and empty embeddings, to a hundredth, or it is told by how much not."""
    bundle = classifier_of(_tokenizer(), pooling, activation="gelu")
    asked = question(bundle, text, label)
    found, missing, points = integrated(asked)
    end = bundle.model.backbone.embedding.weight.detach()[torch.from_numpy(asked.row)]
    start = torch.where(torch.from_numpy(asked.owner >= 0)[:, None], torch.zeros_like(end), end)
    whole = (_through(asked, end[None]) - _through(asked, start[None])).item()
    assert abs(found.sum() - whole) == pytest.approx(missing * abs(whole), abs=1e-4)
    assert missing <= 0.01 or points == 512


def test_both_gradients_equal_captums(tokenizer: Tokenizer) -> None:
    """The reference implementation, on the same embeddings and the same way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from captum.attr import InputXGradient, IntegratedGradients
    asked = question(classifier_of(tokenizer), TEXT, "years")
    end = asked.bundle.model.backbone.embedding.weight.detach()[torch.from_numpy(asked.row)][None]
    start = torch.where(torch.from_numpy(asked.owner >= 0)[None, :, None], torch.zeros_like(end), end)

    def forward(x: torch.Tensor) -> torch.Tensor:
        return _through(asked, x)

    theirs = InputXGradient(forward).attribute(end.clone().requires_grad_()).sum(dim=-1)[0]
    assert gradient_input(asked) == pytest.approx(_by_word(asked, theirs), abs=1e-5)
    theirs = IntegratedGradients(forward).attribute(end, start, n_steps=64).sum(dim=-1)[0]
    assert integrated(asked)[0] == pytest.approx(_by_word(asked, theirs), abs=0.02)


def test_phrases_are_erased_whole(tokenizer: Tokenizer) -> None:
    """A run of one word has the word's own value; all runs up to the longest are there, weightiest first, never the whole text."""
    asked = question(classifier_of(tokenizer), "She holds the cat", "animals")
    single, found = erasure(asked), phrases(asked, 3)
    values = {(a, b): value for a, b, value in found}
    assert set(values) == {(a, b) for a in range(4) for b in range(a + 1, min(4, a + 3) + 1)}
    assert [values[a, a + 1] for a in range(4)] == pytest.approx(list(single), abs=1e-5)
    assert [abs(value) for *_, value in found] == sorted((abs(value) for *_, value in found), reverse=True)


def test_curves_begin_and_end_where_they_must(tokenizer: Tokenizer) -> None:
    """Deletion from the whole text to none of it, insertion back; the best order has the largest area of all."""
    asked = question(classifier_of(tokenizer), "She holds the cat", "animals")
    orders = [np.array(order) for order in permutations(range(4))]
    gone, come = curves(asked, orders)
    whole, none = np.exp(asked.said([asked.row, asked.without(np.arange(4))]))
    assert gone[:, 0] == pytest.approx(whole, abs=1e-6)
    assert gone[:, -1] == pytest.approx(none, abs=1e-6)
    assert come[:, 0] == pytest.approx(none, abs=1e-6)
    assert come[:, -1] == pytest.approx(whole, abs=1e-6)
    area = areas((gone, come))
    own = np.argsort(-erasure(asked), kind="stable")
    mine = next(value for order, value in zip(orders, area, strict=True) if (order == own).all())
    assert mine > np.median(area)
    assert (np.abs(area) <= 1).all()


def test_a_heat_map_shades_by_sign_and_size() -> None:
    """Every word stands there; the weightiest has the full colour, nothing counts where all is zero."""
    text = heat_text(["good", "bad", "so"], np.array([1.0, -0.5, 0.0]))
    assert text.plain == "good bad so "
    assert [str(span.style).split(" on ")[1] for span in text.spans] == ["rgb(86,180,233)", "rgb(242,207,128)", "rgb(255,255,255)"]
    assert math.isfinite(len(heat_text(["a"], np.zeros(1))))


@pytest.mark.parametrize(
    ("text", "outcome", "match"),
    [("", None, "nothing to explain"), ("cat " * 100, None, "must fit"), (TEXT, "rivrs", "rivers")],
)
def test_what_cannot_be_explained_is_said(tokenizer: Tokenizer, text: str, outcome: str | None, match: str) -> None:
    """Empty texts, long ones, unknown labels; heads that neither label nor write."""
    with pytest.raises(ModelError, match=match):
        question(classifier_of(tokenizer), text, outcome)
    masked = Bundle(make_language_model(vocab_size=tokenizer.vocab_size, causal=False, max_tokens=64), tokenizer)
    with pytest.raises(ModelError, match="reads both ways"):
        question(masked, TEXT)


def test_a_model_that_fills_gaps_alone_is_refused(tokenizer: Tokenizer) -> None:
    """Span corruption with sentinels looks back only, and yet never learned which token comes next: ``generate`` refuses it too."""
    model = make_language_model(vocab_size=tokenizer.vocab_size, max_tokens=64)
    with pytest.raises(ModelError, match="fill gaps"):
        question(Bundle(model, tokenizer, history=({"command": "pretrain", "generates": False},)), TEXT)
    assert question(Bundle(model, tokenizer, history=({"command": "pretrain", "generates": True},)), TEXT).words


def test_of_a_hybrid_the_token_that_it_writes_is_explained(tokenizer: Tokenizer) -> None:
    """It can read both ways, but writes from left to right: outcome and probability are those of ``generate``."""
    model = make_language_model(vocab_size=tokenizer.vocab_size, causal=False, max_tokens=64)
    bundle = Bundle(model, tokenizer, history=({"command": "pretrain", "generates": True},))
    asked, (written,) = question(bundle, TEXT), continue_prompts(bundle, [TEXT], GenerateConfig(tokens=1, greedy=True))
    assert asked.outcome == (*written.ids, tokenizer.specials.eos)[0]
    assert asked.said([asked.row, asked.without([0])])[0] == pytest.approx(written.log_probabilities[0], abs=1e-5)
    found, missing, _ = integrated(asked)
    assert np.isfinite(found).all()
    assert missing <= 0.01


@pytest.mark.parametrize("pooling", ["mean", "last", "appended"])
def test_what_is_explained_is_what_predict_says(tokenizer: Tokenizer, pooling: str) -> None:
    """With a temperature of 2: the probability is calibrated, words weigh in its nats, and integrated gradients sum up to it."""
    bundle = replace(classifier_of(tokenizer, pooling, activation="gelu"), calibration=Calibration(temperature=2.0))
    wanted = predict(bundle, [TEXT])[0]
    for place, label in enumerate(LABELS):
        asked = question(bundle, TEXT, label)
        assert np.exp(asked.said([asked.row])[0]) == pytest.approx(wanted[place], abs=1e-6)
        assert curves(asked, [np.arange(len(asked.words))])[0][0, 0] == pytest.approx(wanted[place], abs=1e-6)
        assert integrated(asked)[1] <= 0.01
    asked = question(bundle, "She holds the cat")
    assert asked.outcome == int(predict(bundle, ["She holds the cat"]).argmax())
    said = predict(bundle, ["She holds the cat", "She holds the"])[:, asked.outcome]
    assert erasure(asked)[-1] == pytest.approx(np.log(said[0] / said[1]), abs=1e-5)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ([0.1, -0.7, 0.2, 0.0], "'holds', speaks against it: without this word it would be 0.403"),
        ([0.1, -0.2, 0.0, 0.7], "'cat', speaks for it: without this word it would be 0.099"),
        ([1e-6, -2e-6, 0.0, 0.0], "no single word matters"),
    ],
)
def test_the_word_that_counts_most_may_speak_against(tokenizer: Tokenizer, weights: list[float], said: str) -> None:
    """By its size, whatever its sign; roundings are no weights, neither of words nor of phrases."""
    asked = question(classifier_of(tokenizer), "She holds the cat", "rivers")
    values = dict.fromkeys(METHODS, np.array(weights))
    one = Explained(asked, values, 0.0, 16, dict.fromkeys(METHODS, 0.1), np.zeros(3), (np.full((6, 5), 0.2), np.full((6, 5), 0.2)))
    found = _said_of_one(one, [(0, 2, 2 * max(weights, key=abs))])
    assert found[0].startswith("'rivers' has the probability 0.200; ")
    assert said in found[0]
    assert any("of phrases" in sentence for sentence in found) == (max(weights) > 0.01)


def test_white_space_that_is_a_word_is_seen(tokenizer: Tokenizer) -> None:
    """A line break prints as Python spells it, in the terminal, on the page and in sentences."""
    asked = question(classifier_of(tokenizer), "the cat\n\nthe dog")
    assert "\n" in "".join(asked.words)
    assert "" not in asked.words
    values = np.ones(len(asked.words))
    assert "\\n" in heat_text(asked.words, values).plain
    assert "\n" not in heat_text(asked.words, values).plain
    rows = heat_chart(asked.words, values).to_dict()["data"]["values"]
    assert all(row["word"].strip() == row["word"] != "" for row in rows)


def test_texts_that_say_nothing_are_left_out_and_counted(tokenizer: Tokenizer) -> None:
    """Empty ones, too long ones, and those of one word, which have one order alone: the interval is over the others."""
    bundle, config = classifier_of(tokenizer), ExplainConfig(model="m", orders=2)
    texts = ["", "cat " * 100, "She", "dog", *SENTENCES]
    tested = _tested(bundle, texts, config)
    assert {interval.count for interval in tested.values()} == {len(SENTENCES)}
    assert tested == _tested(bundle, SENTENCES, config)
    *said, left = _said_of_many(tested, len(texts))
    assert all(sentence.endswith("over 4 of 8 texts") for sentence in said)
    assert left.startswith("4 of 8 texts are left out: they are empty, of a single word, or too long")
    assert [sentence[-12:] for sentence in _said_of_many(tested, 4)] == ["over 4 texts"] * 3


@pytest.mark.slow
def test_the_command_writes_a_page(
    tmp_path: Path, tokenizer: Tokenizer, no_second_process: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """One text in full, and the methods tested over a file; a label that is unknown leaves nothing behind."""
    place = save(classifier_of(tokenizer), tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join([*SENTENCES, "", "cat " * 90]))
    out = tmp_path / "out"
    words = ["study", "explain", str(place), TEXT, "--file", str(tmp_path / "texts.txt"), "--out", str(out), "--orders", "5"]
    assert main(words) == 0
    said = capsys.readouterr().err
    assert "Integrated gradients are complete" in said
    assert "orders by chance" in said
    assert "over " in said
    assert {"words.csv", "faithfulness.csv", "report.html"} <= {file.name for file in out.iterdir()}
    assert (out / "figures" / "heat-erasure.svg").exists()
    assert main(["study", "explain", str(place), TEXT, "--outcome", "cats", "--out", str(tmp_path / "none")]) == 2
    assert main(["study", "explain", str(place), "--out", str(tmp_path / "none")]) == 2
    assert not (tmp_path / "none").exists()


def _tokenizer() -> Tokenizer:
    return train_tokenizer(SENTENCES * 20, TokenizerConfig(vocab_size=330, sentinels=16))


def _through(asked: Question, x: torch.Tensor) -> torch.Tensor:
    ids = torch.from_numpy(asked.row).expand(len(x), -1)
    with tapped(asked.bundle.model.backbone, {"embedding": lambda _: x}):
        return asked.outcomes(Batch(ids, causal=asked.causal))


def _by_word(asked: Question, tokens: torch.Tensor) -> list[float]:
    return [tokens[torch.from_numpy(asked.owner == place)].sum().item() for place in range(len(asked.words))]
