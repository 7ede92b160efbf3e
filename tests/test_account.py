"""The account: closed forms equal the real modules for every switch, and the published numbers come out."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from conftest import make_backbone
from warmstart.backbone import PRESETS, Backbone, BackboneConfig
from warmstart.cli import main
from warmstart.heads import ClassifyHeadConfig, LanguageHeadConfig
from warmstart.model import Model, fresh_head
from warmstart.model.account import account, flops_per_token, inference_bytes, training_bytes
from warmstart.schemes import apply_scheme, make_scheme


def lab(head: ClassifyHeadConfig | LanguageHeadConfig) -> Model:
    """The lab's backbone under a head."""
    backbone = Backbone(BackboneConfig.build(PRESETS["lab"]), 50_001)
    return Model(backbone, fresh_head(head, backbone, 0), causal=True)


def test_the_labs_numbers() -> None:
    """Embeddings 10,000,200, backbone 10,968,200, heads 402 and 10,050,201, totals 10,968,602 and 21,018,401."""
    found = account(lab(ClassifyHeadConfig(classes=2)))
    counts = {part.name: part.counted for part in found.parts}
    assert counts["token embedding"] == 10_000_200
    assert counts["head"] == 402
    assert (found.backbone, found.total) == (10_968_200, 10_968_602)
    written = account(lab(LanguageHeadConfig(tied=False, bias=True)))
    assert {part.name: part.counted for part in written.parts}["head"] == 10_050_201
    assert written.total == 21_018_401
    assert found.others["language head, own weight, bias"] == 10_050_201
    assert account(lab(LanguageHeadConfig())).total == 10_968_200, "a tied head adds nothing"


SWITCHES = {
    "norm": ("pre", "post"),
    "norm_kind": ("layer", "rms"),
    "positions": ("learned", "sinusoidal", "rotary"),
    "attention": ("dot-product", "synthesizer"),
    "activation": ("relu", "swiglu"),
    "bias": (True, False),
}


@pytest.mark.parametrize("values", list(itertools.product(*SWITCHES.values())), ids=str)
def test_every_switch_has_its_closed_form(values: tuple[object, ...]) -> None:
    """Part by part equal to the real module (``account`` itself refuses a difference), and in sum; with every kind of head."""
    backbone = make_backbone(**dict(zip(SWITCHES, values, strict=True)))
    for head in (ClassifyHeadConfig(classes=3), LanguageHeadConfig(), LanguageHeadConfig(tied=False, bias=True)):
        model = Model(backbone, fresh_head(head, backbone, 0), causal=True)
        assert account(model).total == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("scheme", ["full", "probe", "houlsby", "lora", "bitfit", "mix"])
def test_what_trains_under_a_scheme(scheme: str) -> None:
    """Trainable and frozen parameters are those that really are, inserted modules among them."""
    backbone = make_backbone()
    model = Model(backbone, fresh_head(ClassifyHeadConfig(classes=2), backbone, 0), causal=True)
    apply_scheme(model, make_scheme(scheme))
    found = account(model)
    assert found.total == sum(parameter.numel() for parameter in model.parameters())
    assert found.trainable == sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


@pytest.mark.parametrize("attention", ["dot-product", "synthesizer"])
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_operations_are_those_torch_counts(attention: str, activation: str) -> None:
    """Forward operations of a row as long as the window equal torch's own counter: matrices, attention and head."""
    backbone = make_backbone(vocab_size=100, attention=attention, activation=activation, max_tokens=24)
    model = Model(backbone, fresh_head(LanguageHeadConfig(), backbone, 0), causal=True)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        model(torch.zeros(1, 24, dtype=torch.int64))
    assert 24 * flops_per_token(account(model), 24)["forward"] == counter.get_total_flops()


def test_a_masked_objective_scores_few() -> None:
    """The head's share falls with the share of hidden tokens; a classification head costs next to nothing."""
    found = account(lab(LanguageHeadConfig()))
    assert flops_per_token(found, 64, 0.15)["head"] == pytest.approx(0.15 * flops_per_token(found, 64)["head"])
    assert flops_per_token(account(lab(ClassifyHeadConfig(classes=2))), 64)["head"] == 0


def test_memory_adds_up() -> None:
    """Weights and gradients take four bytes each, AdamW eight more; a frozen backbone has neither gradient nor moments."""
    model = lab(ClassifyHeadConfig(classes=2))
    said = training_bytes(account(model), 16, 256, half=True)
    assert (said["weights"], said["gradients"], said["optimiser"]) == (4 * 10_968_602, 4 * 10_968_602, 8 * 10_968_602)
    apply_scheme(model, make_scheme("probe"))
    assert training_bytes(account(model), 16, 256, half=True)["optimiser"] == 8 * 402
    assert inference_bytes(account(model), 2, 10)["keys and values"] == 2 * 4 * 2 * 10 * 200 * 4


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Of settings, as a table and as JSON; unknown schemes are refused."""
    flags = ["account", "--preset", "lab", "--vocab-size", "50001", "--classes", "2"]
    assert main(flags) == 0
    said = capsys.readouterr().err
    for number in ("10,000,200", "10,968,200", "402", "10,968,602", "21,018,401"):
        assert number in said
    assert main([*flags, "--scheme", "probe", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["total"], figures["trainable"]) == (10_968_602, 402)
    assert main([*flags, "--scheme", "prob"]) == 2
    assert "did you mean 'probe'" in capsys.readouterr().err


def test_of_settings_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a pretraining would make, before anything is paid: its preset, head, objective and vocabulary."""
    file = tmp_path / "plan.yaml"
    file.write_text("text: [a.txt]\npreset: lab\nhead: {tied: false, bias: true}\ntokenizer: {vocab_size: 50001}\n")
    assert main(["account", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"] == 21_018_401
    file.write_text("presets: lab\n")
    assert main(["account", str(file)]) == 2
    assert "unknown key 'presets'" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_measured_is_near_what_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    """The high-water mark of a real step lies within a factor of two of the prediction, and a speed is given."""
    assert main(["account", "--preset", "small", "--batch", "8", "--measure", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    ratio = figures["measured"]["training"]["bytes"] / sum(figures["training bytes"].values())
    assert 0.5 < ratio < 2
    assert figures["measured"]["training"]["seconds"] > 0
