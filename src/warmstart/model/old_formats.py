"""Bundles of older formats, upgraded while they are loaded: tables of old and new names, and what tables cannot say.

A setting that is renamed after a format was released gets a row here, or in ``renamed`` of its settings class, so that no bundle is
ever lost. Hashes are checked before, under the names that the bundle was saved with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from warmstart.adapters import ADAPTERS
from warmstart.backbone.config import BackboneConfig
from warmstart.heads import HEADS
from warmstart.model.history import RECORDS, ScoresRecord
from warmstart.objectives.config import ObjectiveConfig

HEAD_KINDS = {
    "language": "language-modeling",
    "classify": "classification",
    "several": "multilabel",
    "regress": "regression",
    "choose": "multiple-choice",
    "tag": "tagging",
    "embed": "embedding",
}
"""kinds of heads: format 1 -> format 2"""
TASK_TYPE_NAMES = {
    "label": "classification",
    "labels": "multilabel",
    "number": "regression",
    "choice": "multiple-choice",
    "tags": "tagging",
    "span": "span",
}
"""types of tasks: format 1 -> format 2"""
ADAPTER_KINDS = {"adapter": "bottleneck", "mix": "scalar-mix"}
"""kinds of adapters: format 1 -> format 2"""
TENSOR_NAMES = {r"^backbone\.types\.": "backbone.token_types.", r"^backbone\.mix\.": "backbone.scalar_mix."}
"""beginnings of tensors' names: format 1 -> format 2"""
RECORD_TYPES = {"dapt": "continued_pretraining", "stream": "continual", "study ablate": "prune"}
"""commands in a history: format 1 -> the type of record in format 2, if its name differs"""
ESTIMATORS = ("TextClassifier", "TextRegressor", "TokenTagger")
"""format 1 named an estimator as the command"""
RECORD_KEYS = {
    "pretrain": {"train": "settings"},
    "adapt": {"tune": "settings"},
    "continued_pretraining": {"evidence": "evaluations", "dropped": "left_out", "verdict": "decision"},
    "continual": {"memory": "strategy"},
    "answers": {"train": "settings", "longest_answer": "max_answer_tokens"},
    "prune": {"by": "replacement"},
}
"""fields of a record: format 1 -> format 2"""
EVALUATION_KEYS = {"moment": "stage", "probe": "probe_accuracy", "noise": "standard_error"}


def upgraded(manifest: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A bundle's manifest and tensors in the present format; those that are in it already are returned as they are."""
    if manifest["format"] >= 2:
        return dict(manifest), dict(tensors)
    head = _with_kind(manifest["head"], HEAD_KINDS)
    adapters = [_with_kind(values, ADAPTER_KINDS) for values in manifest.get("inserted", ())]  # the oldest bundles have none
    parts = {
        "backbone": _renamed(manifest["backbone"], BackboneConfig.renamed),
        "head": _renamed(head, HEADS[head["kind"]].config_class.renamed),
        "adapters": [_renamed(values, ADAPTERS[values["kind"]][0].renamed) for values in adapters],
        "calibration": manifest.get("calibration"),
        "history": [record_from_entry(entry) for entry in manifest["history"]],
    }
    return {**manifest, **parts}, {_new_name(name): tensor for name, tensor in tensors.items()}


def record_from_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The record, as plain values, of one entry of the history in format 1, which was a dictionary without a type."""
    values = dict(entry)
    command = values.pop("command", "made by hand")
    name = "adapt" if command in ESTIMATORS else RECORD_TYPES.get(command, command)
    if name == "import" and "lora" in values:
        name = "import_lora"
    if name not in RECORDS:
        language: dict[str, Any] = {key: values.pop(key) for key in ("generates", "objective", "provenance") if key in values}
        return _upgraded_parts({"type": "other", "name": command, "details": values, **language})
    values = _renamed(values, RECORD_KEYS.get(name, {})) | {"type": name}
    if command in ESTIMATORS:
        values["estimator"] = command
    return _upgraded_parts({key: value for key, value in values.items() if key in RECORDS[name].model_fields})


def _upgraded_parts(values: dict[str, Any]) -> dict[str, Any]:
    """A record in which the groups of values that several records have are in the present format too."""
    if values.get("objective"):
        values["objective"] = _renamed(values["objective"], ObjectiveConfig.renamed)
    if isinstance(values.get("task"), Mapping):
        task = _renamed(values["task"], {"kind": "type"})
        values["task"] = {**task, "type": TASK_TYPE_NAMES[task["type"]]} if "type" in task else task
    if comparison := values.get("comparison"):
        values["comparison"] = _renamed(comparison, {"rows": "methods", "sentences": "findings"})
    if "test" in values:
        values["test"] = ScoresRecord.of(values["test"]).to_dict()
    if "audit" in values:
        values["audit"] = [{"severity": severity, "sentence": sentence} for severity, sentence in values["audit"]]
    if "evaluations" in values:
        values["evaluations"] = [_renamed(one, EVALUATION_KEYS) for one in values["evaluations"]]
    return values


def _with_kind(values: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, Any]:
    return {**values, "kind": kinds.get(values["kind"], values["kind"])}


def _renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in values.items()}


def _new_name(name: str) -> str:
    for old, new in TENSOR_NAMES.items():
        name = re.sub(old, new, name)
    return name
