"""Tensors of a Hugging Face model into our model and back: one walk over our names with a family's table.

Import and export are the same walk in two directions. Parts of a matrix are stacked by rows, and split again; nothing is
computed, so an imported tensor is exported with the same bits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.block import GATED
from warmstart.backbone.config import BackboneConfig
from warmstart.errors import ConfigError, ModelError, TokenizerError
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.language_modeling import LMHead
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.heads.registry import make_head
from warmstart.heads.settings import HeadConfig, LMHeadConfig
from warmstart.interop.companions import read_companions, read_pooling
from warmstart.interop.families import ACTIVATIONS, FAMILIES, OTHER_FAMILIES, Family
from warmstart.interop.folder import as_float, read_json, read_tensors
from warmstart.interop.settings import ADAPTER_CONFIG, CONFIG_FILE, MODULES_FILE, config_settings, unapplied, whole_files
from warmstart.model.already_read import read_by
from warmstart.model.bundle import Bundle, Language
from warmstart.model.history import IMPORT, Record
from warmstart.model.model import Model
from warmstart.objectives.config import ObjectiveConfig
from warmstart.system.limits import MANIFEST_VALUES, check_depth, refused_if_malformed
from warmstart.tokenizer.specials import types_pairs
from warmstart.tokenizer.tokenizer import Tokenizer

BY_TOKEN = ("backbone.embedding.weight", "head.weight", "head.bias")
"""tensors with a row for each token"""


@dataclass(frozen=True)
class Foreign:
    """A model as another program keeps it, in memory, under the names of the Hugging Face format."""

    config: dict[str, Any]
    """settings under the keys of ``config.json``"""
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer
    name: str = ""
    """name of the folder, the file or the model; it tells what the model has read"""
    pooled: Callable[[], tuple[str, bool, list[str]]] | None = None
    """pooling of a text's states, whether vectors are normalised, and dropped settings; None: not made for embeddings"""
    longest: int | None = None
    """the length at which other programs cut a text, if they are told one"""
    settings: tuple[str, ...] = ()
    """settings that are not applied, one phrase each"""


@dataclass(frozen=True)
class Imported:
    """An imported bundle, and what to report about the import."""

    bundle: Bundle
    family: str
    left_out: tuple[str, ...] = field(default=())
    """tensors of the file that our model does not have"""
    settings: tuple[str, ...] = field(default=())
    """settings that are not applied, one phrase each"""
    added: tuple[str, ...] = field(default=())
    """special tokens that the tokenizer lacked; their embeddings are the mean of all others"""


def from_huggingface(folder: str | Path) -> Bundle:
    """The model in a folder in the Hugging Face format: ``config.json``, ``model.safetensors`` (or shards), ``tokenizer.json``.

    Raises ``ConfigError`` for an unknown family, ``ModelError`` for missing and unknown tensors and files, and ``TokenizerError``
    for a tokenizer that does not fit. transformers is not needed.
    """
    return import_folder(Path(folder)).bundle


def import_folder(place: Path, max_length: int | None = None) -> Imported:
    """Import a folder and report dropped and added settings; ``max_length`` is the maximum length, if not that of the model."""
    if not (place / "config.json").exists() and (place / ADAPTER_CONFIG).exists():
        raise ModelError(
            f"{place} must hold a whole model, but holds only an adapter over one ({ADAPTER_CONFIG}); merge them in PEFT, with "
            "`PeftModel.from_pretrained(model, folder).merge_and_unload().save_pretrained(new)`, and import that folder"
        )
    theirs = read_json(place / "config.json")
    with refused_if_malformed(ModelError, f"{place / 'config.json'}, with the files beside it, must describe a model"):
        family = _family(str(theirs.get("model_type")), theirs)
        settings = unapplied(CONFIG_FILE, theirs, config_settings(family))
        settings += whole_files((file.name for file in place.iterdir()), causal=family.causal)
        tokenizer, longest, beside = read_companions(place, causal=family.causal)
        pooled = partial(read_pooling, place) if (place / MODULES_FILE).exists() else None
        name = "/".join(place.resolve().parts[-2:])
        foreign = Foreign(theirs, read_tensors(place), tokenizer, name, pooled, longest, (*settings, *beside))
        return _assembled(foreign, max_length)


def import_foreign(foreign: Foreign, max_length: int | None = None) -> Imported:
    """A bundle of a model in memory. Raises what ``from_huggingface`` does."""
    with refused_if_malformed(ModelError, f"the settings, weights and tokenizer of {foreign.name} must belong together"):
        return _assembled(foreign, max_length)


