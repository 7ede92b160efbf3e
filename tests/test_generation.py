"""Writing: the cache changes nothing, choices follow their probabilities, and what cannot write says so."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conftest import make_backbone, make_language_model
from warmstart.errors import ModelError
from warmstart.generation import GenerateConfig, continue_prompts, generate, keep_likeliest
from warmstart.generation.choose import pick
from warmstart.generation.writing import write
from warmstart.heads import LanguageHeadConfig
from warmstart.model import Bundle, Model, fresh_head
from warmstart.model.packed import packed
from warmstart.tokenizer import Tokenizer


@pytest.fixture
def bundle(tokenizer: Tokenizer) -> Bundle:
    """A random language model that writes."""
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    return Bundle(
        Model(backbone, fresh_head(LanguageHeadConfig(), backbone, 0), causal=True), tokenizer, history=({"generates": True},)
    )


def test_greedy_writing_equals_reading_all_again(bundle: Bundle) -> None:
    """With the cache, each chosen token is the likeliest one after reading the whole text so far without it."""
    text = generate(bundle, ["She holds"], GenerateConfig(tokens=12, greedy=True))[0]
    specials = bundle.tokenizer.specials
    ids = [specials.eos, *bundle.tokenizer.encode(["She holds"])[0]]
    start = len(ids)
    for _ in range(12):
        logits = bundle.model(torch.tensor([ids]))[0, -1]
        logits[sorted(specials.all() - {specials.eos})] = -torch.inf
        if (chosen := int(logits.argmax())) == specials.eos:
            break
        ids.append(chosen)
    assert text == bundle.tokenizer.decode(ids[start:])


def test_writing_goes_on_past_the_window(bundle: Bundle) -> None:
    """The window holds 32 tokens; 100 are written."""
    banned = bundle.tokenizer.specials.eos
    with torch.no_grad():
        bundle.model.backbone.embedding.weight[banned] = 0
    config = GenerateConfig(tokens=100, seed=3)
    assert generate(bundle, ["I"], config) == generate(bundle, ["I"], config)


def test_the_seed_decides(bundle: Bundle) -> None:
    """The same seed writes the same text, another one another."""
    one, two, three = (generate(bundle, ["She"], GenerateConfig(seed=seed)) for seed in (1, 1, 2))
    assert one == two != three


def test_special_tokens_are_never_written(bundle: Bundle) -> None:
    """Masks, padding and unknown tokens are no text."""
    specials = bundle.tokenizer.specials
    with torch.no_grad():  # make the mask by far the likeliest token
        bundle.model.backbone.embedding.weight[specials.mask] = 10 * bundle.model.backbone.embedding.weight[100]
    assert "[MASK]" not in "".join(generate(bundle, ["She"], GenerateConfig(tokens=30)))


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=20), st.floats(0.1, 3), st.integers(1, 20), st.floats(0.05, 1))
@example([0.0, 0.0], 1.0, 1, 1.0)
@example([0.0, 1.2e-38], 1.0, 2, 0.5)
@settings(deadline=None)
def test_what_is_kept_is_a_distribution(logits: list[float], temperature: float, top_k: int, top_p: float) -> None:
    """It sums to one, never has more than k entries, and always has the likeliest."""
    config = GenerateConfig(temperature=temperature, top_k=top_k, top_p=top_p)
    shares = keep_likeliest(torch.tensor(logits), config)
    assert float(shares.sum()) == pytest.approx(1)
    assert float(shares[int(torch.tensor(logits).argmax())]) > 0
    assert int((shares > 0).sum()) <= top_k


def test_top_p_by_literal_numbers() -> None:
    """The example of the docstring."""
    shares = keep_likeliest(torch.tensor([0.5, 0.3, 0.2]).log(), GenerateConfig(top_p=0.6))
    assert shares.tolist() == pytest.approx([0.625, 0.375, 0])
    cold = keep_likeliest(torch.tensor([0.5, 0.3, 0.2]).log(), GenerateConfig(temperature=0.5))
    assert cold.tolist() == pytest.approx([0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38])


def test_draws_follow_their_probabilities() -> None:
    """Of 4,000 draws each outcome has its share, and what has none never comes."""
    shares = torch.tensor([0.5, 0.0, 0.3, 0.2], dtype=torch.float64)
    draw = np.random.default_rng(0)
    seen = Counter(pick(shares, draw) for _ in range(4000))
    assert [seen[i] / 4000 for i in range(4)] == pytest.approx(shares.tolist(), abs=0.03)
    assert seen[1] == 0


def test_a_model_that_does_not_write_says_so(tokenizer: Tokenizer) -> None:
    """A masked language model has no next word."""
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    model = Model(backbone, fresh_head(LanguageHeadConfig(), backbone, 0), causal=False)
    bundle = Bundle(model, tokenizer, history=({"generates": False},))
    with pytest.raises(ModelError, match="does not write text"):
        generate(bundle, ["x"])


PROMPTS = ["", "She holds", "He can hold a dog, and I can rub the cat!", "I", "Where was the river"]


@pytest.mark.parametrize("attention", ["dot-product", "synthesizer"])
@pytest.mark.parametrize("tokens", [6, 40])
@pytest.mark.parametrize("greedy", [True, False])
def test_a_continuation_does_not_depend_on_its_neighbours(tokenizer: Tokenizer, attention: str, tokens: int, greedy: bool) -> None:
    """Beside prompts of any length, inside the window of 32 tokens and past it: the same tokens with the same probabilities."""
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, attention=attention, positions="learned")
    model = Model(backbone, fresh_head(LanguageHeadConfig(), backbone, 0), causal=True)
    bundle = Bundle(model, tokenizer, history=({"generates": True},))
    config = GenerateConfig(tokens=tokens, greedy=greedy)
    together = continue_prompts(bundle, PROMPTS, config)
    for place, prompt in enumerate(PROMPTS):
        # chance is drawn by place: the same prompt at the same place, beside copies of itself
        alone = continue_prompts(bundle, [prompt] * (place + 1), config)[place]
        assert together[place].ids == alone.ids
        assert together[place].log_probabilities == pytest.approx(alone.log_probabilities, abs=1e-4)
        assert len(alone.log_probabilities) == len(alone.ids) + alone.stopped


def test_the_probabilities_are_the_models_own(bundle: Bundle) -> None:
    """Equal to those of reading the whole text at once without a cache, whatever the temperature."""
    (written,) = continue_prompts(bundle, ["She holds"], GenerateConfig(tokens=10, temperature=0.5, top_k=4))
    specials = bundle.tokenizer.specials
    ids = [specials.eos, *bundle.tokenizer.encode(["She holds"])[0], *written.ids]
    logits = bundle.model(torch.tensor([ids]))[0].detach()
    logits[:, sorted(specials.all() - {specials.eos})] = -torch.inf
    said = logits.log_softmax(dim=-1)
    start = len(ids) - len(written.ids)
    expected = [float(said[start + i - 1, token]) for i, token in enumerate(written.ids)]
    assert written.log_probabilities[: len(expected)] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("switches", [{}, {"bias": False, "activation": "swiglu"}, {"attention": "synthesizer"}])
@pytest.mark.parametrize("rows", [1, 3])
def test_weights_laid_out_for_writing_give_the_same_logits(switches: dict, rows: int) -> None:
    """And when writing is over, even by an error, nothing of it is left."""
    model = make_language_model(**switches).eval()
    ids = torch.arange(12).view(1, -1).repeat(rows, 1)
    with torch.inference_mode():
        before = model(ids)
        with packed(model):
            assert "forward" in vars(model.head)
            torch.testing.assert_close(model(ids), before, atol=1e-5, rtol=1e-5)
        with pytest.raises(RuntimeError, match="stop"), packed(model):
            raise RuntimeError("stop")
        torch.testing.assert_close(model(ids), before, atol=0, rtol=0)
    assert not any("forward" in vars(module) for module in model.modules())


def test_bfloat16_writes_much_the_same_and_leaves_the_model_alone() -> None:
    """Log-probabilities differ by little; the model itself stays in float32."""
    model = make_language_model()
    settings = {"tokens": 8, "greedy": True}
    exact, half = (
        write(model, [[5, 6, 7]], GenerateConfig(**settings, precision=name), banned=torch.tensor([0]), stop=set())[0]
        for name in ("float32", "bfloat16")
    )
    assert exact.log_probabilities[0] == pytest.approx(half.log_probabilities[0], abs=0.05)
    assert exact.log_probabilities != half.log_probabilities
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
