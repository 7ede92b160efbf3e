"""A tokenizer as the page needs it: its steps by name, its vocabulary, and the classes of characters that the steps ask for.

Every type that can be trained here runs in a page (bytes, wordpiece, unigram, character, word), and so do the tokenizers of BERT
and GPT-2. Any other step is refused by name. The guard, which keeps text from being encoded to special ids, is made again in the
page from their spellings.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from warmstart.app.one_file.characters import (
    changed_by,
    cleaned_characters,
    combining,
    lower_case,
    marks,
    matching_characters,
    punctuation,
    ranges_of,
    white_space,
)
from warmstart.errors import ModelError
from warmstart.tokenizer.pieces import EVERY_CHARACTER
from warmstart.tokenizer.tokenizer import Tokenizer


def tokenizer_spec(tokenizer: Tokenizer) -> dict[str, Any]:
    """All that the page's tokenizer needs, fit for JSON. Raises ``ModelError`` for a step that cannot run in a page."""
    whole = json.loads(tokenizer.to_json())
    added = whole["added_tokens"]
    if ordinary := [token["content"] for token in added if not token["special"]]:
        raise _refused(f"cuts {ordinary[0]!r} out of a text first")
    normalizers = [_normalizer(step) for step in _flat(whole["normalizer"], "normalizers")]
    splits = [_split(step) for step in _flat(whole["pre_tokenizer"], "pretokenizers")[:-1]]  # the last is the guard
    pieces: list[str | None] = [tokenizer._backend.id_to_token(id) for id in range(tokenizer.vocab_size)]
    specials = tokenizer.specials
    return {
        "type": tokenizer.type,
        "pieces": pieces,
        "specials": sorted(specials.all()),
        "guarded": sorted({token["content"] for token in added}),
        "ids": {role: getattr(specials, role) for role in ("begin", "eos", "cls", "unk")},
        "opening": list(tokenizer.opening),
        "between": list(tokenizer.between),
        "word_starts": base64.b64encode(np.packbits(tokenizer.vocabulary().word_starts).tobytes()).decode(),
        "normalizers": normalizers,
        "splits": splits,
        "model": _model(whole["model"]),
        "decoder": _decoder(whole["decoder"]),
        "characters": _characters(normalizers, splits),
    }


def _refused(does: str) -> ModelError:
    return ModelError(f"this model's tokenizer cannot run in a page: it {does}; use `warmstart serve`, or export with --to onnx")


def _flat(part: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    if part is None:
        return []
    return [piece for step in part[inner] for piece in _flat(step, inner)] if part["type"] == "Sequence" else [part]


def _normalizer(step: dict[str, Any]) -> dict[str, Any]:
    kind = step["type"]
    if kind in ("NFC", "NFD", "NFKC", "NFKD"):
        return {"kind": "form", "form": kind}
    if kind == "Lowercase":
        return {"kind": "lowercase"}
    if kind == "Strip" and step["strip_left"] and step["strip_right"]:
        return {"kind": "strip"}
    if kind == "Replace" and step["pattern"] == {"Regex": r"\s+"} and step["content"] == " ":
        return {"kind": "spaces"}
    if kind == "BertNormalizer" and step["clean_text"] == step["handle_chinese_chars"]:
        accents = step["lowercase"] if step["strip_accents"] is None else step["strip_accents"]
        return {"kind": "bert", "clean": step["clean_text"], "accents": accents, "lowercase": step["lowercase"]}
    raise _refused(f"normalises by {kind}")


def _split(step: dict[str, Any]) -> dict[str, Any]:
    kind = step["type"]
    if kind == "ByteLevel" and step["use_regex"]:
        return {"kind": "bytes", "prefix": step["add_prefix_space"]}
    if kind == "Metaspace" and step["prepend_scheme"] in ("always", "never") and step["split"] and step["replacement"] == "▁":
        return {"kind": "metaspace", "prepend": step["prepend_scheme"] == "always"}
    if kind in ("WhitespaceSplit", "BertPreTokenizer"):
        return {"kind": "whitespace" if kind == "WhitespaceSplit" else "bert"}
    if kind == "Split" and step["pattern"] == {"Regex": EVERY_CHARACTER} and step["behavior"] == "Isolated":
        return {"kind": "characters"}
    raise _refused(f"splits by {step.get('pattern', kind)}")


def _model(model: dict[str, Any]) -> dict[str, Any]:
    kind = model["type"]
    if kind == "BPE":
        odd = ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges")
        if set_to := [name for name in odd if model.get(name)]:
            raise _refused(f"merges bytes with {set_to[0]}")
        return {"kind": "bpe", "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]}
    if kind == "WordPiece":
        return {"kind": "wordpiece", "prefix": model["continuing_subword_prefix"], "longest": model["max_input_chars_per_word"]}
    if kind == "Unigram" and not model.get("byte_fallback") and model["unk_id"] is not None:
        return {"kind": "unigram", "scores": [score for _, score in model["vocab"]], "unk": model["unk_id"]}
    if kind == "WordLevel":
        return {"kind": "word"}
    raise _refused(f"has a {kind} model of a form that pages have not")


def _decoder(decoder: dict[str, Any] | None) -> dict[str, Any]:
    kind = decoder["type"] if decoder else None
    if kind == "WordPiece" and decoder is not None:
        return {"kind": "wordpiece", "cleanup": decoder["cleanup"], "prefix": decoder["prefix"]}
    if kind == "Metaspace" and decoder is not None:
        return {"kind": "metaspace", "prepend": decoder["prepend_scheme"] != "never"}
    known = {"ByteLevel": "bytes", "Fuse": "joined", None: "spaced"}
    if kind not in known:
        raise _refused(f"decodes by {kind}")
    return {"kind": known[kind]}


def _characters(normalizers: list[dict[str, Any]], splits: list[dict[str, Any]]) -> dict[str, Any]:
    """The classes that these steps ask for; white space always."""
    classes: dict[str, Any] = {"space": ranges_of(white_space())}
    steps = normalizers + splits
    bert = next((step for step in normalizers if step["kind"] == "bert"), {})
    if bert.get("accents") or any(step["kind"] == "form" for step in normalizers):
        classes["combining"] = ranges_of(combining())
    if any(step["kind"] == "bytes" for step in steps):
        classes |= {"letter": ranges_of(matching_characters(r"\p{L}")), "number": ranges_of(matching_characters(r"\p{N}"))}
    if any(step["kind"] == "bert" for step in splits):
        classes["punctuation"] = ranges_of(punctuation())
    classes |= {step["form"]: ranges_of(changed_by(step["form"])) for step in normalizers if step["kind"] == "form"}
    if bert.get("clean"):
        classes |= {kind: ranges_of(members) for kind, members in cleaned_characters().items()}
    if bert.get("accents"):
        classes |= {"marks": ranges_of(marks()), "NFD": ranges_of(changed_by("NFD"))}
    if bert.get("lowercase") or any(step["kind"] == "lowercase" for step in steps):
        classes["lower"] = list(lower_case())
    return classes
