"""The files beside a model's weights: its tokenizer with its settings, and how sentence-transformers makes a vector of a text.

What these libraries apply when they load a folder is applied here too, refused, or named among what was left out: see ``settings``.

A text stands in a frame of tokens: ``[EOS] text [EOS]``, ``[CLS] one [SEP] other [SEP]``. Some embedding models are trained with a
few words before every text, such as "query: "; they stand in the frame, behind the first special token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from warmstart.backbone.config import BackboneConfig
from warmstart.errors import ModelError, TokenizerError
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.interop.folder import read_json
from warmstart.interop.settings import (
    MODULES_FILE,
    NORMALIZE_FILE,
    POOLING_FILE,
    SENTENCES_FILE,
    SPECIALS_FILE,
    TOKEN_ROLES,
    TOKENIZER_FILE,
    TRANSFORMER_FILE,
    unapplied,
)
from warmstart.system.limits import MANIFEST_BYTES, parse_json
from warmstart.system.storage import inside, read_inside
from warmstart.tokenizer.load import load_tokenizer
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


POOLED = {"mean": "pooling_mode_mean_tokens", "first": "pooling_mode_cls_token", "last": "pooling_mode_lasttoken"}
"""our poolings -> the keys of sentence-transformers that all its versions read"""
MODES = {"mean": "mean", "cls": "first", "lasttoken": "last"}
"""names of poolings in sentence-transformers from version 6 on -> ours"""
GENERIC_TOKENIZERS = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""classes of tokenizers that read tokenizer.json as it is, whatever the settings beside it say"""
SAVE_AGAIN = "write it again with transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
_TRANSFORMERS = tuple(
    f"sentence_{kind}_config.json" for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""names of the settings of a sentence encoder's Transformer; the first that exists is read"""


class Companions(NamedTuple):
    """The settings in the files beside the weights."""

    tokenizer: Tokenizer
    longest: int | None
    """the length at which the libraries cut a text, if they are told one"""
    left_out: list[str]
    """settings that are not applied, one phrase each"""


def read_companions(folder: Path, *, causal: bool) -> Companions:
    """The tokenizer of a folder, as transformers and sentence-transformers would set it up.

    Raises ``TokenizerError`` if there is none, or if the settings beside it ask for another one.
    """
    tokenizer, settings = _load_tokenizer(folder), _tokenizer_settings(folder)
    prompt, prompts_left_out = _prompt(folder)
    left_out = unapplied(TOKENIZER_FILE, settings)
    sentences = _transformer_settings(folder) if (folder / MODULES_FILE).exists() else {}
    left_out += unapplied(TRANSFORMER_FILE, sentences) + prompts_left_out
    _check_mask(tokenizer, settings)
    _check_added(tokenizer, settings, _optional(folder, "added_tokens.json"))
    spec = json.loads(tokenizer.to_json())
    cased = _set_case(spec, settings, left_out)
    if sentences.get("do_lower_case") and not any(_lowers(step) for step in _steps(spec, "normalizer")):
        spec["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *_steps(spec, "normalizer")]}
        cased = True
    if cased:
        tokenizer = Tokenizer.from_json(json.dumps(spec))
    end, own = _content(settings.get("eos_token")), tokenizer.token(tokenizer.specials.eos)
    if causal and end is not None and end != own:
        left_out.append(f"eos_token {end!r} of {TOKENIZER_FILE} (texts end with {own!r})")
    lengths = [sentences.get("max_seq_length"), settings.get("model_max_length", settings.get("max_len"))]
    whole, words, text = tokenizer.encode([f"{prompt}river", prompt.strip(), "river"])
    if prompt and whole != [*words, *text]:
        left_out.append(f"the end of {prompt!r} of {SENTENCES_FILE} (this tokenizer would join it to the text)")
    tokenizer = with_prefix(tokenizer, prompt)
    return Companions(tokenizer, next((int(n) for n in lengths if isinstance(n, int | float) and n < 1e9), None), left_out)


def _load_tokenizer(folder: Path) -> Tokenizer:
    try:
        file = inside(folder, "tokenizer.json")
    except ValueError as error:
        raise TokenizerError(f"cannot read the tokenizer of {folder}: {error}; do not use this model, or copy the file") from None
    if not file.exists():
        raise TokenizerError(f"a model's folder must hold tokenizer.json, but {folder} does not; {SAVE_AGAIN}")
    return load_tokenizer(file)


def _optional(folder: Path, name: str) -> dict[str, Any]:
    return read_json(folder / name) if (folder / name).exists() else {}


def _tokenizer_settings(folder: Path) -> dict[str, Any]:
    """The settings of a tokenizer; ``model_type`` too has a say in its class."""
    return _optional(folder, SPECIALS_FILE) | _optional(folder, TOKENIZER_FILE)


def _transformer_settings(folder: Path) -> dict[str, Any]:
    return next((read_json(folder / name) for name in _TRANSFORMERS if (folder / name).exists()), {})


def _prompt(folder: Path) -> tuple[str, list[str]]:
    """The default prompt, which precedes every text, and the settings left out of its file: prompts that must be asked for."""
    values = _optional(folder, SENTENCES_FILE)
    prompts = {name: text for name, text in (values.get("prompts") or {}).items() if text}
    default = str(prompts.pop(values.get("default_prompt_name"), ""))
    return default, unapplied(SENTENCES_FILE, values | {"prompts": prompts})


def _content(token: Any) -> str | None:
    text = token.get("content") if isinstance(token, Mapping) else token
    if text is not None and not isinstance(text, str):
        raise ValueError(f"a token must be text, but is {type(text).__name__}")
    return text


def _check_mask(tokenizer: Tokenizer, settings: Mapping[str, Any]) -> None:
    mask = _content(settings.get("mask_token"))
    if mask is not None and tokenizer.id(mask) != tokenizer.specials.mask:
        piece = tokenizer.token(tokenizer.specials.mask)
        raise TokenizerError(
            f"the mask token of this model is {mask!r}, but the tokenizer's is {piece!r}; rename it in tokenizer.json"
        )


def _check_added(tokenizer: Tokenizer, settings: Mapping[str, Any], older: Mapping[str, Any]) -> None:
    """Tokens that the libraries would add are in ``tokenizer.json``; roles alone, such as a token for padding, need not be."""
    roles = {_content(settings.get(key)) for key in TOKEN_ROLES.split()}
    present = {token["content"]: token for token in json.loads(tokenizer.to_json())["added_tokens"]}
    for content, token in _added(settings, older):
        id_ = tokenizer.id(content)
        plain = not token.get("special", True)  # such a token is found in texts
        same = content in present and all(present[content].get(key, value) == value for key, value in token.items())
        if (id_ is None and content not in roles) or (plain and not same) or (id_ is not None and token.get("id", id_) != id_):
            raise TokenizerError(
                f"every added token must be in tokenizer.json as the files beside it say, but {content!r} is not; {SAVE_AGAIN}"
            )


def _added(settings: Mapping[str, Any], older: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tokens that the settings add, with what is known of each."""
    numbered = settings.get("added_tokens_decoder")
    for key, token in (numbered or {}).items():
        yield str(_content(token)), {name: value for name, value in token.items() if name != "__type"} | {"id": int(key)}
    if numbered is None:
        yield from ((content, {"id": id_}) for content, id_ in older.items())
    for key in ("additional_special_tokens", "extra_special_tokens"):
        more = settings.get(key) or ()
        for token in more.values() if isinstance(more, Mapping) else more:
            yield str(_content(token)), {}


def _set_case(spec: dict[str, Any], settings: Mapping[str, Any], left_out: list[str]) -> bool:
    """Apply the settings of BERT's tokenizers to their normalizer, and of others to the space before a text; whether they did.

    Their classes set these anew when they load ``tokenizer.json``; the generic class does not.
    """
    if settings.get("tokenizer_class") in GENERIC_TOKENIZERS:
        return False
    changed = False
    for step in _steps(spec, "normalizer"):
        if step["type"] == "BertNormalizer":
            keys = {
                "do_lower_case": "lowercase",
                "strip_accents": "strip_accents",
                "tokenize_chinese_chars": "handle_chinese_chars",
            }
            wanted = {ours: settings[key] for key, ours in keys.items() if key in settings}
            changed |= any(step[key] != value for key, value in wanted.items())
            step.update(wanted)
            if settings and "do_lower_case" not in settings and not step["lowercase"]:
                left_out.append(
                    f"do_lower_case, absent from {TOKENIZER_FILE} (transformers then lowercases, tokenizer.json does not)"
                )
    if (space := settings.get("add_prefix_space")) is not None:
        for step in _steps(spec, "pre_tokenizer"):
            if step["type"] == "ByteLevel":
                changed |= step["add_prefix_space"] != space
                step["add_prefix_space"] = space
            elif step["type"] == "Metaspace" and (step["prepend_scheme"] != "never") != space:
                changed, step["prepend_scheme"] = True, "always" if space else "never"
    return changed


def _steps(spec: Mapping[str, Any], part: str) -> list[dict[str, Any]]:
    """The steps of a normalizer or a pre-tokenizer, which is one step or a sequence."""
    whole = spec.get(part)
    if not whole:
        return []
    return next((value for key, value in whole.items() if key in ("normalizers", "pretokenizers")), [whole])


def _lowers(step: Mapping[str, Any]) -> bool:
    return step["type"] == "Lowercase" or bool(step.get("lowercase"))


def read_pooling(folder: Path) -> tuple[str, bool, list[str]]:
    """The pooling of sentence-transformers in this folder: (pooling, whether vectors are normalised, settings left out).

    The mean, normalised, by default.
    """
    if not (folder / MODULES_FILE).exists():
        return "mean", True, []
    try:
        modules = parse_json(read_inside(folder, MODULES_FILE, MANIFEST_BYTES))
        left_out = [setting for module in modules for setting in unapplied(MODULES_FILE, module)]
        kinds = [_kind(str(module["type"])) for module in modules]
        paths = dict(zip(kinds, (module["path"] for module in modules), strict=True))
        settings = read_json(inside(folder, f"{paths['Pooling']}/config.json")) if "Pooling" in paths else {}
        unit = inside(folder, f"{paths['Normalize']}/config.json") if paths.get("Normalize") else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"cannot read the pooling in {folder / MODULES_FILE}: {error}; copy it again, or remove it") from None
    steps = [kind for kind in kinds if kind != "Dropout"]
    if steps not in (["Transformer"], ["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"], ["Pooling"]):
        others = [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize", "Dropout")]
        raise ModelError(
            f"the embedding of a text must be a pooled hidden state, but {folder} also applies {', '.join(others or steps)}; "
            f"remove {MODULES_FILE} to use the mean of the hidden states"
        )
    if paths.get("Transformer"):
        raise ModelError(
            f"{MODULES_FILE} must have its Transformer in the folder itself, but it is in {paths['Transformer']}; import that"
        )
    left_out += unapplied(POOLING_FILE, settings)
    if unit is not None and unit.exists():
        unapplied(NORMALIZE_FILE, read_json(unit))
    return _pooling(settings, folder), "Normalize" in steps, left_out


def _kind(name: str) -> str:
    """The name of a module of the library; a class of another package keeps its whole name."""
    return name.rsplit(".", 1)[-1] if name.startswith("sentence_transformers.") else name


def _pooling(settings: Mapping[str, Any], folder: Path) -> str:
    """Our name of the pooling, from either form of the settings."""
    if "pooling_mode" in settings:
        modes = settings["pooling_mode"] if isinstance(settings["pooling_mode"], list) else [settings["pooling_mode"]]
        chosen = [MODES.get(mode, "") for mode in modes]
    else:
        ours = {key: name for name, key in POOLED.items()}
        chosen = [ours.get(key, "") for key, value in settings.items() if key.startswith("pooling_mode") and value] or ["mean"]
    if len(chosen) != 1 or not chosen[0]:
        raise ModelError(
            f"the pooling must be one of {', '.join(POOLED)}, but {folder} has {dict(settings)}; remove {MODULES_FILE} for the mean"
        )
    return chosen[0]


def pooling_files(head: EmbeddingHeadConfig, backbone: BackboneConfig) -> dict[str, bytes]:
    """The files that sentence-transformers needs to compute a head's embeddings; ``read_pooling`` reads them."""
    parts = [("Transformer", ""), ("Pooling", "1_Pooling"), *[("Normalize", "2_Normalize")] * head.normalize]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{part}"}
        for i, (part, path) in enumerate(parts)
    ]
    settings = {"word_embedding_dimension": backbone.width, **{key: name == head.pooling for name, key in POOLED.items()}}
    return {
        MODULES_FILE: json.dumps(modules, indent=2).encode(),
        TRANSFORMER_FILE: json.dumps({"max_seq_length": backbone.max_length, "do_lower_case": False}).encode(),
        SENTENCES_FILE: json.dumps({"prompts": {}, "similarity_fn_name": "cosine"}).encode(),
        "1_Pooling/config.json": json.dumps(settings, indent=2).encode(),
    }
