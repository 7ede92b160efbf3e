"""Growth: what is new is one file, or one function, and one row in a registry, and everything else picks it up.

Each section adds a made-up part to the package for one test: a file, as a contributor would write it, and its row.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import warmstart
from helpers.bundles import language_bundle, make_task
from warmstart.baselines import BASELINES
from warmstart.baselines.baseline import Baseline, inputs_themselves
from warmstart.cli import main, overview
from warmstart.commands import COMMANDS, Command
from warmstart.finetuning.schemes.registry import SCHEMES, NamedScheme
from warmstart.heads.registry import HEADS
from warmstart.model.files import load_bundle, save
from warmstart.objectives.registry import OBJECTIVES, Objective
from warmstart.registry import Registry
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer

# A study

STUDY = '''
"""``study vowels``: how many letters of a text are vowels."""

import polars as pl

from warmstart.config import Config
from warmstart.report.parts import Section, Table
from warmstart.report.result import StudyResult
from warmstart.report.result import finish_study
from warmstart.runs.run import Run
from warmstart.stats.formatting import percent


class StudyVowelsConfig(Config):
    """Count vowels."""

    text: str = "some text"
    """the text that is read"""
    out: str = "runs/vowels"
    """folder of the run"""


def study_vowels(config: StudyVowelsConfig) -> StudyResult:
    """Count, print and write the page."""
    folder = Run.open(config.out, config).folder
    fraction = sum(letter in "aeiou" for letter in config.text) / len(config.text)
    cells = [("vowels", percent(fraction))]
    result = StudyResult(
        "Vowels",
        [f"{percent(fraction)} of the letters are vowels."],
        {"vowels": pl.DataFrame({"fraction": [fraction]})},
        {"vowels": fraction},
        Table(("letters", "fraction"), cells),
    )
    finish_study(result, [Section("Letters", (), (Table(("letters", "fraction"), cells),))], config, folder)
    return result
'''


def test_a_new_study_is_a_command_a_page_a_step_of_recipes_and_at_hand_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is listed, explains its flags, refuses others, writes page, table and settings, and runs from a recipe and by its name."""
    add_module("studies", "vowels", STUDY, tmp_path, monkeypatch)
    row = Command("studies.vowels", "StudyVowelsConfig", "study_vowels", "how many letters are vowels?")
    add_row(COMMANDS, "study vowels", row, monkeypatch)
    assert "study vowels" in overview()
    with pytest.raises(SystemExit):
        main(["study", "vowels", "--help"])
    assert "the text that is read" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "vowels.yaml").write_text("txet: abc\n")
    assert main(["study", "vowels", "--config", str(tmp_path / "vowels.yaml")]) == 2
    assert "did you mean 'text'" in capsys.readouterr().err
    assert main(["study", "vowels", "--text", "aabb", "--out", str(tmp_path / "run")]) == 0
    assert "50.0% of the letters are vowels." in capsys.readouterr().err
    assert {"config.yaml", "report.html", "vowels.csv"} <= {path.name for path in (tmp_path / "run").iterdir()}
    recipe = {"title": "letters", "steps": {"vowels": {"command": "study vowels", "text": "abcd"}}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert main(["recipe", str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "steps")]) == 0
    assert "25.0% of the letters" in (tmp_path / "steps" / "vowels" / "report.html").read_text()
    settings = warmstart.StudyVowelsConfig(text="aaab", out=str(tmp_path / "python"))
    assert warmstart.study_vowels(settings).to_dict()["figures"] == {"vowels": 0.75}


# A head and a task type

HEAD = '''
"""A head that gives each text a level: the sigmoid of one number."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
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
'''


