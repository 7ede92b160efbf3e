"""Settings beside the weights: each that transformers or sentence-transformers reads is applied, refused, or named."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

import warmstart as ws
from helpers.foreign import SENTENCES, folder_of, transformers
from helpers.refusals import refused
from warmstart.data.encode import encode
from warmstart.errors import ModelError, TokenizerError
from warmstart.interop import settings as table
from warmstart.interop.companions import framed
from warmstart.interop.convert import from_huggingface, import_folder
from warmstart.interop.families import FAMILIES
from warmstart.interop.settings import FOREIGN_SETTINGS, config_settings, unapplied

TEXTS = ["She Holds the CAT", "the café 数字 at É", ""]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SENTENCE_KEYS = {
    table.SENTENCES_FILE: "__version__ prompts default_prompt_name similarity_fn_name truncate_dim model_type requirements",
    table.TRANSFORMER_FILE: """max_seq_length do_lower_case model_args tokenizer_args config_args model_kwargs processor_kwargs
        config_kwargs transformer_task modality_config module_output_name processing_kwargs unpad_inputs query_length
        document_length query_expansion backend tokenizer_name_or_path""",
    table.MODULES_FILE: "idx name path type kwargs",
    table.POOLING_FILE: """word_embedding_dimension embedding_dimension pooling_mode include_prompt pooling_mode_cls_token
        pooling_mode_max_tokens pooling_mode_mean_tokens
        pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens pooling_mode_lasttoken""",
    table.NORMALIZE_FILE: "module_input_name module_output_name",
}
"""what sentence-transformers 6.2.0 and its earlier versions read, by file"""


def tokenizer_keys() -> Iterator[str]:
    """What transformers' classes of tokenizers take: parameters, what they look up among others, and roles of tokens."""
    base, backend = transformers.PreTrainedTokenizerBase, transformers.PreTrainedTokenizerFast
    kinds = [getattr(transformers, f"{kind}Tokenizer") for kind in ("Bert", "GPT2", "Roberta", "XLMRoberta", "Camembert", "MPNet")]
    kinds += [transformers.Qwen2Tokenizer, transformers.LlamaTokenizer, base, backend]
    for kind in kinds:
        yield from inspect.signature(kind.__init__).parameters
        yield from re.findall(r'kwargs\.(?:pop|get)\(\s*"(\w+)"', inspect.getsource(kind.__init__))
    yield from base.SPECIAL_TOKENS_ATTRIBUTES


def test_every_setting_that_a_library_reads_is_classified() -> None:
    """Whatever key their classes take is in the table; a new one of another version makes this fail."""
    every = {field.name for field in fields(transformers.PreTrainedConfig)}
    for name, family in FAMILIES.items():
        made = transformers.CONFIG_MAPPING[name]()
        keys = every | {field.name for field in fields(type(made))} | made.to_dict().keys()
        assert not keys - config_settings(family).keys(), name
    ignored = {"self", "args", "kwargs"}
    assert not {*tokenizer_keys()} - FOREIGN_SETTINGS[table.TOKENIZER_FILE].keys() - ignored
    for file, keys in SENTENCE_KEYS.items():
        assert {*keys.split()} == FOREIGN_SETTINGS[file].keys(), file
    assert unapplied(table.TOKENIZER_FILE, {"brand_new": 3, "old": None}) == ["brand_new 3 of tokenizer_config.json (unknown here)"]


def test_a_missing_key_has_the_value_that_it_has_there() -> None:
    """As of their configuration classes: sizes, and what must have one value."""
    for name, family in FAMILIES.items():
        theirs = {field.name: field.default for field in fields(transformers.CONFIG_MAPPING[name])}
        for key, default in family.settings.values():
            assert theirs.get(key, default) == default, (name, key)
        missing = {key: theirs.get(key) for key, value in family.must.items() if theirs.get(key) not in (value, None)}
        assert missing.keys() == {*family.stated}, name


