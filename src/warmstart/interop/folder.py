"""The folder of a Hugging Face model, here or downloaded from the hub: settings and tensors; ``companions`` reads the rest.

A name that begins with ``hf:`` and is no folder is downloaded; nothing else uses the network. Only ``safetensors`` are read: the
older ``.bin`` files are pickles, which can run any code.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor

from warmstart.errors import ModelError
from warmstart.heads.settings import HeadConfig
from warmstart.system.limits import MANIFEST_BYTES, check_tensor_header, free_memory, parse_json
from warmstart.system.storage import atomic_folder, inside, read_inside

WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
WRAPPERS = ("_orig_mod.", "module.", "_orig_mod.")
"""prefixes that torch.compile and DataParallel put before every name, in either order"""


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
    tensors: dict[str, Tensor] = {}
    for file in shards_of(folder) if sharded else [folder / WEIGHTS]:
        tensors |= read_tensor_file(file)
    for wrapper in WRAPPERS:
        if tensors and all(name.startswith(wrapper) for name in tensors):
            tensors = {name.removeprefix(wrapper): tensor for name, tensor in tensors.items()}
    # the first BERT files call a norm's weight gamma and its bias beta
    return {re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name)): tensor for name, tensor in tensors.items()}


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
    """The tensor in float32 if it is in half precision, exactly; integers stay."""
    return tensor.float() if tensor.is_floating_point() and tensor.dtype is not torch.float64 else tensor


CACHE = Path.home() / ".cache" / "warmstart" / "models"
"""folder of downloaded models"""
ADDRESS = "https://huggingface.co/{name}/resolve/main/{file}"
"""address of a model's file on the hub"""
NEEDED = ("config.json", "tokenizer.json")
WANTED = (
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "modules.json", "1_Pooling/config.json",
    "sentence_bert_config.json", "config_sentence_transformers.json",
)  # fmt: skip
"""read if they exist"""


def find_folder(source: str, cache: str | Path = CACHE) -> Path:
    """The folder of a Hugging Face model: ``source`` itself, without ``hf:``, or the download of ``hf:OWNER/NAME`` in ``cache``.

    Raises ``ModelError`` if it is neither a folder nor a model that can be downloaded.
    """
    name = source.removeprefix("hf:")
    if Path(name).is_dir():
        return Path(name)
    on_hub = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name)
    if not on_hub or name == source:
        download = f"hf:{name}" if on_hub else "hf:OWNER/NAME"
        raise ModelError(
            f"there is no folder {name}; give a folder with config.json, {WEIGHTS} and tokenizer.json, or {download}, which "
            "downloads a model from the hub"
        )
    place = Path(cache) / name.replace("/", "--")
    if not place.is_dir():
        with atomic_folder(place) as aside:
            _fetch_all(name, aside)
    return place


def _fetch_all(name: str, folder: Path) -> None:
    for file in NEEDED:
        _fetch(name, file, folder)
    for file in WANTED:
        _fetch(name, file, folder, needed=False)
    if not _fetch(name, WEIGHTS, folder, needed=False):
        _fetch(name, INDEX, folder)
        for shard in shards_of(folder):
            _fetch(name, shard.relative_to(folder).as_posix(), folder)


def _fetch(name: str, file: str, folder: Path, *, needed: bool = True) -> bool:
    """Download one file; returns whether it exists. Raises ``ModelError`` if it is ``needed`` and cannot be downloaded."""
    import pooch  # here, because in a notebook it asks for widgets

    pooch.get_logger().setLevel(logging.WARNING)
    target = folder / file
    try:
        pooch.retrieve(ADDRESS.format(name=name, file=file), None, fname=target.name, path=target.parent)
    except Exception as error:  # network and host raise errors of many kinds
        target.unlink(missing_ok=True)
        if not needed and "404" in str(error):
            return False
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"{name} is not a folder, and {file} of this model cannot be downloaded from the hub: {reason}; "
            "check the name and the network, or download the folder elsewhere and give its path"
        ) from None
    return True
