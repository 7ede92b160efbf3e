"""Models that were made elsewhere: the commands ``import`` and ``export``, and ``load`` for both kinds of folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Config
from warmstart.engine import console
from warmstart.errors import ConfigError
from warmstart.heads import EmbedHead
from warmstart.inserts import LoraConfig, inserted, merge
from warmstart.interop import FAMILIES, find_folder, from_huggingface, read_lora, to_huggingface, write_lora
from warmstart.interop.convert import Imported, import_folder
from warmstart.interop.folder import free_place
from warmstart.model import Bundle, save
from warmstart.model import load as load_bundle
from warmstart.seeding import rng
from warmstart.workflows.portable import export_onnx
from warmstart.workflows.run import load_model, provenance


class ImportConfig(Config):
    """Read a pretrained model in the Hugging Face form, and save it as a bundle that checks itself."""

    source: Positional[str]
    """its folder (config.json, model.safetensors, tokenizer.json), or a hub's owner/name"""
    out: str
    """folder of the bundle"""
    onto: str | None = None
    """the source is a folder of peft's with LoRA weights: a bundle that they are put into"""
    max_tokens: int | None = Field(None, gt=0)
    """longest row, where positions are rotary; default: as the model says, but at most 8192"""


def import_model(config: ImportConfig) -> Bundle:
    """The ``import`` command: read, say what came, save with a self-test."""
    target = free_place(config.out)
    if config.onto:
        return _import_lora(config, config.onto)
    came = import_folder(find_folder(config.source), config.max_tokens)
    for line in describe(came):
        console.print(line, markup=False)
    bundle = _with_entry(came.bundle, {"source": config.source, "provenance": provenance()})
    save(bundle, target)
    console.print(f"bundle: {target} (reloaded in a fresh process, outputs the same)", markup=False)
    return bundle


def _import_lora(config: ImportConfig, model: str) -> Bundle:
    """A bundle with the LoRA weights of a peft folder beside its own."""
    bundle = load_model(model)
    lora = read_lora(bundle, config.source)
    entry: dict[str, Any] = {"command": "import", "source": config.source, "lora": lora.plain(), "provenance": provenance()}
    old = bundle.history[-1] if bundle.history else {}
    kept: dict[str, Any] = {key: old[key] for key in ("generates", "objective", "family", "config") if key in old}
    made = Bundle(bundle.model, bundle.tokenizer, bundle.labels, (*bundle.history, {**kept, **entry}))
    save(made, config.out)
    console.print(f"bundle: {config.out}, with LoRA of rank {lora.rank} on {', '.join(lora.targets)}", markup=False)
    return made


class ExportConfig(Config):
    """Write a model in a form that other tools read."""

    model: Positional[str]
    """a bundle, or a run's folder"""
    out: str
    """folder to make"""
    to: Literal["hf", "peft", "onnx"] = "hf"
    """hf: config.json, model.safetensors and tokenizer.json, as transformers reads them; peft: a model's LoRA weights alone; onnx:
    one graph from token ids to what the head says, as onnxruntime runs it"""
    int8: bool = False
    """onnx: also write the graph with weights of 8 bits"""
    task: str | None = None
    """onnx: the task's manifest (YAML); each form's score on its test split, and its speed"""


def export_model(config: ExportConfig) -> Path:
    """The ``export`` command: fold LoRA in, write, read back and compare."""
    if config.to != "onnx" and (config.int8 or config.task):
        raise ConfigError(f"--int8 and --task go with --to onnx, but --to is {config.to}; leave them out")
    bundle = load_model(config.model)
    if config.to == "peft":
        write_lora(bundle, config.out)
        console.print(f"{config.out}: LoRA weights for peft; `--to hf` of the model without them writes their base", markup=False)
        return Path(config.out)
    if config.to == "onnx":
        return export_onnx(bundle, Path(config.out), config.task, int8=config.int8)
    if any(isinstance(made, LoraConfig) for made in inserted(bundle.model)):
        merge(bundle.model)
    name = to_huggingface(bundle, config.out)
    gap = parity(bundle, from_huggingface(config.out))
    console.print(f"{config.out}: {FAMILIES[name].title} ({name}); read back, outputs differ by at most {gap:.2g}", markup=False)
    return Path(config.out)


@torch.inference_mode()
def parity(one: Bundle, other: Bundle) -> float:
    """The largest difference of two bundles' outputs on a few rows of random tokens that both know."""
    size = min(one.tokenizer.vocab_size, other.tokenizer.vocab_size)
    width = min(64, one.model.backbone.config.max_tokens)
    ids = torch.from_numpy(rng(0, "parity").integers(0, size, (4, width)))
    first, second = (bundle.model(ids) for bundle in (one, other))
    shared = min(first.shape[-1], second.shape[-1])  # rows that were added on the way in are not written
    return float((first[..., :shared] - second[..., :shared]).abs().max())


def load(folder: str | Path, *, selftest: bool = False) -> Bundle:
    """The bundle in a folder; ``hf:FOLDER`` or ``hf:OWNER/NAME`` reads a model in the Hugging Face form.

    With ``selftest`` a bundle must also reproduce the outputs that were stored when it was saved.
    """
    if str(folder).startswith("hf:"):
        return from_huggingface(find_folder(str(folder)))
    return load_bundle(folder, selftest=selftest)


def describe(came: Imported) -> list[str]:
    """What came and what did not, one line each."""
    bundle, family = came.bundle, FAMILIES[came.family]
    shape, head = bundle.model.backbone.config, bundle.model.head
    count = sum(parameter.numel() for parameter in bundle.model.parameters())
    gives = (
        "a language head" if not isinstance(head, EmbedHead) else f"no language head: it gives embeddings ({head.config.pooling})"
    )
    specials, tokenizer = bundle.tokenizer.specials, bundle.tokenizer
    lines = [
        f"family:  {family.title} ({came.family}): width {shape.width}, depth {shape.depth}, heads {shape.heads}",
        f"came:    {len(bundle.model.weights())} tensors, {count:,} parameters; {gives}",
        f"texts:   {tokenizer.token(specials.begin)} text {tokenizer.token(specials.eos)}, at most {shape.max_tokens:,} tokens",
    ]
    if came.left_out:
        lines.append(f"left:    {', '.join(came.left_out)}")
    if came.added:
        lines.append(f"added:   {', '.join(came.added)} (their rows are the mean of all others)")
    if spare := bundle.model.backbone.vocab_size - tokenizer.vocab_size:
        lines.append(f"spare:   {spare} rows of the embedding that no token has")
    return lines


def _with_entry(bundle: Bundle, more: dict[str, Any]) -> Bundle:
    return Bundle(bundle.model, bundle.tokenizer, bundle.labels, ({**bundle.history[0], **more},))
