"""The account: closed forms equal the modules for every switch, operations and saved tensors equal torch's own count."""

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
from conftest import make_backbone
from warmstart.backbone import PRESETS, BackboneConfig
from warmstart.cli import main
from warmstart.config import read_yaml
from warmstart.errors import ConfigError, ModelError
from warmstart.heads import HEADS, ClassifyHeadConfig, LanguageHeadConfig
from warmstart.model import Bundle, Load, Model, account_for, fresh_head, save, skeleton
from warmstart.model import files as bundle_file
from warmstart.model.account import HEAD_FORMS, form
from warmstart.model.flops import first_gradient
from warmstart.model.memory import HOLES, activation_bytes, inference_memory, training_memory
from warmstart.objectives import OBJECTIVES, ObjectiveConfig
from warmstart.schemes import apply_scheme, make_scheme
from warmstart.tokenizer import Tokenizer
from warmstart.types import Batch
from warmstart.workflows import measure
from warmstart.workflows.account import AccountConfig, account, make_model, measured, scored_share

SWITCHES = {
    "norm": ("pre", "post"),
    "norm_kind": ("layer", "rms"),
    "positions": ("sinusoidal", "learned", "rotary"),
    "attention": ("dot-product", "synthesizer"),
    "activation": ("relu", "gelu", "swiglu"),
    "bias": (True, False),
}
PRODUCT = [dict(zip(SWITCHES, values, strict=True)) for values in itertools.product(*SWITCHES.values())]
CHOSEN = PRODUCT[::11] + PRODUCT[5::31]
"""enough of them that every value of every switch occurs in each attention"""
LANGUAGE = [LanguageHeadConfig(tied=tied, bias=bias) for tied in (True, False) for bias in (True, False)]
KINDS = [*LANGUAGE, ClassifyHeadConfig(classes=3)]
FOREIGN = [
    {"norm": "post", "positions": "learned", "embedding_norm": True, "types": 2, "position_offset": 2},
    {"norm_kind": "rms", "activation": "swiglu", "bias": False, "heads": 4, "kv_heads": 2, "head_width": 8, "qk_norm": True},
    {"norm_kind": "rms", "activation": "swiglu", "bias": False, "qkv_bias": True, "heads": 4, "kv_heads": 1},
    {"bias": False, "activation": "geglu", "embedding_norm": True, "first_norm": False, "window": 4, "global_every": 3},
]
"""the switches of BERT and RoBERTa, Qwen3, Qwen2, ModernBERT"""
LAB = BackboneConfig.build(PRESETS["lab"])


def counts(head: ClassifyHeadConfig | LanguageHeadConfig) -> dict[str, int]:
    """The lab's account under a head: parts and totals."""
    made = account_for(skeleton(LAB, 50_001, head), Load())
    return {row.part: row.counted for row in made.rows} | made.totals


def make(switches: dict, head: ClassifyHeadConfig | LanguageHeadConfig, scheme: str = "full") -> Model:
    """A tiny real model under a scheme."""
    backbone = make_backbone(**switches)
    model = Model(backbone, fresh_head(head, backbone, 0), causal=True)
    apply_scheme(model, make_scheme(scheme))
    return model.train()


def make_batch(model: Model, rows: int, tokens: int) -> Batch:
    ids = torch.randint(model.backbone.vocab_size, (rows, tokens))
    targets = ids.clone() if isinstance(model.head.config, LanguageHeadConfig) else torch.zeros(rows, dtype=torch.int64)
    return Batch(ids, targets, count=rows)


def test_the_labs_numbers() -> None:
    """Embeddings 10,000,200, backbone 10,968,200, heads 402 and 10,050,201, totals 10,968,602 and 21,018,401."""
    labels = counts(ClassifyHeadConfig(classes=2))
    assert (labels["embedding"], labels["backbone"], labels["head"], labels["total"]) == (10_000_200, 10_968_200, 402, 10_968_602)
    words = counts(LanguageHeadConfig(tied=False, bias=True))
    assert (words["embedding"], words["backbone"], words["head"], words["total"]) == (
        10_000_200,
        10_968_200,
        10_050_201,
        21_018_401,
    )


