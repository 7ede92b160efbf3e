"""LoRA weights to and from the peft library: equal outputs both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import warmstart as ws
from helpers.foreign import folder_of, make_theirs, ragged
from helpers.models import make_language_model
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


def states_of(theirs: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return theirs.eval()(ids, output_hidden_states=True).hidden_states[-1]


@pytest.mark.parametrize(("name", "targets"), READ, ids=str)
def test_a_peft_folder_is_read(name: str, targets: list[str], tmp_path: Path) -> None:
    """Its model and ours with the pairs inserted say the same, and so does ours with them folded in."""
    bundle = from_huggingface(folder_of(name, tmp_path / "base"))
    config = peft.LoraConfig(r=3, lora_alpha=7, target_modules=targets, fan_in_fan_out=name == "gpt2")
    theirs = peft.get_peft_model(make_theirs(name), config)
    spread(theirs)
    theirs.save_pretrained(tmp_path / "lora")
    read_lora(bundle, tmp_path / "lora")
    ids = ragged("right")[0][:2]
    for model in (bundle.model, merge_adapters(bundle.model)):
        with torch.no_grad():
            ours = model.backbone(ids, causal=bundle.model.causal).last_hidden_state
        torch.testing.assert_close(ours, states_of(theirs, ids), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(("name", "targets"), WRITE, ids=str)
def test_a_peft_folder_is_written(name: str, targets: tuple[Any, ...], tmp_path: Path) -> None:
    """What peft reads of it says the same as ours: fused matrices are cut or joined, ranks filled up with zeros."""
    bundle = from_huggingface(folder_of(name, tmp_path / "base"))
    insert_adapter(bundle.model.backbone, LoraConfig(rank=2, alpha=5.0, targets=targets), 0)
    spread(bundle.model)
    write_lora(bundle, tmp_path / "lora")
    theirs = peft.PeftModel.from_pretrained(make_theirs(name), tmp_path / "lora")
    ids = ragged("right")[0][:2]
    with torch.no_grad():
        ours = bundle.model.backbone(ids, causal=bundle.model.causal).last_hidden_state
    torch.testing.assert_close(ours, states_of(theirs, ids), atol=2e-5, rtol=1e-5)


def test_a_round_trip_keeps_the_bits(tmp_path: Path) -> None:
    """Written and read again, the pairs are what they were."""
    one, two = (from_huggingface(folder_of("bert", tmp_path / name)) for name in ("a", "b"))
    insert_adapter(one.model.backbone, LoraConfig(rank=2, targets=("q", "v", "out")), 0)
    spread(one.model)
    write_lora(one, tmp_path / "lora")
    read_lora(two, tmp_path / "lora")
    before, after = one.model.weights(), two.model.weights()
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"use_dora": True}, "use_dora must be False, but is True in"),
        ({"peft_type": "IA3"}, "peft_type must be 'LORA', but is 'IA3' in"),
        ({"r": 9}, "lora_A must have 9 rows, as r is in"),
    ],
)
def test_what_is_no_plain_lora_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    """By the name of the setting."""
    bundle = from_huggingface(folder_of("bert", tmp_path / "base"))
    theirs = peft.get_peft_model(make_theirs("bert"), peft.LoraConfig(r=3, target_modules=["query"]))
    theirs.save_pretrained(tmp_path / "lora")
    file = tmp_path / "lora" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ModelError, match=said):
        read_lora(bundle, tmp_path / "lora")


def test_another_models_lora_and_none_at_all_are_refused(tmp_path: Path) -> None:
    """The layer that has no place is named; gate and value must share their first matrix."""
    bundle = from_huggingface(folder_of("llama", tmp_path / "base"))
    for place, name, targets in (("a", "bert", ["query"]), ("b", "llama", ["gate_proj", "up_proj"])):
        theirs = peft.get_peft_model(make_theirs(name), peft.LoraConfig(r=2, target_modules=targets))
        theirs.save_pretrained(tmp_path / place)
    with pytest.raises(ModelError, match=r"belong to a block of this Llama, SmolLM model, but bert\.encoder\.layer\.0"):
        read_lora(bundle, tmp_path / "a")
    with pytest.raises(ModelError, match="must share lora_A, but those of blocks.0.feedforward.inner differ"):
        read_lora(bundle, tmp_path / "b")
    with pytest.raises(ModelError, match="must have one LoRA, but this one has 0"):
        write_lora(from_huggingface(tmp_path / "base"), tmp_path / "c")


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_backbone_of_no_family_is_refused(
    positions: str, tokenizer: Tokenizer, tmp_path: Path, no_second_process: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the settings that do not fit and another format, with exit code 2, and nothing is written."""
    bundle = Bundle(make_language_model(vocab_size=tokenizer.vocab_size, positions=positions, window=4, global_every=2), tokenizer)
    insert_adapter(bundle.model.backbone, LoraConfig(rank=2), 0)
    save(bundle, tmp_path / "m")
    assert main(["export", str(tmp_path / "m"), "--to", "peft", "--out", str(tmp_path / "o")]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert "the settings must be those of a model family" in printed
    assert "window 4 instead of None" in printed
    assert "export it with --to onnx" in printed
    assert not (tmp_path / "o").exists()


def test_the_commands(tmp_path: Path, no_second_process: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Import onto a bundle, export to peft."""
    theirs = peft.get_peft_model(make_theirs("llama"), peft.LoraConfig(r=2, target_modules=["q_proj"]))
    theirs.save_pretrained(tmp_path / "lora")
    save(ws.load(f"hf:{folder_of('llama', tmp_path / 'base')}"), tmp_path / "m")
    assert main(["import", str(tmp_path / "lora"), "--onto", str(tmp_path / "m"), "--out", str(tmp_path / "n")]) == 0
    assert "with LoRA of rank 2 on q" in capsys.readouterr().err
    assert load_bundle(tmp_path / "n").generates
    assert main(["export", str(tmp_path / "n"), "--to", "peft", "--out", str(tmp_path / "o")]) == 0
    assert (tmp_path / "o" / "adapter_model.safetensors").exists()