def cased_tokenizer(folder: Path, **settings: Any) -> Path:
    """A lowercasing tokenizer of words as BERT's, with a few words in either case, and settings beside it."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *"SHCATé数字É", *(f"##{one}" for one in LETTERS + "HCATé字")]
    made = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    frame = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)])
    made.post_processor = processors.TemplateProcessing(*frame)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **settings}))
    return folder


def test_a_tokenizer_reads_texts_as_the_settings_beside_it_say(tmp_path: Path) -> None:
    """Case, accents and Chinese characters as transformers applies them to BERT's classes; the generic class ignores them."""
    folder = folder_of("bert-bare", tmp_path)
    for settings in (
        {"do_lower_case": True},
        {"do_lower_case": False},
        {"do_lower_case": False, "strip_accents": True},
        {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False},
        {"do_lower_case": False, "tokenizer_class": "PreTrainedTokenizerFast"},
    ):
        theirs = transformers.AutoTokenizer.from_pretrained(cased_tokenizer(folder, **settings))
        ours = from_huggingface(folder).tokenizer
        assert ours.encode(TEXTS) == theirs(TEXTS, add_special_tokens=False)["input_ids"], settings
    cased, lower = (from_huggingface(cased_tokenizer(folder, do_lower_case=case)) for case in (False, True))
    assert not torch.allclose(ws.embed(cased, TEXTS[:1]), ws.embed(lower, TEXTS[:1]), atol=1e-3)
    assert "do_lower_case, absent from" in " ".join(import_folder(without_case(folder)).settings)