def _assembled(foreign: Foreign, max_length: int | None) -> Imported:
    theirs, stored, tokenizer = foreign.config, foreign.tensors, foreign.tokenizer
    name = str(theirs.get("model_type"))
    family = _family(name, theirs)
    config = _with_length(read_settings(family, theirs), max_length)
    if (around := len(tokenizer.opening) + 1) >= config.max_length:
        raise TokenizerError(
            f"a text must fit beside the {around} tokens that are around every text, but only {config.max_length} are read; import "
            "another model"
        )
    head, pooling = _head_for(family, foreign)
    settings = [*foreign.settings, *pooling]
    if config.token_types > 1 and not types_pairs(json.loads(tokenizer.to_json())["post_processor"]):
        settings.append("token type 0 of the second text of a pair (it has type 1)")
    if foreign.longest is not None and foreign.longest < config.max_length:
        settings.append(
            f"the libraries' maximum length of {foreign.longest} (texts of up to {config.max_length} tokens are read "
            f"whole; --max-length {foreign.longest} cuts them there)"
        )
    rows = stored[_table_name(family, stored)].shape[0]
    _check_tokenizer(tokenizer, rows)
    model, left_out = from_tensors(family, config, head, _cut_positions(family, stored, config), rows)
    _grow(model, tokenizer.vocab_size)
    language = Language()
    if isinstance(head, LMHeadConfig):
        language = Language(objective=ObjectiveConfig(name="causal" if family.causal else "masked"), generates=family.causal)
    record = Record(command=IMPORT, settings={"family": name, "config": theirs}, data=read_by(foreign.name))
    added = tuple(tokenizer.token(i) for i in range(rows, tokenizer.vocab_size))
    bundle = Bundle(model, tokenizer, labels_of(family, theirs) or (), (record,), language=language)
    return Imported(bundle, name, left_out, tuple(settings), added)


HEADS_NOT_READ = ("ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice", "ForNextSentencePrediction")
"""endings of the classes of models whose heads are not imported"""
BASE_MODEL = "import its base model, transformers.AutoModel.from_pretrained(FOLDER).save_pretrained(NEW), with its tokenizer"


def _family(name: str, theirs: Mapping[str, Any]) -> Family:
    """The family of a model. Raises ``ConfigError`` for one that we do not have, and ``ModelError`` for heads that are not read."""
    if name not in FAMILIES:
        why = f" ({OTHER_FAMILIES[name]})" if name in OTHER_FAMILIES else ""
        raise ConfigError(f"unknown model_type '{name}'{why}; known: {', '.join(sorted(FAMILIES))}; choose a model of one of these")
    architecture = str((theirs.get("architectures") or [""])[0])
    if architecture.endswith(HEADS_NOT_READ):
        raise ModelError(f"the head of a {architecture} cannot be imported; {BASE_MODEL}, and adapt it")
    return FAMILIES[name]


def read_settings(family: Family, theirs: Mapping[str, Any]) -> BackboneConfig:
    """Our settings for their ``config.json``. Raises ``ModelError`` for unsupported values."""
    for key, value in family.must.items():
        if (actual := theirs.get(key, "absent" if key in family.stated else value)) != value and actual is not None:
            raise ModelError(f"{key} must be {value!r} in a {family.title} model, but is {actual!r}; this model cannot be imported")
    ours = {name: theirs.get(setting.key, setting.default) for name, setting in family.settings.items()}
    if "activation" in ours:
        if ours["activation"] not in ACTIVATIONS:
            raise ModelError(
                f"the activation must be one of {', '.join(ACTIVATIONS)}, but is {ours['activation']!r}; it cannot be imported"
            )
        ours["activation"] = ACTIVATIONS[ours["activation"]]
    if ours["feedforward"] is None:  # GPT-2's n_inner
        ours["feedforward"] = 4 * ours["width"]
    return BackboneConfig.build({**family.fixed, **ours, **family.rules.read(theirs, ours)}, "config.json")


def _with_length(config: BackboneConfig, max_length: int | None) -> BackboneConfig:
    if max_length is None:
        return config
    if config.positions == "learned" and max_length > config.max_length:
        raise ModelError(f"max_length must be at most {config.max_length}, the positions of this model, but is {max_length}")
    return config.model_copy(update={"max_length": max_length})


def _cut_positions(family: Family, stored: Mapping[str, Tensor], config: BackboneConfig) -> Mapping[str, Tensor]:
    """The tensors with as many learned positions as the maximum length has."""
    ends = f"{family.names.get('positions', chr(0))}.weight"
    rows = config.max_length + config.position_offset
    return {name: tensor[:rows] if name.endswith(ends) else tensor for name, tensor in stored.items()}


