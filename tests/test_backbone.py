"""The backbone equals its references, never reads padding, and gives the same states with and without its KV cache."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import nn

from helpers.models import make_backbone
from warmstart.backbone import attention
from warmstart.backbone.attention import KVCache
from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import PRESETS, BackboneConfig
from warmstart.backbone.positions import sinusoidal_table
from warmstart.backbone.taps import tapped
from warmstart.errors import ConfigError, ModelError

SWITCHES = [
    {},
    {"norm": "post", "positions": "sinusoidal", "activation": "relu", "scale_embeddings": True},
    {"positions": "learned", "activation": "gelu-tanh"},
    {"norm_type": "rms", "activation": "swiglu", "bias": False},
    {"attention": "synthesizer", "positions": "learned"},
]
IDS = torch.tensor([[7, 31, 45, 12, 59, 30]])
assert_close = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-5)


def mask(*lengths: int, tokens: int) -> torch.Tensor:
    """True where a row of so many tokens is read; a negative length is at the right end."""
    return torch.stack([torch.arange(tokens) < n if n > 0 else torch.arange(tokens) >= tokens + n for n in lengths])


@pytest.mark.parametrize("switches", SWITCHES)
@pytest.mark.parametrize("explicit", [0, 512])
def test_every_backbone_keeps_its_contract(switches: dict, explicit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding, batch mates, KV cache and attention weights change no state, on either path; causal states read nothing later."""
    monkeypatch.setattr(attention, "MAX_EXPLICIT_KEYS", explicit)
    backbone, synthesizer = make_backbone(**switches), switches.get("attention") == "synthesizer"
    right = torch.cat([torch.cat([IDS, torch.full((1, 3), 3)], dim=1), torch.full((1, 9), 3)])
    left, other = torch.cat([torch.full((1, 3), 9), IDS], dim=1), torch.cat([IDS[:, :-1], torch.tensor([[8]])], dim=1)
    for causal in (True, False):
        alone = backbone(IDS, causal=causal).last_hidden_state
        together = backbone(right, attention_mask=mask(6, 9, tokens=9), causal=causal).last_hidden_state
        assert_close(together[:1, :6], alone)
        if synthesizer:  # its scores belong to absolute positions
            with pytest.raises(ModelError, match="pad on the right"):
                backbone(left, attention_mask=mask(-6, tokens=9))
        else:
            padded = backbone(left, attention_mask=mask(-6, tokens=9), causal=causal).last_hidden_state
            assert_close(padded[:, 3:], alone)
            assert padded.isfinite().all()
        later = backbone(other, causal=causal).last_hidden_state
        if causal:
            assert_close(later[:, :-1], alone[:, :-1])
        else:
            assert synthesizer or not torch.allclose(later[:, 0], alone[:, 0])
        slow = backbone(IDS, attention_mask=mask(4, tokens=6), causal=causal, need_weights=True)
        assert_close(slow.last_hidden_state, backbone(IDS, attention_mask=mask(4, tokens=6), causal=causal).last_hidden_state)
        assert len(slow.attention_weights) == 2
        real = slow.attention_weights[0][0, :, :4]  # (H, 4, 6)
        assert_close(real.sum(-1), torch.ones(2, 4))
        assert (real[..., 4:] == 0).all()
        assert not causal or (real[..., :4].triu(1) == 0).all()
    cache = KVCache.empty(2, 32)
    pieces = [backbone(part, kv_cache=cache).last_hidden_state for part in IDS.split([3, 1, 2], dim=1)]
    assert_close(torch.cat(pieces, dim=1), backbone(IDS).last_hidden_state)


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
