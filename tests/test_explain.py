"""Explanations: each method is what it says, and is tested by what it claims."""

from __future__ import annotations

import math
import warnings
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
from warmstart.heads import ClassifyHeadConfig
from warmstart.model import Bundle, Model, fresh_head, save
from warmstart.report.explain import heat_text
from warmstart.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from warmstart.types import Batch

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
        return asked.outcomes(Batch(ids, causal=asked.bundle.model.causal))


def _by_word(asked: Question, tokens: torch.Tensor) -> list[float]:
    return [tokens[torch.from_numpy(asked.owner == place)].sum().item() for place in range(len(asked.words))]