TASK_TYPE = '''
"""Levels: a number between 0 and 1 for each text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from warmstart.data.source import Source
from warmstart.data.tables import TextTable
from warmstart.data.task import Split, Task
from warmstart.heads.level import LevelHeadConfig
from warmstart.tasks.task_type import Examples
from warmstart.stats.scores import Scores
from warmstart.tasks.task_type import HeadSettings, TaskType


class LevelTask(TaskType):
    """A text gets a level. Predictions: (N, 1)."""

    name: ClassVar = "level"
    head_config: ClassVar = LevelHeadConfig
    metrics: ClassVar = ("agreement",)
    constant_rule: ClassVar = "always the mean level"

    def examples(self, table: TextTable, source: Source) -> Examples:
        """Texts and their levels."""
        return table.inputs(source), [*map(float, table.labels(source))]

    def encode_targets(self, split: str, targets: Sequence[Any], labels: tuple[str, ...]) -> np.ndarray:
        """(N,) float32."""
        return np.array(targets, dtype=np.float32)

    def head(self, task: Task, settings: HeadSettings) -> LevelHeadConfig:
        """One output."""
        return LevelHeadConfig(pooling=settings.pooling, dropout=settings.dropout)

    def scores(self, split: Split, predictions: Any, task: Task) -> Scores:
        """One minus the mean difference."""
        return Scores({"agreement": 1 - float(np.abs(predictions[:, 0] - split.labels).mean())})

    def constant(self, fitted: Split, inputs: Sequence[Any], task: Task) -> np.ndarray:
        """The mean level."""
        return np.full((len(inputs), 1), fitted.labels.mean())

    def describe(self, predictions: Any, inputs: Sequence[Any], labels: tuple[str, ...], top: int) -> list[dict[str, Any]]:
        """``level``."""
        return [{"level": round(float(row[0]), 4)} for row in predictions]
'''


