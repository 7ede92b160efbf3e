"""Special tokens: which ids they have, and the guard that keeps text from being encoded to them.

Notable: one lock is not enough. ``encode_special_tokens`` stops the library from searching a text for special tokens before the
model sees it; but a model whose vocabulary holds ``[MASK]`` would still find it there. So the last pre-tokenization step (the
*guard*) cuts every spelling of a special token after its first character:

    "a [MASK] b"  ->  "a", "[", "MASK]", "b"

A ``WordLevel`` model only looks up whole words; there the guard drops the first character instead, and ``[MASK]`` stays one word:
``MASK]``. So no model of any type ever sees a whole spelling, and none can return a special id. The one exception is ``unk``, which
a model returns for text that it cannot spell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from warmstart.errors import TokenizerError
from warmstart.system.limits import TOKENIZER_VALUES, parse_json
from warmstart.tokenizer.checks import check_tokenizer
from warmstart.types import SpecialTokens

_KNOWN_SPELLINGS = {
    "eos": ("[EOS]", "<eos>", "</s>", "<|endoftext|>", "<|end_of_text|>", "<|eos|>", "[SEP]"),
    "pad": ("[PAD]", "<pad>", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
    "cls": ("[CLS]", "<cls>", "<s>", "<|cls|>"),
    "unk": ("[UNK]", "<unk>", "<|unk|>"),
}
"""the spellings of each special token in well-known tokenizers, our own first"""

PREFIX = "prefix"
"""place in the frame of a post-processor: the tokens of words that precede every text, such as "query: "; no special token"""
_LONGEST_PREFIX = 64
"""tokens"""
_SENTINEL_SPELLINGS = ("[SENTINEL_{}]", "<extra_id_{}>")
"""the spellings of sentinel tokens, our own first"""


def new_special_tokens(sentinels: int) -> list[str]:
    """The special tokens of a new vocabulary, in order; ``new_special_tokens(1)`` ends in ``[CLS]``, ``[SENTINEL_0]``."""
    return ["[PAD]", "[UNK]", "[EOS]", "[MASK]", "[CLS]", *(_SENTINEL_SPELLINGS[0].format(i) for i in range(sentinels))]


def guard(names: Iterable[str], model: str) -> dict[str, Any]:
    """The guard as JSON, for the type of a model: it splits after the first character of each special token.

    ``["<pad>", "<eos>"]`` -> the pattern ``<(?=(?:eos>|pad>))``; for a ``WordLevel`` model the name must be the whole word, and the
    character is dropped. Raises ``TokenizerError`` for a name of one character, which cannot be split.
    """
    tails: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        if len(name) < 2:
            raise TokenizerError(
                f"a special token needs at least two characters, so that text can be distinguished from it, but one is {name!r}; "
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


def guarded_backend(text: str, sentinels: int = 0) -> tuple[Backend, SpecialTokens, dict[str, Any]]:
    """A tokenizer of the library from its JSON, with the guard, the ids of its special tokens, and its own JSON, parsed.

    Special tokens of other tokenizers are found by their spelling; missing ones, and sentinels up to the number ``sentinels``, get
    new ids at the end of the vocabulary. Padding and truncation settings are removed. Doing it twice changes nothing. Raises
    ``TokenizerError`` if the text is not a tokenizer's JSON.
    """
    with library_errors("a tokenizer must be the JSON of the tokenizers library, but reading it failed"):
        return _guarded(text, sentinels)


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Whatever the library raises inside becomes a ``TokenizerError`` that begins with ``what``.

    It raises bare ``Exception`` for a malformed file, and for some a panic, which is no ``Exception`` at all.
    """
    try:
        yield
    except (TokenizerError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        raise TokenizerError(f"{what}: {error}") from None


def _guarded(text: str, sentinels: int) -> tuple[Backend, SpecialTokens, dict[str, Any]]:
    spec = parse_json(text.encode(), TOKENIZER_VALUES, once=True)  # so that the library reads what is checked here
    check_tokenizer(spec)
    backend = Backend.from_str(text)
    backend.no_truncation()
    backend.no_padding()
    first, last = added_special_tokens(spec.get("post_processor"))
    names = _name_roles(backend, spec["model"], sentinels, last)
    backend.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in names.values()])
    written = backend.to_str()
    backend, spec = _with_guard(backend, spec if written == text else json.loads(written))
    backend.encode_special_tokens = True  # not stored in the JSON, so set at every load
    ids: dict[str, Any] = {role: backend.token_to_id(name) for role, name in names.items()}
    roles = {role: ids.pop(role) for role in _KNOWN_SPELLINGS}
    begin = None if first is None else backend.token_to_id(first)
    return backend, SpecialTokens(**roles, sentinels=tuple(ids.values()), bos=None if begin == roles["eos"] else begin), spec


