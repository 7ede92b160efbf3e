"""Language: held-out figures, a model near the truth of a known language, generation and its trace."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy.stats import entropy

from helpers.bundles import bundle_with
from helpers.models import SENTENCES, make_language_model
from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.cli import main
from warmstart.commands.generate.page import print_trace, write_trace
from warmstart.corpora.rows import PretrainingRows, pretraining_batches
from warmstart.corpora.store import TokenText
from warmstart.corpora.write import tokenized_text
from warmstart.data.source import Source
from warmstart.errors import DataError
from warmstart.generation.decoding import decode, draw_token, sampling_probabilities
from warmstart.generation.generate import continue_prompts, generate
from warmstart.generation.ngram_counts import NgramCounts
from warmstart.generation.settings import GenerateConfig
from warmstart.generation.trace import trace
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.bundle import Bundle, Language
from warmstart.model.files import save
from warmstart.model.inference import inference_weights, reordered_copy
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer
from warmstart.training.config import TrainConfig
from warmstart.training.held_out import held_out_metrics
from warmstart.training.loop import TrainingJob, train


def generator(tokenizer: Tokenizer, *, causal: bool = True, **switches: object) -> Bundle:
    """A random language model that generates text, or one that does not."""
    made = bundle_with(tokenizer, LMHeadConfig(), causal=causal, **switches)
    return replace(made, language=Language(generates=causal))


@pytest.fixture
def bundle(tokenizer: Tokenizer) -> Bundle:
    """A random language model that generates text."""
    return generator(tokenizer)


def test_the_seed_decides(bundle: Bundle) -> None:
    """The same seed gives the same text, also past the window of 32 tokens; another seed another text; one prompt one text."""
    with torch.no_grad():
        bundle.model.backbone.embedding.weight[bundle.tokenizer.specials.eos] = 0
    one, two, three = (generate(bundle, ["She"], GenerateConfig(max_new_tokens=100, seed=seed)) for seed in (1, 1, 2))
    assert one == two != three
    assert generate(bundle, "She", GenerateConfig(max_new_tokens=100, seed=1)) == one[0]


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=20), st.floats(0.1, 3), st.integers(1, 20), st.floats(0.05, 1))
@example([0.0, 0.0], 1.0, 1, 1.0)
@example([0.0, 1.2e-38], 1.0, 2, 0.5)
@settings(deadline=None)
def test_sampling_probabilities_are_a_distribution(logits: list[float], temperature: float, top_k: int, top_p: float) -> None:
    """They sum to one, at most k are positive, and the most probable token is always among these."""
    config = GenerateConfig(temperature=temperature, top_k=top_k, top_p=top_p)
    shares = sampling_probabilities(torch.tensor(logits), config)
    assert float(shares.sum()) == pytest.approx(1)
    assert float(shares[int(torch.tensor(logits).argmax())]) > 0
    assert int((shares > 0).sum()) <= top_k


def test_top_p_by_literal_numbers() -> None:
    """The example of the docstring."""
    shares = sampling_probabilities(torch.tensor([0.5, 0.3, 0.2]).log(), GenerateConfig(top_p=0.6))
    assert shares.tolist() == pytest.approx([0.625, 0.375, 0])
    cold = sampling_probabilities(torch.tensor([0.5, 0.3, 0.2]).log(), GenerateConfig(temperature=0.5))
    assert cold.tolist() == pytest.approx([0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38])


def test_tokens_are_drawn_with_their_probabilities() -> None:
    """The relative counts of 4,000 draws are close to the probabilities; a token with probability 0 is never drawn."""
    shares = torch.tensor([0.5, 0.0, 0.3, 0.2], dtype=torch.float64)
    draw = np.random.default_rng(0)
    seen = Counter(draw_token(shares, draw) for _ in range(4000))
    assert [seen[i] / 4000 for i in range(4)] == pytest.approx(shares.tolist(), abs=0.03)
    assert seen[1] == 0


PROMPTS = ["", "She holds", "He can hold a dog, and I can rub the cat!", "I", "Where was the river"]


@pytest.mark.parametrize(
    ("attention", "tokens", "greedy"),
    [("dot-product", 6, True), ("dot-product", 40, False), ("synthesizer", 6, False), ("synthesizer", 40, True)],
)
def test_a_continuation_does_not_depend_on_the_other_prompts(
    tokenizer: Tokenizer, attention: str, tokens: int, greedy: bool
) -> None:
    """Within the window of 32 tokens and past it, beside prompts of any length: the same tokens with the same probabilities."""
    bundle = generator(tokenizer, attention=attention, positions="learned")
    config = GenerateConfig(max_new_tokens=tokens, greedy=greedy)
    together = continue_prompts(bundle, PROMPTS, config)
    for index, prompt in enumerate(PROMPTS):
        # random numbers depend on the index: the same prompt at the same index, beside copies of itself
        alone = continue_prompts(bundle, [prompt] * (index + 1), config)[index]
        assert together[index].ids == alone.ids
        assert together[index].log_probabilities == pytest.approx(alone.log_probabilities, abs=1e-4)
        assert len(alone.log_probabilities) == len(alone.ids) + alone.stopped


def read_whole(bundle: Bundle, ids: list[int]) -> torch.Tensor:
    """(T, V) log-probabilities after each token, read at once without a cache; special tokens but [EOS] are never generated."""
    specials = bundle.tokenizer.specials
    with torch.no_grad():
        logits = bundle.model(torch.tensor([ids]))[0]
    logits[:, sorted(specials.all() - {specials.eos})] = -torch.inf
    return logits.log_softmax(dim=-1)


@pytest.mark.parametrize("changes", [{"greedy": True}, {"temperature": 0.5, "top_k": 4}], ids=str)
@pytest.mark.parametrize("likes_masks", [False, True])
def test_the_probabilities_are_the_models_own(bundle: Bundle, changes: dict[str, Any], likes_masks: bool) -> None:
    """Of reading the text at once without a cache, whatever the temperature; greedy, the most probable; never a special token."""
    specials, config = bundle.tokenizer.specials, GenerateConfig(max_new_tokens=12, **changes)
    if likes_masks:
        with torch.no_grad():
            bundle.model.backbone.embedding.weight[specials.mask] = 10 * bundle.model.backbone.embedding.weight[100]
    (decoded,) = continue_prompts(bundle, ["She holds"], config)
    prompt, drawn = [specials.eos, *bundle.tokenizer.encode(["She holds"])[0]], [*decoded.ids, *[specials.eos] * decoded.stopped]
    after = read_whole(bundle, [*prompt, *decoded.ids])[len(prompt) - 1 :][: len(drawn)]
    assert decoded.log_probabilities == pytest.approx(after[range(len(drawn)), drawn].tolist(), abs=1e-4)
    assert not {*decoded.ids} & specials.all()
    assert "greedy" not in changes or drawn == after.argmax(dim=-1).tolist()
    assert generate(bundle, ["She holds"], config) == [bundle.tokenizer.decode([*decoded.ids])]


@pytest.mark.usefixtures("onednn")
def test_inference_weights_give_the_same_logits() -> None:
    """Afterwards, even after an error, the model is as it was."""
    for rows, switches in ((1, {}), (3, {"bias": False, "activation": "swiglu"}), (1, {"attention": "synthesizer"}), (3, {})):
        model = make_language_model(**switches).eval()
        ids = torch.arange(12).view(1, -1).repeat(rows, 1)
        with torch.inference_mode():
            before = model(ids)
            with inference_weights(model):
                assert "forward" in vars(model.head)
                torch.testing.assert_close(model(ids), before, atol=1e-5, rtol=1e-5)
            with pytest.raises(RuntimeError, match="stop"), inference_weights(model):
                raise RuntimeError("stop")
            torch.testing.assert_close(model(ids), before, atol=0, rtol=0)
        assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.usefixtures("onednn")
def test_a_reordered_copy_gives_the_same_logits_and_shares_the_parameters() -> None:
    """It stays as it is within ``inference_weights``, and the model itself still has gradients."""
    model = make_language_model().eval()
    ids, copied = torch.arange(12).view(2, 6), reordered_copy(model)
    with torch.inference_mode(), inference_weights(copied):
        torch.testing.assert_close(copied(ids), model(ids), atol=1e-5, rtol=1e-5)
    assert "forward" in vars(copied.head)
    assert all(one is other for one, other in zip(model.parameters(), copied.parameters(), strict=True))
    model(ids).sum().backward()
    assert model.head.weight.grad is not None


def unsupported(*_: object) -> None:
    raise RuntimeError("not on this machine")


BROKEN_OPERATORS = {
    "missing": SimpleNamespace(),
    "reordering raises": SimpleNamespace(_reorder_linear_weight=unsupported),
    "the product raises": SimpleNamespace(
        _reorder_linear_weight=lambda weight, rows: weight,
        _linear_pointwise=SimpleNamespace(default=unsupported),
        _is_mkldnn_bf16_supported=lambda: True,
    ),
}


@pytest.mark.usefixtures("onednn")
def test_without_torchs_private_operators_plain_products_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether an operator is missing or raises, the outputs are those of plain products; in bfloat16, up to rounding."""
    model = make_language_model().eval()
    ids = torch.arange(12).view(2, 6)
    with torch.inference_mode():
        before = model(ids)
        for name, operators in BROKEN_OPERATORS.items():
            for bfloat16 in (False, True):
                monkeypatch.setattr(torch.ops, "mkldnn", operators)
                with inference_weights(model, bfloat16=bfloat16):
                    torch.testing.assert_close(model(ids), before, atol=0.1 if bfloat16 else 0, rtol=0, msg=name)


