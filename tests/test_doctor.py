"""The doctor finds what is broken and is content with what is sound; the cost of a model is torch's own count."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import warmstart as ws
from helpers.bundles import HEAD_CASES, bundle_with, language_bundle, make_task, unread_model
from helpers.foreign import CASES, folder_of
from helpers.models import BACKBONE_CASES, SENTENCES, make_backbone
from helpers.mutants import HARMLESS, IN_CODE, IN_FILES, IN_TRAINING, RELOAD, bases, edit
from warmstart.backbone.config import PRESETS, BackboneConfig
from warmstart.cli import main
from warmstart.commands.adapt import command
from warmstart.commands.cost import count_parameters, count_step, estimate_cost, make_model, without_storage
from warmstart.commands.settings import CostConfig
from warmstart.config import read_yaml
from warmstart.data.task import Split
from warmstart.errors import BundleError, ConfigError, UncheckedWarning
from warmstart.finetuning.saved import warn_of_other_predictions
from warmstart.finetuning.scheme import apply_scheme
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.heads.settings import HeadConfig, LMHeadConfig
from warmstart.interop.convert import from_huggingface
from warmstart.model.bundle import Bundle, Language
from warmstart.model.bundle_files import read_selftest
from warmstart.model.checks import CHECKS, Subject, faults, run_checks
from warmstart.model.files import load_bundle, save
from warmstart.model.model import Model, fresh_head
from warmstart.model.selftest import make_selftest
from warmstart.objectives.config import ObjectiveConfig
from warmstart.tasks.load import save_task
from warmstart.tasks.predict import uncalibrated_predictions
from warmstart.tokenizer.tokenizer import Tokenizer

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "doctor.md"


@pytest.fixture(scope="module")
def sound(tokenizer: Tokenizer) -> dict[str, Bundle]:
    """The models that mutants are made of."""
    return bases(tokenizer)


@pytest.fixture(scope="module")
def saved(sound: dict[str, Bundle], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, each in a folder."""
    place = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warmstart.model.files._fresh_reader", unread_model)
        for name, bundle in sound.items():
            save(bundle, place / name)
    return place


def status(check: str, bundle: Bundle, folder: Path | None = None) -> str:
    """What one check says of a model."""
    return CHECKS[check](check, Subject(bundle, read_selftest(folder) if folder else {})).status


def test_what_is_sound_and_harmless_changes_of_it_pass_every_check(saved: Path, tmp_path: Path) -> None:
    """What every mutant is made of, and edits that change no output."""
    for folder in saved.iterdir():
        assert not faults(run_checks(load_bundle(folder), read_selftest(folder))), folder.name
    for number, mutant in enumerate(HARMLESS):
        folder = shutil.copytree(saved / mutant.base, tmp_path / str(number))
        edit(folder, mutant.change)
        assert not faults(run_checks(load_bundle(folder), read_selftest(folder))), mutant.name


@pytest.mark.chaos
def test_a_model_broken_in_code_is_caught_by_name_and_not_saved(sound: dict[str, Bundle], tmp_path: Path) -> None:
    """By a quick check before, or when it is read again and differs from its settings."""
    for mutant in IN_CODE:
        bundle = mutant.broken(sound)
        if mutant.check != RELOAD:
            assert status(mutant.check, sound[mutant.base]) == "pass", mutant.name
            assert status(mutant.check, bundle) == "fail", mutant.name
        with pytest.raises(BundleError, match="must be sound to be saved|fails its self-test|the weights disagree"):
            save(bundle, tmp_path / "broken")
        assert not (tmp_path / "broken").exists(), mutant.name


@pytest.mark.chaos
def test_an_edited_model_is_caught_by_name(saved: Path, tmp_path: Path) -> None:
    """Its hashes match; what it does gives it away, and if it differs from what was stored, nothing loads it."""
    for number, mutant in enumerate(IN_FILES):
        folder = shutil.copytree(saved / mutant.base, tmp_path / str(number))
        assert status(mutant.check, load_bundle(folder), folder) == "pass", mutant.name
        edit(folder, mutant.change)
        assert status(mutant.check, load_bundle(folder, selftest=False), folder) == "fail", mutant.name
        if "load" in CHECKS[mutant.check].moments:
            with pytest.raises(BundleError, match="fails its self-test: .* it was changed after it was saved"):
                load_bundle(folder)


