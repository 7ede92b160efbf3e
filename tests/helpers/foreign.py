"""Tiny models and tokenizers in the Hugging Face form, made by transformers with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")
transformers.logging.disable_progress_bar()

VOCAB = 300
LLAMA = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.15,
}  # fmt: skip
BERT = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 66, "initializer_range": 0.3,
}  # fmt: skip
STRETCH = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
MPNET = {**BERT, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {
        "vocab_size": VOCAB, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "initializer_range": 0.3}),
    "gpt2-bare": ("GPT2Config", "GPT2Model", {
        "vocab_size": VOCAB, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "n_inner": 48}),
    "bert": ("BertConfig", "BertForMaskedLM", BERT),
    "bert-bare": ("BertConfig", "BertModel", {**BERT, "hidden_act": "gelu_new"}),
    "bert-pretraining": ("BertConfig", "BertForPreTraining", {**BERT, "hidden_act": "gelu"}),
    "distilbert": ("DistilBertConfig", "DistilBertForMaskedLM", {
        "vocab_size": VOCAB, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64,
        "initializer_range": 0.3}),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM", {**BERT, "type_vocab_size": 1, "pad_token_id": 1}),
    "xlm-roberta": ("XLMRobertaConfig", "XLMRobertaForMaskedLM", {**BERT, "type_vocab_size": 1, "pad_token_id": 1}),
    "xlm-roberta-bare": ("XLMRobertaConfig", "XLMRobertaModel", {**BERT, "type_vocab_size": 1, "pad_token_id": 0}),
    "xlm-roberta-labels": ("XLMRobertaConfig", "XLMRobertaForSequenceClassification", {
        **BERT, "type_vocab_size": 1, "pad_token_id": 1, "num_labels": 4}),
    "camembert": ("CamembertConfig", "CamembertForMaskedLM", {**BERT, "type_vocab_size": 1, "pad_token_id": 1}),
    "camembert-labels": ("CamembertConfig", "CamembertForSequenceClassification", {
        **BERT, "type_vocab_size": 1, "pad_token_id": 1, "num_labels": 3}),
    "mpnet": ("MPNetConfig", "MPNetForMaskedLM", MPNET),
    "mpnet-bare": ("MPNetConfig", "MPNetModel", MPNET),
    "mpnet-labels": ("MPNetConfig", "MPNetForSequenceClassification", {**MPNET, "num_labels": 3}),
    "electra": ("ElectraConfig", "ElectraForMaskedLM", {**BERT, "embedding_size": 32, "hidden_act": "gelu_new"}),
    "electra-bare": ("ElectraConfig", "ElectraForPreTraining", {**BERT, "embedding_size": 32}),
    "electra-labels": ("ElectraConfig", "ElectraForSequenceClassification", {**BERT, "embedding_size": 32, "num_labels": 3}),
    "bert-labels": ("BertConfig", "BertForSequenceClassification", {**BERT, "id2label": {0: "no", 1: "yes", 2: "perhaps"}}),
    "distilbert-labels": ("DistilBertConfig", "DistilBertForSequenceClassification", {
        "vocab_size": VOCAB, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64}),
    "roberta-labels": ("RobertaConfig", "RobertaForSequenceClassification", {
        **BERT, "type_vocab_size": 1, "pad_token_id": 1, "num_labels": 5}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", {**LLAMA, "rope_parameters": STRETCH}),
    "llama-tied": ("LlamaConfig", "LlamaForCausalLM", {**LLAMA, "tie_word_embeddings": True, "head_dim": 16}),
    "llama-bare": ("LlamaConfig", "LlamaModel", LLAMA),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", LLAMA),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**LLAMA, "head_dim": 16}),
    "starcoder2": ("Starcoder2Config", "Starcoder2ForCausalLM", LLAMA),
    "esm": ("EsmConfig", "EsmForMaskedLM", {**BERT, "position_embedding_type": "rotary", "pad_token_id": 0, "mask_token_id": 4}),
    "esm-labels": ("EsmConfig", "EsmForSequenceClassification", {
        **BERT, "position_embedding_type": "rotary", "pad_token_id": 0, "mask_token_id": 4, "num_labels": 3}),
    "modernbert": ("ModernBertConfig", "ModernBertForMaskedLM", {
        **BERT, "num_hidden_layers": 5, "max_position_embeddings": 64, "local_attention": 8, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}),
}  # fmt: skip
SENTENCES = ["She holds the cat.", "Where was the river found in 1912, and by whom?", "a"] * 4


def word_pieces(frame: tuple[str, str] | None) -> Any:
    """A byte-level tokenizer of the library with BERT's special tokens, which frames its texts as given."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        SENTENCES,
        trainers.BpeTrainer(vocab_size=VOCAB - 8, special_tokens=specials, initial_alphabet=alphabet, show_progress=False),
    )
    if frame:
        pieces = [(name, made.token_to_id(name)) for name in specials]
        made.post_processor = processors.TemplateProcessing(single=f"{frame[0]} $A {frame[1]}".strip(), special_tokens=pieces)
    return made


def write_tokenizer(folder: Path, frame: tuple[str, str] | None = ("[CLS]", "[SEP]")) -> Any:
    """``tokenizer.json`` and its companions, by transformers."""
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=word_pieces(frame), **roles)
    fast.save_pretrained(folder)
    return fast


def make_theirs(name: str, seed: int = 0) -> Any:
    """A tiny model of transformers with spread weights, biases and norms included."""
    config, model, settings = CASES[name]
    torch.manual_seed(seed)
    made = getattr(transformers, model)(getattr(transformers, config)(**settings)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return made


def ragged(side: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Three rows of 17, 5 and 1 tokens, padded on one side with another row's tokens."""
    ids = torch.randint(6, VOCAB - 8, (3, 17), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(17) < torch.tensor([17, 5, 1])[:, None]
    return (ids, mask) if side == "right" else (ids, mask.flip(1))


def folder_of(name: str, place: Path, seed: int = 0) -> Path:
    """A folder that a test may hurt."""
    make_theirs(name, seed).save_pretrained(place)
    write_tokenizer(place)
    return place