def without_case(folder: Path) -> Path:
    """The same folder, whose tokenizer.json keeps case, and whose settings do not mention it."""
    spec = json.loads((folder / "tokenizer.json").read_text())
    spec["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    return folder


def test_the_space_before_a_text_is_that_of_the_settings(tmp_path: Path) -> None:
    """RoBERTa's and GPT-2's classes take it from the settings beside tokenizer.json."""
    folder = folder_of("roberta", tmp_path)
    for space in (True, False):
        roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
        settings = {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": space, **roles}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        assert from_huggingface(folder).tokenizer.encode(SENTENCES) == theirs(SENTENCES, add_special_tokens=False)["input_ids"]


def sentence_encoder(folder: Path, **files: Any) -> Path:
    """A folder of sentence-transformers with these files beside the usual ones."""
    kinds = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds]
    given = {"modules": modules, "1_Pooling/config": {"pooling_mode_mean_tokens": True}, **files}
    for name, value in given.items():
        (folder / f"{name}.json").parent.mkdir(exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def test_what_a_sentence_encoder_asks_for_is_done_or_said(tmp_path: Path) -> None:
    """Narrower vectors are refused; prompts that are no default, a shorter length and similarity are named."""
    plain = sentence_encoder(folder_of("bert-bare", tmp_path / "plain"))
    assert import_folder(plain).settings == ()
    more, prompts, deep = "config_sentence_transformers", {"query": "query: ", "document": ""}, {"type": "my.Pooling", "path": "x"}
    for number, (files, said) in enumerate((
        ({more: {"prompts": prompts, "default_prompt_name": "document"}}, "prompts {'query': 'query: '} of config_"),
        ({more: {"similarity_fn_name": "dot"}}, "similarity_fn_name 'dot' of config_"),
        ({"sentence_bert_config": {"max_seq_length": 20}}, "maximum length of 20 (texts of up to 66 tokens"),
        ({"sentence_roberta_config": {"max_seq_length": 30}}, "maximum length of 30"),
        ({"tokenizer_config": {"model_max_length": 40, "truncation_side": "left"}}, "maximum length of 40"),
        ({"tokenizer_config": {"truncation_side": "left"}}, "truncation_side 'left' of tokenizer_config.json (the end"),
    )):  # fmt: skip
        found = import_folder(sentence_encoder(folder_of("bert-bare", tmp_path / f"named {number}"), **files)).settings
        assert said in " ".join(found), (files, found)
    for number, (files, said) in enumerate((
        ({more: {"truncate_dim": 16}}, "truncate_dim in config_sentence_transformers.json must be None, but is 16"),
        ({"2_Normalize/config": {"module_input_name": "token_embeddings"}}, "module_input_name in Normalize must be"),
        ({"modules": [deep]}, "also applies my.Pooling"),
        ({"sentence_bert_config": {"config_args": {"num_hidden_layers": 1}}}, "config_args in sentence_bert_config.json"),
        ({"adapter_config": {"r": 2}}, "must not hold adapter_config.json beside its weights"),
    )):  # fmt: skip
        folder = sentence_encoder(folder_of("bert-bare", tmp_path / f"refused {number}"), **files)
        refused(ModelError, said, from_huggingface, folder)
    lower = from_huggingface(sentence_encoder(plain, sentence_bert_config={"do_lower_case": True})).tokenizer
    assert lower.encode([SENTENCES[0].upper()]) == lower.encode([SENTENCES[0].lower()])


def test_added_tokens_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    """A token that only the files beside tokenizer.json have would be read otherwise there; a token for padding alone is none."""
    folder, file = folder_of("bert-bare", tmp_path), tmp_path / "added_tokens.json"
    roles = json.loads((folder / "tokenizer_config.json").read_text())
    numbered = {"content": "the", "special": False, "lstrip": True}
    for added, settings in (
        ({"<ent>": 300}, {}),
        ({}, {"extra_special_tokens": ["<ent>"]}),
        ({}, {"added_tokens_decoder": {"7": numbered}}),
        ({}, {"additional_special_tokens": [{"content": "<ent>"}]}),
    ):
        file.write_text(json.dumps(added))
        (folder / "tokenizer_config.json").write_text(json.dumps(roles | settings))
        refused(TokenizerError, "every added token must be in tokenizer.json.*save_pretrained", from_huggingface, folder)
    file.write_text(json.dumps({"[MASK]": 4}))
    (folder / "tokenizer_config.json").write_text(json.dumps(roles | {"pad_token": "<another>"}))
    assert from_huggingface(folder).tokenizer.id("[MASK]") == 4


def test_a_shorter_length_can_be_asked_for(tmp_path: Path) -> None:
    """Of a table of positions the first ones are kept, so that long texts give what they give where they are cut at this length."""
    for case in ("bert-bare", "roberta", "gpt2"):
        folder = folder_of(case, tmp_path / case)
        whole, short = from_huggingface(folder), import_folder(folder, 9).bundle
        assert short.model.backbone.config.max_length == 9
        ids = torch.arange(6, 15)[None]
        assert torch.equal(short.model(ids), whole.model(ids)), case
    ws.to_huggingface(short, tmp_path / "out")
    assert from_huggingface(tmp_path / "out").model.backbone.config.max_length == 9


def test_wrappers_of_names_are_taken_off(tmp_path: Path) -> None:
    """torch.compile and DataParallel put a prefix before every name; the model is the same."""
    folder = folder_of("bert-labels", tmp_path)
    before, stored = from_huggingface(folder).model.weights(), load_file(folder / "model.safetensors")
    for prefix in ("_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module."):
        save_file({prefix + name: tensor for name, tensor in stored.items()}, folder / "model.safetensors", {"format": "pt"})
        after = from_huggingface(folder).model.weights()
        assert all(torch.equal(after[name], tensor) for name, tensor in before.items()), prefix


def test_a_multilingual_tokenizer_reads_as_theirs(tmp_path: Path) -> None:
    """XLM-RoBERTa's: pieces of a Unigram model with their spaces marked, in a frame of <s> and </s>."""
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((f"▁{one}", -3.0) for one in LETTERS), ("▁", -4.0)]
    pieces += [(one, -5.0) for one in LETTERS + "ABCé数字.مرح"] + [("▁the", -2.0), ("<mask>", 0.0)]
    made = Tokenizer(models.Unigram(pieces, unk_id=3))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    frame = ("<s> $A </s>", "<s> $A </s> </s> $B </s>", [("<s>", 0), ("</s>", 2)])
    made.post_processor = processors.TemplateProcessing(*frame)
    folder = folder_of("xlm-roberta", tmp_path)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "XLMRobertaTokenizer", "mask_token": "<mask>"}))
    theirs, came = transformers.AutoTokenizer.from_pretrained(folder), import_folder(folder)
    texts = [*SENTENCES[:3], *TEXTS, "مرح 数字", "a  b"]
    assert [row.tolist() for row in encode(came.bundle.tokenizer, texts, 64).rows] == theirs(texts)["input_ids"]
    assert came.settings == ()
    typed = folder_of("bert", tmp_path / "typed")
    assert import_folder(typed).settings == ()
    made.save(str(typed / "tokenizer.json"))
    (typed / "tokenizer_config.json").write_text("{}")
    assert import_folder(typed).settings == ("token type 0 of the second text of a pair (it has type 1)",)
    pairs = [("a cat", "the cat"), ("a", "the cat " * 40)]
    rows = encode(came.bundle.tokenizer, pairs, 64).rows
    wanted = [theirs(*pair, truncation=True, max_length=64)["input_ids"] for pair in pairs]
    assert [row.tolist() for row in rows] == wanted
    library = Tokenizer.from_str(framed(came.bundle.tokenizer, came.bundle.tokenizer.specials.eos, typed=False))
    assert library.encode(*pairs[0]).ids == wanted[0]