def test_a_tied_weight_is_counted_once() -> None:
    """The head then adds nothing, and both totals stand side by side, whichever was asked for."""
    tied, untied = (counts(LanguageHeadConfig(tied=tied)) for tied in (True, False))
    assert tied["head"] == 0
    assert tied["total"] == tied["total tied"] == untied["total tied"] == 10_968_200
    assert untied["total"] == tied["total untied"] == untied["total untied"] == 20_968_400
    assert "total tied" not in counts(ClassifyHeadConfig(classes=2))


@pytest.mark.parametrize("attention", SWITCHES["attention"])
def test_every_switch_has_its_closed_form(attention: str) -> None:
    """Part by part, for the whole product of switches under every head in turn; the rows add up to the module's parameters."""
    heads = itertools.cycle(KINDS)  # five of them, which divide no number of switches: each value meets each head
    for switches in PRODUCT:
        if switches["attention"] == attention:
            config = BackboneConfig.build({"width": 16, "depth": 3, "heads": 2, "feedforward": 24, "max_tokens": 32} | switches)
            model = skeleton(config, 60, next(heads))
            made = account_for(model, Load())
            assert all(row.closed == row.counted for row in made.rows), switches
            assert sum(row.times * row.closed for row in made.rows) == sum(p.numel() for p in model.parameters()), switches


@pytest.mark.parametrize("switches", FOREIGN)
@pytest.mark.parametrize("bias", [True, False])
def test_models_from_elsewhere_have_closed_forms_and_operations(switches: dict, bias: bool) -> None:
    """Part by part, under a head with a transform; operations are those that torch counts."""
    model = make(switches, LanguageHeadConfig(transform=True, transform_bias=bias, bias=True))
    for one in (model, make(switches, ClassifyHeadConfig(classes=3, hidden="relu"))):
        assert all(row.closed == row.counted for row in account_for(one, Load()).rows)
    batch = make_batch(model, 3, 16)
    with FlopCounterMode(display=False) as counter:
        model.loss(batch).backward()
    assert account_for(model, Load(tokens=16)).flops.training * 3 * 16 == pytest.approx(counter.get_total_flops(), rel=1e-9)


@pytest.mark.parametrize("kind", HEADS)
def test_every_head_has_a_closed_form(kind: str) -> None:
    """A new head needs a row in ``HEAD_FORMS``."""
    assert kind in HEAD_FORMS


