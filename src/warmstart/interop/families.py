"""The families of Hugging Face models as tables: their settings and the names of their tensors.

A table is read in both directions, so that an imported model can be exported again. ``{i}`` is the number of a block; a name
without ``weight`` or ``bias`` at its end means both; several names are one matrix of ours, stacked by rows (queries, keys, values;
gate and value). ``settings`` maps our settings to the keys of their ``config.json``, with the value of a missing key; what a table
cannot express is in ``rules``: two small functions for a family, one for each direction.

No tensor is moved here: see ``convert``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from warmstart.interop.rules import ELECTRA_RULES, LLAMA_RULES, MODERNBERT_RULES, NO_RULES, ROBERTA_RULES, Rules
from warmstart.registry import Registry

Names = Mapping[str, str | tuple[str, ...]]


class Setting(NamedTuple):
    """A key of their ``config.json``, and the value of a missing key."""

    key: str
    default: Any


@dataclass(frozen=True)
class Family:
    """Models of one architecture, whatever their size."""

    title: str
    """usual name of the family"""
    causal: bool
    """causal attention"""
    prefix: str
    """precedes the backbone's names if the file has a head too"""
    fixed: Mapping[str, Any]
    """settings that all members share"""
    settings: Mapping[str, Setting]
    """our settings -> their keys"""
    names: Names
    """our parts of the backbone -> their names"""
    head: Names
    """our parts of the language head -> their names"""
    transform: Mapping[str, Any] = field(default_factory=dict)
    """settings of the language head"""
    gelu: bool = True
    """the transform of the language head has gelu, whatever the activation of the backbone is"""
    classify: Names = field(default_factory=dict)
    """our parts of the classification head -> their names; empty: we have no such head"""
    hidden: str = "none"
    """the classification head's setting of that name; the head reads the first token"""
    must: Mapping[str, Any] = field(default_factory=dict)
    """keys that must have this value if present; other values are not supported"""
    stated: tuple[str, ...] = ()
    """keys of ``must`` that must be present"""
    left_out: tuple[str, ...] = ()
    """patterns of tensors that are copies, buffers, or parts of another head"""
    flipped: tuple[str, ...] = ()
    """parts whose matrices are stored transposed"""
    tied: bool = True
    """their default for ``tie_word_embeddings``"""
    architectures: Mapping[str, str] = field(default_factory=dict)
    """our heads -> their classes"""
    rules: Rules = NO_RULES


ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu_fast": "gelu-tanh", "relu": "relu",
}  # fmt: skip
"""Their activations -> ours; of several names for one, the first is written."""


_BERT_BLOCK = "encoder.layer.{i}."
_BERT_NAMES: Names = {
    "embedding": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "positions": "embeddings.position_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "blocks.{i}.attention.qkv": tuple(f"{_BERT_BLOCK}attention.self.{part}" for part in ("query", "key", "value")),
    "blocks.{i}.attention.out": f"{_BERT_BLOCK}attention.output.dense",
    "blocks.{i}.norm_1": f"{_BERT_BLOCK}attention.output.LayerNorm",
    "blocks.{i}.feedforward.inner": f"{_BERT_BLOCK}intermediate.dense",
    "blocks.{i}.feedforward.out": f"{_BERT_BLOCK}output.dense",
    "blocks.{i}.norm_2": f"{_BERT_BLOCK}output.LayerNorm",
}
_BERT_FIXED = {"norm": "post", "positions": "learned", "embedding_norm": True}
_BERT_SETTINGS = {
    "width": Setting("hidden_size", 768),
    "depth": Setting("num_hidden_layers", 12),
    "heads": Setting("num_attention_heads", 12),
    "feedforward": Setting("intermediate_size", 3072),
    "max_length": Setting("max_position_embeddings", 512),
    "token_types": Setting("type_vocab_size", 2),
    "activation": Setting("hidden_act", "gelu"),
    "dropout": Setting("hidden_dropout_prob", 0.1),
    "norm_eps": Setting("layer_norm_eps", 1e-12),
    "init_std": Setting("initializer_range", 0.02),
}


