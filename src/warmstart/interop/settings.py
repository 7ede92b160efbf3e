"""The fate of every setting that transformers and sentence-transformers read in a model's folder: one table.

A setting is applied, or refused unless it says what we do anyway, or named among what was left out, or harmless: it changes no
output (it concerns training, speed, or what is printed). The readers look every key up here, and name one that nobody has
classified, so that nothing is ignored in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from warmstart.errors import ModelError
from warmstart.interop.families import Family


@dataclass(frozen=True)
class Use:
    """The fate of a setting at import."""

    how: Literal["applied", "refused", "left out", "harmless"]
    unless: tuple[Any, ...] = ()
    """values that say what we do anyway"""
    why: str = ""
    """the effect of another value"""


APPLIED, HARMLESS, UNCLASSIFIED = Use("applied"), Use("harmless"), Use("left out", (None,), "unknown here")


def _refused(why: str, *unless: Any) -> Use:
    return Use("refused", unless, why)


def _left_out(why: str, *unless: Any) -> Use:
    return Use("left out", unless, why)


def _all(use: Use, keys: str) -> dict[str, Use]:
    return dict.fromkeys(keys.split(), use)


TOKEN_ROLES = "bos_token eos_token unk_token sep_token pad_token cls_token mask_token"
"""keys of special tokens"""

CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer_config.json"
SPECIALS_FILE = "special_tokens_map.json"
SENTENCES_FILE = "config_sentence_transformers.json"
TRANSFORMER_FILE = "sentence_bert_config.json"
MODULES_FILE = "modules.json"
POOLING_FILE, NORMALIZE_FILE = "Pooling", "Normalize"

FOREIGN_SETTINGS: Mapping[str, Mapping[str, Use]] = {
    CONFIG_FILE: {  # beside a family's own keys: ``config_settings``
        **_all(APPLIED, "model_type architectures id2label num_labels problem_type tie_word_embeddings vocab_size"),
        "is_encoder_decoder": _refused("a decoder beside the encoder", False),
        "quantization_config": _refused("weights of fewer bits", None),
        "pruned_heads": _refused("blocks with fewer heads", {}, None),
        "auto_map": _left_out("code of the folder, which is never run", None, {}),
        "sentence_transformers": _left_out("settings of a cross-encoder", None, {}),
        # training
        **_all(HARMLESS, "attention_probs_dropout_prob attention_dropout attn_pdrop embd_pdrop dropout mlp_dropout qa_dropout"),
        **_all(HARMLESS, "classifier_dropout seq_classif_dropout summary_first_dropout summary_last_dropout embedding_dropout"),
        **_all(HARMLESS, "initializer_range initializer_cutoff_factor sparse_prediction sparse_pred_ignore_index"),
        **_all(HARMLESS, "gradient_checkpointing sinusoidal_pos_embds tie_weights_"),
        # memory, speed and the form of what is returned
        **_all(HARMLESS, "chunk_size_feed_forward output_hidden_states output_attentions return_dict dtype torch_dtype"),
        **_all(HARMLESS, "output_past use_cache torchscript use_bfloat16 pretraining_tp reorder_and_upcast_attn"),
        **_all(HARMLESS, "deterministic_flash_attn reference_compile repad_logits_with_grad"),
        **_all(HARMLESS, "attn_implementation _attn_implementation"),
        # heads that are not imported
        **_all(HARMLESS, "summary_type summary_use_proj summary_activation summary_proj_to_labels pooler_fc_size pooler_type"),
        **_all(HARMLESS, "pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head directionality"),
        **_all(HARMLESS, "classifier_pooling classifier_bias classifier_activation decoder_bias task_specific_params"),
        # without effect given what is required, and provenance; the roles of tokens come from the tokenizer
        **_all(HARMLESS, "sliding_window max_window_layers n_ctx vocab_list esmfold_config label2id position_embedding_type"),
        **_all(HARMLESS, "rope_theta rope_scaling rope_parameters layer_types"),
        **_all(HARMLESS, "pad_token_id bos_token_id eos_token_id cls_token_id sep_token_id mask_token_id"),
        **_all(HARMLESS, "_name_or_path name_or_path transformers_version tokenizer_class finetuning_task language _commit_hash"),
    },
    TOKENIZER_FILE: {
        **_all(APPLIED, "tokenizer_class do_lower_case strip_accents tokenize_chinese_chars add_prefix_space mask_token"),
        **_all(APPLIED, "added_tokens_decoder additional_special_tokens extra_special_tokens model_max_length max_len eos_token"),
        "truncation_side": _left_out("the end of a long text is cut", "right", None),
        "add_bos_token": _left_out("the frame of a text is that of tokenizer.json", None),
        "add_eos_token": _left_out("the frame of a text is that of tokenizer.json", None),
        "auto_map": _left_out("code of the folder, which is never run", None, {}),
        "fix_mistral_regex": _left_out("the splitting of words is that of tokenizer.json", None, False),
        # tokens that are masked, or that tokenizer.json itself has: its frame, its unknown token
        **_all(HARMLESS, "bos_token unk_token sep_token pad_token cls_token model_specific_special_tokens pad_token_type_id"),
        # text never becomes a special token here, whatever this says
        **_all(HARMLESS, "split_special_tokens"),
        # padding, and cuts and strides of a call
        **_all(HARMLESS, "padding_side max_length pad_to_multiple_of stride truncation_strategy truncation padding"),
        # decoding and conversations
        **_all(HARMLESS, "clean_up_tokenization_spaces errors trim_offsets chat_template response_template response_schema"),
        **_all(HARMLESS, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output chat_control_tokens"),
        # how the tokenizer was made: tokenizer.json holds what came of it
        **_all(HARMLESS, "vocab merges vocab_file merges_file tokenizer_file tokenizer_object gguf_file legacy sp_model_kwargs"),
        **_all(HARMLESS, "_spm_precompiled_charsmap _json_truncation _json_padding post_processor never_split do_basic_tokenize"),
        **_all(HARMLESS, "tokenizer_padding tokenizer_truncation use_default_system_prompt unk_id spaces_between_special_tokens"),
        **_all(HARMLESS, "name_or_path special_tokens_map_file processor_class verbose backend files_loaded is_local"),
        **_all(HARMLESS, "local_files_only from_slow use_fast clean_text model_input_names tokenizer init_inputs"),
        **_all(HARMLESS, "fast_tokenizer_files wordpieces_prefix add_dummy_prefix"),
    },
    SPECIALS_FILE: {
        **_all(APPLIED, "mask_token eos_token additional_special_tokens extra_special_tokens"),
        **_all(HARMLESS, "bos_token unk_token sep_token pad_token cls_token"),
    },
    SENTENCES_FILE: {
        "prompts": _left_out("write them before the texts", {}, None),
        "default_prompt_name": APPLIED,
        "truncate_dim": _refused("shorter vectors; remove it for whole ones", None),
        "model_type": _refused("another kind of model", "SentenceTransformer", None),
        "similarity_fn_name": _left_out("vectors are compared by their cosine", "cosine", None),
        **_all(HARMLESS, "__version__ requirements"),
    },
    TRANSFORMER_FILE: {
        **_all(APPLIED, "max_seq_length do_lower_case"),
        "transformer_task": _refused("what is no hidden state", "feature-extraction", None),
        "module_output_name": _refused("what is no hidden state", "token_embeddings", None),
        "modality_config": _left_out(
            "the last hidden states are pooled", None, {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        ),
        **_all(_refused("changes to config.json", {}, None), "config_args config_kwargs"),
        **_all(_refused("changes to the tokenizer", {}, None), "tokenizer_args processor_kwargs processing_kwargs"),
        **_all(_refused("queries that are longer or shorter", None), "query_length document_length query_expansion"),
        "tokenizer_name_or_path": _refused("the tokenizer of another folder", None),
        **_all(_left_out("how the weights are read", {}, None, {"add_pooling_layer": False}), "model_args model_kwargs"),
        **_all(HARMLESS, "unpad_inputs backend"),
    },
    MODULES_FILE: {
        **_all(APPLIED, "type path"),
        **_all(HARMLESS, "idx name"),
        "kwargs": _left_out("arguments of a call", None, [], {}),
    },
    POOLING_FILE: {
        **_all(APPLIED, "pooling_mode pooling_mode_cls_token pooling_mode_max_tokens pooling_mode_mean_tokens"),
        **_all(APPLIED, "pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens pooling_mode_lasttoken"),
        **_all(HARMLESS, "word_embedding_dimension embedding_dimension"),
        "include_prompt": _left_out("the words of a prompt are pooled too", True, None),
    },
    NORMALIZE_FILE: _all(
        _refused("vectors of tokens of length 1", "sentence_embedding", None), "module_input_name module_output_name"
    ),
}  # fmt: skip
"""Table of settings by file and key; the last two files are those of modules."""

ADAPTER_CONFIG = "adapter_config.json"
WHOLE_FILES: Mapping[str, Use] = {
    ADAPTER_CONFIG: _refused("an adapter over these weights; merge it in PEFT (`merge_and_unload`) and import the whole model"),
    "generation_config.json": _left_out("generate has settings of its own"),
}
"""Files that are read as a whole, if they exist."""


def config_settings(family: Family) -> Mapping[str, Use]:
    """The table of ``config.json`` for a family: its settings, what it requires, and what its rules read are applied."""
    own = [*(setting.key for setting in family.settings.values()), *family.must, *family.rules.reads]
    return {**FOREIGN_SETTINGS[CONFIG_FILE], **dict.fromkeys(own, APPLIED)}


def unapplied(file: str, values: Mapping[str, Any], table: Mapping[str, Use] | None = None) -> list[str]:
    """The settings of a file that are not applied, one phrase each.

    Raises ``ModelError`` for a setting that would change what the model computes and that we do not have.
    """
    phrases = []
    for key, value in values.items():
        use = (FOREIGN_SETTINGS[file] if table is None else table).get(key, UNCLASSIFIED)
        if use.how in ("applied", "harmless") or value in use.unless:
            continue
        if use.how == "refused":
            raise ModelError(
                f"{key} in {file} must be {use.unless[0]}, but is {_short(value)} ({use.why}); this model cannot "
                "be imported as it is"
            )
        phrases.append(f"{key} {_short(value)} of {file} ({use.why})")
    return phrases


def whole_files(names: Iterable[str], *, causal: bool) -> list[str]:
    """The files of a folder that are left out. Raises ``ModelError`` for one that changes the weights."""
    phrases = []
    for name in names:
        use = WHOLE_FILES.get(name)
        if use is not None and use.how == "refused":
            raise ModelError(f"a folder to import must not hold {name} beside its weights: {use.why}")
        if use is not None and causal:
            phrases.append(f"{name} ({use.why})")
    return phrases


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
