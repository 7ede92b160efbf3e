"""Reading the folder of a Hugging Face model: settings, tensors, tokenizer, and the pooling of sentence-transformers.

Only ``safetensors`` are read: the older ``.bin`` files are pickles, which can run any code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor

from warmstart.backbone.config import BackboneConfig
from warmstart.errors import ConfigError, ModelError, TokenizerError
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.head import HeadConfig
from warmstart.limits import MANIFEST_BYTES, check_tensor_header, free_memory, parse_json
from warmstart.storage import inside, read_inside
from warmstart.tokenizer.load import load_tokenizer
from warmstart.tokenizer.tokenizer import Tokenizer

WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
POOLED = {"mean": "pooling_mode_mean_tokens", "first": "pooling_mode_cls_token", "last": "pooling_mode_lasttoken"}
"""our poolings -> the keys of sentence-transformers that all its versions read"""
MODES = {"mean": "mean", "cls": "first", "lasttoken": "last"}
"""names of poolings in sentence-transformers from version 6 on -> ours"""


def free_place(folder: str | Path) -> Path:
    """The path, if it is free or an empty folder; raises ``ConfigError`` if not."""
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} exists and is not empty; choose another --out, or remove it")
    return target


def refuse_windows(head: HeadConfig) -> None:
    """Raise ``ModelError`` if a head joins windows: other formats would read the beginning of a long text and say nothing."""
    if (windows := head.window_settings.windows) != "none":
        raise ModelError(
            f"this model reads long texts in windows (--windows {windows}), which no other format has: it would cut them; "
            "predict with warmstart, or export a model that was adapted without --windows"
        )


def read_json(file: Path) -> dict[str, Any]:
    """The mapping in a JSON file; raises ``ModelError`` if there is none, or the file is a link out of its folder."""
    try:
        values = parse_json(read_inside(file.parent, file.name, MANIFEST_BYTES))
    except FileNotFoundError:
        raise ModelError(f"a model's folder must hold {file.name}, but {file.parent} does not; copy it there") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {file}: {error}; copy it again") from None
    if not isinstance(values, dict):
        raise ModelError(f"{file} must hold settings, but holds {type(values).__name__}; copy it again")
    return values


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of ``model.safetensors``, or of the shards that its index names, as stored."""
    sharded = (folder / INDEX).exists() and not (folder / WEIGHTS).exists()
    found: dict[str, Tensor] = {}
    for file in shards_of(folder) if sharded else [folder / WEIGHTS]:
        found |= read_tensor_file(file)
    # the first BERT files call a norm's weight gamma and its bias beta
    return {re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name)): tensor for name, tensor in found.items()}


def shards_of(folder: Path) -> list[Path]:
    """The files that a folder's index names. Raises ``ModelError`` if it is malformed or names a file outside the folder."""
    index = folder / INDEX
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict):
        raise ModelError(f"{index} must hold a weight_map from tensors to files; copy it again")
    try:
        return sorted({inside(folder, name) for name in names.values()})
    except ValueError as error:
        raise ModelError(
            f"{index} must name files of its own folder: {error}; do not use this model, or correct the index"
        ) from None


def read_tensor_file(file: Path) -> dict[str, Tensor]:
    """The tensors of one file; raises ``ModelError`` if it is missing or damaged, or needs more memory than is free."""
    try:
        with inside(file.parent, file.name).open("rb") as binary:
            check_tensor_header(binary.read(8))
        if (size := file.stat().st_size) > (free := free_memory()):
            raise ModelError(f"{file} has {size:,} bytes, but only {free:,} of this machine's memory are free; free some")
        return load_file(file)
    except FileNotFoundError:
        pickles = sorted(other.name for other in file.parent.glob("*.bin"))
        if pickles:
            raise ModelError(
                f"weights must be in {WEIGHTS}, but {file.parent} holds {', '.join(pickles)}: pickles, which can run code when "
                "they are read; if you trust them, convert them: "
                "transformers.AutoModel.from_pretrained(FOLDER).save_pretrained(FOLDER, safe_serialization=True)"
            ) from None
        raise ModelError(f"a model's folder must hold {file.name}, but {file.parent} does not; copy it there") from None
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise ModelError(f"cannot read {file}: {error}; copy it again") from None


