"""The table of commands: name -> (module, settings, function, help). The command line and recipes run these commands.

Settings are imported without torch, so that ``--help`` is quick: a command's function imports what it runs, or its settings stand
in a file of their own.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from warmstart.registry import Registry


class Command(NamedTuple):
    """One row of the table of commands."""

    module: str
    settings: str
    """their class in ``module``, or that and another module: ``experiment.config:RaceConfig``"""
    function: str
    help: str
    goes_on: bool = False
    """run again after an interruption, it repeats nothing that was done"""
    distributed: bool = False
    """several processes that ``torchrun`` starts can share its work"""

    @property
    def settings_place(self) -> tuple[str, str]:
        """Module and name of its settings."""
        module, _, name = self.settings.rpartition(":")
        return module or self.module, name

    def load_settings(self) -> Any:
        """The class of its settings; it is imported without torch, so that ``--help`` is quick."""
        module, name = self.settings_place
        return getattr(importlib.import_module(f"warmstart.{module}"), name)

    def load(self) -> tuple[Any, Any]:
        """The class of its settings, and the function that takes them, which unlocks at its end the folders that it locked."""
        from warmstart.system.locks import releasing_locks

        module = importlib.import_module(f"warmstart.{self.module}")
        return self.load_settings(), releasing_locks()(getattr(module, self.function))


COMMANDS = Registry(
    "command",
    {
        "quickstart": Command(
            "commands.quickstart.command",
            "experiment.config:QuickstartConfig",
            "quickstart",
            "try it in a minute, without data or network",
            goes_on=True,
        ),
        "fit": Command(
            "commands.fit.command",
            "experiment.config:FitConfig",
            "fit_data",
            "from a table of texts and labels to a model, in three minutes",
            goes_on=True,
        ),
        "pretrain": Command(
            "commands.pretrain.command",
            "commands.settings:PretrainConfig",
            "pretrain",
            "train a backbone on unlabelled text",
            distributed=True,
        ),
        "tokenize": Command(
            "commands.tokenize",
            "commands.settings:TokenizeConfig",
            "tokenize",
            "write text as shards of tokens, in parallel, for pretrain to read",
            goes_on=True,
        ),
        "adapt": Command(
            "commands.adapt.command",
            "experiment.config:AdaptConfig",
            "adapt",
            "swap the head, fine-tune on labels, compare with baselines, report",
            goes_on=True,
        ),
        "race": Command(
            "commands.race.command",
            "experiment.config:RaceConfig",
            "race",
            "compare ways to adapt a model to a task, and recommend one",
            goes_on=True,
        ),
        "continual": Command(
            "commands.continual",
            "finetuning.config:ContinualConfig",
            "continual",
            "train on tasks one after another, jointly or each alone, and measure what is forgotten",
            goes_on=True,
        ),
        "evaluate": Command(
            "commands.evaluate.command",
            "commands.settings:EvaluateConfig",
            "evaluate",
            "score a model on a test split, a text, or minimal pairs",
        ),
        "predict": Command("commands.predict", "commands.settings:PredictConfig", "predict", "label texts, or answer questions"),
        "generate": Command(
            "commands.generate.command", "GenerateCommandConfig", "generate", "continue prompts, and show why each token was chosen"
        ),
        "serve": Command("commands.serve", "ServeConfig", "serve", "answer requests over HTTP with one or several models"),
        "label": Command(
            "commands.label",
            "LabelConfig",
            "label",
            "label texts in the browser while a model learns along",
            goes_on=True,
        ),
        "cost": Command(
            "commands.cost",
            "commands.settings:CostConfig",
            "estimate_cost",
            "count parameters, FLOPs and memory, part by part",
        ),
        "audit": Command(
            "commands.audit",
            "commands.settings:AuditConfig",
            "audit_task",
            "check a task for leaks, duplicates and conflicting labels",
        ),
        "doctor": Command(
            "commands.doctor", "commands.settings:DoctorConfig", "doctor", "check that a saved model is complete and undamaged"
        ),
        "study lab": Command(
            "studies.lab",
            "StudyLabConfig",
            "study_lab",
            "attention by hand: keys and queries whose results have a closed form",
        ),
        "study probe": Command(
            "studies.probe", "StudyProbeConfig", "study_probe", "what does each layer encode? probes with controls"
        ),
        "study explain": Command(
            "studies.explain", "StudyExplainConfig", "study_explain", "which words does a prediction depend on?"
        ),
        "study ablate": Command("studies.ablate", "StudyAblateConfig", "study_ablate", "which heads and layers matter?"),
        "study attention": Command(
            "studies.attention", "StudyAttentionConfig", "study_attention", "what does each head attend to?"
        ),
        "study neurons": Command(
            "studies.neurons", "StudyNeuronsConfig", "study_neurons", "which properties of tokens do neurons detect?"
        ),
        "import": Command(
            "commands.import_",
            "commands.settings:ImportConfig",
            "import_model",
            "read a pretrained model (GPT-2, BERT, Llama, GGUF ...); --list names some",
        ),
        "export": Command(
            "commands.export",
            "commands.settings:ExportConfig",
            "export_model",
            "write a model for transformers, sentence-transformers, ONNX or a browser",
        ),
        "runs": Command("commands.runs", "RunsConfig", "list_runs", "list the runs of a folder, or follow one"),
        "recipe": Command(
            "commands.recipe", "RecipeConfig", "recipe", "run the steps of a recipe, one after another", goes_on=True
        ),
    },
)


def with_preset(given: dict[str, Any], preset: str | None = None) -> dict[str, Any]:
    """Settings whose backbone is a preset (named, or under their key ``preset``), overridden by the backbone settings given."""
    from warmstart.backbone.config import PRESETS

    given = dict(given)
    preset = given.pop("preset", None) if preset is None else preset
    return {**given, "backbone": {**PRESETS[preset], **given.get("backbone", {})}} if preset else given
