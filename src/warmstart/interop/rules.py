"""Rules of a family's settings that a table cannot express: values computed from others, in both directions.

``read`` computes our settings from theirs, ``write`` their keys from ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from warmstart.backbone.config import BackboneConfig
from warmstart.errors import ModelError

LONGEST = 8192
"""the maximum length with rotary positions, unless another is requested: they have none of their own, but caches need one"""


class Rules(NamedTuple):
    """A rule for each direction of the conversion of settings."""

    read: Callable[[Mapping[str, Any], dict[str, Any]], dict[str, Any]]
    """their settings, and ours according to the table -> more settings of ours"""
    write: Callable[[BackboneConfig], dict[str, Any]]
    """our settings -> keys of theirs"""
    reads: tuple[str, ...] = ()
    """the keys that ``read`` reads"""


NO_RULES = Rules(lambda _theirs, _ours: {}, lambda _ours: {})


def _offset(theirs: Mapping[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Positions start after the row of the padding token: pad 1 -> offset 2, and two rows of the table are not positions."""
    offset = theirs.get("pad_token_id", 1) + 1
    return {"position_offset": offset, "max_length": ours["max_length"] - offset}


ROBERTA_RULES = Rules(
    _offset,
    lambda ours: {
        "pad_token_id": ours.position_offset - 1, "max_position_embeddings": ours.max_length + ours.position_offset,
    },
    ("pad_token_id",),
)  # fmt: skip


def _whole_embedding(theirs: Mapping[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    if (width := theirs.get("embedding_size", 128)) != ours["width"]:
        raise ModelError(
            f"the embedding must be as wide as the hidden states, but embedding_size is {width} and hidden_size {ours['width']}, "
            "as in small ELECTRA models; this model cannot be imported, a base or large one can"
        )
    return {}


ELECTRA_RULES = Rules(_whole_embedding, lambda ours: {"embedding_size": ours.width}, ("embedding_size",))


def _rope(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of rotary positions, in either of the two spellings."""
    scaling = theirs.get("rope_parameters") or theirs.get("rope_scaling") or {}
    rope = {"rope_theta": theirs.get("rope_theta", 10_000.0), "rope_type": scaling.get("type", "default"), **scaling}
    if rope["rope_type"] not in ("default", "llama3"):
        raise ModelError(
            f"the scaling of rotary positions must be none or llama3, but is '{rope['rope_type']}'; this model cannot be imported"
        )
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(
            f"partial_rotary_factor must be 1.0, but is {rope['partial_rotary_factor']}: positions turn a part of each head; "
            "this model cannot be imported"
        )
    return rope


def _llama_read(theirs: Mapping[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    if local := [kind for kind in theirs.get("layer_types") or () if kind != "full_attention"]:
        raise ModelError(f"every block must have full attention, but layer_types has {local[0]!r}; this model cannot be imported")
    rope = _rope(theirs)
    settings: dict[str, Any] = {"rotary_base": rope["rope_theta"], "max_length": min(ours["max_length"], LONGEST)}
    if rope["rope_type"] == "llama3":
        keys = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        settings["rotary_scaling"] = tuple(rope[key] for key in keys)
    return settings


def _llama_write(ours: BackboneConfig) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_theta": ours.rotary_base, "rope_type": "default"}
    if ours.rotary_scaling:
        factor, low, high, length = ours.rotary_scaling
        rope |= {"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high}
        rope["original_max_position_embeddings"] = length
    return {"rope_parameters": rope, "rope_theta": ours.rotary_base, "num_key_value_heads": ours.groups, "head_dim": ours.per_head}


_ROPE_KEYS = ("rope_parameters", "rope_scaling", "rope_theta")
LLAMA_RULES = Rules(_llama_read, _llama_write, (*_ROPE_KEYS, "layer_types"))


def _modernbert_read(theirs: Mapping[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    kinds = theirs.get("layer_types")
    every = theirs.get("global_attn_every_n_layers", 3)
    if kinds:
        wide = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
        every = wide[1] if len(wide) > 1 else max(len(kinds), 1)
        if wide != list(range(0, len(kinds), every)):
            raise ModelError(
                f"blocks with global attention must be evenly spaced from the first on, but are {wide}; it cannot be imported"
            )
    rope = theirs.get("rope_parameters") or {}
    wide_base = rope.get("full_attention", {}).get("rope_theta", theirs.get("global_rope_theta", 160_000.0))
    near_base = rope.get("sliding_attention", {}).get("rope_theta", theirs.get("local_rope_theta") or 10_000.0)
    window = theirs.get("local_attention", 128) // 2
    settings = {"rotary_base": wide_base, "window_rotary_base": near_base, "window": window, "global_every": every}
    return settings | {"max_length": min(ours["max_length"], LONGEST)}


def _modernbert_write(ours: BackboneConfig) -> dict[str, Any]:
    kinds = ["sliding_attention" if ours.is_local(i) else "full_attention" for i in range(ours.depth)]
    rope = {
        "full_attention": {"rope_type": "default", "rope_theta": ours.rotary_base},
        "sliding_attention": {"rope_type": "default", "rope_theta": ours.window_rotary_base},
    }
    old = {
        "global_attn_every_n_layers": ours.global_every,
        "global_rope_theta": ours.rotary_base,
        "local_rope_theta": ours.window_rotary_base,
    }
    return {"layer_types": kinds, "rope_parameters": rope, "local_attention": 2 * (ours.window or 0), **old}


MODERNBERT_RULES = Rules(
    _modernbert_read,
    _modernbert_write,
    ("layer_types", "rope_parameters", "local_attention", "global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"),
)