def test_bfloat16_gives_similar_probabilities_and_leaves_the_model_alone() -> None:
    """Log-probabilities differ by little; the model itself stays float32."""
    model = make_language_model()
    settings = {"max_new_tokens": 8, "greedy": True}
    exact, half = (
        decode(model, [[5, 6, 7]], GenerateConfig(**settings, precision=name), banned=torch.tensor([0]), stop=set())[0]
        for name in ("float32", "bfloat16")
    )
    assert exact.log_probabilities[0] == pytest.approx(half.log_probabilities[0], abs=0.05)
    assert exact.log_probabilities != half.log_probabilities
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def corpus_of(texts: list[str], tokenizer: Tokenizer, folder: Path) -> TokenText:
    file = folder / "text.txt"
    file.write_text("\n".join(texts) + "\n")
    return tokenized_text([Source(path=str(file), document="line")], tokenizer, folder / "cache")


def test_word_perplexity_and_bits_per_byte_are_those_of_the_whole_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Computed by hand over all tokens in one long row, for a model that has no use for context."""
    model = make_language_model(vocab_size=tokenizer.vocab_size, depth=0, max_length=16)
    corpus = corpus_of(SENTENCES, tokenizer, tmp_path)
    figures = held_out_metrics(model, PretrainingRows(corpus, tokenizer.vocabulary(), ObjectiveConfig(), 16))
    ids = torch.from_numpy(np.asarray(corpus.tokens(0)).astype(np.int64))
    with torch.no_grad():
        logits = model.head(model.backbone.norm(model.backbone.embedding(ids[:-1])))
        nats = float(torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum"))
    words = sum(len(text.split()) + 1 for text in SENTENCES)
    assert figures["loss"] == pytest.approx(nats / (len(ids) - 1), rel=1e-5)
    assert figures["word_perplexity"] == pytest.approx(math.exp(nats / words), rel=1e-4)
    assert figures["bits_per_byte"] == pytest.approx(nats / math.log(2) / sum(len(text.encode()) for text in SENTENCES), rel=1e-4)
    assert figures["unknown_fraction"] == 0


def test_cut_documents_have_no_figures_per_word(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Rows of documents leave out what does not fit: no figure per word or byte then, but the fraction of tokens scored."""
    corpus = corpus_of([" ".join(SENTENCES[:4]), *SENTENCES], tokenizer, tmp_path)
    for length, whole in ((8, False), (64, True)):
        model = make_language_model(vocab_size=tokenizer.vocab_size, max_length=length)
        rows = PretrainingRows(corpus, tokenizer.vocabulary(), ObjectiveConfig(rows="documents"), length)
        figures = held_out_metrics(model, rows)
        assert ("word_perplexity" in figures, "bits_per_byte" in figures, "scored_fraction" in figures) == (whole, whole, not whole)
        assert whole or 0 < figures["scored_fraction"] < 1


