"""An adapter computes what its paper says and can be removed or merged; embedding rows that are set apart train as the whole."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import peft
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers.bundles import classifier, finetune_config, language_bundle, make_task
from helpers.models import make_backbone
from warmstart.adapters.insertion import inserted_adapters, merge_adapters, remove_adapters
from warmstart.adapters.registry import ADAPTERS, adapter_config, insert_adapter
from warmstart.adapters.scalar_mix import last_hidden_state_without_mix
from warmstart.adapters.settings import BottleneckConfig, LoraConfig, ScalarMixConfig
from warmstart.backbone.attention import KVCache
from warmstart.backbone.backbone import Backbone
from warmstart.backbone.taps import tapped
from warmstart.config import Config
from warmstart.errors import ConfigError, ModelError
from warmstart.finetuning import scheme
from warmstart.finetuning.finetune import FineTuneResult, fine_tune
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.losses import LanguageTask
from warmstart.finetuning.scheme import EmbeddingRows, apply_scheme
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle, save
from warmstart.model.model import Model, fresh_head
from warmstart.tokenizer.tokenizer import Tokenizer

IDS = torch.tensor([[5, 9, 2, 7], [8, 8, 3, 1]])
CASES = [
    BottleneckConfig(width=4),
    BottleneckConfig(width=3, after=("feedforward",), activation="relu"),
    LoraConfig(rank=2),
    LoraConfig(rank=3, alpha=5, targets=("q", "k", "v", "out", "feedforward"), dropout=0.1),
    LoraConfig(rank=2, targets=("qkv",)),
    ScalarMixConfig(),
]


def with_random_adapter(config: Config, seed: int = 0, **switches: object) -> Backbone:
    """A backbone with an adapter whose weights are not its initial ones."""
    backbone = make_backbone(**switches)
    insert_adapter(backbone, config, seed)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in backbone.named_parameters():
            if any(part in name for part in ("adapter", "lora", "mix")):
                parameter.normal_(std=0.3)
    return backbone


def output_of(backbone: Backbone) -> torch.Tensor:
    with torch.no_grad():
        return backbone(IDS).last_hidden_state


@pytest.mark.parametrize("config", CASES, ids=str)
def test_every_adapter_keeps_its_contract(config: Config, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Inserted from a seed, copied, saved with its settings, used with a KV cache, and removed without a trace."""
    assert {case.kind for case in CASES} == set(ADAPTERS), "a new adapter joins the cases"
    for norm in ("pre", "post"):
        plain, fresh = make_backbone(norm=norm), [make_backbone(norm=norm) for _ in range(3)]
        for one, seed in zip(fresh, [0, 0, 1], strict=True):
            insert_adapter(one, config, seed)
            assert config.kind == "scalar-mix" or torch.equal(output_of(one), output_of(plain)), (
                "training starts from the pretrained model"
            )
        one, two, three = (backbone.state_dict() for backbone in fresh)
        assert all(torch.equal(one[name], two[name]) for name in one)
        assert all(torch.equal(one[name], three[name]) for name in one) == (config.kind == "scalar-mix")
        backbone = with_random_adapter(config, norm=norm)
        before, twin = output_of(backbone), copy.deepcopy(backbone)
        assert torch.equal(output_of(twin), before)
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.mul_(1.5)
        assert torch.equal(output_of(backbone), before)
        assert not torch.allclose(output_of(twin), before)
        cache = KVCache.empty(2, 8)
        with torch.no_grad():
            parts = [backbone(IDS[:, i : i + 1], kv_cache=cache).last_hidden_state for i in range(IDS.shape[1])]
        torch.testing.assert_close(torch.cat(parts, dim=1), before, atol=1e-5, rtol=1e-4)
        assert inserted_adapters(backbone) == [config]
        assert not torch.allclose(before, output_of(plain), atol=1e-3)
        remove_adapters(backbone)
        assert torch.equal(output_of(backbone), output_of(plain))
        assert backbone.state_dict().keys() == plain.state_dict().keys()
        assert inserted_adapters(backbone) == []
        assert not any(part._forward_hooks for part in backbone.modules())
    backbone = with_random_adapter(config, vocab_size=tokenizer.vocab_size)
    model = Model(backbone, fresh_head(ClassificationHeadConfig(classes=2), backbone, 0), causal=False)
    again = load_bundle(save(Bundle(model, tokenizer, ("a", "b")), tmp_path / "b"))
    with torch.no_grad():
        assert torch.equal(model(IDS), again.model(IDS))
    assert json.loads((tmp_path / "b" / "bundle.json").read_text())["adapters"] == [config.to_dict()]
    assert inserted_adapters(again.model) == [config]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_bottlenecks_go_where_the_papers_say(norm: str) -> None:
    """A block with two adapters equals one written out by hand: x + A(attention), x + A(feed-forward), before the residual sum."""
    backbone = with_random_adapter(BottleneckConfig(width=4), depth=1, positions="learned", norm=norm)
    block, seen = backbone.blocks[0], {}

    def note(name: str, value: torch.Tensor) -> torch.Tensor:
        seen[name] = value
        return value

    with torch.no_grad(), tapped(backbone, {"blocks.0.attention.out": lambda x: note("mixed", x)}):
        states = backbone(IDS)
        x = states.hidden_states[0]

        def adapter(part: nn.Module, y: torch.Tensor) -> torch.Tensor:
            down, up = part.adapter.down, part.adapter.up
            return y + F.gelu(y @ down.weight.T + down.bias) @ up.weight.T + up.bias

        if norm == "pre":
            x = x + adapter(block.attention, seen["mixed"])
            x = x + adapter(block.feedforward, plain_feedforward(block, block.norm_2(x)))
        else:
            x = block.norm_1(x + adapter(block.attention, seen["mixed"]))
            x = block.norm_2(x + adapter(block.feedforward, plain_feedforward(block, x)))
    torch.testing.assert_close(states.hidden_states[1], x)


