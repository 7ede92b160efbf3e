"""LoRA weights to and from the peft library: equal outputs both ways."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import warmstart as ws
from helpers.foreign import folder_of, make_theirs, ragged
from helpers.models import make_language_model
from helpers.refusals import refused
from warmstart.adapters import insert_adapter
from warmstart.adapters.insertion import merge_adapters
from warmstart.adapters.lora import LoraConfig
from warmstart.cli import main
from warmstart.errors import ModelError
from warmstart.interop.convert import from_huggingface
from warmstart.interop.peft import read_lora, write_lora
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle, save
from warmstart.tokenizer.tokenizer import Tokenizer

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings(
    "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"
)  # peft asks transformers so

READ = [
    ("gpt2", ["c_attn"]),
    ("gpt2", ["c_attn", "c_proj"]),
    ("bert", ["query", "value"]),
    ("bert-bare", ["query", "key", "attention.output.dense", "intermediate.dense"]),
    ("llama", ["q_proj", "v_proj"]),
    ("qwen3", ["q_proj", "k_proj", "v_proj", "o_proj", "down_proj"]),
    ("modernbert", ["Wqkv"]),
]
WRITE = [
    ("gpt2", ("q", "v")), ("gpt2", ("qkv", "out")), ("gpt2", ("q", "out", "feedforward")), ("bert", ("q", "v")),
    ("bert-bare", ("out", "feedforward")), ("bert", ("qkv",)), ("llama", ("q", "v", "feedforward")), ("llama", ("qkv", "out")),
]  # fmt: skip


def spread(model: Any) -> None:
    """Pairs that change something: B is no longer zero."""
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.2)


def check_states(theirs: Any, bundle: Bundle, case: object) -> None:
    """Theirs and ours give the same last hidden state."""
    ids = ragged("right")[0][:2]
    with torch.no_grad():
        ours = bundle.model.backbone(ids, causal=bundle.model.causal).last_hidden_state
        wanted = theirs.eval()(ids, output_hidden_states=True).hidden_states[-1]
    torch.testing.assert_close(ours, wanted, atol=2e-5, rtol=1e-5, msg=lambda said: f"{case}: {said}")


def test_a_peft_folder_is_read(tmp_path: Path) -> None:
    """Its model and ours with the pairs inserted say the same, and so does ours with them folded in."""
    for number, (name, targets) in enumerate(READ):
        place = tmp_path / f"{number}"
        bundle = from_huggingface(folder_of(name, place / "base"))
        config = peft.LoraConfig(r=3, lora_alpha=7, target_modules=targets, fan_in_fan_out=name == "gpt2")
        theirs = peft.get_peft_model(make_theirs(name), config)
        spread(theirs)
        theirs.save_pretrained(place / "lora")
        read_lora(bundle, place / "lora")
        check_states(theirs, bundle, (name, targets))
        check_states(theirs, replace(bundle, model=merge_adapters(bundle.model)), (name, targets))


def test_a_peft_folder_is_written(tmp_path: Path) -> None:
    """What peft reads of it says the same as ours: fused matrices are cut or joined, ranks filled up with zeros."""
    for number, (name, targets) in enumerate(WRITE):
        place = tmp_path / f"{number}"
        bundle = from_huggingface(folder_of(name, place / "base"))
        insert_adapter(bundle.model.backbone, LoraConfig(rank=2, alpha=5.0, targets=targets), 0)
        spread(bundle.model)
        write_lora(bundle, place / "lora")
        check_states(peft.PeftModel.from_pretrained(make_theirs(name), place / "lora"), bundle, (name, targets))


def test_what_is_no_plain_lora_of_this_model_is_refused(tmp_path: Path) -> None:
    """By the name of the setting, or of the layer that has no place; gate and value must share their first matrix."""
    for name, model, targets in (("a", "bert", ["query"]), ("b", "llama", ["gate_proj", "up_proj"])):
        theirs = peft.get_peft_model(make_theirs(model), peft.LoraConfig(r=3, target_modules=targets))
        theirs.save_pretrained(tmp_path / name)
    bert, llama = (from_huggingface(folder_of(name, tmp_path / name)) for name in ("bert", "llama"))
    refused(ModelError, "must have one LoRA, but this one has 0", write_lora, llama, tmp_path / "c")
    elsewhere = r"belong to a block of this Llama, SmolLM model, but bert\.encoder\.layer\.0"
    refused(ModelError, elsewhere, read_lora, llama, tmp_path / "a")
    refused(ModelError, "must share lora_A, but those of blocks.0.feedforward.inner differ", read_lora, llama, tmp_path / "b")
    file = tmp_path / "a" / "adapter_config.json"
    sound = json.loads(file.read_text())
    for change, said in (
        ({"use_dora": True}, "use_dora must be False, but is True in"),
        ({"peft_type": "IA3"}, "peft_type must be 'LORA', but is 'IA3' in"),
        ({"r": 9}, "lora_A must have 9 rows, as r is in"),
    ):
        file.write_text(json.dumps(sound | change))
        refused(ModelError, said, read_lora, bert, tmp_path / "a")


def test_a_backbone_of_no_family_is_refused(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the settings that do not fit and another format, with exit code 2, and nothing is written."""
    bundle = Bundle(make_language_model(vocab_size=tokenizer.vocab_size, positions="rotary", window=4, global_every=2), tokenizer)
    insert_adapter(bundle.model.backbone, LoraConfig(rank=2), 0)
    save(bundle, tmp_path / "m")
    assert main(["export", str(tmp_path / "m"), "--to", "peft", "--out", str(tmp_path / "o")]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    for said in ("the settings must be those of a model family", "window 4 instead of None", "export it with --to onnx"):
        assert said in printed
    assert not (tmp_path / "o").exists()


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Import onto a bundle, export to peft."""
    theirs = peft.get_peft_model(make_theirs("llama"), peft.LoraConfig(r=2, target_modules=["q_proj"]))
    theirs.save_pretrained(tmp_path / "lora")
    save(ws.load(f"hf:{folder_of('llama', tmp_path / 'base')}"), tmp_path / "m")
    assert main(["import", str(tmp_path / "lora"), "--onto", str(tmp_path / "m"), "--out", str(tmp_path / "n")]) == 0
    assert "with LoRA of rank 2 on q" in capsys.readouterr().err
    assert load_bundle(tmp_path / "n").generates
    assert main(["export", str(tmp_path / "n"), "--to", "peft", "--out", str(tmp_path / "o")]) == 0
    assert (tmp_path / "o" / "adapter_model.safetensors").exists()