def test_a_new_task_type_goes_from_its_manifest_to_a_described_model(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By command: it is audited, adapted to, evaluated, predicted and described; what does not suit it is refused."""
    add_module("heads", "level", HEAD, tmp_path / "heads", monkeypatch)
    add_module("tasks", "level", TASK_TYPE, tmp_path / "tasks", monkeypatch)
    add_row(HEADS, "level", importlib.import_module("warmstart.heads.level").LevelHead, monkeypatch)
    add_row(TASK_TYPES, "level", importlib.import_module("warmstart.tasks.level").LevelTask(), monkeypatch)
    table = "".join(f"She holds the {what}.\t{level}\n" for what, level in (("cat", 0.9), ("river", 0.1)) * 8)
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + table)
    manifest = {"name": "levels", "type": "level", "train": "rows.tsv", "validation": "rows.tsv", "test": "rows.tsv"}
    (tmp_path / "levels.yaml").write_text(yaml.safe_dump(manifest))
    save(language_bundle(tokenizer), tmp_path / "language")
    run, task = str(tmp_path / "run"), str(tmp_path / "levels.yaml")
    adapt = ["adapt", str(tmp_path / "language"), task, "--seeds", "1", "--steps", "8", "--out"]
    assert main(["audit", task]) == 0
    assert main([*adapt, run]) == 0
    assert "agreement" in (tmp_path / "run" / "report.html").read_text()
    assert main(["evaluate", run, task]) == 0
    assert main(["doctor", run]) == 0
    assert main(["cost", run]) == 0
    assert "head (level" in capsys.readouterr().err
    assert main(["predict", run, "She holds the cat."]) == 0
    assert 0 < json.loads(capsys.readouterr().out)["level"] < 1
    assert "A Transformer that gives each text a level" in (tmp_path / "run" / "bundle" / "README.md").read_text()
    for words in (
        [*adapt, str(tmp_path / "smooth"), "--label-smoothing", "0.1"],
        [*adapt, str(tmp_path / "calibrated"), "--calibration-fraction", "0.5"],
    ):
        capsys.readouterr()
        assert main(words) == 2
        assert "'levels' is a level task" in " ".join(capsys.readouterr().err.split())
    assert main(["predict", run, "She holds the cat.", "--target-error", "0.1"]) == 2


# A scheme

SCHEME = '''
"""Token embeddings only."""

from warmstart.config import Config
from warmstart.finetuning.scheme import Scheme
from warmstart.model.model import Model


def token_embeddings(model: Model) -> set[str]:
    """The names of the token embeddings."""
    return {name for name, _ in model.named_parameters() if name.endswith("embedding.weight")}


def embeddings(options: Config) -> Scheme:
    """Train the token embeddings and the head."""
    return Scheme(trains=(token_embeddings,))
'''


@pytest.mark.usefixtures("no_pages", "few_baselines")
def test_a_new_scheme_adapts_combines_and_races(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By command: it adapts, alone and with others, its cost is counted, and a race knows its name."""
    add_module("finetuning.schemes", "embeddings", SCHEME, tmp_path / "schemes", monkeypatch)
    row = NamedScheme("which parameters train", "embeddings.embeddings", backbone="part")
    add_row(SCHEMES, "embeddings", row, monkeypatch)
    language = str(save(language_bundle(tokenizer), tmp_path / "language"))
    task = str(save_task(make_task(), tmp_path / "task"))
    for names in ("embeddings", "embeddings+lp-ft"):
        flags = ["--scheme", names, "--seeds", "1", "--steps", "4", "--out", str(tmp_path / names)]
        assert main(["adapt", language, task, *flags]) == 0
    assert main(["cost", language, "--scheme", "embeddings"]) == 0
    race = ["race", task, "--backbones", language, "--seeds", "1", "--learning-rates", "0.001", "--steps", "4", "--no-scratch"]
    assert main([*race, "--schemes", "embeddings", "--out", str(tmp_path / "race")]) == 0
    assert "embeddings" in (tmp_path / "race" / "runs.csv").read_text()


# A baseline

BASELINE = '''
"""The last label."""

import numpy as np

from warmstart.baselines.baseline import Predict, Sample


def last_label(sample: Sample, setting: float) -> Predict:
    """Always the label of the last training text."""
    one = np.eye(len(sample.task.labels))[sample.labels[-1]]
    return lambda rows: np.tile(one, (len(rows), 1))
'''


def test_a_new_baseline_is_compared_with_the_others(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``adapt`` runs it for the task types that it serves; report and model card name it. One for races only is left out."""
    add_module("baselines", "last_label", BASELINE, tmp_path / "baselines", monkeypatch)
    fit = importlib.import_module("warmstart.baselines.last_label").last_label
    add_row(BASELINES, "last label", Baseline(inputs_themselves, fit, ("classification",), note="the last label"), monkeypatch)
    add_row(BASELINES, "only in races", Baseline(inputs_themselves, fit, race_only=True), monkeypatch)
    add_row(BASELINES, "for other tasks", Baseline(inputs_themselves, fit, ("regression",)), monkeypatch)
    language = str(save(language_bundle(tokenizer), tmp_path / "language"))
    flags = ["--seeds", "1", "--steps", "4", "--out", str(tmp_path / "run")]
    assert main(["adapt", language, str(save_task(make_task(), tmp_path / "task")), *flags]) == 0
    for name in ("report.html", "bundle/README.md"):
        text = (tmp_path / "run" / name).read_text()
        assert "last label" in text
        assert "only in races" not in text
        assert "for other tasks" not in text


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


def test_a_new_objective_pretrains_and_is_evaluated_and_counted(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By command: it pretrains, its bundle is whole, its held-out loss is measured again, and its cost is estimated."""
    add_module("objectives", "copying", OBJECTIVE, tmp_path, monkeypatch)
    copy_batch = importlib.import_module("warmstart.objectives.copying").copy_batch
    row = Objective(copy_batch, causal=False, target_fractions=lambda _config: (0.5, 1.0))
    add_row(OBJECTIVES, "copy", row, monkeypatch)
    out = str(tmp_path / "run")
    tiny = ["--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--max-length", "64"]
    tokenizer = ["--tokenizer.vocab-size", "330", "--tokenizer.sentinels", "16"]
    assert main(["pretrain", str(text), "--out", out, "--objective", "copy", "--steps", "2", *tiny, *tokenizer]) == 0
    assert main(["doctor", out]) == 0
    assert main(["evaluate", out, str(text)]) == 0
    assert main(["cost", "--objective", "copy", *tiny, "--vocab-size", "330"]) == 0
    assert load_bundle(tmp_path / "run" / "bundle").likelihood == "masked"


def add_module(package: str, name: str, source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a file into a package of warmstart, for one test."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(source)
    parent = importlib.import_module(f"warmstart.{package}")
    monkeypatch.setattr(parent, "__path__", [*parent.__path__, str(folder)])
    monkeypatch.delitem(sys.modules, f"warmstart.{package}.{name}", raising=False)


def add_row(registry: Registry[Any], name: str, row: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a row into a registry, for one test."""
    monkeypatch.setitem(registry._rows, name, row)  # type: ignore[attr-defined]