def added_special_tokens(post: dict[str, Any] | None) -> tuple[str | None, str | None]:
    """The special tokens that a tokenizer's post-processor adds before and after a text; None: it adds none.

    BERT's -> ``("[CLS]", "[SEP]")``, Llama's -> ``("<s>", None)``, GPT-2's -> ``(None, None)``.
    """
    if post is None:
        return None, None
    if post["type"] in ("BertProcessing", "RobertaProcessing"):
        return post["cls"][0], post["sep"][0]
    if post["type"] == "Sequence":
        pairs = [pair for part in post["processors"] if any(pair := added_special_tokens(part))]
        return pairs[0] if pairs else (None, None)
    pieces = [piece.get("SpecialToken", {}).get("id") for piece in post.get("single", ())]
    if None not in pieces:
        return None, None
    text = pieces.index(None)  # the text itself
    names = {key: value["tokens"][0] for key, value in post["special_tokens"].items()}
    return names.get(pieces[0]), names.get(pieces[-1]) if text < len(pieces) - 1 else None


def prefix_of(post: dict[str, Any] | None, vocab_size: int) -> tuple[int, ...]:
    """The tokens of the words that a tokenizer's post-processor puts before every text, behind the first special token.

    Raises ``TokenizerError`` for ids that do not exist, and for too many.
    """
    ids = tuple(((post or {}).get("special_tokens") or {}).get(PREFIX, {}).get("ids", ()))
    if len(ids) > _LONGEST_PREFIX or not all(isinstance(id, int) and 0 <= id < vocab_size for id in ids):
        raise TokenizerError(
            f"the words before every text must be at most {_LONGEST_PREFIX} tokens of the vocabulary, but are {len(ids):,}, or "
            "tokens that it lacks; shorten them, or copy the tokenizer again"
        )
    return ids


def doubles_separator(post: dict[str, Any] | None) -> bool:
    """True if a post-processor puts two special tokens between the texts of a pair, as RoBERTa's does."""
    if post is None or post["type"] == "RobertaProcessing":
        return post is not None
    if post["type"] == "Sequence":
        return any(map(doubles_separator, post["processors"]))
    texts = [i for i, piece in enumerate(post.get("pair") or ()) if "Sequence" in piece]
    return len(texts) == 2 and texts[1] - texts[0] == 3


def types_pairs(post: dict[str, Any] | None) -> bool:
    """True if a post-processor gives the second text of a pair a token type of its own, or says nothing of pairs."""
    if post is not None and post["type"] == "Sequence":
        return all(map(types_pairs, post["processors"]))
    kinds = [piece["Sequence"]["type_id"] for piece in (post or {}).get("pair") or () if "Sequence" in piece]
    return len({*kinds}) != 1 and (post or {}).get("type") != "RobertaProcessing"


def _name_roles(backend: Backend, model: dict[str, Any], sentinels: int, last: str | None = None) -> dict[str, str]:
    """The spelling of each special token, in the order in which missing ones are added; no two share a spelling.

    ``last`` is the token with which the tokenizer itself ends a text. A special token goes before a piece of the vocabulary that
    is spelled like another one: MPNet's vocabulary has a ``[PAD]``, but its texts are padded with ``<pad>``.
    """
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    spelling: dict[str, str] = {}
    own = _model_unk(model)
    for role, known in _KNOWN_SPELLINGS.items():
        preferred = {"unk": own, "eos": last}.get(role)
        choices = (preferred, *known) if preferred else known
        free = [name for name in choices if _has(backend, name) and name not in spelling.values()]
        free.sort(key=lambda name: name not in (*special, preferred))
        spelling[role] = free[0] if free else known[0]
    order = ("pad", "unk", "eos", "mask", "cls")
    names = {role: spelling[role] for role in order}
    number = 0
    while present := [s.format(number) for s in _SENTINEL_SPELLINGS if _has(backend, s.format(number))]:
        names[f"sentinel {number}"] = present[0]
        number += 1
    return names | {f"sentinel {i}": _SENTINEL_SPELLINGS[0].format(i) for i in range(number, sentinels)}


def _has(backend: Backend, name: str) -> bool:
    return backend.token_to_id(name) is not None


def _model_unk(model: dict[str, Any]) -> str | None:
    """The model's own token for text that it cannot spell (Unigram stores an id, the others a spelling)."""
    if model.get("type") == "Unigram":
        return None if model.get("unk_id") is None else str(model["vocab"][model["unk_id"]][0])
    return model.get("unk_token") or None


def _with_guard(backend: Backend, spec: dict[str, Any]) -> tuple[Backend, dict[str, Any]]:
    """A tokenizer, whose parsed JSON is ``spec``, with the guard as its last pre-tokenization step; and the JSON of that."""
    names = [token["content"] for token in spec["added_tokens"] if token["special"]]
    last = guard(names, spec["model"]["type"])
    before = spec["pre_tokenizer"]
    steps = before["pretokenizers"] if before and before["type"] == "Sequence" else [before] if before else []
    if steps and steps[-1] == last:
        return backend, spec
    spec["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*steps, last]}
    return Backend.from_str(json.dumps(spec)), spec
