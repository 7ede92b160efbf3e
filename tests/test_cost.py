"""Cost: closed forms equal the modules for every setting; FLOPs and saved tensors equal torch's own count."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
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
from warmstart.commands.cost import CostConfig, estimate_cost, make_model, measuring_process
from warmstart.config import read_yaml
from warmstart.cost import measured
from warmstart.cost.cost import cost_of
from warmstart.cost.flops import first_trainable_block
from warmstart.cost.memory import FRAGMENTATION, activation_bytes, inference_memory, training_memory
from warmstart.cost.parameters import count_parameters, evaluate_form, without_storage
from warmstart.cost.workload import Workload
from warmstart.errors import ConfigError, ModelError
from warmstart.finetuning.scheme import apply_scheme
from warmstart.finetuning.schemes import make_scheme
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.heads.per_text import ClassificationHead, ClassificationHeadConfig
from warmstart.model.files import save
from warmstart.model.history import PretrainRecord
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import Batch

SWITCHES = {
    "norm": ("pre", "post"),
    "norm_type": ("layer", "rms"),
    "positions": ("sinusoidal", "learned", "rotary"),
    "attention": ("dot-product", "synthesizer"),
    "activation": ("relu", "gelu", "swiglu"),
    "bias": (True, False),
}
PRODUCT = [dict(zip(SWITCHES, values, strict=True)) for values in itertools.product(*SWITCHES.values())]
CHOSEN = PRODUCT[::11] + PRODUCT[5::31]
"""enough of them that every value of every switch occurs in each attention"""
FOREIGN = [
    {"norm": "post", "positions": "learned", "embedding_norm": True, "token_types": 2, "position_offset": 2},
    {"norm_type": "rms", "activation": "swiglu", "bias": False, "heads": 4, "kv_heads": 2, "head_width": 8, "qk_norm": True},
    {"norm_type": "rms", "activation": "swiglu", "bias": False, "qkv_bias": True, "heads": 4, "kv_heads": 1},
    {"bias": False, "activation": "geglu", "embedding_norm": True, "first_norm": False, "window": 4, "global_every": 3},
]
"""the switches of BERT and RoBERTa, Qwen3, Qwen2, ModernBERT"""
LANGUAGE = [LMHeadConfig(tied=tied, bias=bias) for tied in (True, False) for bias in (True, False)]
KINDS = [*LANGUAGE, ClassificationHeadConfig(classes=3)]
LAB = BackboneConfig.build(PRESETS["lab"])


def counts(head: ClassificationHeadConfig | LMHeadConfig) -> dict[str, int]:
    """The parameters of the preset lab under a head: parts and totals."""
    found = count_parameters(without_storage(LAB, 50_001, head))
    return {row.part: row.counted for row in found.rows} | found.totals


def make(switches: dict, head: ClassificationHeadConfig | LMHeadConfig, scheme: str = "full") -> Model:
    """A tiny real model under a scheme."""
    backbone = make_backbone(**switches)
    model = Model(backbone, fresh_head(head, backbone, 0), causal=True)
    apply_scheme(model, make_scheme(scheme))
    return model.train()


def make_batch(model: Model, rows: int, tokens: int) -> Batch:
    ids = torch.randint(model.backbone.vocab_size, (rows, tokens))
    targets = ids.clone() if isinstance(model.head.config, LMHeadConfig) else torch.zeros(rows, dtype=torch.int64)
    return Batch(ids, targets, count=rows)


def torchs_flops(model: Model, batch: Batch) -> int:
    """Of a step forwards and backwards."""
    with FlopCounterMode(display=False) as counter:
        model.loss(batch).backward()
    return counter.get_total_flops()


def test_the_labs_numbers() -> None:
    """Embedding, backbone, heads and totals; a tied weight is counted once, and both totals are given, tied or not."""
    parts = "embedding", "backbone", "head", "total"
    labels, words = counts(ClassificationHeadConfig(classes=2)), counts(LMHeadConfig(tied=False, bias=True))
    assert [labels[part] for part in parts] == [10_000_200, 10_968_200, 402, 10_968_602]
    assert [words[part] for part in parts] == [10_000_200, 10_968_200, 10_050_201, 21_018_401]
    tied, untied = (counts(LMHeadConfig(tied=tied)) for tied in (True, False))
    assert tied["head"] == 0
    assert tied["total"] == tied["total_tied"] == untied["total_tied"] == 10_968_200
    assert untied["total"] == tied["total_untied"] == untied["total_untied"] == 20_968_400
    assert "total_tied" not in labels


def test_every_switch_has_its_closed_form() -> None:
    """Part by part, with each value of each setting, under all heads in turn; the rows add up to the module's parameters."""
    for switches, head in zip(PRODUCT[::5], itertools.cycle(KINDS), strict=False):  # five heads: each value meets each head
        config = BackboneConfig.build({"width": 16, "depth": 3, "heads": 2, "feedforward": 24, "max_length": 32} | switches)
        model = without_storage(config, 60, head)
        rows = count_parameters(model).rows
        assert all(row.by_formula == row.counted for row in rows), switches
        assert sum(row.times * row.by_formula for row in rows) == sum(p.numel() for p in model.parameters()), switches


