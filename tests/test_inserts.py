"""What is inserted computes what its paper says, is seen by everything, and can be taken out or folded in."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import peft
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from conftest import make_backbone, make_language_model
from warmstart.backbone import Backbone, tapped
from warmstart.backbone.attention import Cache
from warmstart.config import Config
from warmstart.errors import ConfigError, ModelError
from warmstart.heads import ClassifyHeadConfig
from warmstart.inserts import (
    INSERTS,
    AdapterConfig,
    LoraConfig,
    MixConfig,
    insert,
    insert_config,
    inserted,
    merge,
    undo,
    unmixed,
)
from warmstart.model import Bundle, Model, fresh_head, load, save
from warmstart.model import files as bundle_file
from warmstart.tokenizer import Tokenizer

IDS = torch.tensor([[5, 9, 2, 7], [8, 8, 3, 1]])
CASES = [
    AdapterConfig(width=4),
    AdapterConfig(width=3, after=("feedforward",), activation="relu"),
    LoraConfig(rank=2),
    LoraConfig(rank=3, alpha=5, targets=("q", "k", "v", "out", "feedforward"), dropout=0.1),
    LoraConfig(rank=2, targets=("qkv",)),
    MixConfig(),
]


def stirred(config: Config, seed: int = 0, **switches: object) -> Backbone:
    """A backbone with inserted modules whose weights are not what they began with."""
    backbone = make_backbone(**switches)
    insert(backbone, config, seed)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in backbone.named_parameters():
            if any(part in name for part in ("adapter", "lora", "mix")):
                parameter.normal_(std=0.3)
    return backbone


def said(backbone: Backbone) -> torch.Tensor:
    with torch.no_grad():
        return backbone(IDS).last


def test_every_registered_insert_is_tested() -> None:
    """A new one joins the cases above."""
    assert {case.kind for case in CASES} == set(INSERTS)


@pytest.mark.parametrize("config", CASES, ids=str)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_what_is_inserted_can_be_taken_out(config: Config, norm: str) -> None:
    """It changes the outputs; after ``undo`` they are the old ones to the bit, no name and no hook is left."""
    plain = make_backbone(norm=norm)
    backbone = stirred(config, norm=norm)
    assert inserted(backbone) == [config]
    assert not torch.allclose(said(backbone), said(plain), atol=1e-3)
    undo(backbone)
    assert torch.equal(said(backbone), said(plain))
    assert backbone.state_dict().keys() == plain.state_dict().keys()
    assert inserted(backbone) == []
    assert not any(part._forward_hooks for part in backbone.modules())


@pytest.mark.parametrize("config", [case for case in CASES if case.kind != "mix"], ids=str)
def test_training_begins_at_the_pretrained_model(config: Config) -> None:
    """Freshly inserted adapters and low-rank pairs are the identity, exactly."""
    backbone = make_backbone()
    before = said(backbone)
    insert(backbone, config, seed=0)
    assert torch.equal(said(backbone), before)


@pytest.mark.parametrize("config", CASES, ids=str)
def test_a_copy_is_a_whole_copy(config: Config) -> None:
    """A deep copy uses its own modules: changing them does not change the original."""
    backbone = stirred(config)
    before, twin = said(backbone), copy.deepcopy(backbone)
    assert torch.equal(said(twin), before)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(1.5)
    assert torch.equal(said(backbone), before)
    assert not torch.allclose(said(twin), before)


@pytest.mark.parametrize("config", CASES, ids=str)
def test_the_seed_makes_the_weights(config: Config) -> None:
    """One seed, one set of new weights; another seed, another one (a mix has nothing random)."""
    backbones = [make_backbone() for _ in range(3)]
    for backbone, seed in zip(backbones, [0, 0, 1], strict=True):
        insert(backbone, config, seed)
    one, two, three = (backbone.state_dict() for backbone in backbones)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert all(torch.equal(one[name], three[name]) for name in one) == (config.kind == "mix")


@pytest.mark.usefixtures("no_second_process")
@pytest.mark.parametrize("config", CASES, ids=str)
def test_a_bundle_stores_what_was_inserted_as_plain_data(config: Config, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Save, load, self-test: the same outputs to the bit, and the manifest names the settings."""
    backbone = stirred(config, vocab_size=tokenizer.vocab_size)
    model = Model(backbone, fresh_head(ClassifyHeadConfig(classes=2), backbone, 0), causal=False)
    again = load(save(Bundle(model, tokenizer, ("a", "b")), tmp_path / "b"), selftest=True)
    with torch.no_grad():
        assert torch.equal(model(IDS), again.model(IDS))
    manifest = json.loads((tmp_path / "b" / "bundle.json").read_text())
    assert manifest["inserted"] == [config.plain()]
    assert inserted(again.model) == [config]


