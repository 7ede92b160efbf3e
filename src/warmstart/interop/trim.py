"""Word vectors without the tokens that a text never uses.

    trimmed(bundle, pieces)  ->  the same model with fewer tokens, the same outputs on the texts of which these are the pieces

Kept are the special tokens, every piece of the texts, and the single characters of their alphabets, of which other words are built.
Pieces keep their order and their scores, so the texts are cut as before. The pieces of a BPE tokenizer are built from one another,
so all of them stay.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from warmstart.backbone.backbone import Backbone
from warmstart.heads.registry import make_head
from warmstart.model.bundle import Bundle
from warmstart.model.model import Model
from warmstart.tokenizer.tokenizer import Tokenizer

TRIMMED = ("WordPiece", "Unigram", "WordLevel")
"""kinds of tokenizers whose pieces stand alone"""
_MARKS = ("##", "\u2581", "Ġ")
"""with which pieces begin that go on with a word, or begin one"""


def trimmed(bundle: Bundle, used: Iterable[int]) -> Bundle:
    """A bundle with the tokens that texts ``used``; of a BPE tokenizer with all."""
    spec = json.loads(bundle.tokenizer.to_json())
    if spec["model"]["type"] not in TRIMMED:
        return bundle
    kept = _kept(bundle.tokenizer, spec, {*used})
    tokenizer = Tokenizer(_smaller(spec, {old: new for new, old in enumerate(kept)}))
    model, rows = bundle.model, torch.tensor(kept)
    backbone = Backbone(model.backbone.config, len(kept))
    head = make_head(model.head.config, model.backbone.config.width, backbone.embedding.weight)
    made = Model(backbone, head, causal=model.causal)
    state = model.state_dict()
    wanted = made.state_dict()
    made.load_state_dict(
        {name: state[name] if state[name].shape == one.shape else state[name].cpu()[rows] for name, one in wanted.items()}
    )
    return replace(bundle, model=made.eval(), tokenizer=tokenizer)


def _kept(tokenizer: Tokenizer, spec: Mapping[str, Any], used: set[int]) -> list[int]:
    """The ids of the tokens that stay, in their order; ``spec`` is the tokenizer's JSON."""
    alphabets = {_alphabet(sign) for id_ in used for sign in tokenizer.token(id_)}
    pieces = _pieces(spec["model"])
    single = {id_ for piece, id_ in pieces.items() if len(one := _bare(piece)) == 1 and _alphabet(one) in alphabets}
    scores = spec["model"]["vocab"] if spec["model"]["type"] == "Unigram" else []
    lowest = {min(range(len(scores)), key=lambda id_: scores[id_][1])} if scores else set()  # it says what an unknown sign costs
    always = {*tokenizer.specials.all(), *tokenizer.prefix, *(token["id"] for token in spec["added_tokens"])}
    return sorted(used | single | lowest | always)


def _pieces(model: Mapping[str, Any]) -> dict[str, int]:
    vocabulary = model["vocab"]
    return vocabulary if isinstance(vocabulary, dict) else {piece: id_ for id_, (piece, _) in enumerate(vocabulary)}


def _bare(piece: str) -> str:
    """A piece without the mark at its beginning."""
    return next((piece[len(mark) :] for mark in _MARKS if piece.startswith(mark) and piece != mark), piece)


def _alphabet(sign: str) -> str:
    """The first word of a character's name: ``a`` -> ``LATIN``."""
    return unicodedata.name(sign, "?").split()[0]


def _smaller(spec: dict[str, Any], number: Mapping[int, int]) -> str:
    """``tokenizer.json`` with the pieces that have a new number, under that number."""
    model = spec["model"]
    if model["type"] == "Unigram":
        model["vocab"] = [entry for id_, entry in enumerate(model["vocab"]) if id_ in number]
        model["unk_id"] = None if model["unk_id"] is None else number[model["unk_id"]]
    else:
        model["vocab"] = {piece: number[id_] for piece, id_ in model["vocab"].items() if id_ in number}
    spec["added_tokens"] = [token | {"id": number[token["id"]]} for token in spec["added_tokens"]]
    return json.dumps(spec | {"post_processor": _renumbered(spec["post_processor"], number)}, ensure_ascii=False)


def _renumbered(post: Any, number: Mapping[int, int]) -> Any:
    """A post-processor with the new ids of its tokens."""
    if isinstance(post, list):
        if len(post) == 2 and isinstance(post[0], str) and isinstance(post[1], int):
            return [post[0], number[post[1]]]  # BERT's ["[SEP]", 102]
        return [_renumbered(one, number) for one in post]
    if isinstance(post, dict):
        return {key: [number[id_] for id_ in one] if key == "ids" else _renumbered(one, number) for key, one in post.items()}
    return post
