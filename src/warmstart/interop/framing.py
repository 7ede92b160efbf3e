"""What stands around a text, said to the ``tokenizers`` library: ``[EOS] text [EOS]``, ``[CLS] one [SEP] other [SEP]``."""

from __future__ import annotations

import json
from typing import Any

from warmstart.tokenizer import Tokenizer


def template(tokenizer: Tokenizer, last: int) -> dict[str, Any]:
    """A post-processor that frames texts and pairs as ``data.batch.encode`` does; ``last`` is the token that they end with."""
    specials = tokenizer.specials
    names = {id_: tokenizer.token(id_) for id_ in (specials.begin, specials.eos, last)}
    start, middle, end = ({"SpecialToken": {"id": names[id_], "type_id": 0}} for id_ in (specials.begin, specials.eos, last))
    one, other = ({"Sequence": {"id": text, "type_id": 0}} for text in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [start, one, end],
        "pair": [start, one, middle, other, end],
        "special_tokens": {name: {"id": name, "ids": [id_], "tokens": [name]} for id_, name in names.items()},
    }


def framed(tokenizer: Tokenizer, last: int) -> str:
    """``tokenizer.json`` with that post-processor."""
    return json.dumps(json.loads(tokenizer.to_json()) | {"post_processor": template(tokenizer, last)}, ensure_ascii=False)
