"""Cost: closed forms equal the modules for every setting; FLOPs and saved tensors equal torch's own count."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import warmstart as ws
from helpers.models import make_backbone
from warmstart.backbone.config import PRESETS, BackboneConfig
from warmstart.cli import main
from warmstart.commands.cost import CostConfig, _workload, estimate_cost, make_model, measuring_process
from warmstart.config import read_yaml
from warmstart.cost import measured
from warmstart.cost.cost import cost_of
from warmstart.cost.flops import first_trainable_block
from warmstart.cost.memory import FRAGMENTATION, activation_bytes, inference_memory, training_memory
from warmstart.cost.parameters import count_parameters, evaluate_form, without_storage
from warmstart.cost.workload import Workload
from warmstart.errors import ConfigError, ModelError
from warmstart.finetuning.apply import apply_scheme
from warmstart.finetuning.compose import make_scheme
from warmstart.heads import HEADS, head_config
from warmstart.heads.classification import ClassificationHead, ClassificationHeadConfig
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.model import files as bundle_file
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.history import PretrainRecord
from warmstart.model.model import Model, fresh_head
from warmstart.objectives import OBJECTIVES
from warmstart.objectives.config import ObjectiveConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.config import TrainConfig
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
LANGUAGE = [LMHeadConfig(tied=tied, bias=bias) for tied in (True, False) for bias in (True, False)]
KINDS = [*LANGUAGE, ClassificationHeadConfig(classes=3)]
FOREIGN = [
    {"norm": "post", "positions": "learned", "embedding_norm": True, "token_types": 2, "position_offset": 2},
    {"norm_type": "rms", "activation": "swiglu", "bias": False, "heads": 4, "kv_heads": 2, "head_width": 8, "qk_norm": True},
    {"norm_type": "rms", "activation": "swiglu", "bias": False, "qkv_bias": True, "heads": 4, "kv_heads": 1},
    {"bias": False, "activation": "geglu", "embedding_norm": True, "first_norm": False, "window": 4, "global_every": 3},
]
"""the switches of BERT and RoBERTa, Qwen3, Qwen2, ModernBERT"""
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


def make_with_head(kind: str) -> Model:
    """A tiny model with a head of this kind; what its settings require is 2."""
    required = [name for name, field in HEADS[kind].config_class.model_fields.items() if field.is_required()]
    backbone = make_backbone()
    head = head_config({"kind": kind, **dict.fromkeys(required, 2)})
    return Model(backbone, fresh_head(head, backbone, 0), causal=False)


def make_batch(model: Model, rows: int, tokens: int) -> Batch:
    ids = torch.randint(model.backbone.vocab_size, (rows, tokens))
    targets = ids.clone() if isinstance(model.head.config, LMHeadConfig) else torch.zeros(rows, dtype=torch.int64)
    return Batch(ids, targets, count=rows)


def test_the_labs_numbers() -> None:
    """Embedding 10,000,200, backbone 10,968,200, heads 402 and 10,050,201, totals 10,968,602 and 21,018,401."""
    labels = counts(ClassificationHeadConfig(classes=2))
    assert (labels["embedding"], labels["backbone"], labels["head"], labels["total"]) == (10_000_200, 10_968_200, 402, 10_968_602)
    words = counts(LMHeadConfig(tied=False, bias=True))
    assert (words["embedding"], words["backbone"], words["head"], words["total"]) == (
        10_000_200,
        10_968_200,
        10_050_201,
        21_018_401,
    )


def test_a_tied_weight_is_counted_once() -> None:
    """The head adds nothing then, and both totals are given, whether it is tied or not."""
    tied, untied = (counts(LMHeadConfig(tied=tied)) for tied in (True, False))
    assert tied["head"] == 0
    assert tied["total"] == tied["total_tied"] == untied["total_tied"] == 10_968_200
    assert untied["total"] == tied["total_untied"] == untied["total_untied"] == 20_968_400
    assert "total_tied" not in counts(ClassificationHeadConfig(classes=2))


@pytest.mark.parametrize("attention", SWITCHES["attention"])
def test_every_switch_has_its_closed_form(attention: str) -> None:
    """Part by part, for every combination of settings, under all heads in turn; the rows add up to the module's parameters."""
    heads = itertools.cycle(KINDS)  # five of them, which divide no number of switches: each value meets each head
    for switches in PRODUCT:
        if switches["attention"] == attention:
            config = BackboneConfig.build({"width": 16, "depth": 3, "heads": 2, "feedforward": 24, "max_length": 32} | switches)
            model = without_storage(config, 60, next(heads))
            rows = count_parameters(model).rows
            assert all(row.by_formula == row.counted for row in rows), switches
            assert sum(row.times * row.by_formula for row in rows) == sum(p.numel() for p in model.parameters()), switches


