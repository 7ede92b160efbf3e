"""Cost: parameters part by part in literal numbers; FLOPs and activations equal torch's own count of a real step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import warmstart as ws
from helpers.bundles import bundle_with
from helpers.models import make_backbone
from warmstart.backbone.config import PRESETS, BackboneConfig
from warmstart.cli import main
from warmstart.commands.cost import count_parameters, count_step, estimate_cost, make_model, without_storage
from warmstart.commands.settings import CostConfig
from warmstart.config import read_yaml
from warmstart.errors import ConfigError
from warmstart.finetuning.scheme import apply_scheme
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.files import save
from warmstart.model.history import PretrainRecord
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.tokenizer.tokenizer import Tokenizer

LAB = BackboneConfig.build(PRESETS["lab"])
SWITCHES = [
    {"norm": "post", "positions": "sinusoidal", "activation": "relu"},
    {"attention": "synthesizer", "dropout": 0.1},
    {"norm_type": "rms", "activation": "swiglu", "bias": False, "heads": 4, "kv_heads": 2, "head_width": 8, "qk_norm": True},
    {"norm": "post", "positions": "learned", "embedding_norm": True, "token_types": 2, "position_offset": 2},
    {"bias": False, "activation": "geglu", "embedding_norm": True, "first_norm": False, "window": 4, "global_every": 3},
]
SCHEMES = ("full", "probe", "lora", "houlsby", "scalar-mix")


def make(head: ClassificationHeadConfig | LMHeadConfig, scheme: str = "full", **switches: object) -> Model:
    """A tiny real model under a scheme."""
    backbone = make_backbone(**switches)
    model = Model(backbone, fresh_head(head, backbone, 0), causal=True)
    apply_scheme(model, make_scheme(scheme))
    return model.train()


def test_the_labs_numbers() -> None:
    """Embedding, backbone, heads and totals; a tied weight is counted once."""
    parts, labels = count_parameters(without_storage(LAB, 50_001, ClassificationHeadConfig(classes=2)))
    assert (parts["embedding"], labels["backbone"], labels["head"], labels["total"]) == (10_000_200, 10_968_200, 402, 10_968_602)
    _, words = count_parameters(without_storage(LAB, 50_001, LMHeadConfig(tied=False, bias=True)))
    assert (words["backbone"], words["head"], words["total"]) == (10_968_200, 10_050_201, 21_018_401)
    _, tied = count_parameters(without_storage(LAB, 50_001, LMHeadConfig()))
    assert (tied["head"], tied["total"]) == (0, 10_968_200)


def test_parts_add_up() -> None:
    """Each parameter is in one part, those of inserted adapters in their own, and trainable and frozen ones are all."""
    for scheme in SCHEMES:
        model = make(ClassificationHeadConfig(classes=2), scheme)
        parts, totals = count_parameters(model)
        assert sum(parts.values()) == totals["total"] == sum(one.numel() for one in model.parameters()), scheme
        assert totals["trainable"] == sum(one.numel() for one in model.parameters() if one.requires_grad), scheme
        assert totals["trainable"] + totals["frozen"] == totals["total"], scheme
        assert ("inserted adapters" in parts) == (scheme in ("lora", "houlsby", "scalar-mix")), scheme


def real_step(model: Model, rows: int, tokens: int) -> tuple[int, int, int]:
    """FLOPs forwards, and forwards and backwards, and bytes that autograd keeps of a step that is computed."""
    known = {one.untyped_storage().data_ptr() for one in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.Tensor] = {}  # the tensors are held, so that no address is used twice

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if (place := tensor.untyped_storage().data_ptr()) not in known:
            kept[place] = tensor
        return tensor

    ids = torch.randint(model.backbone.vocab_size, (rows, tokens))
    with FlopCounterMode(display=False) as forward, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = model(ids)
    with FlopCounterMode(display=False) as backward:
        outputs.sum().backward()
    there, back = forward.get_total_flops(), backward.get_total_flops()
    return there, there + back, sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def test_what_is_counted_is_what_a_step_takes() -> None:
    """FLOPs and bytes without storage equal those of a real step, for switches, heads and schemes."""
    heads = ClassificationHeadConfig(classes=3), LMHeadConfig(tied=False, bias=True)
    cases = [*(("full", switches) for switches in SWITCHES), *((scheme, {}) for scheme in SCHEMES)]
    for scheme, switches in cases:
        for head in heads if scheme == "full" else heads[:1]:
            model = make(head, scheme, **switches)
            forward, training, kept = real_step(model, 3, 16)
            flops, activations = count_step(model.to("meta"), 3, 16, 1.0)
            assert (round(flops["forward"] * 48), round(flops["training"] * 48)) == (forward, training), (scheme, switches)
            assert activations == kept, (scheme, switches)


def test_flops_in_literal_numbers() -> None:
    """The preset lab at 256 tokens: 2 x 960,000, 4 L T D, and the head for masked tokens; three times as much to train."""
    model = without_storage(LAB, 50_001, LMHeadConfig(tied=False, bias=True))
    flops, activations = count_step(model, 8, 256, 0.25)
    assert flops["forward"] == 1_920_000 + 819_200 + 2 * 50_001 * 200 / 4
    assert flops["training"] == 3 * flops["forward"]
    assert activations > 4 * 2048 * 9_264, "9,264 bytes for each token and block"


def test_memory_is_what_is_kept() -> None:
    """AdamW keeps two numbers for each parameter that trains, Muon one for the matrices of the blocks; a probe keeps little."""
    adamw, muon = (estimate_cost(CostConfig.build({"vocab_size": 60, "optimizer": name})).memory for name in ("adamw", "muon"))
    assert adamw["optimiser state"] == 2 * adamw["weights"] == 2 * adamw["gradients"]
    assert adamw["optimiser state"] - muon["optimiser state"] == 4 * 4 * (4 * 256 * 256 + 2 * 256 * 1024)
    assert adamw["together"] == sum(size for name, size in adamw.items() if name != "together")
    probe = estimate_cost(CostConfig.build({"vocab_size": 60, "classes": 2, "scheme": "probe"})).memory
    assert (probe["gradients"], probe["optimiser state"]) == (4 * 514, 8 * 514)
    assert probe["activations"] < adamw["activations"] / 100


def test_a_backbone_without_blocks_has_a_cost() -> None:
    """Depth 0 has no parts for blocks, and the FLOPs of its head."""
    cost = estimate_cost(CostConfig.build({"backbone": {"depth": 0}, "vocab_size": 60}))
    assert not any(name.startswith("blocks") for name in cost.parameters)
    assert cost.flops["forward"] == 2 * 60 * 256


def test_the_command_prints_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    """Parts and totals, what trains, and that a tied weight is counted once."""
    assert main(["cost", "--preset", "lab", "--vocab-size", "50001", "--head.no-tied", "--head.bias"]) == 0
    output = capsys.readouterr().err
    for words in ("10,000,200", "21,018,401", "blocks: attention", "optimiser state", "activations", "together"):
        assert words in output
    assert main(["cost", "--preset", "lab", "--vocab-size", "50001", "--classes", "2", "--scheme", "probe"]) == 0
    assert "402 of 10,968,602 parameters train, 10,968,200 are frozen" in " ".join(capsys.readouterr().err.split())
    assert main(["cost"]) == 0
    assert "counted once" in capsys.readouterr().err


def test_the_settings_of_a_pretraining_run_are_read(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Its backbone, head, vocabulary and training count, with the defaults of pretraining; an unknown key is an error."""
    whole = ws.PretrainConfig(text=("books",), tokenizer={"vocab_size": 300}, head={"tied": False}, backbone=LAB).to_dict()
    assert estimate_cost(CostConfig.build(whole)).totals["total"] == 968_000 + 2 * 300 * 200
    tokenizer.save(tmp_path / "tokenizer.json")
    own = CostConfig.build({"tokenizer_file": str(tmp_path / "tokenizer.json")})
    assert make_model(own)[0].backbone.vocab_size == tokenizer.vocab_size
    with pytest.raises(ConfigError, match="unknown key 'bakcbone'; did you mean 'backbone'"):
        CostConfig.build({"bakcbone": {}})
    file = tmp_path / "pretrain.yaml"
    file.write_text("text: [books]\ntokenizer: {vocab_size: 300}\ntrain: {steps: 3}\n")
    read, unsaid = CostConfig.build(read_yaml(file)), ws.PretrainConfig(text=("books",)).train
    assert (read.optimizer, read.batch) == (unsaid.optimizer, unsaid.batch) == ("muon", 8)
    given = ws.PretrainConfig(text=("books",), train=ws.TrainConfig(steps=3)).train
    assert (given.optimizer, given.batch, given.schedule) == ("adamw", 16, "cosine")


def test_the_cost_of_a_saved_model(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """With its own head or a new one, and the targets of its objective; settings that contradict it are refused."""
    bundle = bundle_with(tokenizer, LMHeadConfig())
    places = []
    for rate in (0.25, 0.5):
        history = (PretrainRecord(objective=ObjectiveConfig(name="masked", mask_rate=rate)),)
        places.append(str(save(replace(bundle, history=history), tmp_path / f"{rate}")))
    few, many = (estimate_cost(CostConfig(model=place)) for place in places)
    assert few.totals["total"] == sum(one.numel() for one in bundle.model.parameters())
    assert few.flops["forward"] < many.flops["forward"]
    assert estimate_cost(CostConfig(model=places[0], classes=3)).totals["head"] == 16 * 3 + 3
    with pytest.raises(ConfigError, match="a saved model has its own vocab_size; remove these settings"):
        estimate_cost(CostConfig(model=places[0], vocab_size=7))
    with pytest.raises(ConfigError, match="length must be at most max_length"):
        estimate_cost(CostConfig(model=places[0], length=10_000))
