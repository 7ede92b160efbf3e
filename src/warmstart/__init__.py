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

__version__ = "0.1.0"

_HOMES = {
    "Account": "model",
    "AccountConfig": "workflows.account",
    "AdaptConfig": "workflows.adapt",
    "BackboneConfig": "backbone",
    "Bundle": "model",
    "CurveConfig": "workflows.curve",
    "FineTuneConfig": "workflows.finetune",
    "GenerateConfig": "generation",
    "ExportConfig": "workflows.interop",
    "ImportConfig": "workflows.interop",
    "ObjectiveConfig": "objectives",
    "PretrainConfig": "workflows.pretrain",
    "QuickstartConfig": "workflows.quickstart",
    "RaceConfig": "workflows.race",
    "SchemeOptions": "schemes",
    "Source": "data",
    "Task": "data",
    "TextClassifier": "estimators",
    "TextEncoder": "estimators",
    "TextRegressor": "estimators",
    "TokenTagger": "estimators",
    "TokenizerConfig": "tokenizer",
    "TrainConfig": "engine",
    "WarmstartError": "errors",
    "account": "workflows.account",
    "adapt": "workflows.adapt",
    "ask": "kinds",
    "audit": "data",
    "curve": "workflows.curve",
    "embed": "evaluate.embed",
    "export_model": "workflows.interop",
    "generate": "generation",
    "import_model": "workflows.interop",
    "interpolate": "schemes",
    "load": "workflows.interop",
    "load_task": "data",
    "load_tokenizer": "tokenizer",
    "merge": "inserts",
    "predict": "evaluate",
    "pretrain": "workflows.pretrain",
    "quickstart": "workflows.quickstart",
    "race": "workflows.race",
    "read_lora": "interop",
    "save": "model",
    "to_huggingface": "interop",
    "trace": "generation",
    "train_tokenizer": "tokenizer",
    "undo": "inserts",
    "vocabulary_report": "tokenizer",
    "write_lora": "interop",
}
"""Where each public name lives."""

__all__ = ["__version__", "study", *_HOMES]

if TYPE_CHECKING:
    from warmstart import study as study
    from warmstart.backbone import BackboneConfig as BackboneConfig
    from warmstart.data import Source as Source
    from warmstart.data import Task as Task
    from warmstart.data import audit as audit
    from warmstart.data import load_task as load_task
    from warmstart.engine import TrainConfig as TrainConfig
    from warmstart.errors import WarmstartError as WarmstartError
    from warmstart.estimators import TextClassifier as TextClassifier
    from warmstart.estimators import TextEncoder as TextEncoder
    from warmstart.estimators import TextRegressor as TextRegressor
    from warmstart.estimators import TokenTagger as TokenTagger
    from warmstart.evaluate.embed import embed as embed
    from warmstart.evaluate.predict import predict as predict
    from warmstart.generation import GenerateConfig as GenerateConfig
    from warmstart.generation import generate as generate
    from warmstart.interop import read_lora as read_lora
    from warmstart.interop import to_huggingface as to_huggingface
    from warmstart.interop import write_lora as write_lora
    from warmstart.kinds import ask as ask
    from warmstart.model import Account as Account
    from warmstart.model import Bundle as Bundle
    from warmstart.model import save as save
    from warmstart.objectives import ObjectiveConfig as ObjectiveConfig
    from warmstart.schemes import SchemeOptions as SchemeOptions
    from warmstart.schemes import interpolate as interpolate
    from warmstart.tokenizer import TokenizerConfig as TokenizerConfig
    from warmstart.tokenizer import load_tokenizer as load_tokenizer
    from warmstart.tokenizer import train_tokenizer as train_tokenizer
    from warmstart.tokenizer import vocabulary_report as vocabulary_report
    from warmstart.workflows.account import AccountConfig as AccountConfig
    from warmstart.workflows.account import account as account
    from warmstart.workflows.adapt import AdaptConfig as AdaptConfig
    from warmstart.workflows.adapt import adapt as adapt
    from warmstart.workflows.curve import CurveConfig as CurveConfig
    from warmstart.workflows.curve import curve as curve
    from warmstart.workflows.finetune import FineTuneConfig as FineTuneConfig
    from warmstart.workflows.interop import ExportConfig as ExportConfig
    from warmstart.workflows.interop import ImportConfig as ImportConfig
    from warmstart.workflows.interop import export_model as export_model
    from warmstart.workflows.interop import import_model as import_model
    from warmstart.workflows.interop import load as load
    from warmstart.workflows.pretrain import PretrainConfig as PretrainConfig
    from warmstart.workflows.pretrain import pretrain as pretrain
    from warmstart.workflows.quickstart import QuickstartConfig as QuickstartConfig
    from warmstart.workflows.quickstart import quickstart as quickstart
    from warmstart.workflows.race import RaceConfig as RaceConfig
    from warmstart.workflows.race import race as race


def __getattr__(name: str) -> Any:
    if name == "study":  # a module of its own, read when it is asked for
        return importlib.import_module("warmstart.study")
    if name not in _HOMES:
        raise AttributeError(f"module 'warmstart' has no attribute '{name}'")
    return getattr(importlib.import_module(f"warmstart.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
