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

from helpers.models import SENTENCES, make_backbone
from warmstart.cli import main
from warmstart.commands.generate.page import print_trace, write_trace
from warmstart.errors import DataError
from warmstart.generation.generate import generate
from warmstart.generation.ngram_counts import NgramCounts
from warmstart.generation.settings import GenerateConfig
from warmstart.generation.trace import trace
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.history import PretrainRecord
from warmstart.model.model import Model, fresh_head
from warmstart.tokenizer.tokenizer import Tokenizer


@pytest.fixture
def bundle(tokenizer: Tokenizer) -> Bundle:
    """A random language model that generates text."""
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    model = Model(backbone, fresh_head(LMHeadConfig(), backbone, 0), causal=True)
    return Bundle(model, tokenizer, history=(PretrainRecord(generates=True),))


def test_a_trace_has_the_text_of_generate(bundle: Bundle) -> None:
    """The same text; candidates are sorted by descending probability; a single prompt gives a single trace."""
    config = GenerateConfig(max_new_tokens=8, seed=2)
    (one,) = trace(bundle, ["She holds"], config, k=4)
    assert one.text == generate(bundle, ["She holds"], config)[0]
    assert trace(bundle, "She holds", config, k=4) == one
    for step in one.steps:
        probabilities = [probability for _, probability in step.candidates]
        assert probabilities == sorted(probabilities, reverse=True)
        assert len(probabilities) == 4
        assert sum(probabilities) <= 1 + 1e-6
        assert 0 < step.sampling_probability <= 1


def test_candidates_are_the_models_own(bundle: Bundle) -> None:
    """Candidates and entropy of the first step are those of the logits of the prompt; special tokens but [EOS] are left out."""
    specials = bundle.tokenizer.specials
    with torch.no_grad():
        logits = bundle.model(torch.tensor([[specials.eos, *bundle.tokenizer.encode(["She holds"])[0]]]))[0, -1]
    logits[sorted(specials.all() - {specials.eos})] = -torch.inf
    shares = logits.double().softmax(dim=-1).numpy()
    (step,) = trace(bundle, ["She holds"], GenerateConfig(max_new_tokens=1, greedy=True), k=6)[0].steps
    best = np.argsort(-shares, kind="stable")[:6]
    assert [share for _, share in step.candidates] == pytest.approx(shares[best].tolist(), abs=1e-5)
    assert step.token == step.candidates[0][0]
    assert step.entropy == pytest.approx(entropy(shares), abs=1e-4)
    assert step.sampling_probability == 1


def test_counts_by_hand(tokenizer: Tokenizer) -> None:
    """Two of three texts continue alike after the same words; the longest known context is used, and [EOS] ends a text."""
    counts = NgramCounts(tokenizer, ["She holds the cat.", "She holds the cat.", "She holds a dog."], order=2)
    log_probabilities = torch.full((tokenizer.vocab_size,), -np.log(tokenizer.vocab_size))
    ids = [tokenizer.specials.eos, *tokenizer.encode(["She holds"])[0]]
    found = counts.after(ids, log_probabilities, k=3)
    assert found.count == 3
    assert [count for _, count in found.most_common] == [2, 1]
    assert found.context == tuple(tokenizer.token(id_) for id_ in ids[-2:])
    shares = np.array([2 / 3, 1 / 3])
    assert found.kl_divergence == pytest.approx(float((shares * np.log(shares * tokenizer.vocab_size)).sum()))
    uniform = 1 / tokenizer.vocab_size
    assert found.total_variation == pytest.approx(0.5 * (np.abs(shares - uniform).sum() + 1 - 2 * uniform))


def test_a_model_equal_to_the_counts_has_distance_zero(tokenizer: Tokenizer) -> None:
    """Both distances are 0 there, and an unknown context falls back to a shorter one."""
    counts = NgramCounts(tokenizer, SENTENCES, order=3)
    seen = counts.followers[()]
    log_probabilities = torch.full((tokenizer.vocab_size,), -torch.inf)
    for token, count in seen.items():
        log_probabilities[token] = np.log(count / sum(seen.values()))
    found = counts.after([tokenizer.specials.mask], log_probabilities, k=2)
    assert found.context == ()
    assert found.kl_divergence == pytest.approx(0, abs=1e-6)
    assert found.total_variation == pytest.approx(0, abs=1e-6)
    with pytest.raises(DataError, match="at least one document"):
        NgramCounts(tokenizer, [])


def test_the_terminal_and_the_page_show_every_step(bundle: Bundle, tmp_path: Path) -> None:
    """In a narrow terminal too; the text is never read as markup, and the page holds no script."""
    traces = trace(
        bundle, ["<b>[bold] She"], GenerateConfig(max_new_tokens=7, greedy=True), 3, NgramCounts(bundle.tokenizer, SENTENCES)
    )
    output = io.StringIO()
    print_trace(traces[0], Console(file=output, width=60))
    for number, _ in enumerate(traces[0].steps, 1):
        assert f" {number} " in output.getvalue()
    assert "[bold] She" in output.getvalue()
    assert "KL" in output.getvalue()
    write_trace(traces, tmp_path / "t.html", "a machine")
    page = (tmp_path / "t.html").read_text()
    assert "&lt;b&gt;[bold] She" in page
    assert "<script" not in page
    assert page.count('class="step"') == len(traces[0].steps)


def test_the_trace_by_command(bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Terminal, page and JSON from one command; a page without a trace is a mistake."""
    history = (PretrainRecord(generates=True),)
    model = str(save(Bundle(bundle.model, bundle.tokenizer, history=history), tmp_path / "m"))
    (tmp_path / "corpus.txt").write_text("\n".join(SENTENCES))
    corpus = ["--corpus", str(tmp_path / "corpus.txt"), "--corpus-document", "line"]
    files = ["--trace-html", str(tmp_path / "t.html"), "--trace-json", str(tmp_path / "t.json")]
    assert main(["generate", model, "She", "He", "--max-new-tokens", "3", "--trace", "6", *corpus, *files]) == 0
    assert "rank" in capsys.readouterr().out
    data = json.loads((tmp_path / "t.json").read_text())
    assert [one["prompt"] for one in data] == ["She", "He"]
    assert len(data[0]["steps"][0]["candidates"]) == 6
    assert data[0]["steps"][0]["corpus"]["count"] > 0
    assert (tmp_path / "t.html").exists()
    assert main(["generate", model, "She", *files]) == 2
    assert "needs a trace" in capsys.readouterr().err