@pytest.mark.parametrize("switches", FOREIGN)
@pytest.mark.parametrize("bias", [True, False])
def test_imported_models_have_closed_forms_and_flops(switches: dict, bias: bool) -> None:
    """Part by part, under a head with a transform; FLOPs equal torch's count."""
    model = make(switches, LMHeadConfig(transform=True, transform_bias=bias, bias=True))
    for one in (model, make(switches, ClassificationHeadConfig(classes=3, hidden="relu"))):
        assert all(row.by_formula == row.counted for row in count_parameters(one).rows)
    batch = make_batch(model, 3, 16)
    with FlopCounterMode(display=False) as counter:
        model.loss(batch).backward()
    assert cost_of(model, Workload(tokens=16)).flops.training * 3 * 16 == pytest.approx(counter.get_total_flops(), rel=1e-9)


def test_a_wrong_formula_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed form that differs from the count is an assertion error."""
    monkeypatch.setattr(ClassificationHead, "parameter_formula", lambda _self: "D C")
    with pytest.raises(AssertionError, match="the formula D C = 200 x 2 gives 400, the module has ..402"):
        counts(ClassificationHeadConfig(classes=2))


def test_a_closed_form_in_letters_and_in_numbers() -> None:
    """Both come from one text."""
    assert evaluate_form("V D + 2 D + 1", V=5000, D=8) == ("V D + 2 D + 1 = 5,000 x 8 + 2 x 8 + 1", 40_017)
    assert evaluate_form("0 + V", V=7) == ("0 + V = 0 + 7", 7)
    assert evaluate_form("0") == ("none", 0)


def test_a_backbone_without_blocks_has_a_cost() -> None:
    """Depth 0 has no rows for blocks, no attention and no activations."""
    config = BackboneConfig.build({"depth": 0})
    cost = cost_of(without_storage(config, 60, LMHeadConfig()), Workload())
    assert [row.part for row in cost.parameters.rows][:2] == ["embedding", "positions (rotary)"]
    assert cost.flops.forward == 2 * 60 * 256
    assert cost.parameters.table()[-1][0].strip() == "with a head untied"


@pytest.mark.parametrize("scheme", ["full", "probe", "bitfit", "lora", "houlsby"])
def test_inserted_adapters_have_a_row_of_their_own(scheme: str) -> None:
    """Trainable and frozen parameters add up, and the other rows do not change."""
    model = make({}, ClassificationHeadConfig(classes=2), scheme)
    made = count_parameters(model)
    plain = count_parameters(without_storage(model.backbone.config, 60, model.head.config))
    assert [row.counted for row in made.rows if not row.part.startswith("inserted")] == [row.counted for row in plain.rows]
    assert made.totals["trainable"] == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert made.totals["trainable"] + made.totals["frozen"] == made.totals["total"] == sum(p.numel() for p in model.parameters())
    assert any(row.part.startswith("inserted") for row in made.rows) == (scheme in ("lora", "houlsby"))


@pytest.mark.parametrize("scheme", ["full", "probe"])
@pytest.mark.parametrize("head", [LANGUAGE[0], LANGUAGE[2], KINDS[-1]], ids=["tied", "untied", "classes"])
def test_flops_equal_the_count_of_torch(head: ClassificationHeadConfig | LMHeadConfig, scheme: str) -> None:
    """Forward and backward together equal ``FlopCounterMode`` for every setting and scheme."""
    for switches in CHOSEN:
        model = make(switches, head, scheme)
        batch = make_batch(model, 3, 16)
        with FlopCounterMode(display=False) as counter:
            model.loss(batch).backward()
        mine = cost_of(model, Workload(tokens=16)).flops
        assert mine.training * 3 * 16 == pytest.approx(counter.get_total_flops(), rel=1e-9), switches
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(batch.ids)
        assert mine.forward * 3 * 16 == pytest.approx(counter.get_total_flops(), rel=1e-9), switches


def test_flops_of_inserted_adapters_are_counted() -> None:
    """Training FLOPs are not below torch's count and at most a quarter above."""
    for scheme in ("lora", "houlsby"):
        model = make({}, ClassificationHeadConfig(classes=3), scheme)
        batch = make_batch(model, 3, 16)
        with FlopCounterMode(display=False) as counter:
            model.loss(batch).backward()
        mine = cost_of(model, Workload(tokens=16)).flops.training * 3 * 16
        assert counter.get_total_flops() <= mine <= 1.25 * counter.get_total_flops(), scheme


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


