"""The backbone equals its references, and what a row gives depends on its own tokens alone, with one head after the other.

Neither on padding, batch mates, its KV cache, a draw or rounding beyond that of bfloat16, nor on a length that no setting says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.bundles import HEAD_CASES
from helpers.models import BACKBONE_CASES, SENTENCES, make_backbone
from warmstart.backbone import attention
from warmstart.backbone.attention import KVCache
from warmstart.backbone.backbone import Backbone, BackboneOutput
from warmstart.backbone.config import PRESETS, BackboneConfig
from warmstart.backbone.positions import sinusoidal_table
from warmstart.backbone.taps import tapped
from warmstart.data.encode import encode
from warmstart.errors import ConfigError, ModelError
from warmstart.model.bundle import Bundle
from warmstart.model.inference import inference_weights, run_in_batches
from warmstart.model.model import Model, fresh_head
from warmstart.model.selftest import longest_row, outputs_of
from warmstart.seeding import rng
from warmstart.system.device import autocast
from warmstart.tokenizer.tokenizer import Tokenizer

IDS = torch.tensor([[7, 31, 45, 12, 59, 30]])
assert_close = partial(torch.testing.assert_close, atol=1e-4, rtol=1e-4)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("switches", BACKBONE_CASES[:7])
def test_every_path_through_attention_gives_the_same_states(switches: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's fused products, our explicit ones, with weights and with a KV cache; weights sum to one over what may be read."""
    backbone, first, last = make_backbone(**switches), torch.arange(6)[None] < 4, torch.arange(6)[None] >= 2
    for causal, mask in product((True, False), (None, first) if switches.get("attention") else (None, first, last)):
        weighed, real = (
            backbone(IDS, attention_mask=mask, causal=causal, need_weights=True),
            slice(None) if mask is None else mask[0],
        )
        for explicit in (0, 512):
            monkeypatch.setattr(attention, "MAX_EXPLICIT_KEYS", explicit)
            states = backbone(IDS, attention_mask=mask, causal=causal).last_hidden_state
            assert states.isfinite().all()
            assert_close(states[:, real], weighed.last_hidden_state[:, real])
            if mask is None and causal:
                cache = KVCache.empty(2, 32)
                pieces = [backbone(part, kv_cache=cache).last_hidden_state for part in IDS.split([3, 1, 2], dim=1)]
                assert_close(torch.cat(pieces, dim=1), states)
        if mask is first:
            weights = weighed.attention_weights[0][0, :, :4]  # (H, 4, 6)
            assert_close(weights.sum(-1), torch.ones(2, 4))
            assert (weights[..., 4:] == 0).all()
            assert not causal or (weights[..., :4].triu(1) == 0).all()


def test_a_backbone_that_is_not_causal_reads_what_comes_later() -> None:
    """From the first layer on."""
    backbone, other = make_backbone(), torch.cat([IDS[:, :-1], torch.tensor([[8]])], dim=1)
    one, another = (backbone(ids, causal=False).last_hidden_state for ids in (IDS, other))
    assert not torch.allclose(one[:, 0], another[:, 0])


def test_equals_torchs_transformer_encoder() -> None:
    """With the lab's switches and the same weights, states equal those of ``nn.TransformerEncoder``."""
    ours = make_backbone(norm="post", positions="sinusoidal", activation="relu", scale_embeddings=True)
    layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train()  # the slow path, which honours any mask
    for mine, other in zip(ours.blocks, theirs.layers, strict=True):
        pairs = {
            "self_attn.in_proj_weight": mine.attention.qkv.weight, "self_attn.in_proj_bias": mine.attention.qkv.bias,
            "self_attn.out_proj.weight": mine.attention.out.weight, "self_attn.out_proj.bias": mine.attention.out.bias,
            "linear1.weight": mine.feedforward.inner.weight, "linear1.bias": mine.feedforward.inner.bias,
            "linear2.weight": mine.feedforward.out.weight, "linear2.bias": mine.feedforward.out.bias,
            "norm1.weight": mine.norm_1.weight, "norm1.bias": mine.norm_1.bias,
            "norm2.weight": mine.norm_2.weight, "norm2.bias": mine.norm_2.bias,
        }  # fmt: skip
        other.load_state_dict(pairs)
    x = ours.embedding(IDS) * math.sqrt(16) + sinusoidal_table(6, 16)
    blind = nn.Transformer.generate_square_subsequent_mask(6)
    torch.testing.assert_close(ours(IDS).last_hidden_state, theirs(x, mask=blind), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours(IDS, causal=False).last_hidden_state, theirs(x), atol=1e-5, rtol=1e-5)


