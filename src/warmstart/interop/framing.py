"""The tokens around a text, for the ``tokenizers`` library: ``[EOS] text [EOS]``, ``[CLS] one [SEP] other [SEP]``.

Some embedding models are trained with a few words before every text, such as "query: ". They stand in the frame, behind the first
special token, so that whoever frames a text puts them there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from warmstart.tokenizer.specials import PREFIX
from warmstart.tokenizer.tokenizer import Tokenizer


def template(tokenizer: Tokenizer, last: int | None, *, typed: bool, prefix: Sequence[int] | None = None) -> dict[str, Any]:
    """A post-processor that frames texts and pairs as ``data.encode.encode`` does; ``last`` is the token that they end with.

    None: with no token, as a prompt that is continued. With ``typed`` the second text of a pair has token type 1. ``prefix`` are
    the tokens of the words before every text; None: those of the tokenizer.
    """
    prefix = tokenizer.prefix if prefix is None else tuple(prefix)
    specials = tokenizer.specials
    end = [] if last is None else [last]
    names = {id_: tokenizer.token(id_) for id_ in (specials.begin, specials.eos, *end)}

    def token(id_: int, kind: int = 0) -> dict[str, Any]:
        return {"SpecialToken": {"id": names[id_], "type_id": kind}}

    before = [{"SpecialToken": {"id": PREFIX, "type_id": 0}}] if prefix else []
    words = {PREFIX: {"id": PREFIX, "ids": list(prefix), "tokens": [tokenizer.token(id_) for id_ in prefix]}}
    first, second = ({"Sequence": {"id": text, "type_id": int(typed and text == "B")}} for text in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [token(specials.begin), *before, first, *map(token, end)],
        "pair": [
            token(specials.begin),
            *before,
            first,
            *map(token, tokenizer.between),
            second,
            *(token(id_, int(typed)) for id_ in end),
        ],
        "special_tokens": {name: {"id": name, "ids": [id_], "tokens": [name]} for id_, name in names.items()}
        | (words if before else {}),
    }


def framed(tokenizer: Tokenizer, last: int, *, typed: bool) -> str:
    """``tokenizer.json`` with this post-processor."""
    return json.dumps(
        json.loads(tokenizer.to_json()) | {"post_processor": template(tokenizer, last, typed=typed)}, ensure_ascii=False
    )


def with_prefix(tokenizer: Tokenizer, words: str) -> Tokenizer:
    """A tokenizer whose texts begin with these words; the same one without any.

    Raises ``TokenizerError`` for too many.
    """
    [ids] = tokenizer.encode([words.strip()])
    if not ids:
        return tokenizer
    post = template(tokenizer, tokenizer.specials.eos, typed=False, prefix=ids)
    return Tokenizer(json.dumps(json.loads(tokenizer.to_json()) | {"post_processor": post}, ensure_ascii=False))


def framed_pieces(text: str, begin: str, end: str, *others: str) -> str:
    """``tokenizer.json`` of pieces of sentencepiece, with ``begin`` before a text, ``end`` behind it, and special ``others``."""
    spec = json.loads(text)
    ids = {name: id_ for id_, (name, _) in enumerate(spec["model"]["vocab"]) if name in (begin, end, *others)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    first, last = ({"SpecialToken": {"id": name, "type_id": 0}} for name in (begin, end))
    single, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    spec["added_tokens"] = [{"id": id_, "content": name} | flags for name, id_ in ids.items()]
    spec["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [first, single, last],
        "pair": [first, single, other],
        "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in (begin, end)},
    }
    return json.dumps(spec, ensure_ascii=False)