def test_a_wrong_formula_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed form that differs from the count is a broken invariant, not a footnote."""
    monkeypatch.setitem(HEAD_FORMS._rows, "classify", HEAD_FORMS["classify"]._replace(parameters=lambda _config: "D C"))
    with pytest.raises(AssertionError, match="the formula D C = 200 x 2 gives 400, the module has ..402"):
        counts(ClassifyHeadConfig(classes=2))


def test_a_form_reads_in_letters_and_in_numbers() -> None:
    """Both come from one text."""
    assert form("V D + 2 D + 1", V=5000, D=8) == ("V D + 2 D + 1 = 5,000 x 8 + 2 x 8 + 1", 40_017)
    assert form("0 + V", V=7) == ("0 + V = 0 + 7", 7)
    assert form("0") == ("none", 0)


def test_a_backbone_without_blocks_has_an_account() -> None:
    """Depth 0 has no rows for blocks, no attention and no activations."""
    config = BackboneConfig.build({"depth": 0})
    made = account_for(skeleton(config, 60, LanguageHeadConfig()), Load())
    assert [row.part for row in made.rows][:2] == ["embedding", "positions (rotary)"]
    assert made.flops.forward == 2 * 60 * 256
    assert made.table()[-1][0].strip() == "with a head untied"


@pytest.mark.parametrize("scheme", ["full", "probe", "bitfit", "lora", "houlsby"])
def test_what_is_inserted_has_a_row_of_its_own(scheme: str) -> None:
    """What trains and what is frozen adds up, and the parts of the backbone are what they were."""
    model = make({}, ClassifyHeadConfig(classes=2), scheme)
    made = account_for(model, Load())
    plain = account_for(skeleton(model.backbone.config, 60, model.head.config), Load())
    assert [row.counted for row in made.rows if not row.part.startswith("inserted")] == [row.counted for row in plain.rows]
    assert made.totals["trainable"] == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert made.totals["trainable"] + made.totals["frozen"] == made.totals["total"] == sum(p.numel() for p in model.parameters())
    assert any(row.part.startswith("inserted") for row in made.rows) == (scheme in ("lora", "houlsby"))


@pytest.mark.parametrize("scheme", ["full", "probe"])
@pytest.mark.parametrize("head", [LANGUAGE[0], LANGUAGE[2], KINDS[-1]], ids=["tied", "untied", "classes"])
def test_operations_are_those_that_torch_counts(head: ClassifyHeadConfig | LanguageHeadConfig, scheme: str) -> None:
    """Forward and backward together equal ``FlopCounterMode``, whatever the switches and whatever trains."""
    for switches in CHOSEN:
        model = make(switches, head, scheme)
        batch = make_batch(model, 3, 16)
        with FlopCounterMode(display=False) as counter:
            model.loss(batch).backward()
        mine = account_for(model, Load(tokens=16)).flops
        assert mine.training * 3 * 16 == pytest.approx(counter.get_total_flops(), rel=1e-9), switches
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(batch.ids)
        assert mine.forward * 3 * 16 == pytest.approx(counter.get_total_flops(), rel=1e-9), switches


def test_operations_of_inserted_modules_are_counted() -> None:
    """LoRA's matrices run for every token; forward equals torch's count, training is not below it and not far above."""
    for scheme in ("lora", "houlsby"):
        model = make({}, ClassifyHeadConfig(classes=3), scheme)
        batch = make_batch(model, 3, 16)
        with FlopCounterMode(display=False) as counter:
            model.loss(batch).backward()
        mine = account_for(model, Load(tokens=16)).flops.training * 3 * 16
        assert counter.get_total_flops() <= mine <= 1.25 * counter.get_total_flops(), scheme


def test_operations_in_literal_numbers() -> None:
    """The lab at 256 tokens: 2 x 960,000, 4 L T D, and the head on the masked share; three times as much to train."""
    model = skeleton(LAB, 50_001, LanguageHeadConfig(tied=False, bias=True))
    flops = account_for(model, Load(scored=0.15)).flops
    assert [row.forward for row in flops.rows] == [1_920_000, 819_200, pytest.approx(3_000_060)]
    assert flops.training == pytest.approx(3 * flops.forward)


def saved_bytes(model: Model, rows: int, tokens: int, *, half: bool) -> int:
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
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=half),
    ):
        states = model.backbone(ids).last
    assert states.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in seen.values())


@pytest.mark.parametrize("half", [False, True])
def test_activations_are_those_that_autograd_saves(half: bool) -> None:
    """To the byte in float32: one block more keeps what the formula says, whatever the switches, with dropout and without."""
    for switches in [*CHOSEN, {"dropout": 0.1}, {"dropout": 0.1, "attention": "synthesizer"}]:
        three, two = (make({"depth": depth} | switches, KINDS[-1]) for depth in (3, 2))
        added = saved_bytes(three, 4, 24, half=half) - saved_bytes(two, 4, 24, half=half)
        copies = 2 * sum(p.numel() for p in three.backbone.blocks[0].parameters() if p.ndim == 2) * half
        each = activation_bytes(three.backbone.config, 24, half=half)
        assert added == pytest.approx(4 * 24 * each + copies, rel=0.02 if half else 1e-9), switches


def test_activations_of_long_rows_leave_the_weights_out() -> None:
    """Above 512 tokens on a processor the fused kernel keeps no attention weights."""
    for switches in ({}, {"positions": "learned"}):
        three, two = (make({"depth": depth, "max_tokens": 640} | switches, KINDS[-1]) for depth in (3, 2))
        added = saved_bytes(three, 2, 640, half=False) - saved_bytes(two, 2, 640, half=False)
        assert added == pytest.approx(2 * 640 * activation_bytes(three.backbone.config, 640, half=False)), switches


def test_memory_in_literal_numbers() -> None:
    """The lab, 8 rows of 256 tokens, float32: 4 bytes a parameter, two moments, 9,264 bytes per token and block."""
    assert activation_bytes(LAB, 256, half=False) == 9_264
    model = skeleton(LAB, 50_001, LanguageHeadConfig())
    memory = training_memory(model, Load(batch=8))
    sizes = {row.part: row.bytes for row in memory.rows}
    weights, activations = 4 * 10_968_200, 4 * 2048 * 9_264
    assert (sizes["weights"], sizes["gradients"], sizes["optimiser's moments"]) == (weights, weights, 2 * weights)
    assert sizes["activations"] == activations
    states = 2048 * 200 * 4 * 4
    assert sizes["loss and head"] == 4 * 512 * 50_001 + 4 * 50_001 * 200 + states
    assert memory.peak == 3 * weights + activations + sizes["loss and head"] + HOLES * activations
    cache = {row.part: row.bytes for row in inference_memory(model, Load(batch=8)).rows}["keys and values"]
    assert cache == 2 * 4 * 8 * 256 * 200 * 4


def test_a_frozen_backbone_saves_nothing() -> None:
    """Under a probe gradients begin at the head: no activations, moments for the head alone."""
    model = make({}, ClassifyHeadConfig(classes=2), "probe")
    assert first_gradient(model) == 2
    sizes = {row.part: row.bytes for row in training_memory(model, Load(batch=2)).rows}
    assert (sizes["activations"], sizes["gradients"], sizes["optimiser's moments"]) == (0, 4 * 34, 8 * 34)


def test_muon_keeps_one_moment_for_the_matrices_of_the_blocks() -> None:
    """And AdamW two for everything."""
    both = [
        account(AccountConfig.build({"vocab_size": 60, "train": {"optimizer": name}, "as_json": True}))
        for name in ("adamw", "muon")
    ]
    moments = [next(row.bytes for row in made.training.rows if "moments" in row.part) for made in both]
    assert moments[0] - moments[1] == 4 * 4 * (4 * 256 * 256 + 2 * 256 * 1024)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_share_of_scored_tokens_is_what_the_objective_scores(name: str, vocabulary: object) -> None:
    """Counted over many batches; the largest batch scores no more than is said, but for chance."""
    import numpy as np

    config = ObjectiveConfig(name=name, mean_span=1.0)
    draw = np.random.default_rng(0)
    scored = tokens = 0
    for _ in range(300):
        rows = draw.integers(21, 60, (8, 65))
        batch = OBJECTIVES[name].make(rows, np.full(8, 65), draw, vocabulary, config)  # type: ignore[arg-type]
        scored, tokens = scored + batch.count, tokens + batch.ids.numel()
    assert scored / tokens == pytest.approx(scored_share(config)[0], rel=0.12)


def test_the_command_prints_every_part(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab by its preset: the formula with its numbers, both totals of a language head, and who trains."""
    monkeypatch.setattr("warmstart.workflows.run.console.width", 160)
    assert main(["account", "--preset", "lab", "--vocab-size", "50001", "--head.no-tied", "--head.bias"]) == 0
    said = capsys.readouterr().err
    for words in ("V D = 50,001 x 200", "21,018,401", "with a head tied", "11,018,201", "4 L T D = 4 x 4 x 256 x 200", "peak"):
        assert words in said
    assert main(["account", "--preset", "lab", "--vocab-size", "50001", "--classes", "2", "--scheme", "probe"]) == 0
    assert "402 of 10,968,602 parameters train, 10,968,200 frozen" in capsys.readouterr().err
    assert main(["account"]) == 0
    assert "counted once" in capsys.readouterr().err


