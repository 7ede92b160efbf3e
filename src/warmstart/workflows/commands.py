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
        module = importlib.import_module(f"warmstart.workflows.{self.module}")
        return getattr(module, self.settings), getattr(module, self.function)


COMMANDS = Registry(
    "command",
    {
        "quickstart": Command("quickstart", "QuickstartConfig", "quickstart", "see it all work: no data, no network, six minutes"),
        "pretrain": Command("pretrain", "PretrainConfig", "pretrain", "train a backbone on unlabelled text"),
        "adapt": Command("adapt", "AdaptConfig", "adapt", "swap the head, fine-tune on labels, compare honestly, report"),
        "race": Command("race", "RaceConfig", "race", "run every way to adapt, and name the cheapest within the noise of the best"),
        "curve": Command("curve", "CurveConfig", "curve", "say what each number of labels gives, and what more would give"),
        "stream": Command("stream", "StreamConfig", "stream", "learn tasks one after another, and say what was forgotten"),
        "multitask": Command("multitask", "MultitaskConfig", "multitask", "train several tasks together, and each alone"),
        "answers": Command("answers", "AnswersConfig", "answers", "teach a language model to answer questions, and when not to"),
        "evaluate": Command("use", "EvaluateConfig", "evaluate", "score a model on a task's test split, or on a text"),
        "predict": Command("use", "PredictConfig", "predict", "label texts, or answer questions"),
        "generate": Command("write", "GenerateCommand", "generate", "write text, and show why each word was chosen"),
        "account": Command("account", "AccountConfig", "account", "count parameters, operations and memory, part by part"),
        "audit": Command("use", "AuditConfig", "audit_task", "look for leakage, duplicates and conflicts in a task's data"),
        "doctor": Command("use", "DoctorConfig", "doctor", "check that a saved model is whole and reproduces itself"),
        "study lab": Command(
            "studies.lab", "LabConfig", "lab", "attention by hand: keys and queries whose outcome can be written down"
        ),
        "study pairs": Command("studies.pairs", "PairsConfig", "pairs", "does it find the right sentence of each pair likelier?"),
        "study drift": Command("studies.drift", "DriftConfig", "drift", "what did adapting, or more pretraining, change inside?"),
        "study probe": Command("studies.probe", "ProbeConfig", "study_probe", "what can be read from every layer, with controls"),
        "study explain": Command("studies.explain", "ExplainConfig", "explain", "which words made a prediction, and is that so?"),
        "study ablate": Command(
            "studies.ablate", "AblateConfig", "ablate", "which heads and layers matter; take out those that do not"
        ),
        "study attention": Command("studies.attention", "AttentionConfig", "attention", "where does each head look?"),
        "study neurons": Command("studies.neurons", "NeuronsConfig", "neurons", "what do single neurons go with?"),
        "study map": Command("studies.map", "MapConfig", "study_map", "what lies near what: maps of words, neighbours, analogies"),
        "study objectives": Command(
            "studies.objectives", "ObjectivesConfig", "objectives", "the same text learned by several objectives, side by side"
        ),
        "import": Command(
            "interop", "ImportConfig", "import_model", "bring a pretrained model in: GPT-2, BERT, Llama, ModernBERT ..."
        ),
        "export": Command("interop", "ExportConfig", "export_model", "write a model in the form that transformers reads"),
        "fetch": Command("fetch", "FetchConfig", "fetch_data", "fetch a public data set by its checksum"),
        "recipe": Command("recipe", "RecipeCommand", "recipe", "run the steps of a recipe, one after another"),
    },
)


def with_preset(given: dict[str, Any], preset: str | None = None) -> dict[str, Any]:
    """Settings whose backbone is a preset (named, or under their key ``preset``) with what they say of it themselves on top."""
    from warmstart.backbone import PRESETS

    given = dict(given)
    preset = given.pop("preset", None) if preset is None else preset
    return {**given, "backbone": {**PRESETS[preset], **given.get("backbone", {})}} if preset else given