def test_a_tap_reads_and_replaces() -> None:
    """The output holds every layer; erasing both branches of a block makes it the identity; afterwards all is as before."""
    backbone = make_backbone()
    before = backbone(IDS)
    assert len(before.hidden_states) == 3
    assert_close(backbone.norm(before.hidden_states[-1]), before.last_hidden_state)
    erase = {"blocks.1.attention": torch.zeros_like, "blocks.1.feedforward": torch.zeros_like}
    with tapped(backbone, erase):
        states = backbone(IDS)
    assert_close(states.hidden_states[2], states.hidden_states[1])
    assert_close(backbone(IDS).last_hidden_state, before.last_hidden_state)
    with pytest.raises(ModelError, match=r"did you mean 'blocks.1'"), tapped(backbone, {"block.1": lambda x: x}):
        pass


def test_every_preset_builds_and_reads() -> None:
    """The settings of each preset are valid."""
    for name, preset in PRESETS.items():
        backbone = Backbone(BackboneConfig.build(preset), 60)
        assert backbone(IDS).last_hidden_state.shape == (1, 6, backbone.config.width), name


def test_wrong_rows_and_settings_are_refused() -> None:
    """Errors name the limit, the value, and what to do."""
    backbone = make_backbone()
    with pytest.raises(ModelError, match=r"at most max_length=32 .* but one has 33; cut the text"):
        backbone(torch.zeros(1, 33, dtype=torch.long))
    with pytest.raises(ModelError, match=r"must lie in 0..59, but these range from 0 to 60"):
        backbone(torch.tensor([[0, 60]]))
    with pytest.raises(ModelError, match="pad on the right"):  # the scores of a synthesizer belong to absolute positions
        make_backbone(attention="synthesizer", positions="learned")(IDS, attention_mask=torch.arange(6)[None] >= 2)
    with pytest.raises(ModelError, match="must be boolean"):
        backbone(IDS, attention_mask=torch.ones(1, 6))
    for settings, message in (
        ({"width": 10, "heads": 4}, "width is 10 and heads 4"),
        ({"width": 10, "heads": 2}, "even head width, but it is 5"),
        ({"widht": 10}, "unknown key 'widht'; did you mean 'width'"),
    ):
        with pytest.raises(ConfigError, match=message):
            BackboneConfig.build(settings)


def test_sinusoidal_positions_match_the_formula() -> None:
    """Position 3, width 6: sin and cos of 3, 3/10000^(1/3), 3/10000^(2/3), in turn."""
    rates = [1.0, 10_000 ** (-1 / 3), 10_000 ** (-2 / 3)]
    expected = [value for rate in rates for value in (math.sin(3 * rate), math.cos(3 * rate))]
    torch.testing.assert_close(sinusoidal_table(5, 6)[3], torch.tensor(expected))


def test_normalised_queries_and_keys_train_in_bfloat16_without_a_warning() -> None:
    """Warnings are errors here; the output equals that in float32 up to the rounding of bfloat16."""
    backbone = make_backbone(qk_norm=True)
    exact = backbone(IDS).last_hidden_state
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = backbone(IDS).last_hidden_state
    torch.testing.assert_close(half, exact, atol=0.05, rtol=0.05)


def models(tokenizer: Tokenizer) -> Iterator[tuple[Model, list[Tensor]]]:
    """Each with three rows of random tokens, the longest first; every other one is causal."""
    for number, head in enumerate(HEAD_CASES):
        backbone = make_backbone(vocab_size=tokenizer.vocab_size, **BACKBONE_CASES[number % len(BACKBONE_CASES)])
        tokens = min(6, backbone.config.max_length - 3)
        rows = torch.from_numpy(rng(number, "rows").integers(0, tokenizer.vocab_size, size=(3, tokens)))
        model = Model(backbone, fresh_head(head, backbone, 0), causal=number % 2 == 0).eval()
        yield model, [row[:length] for row, length in zip(rows, (tokens, max(1, tokens - 3), 1), strict=True)]


def layers(output: BackboneOutput) -> tuple[Tensor, ...]:
    return (*output.hidden_states, output.last_hidden_state)


def sides(model: Model) -> tuple[bool, ...]:
    """Left and right; a synthesizer, whose scores belong to absolute positions, is padded on the right alone."""
    return (False,) if model.backbone.config.attention == "synthesizer" else (False, True)


