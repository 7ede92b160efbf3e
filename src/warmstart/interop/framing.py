"""The special tokens around a text, for the ``tokenizers`` library: ``[EOS] text [EOS]``, ``[CLS] one [SEP] other [SEP]``."""

from __future__ import annotations

import json
from typing import Any

from warmstart.tokenizer.tokenizer import Tokenizer


def template(tokenizer: Tokenizer, last: int, *, typed: bool) -> dict[str, Any]:
    """A post-processor that frames texts and pairs as ``data.encode.encode`` does; ``last`` is the token that they end with.

    With ``typed`` the second text of a pair has token type 1.
    """
    specials = tokenizer.specials
    names = {id_: tokenizer.token(id_) for id_ in (specials.begin, specials.eos, last)}

    def token(id_: int, kind: int = 0) -> dict[str, Any]:
        return {"SpecialToken": {"id": names[id_], "type_id": kind}}

    one, other = ({"Sequence": {"id": text, "type_id": int(typed and text == "B")}} for text in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [token(specials.begin), one, token(last)],
        "pair": [token(specials.begin), one, token(specials.eos), other, token(last, int(typed))],
        "special_tokens": {name: {"id": name, "ids": [id_], "tokens": [name]} for id_, name in names.items()},
    }


def framed(tokenizer: Tokenizer, last: int, *, typed: bool) -> str:
    """``tokenizer.json`` with this post-processor."""
    return json.dumps(
        json.loads(tokenizer.to_json()) | {"post_processor": template(tokenizer, last, typed=typed)}, ensure_ascii=False
    )