def test_imported_models_have_closed_forms_and_flops() -> None:
    """Part by part, under a head with a transform; FLOPs equal torch's count."""
    for number, switches in enumerate(FOREIGN):
        model = make(switches, LMHeadConfig(transform=True, transform_bias=number % 2 == 0, bias=True))
        for one in (model, make(switches, ClassificationHeadConfig(classes=3, hidden="relu"))):
            assert all(row.by_formula == row.counted for row in count_parameters(one).rows), switches
        mine = cost_of(model, Workload(tokens=16)).flops.training * 3 * 16
        assert mine == pytest.approx(torchs_flops(model, make_batch(model, 3, 16)), rel=1e-9), switches


def test_a_wrong_formula_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed form stands in letters and in numbers, from one text; where it differs from the count it is an error."""
    assert evaluate_form("V D + 2 D + 1", V=5000, D=8) == ("V D + 2 D + 1 = 5,000 x 8 + 2 x 8 + 1", 40_017)
    assert evaluate_form("0 + V", V=7) == ("0 + V = 0 + 7", 7)
    assert evaluate_form("0") == ("none", 0)
    monkeypatch.setattr(ClassificationHead, "parameter_formula", lambda _self: "D C")
    with pytest.raises(AssertionError, match="the formula D C = 200 x 2 gives 400, the module has ..402"):
        counts(ClassificationHeadConfig(classes=2))


def test_a_backbone_without_blocks_has_a_cost() -> None:
    """Depth 0 has no rows for blocks, no attention and no activations."""
    config = BackboneConfig.build({"depth": 0})
    cost = cost_of(without_storage(config, 60, LMHeadConfig()), Workload())
    assert [row.part for row in cost.parameters.rows][:2] == ["embedding", "positions (rotary)"]
    assert cost.flops.forward == 2 * 60 * 256
    assert cost.parameters.table()[-1][0].strip() == "with a head untied"


def test_inserted_adapters_have_a_row_of_their_own() -> None:
    """Trainable and frozen parameters add up, other rows do not change, and FLOPs are at most a quarter above torch's count."""
    for scheme in ("full", "probe", "lora", "houlsby"):
        model = make({}, ClassificationHeadConfig(classes=2), scheme)
        made, whole = count_parameters(model), sum(p.numel() for p in model.parameters())
        plain = count_parameters(without_storage(model.backbone.config, 60, model.head.config))
        assert [row.counted for row in made.rows if not row.part.startswith("inserted")] == [row.counted for row in plain.rows]
        assert made.totals["trainable"] == sum(p.numel() for p in model.parameters() if p.requires_grad), scheme
        assert made.totals["trainable"] + made.totals["frozen"] == made.totals["total"] == whole, scheme
        assert any(row.part.startswith("inserted") for row in made.rows) == (scheme in ("lora", "houlsby"))
        found, mine = torchs_flops(model, make_batch(model, 3, 16)), cost_of(model, Workload(tokens=16)).flops.training * 3 * 16
        assert 0.999 * found <= mine <= 1.25 * found, scheme


def test_flops_equal_the_count_of_torch() -> None:
    """Forward and backward together equal ``FlopCounterMode`` for every setting, under heads and schemes in turn."""
    pairs = itertools.cycle(itertools.product((LANGUAGE[0], LANGUAGE[2], KINDS[-1]), ("full", "probe")))
    for switches, (head, scheme) in zip(CHOSEN, pairs, strict=False):
        model = make(switches, head, scheme)
        batch = make_batch(model, 3, 16)
        mine = cost_of(model, Workload(tokens=16)).flops
        assert mine.training * 3 * 16 == pytest.approx(torchs_flops(model, batch), rel=1e-9), switches
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(batch.ids)
        assert mine.forward * 3 * 16 == pytest.approx(counter.get_total_flops(), rel=1e-9), switches


def test_flops_in_literal_numbers() -> None:
    """The preset lab at 256 tokens: 2 x 960,000, 4 L T D, and the head for masked tokens; three times as much to train."""
    model = without_storage(LAB, 50_001, LMHeadConfig(tied=False, bias=True))
    flops = cost_of(model, Workload(target_fraction=0.15)).flops
    assert [row.forward for row in flops.rows] == [1_920_000, 819_200, pytest.approx(3_000_060)]
    assert flops.training == pytest.approx(3 * flops.forward)