def from_tensors(
    family: Family, config: BackboneConfig, head: HeadConfig, stored: Mapping[str, Tensor], rows: int
) -> tuple[Model, tuple[str, ...]]:
    """A model made of their tensors, and the names of those left out. Raises ``ModelError`` for missing and unknown ones."""
    check_depth(config.depth, len(stored))
    with torch.device("meta"):
        backbone = Backbone(config, rows)
        model = Model(backbone, make_head(head, config.width, backbone.embedding.weight), causal=family.causal)
    prefix = family.prefix if any(name.startswith(family.prefix) for name in stored) else ""
    wanted = {name: _theirs(family, name, prefix) for name in model.weights()}
    known = {part for names in wanted.values() for part in names}
    left_out = tuple(sorted(name for name in stored.keys() - known if _left_out(family, name)))
    problems = [f"missing: {name}" for name in sorted(known - stored.keys())]
    problems += [f"unknown: {name}" for name in sorted(stored.keys() - known - set(left_out))]
    if problems:
        raise ModelError(
            f"the tensors must be those of a {family.title} model with these settings, but {_some(problems)}; copy the folder "
            "again if it is not whole; if it is, config.json describes another model"
        )
    ours = {name: _joined(family, name, [as_float(stored[part]) for part in names]) for name, names in wanted.items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in model.weights().items()}
    if odd := [f"{name} is {tuple(ours[name].shape)}, not {shape}" for name, shape in shapes.items() if ours[name].shape != shape]:
        raise ModelError(f"the tensors must have the shapes that config.json specifies, but {_some(odd)}; copy the folder again")
    real = Backbone(config, rows)  # buffers are computed, not stored
    model = Model(real, make_head(head, config.width, real.embedding.weight), causal=family.causal)
    model.load_state_dict(ours, strict=False)  # a tied head's weight is the embedding's; names were compared above
    return model.eval(), left_out


def to_tensors(family: Family, model: Model, *, prefixed: bool, rows: int | None = None) -> dict[str, Tensor]:
    """Their tensors of our model, the exact inverse of ``from_tensors``; with the family's prefix if there is a head.

    Of tensors with a row for each token, only the first ``rows`` are returned.
    """
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.weights().items():
        names = _theirs(family, name, family.prefix if prefixed else "")
        whole = tensor.detach()[:rows] if name in BY_TOKEN else tensor.detach()
        parts = whole.split(_sizes(name, model.backbone.config, len(whole))) if len(names) > 1 else [whole]
        for theirs, part in zip(names, parts, strict=True):
            tensors[theirs] = (part.T if _flipped(family, name) else part).contiguous().clone()
    return tensors


def _theirs(family: Family, name: str, prefix: str) -> tuple[str, ...]:
    """Their names of one tensor of ours.

    ``backbone.blocks.3.attention.qkv.bias`` -> ``bert.encoder.layer.3.attention.self.query.bias``, and key's and value's.
    """
    own = name.removeprefix("backbone.")
    table, before = (family.names, prefix) if own != name else ({**family.head, **family.classify}, "")
    number = re.match(r"blocks\.(\d+)\.", own)
    own = re.sub(r"^blocks\.\d+\.", "blocks.{i}.", own)
    part, leaf = own.rsplit(".", 1)
    whole = own in table
    entry = table.get(own if whole else part)
    assert entry is not None, f"the table of {family.title} does not name {name}"
    names = (entry,) if isinstance(entry, str) else entry
    return tuple(before + entry.replace("{i}", number[1] if number else "") + f".{leaf}" * (not whole) for entry in names)


def _joined(family: Family, name: str, parts: Sequence[Tensor]) -> Tensor:
    if _flipped(family, name):
        parts = [part.T for part in parts]
    return torch.cat(list(parts)) if len(parts) > 1 else parts[0].contiguous()


def _flipped(family: Family, name: str) -> bool:
    return name.endswith(".weight") and name.removesuffix(".weight").endswith(family.flipped or ("\0",))