def plain_feedforward(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return block.feedforward.out(F.gelu(block.feedforward.inner(x)))


@given(st.integers(0, 10**6), st.floats(-2, 2))
@settings(deadline=None, max_examples=10)
def test_the_scalar_mix_is_equation_1(seed: int, gamma: float) -> None:
    """gamma times the softmax-weighted sum over all L + 1 layers (Peters et al. 2018)."""
    backbone = make_backbone(depth=3)
    plain = output_of(backbone)
    insert_adapter(backbone, ScalarMixConfig(), 0)
    scores = torch.randn(4, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        backbone.scalar_mix.scores.copy_(scores)
        backbone.scalar_mix.gamma.fill_(gamma)
        states = backbone(IDS)
    layers = [
        (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt() for x in states.hidden_states[:-1]
    ]
    weights = scores.exp() / scores.exp().sum()
    expected = gamma * sum(s * h for s, h in zip(weights, [*layers, plain], strict=True))
    torch.testing.assert_close(states.last_hidden_state, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(backbone(ids=IDS).last_hidden_state.detach(), states.last_hidden_state)
    torch.testing.assert_close(last_hidden_state_without_mix(backbone, states), plain)


class Projections(nn.Module):
    """Queries, keys and values as three layers: what peft adapts one by one, and ours as thirds of one."""

    def __init__(self, fused: nn.Linear) -> None:
        super().__init__()
        width = fused.in_features
        for i, name in enumerate("qkv"):
            part = nn.Linear(width, width)
            part.load_state_dict({key: getattr(fused, key)[i * width : (i + 1) * width] for key in ("weight", "bias")})
            self.add_module(name, part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.q(x), self.k(x), self.v(x)], dim=-1)


def test_lora_agrees_with_peft() -> None:
    """Same A, B, rank and alpha: the same outputs as peft's, unmerged and merged, and the same names of the pair."""
    backbone = with_random_adapter(LoraConfig(rank=3, alpha=7.0), depth=1)
    ours = backbone.blocks[0].attention.qkv
    theirs = peft.get_peft_model(Projections(ours), peft.LoraConfig(r=3, lora_alpha=7, target_modules=["q", "v"]))
    state = theirs.state_dict()
    for name in ("q", "v"):
        for matrix in ("lora_A", "lora_B"):
            key = next(key for key in state if f".{name}.{matrix}." in key)
            state[key].copy_(ours.get_submodule(f"lora_{name}").get_submodule(matrix).weight)
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x))
        merge_adapters(backbone)
        torch.testing.assert_close(ours(x), theirs.merge_and_unload()(x))


def test_merging_gives_a_plain_model_with_equal_outputs() -> None:
    """Merging folds the pairs into the weights and leaves nothing to merge."""
    for attention, targets in (
        ("dot-product", ("q", "k", "v")),
        ("dot-product", ("qkv", "out", "feedforward")),
        ("synthesizer", ("v", "out", "feedforward")),
    ):
        backbone = with_random_adapter(LoraConfig.build({"rank": 2, "targets": targets}), attention=attention)
        before = output_of(backbone)
        assert merge_adapters(backbone) is backbone
        torch.testing.assert_close(output_of(backbone), before, atol=1e-5, rtol=1e-4)
        assert backbone.state_dict().keys() == make_backbone(attention=attention).state_dict().keys()
        with pytest.raises(ModelError, match="nothing to merge: only LoRA can be folded"):
            merge_adapters(backbone)


def test_merging_keeps_adapters_that_are_not_linear() -> None:
    """LoRA is merged, a bottleneck beside it stays; a bottleneck alone cannot be merged."""
    backbone = with_random_adapter(BottleneckConfig(width=4))
    with pytest.raises(ModelError, match="nothing to merge"):
        merge_adapters(backbone)
    insert_adapter(backbone, LoraConfig(rank=2), 0)
    before = output_of(backbone)
    merge_adapters(backbone)
    assert inserted_adapters(backbone) == [BottleneckConfig(width=4)]
    torch.testing.assert_close(output_of(backbone), before)


def test_errors_say_what_to_do() -> None:
    """Each message says what must hold and what to do."""
    backbone = with_random_adapter(LoraConfig())
    with pytest.raises(
        ModelError,
        match=r"has 'lora_q' already; remove it with remove_adapters\(model\), or fold it into the weights with merge_adapters",
    ):
        insert_adapter(backbone, LoraConfig(rank=2), 0)
    with pytest.raises(ConfigError, match="synthesizer attention has no queries and keys.* cannot target q; use v, out"):
        insert_adapter(make_backbone(attention="synthesizer"), LoraConfig(), 0)
    with pytest.raises(ConfigError, match="nowhere to insert 'bottleneck': the backbone has no blocks"):
        insert_adapter(make_backbone(depth=0), BottleneckConfig(), 0)
    with pytest.raises(ConfigError, match="must name at least one matrix, and each only once, but names q, q"):
        LoraConfig.build({"targets": ("q", "q")})
    with pytest.raises(ModelError, match="must name its kind"):
        adapter_config({"rank": 3})
    with pytest.raises(ConfigError, match="unknown adapter 'lorra'; did you mean 'lora'"):
        adapter_config({"kind": "lorra"})


def tuned(names: str, tokenizer: Tokenizer, *, weight_decay: float = 0.0) -> FineTuneResult:
    """A run of a few epochs that keeps its best weights."""
    model, config = classifier(tokenizer), finetune_config(names, keep="best")
    train = config.train.model_copy(update={"weight_decay": weight_decay})
    encoded = EncodedTask.of(make_task(), model, tokenizer)
    assert len(encoded.training_ids()) < scheme.WORTHWHILE * tokenizer.vocab_size or not scheme.WORTHWHILE
    return fine_tune(
        model, encoded, config.model_copy(update={"train": train}), 0, language=LanguageTask.of(language_bundle(tokenizer))
    )


@pytest.mark.parametrize("names", ["full", "lp-ft", "gradual+discriminative", "full+scalar-mix", "houlsby+lm-loss"])
def test_schemes_give_the_same_with_rows_set_apart(names: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, predictions, scores of the evaluations and the number of trainable parameters are those of the whole embedding."""
    rows = tuned(names, tokenizer)
    monkeypatch.setattr(scheme, "WORTHWHILE", 0.0)
    whole = tuned(names, tokenizer)
    weights, expected = rows.model.weights(), whole.model.weights()
    assert weights.keys() == expected.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-4, rtol=1e-3)
    np.testing.assert_allclose(rows.test_predictions, whole.test_predictions, atol=1e-4)
    assert (rows.curve, rows.trainable) == (whole.curve, whole.trainable)


def test_words_that_training_texts_lack_keep_their_vectors(tokenizer: Tokenizer) -> None:
    """Weight decay changes the rows of tokens that were read, and no others."""
    before = classifier(tokenizer).backbone.embedding.weight.detach().clone()
    run = tuned("full", tokenizer, weight_decay=0.5)
    after = run.model.backbone.embedding.weight.detach()
    read = EncodedTask.of(make_task(), classifier(tokenizer), tokenizer).training_ids()
    changed = (after != before).any(dim=1).nonzero().flatten().tolist()
    assert set(changed) <= set(read.tolist())
    assert len(changed) >= len(read) - 1, "all tokens but padding are moved"


def test_a_token_that_no_text_has_is_refused(tokenizer: Tokenizer) -> None:
    """While rows are set apart, another token has no vector, and raises instead of reading a wrong one."""
    model = classifier(tokenizer)
    rows = EmbeddingRows(model.backbone, apply_scheme(model, make_scheme("full")), np.array([1, 5, 9]))
    assert torch.isfinite(model(torch.tensor([[5, 9, 1]]))).all()
    with pytest.raises(IndexError):
        model(torch.tensor([[5, 7]]))
    with rows.whole():
        assert torch.isfinite(model(torch.tensor([[5, 7]]))).all()