def saved_bytes(model: Model, rows: int, tokens: int, *, bfloat16: bool) -> int:
    """What autograd keeps of a forward pass through the backbone, beside its parameters and buffers."""
    known = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    seen: dict[int, torch.Tensor] = {}  # the tensors are held, so that no address is used twice

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in known:
            seen[place] = tensor
        return tensor

    ids = torch.randint(model.backbone.vocab_size, (rows, tokens))
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16),
    ):
        states = model.backbone(ids).last_hidden_state
    assert states.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in seen.values())


def test_activations_equal_what_autograd_saves() -> None:
    """To the byte in float32, per block, with dropout and without; on rows over 512 tokens the fused kernel saves no weights."""
    cases: list[tuple[dict, int]] = [(switches, 24) for switches in CHOSEN]
    cases += [({"dropout": 0.1}, 24), ({"dropout": 0.1, "attention": "synthesizer"}, 24)]
    cases += [({"max_length": 640}, 640), ({"max_length": 640, "positions": "learned"}, 640)]
    for number, (switches, tokens) in enumerate(cases):
        bfloat16 = number % 2 == 1 and tokens == 24
        three, two = (saved_bytes(make({"depth": n} | switches, KINDS[-1]), 4, tokens, bfloat16=bfloat16) for n in (3, 2))
        backbone = make_backbone(**switches)
        copies = 2 * sum(p.numel() for p in backbone.blocks[0].parameters() if p.ndim == 2) * bfloat16
        each = activation_bytes(backbone.config, tokens, bfloat16=bfloat16)
        assert three - two == pytest.approx(4 * tokens * each + copies, rel=0.02 if bfloat16 else 1e-9), (switches, bfloat16)


def test_memory_in_literal_numbers() -> None:
    """The preset lab, 8 rows of 256 tokens, float32: 4 bytes per parameter, two moments, 9,264 bytes per token and block."""
    assert activation_bytes(LAB, 256, bfloat16=False) == 9_264
    model = without_storage(LAB, 50_001, LMHeadConfig())
    memory = training_memory(model, Workload(batch=8))
    sizes = {row.part: row.bytes for row in memory.rows}
    weights, activations = 4 * 10_968_200, 4 * 2048 * 9_264
    assert (sizes["weights"], sizes["gradients"], sizes["optimiser state"]) == (weights, weights, 2 * weights)
    assert sizes["activations"] == activations
    states = 2048 * 200 * 4 * 4
    assert sizes["loss and head"] == 4 * 512 * 50_001 + 4 * 50_001 * 200 + states
    assert memory.peak == 3 * weights + activations + sizes["loss and head"] + FRAGMENTATION * activations
    cache = {row.part: row.bytes for row in inference_memory(model, Workload(batch=8)).rows}["keys and values"]
    assert cache == 2 * 4 * 8 * 256 * 200 * 4


def test_what_is_kept_depends_on_what_trains() -> None:
    """A probe has no activations, and optimiser state for the head only; Muon keeps one moment for the matrices of the blocks."""
    model = make({}, ClassificationHeadConfig(classes=2), "probe")
    assert first_trainable_block(model) == 2
    sizes = {row.part: row.bytes for row in training_memory(model, Workload(batch=2)).rows}
    assert (sizes["activations"], sizes["gradients"], sizes["optimiser state"]) == (0, 4 * 34, 8 * 34)
    both = [estimate_cost(CostConfig.build({"vocab_size": 60, "train": {"optimizer": name}})) for name in ("adamw", "muon")]
    moments = [next(row.bytes for row in made.training_memory.rows if "optimiser" in row.part) for made in both]
    assert moments[0] - moments[1] == 4 * 4 * (4 * 256 * 256 + 2 * 256 * 1024)