def test_saving_proves_inserted_modules_in_a_fresh_process(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Nothing of this process is needed to load them."""
    backbone = stirred(LoraConfig(rank=2), vocab_size=tokenizer.vocab_size)
    insert(backbone, MixConfig(), 0)
    model = Model(backbone, fresh_head(ClassifyHeadConfig(classes=2), backbone, 0), causal=False)
    assert save(Bundle(model, tokenizer, ("a", "b")), tmp_path / "b").is_dir()


def test_bundles_without_the_key_still_load(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle that an older version wrote says nothing of inserted modules."""
    monkeypatch.setattr(bundle_file, "_verify_in_fresh_process", lambda place: None)
    save(Bundle(make_language_model(vocab_size=tokenizer.vocab_size), tokenizer), tmp_path / "b")
    file = tmp_path / "b" / "bundle.json"
    manifest = json.loads(file.read_text())
    del manifest["digest"], manifest["inserted"]
    file.write_text(json.dumps(manifest | {"digest": bundle_file._digest(manifest)}))
    assert inserted(load(tmp_path / "b", selftest=True).model) == []


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_adapters_stand_where_the_papers_say(norm: str) -> None:
    """A block with two adapters equals one written out by hand: x + A(attention), x + A(feed-forward), before the residual sum."""
    backbone = stirred(AdapterConfig(width=4), depth=1, positions="learned", norm=norm)
    block, seen = backbone.blocks[0], {}

    def note(name: str, value: torch.Tensor) -> torch.Tensor:
        seen[name] = value
        return value

    with torch.no_grad(), tapped(backbone, {"blocks.0.attention.out": lambda x: note("mixed", x)}):
        states = backbone(IDS)
        x = states.layers[0]

        def adapter(part: nn.Module, y: torch.Tensor) -> torch.Tensor:
            down, up = part.adapter.down, part.adapter.up
            return y + F.gelu(y @ down.weight.T + down.bias) @ up.weight.T + up.bias

        if norm == "pre":
            x = x + adapter(block.attention, seen["mixed"])
            x = x + adapter(block.feedforward, plain_feedforward(block, block.norm_2(x)))
        else:
            x = block.norm_1(x + adapter(block.attention, seen["mixed"]))
            x = block.norm_2(x + adapter(block.feedforward, plain_feedforward(block, x)))
    torch.testing.assert_close(states.layers[1], x)


def plain_feedforward(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return block.feedforward.out(F.gelu(block.feedforward.inner(x)))


@given(st.integers(0, 10**6), st.floats(-2, 2))
@settings(deadline=None, max_examples=10)
def test_the_mix_is_equation_1(seed: int, gamma: float) -> None:
    """gamma times the softmax-weighted sum over all L + 1 layers (Peters et al. 2018)."""
    backbone = make_backbone(depth=3)
    plain = said(backbone)
    insert(backbone, MixConfig(), 0)
    scores = torch.randn(4, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        backbone.mix.scores.copy_(scores)
        backbone.mix.gamma.fill_(gamma)
        states = backbone(IDS)
    layers = [(x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt() for x in states.layers[:-1]]
    share = scores.exp() / scores.exp().sum()
    expected = gamma * sum(s * h for s, h in zip(share, [*layers, plain], strict=True))
    torch.testing.assert_close(states.last, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(backbone(ids=IDS).last.detach(), states.last)
    torch.testing.assert_close(unmixed(backbone, states), plain)


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
    backbone = stirred(LoraConfig(rank=3, alpha=7.0), depth=1)
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
        merge(backbone)
        torch.testing.assert_close(ours(x), theirs.merge_and_unload()(x))


@pytest.mark.parametrize(
    ("attention", "targets"),
    [
        ("dot-product", ("q", "k", "v")),
        ("dot-product", ("qkv", "out", "feedforward")),
        ("synthesizer", ("v", "out", "feedforward")),
    ],
)
def test_merging_gives_a_plain_model_with_equal_outputs(attention: str, targets: tuple[str, ...]) -> None:
    """The pairs are folded into the weights; there is nothing left to merge."""
    backbone = stirred(LoraConfig.build({"rank": 2, "targets": targets}), attention=attention)
    before = said(backbone)
    assert merge(backbone) is backbone
    torch.testing.assert_close(said(backbone), before, atol=1e-5, rtol=1e-4)
    assert backbone.state_dict().keys() == make_backbone(attention=attention).state_dict().keys()
    with pytest.raises(ModelError, match="nothing to merge: only LoRA can be folded"):
        merge(backbone)


def test_merging_leaves_what_is_not_linear() -> None:
    """LoRA is folded, an adapter beside it stays; alone it cannot be merged."""
    backbone = stirred(AdapterConfig(width=4))
    with pytest.raises(ModelError, match="nothing to merge"):
        merge(backbone)
    insert(backbone, LoraConfig(rank=2), 0)
    before = said(backbone)
    merge(backbone)
    assert inserted(backbone) == [AdapterConfig(width=4)]
    torch.testing.assert_close(said(backbone), before)


@pytest.mark.parametrize("config", [CASES[0], CASES[3], CASES[5]], ids=str)
def test_writing_with_a_cache_sees_inserted_modules_too(config: Config) -> None:
    """Token by token with a cache, a changed backbone says what it says of the whole row."""
    backbone = stirred(config)
    cache = Cache.empty(2, 8)
    with torch.no_grad():
        parts = [backbone(IDS[:, i : i + 1], cache=cache).last for i in range(IDS.shape[1])]
    torch.testing.assert_close(torch.cat(parts, dim=1), said(backbone), atol=1e-5, rtol=1e-4)


def test_mistakes_are_told() -> None:
    """Each message says what must hold and what to do."""
    backbone = stirred(LoraConfig())
    with pytest.raises(ModelError, match=r"has 'lora_q' already; take it out with undo\(model\), or fold it in with merge"):
        insert(backbone, LoraConfig(rank=2), 0)
    with pytest.raises(ConfigError, match="synthesizer attention has no queries and keys.* must not hold q; use v, out"):
        insert(make_backbone(attention="synthesizer"), LoraConfig(), 0)
    with pytest.raises(ConfigError, match="nowhere to insert 'adapter': the backbone has no blocks"):
        insert(make_backbone(depth=0), AdapterConfig(), 0)
    with pytest.raises(ConfigError, match="must name each matrix once, and at least one, but names q, q"):
        LoraConfig.build({"targets": ("q", "q")})
    with pytest.raises(ModelError, match="must name its kind"):
        insert_config({"rank": 3})
    with pytest.raises(ConfigError, match="unknown insert 'lorra'; did you mean 'lora'"):
        insert_config({"kind": "lorra"})
