"""GGUF files, the form of llama.cpp, of the Llama and Qwen families: their weights, settings and tokenizer, read by ``gguf``.

Quantised weights become float32, as llama.cpp would see them. Its rotary positions pair neighbouring numbers of a head, ours pair
each with that half a head away, so the rows of Llama's queries and keys are put back in their first order; Qwen's were never moved.

    Llama, a head of 6 rows: 0 1 2 3 4 5 is stored as 0 3 1 4 2 5
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend
from torch import Tensor

from warmstart.errors import ConfigError, ModelError, TokenizerError
from warmstart.interop.convert import Foreign
from warmstart.system.limits import refused_if_malformed
from warmstart.tokenizer.specials import library_errors
from warmstart.tokenizer.tokenizer import Tokenizer

_CONTROL, _USER = 3, 4
"""kinds of tokens"""
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""pattern that splits a text into words"""


def _split() -> Any:
    words = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_PRE: dict[str, Callable[[], Any]] = {
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "qwen2": _split,
}
"""names of ways to split a text -> how; a file that names none, or "default", comes from a converter that did not know it"""


def tokenizer_of(meta: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that the metadata describes. Raises ``TokenizerError`` for other kinds, and for pieces that do not fit."""
    with library_errors("the tokenizer of a GGUF file must be sound, but reading it failed"):
        return _tokenizer(meta)


def _tokenizer(meta: Mapping[str, Any]) -> Tokenizer:
    kind = meta.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise TokenizerError(
            f"the tokenizer of a GGUF file must be of type gpt2, but is {kind!r}; import the model's Hugging Face folder"
        )
    pre = meta.get("tokenizer.ggml.pre")
    if pre not in _PRE:
        raise TokenizerError(
            f"a text must be split into words in one of the ways {', '.join(_PRE)}, but this GGUF file names {pre!r}; import the "
            "model's Hugging Face folder"
        )
    tokens = meta["tokenizer.ggml.tokens"]
    merges = [(left, right) for left, _, right in (line.partition(" ") for line in meta["tokenizer.ggml.merges"])]
    backend = Backend(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer, backend.decoder = _PRE[pre](), decoders.ByteLevel()
    return _framed(json.loads(backend.to_str()), meta)


def _framed(spec: dict[str, Any], meta: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer with its special tokens, and the one that begins every text, if there is one."""
    backend, tokens = Backend.from_str(json.dumps(spec)), meta["tokenizer.ggml.tokens"]
    kinds = meta.get("tokenizer.ggml.token_type", [])
    backend.add_special_tokens([_added(name) for name, kind in zip(tokens, kinds, strict=False) if kind == _CONTROL])
    backend.add_tokens([_added(name) for name, kind in zip(tokens, kinds, strict=False) if kind == _USER])
    whole = json.loads(backend.to_str())
    if meta.get("tokenizer.ggml.add_bos_token", False):
        first = meta["tokenizer.ggml.bos_token_id"]
        name = tokens[first]
        text = {"Sequence": {"id": "A", "type_id": 0}}
        whole["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": name, "type_id": 0}}, text],
            "pair": [{"SpecialToken": {"id": name, "type_id": 0}}, text, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {name: {"id": name, "ids": [first], "tokens": [name]}},
        }
    return Tokenizer(json.dumps(whole, ensure_ascii=False))


def _added(name: str) -> AddedToken:
    return AddedToken(name, normalized=False)


FAMILIES_IN_GGUF = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
"""architectures that can be read -> their classes"""
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_PARTS = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
"""their parts of a block -> those of the Hugging Face format"""


def read_gguf(file: Path) -> Foreign:
    """The model in a file. Raises ``ModelError`` for other families and kinds of weights, and ``ConfigError`` without ``gguf``."""
    try:
        library = importlib.import_module("gguf")
    except ImportError:
        raise ConfigError(f'{file} needs gguf, which is not installed; pip install "warmstart[gguf]"') from None
    with refused_if_malformed(ModelError, f"{file} must be a sound GGUF file", "copy it again"):
        reader = _whole_reader(library)(file)
        meta = {name: field.contents() for name, field in reader.fields.items() if name.startswith(("general.", "tokenizer."))}
        family = meta.get("general.architecture")
        if family not in FAMILIES_IN_GGUF:
            raise ModelError(
                f"the model must be one of {', '.join(FAMILIES_IN_GGUF)}, but {file} has {family!r}; it cannot be imported"
            )
        own = {
            name.removeprefix(f"{family}."): field.contents() for name, field in reader.fields.items() if name.startswith(family)
        }
        stored = _tensors(library, reader, file, own if family == "llama" else None)
        tokenizer, name = tokenizer_of(meta), f"{meta.get('general.name', '')}/{file.name}"
        settings = _settings(str(family), own, stored, file)
        return Foreign(settings, stored, tokenizer, name, settings=tuple(_unapplied(meta, tokenizer)))