def _classes(name: str) -> dict[str, str]:
    return {
        "language-modeling": f"{name}ForMaskedLM",
        "embedding": f"{name}Model",
        "classification": f"{name}ForSequenceClassification",
    }


_BERT_MUST = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}

_ROBERTA_HEAD = {
    "head.transform.dense": "lm_head.dense",
    "head.transform.norm": "lm_head.layer_norm",
    "head.bias": "lm_head.bias",
    "head.weight": "lm_head.decoder.weight",
}
_ROBERTA_CLASSIFY = {"head.hidden": "classifier.dense", "head.score": "classifier.out_proj"}
_ROBERTA = Family(
    title="RoBERTa",
    causal=False,
    prefix="roberta.",
    fixed=_BERT_FIXED,
    settings=_BERT_SETTINGS,
    names=_BERT_NAMES,
    head=_ROBERTA_HEAD,
    transform={"transform": True, "bias": True},
    must=_BERT_MUST,
    left_out=(r"pooler\.", r"position_ids$", r"^lm_head\.decoder\."),
    classify=_ROBERTA_CLASSIFY,
    hidden="tanh",
    architectures=_classes("Roberta"),
    rules=ROBERTA_RULES,
)

_LLAMA_BLOCK = "layers.{i}."
_LLAMA = Family(
    title="Llama, SmolLM",
    causal=True,
    prefix="model.",
    fixed={"norm_type": "rms", "activation": "swiglu", "bias": False},
    settings={
        "width": Setting("hidden_size", 4096),
        "depth": Setting("num_hidden_layers", 32),
        "heads": Setting("num_attention_heads", 32),
        "kv_heads": Setting("num_key_value_heads", None),
        "head_width": Setting("head_dim", None),
        "feedforward": Setting("intermediate_size", 11008),
        "max_length": Setting("max_position_embeddings", 2048),
        "dropout": Setting("attention_dropout", 0.0),
        "norm_eps": Setting("rms_norm_eps", 1e-6),
        "init_std": Setting("initializer_range", 0.02),
    },
    names={
        "embedding": "embed_tokens",
        "blocks.{i}.attention.qkv": tuple(f"{_LLAMA_BLOCK}self_attn.{part}_proj" for part in "qkv"),
        "blocks.{i}.attention.out": f"{_LLAMA_BLOCK}self_attn.o_proj",
        "blocks.{i}.attention.norm_q": f"{_LLAMA_BLOCK}self_attn.q_norm",
        "blocks.{i}.attention.norm_k": f"{_LLAMA_BLOCK}self_attn.k_norm",
        "blocks.{i}.norm_1": f"{_LLAMA_BLOCK}input_layernorm",
        "blocks.{i}.feedforward.inner": (f"{_LLAMA_BLOCK}mlp.gate_proj", f"{_LLAMA_BLOCK}mlp.up_proj"),
        "blocks.{i}.feedforward.out": f"{_LLAMA_BLOCK}mlp.down_proj",
        "blocks.{i}.norm_2": f"{_LLAMA_BLOCK}post_attention_layernorm",
        "norm": "norm",
    },
    head={"head.weight": "lm_head.weight"},
    must={
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "use_sliding_window": False, "partial_rotary_factor": 1.0,
    },
    left_out=(r"rotary_emb\.inv_freq$", r"^lm_head\.weight$"),
    tied=False,
    architectures={"language-modeling": "LlamaForCausalLM", "embedding": "LlamaModel"},
    rules=LLAMA_RULES,
)  # fmt: skip

_QWEN_SETTINGS = {
    "kv_heads": Setting("num_key_value_heads", 32),
    "feedforward": Setting("intermediate_size", 22016),
    "max_length": Setting("max_position_embeddings", 32768),
}

