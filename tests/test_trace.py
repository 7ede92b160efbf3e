"""The trace: the probabilities of the model at every step, beside the counts of a corpus, in the terminal, as a page, as data."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.stats import entropy

from conftest import SENTENCES, make_backbone
from warmstart.cli import main
from warmstart.errors import DataError
from warmstart.generation import Counts, GenerateConfig, generate, trace
from warmstart.heads import LanguageHeadConfig
from warmstart.model import Bundle, Model, fresh_head, save
from warmstart.report.trace import print_trace, write_trace
from warmstart.tokenizer import Tokenizer


@pytest.fixture
def bundle(tokenizer: Tokenizer) -> Bundle:
    """A random language model that writes."""
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    model = Model(backbone, fresh_head(LanguageHeadConfig(), backbone, 0), causal=True)
    return Bundle(model, tokenizer, history=({"generates": True},))


def likelihoods(bundle: Bundle, prompt: str) -> np.ndarray:
    """(V,) the model's probabilities after a prompt, special tokens but [EOS] left out."""
    specials = bundle.tokenizer.specials
    ids = [specials.eos, *bundle.tokenizer.encode([prompt])[0]]
    with torch.no_grad():
        logits = bundle.model(torch.tensor([ids]))[0, -1]
    logits[sorted(specials.all() - {specials.eos})] = -torch.inf
    return logits.double().softmax(dim=-1).numpy()


def test_a_trace_is_what_generate_writes(bundle: Bundle) -> None:
    """The same text; each step's token is its written one, and candidates come likeliest first."""
    config = GenerateConfig(tokens=8, seed=2)
    (one,) = trace(bundle, ["She holds"], config, k=4)
    assert one.text == generate(bundle, ["She holds"], config)[0]
    for step in one.steps:
        shares = [share for _, share in step.candidates]
        assert shares == sorted(shares, reverse=True)
        assert len(shares) == 4
        assert sum(shares) <= 1 + 1e-6
        assert 0 < step.drawn_with <= 1


def test_candidates_are_the_models_own(bundle: Bundle) -> None:
    """The first step's candidates and entropy equal those of a plain reading of the prompt."""
    shares = likelihoods(bundle, "She holds")
    (one,) = trace(bundle, ["She holds"], GenerateConfig(tokens=1, greedy=True), k=6)
    best = np.argsort(-shares, kind="stable")[:6]
    assert [share for _, share in one.steps[0].candidates] == pytest.approx(shares[best].tolist(), abs=1e-5)
    assert one.steps[0].token == one.steps[0].candidates[0][0]
    assert one.steps[0].entropy == pytest.approx(entropy(shares), abs=1e-4)
    assert one.steps[0].drawn_with == 1


def test_truth_by_hand(tokenizer: Tokenizer) -> None:
    """Of three texts two go on alike after the same words; the longest known context counts, and [EOS] closes a text."""
    counts = Counts(tokenizer, ["She holds the cat.", "She holds the cat.", "She holds a dog."], order=2)
    said = torch.full((tokenizer.vocab_size,), -np.log(tokenizer.vocab_size))
    ids = [tokenizer.specials.eos, *tokenizer.encode(["She holds"])[0]]
    truth = counts.truth(ids, said, k=3)
    assert truth.count == 3
    assert [count for _, count in truth.likeliest] == [2, 1]
    assert truth.context == tuple(tokenizer.token(id_) for id_ in ids[-2:])
    shares = np.array([2 / 3, 1 / 3])
    assert truth.divergence == pytest.approx(float((shares * np.log(shares * tokenizer.vocab_size)).sum()))
    uniform = 1 / tokenizer.vocab_size
    assert truth.variation == pytest.approx(0.5 * (np.abs(shares - uniform).sum() + 1 - 2 * uniform))


def test_a_model_that_says_the_truth_is_at_no_distance(tokenizer: Tokenizer) -> None:
    """Divergence and variation are 0 exactly there, and a context never seen falls back to a shorter one."""
    counts = Counts(tokenizer, SENTENCES, order=3)
    seen = counts.followers[()]
    said = torch.full((tokenizer.vocab_size,), -torch.inf)
    for token, count in seen.items():
        said[token] = np.log(count / sum(seen.values()))
    truth = counts.truth([tokenizer.specials.mask], said, k=2)
    assert truth.context == ()
    assert truth.divergence == pytest.approx(0, abs=1e-6)
    assert truth.variation == pytest.approx(0, abs=1e-6)
    with pytest.raises(DataError, match="at least one document"):
        Counts(tokenizer, [])


def test_the_terminal_and_the_page_show_every_step(bundle: Bundle, tmp_path: Path) -> None:
    """However narrow the terminal; what a text holds is never markup, and the page holds no script."""
    traces = trace(bundle, ["<b>[bold] She"], GenerateConfig(tokens=7, greedy=True), 3, Counts(bundle.tokenizer, SENTENCES))
    said = io.StringIO()
    print_trace(traces[0], Console(file=said, width=60))
    for number, _ in enumerate(traces[0].steps, 1):
        assert f" {number} " in said.getvalue()
    assert "[bold] She" in said.getvalue()
    assert "KL" in said.getvalue()
    write_trace(traces, tmp_path / "t.html", "a machine")
    page = (tmp_path / "t.html").read_text()
    assert "&lt;b&gt;[bold] She" in page
    assert "<script" not in page
    assert page.count('class="step"') == len(traces[0].steps)


@pytest.mark.usefixtures("no_second_process")
def test_the_trace_by_command(bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Terminal, page and data from one command; asking for a page without a trace is a mistake."""
    history = ({"generates": True, "command": "pretrain", "objective": {}},)
    model = str(save(Bundle(bundle.model, bundle.tokenizer, history=history), tmp_path / "m"))
    (tmp_path / "corpus.txt").write_text("\n".join(SENTENCES))
    truth = ["--truth", str(tmp_path / "corpus.txt"), "--truth-document", "line"]
    files = ["--trace-html", str(tmp_path / "t.html"), "--trace-data", str(tmp_path / "t.json")]
    assert main(["generate", model, "She", "He", "--tokens", "3", "--trace", "6", *truth, *files]) == 0
    assert "rank" in capsys.readouterr().out
    data = json.loads((tmp_path / "t.json").read_text())
    assert [one["prompt"] for one in data] == ["She", "He"]
    assert len(data[0]["steps"][0]["candidates"]) == 6
    assert data[0]["steps"][0]["truth"]["count"] > 0
    assert (tmp_path / "t.html").exists()
    with pytest.raises(SystemExit, match="2"):
        main(["generate", model, "She", *files])
    assert "belongs to a trace" in capsys.readouterr().err