def alarms(seed: int, tokenizer: Tokenizer) -> list[str]:
    """What is found wrong with sound models: of every kind of backbone, with one head after the other, then of every head."""
    cases = [(switches, HEAD_CASES[(i + seed) % len(HEAD_CASES)]) for i, switches in enumerate(BACKBONE_CASES)]
    found = []
    for switches, head in [*cases, *(({}, head) for head in HEAD_CASES)]:
        backbone = make_backbone(seed, tokenizer.vocab_size, **switches)
        model = Model(backbone, fresh_head(head, backbone, seed), causal=seed % 2 == 0).eval()
        bundle = Bundle(model, tokenizer, tuple("abc") if hasattr(head, "classes") else ())
        found += [f"{switches} {head.kind} {seed}: {one}" for one in faults(run_checks(bundle, make_selftest(bundle)))]
    return found


def alarms_imported(seed: int, place: Path) -> list[str]:
    """What is found wrong with models of transformers: every family, as it writes it."""
    found = {name: faults(run_checks(from_huggingface(folder_of(name, place / f"{name}-{seed}", seed)))) for name in CASES}
    return [f"{name} {seed}: {one}" for name, faulty in found.items() for one in faulty]


def test_sound_models_raise_no_alarm(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Every kind of backbone, every head and every imported family, with random weights."""
    assert not [*alarms(0, tokenizer), *alarms_imported(0, tmp_path)]


@pytest.mark.chaos
def test_no_false_alarm_over_five_seeds(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Neither of ours nor of theirs."""
    for seed in range(1, 5):
        assert not [*alarms(seed, tokenizer), *alarms_imported(seed, tmp_path)]


def test_the_command_prints_a_table_or_json(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 for a sound model; 2 for a broken one, with the name of the check and what to do."""
    assert main(["doctor", str(saved / "labels")]) == 0
    printed = capsys.readouterr().err
    assert "stored predictions" in printed
    assert "not applicable: objective (it names no objective of its head)" in printed
    folder = shutil.copytree(saved / "labels", tmp_path / "edited")
    edit(folder, lambda manifest, tensors, spec: manifest.update(labels=["milk", "tea", "water"]))
    assert main(["doctor", str(folder), "--json"]) == 2
    printed = capsys.readouterr()
    rows = {row["check"]: row for row in json.loads(printed.out)["result"]}
    assert set(rows) == set(CHECKS)
    assert rows["label names"]["status"] == rows["stored predictions"]["status"] == "fail"
    assert rows["label names"]["value"] == 2
    assert "2 label names are empty, repeated, or those of other classes of the task" in printed.err
    assert "give `labels` in the order of the classes" in printed.err


def test_the_command_reads_a_folder_of_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is stored with it, and no hash is claimed."""
    assert main(["doctor", f"hf:{folder_of('bert-labels', tmp_path)}"]) == 0
    printed = capsys.readouterr().err
    assert "stored outputs (it is not a bundle, so nothing is stored)" in printed
    assert "hash" not in printed


def test_a_model_that_does_not_predict_what_was_scored_is_named(saved: Path, tmp_path: Path) -> None:
    """Even if it agrees with all that is stored with it: the labels of test texts are other ones, by name."""
    bundle = load_bundle(saved / "labels")
    with torch.no_grad():
        bundle.model.head.score.weight.normal_(std=5.0, generator=torch.Generator().manual_seed(0))
    texts = tuple(f"{one} {other}" for one in SENTENCES for other in SENTENCES)
    task = replace(make_task(), labels=bundle.labels, test=Split(texts, np.zeros(len(texts), dtype=np.int64)))
    with torch.no_grad():  # no label is always the most probable one
        bundle.model.head.score.bias -= torch.from_numpy(np.log(uncalibrated_predictions(bundle, texts)).mean(axis=0))
    scored = uncalibrated_predictions(bundle, texts)
    assert len(set(scored.argmax(axis=1))) == 3
    weights = {name: one.detach() for name, one in bundle.model.weights().items()}
    for number, mutant in enumerate(IN_TRAINING):
        folder = shutil.copytree(saved / mutant.base, tmp_path / str(number))
        edit(folder, lambda _, tensors, __: tensors.update(weights))
        save(load_bundle(folder, selftest=False), folder)
        warn_of_other_predictions(folder, task, scored)  # warnings are errors
        edit(folder, mutant.change)
        save(load_bundle(folder, selftest=False), folder)
        with pytest.warns(UncheckedWarning, match="does not predict what was scored: .* of 16 test texts get another label"):
            warn_of_other_predictions(folder, task, scored)


def test_adapt_tells_of_a_model_that_was_broken_before_it_was_saved(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report is written, the fault named, and the exit code 1."""
    whole = command.adapted_bundle

    def broken(*arguments: Any) -> Any:
        bundle = whole(*arguments)
        with torch.no_grad():
            for parameter in bundle.model.head.parameters():
                parameter.copy_(parameter.flip(0))
        return bundle

    monkeypatch.setattr(command, "adapted_bundle", broken)
    task = save_task(make_task(), tmp_path / "task")
    save(language_bundle(tokenizer), tmp_path / "lm")
    words = ["--out", str(tmp_path / "run"), "--seeds", "1", "--steps", "40", "--no-scratch", "--no-baselines"]
    assert main(["adapt", str(tmp_path / "lm"), str(task), *words]) == 1
    assert "12 of 12 test texts get another label" in capsys.readouterr().err


def test_every_check_has_an_edited_file_and_a_row_on_its_page() -> None:
    """A check that no file fails belongs into the tests of the code; docs/how-to/doctor.md says what each one holds."""
    assert {one.check for one in IN_FILES} == set(CHECKS)
    rest = PAGE.read_text(encoding="utf-8").partition("| --- | --- | --- |\n")[2]
    rows = rest.partition("\n\n")[0].splitlines()
    assert rows == [f"| {name} | {one.promise} | {', '.join(one.moments)} |" for name, one in CHECKS.items()]


LAB = BackboneConfig.build(PRESETS["lab"])
SWITCHES = [
    {"norm": "post", "positions": "sinusoidal", "activation": "relu"},
    {"attention": "synthesizer", "dropout": 0.1},
    {"norm_type": "rms", "activation": "swiglu", "bias": False, "heads": 4, "kv_heads": 2, "head_width": 8, "qk_norm": True},
    {"norm": "post", "positions": "learned", "embedding_norm": True, "token_types": 2, "position_offset": 2},
    {"bias": False, "activation": "geglu", "embedding_norm": True, "first_norm": False, "window": 4, "global_every": 3},
]
SCHEMES = ("full", "probe", "lora", "houlsby", "scalar-mix")


def make(head: HeadConfig, scheme: str = "full", **switches: object) -> Model:
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
    cases = [*(("full", switches) for switches in SWITCHES), *((scheme, {}) for scheme in SCHEMES)]
    for head, (scheme, switches) in zip(cycle({one.kind: one for one in HEAD_CASES}.values()), cases, strict=False):
        model = make(head, scheme, **switches)
        forward, training, kept = real_step(model, 3, 16)
        flops, activations = count_step(model.to("meta"), 3, 16, 1.0)
        case = head.kind, scheme, switches
        assert (round(flops["forward"] * 48), round(flops["training"] * 48)) == (forward, training), case
        assert activations == kept, case


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
        language = Language(objective=ObjectiveConfig(name="masked", mask_rate=rate))
        places.append(str(save(replace(bundle, language=language), tmp_path / f"{rate}")))
    few, many = (estimate_cost(CostConfig(model=place)) for place in places)
    assert few.totals["total"] == sum(one.numel() for one in bundle.model.parameters())
    assert few.flops["forward"] < many.flops["forward"]
    assert estimate_cost(CostConfig(model=places[0], classes=3)).totals["head"] == 16 * 3 + 3
    with pytest.raises(ConfigError, match="a saved model has its own vocab_size; remove these settings"):
        estimate_cost(CostConfig(model=places[0], vocab_size=7))
    with pytest.raises(ConfigError, match="length must be at most max_length"):
        estimate_cost(CostConfig(model=places[0], length=10_000))