def test_the_command_prints_every_part(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Formulas with their numbers, both totals of a language head, and what trains."""
    monkeypatch.setattr("warmstart.system.console.console.width", 160)
    assert main(["cost", "--preset", "lab", "--vocab-size", "50001", "--head.no-tied", "--head.bias"]) == 0
    output = capsys.readouterr().err
    for words in ("V D = 50,001 x 200", "21,018,401", "with a head tied", "11,018,201", "4 L T D = 4 x 4 x 256 x 200", "peak"):
        assert words in output
    assert main(["cost", "--preset", "lab", "--vocab-size", "50001", "--classes", "2", "--scheme", "probe"]) == 0
    assert "402 of 10,968,602 parameters train, 10,968,200 are frozen" in capsys.readouterr().err
    assert main(["cost"]) == 0
    assert "counted once" in capsys.readouterr().err


def test_the_settings_of_a_pretraining_run_are_read(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Its backbone, head, vocabulary and training count, with the defaults of pretraining; an unknown key is an error."""
    whole = ws.PretrainConfig(text=("books",), tokenizer={"vocab_size": 300}, head={"tied": False}, backbone=LAB).to_dict()
    made = estimate_cost(CostConfig.build(whole))
    assert made.parameters.totals["total"] == 968_000 + 2 * 300 * 200
    tokenizer.save(tmp_path / "tokenizer.json")
    own = CostConfig.build({"tokenizer_file": str(tmp_path / "tokenizer.json")})
    assert make_model(own, real=False)[0].backbone.vocab_size == tokenizer.vocab_size
    with pytest.raises(ConfigError, match="unknown key 'bakcbone'; did you mean 'backbone'"):
        CostConfig.build({"bakcbone": {}})
    file = tmp_path / "pretrain.yaml"
    file.write_text("text: [books]\ntokenizer: {vocab_size: 300}\ntrain: {steps: 3}\n")
    read, unsaid = CostConfig.build(read_yaml(file)).train, ws.PretrainConfig(text=("books",)).train
    assert (read.optimizer, read.batch) == (unsaid.optimizer, unsaid.batch) == ("muon", 8)
    given = ws.PretrainConfig(text=("books",), train=ws.TrainConfig(steps=3)).train
    assert (given.optimizer, given.batch, given.schedule) == ("adamw", 16, "cosine")


def test_the_cost_of_a_saved_model(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """With its own head or a new one; settings that contradict it are refused, and a head without a loss is not measured."""
    bundle = bundle_with(tokenizer, LMHeadConfig())
    history = (PretrainRecord(objective=ObjectiveConfig(name="masked", mask_rate=0.3)),)
    place = str(save(replace(bundle, history=history), tmp_path / "m"))
    made = estimate_cost(CostConfig(model=place))
    assert made.parameters.totals["total"] == sum(p.numel() for p in bundle.model.parameters())
    assert "0.3 of tokens scored" in made.flops.rows[-1].formula
    assert estimate_cost(CostConfig(model=place, classes=3)).parameters.totals["head"] == 16 * 3 + 3
    with pytest.raises(ConfigError, match="a saved model has its own vocab_size; remove these settings"):
        estimate_cost(CostConfig(model=place, vocab_size=7))
    place = str(save(bundle_with(tokenizer, EmbeddingHeadConfig()), tmp_path / "embedding"))
    with pytest.raises(ConfigError, match="an embedding head has no loss, so training cannot be measured; give --classes N"):
        estimate_cost(CostConfig(model=place, measure=True))


TINY = {"backbone": {"width": 16, "depth": 1, "heads": 2, "feedforward": 24, "max_length": 16}, "vocab_size": 40}


@pytest.mark.journeys
def test_measuring_runs_in_its_own_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peaks, seconds and speed are returned; one process is real here."""
    really = measured._in_fresh_process
    first: list[dict[str, float]] = []

    def once(code: str, mode: str, settings: dict, workload: Workload) -> dict[str, float]:
        first.append(first[0] if first else really(code, mode, settings, workload))
        return first[-1]

    monkeypatch.setattr(measured, "_in_fresh_process", once)
    made = estimate_cost(CostConfig.build({**TINY, "train": {"batch": 2}, "measure": True}))
    assert len(first) == 2
    assert made.measured.keys() == {"training", "inference", "seconds", "tokens_per_second", "flops_per_second"}
    assert all(value >= 0 for value in made.measured.values())
    assert made.measured["flops_per_second"] == pytest.approx(made.measured["tokens_per_second"] * made.flops.training)


def test_the_measuring_process_does_the_work(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A training step and an inference run for heads, objectives and schemes, and the result is written."""
    for given in ({}, {"classes": 3}, {"objective": {"name": "masked"}}, {"scheme": "probe", "classes": 2}):
        for mode in ("training", "inference"):
            workload = vars(Workload(batch=2, tokens=8, target_fraction=0.15))
            work = {"mode": mode, "settings": CostConfig.build({**TINY, **given}).to_dict(), "workload": workload, "folder": "."}
            monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(work)))
            measuring_process()
            assert json.loads(capsys.readouterr().out).keys() == {"bytes", "seconds"}, (given, mode)


def test_a_failed_measuring_process_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its last line, or its exit code, and what to do."""
    for code, words, message in ((1, "Traceback\nRuntimeError: no room\n", "RuntimeError: no room"), (-9, "", "exit code -9")):
        ended = subprocess.CompletedProcess([], code, stdout="", stderr=words)
        monkeypatch.setattr(measured, "run_python", lambda *_args, ended=ended, **_options: ended)
        with pytest.raises(ModelError, match=f"measuring training failed: {message}; try a smaller --batch or --length"):
            measured._in_fresh_process("", "training", {}, Workload())