FAMILIES: Registry[Family] = Registry(
    "model_type",
    {
        "gpt2": Family(
            title="GPT-2",
            causal=True,
            prefix="transformer.",
            fixed={"positions": "learned"},
            settings={
                "width": Setting("n_embd", 768),
                "depth": Setting("n_layer", 12),
                "heads": Setting("n_head", 12),
                "feedforward": Setting("n_inner", None),
                "max_length": Setting("n_positions", 1024),
                "activation": Setting("activation_function", "gelu_new"),
                "dropout": Setting("resid_pdrop", 0.1),
                "norm_eps": Setting("layer_norm_epsilon", 1e-5),
                "init_std": Setting("initializer_range", 0.02),
            },
            names={
                "embedding": "wte",
                "positions": "wpe",
                "blocks.{i}.norm_1": "h.{i}.ln_1",
                "blocks.{i}.attention.qkv": "h.{i}.attn.c_attn",
                "blocks.{i}.attention.out": "h.{i}.attn.c_proj",
                "blocks.{i}.norm_2": "h.{i}.ln_2",
                "blocks.{i}.feedforward.inner": "h.{i}.mlp.c_fc",
                "blocks.{i}.feedforward.out": "h.{i}.mlp.c_proj",
                "norm": "ln_f",
            },
            head={"head.weight": "lm_head.weight"},
            must={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
            left_out=(r"h\.\d+\.attn\.(masked_)?bias$", r"^lm_head\.weight$"),
            flipped=("attention.qkv", "attention.out", "feedforward.inner", "feedforward.out"),
            architectures={"language-modeling": "GPT2LMHeadModel", "embedding": "GPT2Model"},
        ),
        "bert": Family(
            title="BERT, MiniLM",
            causal=False,
            prefix="bert.",
            fixed=_BERT_FIXED,
            settings=_BERT_SETTINGS,
            names=_BERT_NAMES,
            head={
                "head.transform.dense": "cls.predictions.transform.dense",
                "head.transform.norm": "cls.predictions.transform.LayerNorm",
                "head.bias": "cls.predictions.bias",
                "head.weight": "cls.predictions.decoder.weight",
            },
            transform={"transform": True, "bias": True},
            gelu=False,
            must=_BERT_MUST,
            left_out=(r"pooler\.", r"^cls\.seq_relationship\.", r"position_ids$", r"^cls\.predictions\.decoder\."),
            classify={"head.hidden": "bert.pooler.dense", "head.score": "classifier"},
            hidden="tanh",
            architectures=_classes("Bert"),
        ),
        "distilbert": Family(
            title="DistilBERT",
            causal=False,
            prefix="distilbert.",
            fixed={**_BERT_FIXED, "norm_eps": 1e-12},
            settings={
                "width": Setting("dim", 768),
                "depth": Setting("n_layers", 6),
                "heads": Setting("n_heads", 12),
                "feedforward": Setting("hidden_dim", 3072),
                "max_length": Setting("max_position_embeddings", 512),
                "activation": Setting("activation", "gelu"),
                "dropout": Setting("dropout", 0.1),
                "init_std": Setting("initializer_range", 0.02),
            },
            names={
                **{name: theirs for name, theirs in _BERT_NAMES.items() if not name.startswith(("token_types", "blocks"))},
                "blocks.{i}.attention.qkv": tuple(f"transformer.layer.{{i}}.attention.{part}_lin" for part in "qkv"),
                "blocks.{i}.attention.out": "transformer.layer.{i}.attention.out_lin",
                "blocks.{i}.norm_1": "transformer.layer.{i}.sa_layer_norm",
                "blocks.{i}.feedforward.inner": "transformer.layer.{i}.ffn.lin1",
                "blocks.{i}.feedforward.out": "transformer.layer.{i}.ffn.lin2",
                "blocks.{i}.norm_2": "transformer.layer.{i}.output_layer_norm",
            },
            head={
                "head.transform.dense": "vocab_transform",
                "head.transform.norm": "vocab_layer_norm",
                "head.bias": "vocab_projector.bias",
                "head.weight": "vocab_projector.weight",
            },
            transform={"transform": True, "bias": True},
            gelu=False,
            left_out=(r"position_ids$", r"^vocab_projector\.weight$"),
            classify={"head.hidden": "pre_classifier", "head.score": "classifier"},
            hidden="relu",
            architectures=_classes("DistilBert"),
        ),
        "roberta": _ROBERTA,
        "mpnet": replace(
            _ROBERTA,
            title="MPNet",
            prefix="mpnet.",
            settings={
                **{name: key for name, key in _BERT_SETTINGS.items() if name != "token_types"},
                "distance_buckets": Setting("relative_attention_num_buckets", 32),
            },
            names={
                **{name: theirs for name, theirs in _BERT_NAMES.items() if name != "token_types"},
                "distances": "encoder.relative_attention_bias",
                "blocks.{i}.attention.qkv": tuple(f"{_BERT_BLOCK}attention.attn.{part}" for part in "qkv"),
                "blocks.{i}.attention.out": f"{_BERT_BLOCK}attention.attn.o",
                "blocks.{i}.norm_1": f"{_BERT_BLOCK}attention.LayerNorm",
            },
            must={},
            architectures=_classes("MPNet"),
        ),
        "xlm-roberta": replace(_ROBERTA, title="XLM-RoBERTa", architectures=_classes("XLMRoberta")),
        "camembert": replace(_ROBERTA, title="CamemBERT", architectures=_classes("Camembert")),
        "electra": Family(
            title="ELECTRA",
            causal=False,
            prefix="electra.",
            fixed=_BERT_FIXED,
            settings={
                **_BERT_SETTINGS,
                "width": Setting("hidden_size", 256),
                "heads": Setting("num_attention_heads", 4),
                "feedforward": Setting("intermediate_size", 1024),
            },
            names=_BERT_NAMES,
            head={
                "head.transform.dense": "generator_predictions.dense",
                "head.transform.norm": "generator_predictions.LayerNorm",
                "head.bias": "generator_lm_head.bias",
                "head.weight": "generator_lm_head.weight",
            },
            transform={"transform": True, "bias": True},
            must=_BERT_MUST,
            left_out=(r"position_ids$", r"^discriminator_predictions\.", r"^generator_lm_head\.weight$"),
            classify=_ROBERTA_CLASSIFY,
            hidden="gelu",
            architectures=_classes("Electra"),
            rules=ELECTRA_RULES,
        ),
        "esm": Family(
            title="ESM",
            causal=False,
            prefix="esm.",
            fixed={"activation": "gelu"},
            settings={
                **{name: key for name, key in _BERT_SETTINGS.items() if name not in ("token_types", "activation")},
                "max_length": Setting("max_position_embeddings", 1026),
                "rotary_base": Setting("rope_theta", 10_000.0),
            },
            names={
                **{name: theirs for name, theirs in _BERT_NAMES.items() if name.startswith("blocks")},
                "embedding": "embeddings.word_embeddings",
                "blocks.{i}.norm_1": f"{_BERT_BLOCK}attention.LayerNorm",
                "blocks.{i}.norm_2": f"{_BERT_BLOCK}LayerNorm",
                "norm": "encoder.emb_layer_norm_after",
            },
            head=_ROBERTA_HEAD | {"head.bias": "lm_head.bias"},
            transform={"transform": True, "bias": True},
            must={
                "position_embedding_type": "rotary", "token_dropout": False, "emb_layer_norm_before": False, "is_decoder": False,
                "add_cross_attention": False, "is_folding_model": False,
            },
            stated=("position_embedding_type",),
            left_out=(r"pooler\.", r"position_ids$", r"contact_head\.", r"inv_freq$", r"^lm_head\.decoder\."),
            classify=_ROBERTA_CLASSIFY,
            hidden="tanh",
            architectures=_classes("Esm"),
        ),
        "llama": _LLAMA,
        "qwen2": replace(
            _LLAMA,
            title="Qwen2, Qwen2.5",
            fixed={**_LLAMA.fixed, "qkv_bias": True},
            settings={**_LLAMA.settings, **_QWEN_SETTINGS},
            architectures={"language-modeling": "Qwen2ForCausalLM", "embedding": "Qwen2Model"},
        ),
        "qwen3": replace(
            _LLAMA,
            title="Qwen3",
            fixed={**_LLAMA.fixed, "qk_norm": True},
            settings={**_LLAMA.settings, **_QWEN_SETTINGS, "head_width": Setting("head_dim", 128)},
            architectures={"language-modeling": "Qwen3ForCausalLM", "embedding": "Qwen3Model"},
        ),
        "starcoder2": replace(
            _LLAMA,
            title="StarCoder2",
            fixed={},
            settings={
                "width": Setting("hidden_size", 3072),
                "depth": Setting("num_hidden_layers", 30),
                "heads": Setting("num_attention_heads", 24),
                "kv_heads": Setting("num_key_value_heads", 2),
                "head_width": Setting("head_dim", None),
                "feedforward": Setting("intermediate_size", 12288),
                "max_length": Setting("max_position_embeddings", 4096),
                "init_std": Setting("initializer_range", 0.018042),
                "activation": Setting("hidden_act", "gelu_pytorch_tanh"),
                "dropout": Setting("residual_dropout", 0.0),
                "norm_eps": Setting("norm_epsilon", 1e-5),
            },
            names={
                **_LLAMA.names,
                "blocks.{i}.feedforward.inner": f"{_LLAMA_BLOCK}mlp.c_fc",
                "blocks.{i}.feedforward.out": f"{_LLAMA_BLOCK}mlp.c_proj",
            },
            must={"use_bias": True, "sliding_window": None},
            tied=True,
            architectures={"language-modeling": "Starcoder2ForCausalLM", "embedding": "Starcoder2Model"},
        ),
        "modernbert": Family(
            title="ModernBERT",
            causal=False,
            prefix="model.",
            fixed={"bias": False, "activation": "geglu", "embedding_norm": True, "first_norm": False},
            settings={
                "width": Setting("hidden_size", 768),
                "depth": Setting("num_hidden_layers", 22),
                "heads": Setting("num_attention_heads", 12),
                "feedforward": Setting("intermediate_size", 1152),
                "max_length": Setting("max_position_embeddings", 8192),
                "dropout": Setting("embedding_dropout", 0.0),
                "norm_eps": Setting("norm_eps", 1e-5),
                "init_std": Setting("initializer_range", 0.02),
            },
            names={
                "embedding": "embeddings.tok_embeddings",
                "embedding_norm": "embeddings.norm",
                "blocks.{i}.norm_1": "layers.{i}.attn_norm",
                "blocks.{i}.attention.qkv": "layers.{i}.attn.Wqkv",
                "blocks.{i}.attention.out": "layers.{i}.attn.Wo",
                "blocks.{i}.norm_2": "layers.{i}.mlp_norm",
                "blocks.{i}.feedforward.inner": "layers.{i}.mlp.Wi",
                "blocks.{i}.feedforward.out": "layers.{i}.mlp.Wo",
                "norm": "final_norm",
            },
            head={
                "head.transform.dense": "head.dense",
                "head.transform.norm": "head.norm",
                "head.bias": "decoder.bias",
                "head.weight": "decoder.weight",
            },
            transform={"transform": True, "transform_bias": False, "bias": True},
            must={
                "hidden_activation": "gelu", "norm_bias": False, "attention_bias": False, "mlp_bias": False, "decoder_bias": True,
                "classifier_bias": False, "classifier_activation": "gelu",
            },
            left_out=(r"^decoder\.weight$",),
            architectures={"language-modeling": "ModernBertForMaskedLM", "embedding": "ModernBertModel"},
            rules=MODERNBERT_RULES,
        ),
    },
)  # fmt: skip
"""Every family, by the ``model_type`` of its ``config.json``."""

_ENCODER_DECODER = "an encoder and a decoder"
OTHER_FAMILIES = {
    "albert": "its blocks share their weights",
    **dict.fromkeys(("bart", "mbart", "t5", "mt5", "pegasus", "marian", "m2m_100"), _ENCODER_DECODER),
    **dict.fromkeys(("deberta", "deberta-v2"), "its attention reads distances apart from contents"),
    "xlnet": "its attention reads distances apart from contents",
    **dict.fromkeys(("longformer", "big_bird"), "its attention is sparse"),
}
"""Well-known families that are not imported, and what stands in the way."""
