"""Broken models, each with the check that must catch it; and changes that break nothing.

``python -m helpers.mutants`` (in ``tests``) writes the tables of docs/how-to/doctor.md anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from helpers.models import make_backbone, make_language_model
from warmstart import products
from warmstart.adapters import insert_adapter
from warmstart.adapters.lora import LoraConfig
from warmstart.backbone import backbone as backbone_file
from warmstart.backbone.attention import AttentionMask, LayerKVCache
from warmstart.backbone.positions import Rotary
from warmstart.heads.classification import ClassificationHeadConfig
from warmstart.heads.head import HeadConfig
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.heads.pooling import pool_last
from warmstart.heads.regression import RegressionHeadConfig
from warmstart.model import inference
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.checks import CHECKS
from warmstart.model.history import AdaptRecord, PretrainRecord, TaskRecord
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.storage import SEAL, sealed, sha256
from warmstart.tokenizer.tokenizer import Tokenizer

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "doctor.md"
LABELS = ("tea", "milk", "water")


def bases(tokenizer: Tokenizer) -> dict[str, Bundle]:
    """The sound models that mutants are made of."""

    def bundle(head: HeadConfig, *history: Any, causal: bool = False, **switches: Any) -> Bundle:
        backbone = make_backbone(vocab_size=tokenizer.vocab_size, **{"dropout": 0.1, **switches})
        labels = LABELS if hasattr(head, "classes") else ()
        return Bundle(Model(backbone, fresh_head(head, backbone, 0), causal=causal).eval(), tokenizer, labels, history)

    def pretrained(name: str) -> PretrainRecord:
        return PretrainRecord(objective=ObjectiveConfig(name=name), generates=name == "causal")

    adapted = AdaptRecord(task=TaskRecord(name="cups", type="classification", labels=LABELS, train=9), seed=0)
    labels = bundle(ClassificationHeadConfig(classes=3, dropout=0.1), adapted)
    lora = bundle(ClassificationHeadConfig(classes=3), adapted)
    insert_adapter(lora.model.backbone, LoraConfig(rank=2), 0)
    with torch.no_grad():
        for name, parameter in lora.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    return {
        "causal": bundle(LMHeadConfig(), pretrained("causal"), causal=True),
        "masked": bundle(LMHeadConfig(), pretrained("masked"), depth=3, window=2, global_every=2),
        "learned": bundle(LMHeadConfig(), pretrained("masked"), positions="learned"),
        "sinusoidal": bundle(LMHeadConfig(), pretrained("masked"), positions="sinusoidal"),
        "labels": replace(labels, calibration=Calibration(temperature=1.5, interval=(1.2, 1.9))),
        "lora": lora,
        "number": bundle(RegressionHeadConfig(mean=3.0, std=2.0)),
    }


@dataclass(frozen=True)
class CodeMutant:
    """A model broken before it is saved: one of its modules, its settings, or the code that reads it."""

    name: str
    base: str
    check: str
    change: Callable[[Bundle, pytest.MonkeyPatch], Bundle | None]
    """breaks the bundle in place, or returns a broken one"""


@dataclass(frozen=True)
class FileMutant:
    """A saved model, edited; every hash is made to match again."""

    name: str
    base: str
    check: str
    change: Callable[[dict[str, Any], dict[str, Tensor], dict[str, Any]], None]
    """edits manifest, tensors and ``tokenizer.json`` in place"""


def edit(folder: Path, change: Callable[[dict[str, Any], dict[str, Tensor], dict[str, Any]], None]) -> None:
    """Edit a bundle, and rewrite its hashes, so that only what it does can give it away."""
    manifest, tensors = json.loads((folder / "bundle.json").read_text()), load_file(folder / "weights.safetensors")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    change(manifest, tensors, tokenizer)
    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    save_file(tensors, folder / "weights.safetensors")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    manifest["files"] = {name: sha256((folder / name).read_bytes()) for name in manifest["files"]}
    manifest["tensors"] = {
        name: [list(tensor.shape), sha256(tensor.flatten().view(torch.uint8).numpy().data)] for name, tensor in tensors.items()
    }
    manifest.pop(SEAL)
    (folder / "bundle.json").write_text(json.dumps(sealed(manifest), ensure_ascii=False))


# ---------------------------------------------------------------------------------------------------- ways to break a module


def attention(bundle: Bundle, depths: tuple[int, ...], change: Callable[[AttentionMask], AttentionMask]) -> None:
    """Attention at these depths gets another mask."""
    for depth in depths:
        module = bundle.model.backbone.blocks[depth].attention
        original = module.forward

        def forward(x: Tensor, mask: AttentionMask, *rest: Any, _original: Any = original, **named: Any) -> Any:
            return _original(x, change(mask), *rest, **named)

        module.forward = forward


def output(module: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    """A module's output is changed."""
    original = module.forward
    module.forward = lambda *inputs, **named: change(original(*inputs, **named))


