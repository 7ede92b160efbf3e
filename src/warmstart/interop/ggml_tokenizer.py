"""The tokenizer in the metadata of a GGUF file, as ``tokenizer.json``: byte-level BPE as of GPT-2."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from warmstart.errors import TokenizerError
from warmstart.tokenizer.specials import library_errors
from warmstart.tokenizer.tokenizer import Tokenizer

_CONTROL, _USER = 3, 4
"""kinds of tokens"""
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""how a text is split into words"""


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
    merges = [(one, other) for one, _, other in (line.partition(" ") for line in meta["tokenizer.ggml.merges"])]
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
