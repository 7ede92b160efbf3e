"""Special tokens: which ids they have, and the guard that keeps text from producing them.

Notable: two locks, because one is not enough. ``encode_special_tokens`` stops the library from looking for special
tokens in a text before the model sees it; but a model whose vocabulary holds the word ``[MASK]`` would still find it
there. So the last pre-tokenization step (the *guard*) cuts every spelling of a special token after its first character:

    "a [MASK] b"  ->  "a", "[", "MASK]", "b"

Where every word is one token (a ``WordLevel`` model), only whole words are looked up; there the guard drops the first
character instead, and ``[MASK]`` stays one word: ``MASK]``. No piece that a model is handed contains a whole spelling, so no
model of any kind can answer with a special id. The one exception is ``unk``, which is what a model answers when it cannot
spell something.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from warmstart.errors import TokenizerError
from warmstart.types import Specials

KNOWN = {
    "eos": ("[EOS]", "<eos>", "</s>", "<|endoftext|>", "<|end_of_text|>", "<|eos|>", "[SEP]"),
    "pad": ("[PAD]", "<pad>", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
    "cls": ("[CLS]", "<cls>", "<s>", "<|cls|>"),
    "unk": ("[UNK]", "<unk>", "<|unk|>"),
}
"""The names under which each role is known, our own first."""

SENTINELS = ("[SENTINEL_{}]", "<extra_id_{}>")


def spellings(sentinels: int) -> list[str]:
    """The special tokens of a new vocabulary, in order: ``spellings(1)`` ends in ``[CLS]``, ``[SENTINEL_0]``."""
    return ["[PAD]", "[UNK]", "[EOS]", "[MASK]", "[CLS]", *(SENTINELS[0].format(i) for i in range(sentinels))]


def guard(names: Iterable[str], model: str) -> dict[str, Any]:
    """The guard as JSON, for a kind of model: it splits at the first character of a name that the rest of it follows.

    ``["<pad>", "<eos>"]`` -> the pattern ``<(?=(?:eos>|pad>))``; for a ``WordLevel`` model the name must be the whole word,
    and the character is dropped. Raises ``TokenizerError`` for a name of one character, which
    cannot be cut.
    """
    tails: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        if len(name) < 2:
            raise TokenizerError(
                f"a special token needs at least two characters so that text can be kept apart from it; got {name!r}; "
                "rename it in the tokenizer file"
            )
        tails.setdefault(name[0], []).append(re.escape(name[1:]))
    words = model == "WordLevel"
    end = r"\z" if words else ""
    pattern = "|".join(f"{re.escape(first)}(?=(?:{'|'.join(rest)}){end})" for first, rest in tails.items())
    return {
        "type": "Split",
        "pattern": {"Regex": rf"\A(?:{pattern})" if words else pattern},
        "behavior": "Removed" if words else "Isolated",
        "invert": False,
    }


def adopt(text: str, sentinels: int = 0) -> tuple[Backend, Specials]:
    """A library tokenizer from its JSON, made to keep our promises, with the ids of its special tokens.

    Special tokens of other names are found by ``KNOWN``; those that are missing, and sentinels up to the number
    ``sentinels``, get new ids at the end of the vocabulary. Padding and truncation settings are taken out, the guard is
    put in. Adopting what was adopted before changes nothing.
    """
    try:
        spec: dict[str, Any] = json.loads(text)
        backend = Backend.from_str(json.dumps({**spec, "truncation": None, "padding": None}))
    except Exception as error:  # the library raises bare Exception for a malformed file
        raise TokenizerError(f"a tokenizer must be the JSON of the tokenizers library, but reading it says: {error}") from None
    first, last = frame(spec.get("post_processor"))
    names = _name_roles(backend.get_vocab(with_added_tokens=True), spec["model"], sentinels, last)
    backend.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in names.values()])
    backend = _guard(backend)
    backend.encode_special_tokens = True  # not stored in the JSON: every load has to say it again
    ids: dict[str, Any] = {role: backend.token_to_id(name) for role, name in names.items()}
    roles = {role: ids.pop(role) for role in KNOWN}
    begin = None if first is None else backend.token_to_id(first)
    return backend, Specials(**roles, sentinels=tuple(ids.values()), bos=None if begin == roles["eos"] else begin)


def frame(post: dict[str, Any] | None) -> tuple[str | None, str | None]:
    """The special tokens that a tokenizer's post-processor puts before and after a text; None where it puts none.

    BERT's -> ``("[CLS]", "[SEP]")``, Llama's -> ``("<s>", None)``, GPT-2's -> ``(None, None)``.
    """
    if post is None:
        return None, None
    if post["type"] in ("BertProcessing", "RobertaProcessing"):
        return post["cls"][0], post["sep"][0]
    if post["type"] == "Sequence":
        found = [ends for part in post["processors"] if any(ends := frame(part))]
        return found[0] if found else (None, None)
    pieces = [piece.get("SpecialToken", {}).get("id") for piece in post.get("single", ())]
    if None not in pieces:
        return None, None
    text = pieces.index(None)  # the text itself stands there
    names = {key: value["tokens"][0] for key, value in post["special_tokens"].items()}
    return names.get(pieces[0]), names.get(pieces[-1]) if text < len(pieces) - 1 else None


def _name_roles(vocabulary: dict[str, int], model: dict[str, Any], sentinels: int, last: str | None = None) -> dict[str, str]:
    """The spelling of each role, in the order in which missing ones are added; one spelling never serves two roles.

    ``last`` is what the tokenizer itself ends a text with.
    """
    found: dict[str, str] = {}
    own = _model_unk(model)
    for role, known in KNOWN.items():
        preferred = {"unk": own, "eos": last}.get(role)
        choices = (preferred, *known) if preferred else known
        free = [name for name in choices if name in vocabulary and name not in found.values()]
        found[role] = free[0] if free else known[0]
    order = ("pad", "unk", "eos", "mask", "cls")
    names = {role: found[role] for role in order}
    number = 0
    while present := [s.format(number) for s in SENTINELS if s.format(number) in vocabulary]:
        names[f"sentinel {number}"] = present[0]
        number += 1
    return names | {f"sentinel {i}": SENTINELS[0].format(i) for i in range(number, sentinels)}


def _model_unk(model: dict[str, Any]) -> str | None:
    """What the model itself answers for text that it cannot spell (Unigram keeps an id, the others a spelling)."""
    if model.get("type") == "Unigram":
        return None if model.get("unk_id") is None else str(model["vocab"][model["unk_id"]][0])
    return model.get("unk_token") or None


def _guard(backend: Backend) -> Backend:
    spec = json.loads(backend.to_str())
    names = [token["content"] for token in spec["added_tokens"] if token["special"]]
    last = guard(names, spec["model"]["type"])
    before = spec["pre_tokenizer"]
    steps = before["pretokenizers"] if before and before["type"] == "Sequence" else [before] if before else []
    if steps and steps[-1] == last:
        return backend
    spec["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*steps, last]}
    return Backend.from_str(json.dumps(spec))
