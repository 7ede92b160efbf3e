"""Broken models, each with the check that must catch it; and changes that break nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from helpers.models import make_backbone
from warmstart.adapters.registry import insert_adapter
from warmstart.adapters.settings import LoraConfig
from warmstart.backbone.attention import AttentionMask
from warmstart.heads.per_text import ClassificationHeadConfig, RegressionHeadConfig
from warmstart.heads.pooled import pool_last
from warmstart.heads.settings import HeadConfig, LMHeadConfig
from warmstart.model.bundle import Bundle, Calibration, Language
from warmstart.model.history import DataRecord, Record
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.system.storage import SEAL, sealed, sha256
from warmstart.tokenizer.tokenizer import Tokenizer

LABELS = ("tea", "milk", "water")


def bases(tokenizer: Tokenizer) -> dict[str, Bundle]:
    """The sound models that mutants are made of."""

    def bundle(head: HeadConfig, trained: Language | Record | None = None, causal: bool = False, **switches: Any) -> Bundle:
        backbone = make_backbone(vocab_size=tokenizer.vocab_size, **{"dropout": 0.1, **switches})
        labels = LABELS if hasattr(head, "classes") else ()
        made = Bundle(Model(backbone, fresh_head(head, backbone, 0), causal=causal).eval(), tokenizer, labels)
        if isinstance(trained, Language):
            return replace(made, language=trained)
        return replace(made, history=(trained,)) if trained else made

    def pretrained(name: str) -> Language:
        return Language(objective=ObjectiveConfig(name=name), generates=name == "causal")

    adapted = Record(command="adapt", data=(DataRecord(name="cups", with_labels=True, labels=LABELS, sizes={"train": 9}),))
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


RELOAD = "the reload after it is written"
"""what catches a module that does something else than its settings say: the model that is read again is another one"""


@dataclass(frozen=True)
class CodeMutant:
    """A model broken before it is saved: one of its modules, or its settings."""

    name: str
    base: str
    check: str
    change: Callable[[Bundle], Any]
    """breaks the bundle in place, or returns a broken one"""

    def broken(self, sound: dict[str, Bundle]) -> Bundle:
        """A copy of its base, broken."""
        bundle = copy.deepcopy(sound[self.base])
        made = self.change(bundle)
        return made if isinstance(made, Bundle) else bundle


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


def with_labels(bundle: Bundle, *names: str) -> Bundle:
    return replace(bundle, labels=names)


def with_specials(bundle: Bundle, **ids: int) -> Bundle:
    made = Tokenizer(bundle.tokenizer.to_json())
    made.specials = replace(made.specials, **ids)
    return replace(bundle, tokenizer=made)


def fill(tensor: Tensor, value: float) -> None:
    with torch.no_grad():
        tensor.fill_(value)


def block(bundle: Bundle, depth: int = 0) -> Any:
    return bundle.model.backbone.blocks[depth]


IN_CODE = [
    CodeMutant("a model that reads both sides is causal at depth 1", "masked", RELOAD,
         lambda b: attention(b, (1,), lambda m: replace(m, causal=True))),
    CodeMutant("`generates` is set on a masked model", "masked", "objective",
               lambda b: replace(b, language=Language(generates=True, objective=b.objective))),
    CodeMutant("a causal model is set to read both sides", "causal", "objective", lambda b: setattr(b.model, "causal", False)),
    CodeMutant("the last token is pooled instead of the mean", "labels", RELOAD,
         lambda b: setattr(b.model.head, "pooling", pool_last)),
    CodeMutant("the norm comes after the branch", "causal", RELOAD, lambda b: setattr(block(b), "norm_first", False)),
    CodeMutant("dropout is on when the head predicts", "labels", RELOAD,
         lambda b: setattr(b.model.head.dropout, "forward", lambda x, **_: F.dropout(x, 0.3, True))),
    CodeMutant("rotary positions turn the other way", "causal", RELOAD, lambda b: b.model.backbone.positions.sin.neg_()),
    CodeMutant("an untied head with other values", "causal", RELOAD,
         lambda b: setattr(b.model.head, "weight", nn.Parameter(b.model.backbone.embedding.weight.detach() + 0.01))),
    CodeMutant("two label names are swapped", "labels", "label names", lambda b: with_labels(b, "milk", "tea", "water")),
    CodeMutant("two special tokens share an id", "masked", RELOAD, lambda b: with_specials(b, pad=2)),
    CodeMutant("nan in one row of the embedding", "causal", "finite",
         lambda b: fill(b.model.backbone.embedding.weight[7], float("nan"))),
    CodeMutant("one layer in half precision", "causal", "finite", lambda b: block(b).feedforward.half()),
]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- edits of files


def swap(values: dict[str, Any], one: str, other: str) -> None:
    values[one], values[other] = values[other], values[one]


def exchange(tensor: Tensor, row: int) -> None:
    """A row and the next one change places."""
    tensor[[row, row + 1]] = tensor[[row + 1, row]]


def untie(manifest: dict[str, Any], tensors: dict[str, Tensor], factor: float) -> None:
    """The head has a weight of its own: the embedding times a factor."""
    manifest["head"]["tied"] = False
    tensors["head.weight"] = tensors["backbone.embedding.weight"] * factor


def widen(manifest: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """The embedding, which the head shares, has each of its rows three times."""
    manifest["vocab_size"] *= 3
    tensors["backbone.embedding.weight"] = tensors["backbone.embedding.weight"].repeat(3, 1)


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
               lambda m, t, s: (m.update(labels=["milk", "tea", "water"]), m["history"][0]["data"][0].update(labels=m["labels"]))),
    FileMutant("the temperature is changed", "labels", "stored calibration",
               lambda m, t, s: m["calibration"].update(temperature=1.3)),
    FileMutant("twice the maximum length", "causal", "stored length", lambda m, t, s: m["backbone"].update(max_length=64)),
    FileMutant("another rotary base", "causal", "stored outputs", lambda m, t, s: m["backbone"].update(rotary_base=500.0)),
    FileMutant("the direction is turned", "causal", "stored outputs", lambda m, t, s: m.update(causal=False)),
    FileMutant("`generates` is set on a masked model", "masked", "objective",
               lambda m, t, s: m["language"].update(generates=True)),
    *(FileMutant(f"rows {one} and {one + 1} of the embedding are exchanged", base, "stored vocabulary",
                 lambda m, t, s, i=one: exchange(t["backbone.embedding.weight"], i))
      for base in ("masked", "labels") for one in range(6, 300, 42)),
    FileMutant("two learned positions are exchanged", "learned", "stored vocabulary",
               lambda m, t, s: exchange(t["backbone.positions.weight"], 20)),
    FileMutant("two tokens exchange their ids", "labels", "stored vocabulary", lambda m, t, s: swap(s["model"]["vocab"], "e", "a")),
    FileMutant("two special tokens exchange their ids", "causal", "stored vocabulary",
               lambda m, t, s: rename_token(s, "[PAD]", "[MASK]")),
    FileMutant("weights are rounded to bfloat16", "causal", "stored outputs",
               lambda m, t, s: t.update({name: tensor.bfloat16().float() for name, tensor in t.items()})),
    FileMutant("another pooling", "labels", "stored outputs", lambda m, t, s: m["head"].update(pooling="last")),
    FileMutant("an untied head with other values", "causal", "stored outputs", lambda m, t, s: untie(m, t, 1.1)),
    FileMutant("another mean of a regression", "number", "stored predictions", lambda m, t, s: m["head"].update(mean=4.0)),
    FileMutant("the vocabulary is permuted", "causal", "stored tokens", lambda m, t, s: swap(s["model"]["vocab"], "e", "a")),
    FileMutant("a normaliser is added to the tokenizer", "causal", "stored tokens",
               lambda m, t, s: s.update(normalizer={"type": "Lowercase"})),
    FileMutant("nan in one row", "masked", "finite", lambda m, t, s: t["backbone.embedding.weight"][7].fill_(float("nan"))),
    FileMutant("a label name is repeated", "labels", "label names", lambda m, t, s: m.update(labels=["tea", "tea", "water"])),
    FileMutant("the tokenizer has a decoder too few", "causal", "tokenizer round trip",
               lambda m, t, s: s.update(decoder={"type": "Fuse"})),
    FileMutant("the embedding has three times as many rows as tokens", "learned", "vocabulary size", lambda m, t, s: widen(m, t)),
    *(FileMutant(f"{name} is overwritten with zeros", base, "dead units", lambda m, t, s, name=name: t[name].zero_())
      for base, name in (("causal", "backbone.blocks.0.feedforward.out.weight"),
                         ("causal", "backbone.blocks.0.attention.out.weight"), ("labels", "head.score.weight"))),
]  # fmt: skip


SCORED = "the predictions that were scored (`adapt`)"
"""what catches the mutants below"""
IN_TRAINING = [
    FileMutant("two rows of the head were exchanged after scoring", "labels", SCORED,
               lambda m, t, s: exchange(t["head.score.weight"], 0)),
    FileMutant("label names were swapped after scoring, in the history too", "labels", SCORED,
               lambda m, t, s: (m.update(labels=["milk", "tea", "water"]), m["history"][0]["data"][0].update(labels=m["labels"]))),
    FileMutant("the vocabulary was permuted after scoring", "labels", SCORED,
               lambda m, t, s: reverse_ids(s["model"]["vocab"])),
]  # fmt: skip
"""As if the model had been broken between scoring and saving: what is stored with it agrees with what is broken."""

HARMLESS = [
    FileMutant("an untied head with the values of the embedding", "causal", "", lambda m, t, s: untie(m, t, 1.0)),
    FileMutant("another dropout for training", "labels", "", lambda m, t, s: m["backbone"].update(dropout=0.3)),
    FileMutant("a longer history", "causal", "", lambda m, t, s: m["history"].insert(0, {"command": "note"})),
    FileMutant("the tokens of tokenizer.json in another order", "causal", "",
               lambda m, t, s: s["model"].update(vocab=dict(reversed(s["model"]["vocab"].items())))),
]  # fmt: skip