@pytest.mark.parametrize("bfloat16", [False, True])
def test_activations_equal_what_autograd_saves(bfloat16: bool) -> None:
    """To the byte in float32, per block, for every setting, with dropout and without."""
    for switches in [*CHOSEN, {"dropout": 0.1}, {"dropout": 0.1, "attention": "synthesizer"}]:
        three, two = (make({"depth": depth} | switches, KINDS[-1]) for depth in (3, 2))
        added = saved_bytes(three, 4, 24, bfloat16=bfloat16) - saved_bytes(two, 4, 24, bfloat16=bfloat16)
        copies = 2 * sum(p.numel() for p in three.backbone.blocks[0].parameters() if p.ndim == 2) * bfloat16
        each = activation_bytes(three.backbone.config, 24, bfloat16=bfloat16)
        assert added == pytest.approx(4 * 24 * each + copies, rel=0.02 if bfloat16 else 1e-9), switches


def test_activations_of_long_rows_have_no_attention_weights() -> None:
    """Above 512 tokens on a CPU the fused kernel saves none."""
    for switches in ({}, {"positions": "learned"}):
        three, two = (make({"depth": depth, "max_length": 640} | switches, KINDS[-1]) for depth in (3, 2))
        added = saved_bytes(three, 2, 640, bfloat16=False) - saved_bytes(two, 2, 640, bfloat16=False)
        assert added == pytest.approx(2 * 640 * activation_bytes(three.backbone.config, 640, bfloat16=False)), switches


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


def test_a_frozen_backbone_saves_nothing() -> None:
    """Under a probe there are no activations, and optimiser state for the head only."""
    model = make({}, ClassificationHeadConfig(classes=2), "probe")
    assert first_trainable_block(model) == 2
    sizes = {row.part: row.bytes for row in training_memory(model, Workload(batch=2)).rows}
    assert (sizes["activations"], sizes["gradients"], sizes["optimiser state"]) == (0, 4 * 34, 8 * 34)


def test_muon_keeps_one_moment_for_the_matrices_of_the_blocks() -> None:
    """And AdamW two for everything."""
    both = [
        estimate_cost(CostConfig.build({"vocab_size": 60, "train": {"optimizer": name}, "as_json": True}))
        for name in ("adamw", "muon")
    ]
    moments = [next(row.bytes for row in made.training_memory.rows if "optimiser" in row.part) for made in both]
    assert moments[0] - moments[1] == 4 * 4 * (4 * 256 * 256 + 2 * 256 * 1024)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_fraction_of_targets_is_that_of_the_objective(name: str, vocabulary: object) -> None:
    """Counted over many batches."""
    import numpy as np

    config = ObjectiveConfig(name=name, mean_span=1.0)
    draw = np.random.default_rng(0)
    scored = tokens = 0
    for _ in range(300):
        width = OBJECTIVES[name].stride(64, config) + 1
        rows = draw.integers(21, 60, (8, width))
        batch = OBJECTIVES[name].make(rows, np.full(8, width), draw, vocabulary, config)  # type: ignore[arg-type]
        scored, tokens = scored + batch.count, tokens + batch.ids.numel()
    assert scored / tokens == pytest.approx(OBJECTIVES[config.name].target_fractions(config)[0], rel=0.12)


