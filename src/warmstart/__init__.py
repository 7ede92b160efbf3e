"""warmstart: pretrain on your text, adapt to your labels, and know what transfer bought you.

    import warmstart as ws
    ws.pretrain(ws.PretrainConfig(text=("books/",), out="runs/lm"))
    outcome = ws.adapt(ws.AdaptConfig(model="runs/lm", task="task.yaml", out="runs/topics"))
    ws.predict(ws.load("runs/topics/bundle"), ["which label fits this?"])

Names are looked up when they are used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from warmstart.commands import COMMANDS as _COMMANDS
from warmstart.system.cores import choose_waiting as _choose_waiting
from warmstart.version import __version__

_HOMES = {
    "BackboneConfig": "backbone.config",
    "Bundle": "model.bundle",
    "Cost": "commands.cost",
    "FineTuneConfig": "finetuning.config",
    "FitResult": "experiment.fit_result",
    "GenerateConfig": "generation.settings",
    "ObjectiveConfig": "objectives.config",
    "SchemeOptions": "finetuning.schemes.registry",
    "Source": "data.source",
    "Stack": "model.stack",
    "Task": "data.task",
    "TextClassifier": "estimators",
    "TextEncoder": "estimators",
    "TextRegressor": "estimators",
    "TokenTagger": "estimators",
    "TokenizerConfig": "tokenizer.settings",
    "TrainConfig": "training.config",
    "WarmstartError": "errors",
    "WindowSettings": "heads.settings",
    "audit": "data.audit",
    "compare": "experiment.compare",
    "embed": "model.inference",
    "fit": "commands.fit.command",
    "generate": "generation.generate",
    "load": "interop.load",
    "load_task": "tasks.load",
    "load_tokenizer": "tokenizer.load",
    "make_task": "tasks.load",
    "merge_adapters": "adapters.insertion",
    "predict": "tasks.predict",
    "remove_adapters": "adapters.insertion",
    "save": "model.files",
    "shares": "tasks.shares",
    "to_huggingface": "interop.export",
    "trace": "generation.trace",
    "train_tokenizer": "tokenizer.train",
    "write_texts": "data.tables",
}
"""Home of each public name; those of commands are in their table."""
_TYPED = ("predict", "generate", "serve", "label", "audit", "runs", "recipe")
"""commands for terminals alone: programs call what they call"""


def _commands() -> dict[str, str]:
    rows = [row for name, row in _COMMANDS.items() if name not in _TYPED]
    return {name: module for row in rows for module, name in (row.settings_place, (row.module, row.function))}


__all__ = ["__version__", *_HOMES, *_commands()]

if TYPE_CHECKING:
    from warmstart.adapters.insertion import merge_adapters as merge_adapters
    from warmstart.adapters.insertion import remove_adapters as remove_adapters
    from warmstart.backbone.config import BackboneConfig as BackboneConfig
    from warmstart.commands.adapt.command import adapt as adapt
    from warmstart.commands.continual import continual as continual
    from warmstart.commands.cost import Cost as Cost
    from warmstart.commands.cost import estimate_cost as estimate_cost
    from warmstart.commands.doctor import doctor as doctor
    from warmstart.commands.evaluate.command import evaluate as evaluate
    from warmstart.commands.export import export_model as export_model
    from warmstart.commands.fit.command import fit as fit
    from warmstart.commands.fit.command import fit_data as fit_data
    from warmstart.commands.import_ import import_model as import_model
    from warmstart.commands.pretrain.command import pretrain as pretrain
    from warmstart.commands.quickstart.command import quickstart as quickstart
    from warmstart.commands.race.command import race as race
    from warmstart.commands.settings import CostConfig as CostConfig
    from warmstart.commands.settings import DoctorConfig as DoctorConfig
    from warmstart.commands.settings import EvaluateConfig as EvaluateConfig
    from warmstart.commands.settings import ExportConfig as ExportConfig
    from warmstart.commands.settings import ImportConfig as ImportConfig
    from warmstart.commands.settings import PretrainConfig as PretrainConfig
    from warmstart.data.audit import audit as audit
    from warmstart.data.source import Source as Source
    from warmstart.data.tables import write_texts as write_texts
    from warmstart.data.task import Task as Task
    from warmstart.errors import WarmstartError as WarmstartError
    from warmstart.estimators import TextClassifier as TextClassifier
    from warmstart.estimators import TextEncoder as TextEncoder
    from warmstart.estimators import TextRegressor as TextRegressor
    from warmstart.estimators import TokenTagger as TokenTagger
    from warmstart.experiment.compare import compare as compare
    from warmstart.experiment.config import AdaptConfig as AdaptConfig
    from warmstart.experiment.config import FitConfig as FitConfig
    from warmstart.experiment.config import QuickstartConfig as QuickstartConfig
    from warmstart.experiment.config import RaceConfig as RaceConfig
    from warmstart.experiment.fit_result import FitResult as FitResult
    from warmstart.finetuning.config import ContinualConfig as ContinualConfig
    from warmstart.finetuning.config import FineTuneConfig as FineTuneConfig
    from warmstart.finetuning.schemes.registry import SchemeOptions as SchemeOptions
    from warmstart.generation.generate import generate as generate
    from warmstart.generation.settings import GenerateConfig as GenerateConfig
    from warmstart.generation.trace import trace as trace
    from warmstart.heads.settings import WindowSettings as WindowSettings
    from warmstart.interop.export import to_huggingface as to_huggingface
    from warmstart.interop.load import load as load
    from warmstart.model.bundle import Bundle as Bundle
    from warmstart.model.files import save as save
    from warmstart.model.inference import embed as embed
    from warmstart.objectives.config import ObjectiveConfig as ObjectiveConfig
    from warmstart.studies.ablate import StudyAblateConfig as StudyAblateConfig
    from warmstart.studies.ablate import study_ablate as study_ablate
    from warmstart.studies.attention import StudyAttentionConfig as StudyAttentionConfig
    from warmstart.studies.attention import study_attention as study_attention
    from warmstart.studies.explain import StudyExplainConfig as StudyExplainConfig
    from warmstart.studies.explain import study_explain as study_explain
    from warmstart.studies.lab import StudyLabConfig as StudyLabConfig
    from warmstart.studies.lab import study_lab as study_lab
    from warmstart.studies.neurons import StudyNeuronsConfig as StudyNeuronsConfig
    from warmstart.studies.neurons import study_neurons as study_neurons
    from warmstart.studies.probe import StudyProbeConfig as StudyProbeConfig
    from warmstart.studies.probe import study_probe as study_probe
    from warmstart.tasks.load import load_task as load_task
    from warmstart.tasks.load import make_task as make_task
    from warmstart.tasks.predict import predict as predict
    from warmstart.tasks.shares import shares as shares
    from warmstart.tokenizer.load import load_tokenizer as load_tokenizer
    from warmstart.tokenizer.settings import TokenizerConfig as TokenizerConfig
    from warmstart.tokenizer.train import train_tokenizer as train_tokenizer
    from warmstart.training.config import TrainConfig as TrainConfig


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name) or _commands().get(name)
    if home is None:
        raise AttributeError(f"module 'warmstart' has no attribute '{name}'")
    _choose_waiting()
    command = next((row for row in _COMMANDS.values() if (row.module, row.function) == (home, name)), None)
    return command.load()[1] if command else getattr(importlib.import_module(f"warmstart.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