def _sizes(name: str, config: BackboneConfig, rows: int) -> list[int]:
    """Rows of each part of a matrix that they store in parts."""
    if ".qkv." in name:
        return [heads * config.per_head for heads in (config.heads, config.groups, config.groups)]
    assert config.activation in GATED, name
    return [rows // 2, rows // 2]


def _left_out(family: Family, name: str) -> bool:
    return any(re.search(pattern, name) for pattern in family.left_out)


def _some(problems: Sequence[str], most: int = 6) -> str:
    more = f"; and {len(problems) - most} more" if len(problems) > most else ""
    return "; ".join(problems[:most]) + more


def _table_name(family: Family, stored: Mapping[str, Tensor]) -> str:
    """Their name of the token embedding, as this file has it."""
    plain = f"{family.names['embedding']}.weight"
    names = [name for name in (family.prefix + plain, plain) if name in stored]
    if not names:
        raise ModelError(
            f"the tensors must be those of a {family.title} model, but there is no {plain} among them; copy the folder again"
        )
    return names[0]


def _head_for(family: Family, foreign: Foreign) -> tuple[HeadConfig, list[str]]:
    """The head in the file, and its settings that are left out.

    Language modelling (perhaps tied), classification, or none, which becomes an embedding head.
    """
    theirs, stored = foreign.config, foreign.tensors
    if (labels := labels_of(family, theirs)) is not None:
        dropout = read_settings(family, theirs).dropout
        return ClassificationHeadConfig(classes=len(labels), pooling="first", hidden=family.hidden, dropout=dropout), []
    own = [part for name, part in family.head.items() if name != "head.weight" and isinstance(part, str)]
    weight = str(family.head["head.weight"])
    words = [name for name in stored if name.startswith(tuple(own))] if own else [name for name in stored if name == weight]
    tied = theirs.get("tie_word_embeddings", family.tied)
    if not words and (not (family.causal and tied) or foreign.pooled):
        pooling, normalize, left_out = foreign.pooled() if foreign.pooled else ("mean", True, [])
        return EmbeddingHeadConfig(pooling=pooling, normalize=normalize), left_out
    if not family.gelu and read_settings(family, theirs).activation != "gelu":
        raise ModelError(f"the transform of a language head must have gelu, but hidden activations are others; {BASE_MODEL}")
    table = _table_name(family, stored)
    tied = weight not in stored or torch.equal(stored[weight], stored[table])
    eps = read_settings(family, theirs).norm_eps
    return LMHeadConfig(tied=tied, norm_eps=eps, **{"bias": False, **family.transform}), []


def labels_of(family: Family, theirs: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The label names of a classification model, in order; None for other models. Raises ``ModelError`` for other heads."""
    architecture = (theirs.get("architectures") or [""])[0]
    if not architecture.endswith("ForSequenceClassification"):
        return None
    if not family.classify or theirs.get("problem_type") not in (None, "single_label_classification"):
        raise ModelError(
            f"a classification head must predict one label, as BERT's does, but this is a {architecture}; import its base model"
        )
    names = theirs.get("id2label") or {str(i): f"LABEL_{i}" for i in range(min(int(theirs.get("num_labels", 2)), MANIFEST_VALUES))}
    if len(names) < 2:
        raise ModelError(
            f"a classification head needs at least two labels, but id2label has {list(names.values())}; import its base model"
        )
    return tuple(str(names[key]) for key in sorted(names, key=int))


def _check_tokenizer(tokenizer: Tokenizer, rows: int) -> None:
    beyond = [i for i in range(rows, tokenizer.vocab_size) if i not in tokenizer.specials.all()]
    if beyond:
        raise TokenizerError(
            f"every token must have a row in the embedding, but it has {rows:,} rows and tokenizer.json has a token "
            f"{tokenizer.token(beyond[-1])!r} with id {beyond[-1]:,}; copy the tokenizer that belongs to these weights"
        )


@torch.no_grad()
def _grow(model: Model, size: int) -> None:
    """Add rows for special tokens that the tokenizer lacked, in place: the mean of all others.

    By Jensen's inequality the logit of the mean never exceeds the log of the mean of all exponentials, so that a new token takes at
    most 1 / V of the probability, whatever the hidden state.
    """
    missing = size - model.backbone.vocab_size
    if missing <= 0:
        return
    head = model.head

    def grown(tensor: Tensor) -> torch.nn.Parameter:
        mean = tensor.double().mean(dim=0, keepdim=True).to(tensor.dtype)
        return torch.nn.Parameter(torch.cat([tensor, mean.expand(missing, *tensor.shape[1:])]))

    model.backbone.embedding.weight = grown(model.backbone.embedding.weight)
    model.backbone.embedding.num_embeddings = model.backbone.vocab_size = size
    if isinstance(head, LMHead):
        head.weight = model.backbone.embedding.weight if head.config.tied else grown(head.weight)
        head.bias = None if head.bias is None else grown(head.bias)
