"""Generation: the cache changes nothing, sampling follows the probabilities, and a model that cannot generate says so."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.models import make_backbone, make_language_model
from warmstart.errors import ModelError
from warmstart.generation.decoding import decode
from warmstart.generation.generate import continue_prompts, generate
from warmstart.generation.sampling import GenerateConfig, draw_token, sampling_probabilities
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.history import PretrainRecord
from warmstart.model.inference_weights import inference_weights, reordered_copy
from warmstart.model.model import Model, fresh_head
from warmstart.tokenizer.tokenizer import Tokenizer


@pytest.fixture
def bundle(tokenizer: Tokenizer) -> Bundle:
    """A random language model that generates text."""
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    return Bundle(
        Model(backbone, fresh_head(LMHeadConfig(), backbone, 0), causal=True),
        tokenizer,
        history=(PretrainRecord(generates=True),),
    )


def test_greedy_decoding_equals_reading_all_tokens_again(bundle: Bundle) -> None:
    """With the cache, each token is the most probable one after reading the whole text so far without it."""
    text = generate(bundle, ["She holds"], GenerateConfig(max_new_tokens=12, greedy=True))[0]
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


def test_generation_continues_past_the_context_window(bundle: Bundle) -> None:
    """The window holds 32 tokens; 100 are generated."""
    banned = bundle.tokenizer.specials.eos
    with torch.no_grad():
        bundle.model.backbone.embedding.weight[banned] = 0
    config = GenerateConfig(max_new_tokens=100, seed=3)
    assert generate(bundle, ["I"], config) == generate(bundle, ["I"], config)


def test_one_prompt_gives_one_text(bundle: Bundle) -> None:
    """A single string is continued like a list of one."""
    config = GenerateConfig(max_new_tokens=6, seed=1)
    assert generate(bundle, "She holds", config) == generate(bundle, ["She holds"], config)[0]


def test_the_seed_decides(bundle: Bundle) -> None:
    """The same seed gives the same text, another seed another text."""
    one, two, three = (generate(bundle, ["She"], GenerateConfig(seed=seed)) for seed in (1, 1, 2))
    assert one == two != three


def test_special_tokens_are_never_generated(bundle: Bundle) -> None:
    """Mask, padding and unknown tokens are not text."""
    specials = bundle.tokenizer.specials
    with torch.no_grad():  # make the mask by far the most probable token
        bundle.model.backbone.embedding.weight[specials.mask] = 10 * bundle.model.backbone.embedding.weight[100]
    assert "[MASK]" not in "".join(generate(bundle, ["She"], GenerateConfig(max_new_tokens=30)))


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


def test_a_model_that_cannot_generate_says_so(tokenizer: Tokenizer) -> None:
    """A masked language model does not predict the next token."""
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    model = Model(backbone, fresh_head(LMHeadConfig(), backbone, 0), causal=False)
    bundle = Bundle(model, tokenizer, history=(PretrainRecord(generates=False),))
    with pytest.raises(ModelError, match="does not generate text"):
        generate(bundle, ["x"])


PROMPTS = ["", "She holds", "He can hold a dog, and I can rub the cat!", "I", "Where was the river"]


@pytest.mark.parametrize("attention", ["dot-product", "synthesizer"])
@pytest.mark.parametrize("tokens", [6, 40])
@pytest.mark.parametrize("greedy", [True, False])
def test_a_continuation_does_not_depend_on_the_other_prompts(
    tokenizer: Tokenizer, attention: str, tokens: int, greedy: bool
) -> None:
    """Within the window of 32 tokens and past it, beside prompts of any length: the same tokens with the same probabilities."""
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, attention=attention, positions="learned")
    model = Model(backbone, fresh_head(LMHeadConfig(), backbone, 0), causal=True)
    bundle = Bundle(model, tokenizer, history=(PretrainRecord(generates=True),))
    config = GenerateConfig(max_new_tokens=tokens, greedy=greedy)
    together = continue_prompts(bundle, PROMPTS, config)
    for index, prompt in enumerate(PROMPTS):
        # random numbers depend on the index: the same prompt at the same index, beside copies of itself
        alone = continue_prompts(bundle, [prompt] * (index + 1), config)[index]
        assert together[index].ids == alone.ids
        assert together[index].log_probabilities == pytest.approx(alone.log_probabilities, abs=1e-4)
        assert len(alone.log_probabilities) == len(alone.ids) + alone.stopped


def test_the_probabilities_are_the_models_own(bundle: Bundle) -> None:
    """Log-probabilities equal those of reading the whole text at once without a cache, whatever the temperature."""
    (decoded,) = continue_prompts(bundle, ["She holds"], GenerateConfig(max_new_tokens=10, temperature=0.5, top_k=4))
    specials = bundle.tokenizer.specials
    ids = [specials.eos, *bundle.tokenizer.encode(["She holds"])[0], *decoded.ids]
    logits = bundle.model(torch.tensor([ids]))[0].detach()
    logits[:, sorted(specials.all() - {specials.eos})] = -torch.inf
    log_probabilities = logits.log_softmax(dim=-1)
    start = len(ids) - len(decoded.ids)
    expected = [float(log_probabilities[start + i - 1, token]) for i, token in enumerate(decoded.ids)]
    assert decoded.log_probabilities[: len(expected)] == pytest.approx(expected, abs=1e-4)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("switches", [{}, {"bias": False, "activation": "swiglu"}, {"attention": "synthesizer"}])
@pytest.mark.parametrize("rows", [1, 3])
def test_inference_weights_give_the_same_logits(switches: dict, rows: int) -> None:
    """Afterwards, even after an error, the model is as it was."""
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
@pytest.mark.parametrize("bfloat16", [False, True])
@pytest.mark.parametrize("broken", BROKEN_OPERATORS)
def test_without_torchs_private_operators_plain_products_are_used(
    broken: str, bfloat16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether an operator is missing or raises, the outputs are those of plain products; in bfloat16, up to rounding."""
    model = make_language_model().eval()
    ids = torch.arange(12).view(2, 6)
    with torch.inference_mode():
        before = model(ids)
        monkeypatch.setattr(torch.ops, "mkldnn", BROKEN_OPERATORS[broken])
        with inference_weights(model, bfloat16=bfloat16):
            torch.testing.assert_close(model(ids), before, atol=0.1 if bfloat16 else 0, rtol=0)


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
