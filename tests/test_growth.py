"""Growth: what is new is one file and one row in a registry, and everything else picks it up.

Each section adds a made-up part to the package for one test: a file, as a contributor would write it, and its row.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch
import yaml

import warmstart
from helpers.models import make_backbone
from warmstart.cli import main, overview
from warmstart.commands import COMMANDS, Command
from warmstart.cost.parameters import count_parameters
from warmstart.heads import HEADS, head_config
from warmstart.heads.head import Head
from warmstart.interop.onnx import to_onnx
from warmstart.model.bundle import Bundle
from warmstart.model.files import load, save
from warmstart.model.model import Model, fresh_head
from warmstart.objectives import OBJECTIVES
from warmstart.objectives.objective import Objective
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import Batch

# A study

STUDY = '''
"""``study vowels``: how many letters of a text are vowels."""

import polars as pl

from warmstart.config import Config
from warmstart.report.page import Section, Table
from warmstart.report.result import StudyResult, Summary
from warmstart.report.study import finish_study
from warmstart.run import open_run
from warmstart.stats.formatting import percent


class StudyVowelsConfig(Config):
    """Count vowels."""

    text: str = "some text"
    """the text that is read"""
    out: str = "runs/vowels"
    """folder of the run"""


def study_vowels(config: StudyVowelsConfig) -> StudyResult:
    """Count, print and write the page."""
    folder = open_run(config.out, config, resume=False)
    fraction = sum(letter in "aeiou" for letter in config.text) / len(config.text)
    cells = [("vowels", percent(fraction))]
    result = StudyResult(
        "Vowels",
        [f"{percent(fraction)} of the letters are vowels."],
        {"vowels": pl.DataFrame({"fraction": [fraction]})},
        {"vowels": fraction},
        Summary(("letters", "fraction"), cells),
    )
    finish_study(result, [Section("Letters", (), (Table(("letters", "fraction"), cells),))], config, folder)
    return result
'''


@pytest.fixture
def vowels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study of one file, and its row."""
    add_module("studies", "vowels", STUDY, tmp_path, monkeypatch)
    row = Command("studies.vowels", "StudyVowelsConfig", "study_vowels", "how many letters are vowels?")
    monkeypatch.setitem(COMMANDS._rows, "study vowels", row)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("vowels")
def test_a_new_study_is_a_command_a_page_and_a_step_of_recipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is listed, explains its flags, writes page, table and settings, and runs from a recipe."""
    assert "study vowels" in overview()
    with pytest.raises(SystemExit):
        main(["study", "vowels", "--help"])
    assert "the text that is read" in " ".join(capsys.readouterr().out.split())
    assert main(["study", "vowels", "--text", "aabb", "--out", str(tmp_path / "run")]) == 0
    assert "50.0% of the letters are vowels." in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["config.yaml", "figures", "report.html", "vowels.csv"]
    recipe = {"title": "letters", "steps": {"vowels": {"command": "study vowels", "text": "abcd"}}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert main(["recipe", str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "steps")]) == 0
    assert "25.0% of the letters" in (tmp_path / "steps" / "vowels" / "report.html").read_text()


@pytest.mark.usefixtures("vowels")
def test_a_new_study_is_at_hand_in_python(tmp_path: Path) -> None:
    """By its name, with its settings; it returns what every study returns."""
    settings = warmstart.StudyVowelsConfig(text="aaab", out=str(tmp_path / "run"))
    assert warmstart.study_vowels(settings).to_dict()["figures"] == {"vowels": 0.75}


# A command

COMMAND = '''
"""``count``: the letters of a text."""

from warmstart.config import Config
from warmstart.console import console


class CountConfig(Config):
    """Count letters."""

    text: str
    """the text that is read"""


def count(config: CountConfig) -> int:
    """Count and print."""
    console.print(f"{len(config.text)} letters")
    return len(config.text)
'''


def test_a_new_command_is_one_file_and_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is listed, reads flags and settings files, and refuses unknown keys with a suggestion."""
    add_module("commands", "count", COMMAND, tmp_path, monkeypatch)
    monkeypatch.setitem(COMMANDS._rows, "count", Command("commands.count", "CountConfig", "count", "count letters"))  # type: ignore[attr-defined]
    assert "count letters" in overview()
    assert main(["count", "--text", "abc"]) == 0
    assert "3 letters" in capsys.readouterr().err
    (tmp_path / "count.yaml").write_text("txet: abc\n")
    assert main(["count", "--config", str(tmp_path / "count.yaml")]) == 2
    assert "did you mean 'text'" in capsys.readouterr().err


# A head

HEAD = '''
"""A head that gives each text a level: the sigmoid of one number."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from warmstart.heads.pooled import PooledHead, PooledHeadConfig


class LevelHeadConfig(PooledHeadConfig):
    """A head for numbers between 0 and 1."""

    kind: Literal["level"] = "level"
    """name of this head in files"""


class LevelHead(PooledHead):
    """One logit per text."""

    config_class: ClassVar = LevelHeadConfig
    hub_task: ClassVar = "text-classification"
    onnx_outputs: ClassVar = ("logits", "level")

    def __init__(self, config: LevelHeadConfig, width: int, embedding: Tensor | None = None) -> None:
        super().__init__(config, width, 1)
        self.config: LevelHeadConfig = config

    def loss(self, logits: Tensor, targets: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Summed binary cross-entropy: logits (B, 1) against targets (B,)."""
        return F.binary_cross_entropy_with_logits(logits[:, 0], targets, reduction="sum")

    def predictions(self, logits: Tensor) -> Tensor:
        """(B, 1) levels from (B, 1) logits."""
        return logits.sigmoid()

    def description(self) -> str:
        """For the model card."""
        return "gives each text a level"

    def parameter_formula(self) -> str:
        """One linear layer with one output."""
        return "D + 1"
'''