def test_padding_and_batch_mates_change_no_state_of_any_layer(tokenizer: Tokenizer) -> None:
    """On either side, whatever ids stand there, in either direction; nor any output."""
    for model, rows in models(tokenizer):
        outputs = torch.cat([outputs_of(model, row[None]) for row in rows])
        columns = len(rows[0]) + 3
        places, lengths = torch.arange(columns).expand(3, -1), torch.tensor([[len(row)] for row in rows])
        for left in sides(model):
            mask = places >= columns - lengths if left else places < lengths
            ids = torch.randint(tokenizer.vocab_size, (3, columns), generator=torch.Generator().manual_seed(0))
            ids[mask] = torch.cat(rows)
            for causal in (True, False):
                padded = layers(model.backbone(ids, attention_mask=mask, causal=causal))
                for row, real, *states in zip(rows, mask, *padded, strict=True):
                    alone = layers(model.backbone(row[None], causal=causal))
                    assert_close([one[real] for one in states], [one[0] for one in alone])
            if not (left and model.head.per_token):  # ``outputs_of`` would read the wrong token
                assert_close(outputs_of(model, ids, mask), outputs)


def test_the_beginning_of_a_causal_row_does_not_depend_on_the_rest_or_the_cache(tokenizer: Tokenizer) -> None:
    """Every beginning alone, then token by token with a KV cache, also beside padding on the left."""
    for model, (row, *_) in models(tokenizer):
        backbone, tokens = model.backbone, len(row)
        whole = layers(backbone(row[None]))
        for end in range(1, tokens):
            assert_close(layers(backbone(row[None, :end])), tuple(states[:, :end] for states in whole))
        for amount in (0, 2)[: len(sides(model))]:
            ids, cache = F.pad(row[None], (amount, 0)), KVCache.empty(backbone.config.depth, tokens + amount)
            mask, first = torch.arange(tokens + amount)[None] >= amount, amount + 1
            pieces = [(0, first), *((at, at + 1) for at in range(first, tokens + amount))]
            read = [backbone(ids[:, a:b], attention_mask=mask[:, :b] if amount else None, kv_cache=cache) for a, b in pieces]
            assert_close(torch.cat([one.last_hidden_state for one in read], dim=1)[:, amount:], whole[-1])


@pytest.mark.usefixtures("onednn")
def test_the_order_of_texts_and_the_layout_of_weights_change_no_output(tokenizer: Tokenizer) -> None:
    """Each text gives what it gives alone, in its own place."""
    for model, rows in models(tokenizer):
        plain = outputs_of(model, rows[0][None])
        with inference_weights(model):
            assert_close(outputs_of(model, rows[0][None]), plain)
        for texts in ([*SENTENCES, "a"], ["a", *SENTENCES[::-1]]):
            encoded = encode(tokenizer, texts, min(32, model.backbone.config.max_length))
            for places, batch in run_in_batches(model, encoded, tokenizer.specials.pad):
                for place, output in zip(places, batch, strict=True):
                    row = torch.from_numpy(encoded.rows[place])
                    assert_close(output[len(row) - 1] if model.head.per_token else output, outputs_of(model, row[None])[0])


def test_two_readings_are_the_same_in_float32_and_nearly_so_in_bfloat16(tokenizer: Tokenizer) -> None:
    """No module is left in training mode by ``eval``, whatever its dropout was."""
    for model, (row, *_) in models(tokenizer):
        model.train().eval()
        assert {weight.dtype for weight in model.weights().values()} == {torch.float32}
        assert torch.equal(outputs_of(model, row[None]), outputs_of(model, row[None]))
        exact = model.backbone(row[None]).last_hidden_state
        with autocast("bfloat16", exact.device):
            rough = model.backbone(row[None]).last_hidden_state.float()
        assert (rough - exact).norm() < 0.2 * exact.norm()


def test_a_row_is_as_long_as_the_settings_say(tokenizer: Tokenizer) -> None:
    """A longer one is refused, a text that is too long is cut there, and the positions are made again from the settings."""
    for model, _ in models(tokenizer):
        backbone, length = model.backbone, model.backbone.config.max_length
        assert backbone(torch.zeros(1, length, dtype=torch.int64)).last_hidden_state.shape[1] == length
        with pytest.raises(ModelError, match=f"at most max_length={length} "):
            backbone(torch.zeros(1, length + 1, dtype=torch.int64))
        assert longest_row(Bundle(model, tokenizer, tuple("abc") if hasattr(model.head.config, "classes") else ())) <= length
        again = Backbone(backbone.config, backbone.vocab_size)
        assert_close(dict(again.named_buffers()), dict(backbone.named_buffers()), atol=0, rtol=0)