def as_float(tensor: Tensor) -> Tensor:
    """Half precision becomes float32, exactly; integers stay."""
    return tensor.float() if tensor.is_floating_point() and tensor.dtype is not torch.float64 else tensor


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder; raises ``TokenizerError`` if there is none, or its mask token is not recognised."""
    try:
        file = inside(folder, "tokenizer.json")
    except ValueError as error:
        raise TokenizerError(f"cannot read the tokenizer of {folder}: {error}; do not use this model, or copy the file") from None
    if not file.exists():
        raise TokenizerError(
            f"a model's folder must hold tokenizer.json, but {folder} does not; write it with "
            "transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )
    tokenizer = load_tokenizer(file)
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        settings |= read_json(folder / name) if (folder / name).exists() else {}
    mask = settings.get("mask_token")
    mask = mask.get("content") if isinstance(mask, Mapping) else mask
    if mask is not None and tokenizer.id(mask) != tokenizer.specials.mask:
        found = tokenizer.token(tokenizer.specials.mask)
        raise TokenizerError(
            f"the mask token of this model is {mask!r}, but the tokenizer's is {found!r}; rename it in tokenizer.json"
        )
    return tokenizer


def read_pooling(folder: Path) -> tuple[str, bool]:
    """How sentence-transformers pools in this folder: (pooling, whether vectors are normalised); the mean by default."""
    if not (folder / "modules.json").exists():
        return "mean", True
    try:
        modules = parse_json(read_inside(folder, "modules.json", MANIFEST_BYTES))
        paths = {str(module["type"]).rsplit(".", 1)[-1]: module["path"] for module in modules}
        settings = read_json(inside(folder, f"{paths['Pooling']}/config.json")) if "Pooling" in paths else {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"cannot read the pooling in {folder / 'modules.json'}: {error}; copy it again, or remove it") from None
    others = [name for name in paths if name not in ("Transformer", "Pooling", "Normalize", "Dropout")]
    if others:
        raise ModelError(
            f"the embedding of a text must be a pooled hidden state, but {folder} also applies {', '.join(others)}; "
            "remove modules.json to use the mean of the hidden states"
        )
    return _pooling(settings, folder), "Normalize" in paths


def _pooling(settings: Mapping[str, Any], folder: Path) -> str:
    """Our name of the pooling, from either form of the settings."""
    if "pooling_mode" in settings:
        modes = settings["pooling_mode"] if isinstance(settings["pooling_mode"], list) else [settings["pooling_mode"]]
        chosen = [MODES.get(mode, "") for mode in modes]
    else:
        nothing = not any(value is True for key, value in settings.items() if key.startswith("pooling_mode"))
        chosen = ["mean"] if nothing else [name for name, key in POOLED.items() if settings.get(key)]
    if len(chosen) != 1 or not chosen[0]:
        raise ModelError(
            f"the pooling must be one of {', '.join(POOLED)}, but {folder} has {dict(settings)}; remove modules.json for the mean"
        )
    return chosen[0]


def pooling_files(head: EmbeddingHeadConfig, backbone: BackboneConfig) -> dict[str, bytes]:
    """The files that sentence-transformers needs to compute a head's embeddings; ``read_pooling`` reads them."""
    parts = [("Transformer", ""), ("Pooling", "1_Pooling"), *[("Normalize", "2_Normalize")] * head.normalize]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{part}"}
        for i, (part, path) in enumerate(parts)
    ]
    settings = {"word_embedding_dimension": backbone.width, **{key: name == head.pooling for name, key in POOLED.items()}}
    return {
        "modules.json": json.dumps(modules, indent=2).encode(),
        "sentence_bert_config.json": json.dumps({"max_seq_length": backbone.max_length, "do_lower_case": False}).encode(),
        "config_sentence_transformers.json": json.dumps({"prompts": {}, "similarity_fn_name": "cosine"}).encode(),
        "1_Pooling/config.json": json.dumps(settings, indent=2).encode(),
    }