SUBJECTS, NOUNS, VERBS = {"she": 0.6, "they": 0.4}, {"cat": 0.5, "dog": 0.3, "child": 0.2}, {"see": 0.7, "read": 0.3}


def drawn_sentences(count: int, seed: int) -> list[str]:
    """``she near cat sees .``: the verb agrees with a subject two words before it; the words are drawn with these probabilities."""
    chance = np.random.default_rng(seed)
    subjects, nouns, verbs = (chance.choice([*words], count, p=[*words.values()]) for words in (SUBJECTS, NOUNS, VERBS))
    rows = zip(subjects, nouns, verbs, strict=True)
    return [f"{subject} near {noun} {verb}{'s' if subject == 'she' else ''} ." for subject, noun, verb in rows]


def test_a_trained_model_knows_a_language(tmp_path: Path) -> None:
    """Its held-out loss is near the entropy of a language whose probabilities are known, and so are those of the next word."""
    tokenizer = train_tokenizer(drawn_sentences(200, 0), TokenizerConfig(type="word", min_frequency=1, sentinels=0))
    train_on = corpus_of(drawn_sentences(3000, 1), tokenizer, tmp_path)
    (tmp_path / "held").mkdir()
    held = corpus_of(drawn_sentences(300, 2), tokenizer, tmp_path / "held")
    backbone = Backbone(BackboneConfig(width=32, depth=2, heads=2, feedforward=64, max_length=32), tokenizer.vocab_size)
    model = Model(backbone, fresh_head(LMHeadConfig(), backbone, 0), causal=True)
    rows, held_rows = (PretrainingRows(corpus, tokenizer.vocabulary(), ObjectiveConfig(), 32) for corpus in (train_on, held))
    job = TrainingJob(pretraining_batches(rows, 16, 1, 0), 200, 0, progress_bar=False)
    train(model, job, TrainConfig(learning_rate=1e-2, weight_decay=0.0))
    nats = sum(-share * math.log(share) for words in (SUBJECTS, NOUNS, VERBS) for share in words.values())
    assert held_out_metrics(model, held_rows)["loss"] == pytest.approx(nats / 6, rel=0.1), "five words and the end of the text"
    for text, truth in (("", SUBJECTS), ("she near dog", {"sees": 0.7, "reads": 0.3}), ("they near dog", VERBS)):
        with torch.no_grad():
            shares = model(torch.tensor([[tokenizer.specials.eos, *tokenizer.encode([text])[0]]]))[0, -1].softmax(-1)
        distance = sum(abs(float(shares[tokenizer.id(word)]) - share) for word, share in truth.items()) / 2
        assert distance < 0.1, text


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
    prompt = [bundle.tokenizer.specials.eos, *bundle.tokenizer.encode(["She holds"])[0]]
    shares = read_whole(bundle, prompt)[-1].double().exp().numpy()
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
    model = str(save(Bundle(bundle.model, bundle.tokenizer, language=Language(generates=True)), tmp_path / "m"))
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
