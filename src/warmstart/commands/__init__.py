"""The table of commands: name -> (module, settings, function, help). The command line and recipes run what stands here.

Nothing heavy is imported before a command is chosen, so that ``--help`` is quick.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from warmstart.registry import Registry


class Command(NamedTuple):
    """One row of the table of commands."""

    module: str
    settings: str
    function: str
    help: str

    def load(self) -> tuple[Any, Any]:
        """The class of its settings, and the function that takes them."""
        module = importlib.import_module(f"warmstart.{self.module}")
        return getattr(module, self.settings), getattr(module, self.function)


COMMANDS = Registry(
    "command",
    {
        "quickstart": Command(
            "commands.quickstart.command", "QuickstartConfig", "quickstart", "see it all work: no data, no network, six minutes"
        ),
        "pretrain": Command("commands.pretrain.command", "PretrainConfig", "pretrain", "train a backbone on unlabelled text"),
        "adapt": Command(
            "commands.adapt.command", "AdaptConfig", "adapt", "swap the head, fine-tune on labels, compare honestly, report"
        ),
        "race": Command(
            "commands.race.command",
            "RaceConfig",
            "race",
            "run every way to adapt, and name the cheapest within the noise of the best",
        ),
        "curve": Command(
            "commands.curve.command", "CurveConfig", "curve", "say what each number of labels gives, and what more would give"
        ),
        "continual": Command(
            "commands.continual.command",
            "ContinualConfig",
            "continual",
            "learn tasks one after another, and say what was forgotten",
        ),
        "multitask": Command(
            "commands.multitask.command", "MultitaskConfig", "multitask", "train several tasks together, and each alone"
        ),
        "answers": Command(
            "commands.answers.command", "AnswersConfig", "answers", "teach a language model to answer questions, and when not to"
        ),
        "evaluate": Command(
            "commands.evaluate", "EvaluateConfig", "evaluate", "score a model on a task's test split, or on a text"
        ),
        "predict": Command("commands.predict", "PredictConfig", "predict", "label texts, or answer questions"),
        "generate": Command(
            "commands.generate.command", "GenerateCommandConfig", "generate", "continue prompts, and show why each token was chosen"
        ),
        "cost": Command("commands.cost", "CostConfig", "estimate_cost", "count parameters, operations and memory, part by part"),
        "audit": Command(
            "commands.audit", "AuditConfig", "audit_task", "look for leakage, duplicates and conflicts in a task's data"
        ),
        "doctor": Command("commands.doctor", "DoctorConfig", "doctor", "check that a saved model is whole and reproduces itself"),
        "study lab": Command(
            "studies.lab.command",
            "StudyLabConfig",
            "study_lab",
            "attention by hand: keys and queries whose outcome has a closed form",
        ),
        "study pairs": Command(
            "studies.pairs.command", "StudyPairsConfig", "study_pairs", "does the right sentence of a minimal pair score higher?"
        ),
        "study diff": Command(
            "studies.diff.command", "StudyDiffConfig", "study_diff", "what did fine-tuning or more pretraining change in a model?"
        ),
        "study probe": Command(
            "studies.probe.command", "StudyProbeConfig", "study_probe", "what does each layer encode? probes with controls"
        ),
        "study explain": Command(
            "studies.explain.command", "StudyExplainConfig", "study_explain", "which words does a prediction depend on?"
        ),
        "study ablate": Command(
            "studies.ablate.command",
            "StudyAblateConfig",
            "study_ablate",
            "which heads and layers matter? prune those that do not",
        ),
        "study attention": Command(
            "studies.attention.command", "StudyAttentionConfig", "study_attention", "what does each head attend to?"
        ),
        "study neurons": Command(
            "studies.neurons.command", "StudyNeuronsConfig", "study_neurons", "which properties of tokens do neurons detect?"
        ),
        "study map": Command(
            "studies.map.command", "StudyMapConfig", "study_map", "which words are near each other? maps, neighbours, analogies"
        ),
        "study objectives": Command(
            "studies.objectives.command",
            "StudyObjectivesConfig",
            "study_objectives",
            "the same text learned by several objectives, side by side",
        ),
        "import": Command(
            "commands.import_", "ImportConfig", "import_model", "bring a pretrained model in: GPT-2, BERT, Llama, ModernBERT ..."
        ),
        "export": Command(
            "commands.export.command", "ExportConfig", "export_model", "write a model in the form that transformers reads"
        ),
        "fetch": Command("commands.fetch", "FetchConfig", "fetch_data", "fetch a public data set by its checksum"),
        "recipe": Command("commands.recipe", "RecipeCommand", "recipe", "run the steps of a recipe, one after another"),
    },
)


def with_preset(given: dict[str, Any], preset: str | None = None) -> dict[str, Any]:
    """Settings whose backbone is a preset (named, or under their key ``preset``) with what they say of it themselves on top."""
    from warmstart.backbone.config import PRESETS

    given = dict(given)
    preset = given.pop("preset", None) if preset is None else preset
    return {**given, "backbone": {**PRESETS[preset], **given.get("backbone", {})}} if preset else given