def test_the_account_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    """``--json`` writes everything to standard output, and nothing else; Python gets the same."""
    assert main(["account", "--preset", "tiny", "--vocab-size", "60", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    made = ws.account(ws.AccountConfig(backbone=BackboneConfig.build(PRESETS["tiny"]), vocab_size=60))
    assert isinstance(made, ws.Account)
    assert values == json.loads(json.dumps(made.plain()))
    assert values["totals"]["total"] == made.totals["total"]


def test_the_settings_of_a_pretraining_run_are_read(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Its backbone, head and vocabulary count, what says nothing of the cost is passed over, and a wrong key is still wrong."""
    whole = ws.PretrainConfig(text=("books",), tokenizer={"vocab_size": 300}, head={"tied": False}, backbone=LAB).plain()
    made = account(AccountConfig.build(whole))
    assert made.totals["total"] == 968_000 + 2 * 300 * 200
    tokenizer.save(tmp_path / "tokenizer.json")
    own = AccountConfig.build({"tokenizer_file": str(tmp_path / "tokenizer.json")})
    assert make_model(own, real=False)[0].backbone.vocab_size == tokenizer.vocab_size
    with pytest.raises(ConfigError, match="unknown key 'bakcbone'; did you mean 'backbone'"):
        AccountConfig.build({"bakcbone": {}})


def test_what_a_pretraining_run_leaves_unsaid_is_its_own(tmp_path: Path) -> None:
    """Its own optimiser and rows, in the account as in the run; settings that are whole are taken as they are."""
    file = tmp_path / "pretrain.yaml"
    file.write_text("text: [books]\ntokenizer: {vocab_size: 300}\ntrain: {steps: 3}\n")
    read = AccountConfig.build(read_yaml(file)).train
    unsaid = ws.PretrainConfig(text=("books",)).train
    assert (read.optimizer, read.batch) == (unsaid.optimizer, unsaid.batch) == ("muon", 8)
    whole = ws.PretrainConfig(text=("books",), train=ws.TrainConfig(steps=3)).train
    assert (whole.optimizer, whole.batch, whole.schedule) == ("adamw", 16, "cosine")


def test_a_saved_model_has_its_account(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is, under a new head, and never with settings that contradict it."""
    monkeypatch.setattr(bundle_file, "_verify_in_fresh_process", lambda place: None)
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    model = Model(backbone, fresh_head(LanguageHeadConfig(), backbone, 0), causal=True)
    history = ({"objective": {"name": "masked", "mask_rate": 0.3}},)
    place = str(save(Bundle(model, tokenizer, history=history), tmp_path / "m"))
    made = account(AccountConfig(model=place))
    assert made.totals["total"] == sum(p.numel() for p in model.parameters())
    assert "0.3 of tokens scored" in made.flops.rows[-1].formula
    assert account(AccountConfig(model=place, classes=3)).totals["head"] == 16 * 3 + 3
    with pytest.raises(ConfigError, match="a saved model has its own vocab_size; drop these settings"):
        account(AccountConfig(model=place, vocab_size=7))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--length", "300"], "length must be at most max_tokens=256, but is 300"),
        (["--scheme", "fulll"], "did you mean 'full'"),
        (["--objective", "maskd"], "did you mean 'masked'"),
        (["--preset", "labb"], "did you mean 'lab'"),
        (["nowhere"], "there is no model at nowhere"),
        (["--tokenizer-file", "nowhere.json"], "no such tokenizer file"),
    ],
)
def test_mistakes_are_explained(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One message, exit code 2."""
    assert main(["account", *words]) == 2
    assert said in capsys.readouterr().err


TINY = {"backbone": {"width": 16, "depth": 1, "heads": 2, "feedforward": 24, "max_tokens": 16}, "vocab_size": 40}


def test_measuring_runs_in_processes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peaks, seconds and speed come back; the process is a real one (once here: a start costs seconds)."""
    really = measure._in_fresh_process
    first: list[dict[str, float]] = []

    def once(mode: str, settings: dict, load: Load) -> dict[str, float]:
        first.append(first[0] if first else really(mode, settings, load))
        return first[-1]

    monkeypatch.setattr(measure, "_in_fresh_process", once)
    made = account(AccountConfig.build({**TINY, "train": {"batch": 2}, "measure": True}))
    assert len(first) == 2
    assert made.measured.keys() == {"training", "inference", "seconds", "tokens_per_second", "flops_per_second"}
    assert all(value >= 0 for value in made.measured.values())
    assert made.measured["flops_per_second"] == pytest.approx(made.measured["tokens_per_second"] * made.flops.training)


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("given", [{}, {"classes": 3}, {"objective": {"name": "masked"}}, {"scheme": "probe", "classes": 2}])
def test_the_measuring_process_does_the_work(
    mode: str, given: dict, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the head, the objective and the scheme: a step and an inference end, and what they took is written."""
    settings = AccountConfig.build({**TINY, **given}).plain()
    task = {"mode": mode, "settings": settings, "load": vars(Load(batch=2, tokens=8, scored=0.15))}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(task)))
    measured()
    assert json.loads(capsys.readouterr().out).keys() == {"bytes", "seconds"}


def test_a_measuring_process_that_dies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its last words, and what to do; one that the system kills has none, but an exit code."""
    for code, words, said in ((1, "Traceback\nRuntimeError: no room\n", "RuntimeError: no room"), (-9, "", "exit code -9")):
        ended = subprocess.CompletedProcess([], code, stdout="", stderr=words)
        monkeypatch.setattr(measure.subprocess, "run", lambda *_args, ended=ended, **_options: ended)
        with pytest.raises(ModelError, match=f"the measured training must end well, .*{said}; try a smaller --batch or --length"):
            measure._in_fresh_process("training", {}, Load())
