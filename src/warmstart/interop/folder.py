"""Reading a foreign model's folder: settings, tensors, the tokenizer, and what sentence-transformers says of pooling.

Only ``safetensors`` are read: the older ``.bin`` files are pickles, which run whatever their maker put in them.
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

from warmstart.errors import ConfigError, ModelError, TokenizerError
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.storage import inside
from warmstart.tokenizer.load import load_tokenizer
from warmstart.tokenizer.tokenizer import Tokenizer

WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
POOLED = {"mean": "pooling_mode_mean_tokens", "first": "pooling_mode_cls_token", "last": "pooling_mode_lasttoken"}
"""our poolings by the words of sentence-transformers, which it reads in every version"""
MODES = {"mean": "mean", "cls": "first", "lasttoken": "last"}
"""our poolings by the words that it writes from version 6 on"""


def free_place(folder: str | Path) -> Path:
    """Where something new may be written; raises ``ConfigError`` where something stands."""
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} exists and is not empty; choose another --out, or remove it")
    return target


def read_json(file: Path) -> dict[str, Any]:
    """The mapping in a JSON file; raises ``ModelError`` where there is none."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"a model's folder must hold {file.name}, but {file.parent} does not; copy it there") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {file}: {error}; copy it again") from None
    if not isinstance(values, dict):
        raise ModelError(f"{file} must hold settings, but holds {type(values).__name__}; copy it again")
    return values


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of ``model.safetensors``, or of the shards that its index names; as they are stored."""
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
        raise ModelError(f"{index} must name files of its own folder: {error}; do not use this model, or mend the index") from None


def read_tensor_file(file: Path) -> dict[str, Tensor]:
    """The tensors of one file; raises ``ModelError`` that says what lies there instead."""
    try:
        return load_file(file)
    except FileNotFoundError:
        pickles = sorted(other.name for other in file.parent.glob("*.bin"))
        if pickles:
            raise ModelError(
                f"weights must come as {WEIGHTS}, but {file.parent} holds {', '.join(pickles)}: pickles, which can run code when "
                "they are read; convert them where you trust them: "
                "transformers.AutoModel.from_pretrained(FOLDER).save_pretrained(FOLDER, safe_serialization=True)"
            ) from None
        raise ModelError(f"a model's folder must hold {file.name}, but {file.parent} does not; copy it there") from None
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise ModelError(f"cannot read {file}: {error}; copy it again") from None


def as_float(tensor: Tensor) -> Tensor:
    """Half precision becomes float32, exactly; whole numbers stay."""
    return tensor.float() if tensor.is_floating_point() and tensor.dtype is not torch.float64 else tensor


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder; raises ``TokenizerError`` where it has none, or one whose mask token we do not recognise."""
    if not (folder / "tokenizer.json").exists():
        raise TokenizerError(
            f"a model's folder must hold tokenizer.json, but {folder} does not; write it with "
            "transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    told: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        told |= read_json(folder / name) if (folder / name).exists() else {}
    mask = told.get("mask_token")
    mask = mask.get("content") if isinstance(mask, Mapping) else mask
    if mask is not None and tokenizer.id(mask) != tokenizer.specials.mask:
        found = tokenizer.token(tokenizer.specials.mask)
        raise TokenizerError(
            f"this model's mask token is {mask!r}, but {found!r} was recognised as such; rename it in tokenizer.json"
        )
    return tokenizer


def read_pooling(folder: Path) -> tuple[str, bool]:
    """How sentence-transformers makes a text's vector here: (pooling, to length 1); where nothing is said, the mean."""
    if not (folder / "modules.json").exists():
        return "mean", True
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        paths = {str(module["type"]).rsplit(".", 1)[-1]: module["path"] for module in modules}
        told = read_json(inside(folder, f"{paths['Pooling']}/config.json")) if "Pooling" in paths else {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"cannot read what {folder / 'modules.json'} says of pooling: {error}; copy it again, or remove it"
        ) from None
    others = [name for name in paths if name not in ("Transformer", "Pooling", "Normalize", "Dropout")]
    if others:
        raise ModelError(
            f"a text's vector must be a pooled state, but {folder} changes it by {', '.join(others)}; "
            "remove modules.json to take the mean of the states"
        )
    return _pooling(told, folder), "Normalize" in paths


def _pooling(told: Mapping[str, Any], folder: Path) -> str:
    """Our word for how states are pooled, from either form of the settings."""
    if "pooling_mode" in told:
        said = told["pooling_mode"] if isinstance(told["pooling_mode"], list) else [told["pooling_mode"]]
        chosen = [MODES.get(mode, "") for mode in said]
    else:
        nothing = not any(value is True for key, value in told.items() if key.startswith("pooling_mode"))
        chosen = ["mean"] if nothing else [name for name, key in POOLED.items() if told.get(key)]
    if len(chosen) != 1 or not chosen[0]:
        raise ModelError(f"a text's vector must be pooled in one way ({', '.join(POOLED)}), but {folder} says {dict(told)}")
    return chosen[0]


def pooling_files(head: EmbeddingHeadConfig, width: int) -> dict[str, bytes]:
    """What sentence-transformers needs beside a model to give the vectors that a head gives; ``read_pooling`` reads it."""
    parts = [("Transformer", ""), ("Pooling", "1_Pooling"), *[("Normalize", "2_Normalize")] * head.normalize]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{part}"}
        for i, (part, path) in enumerate(parts)
    ]
    told = {"word_embedding_dimension": width, **{key: name == head.pooling for name, key in POOLED.items()}}
    return {"modules.json": json.dumps(modules, indent=2).encode(), "1_Pooling/config.json": json.dumps(told, indent=2).encode()}