def test_the_command_prints_every_part(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Formulas with their numbers, both totals of a language head, and what trains."""
    monkeypatch.setattr("warmstart.console.console.width", 160)
    assert main(["cost", "--preset", "lab", "--vocab-size", "50001", "--head.no-tied", "--head.bias"]) == 0
    output = capsys.readouterr().err
    for words in ("V D = 50,001 x 200", "21,018,401", "with a head tied", "11,018,201", "4 L T D = 4 x 4 x 256 x 200", "peak"):
        assert words in output
    assert main(["cost", "--preset", "lab", "--vocab-size", "50001", "--classes", "2", "--scheme", "probe"]) == 0
    assert "402 of 10,968,602 parameters train, 10,968,200 are frozen" in capsys.readouterr().err
    assert main(["cost"]) == 0
    assert "counted once" in capsys.readouterr().err


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """``--json`` writes the same values to standard output that Python returns."""
    assert main(["cost", "--preset", "tiny", "--vocab-size", "60", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    made = ws.estimate_cost(ws.CostConfig(backbone=BackboneConfig.build(PRESETS["tiny"]), vocab_size=60))
    assert isinstance(made, ws.Cost)
    assert values == json.loads(json.dumps(made.to_dict()))
    assert values["parameters"]["totals"]["total"] == made.parameters.totals["total"]


def test_the_settings_of_a_pretraining_run_are_read(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Its backbone, head and vocabulary count; settings that do not matter are ignored; an unknown key is an error."""
    whole = ws.PretrainConfig(text=("books",), tokenizer={"vocab_size": 300}, head={"tied": False}, backbone=LAB).to_dict()
    made = estimate_cost(CostConfig.build(whole))
    assert made.parameters.totals["total"] == 968_000 + 2 * 300 * 200
    tokenizer.save(tmp_path / "tokenizer.json")
    own = CostConfig.build({"tokenizer_file": str(tmp_path / "tokenizer.json")})
    assert make_model(own, real=False)[0].backbone.vocab_size == tokenizer.vocab_size
    with pytest.raises(ConfigError, match="unknown key 'bakcbone'; did you mean 'backbone'"):
        CostConfig.build({"bakcbone": {}})


def test_missing_settings_of_a_pretraining_run_have_its_defaults(tmp_path: Path) -> None:
    """Missing training settings have the defaults of pretraining; complete settings are kept."""
    file = tmp_path / "pretrain.yaml"
    file.write_text("text: [books]\ntokenizer: {vocab_size: 300}\ntrain: {steps: 3}\n")
    read = CostConfig.build(read_yaml(file)).train
    unsaid = ws.PretrainConfig(text=("books",)).train
    assert (read.optimizer, read.batch) == (unsaid.optimizer, unsaid.batch) == ("muon", 8)
    whole = ws.PretrainConfig(text=("books",), train=ws.TrainConfig(steps=3)).train
    assert (whole.optimizer, whole.batch, whole.schedule) == ("adamw", 16, "cosine")


def test_the_cost_of_a_saved_model(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own head or a new one; settings that contradict it are refused."""
    monkeypatch.setattr(bundle_file, "_verify_in_fresh_process", lambda place: None)
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    model = Model(backbone, fresh_head(LMHeadConfig(), backbone, 0), causal=False)
    history = (PretrainRecord(objective=ObjectiveConfig(name="masked", mask_rate=0.3)),)
    place = str(save(Bundle(model, tokenizer, history=history), tmp_path / "m"))
    made = estimate_cost(CostConfig(model=place))
    assert made.parameters.totals["total"] == sum(p.numel() for p in model.parameters())
    assert "0.3 of tokens scored" in made.flops.rows[-1].formula
    assert estimate_cost(CostConfig(model=place, classes=3)).parameters.totals["head"] == 16 * 3 + 3
    with pytest.raises(ConfigError, match="a saved model has its own vocab_size; remove these settings"):
        estimate_cost(CostConfig(model=place, vocab_size=7))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--length", "300"], "length must be at most max_length=256, but got 300"),
        (["--scheme", "fulll"], "did you mean 'full'"),
        (["--objective", "maskd"], "did you mean 'masked'"),
        (["--preset", "labb"], "did you mean 'lab'"),
        (["nowhere"], "there is no model at nowhere"),
        (["--tokenizer-file", "nowhere.json"], "no such tokenizer file"),
    ],
)
def test_mistakes_are_explained(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One message, exit code 2."""
    assert main(["cost", *words]) == 2
    assert message in capsys.readouterr().err


TINY = {"backbone": {"width": 16, "depth": 1, "heads": 2, "feedforward": 24, "max_length": 16}, "vocab_size": 40}


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


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize(
    "given",
    [{}, {"classes": 3}, {"objective": {"name": "masked"}}, {"objective": {"name": "detect"}}, {"scheme": "probe", "classes": 2}],
)
def test_the_measuring_process_does_the_work(
    mode: str, given: dict, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A training step and an inference run for every head, objective and scheme, and the result is written."""
    settings = CostConfig.build({**TINY, **given}).to_dict()
    task = {"mode": mode, "settings": settings, "workload": vars(Workload(batch=2, tokens=8, target_fraction=0.15)), "folder": "."}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(task)))
    measuring_process()
    assert json.loads(capsys.readouterr().out).keys() == {"bytes", "seconds"}


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("mode", ["training", "inference"])
def test_every_head_is_measured(kind: str, mode: str) -> None:
    """A saved model with any registered head trains and infers on random rows, multiple choice in whole questions."""
    model = make_with_head(kind)
    workload = _workload(CostConfig(train=TrainConfig(batch=3), length=8), model, ObjectiveConfig())
    assert workload.batch == (4 if kind == "multiple-choice" else 3)
    if mode == "training" and kind == "embedding":
        with pytest.raises(ModelError, match="an embedding head has no loss"):
            measured._run(mode, model, workload, TrainConfig())
    else:
        assert measured._run(mode, model, workload, TrainConfig()) > 0


@pytest.mark.parametrize("kind", sorted({*HEADS} - {"embedding"}))
def test_the_flops_of_every_head_are_counted(kind: str) -> None:
    """They equal torch's count, for heads that read every token and for heads that read one state per text."""
    model = make_with_head(kind)
    batch = measured._random_batch(model, Workload(batch=4, tokens=16), 0)
    with FlopCounterMode(display=False) as counter:
        model.loss(batch).backward()
    per_token = cost_of(model, Workload(batch=4, tokens=16)).flops.training
    assert per_token * 4 * 16 == pytest.approx(counter.get_total_flops(), rel=1e-9)


def test_a_model_without_a_loss_is_not_measured(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command says so before it starts a process."""
    monkeypatch.setattr(bundle_file, "_verify_in_fresh_process", lambda place: None)
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    model = Model(backbone, fresh_head(head_config({"kind": "embedding"}), backbone, 0), causal=False)
    place = str(save(Bundle(model, tokenizer), tmp_path / "m"))
    with pytest.raises(ConfigError, match="an embedding head has no loss, so training cannot be measured; give --classes N"):
        estimate_cost(CostConfig(model=place, measure=True))


def test_a_failed_measuring_process_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its last line, or its exit code, and what to do."""
    for code, words, message in ((1, "Traceback\nRuntimeError: no room\n", "RuntimeError: no room"), (-9, "", "exit code -9")):
        ended = subprocess.CompletedProcess([], code, stdout="", stderr=words)
        monkeypatch.setattr(measured, "run_python", lambda *_args, ended=ended, **_options: ended)
        with pytest.raises(ModelError, match=f"measuring training failed: {message}; try a smaller --batch or --length"):
            measured._in_fresh_process("", "training", {}, Workload())
