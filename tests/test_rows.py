"""What a row gives depends on its own tokens alone, of every kind of backbone, with one head after the other.

Nor on a draw, on rounding beyond that of bfloat16, or on a length that the settings do not say.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.bundles import HEAD_CASES
from helpers.models import BACKBONE_CASES, SENTENCES, make_backbone
from warmstart.backbone.attention import KVCache
from warmstart.backbone.backbone import Backbone, BackboneOutput
from warmstart.data.encode import encode
from warmstart.errors import ModelError
from warmstart.model.bundle import Bundle
from warmstart.model.inference import inference_weights, run_in_batches
from warmstart.model.model import Model, fresh_head
from warmstart.model.selftest import longest_row, outputs_of
from warmstart.seeding import rng
from warmstart.system.device import autocast
from warmstart.tokenizer.tokenizer import Tokenizer

assert_close = partial(torch.testing.assert_close, atol=1e-4, rtol=1e-4)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


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