@pytest.mark.usefixtures("no_second_process")
def test_a_new_head_trains_and_is_saved_described_counted_and_exported(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training lowers its loss, a reloaded model gives the same outputs, and card, cost table and ONNX graph know it."""
    add_module("heads", "level", HEAD, tmp_path, monkeypatch)
    level = importlib.import_module("warmstart.heads.level").LevelHead
    monkeypatch.setitem(HEADS._rows, "level", level)  # type: ignore[attr-defined]
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    model = Model(backbone, fresh_head(head_config({"kind": "level"}), backbone, 0), causal=False)
    batch = Batch(torch.tensor([[5, 9, 2], [8, 8, 3]]), torch.tensor([0.2, 0.9]), count=2)
    before = model.loss(batch)
    before.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.01 * parameter.grad
    assert model.loss(batch) < before
    reloaded = load(save(Bundle(model, tokenizer), tmp_path / "bundle"), selftest=True)
    with torch.no_grad():
        assert torch.equal(reloaded.model(batch.ids), model(batch.ids))
    assert "A Transformer that gives each text a level" in (tmp_path / "bundle" / "README.md").read_text()
    assert ("head (level)", "D + 1 = 16 + 1", "17", "17") in count_parameters(model).table()
    assert to_onnx(reloaded, tmp_path / "onnx") < 1e-5


def test_every_head_answers_for_itself() -> None:
    """Every registered head has its settings, a hub task, named outputs, a description and a parameter formula."""
    for kind, head in HEADS.items():
        assert head.config_class.model_fields["kind"].default == kind
        assert issubclass(head, Head)
        assert head.hub_task
        assert head.onnx_outputs[0] in ("logits", "vectors")
        assert isinstance(head.per_token, bool)
        for method in ("forward", "description", "parameter_formula"):
            assert getattr(head, method) is not getattr(Head, method), f"{kind} has no {method}"


# An objective

OBJECTIVE = '''
"""Copying: every token predicts itself, half of them at random."""

from __future__ import annotations

import numpy as np
import torch

from warmstart.objectives.causal import real_tokens
from warmstart.objectives.config import ObjectiveConfig
from warmstart.types import IGNORE, Batch, Vocabulary


def copy_batch(
    rows: np.ndarray, lengths: np.ndarray, rng: np.random.Generator, vocabulary: Vocabulary, config: ObjectiveConfig
) -> Batch:
    """``[5 6 7 8]`` -> inputs ``[5 6 7]``, targets ``[5 . 7]``, say: ``rows`` (B, T + 1), ``lengths`` (B,)."""
    ids = rows[:, :-1]
    real = real_tokens(ids, lengths)
    chosen = real & (rng.random(ids.shape) < 0.5)
    targets = torch.from_numpy(np.where(chosen, ids, IGNORE))
    return Batch(torch.from_numpy(ids.copy()), targets, torch.from_numpy(real), causal=False, count=int(chosen.sum()))
'''


@pytest.mark.usefixtures("no_second_process")
def test_a_new_objective_pretrains_and_is_evaluated_and_counted(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By command: it pretrains, its bundle is whole, its held-out loss is measured again, and its cost is estimated."""
    add_module("objectives", "copying", OBJECTIVE, tmp_path, monkeypatch)
    copy_batch = importlib.import_module("warmstart.objectives.copying").copy_batch
    row = Objective(copy_batch, causal=False, target_fractions=lambda _config: (0.5, 1.0))
    monkeypatch.setitem(OBJECTIVES._rows, "copy", row)  # type: ignore[attr-defined]
    out = str(tmp_path / "run")
    tiny = ["--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--max-length", "64"]
    tokenizer = ["--tokenizer.vocab-size", "330", "--tokenizer.sentinels", "16"]
    assert main(["pretrain", str(text), "--out", out, "--objective", "copy", "--steps", "2", *tiny, *tokenizer]) == 0
    assert main(["doctor", out]) == 0
    assert main(["evaluate", out, str(text)]) == 0
    assert main(["cost", "--objective", "copy", *tiny, *tokenizer]) == 0
    assert load(tmp_path / "run" / "bundle").likelihood == "masked"
    assert main(["pretrain", str(text), "--out", out, "--objective", "copi"]) == 2
    assert "unknown objective 'copi'; did you mean 'copy'" in capsys.readouterr().err


def add_module(package: str, name: str, source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a file into a package of warmstart, for one test."""
    (folder / f"{name}.py").write_text(source)
    parent = importlib.import_module(f"warmstart.{package}")
    monkeypatch.setattr(parent, "__path__", [*parent.__path__, str(folder)])
    monkeypatch.delitem(sys.modules, f"warmstart.{package}.{name}", raising=False)