def only_itself(mask: AttentionMask) -> AttentionMask:
    """A token attends to nothing else."""
    return replace(mask, window=0)


class Stubborn(nn.Dropout):
    """Dropout that ``eval`` does not turn off."""

    def train(self, mode: bool = True) -> Stubborn:
        """Always in training mode."""
        return super().train(True)


def one_late(patch: pytest.MonkeyPatch) -> None:
    """Cached keys come one token late."""
    extend = LayerKVCache.extend

    def late(self: LayerKVCache, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        all_keys, all_values = extend(self, keys, values)
        return all_keys.roll(1, dims=2) if all_keys.shape[2] > keys.shape[2] else all_keys, all_values

    patch.setattr(LayerKVCache, "extend", late)


def next_token_seen(patch: pytest.MonkeyPatch) -> None:
    """The causal mask is one token too wide."""
    matrix = AttentionMask.__dict__["matrix"].func

    def wide(self: AttentionMask) -> Tensor:
        found = matrix(self)
        return found | found.roll(1, dims=-1) if self.causal and found.shape[-1] == found.shape[-2] else found

    patch.setattr(AttentionMask, "matrix", property(wide))


def shuffled(patch: pytest.MonkeyPatch) -> None:
    """Batches are sorted by length, and their outputs are not put back in the order of the texts."""
    original = inference.sorted_batches

    def batches(*inputs: Any, **named: Any) -> Iterator[Any]:
        return ((indices.copy() * 0 + sorted(indices), batch) for indices, batch in original(*inputs, **named))

    patch.setattr(inference, "sorted_batches", batches)


def settings(bundle: Bundle, **changes: Any) -> None:
    """The settings of the backbone say something else than its modules do."""
    bundle.model.backbone.config = bundle.model.backbone.config.model_copy(update=changes)


def with_labels(bundle: Bundle, *names: str) -> Bundle:
    return replace(bundle, labels=names)


def with_tokenizer(bundle: Bundle, change: Callable[[dict[str, Any]], None]) -> Bundle:
    spec = json.loads(bundle.tokenizer.to_json())
    change(spec)
    return replace(bundle, tokenizer=Tokenizer(json.dumps(spec)))


def with_specials(bundle: Bundle, **ids: int) -> Bundle:
    made = Tokenizer(bundle.tokenizer.to_json())
    made.specials = replace(made.specials, **ids)
    return replace(bundle, tokenizer=made)


def with_record(bundle: Bundle, **changes: Any) -> Bundle:
    return replace(bundle, history=(bundle.history[-1].model_copy(update=changes),))


def fill(tensor: Tensor, value: float) -> None:
    with torch.no_grad():
        tensor.fill_(value)


def heavy(bundle: Bundle) -> None:
    """Large weights that cancel each other, but not when their products are rounded."""
    layer = bundle.model.backbone.blocks[0].feedforward
    with torch.no_grad():
        layer.inner.weight[1], layer.inner.bias[:2] = layer.inner.weight[0], 10.0
        layer.inner.weight[0] *= 1.002
        large = torch.linspace(-1e3, 1e3, len(layer.out.weight))
        layer.out.weight[:, 0], layer.out.weight[:, 1] = large, -large


def block(bundle: Bundle, depth: int = 0) -> Any:
    return bundle.model.backbone.blocks[depth]


def code(name: str, base: str, check: str, change: Callable[[Bundle, pytest.MonkeyPatch], Any]) -> CodeMutant:
    """A mutant whose change returns a bundle, or anything else if it works in place."""

    def changed(bundle: Bundle, patch: pytest.MonkeyPatch) -> Bundle | None:
        made = change(bundle, patch)
        return made if isinstance(made, Bundle) else None

    return CodeMutant(name, base, check, changed)


IN_CODE = [
    code("the attention mask is ignored", "masked", "attention mask",
         lambda b, p: attention(b, (0, 1, 2), lambda m: replace(m, real=None))),
    code("the mask is ignored at depth 2 alone", "masked", "attention mask",
         lambda b, p: attention(b, (2,), lambda m: replace(m, real=None))),
    code("the mask is inverted", "masked", "padding on the right",
         lambda b, p: attention(b, (0,), lambda m: replace(m, real=None if m.real is None else ~m.real))),
    code("pooling counts padding", "labels", "padding on the right",
         lambda b, p: setattr(b.model.head, "pooling", lambda s, m: s.mean(1))),
    code("the last column is pooled, not the last token", "labels", "padding on the right",
         lambda b, p: setattr(b.model.head, "pooling", lambda s, m: s[:, -1])),
    code("positions count padding on the left", "learned", "padding on the left",
         lambda b, p: p.setattr(backbone_file, "_position_ids", lambda ids, _, past: past + torch.arange(ids.shape[1])[None])),
    code("states are centred over the batch", "masked", "batch mates",
         lambda b, p: output(block(b).feedforward, lambda x: x - x.mean(0, keepdim=True))),
    code("the size of the batch scales states", "labels", "batch mates",
         lambda b, p: output(block(b).feedforward, lambda x: x * (1 + len(x) / 10))),
    code("outputs stay in the order of lengths", "labels", "order of rows", lambda b, p: shuffled(p)),
    code("inference weights replace a patched layer", "labels", "inference layout",
         lambda b, p: (p.setattr(products, "_in_use", "onednn"), output(b.model.head.score, lambda x: x * 1.5))),
    code("attention is not causal", "causal", "causal leak", lambda b, p: attention(b, (0, 1), lambda m: replace(m, causal=False))),
    code("a causal leak at depth 1 alone", "causal", "causal leak",
         lambda b, p: attention(b, (1,), lambda m: replace(m, causal=False))),
    code("a token attends to the next one", "causal", "causal leak", lambda b, p: next_token_seen(p)),
    code("a layer averages over the whole row", "causal", "causal leak",
         lambda b, p: output(block(b, 1).feedforward, lambda x: x + x.mean(1, keepdim=True))),
    code("states depend on the length of the row", "causal", "prefix",
         lambda b, p: output(b.model.backbone.dropout, lambda x: x * (1 + x.shape[1] / 50))),
    code("cached keys come one token late", "causal", "KV cache", lambda b, p: one_late(p)),
    code("positions start again behind the cache", "causal", "KV cache",
         lambda b, p: p.setattr(backbone_file, "_position_ids", lambda ids, mask, past: torch.arange(ids.shape[1])[None])),
    code("tokens attend to themselves alone", "masked", "reach", lambda b, p: attention(b, (1,), only_itself)),
    code("a model that reads both sides is causal at depth 1", "masked", "reach",
         lambda b, p: attention(b, (1,), lambda m: replace(m, causal=True))),
    code("`generates` is set on a masked model", "masked", "objective", lambda b, p: with_record(b, generates=True)),
    code("a causal model is set to read both sides", "causal", "objective", lambda b, p: setattr(b.model, "causal", False)),
    code("gelu instead of its tanh form", "causal", "settings",
         lambda b, p: setattr(block(b).feedforward, "activation", "gelu-tanh")),
    code("another epsilon of one layer norm", "causal", "settings", lambda b, p: setattr(block(b, 1).norm_1, "eps", 0.1)),
    code("the local window is ignored", "masked", "settings", lambda b, p: attention(b, (1,), lambda m: replace(m, window=None))),
    code("the last token is pooled instead of the mean", "labels", "settings",
         lambda b, p: setattr(b.model.head, "pooling", pool_last)),
    code("LoRA is scaled twice", "lora", "settings",
         lambda b, p: [setattr(one, "scale", 2 * one.scale) for one in b.model.modules() if hasattr(one, "lora_A")]),
    code("the norm comes after the branch", "causal", "settings", lambda b, p: setattr(block(b), "norm_first", False)),
    code("dropout is on when the head predicts", "labels", "evaluation mode",
         lambda b, p: setattr(b.model.head.dropout, "forward", lambda x: F.dropout(x, 0.3, True))),
    code("a dropout layer ignores `eval`", "labels", "evaluation mode",
         lambda b, p: setattr(b.model.head, "dropout", Stubborn(0.3))),
    code("noise is added to the embedding", "masked", "evaluation mode",
         lambda b, p: output(b.model.backbone.embedding, lambda x: x + 0.01 * torch.rand_like(x))),
    code("the temperature is five times the fitted one", "labels", "temperature",
         lambda b, p: replace(b, calibration=b.calibration.model_copy(update={"temperature": 7.5}))),
    code("twice the maximum length in the settings", "learned", "maximum length", lambda b, p: settings(b, max_length=64)),
    code("half the maximum length in the settings", "causal", "maximum length", lambda b, p: settings(b, max_length=16)),
    code("another rotary base", "causal", "position table",
         lambda b, p: setattr(b.model.backbone, "positions", Rotary(32, 8, 500.0))),
    code("rotary positions turn the other way", "causal", "position table", lambda b, p: b.model.backbone.positions.sin.neg_()),
    code("the sinusoidal table is shifted by one", "sinusoidal", "position table",
         lambda b, p: b.model.backbone.positions.table.copy_(b.model.backbone.positions.table.roll(1, 0))),
    code("an untied head with other values", "causal", "tied weights",
         lambda b, p: setattr(b.model.head, "weight", nn.Parameter(b.model.backbone.embedding.weight.detach() + 0.01))),
    code("two label names are swapped", "labels", "label names", lambda b, p: with_labels(b, "milk", "tea", "water")),
    code("a label name is repeated", "labels", "label names", lambda b, p: with_labels(b, "tea", "tea", "water")),
    code("special ids are swapped", "causal", "special ids", lambda b, p: with_specials(b, pad=3, mask=0)),
    code("two special tokens share an id", "masked", "special ids", lambda b, p: with_specials(b, pad=2)),
    code("the tokenizer has a decoder too few", "causal", "tokenizer round trip",
         lambda b, p: with_tokenizer(b, lambda spec: spec.update(decoder={"type": "Fuse"}))),
    code("the embedding has three times as many rows as tokens", "learned", "vocabulary size",
         lambda b, p: replace(b, model=make_language_model(vocab_size=990, causal=False))),
    code("nan in one row of the embedding", "causal", "finite",
         lambda b, p: fill(b.model.backbone.embedding.weight[7], float("nan"))),
    code("one infinite bias", "labels", "finite", lambda b, p: fill(b.model.head.score.bias[1:2], float("inf"))),
    code("one layer in half precision", "causal", "one dtype", lambda b, p: block(b).feedforward.half()),
    code("weights that cancel each other until they are rounded", "masked", "bfloat16", lambda b, p: heavy(b)),
    code("a dead feed-forward layer", "causal", "dead units", lambda b, p: fill(block(b).feedforward.out.weight, 0)),
    code("a dead attention layer", "causal", "dead units", lambda b, p: fill(block(b).attention.out.weight, 0)),
    code("a dead head", "labels", "dead units", lambda b, p: fill(b.model.head.score.weight, 0)),
    code("embeddings that overflow", "causal", "test texts", lambda b, p: output(b.model.backbone.embedding, lambda x: x * 1e38)),
]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- edits of files


def swap(values: dict[str, Any], one: str, other: str) -> None:
    values[one], values[other] = values[other], values[one]


def untie(manifest: dict[str, Any], tensors: dict[str, Tensor], factor: float) -> None:
    """The head has a weight of its own: the embedding times a factor."""
    manifest["head"]["tied"] = False
    tensors["head.weight"] = tensors["backbone.embedding.weight"] * factor


def rename_token(spec: dict[str, Any], one: str, other: str) -> None:
    """Two special tokens change places."""
    swap(spec["model"]["vocab"], one, other)
    ids = {one: spec["model"]["vocab"][one], other: spec["model"]["vocab"][other]}
    for token in spec["added_tokens"]:
        token["id"] = ids.get(token["content"], token["id"])
    spec["added_tokens"].sort(key=lambda token: token["id"])


def reverse_ids(vocabulary: dict[str, int]) -> None:
    """Ordinary tokens change places."""
    names = [name for name in vocabulary if not name.startswith("[")]
    vocabulary.update(zip(names, [vocabulary[name] for name in reversed(names)], strict=True))


IN_FILES = [
    FileMutant("two label names are swapped", "labels", "stored predictions",
               lambda m, t, s: m.update(labels=["milk", "tea", "water"])),
    FileMutant("two label names are swapped, in the history too", "labels", "stored predictions",
               lambda m, t, s: (m.update(labels=["milk", "tea", "water"]), m["history"][0]["task"].update(labels=m["labels"]))),
    FileMutant("the temperature is changed", "labels", "stored calibration",
               lambda m, t, s: m["calibration"].update(temperature=1.3)),
    FileMutant("half the maximum length", "causal", "stored length", lambda m, t, s: m["backbone"].update(max_length=16)),
    FileMutant("twice the maximum length", "causal", "stored length", lambda m, t, s: m["backbone"].update(max_length=64)),
    FileMutant("another rotary base", "causal", "stored outputs", lambda m, t, s: m["backbone"].update(rotary_base=500.0)),
    FileMutant("the direction is turned", "causal", "stored outputs", lambda m, t, s: m.update(causal=False)),
    FileMutant("`generates` is set on a masked model", "masked", "objective",
               lambda m, t, s: m["history"][0].update(generates=True)),
    FileMutant("gelu in its tanh form", "causal", "stored outputs", lambda m, t, s: m["backbone"].update(activation="gelu-tanh")),
    FileMutant("another epsilon of layer norms", "causal", "stored outputs", lambda m, t, s: m["backbone"].update(norm_eps=1e-2)),
    FileMutant("embeddings are scaled", "masked", "stored outputs", lambda m, t, s: m["backbone"].update(scale_embeddings=True)),
    FileMutant("learned positions are shifted by one", "learned", "stored outputs",
               lambda m, t, s: t.update({"backbone.positions.weight": t["backbone.positions.weight"].roll(1, 0)})),
    FileMutant("two blocks are exchanged", "causal", "stored outputs",
               lambda m, t, s: [swap(t, name, name.replace("blocks.0", "blocks.1")) for name in list(t) if "blocks.0" in name]),
    FileMutant("two rows of the embedding are exchanged", "masked", "stored outputs",
               lambda m, t, s: t["backbone.embedding.weight"].__setitem__([100, 101], t["backbone.embedding.weight"][[101, 100]])),
    FileMutant("weights are rounded to bfloat16", "causal", "stored outputs",
               lambda m, t, s: t.update({name: tensor.bfloat16().float() for name, tensor in t.items()})),
    FileMutant("two rows of the head are exchanged", "labels", "stored predictions",
               lambda m, t, s: t["head.score.weight"].__setitem__([0, 1], t["head.score.weight"][[1, 0]])),
    FileMutant("another pooling", "labels", "stored outputs", lambda m, t, s: m["head"].update(pooling="last")),
    FileMutant("an untied head with other values", "causal", "stored outputs", lambda m, t, s: untie(m, t, 1.1)),
    FileMutant("another mean of a regression", "number", "stored predictions", lambda m, t, s: m["head"].update(mean=4.0)),
    FileMutant("the vocabulary is permuted", "causal", "stored tokens", lambda m, t, s: swap(s["model"]["vocab"], "e", "a")),
    FileMutant("special tokens are swapped", "causal", "stored tokens", lambda m, t, s: rename_token(s, "[EOS]", "[MASK]")),
    FileMutant("a normaliser is added to the tokenizer", "causal", "stored tokens",
               lambda m, t, s: s.update(normalizer={"type": "Lowercase"})),
    FileMutant("nan in one row", "masked", "finite", lambda m, t, s: t["backbone.embedding.weight"][7].fill_(float("nan"))),
    FileMutant("LoRA has twice the strength", "lora", "stored outputs", lambda m, t, s: m["adapters"][0].update(alpha=32.0)),
]  # fmt: skip


SCORED = "the predictions that were scored (`adapt`)"
"""what catches the mutants below"""
IN_TRAINING = [
    FileMutant("two rows of the head were exchanged after scoring", "labels", SCORED,
               lambda m, t, s: t["head.score.weight"].__setitem__([0, 1], t["head.score.weight"][[1, 0]])),
    FileMutant("label names were swapped after scoring, in the history too", "labels", SCORED,
               lambda m, t, s: (m.update(labels=["milk", "tea", "water"]), m["history"][0]["task"].update(labels=m["labels"]))),
    FileMutant("the vocabulary was permuted after scoring", "labels", SCORED,
               lambda m, t, s: reverse_ids(s["model"]["vocab"])),
]  # fmt: skip
"""As if the model had been broken between scoring and saving: what is stored with it agrees with what is broken."""

HARMLESS = [
    FileMutant("an untied head with the values of the embedding", "causal", "", lambda m, t, s: untie(m, t, 1.0)),
    FileMutant("another dropout for training", "labels", "", lambda m, t, s: m["backbone"].update(dropout=0.3)),
    FileMutant("a longer history", "causal", "", lambda m, t, s: m["history"].insert(0, {"type": "other", "name": "note"})),
    FileMutant("the tokens of tokenizer.json in another order", "causal", "",
               lambda m, t, s: s["model"].update(vocab=dict(reversed(s["model"]["vocab"].items())))),
]  # fmt: skip


def tables() -> dict[str, str]:
    """The checks and the mutants as tables in Markdown."""
    checks = [f"| {name} | {one.promise} | {', '.join(one.moments)} |" for name, one in CHECKS.items()]
    made = [*((one, "code") for one in IN_CODE), *((one, "files") for one in (*IN_FILES, *IN_TRAINING))]
    mutants = [f"| {one.name} | {how} | {one.check} |" for one, how in made]
    return {
        "checks": "\n".join(["| check | what holds | also at |", "| --- | --- | --- |", *checks]),
        "mutants": "\n".join(["| what is broken | where | caught by |", "| --- | --- | --- |", *mutants]),
    }


def with_tables(page: str) -> str:
    """The page with its tables written anew."""
    for name, table in tables().items():
        begin, end = (f"<!-- {name}: {word} -->\n" for word in ("begin", "end"))
        before, rest = page.split(begin)
        page = f"{before}{begin}{table}\n{end}{rest.split(end)[1]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
