"""Models that were made elsewhere: the commands ``import`` and ``export``, and ``load`` for both kinds of folder."""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Config
from warmstart.console import console
from warmstart.heads.embedding import EmbeddingHead
from warmstart.interop.convert import Imported, import_folder
from warmstart.interop.families import FAMILIES
from warmstart.interop.folder import free_place
from warmstart.interop.hub import find_folder
from warmstart.interop.load import load_model
from warmstart.interop.peft import read_lora
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.history import ImportLoraRecord
from warmstart.run import provenance
from warmstart.seeding import rng


class ImportConfig(Config):
    """Read a pretrained model in the Hugging Face form, and save it as a bundle that checks itself."""

    source: Positional[str]
    """its folder (config.json, model.safetensors, tokenizer.json), or a hub's owner/name"""
    out: str
    """folder of the bundle"""
    onto: str | None = None
    """the source is a folder of peft's with LoRA weights: a bundle that they are put into"""
    max_length: int | None = Field(None, gt=0)
    """longest row, where positions are rotary; default: as the model says, but at most 8192"""


def import_model(config: ImportConfig) -> Bundle:
    """The ``import`` command: read, say what came, save with a self-test."""
    target = free_place(config.out)
    if config.onto:
        return _import_lora(config, config.onto)
    came = import_folder(find_folder(config.source), config.max_length)
    for line in describe(came):
        console.print(line, markup=False)
    record = came.bundle.history[0].model_copy(update={"source": config.source, "provenance": provenance()})
    bundle = replace(came.bundle, history=(record,))
    save(bundle, target)
    console.print(f"bundle: {target} (reloaded in a fresh process, outputs the same)", markup=False)
    return bundle


def _import_lora(config: ImportConfig, model: str) -> Bundle:
    """A bundle with the LoRA weights of a peft folder beside its own."""
    bundle = load_model(model)
    lora = read_lora(bundle, config.source)
    record = ImportLoraRecord(
        objective=bundle.objective,
        generates=bundle.generates,
        source=config.source,
        lora=lora.to_dict(),
        provenance=provenance(),
    )
    made = Bundle(bundle.model, bundle.tokenizer, bundle.labels, (*bundle.history, record))
    save(made, config.out)
    console.print(f"bundle: {config.out}, with LoRA of rank {lora.rank} on {', '.join(lora.targets)}", markup=False)
    return made


@torch.inference_mode()
def bundles_differ(one: Bundle, other: Bundle) -> float:
    """The largest difference of two bundles' outputs on a few rows of random tokens that both know."""
    size = min(one.tokenizer.vocab_size, other.tokenizer.vocab_size)
    width = min(64, one.model.backbone.config.max_length)
    ids = torch.from_numpy(rng(0, "parity").integers(0, size, (4, width)))
    first, second = (bundle.model(ids) for bundle in (one, other))
    shared = min(first.shape[-1], second.shape[-1])  # rows that were added on the way in are not written
    return float((first[..., :shared] - second[..., :shared]).abs().max())


def describe(came: Imported) -> list[str]:
    """What came and what did not, one line each."""
    bundle, family = came.bundle, FAMILIES[came.family]
    shape, head = bundle.model.backbone.config, bundle.model.head
    count = sum(parameter.numel() for parameter in bundle.model.parameters())
    gives = (
        "a language head"
        if not isinstance(head, EmbeddingHead)
        else f"no language head: it gives embeddings ({head.config.pooling})"
    )
    specials, tokenizer = bundle.tokenizer.specials, bundle.tokenizer
    lines = [
        f"family:  {family.title} ({came.family}): width {shape.width}, depth {shape.depth}, heads {shape.heads}",
        f"came:    {len(bundle.model.weights())} tensors, {count:,} parameters; {gives}",
        f"texts:   {tokenizer.token(specials.begin)} text {tokenizer.token(specials.eos)}, at most {shape.max_length:,} tokens",
    ]
    if came.left_out:
        lines.append(f"left:    {', '.join(came.left_out)}")
    if came.added:
        lines.append(f"added:   {', '.join(came.added)} (their rows are the mean of all others)")
    if spare := bundle.model.backbone.vocab_size - tokenizer.vocab_size:
        lines.append(f"spare:   {spare} rows of the embedding that no token has")
    return lines