def _whole_reader(library: Any) -> Any:
    """The library's reader, to which what lies behind the end of a file is an error; to itself it is empty, however often."""

    class WholeReader(library.GGUFReader):  # type: ignore[misc]
        def _get(self, offset: int, dtype: Any, count: int = 1, **order: Any) -> np.ndarray:
            """(count,) numbers."""
            numbers = super()._get(offset, dtype, count, **order)
            if len(numbers) != count:
                raise ValueError(f"{count:,} numbers are announced at byte {offset:,}, and {len(numbers):,} are there")
            return np.asarray(numbers)

    return WholeReader


def _unapplied(meta: Mapping[str, Any], tokenizer: Tokenizer) -> Iterator[str]:
    """The tokenizer's settings that are not applied, one phrase each."""
    end, used = meta.get("tokenizer.ggml.eos_token_id"), tokenizer.specials.eos
    if end is not None and end != used:
        yield f"eos_token_id {end}, {meta['tokenizer.ggml.tokens'][end]!r} (texts end with {tokenizer.token(used)!r})"
    if meta.get("tokenizer.ggml.add_eos_token"):
        yield "add_eos_token (no token is added behind a text)"


def _settings(family: str, own: Mapping[str, Any], stored: Mapping[str, Tensor], file: Path) -> dict[str, Any]:
    """Their settings as a ``config.json``. Raises ``ModelError`` for positions that are scaled, and for a model of vectors."""
    width, heads = own["embedding_length"], own["attention.head_count"]
    per_head = own.get("attention.key_length", width // heads)
    if own.get("pooling_type", 0):
        raise ModelError(
            f"a GGUF file must hold a language model, but {file} pools its states to vectors; import its Hugging Face folder"
        )
    if own.get("rope.scaling.type", "none") != "none" or own.get("rope.scale_linear", 1) != 1 or "rope_freqs.weight" in stored:
        raise ModelError(f"rotary positions must not be scaled, but those of {file} are; import the model's Hugging Face folder")
    if own.get("rope.dimension_count", per_head) != per_head:
        raise ModelError(f"rotary positions must turn whole heads of {per_head}, but turn {own['rope.dimension_count']} in {file}")
    return {
        "model_type": family, "architectures": [FAMILIES_IN_GGUF[family]], "hidden_size": width, "head_dim": per_head,
        "num_hidden_layers": own["block_count"], "num_attention_heads": heads, "hidden_act": "silu",
        "num_key_value_heads": own.get("attention.head_count_kv", heads), "intermediate_size": own["feed_forward_length"],
        "vocab_size": len(stored["model.embed_tokens.weight"]), "max_position_embeddings": own["context_length"],
        "rope_theta": float(own.get("rope.freq_base", 10_000.0)),
        "rms_norm_eps": float(f"{own['attention.layer_norm_rms_epsilon']:.6g}"),
        "tie_word_embeddings": "lm_head.weight" not in stored,
    }  # fmt: skip


def _tensors(library: Any, reader: Any, file: Path, moved: Mapping[str, Any] | None) -> dict[str, Tensor]:
    """Every tensor under its name in the Hugging Face format; ``moved`` are the settings, if rows of heads were moved."""
    tensors = {}
    for tensor in reader.tensors:
        try:
            with np.errstate(all="ignore"):  # a damaged scale; what is not finite is refused when the model is saved
                values = library.quants.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            raise ModelError(
                f"the weights of {file} must be of a kind that gguf can read, but {tensor.name} is {tensor.tensor_type.name}; use "
                "a file with Q8_0 or Q4_0"
            ) from None
        values = np.array(values, dtype=np.float32).reshape(tensor.shape[::-1].tolist())
        if moved and (part := re.fullmatch(r"blk\.\d+\.attn_([qk])\.\w+", tensor.name)):
            heads = moved["attention.head_count"]
            values = rows_in_order(values, heads if part[1] == "q" else moved.get("attention.head_count_kv", heads))
        tensors[_name(tensor.name)] = torch.from_numpy(np.ascontiguousarray(values))
    return tensors


def rows_in_order(values: np.ndarray, heads: int) -> np.ndarray:
    """(R, ...) with the rows of each head as they were before llama.cpp paired them."""
    paired = values.reshape(heads, -1, 2, *values.shape[1:])
    return paired.swapaxes(1, 2).reshape(values.shape)


def _name(theirs: str) -> str:
    """``blk.3.attn_q.bias`` -> ``model.layers.3.self_attn.q_proj.bias``; a name that is not in the tables stays."""
    part, _, leaf = theirs.rpartition(".")
    if block := re.fullmatch(r"blk\.(\d+)\.(\w+)", part):
        return f"model.layers.{block[1]}.{_PARTS[block[2]]}.{leaf}" if block[2] in _PARTS else theirs
    return f"{_TOP[part]}.{leaf}" if part in _TOP else theirs
