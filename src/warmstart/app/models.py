"""Models as the server opens and describes them: what each can do, what it reads, and the inputs of requests checked for it.

Inputs come from a request: texts, or lists of texts where a task needs more than one. What is computed for them: ``replies.py``.
What is known of a model is computed from no text: its record keeps the findings of the audit, and the confidence and correctness of
each prediction for texts that chose nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from warmstart.app.batches import make_way
from warmstart.data.encode import require_one_form
from warmstart.data.read import documents_of
from warmstart.data.source import Source
from warmstart.data.task import Task
from warmstart.errors import ConfigError, DataError, ModelError, WarmstartError
from warmstart.finetuning.calibration import threshold_for
from warmstart.generation.ngram_counts import NgramCounts
from warmstart.heads.embedding import EmbeddingHead
from warmstart.heads.head import TaskHead
from warmstart.inspection.explanations import check_explainable
from warmstart.interop.load import load, text_alone
from warmstart.model.bundle import Bundle
from warmstart.model.card import card
from warmstart.model.fitted import FittedBaseline
from warmstart.model.history import last_adaptation
from warmstart.model.inference import reordered_copy
from warmstart.model.rows import BackboneVectors, VectorRows
from warmstart.model.selftest import SELFTEST_TEXTS
from warmstart.model.stack import Stack
from warmstart.model.stack_checks import examine
from warmstart.runs.tally import Recorder
from warmstart.runs.verdict import ACCURACY, Verdict, read_verdict
from warmstart.stats.abstention import Threshold
from warmstart.stats.calibration import expected_calibration_error, perfect_calibration_error
from warmstart.stats.formatting import first_of, model_name, of_100
from warmstart.stats.proportions import wilson_interval
from warmstart.system.console import console
from warmstart.system.products import Linear
from warmstart.tasks import task_type_for
from warmstart.tasks.answers import answer_threshold
from warmstart.tasks.trained_on import trained_on_pairs
from warmstart.tokenizer.tokenizer import Tokenizer

LEVEL = 0.95
"""confidence with which the guarantees that are shown hold"""
TARGETS = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
"""error rates whose guarantees are shown"""
KEPT_THRESHOLDS = 64
"""thresholds that are kept of a model"""
RECORD_SECONDS = 600.0
"""seconds between two lines that a server appends to the history of a model"""
Input = str | list[str]
"""an input of a request"""


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A loaded model under the name by which requests call it."""

    name: str
    path: str
    model: Bundle | Stack
    """the model with its weights laid out for inference"""
    whole: Bundle | Stack
    """the model with plain weights, through which gradients flow"""
    task: Task | None = None
    """the task whose training texts are shown beside predictions"""
    counts: NgramCounts | None = None
    """counts of the tokens that followed in a corpus, shown beside the probable ones"""
    recorder: Recorder | None = None
    """counter of its predictions, which go into its history"""

    @classmethod
    def open(cls, path: str, name: str | None = None, tasks: Sequence[Task] = (), corpus: Corpus | None = None) -> ServedModel:
        """Load and check a model; its name is that of its folder, unless one is given. One that writes is given the ``corpus``."""
        served = cls.of(load(path), name or model_name(path), path, tasks)
        return replace(served, counts=corpus.counts(served.bundle.tokenizer)) if corpus and served._generates() else served

    @classmethod
    def of(cls, model: Bundle | Stack, name: str, path: str = "", tasks: Sequence[Task] = ()) -> ServedModel:
        """A model in memory, made ready, with the first of the tasks whose texts it can have learned.

        Of one that reads other columns beside the text, only its answers to texts are served.
        """
        model = model if isinstance(model, Bundle) else text_alone(model, "The page")
        for bundle in model.networks if isinstance(model, Stack) else (model,):
            bundle.model.eval()
        if isinstance(model, Bundle):
            served = cls(name, path, _reordered(model), model)
        else:
            members = tuple(replace(member, model=_ready_member(member.model)) for member in model.members)
            served = cls(name, path, replace(model, members=members), model)
        return replace(served, task=next(filter(served.fits, tasks), None))

    @property
    def bundle(self) -> Bundle:
        """The model as one network. Raises ``ModelError`` for a stack."""
        if isinstance(self.model, Stack):
            raise ModelError(f"'{self.name}' is a stack, which has no single network")
        return self.model

    @cached_property
    def reader(self) -> Bundle | None:
        """The network by whose vectors texts are compared: of a stack, that of the first member that has one."""
        if isinstance(self.model, Bundle):
            return self.model
        parts = [member.model if isinstance(member.model, Bundle) else member.model.backbone for member in self.model.members]
        return next(filter(None, parts), None)

    @cached_property
    def abilities(self) -> tuple[str, ...]:
        """Names of the requests that it can answer."""
        possible = {
            "predict": self._predicts(), "generate": self._generates(), "embed": self._embeds(), "explain": self._explains(),
            "nearest": self.task is not None, "tokens": isinstance(self.model, Bundle), "card": True,
        }  # fmt: skip
        return tuple(name for name, able in possible.items() if able)

    def require(self, ability: str) -> None:
        """Raise ``ModelError`` unless the model has an ability."""
        if ability == "nearest" and self.task is None and self.reads_texts:
            raise ModelError(f"'{self.name}' knows no training texts; start the server with --texts TASK, what it learned from")
        if ability not in self.abilities:
            raise ModelError(f"'{self.name}' has no '{ability}'; it has {', '.join(self.abilities)}")

    def describe(self) -> dict[str, Any]:
        """Its name, kind, abilities, task type and labels."""
        return {
            "name": self.name,
            "kind": "stack" if isinstance(self.model, Stack) else self.model.model.head.config.kind,
            "task": self.task_type,
            "labels": list(self.model.labels),
            "abilities": list(self.abilities),
            "calibrated": self.model.calibration is not None,
            "guarantees": self._guarantees(),
            "reads_texts": self.reads_texts,
            "several_texts": self.several_texts,
            "depth": None if isinstance(self.model, Stack) else self.model.model.backbone.config.depth,
            "max_length": None if isinstance(self.model, Stack) else self.model.model.backbone.config.max_length,
        }

    def card(self) -> str:
        """The model card, in Markdown."""
        return card(self.model)

    # ------------------------------------------------------------------------------------------------ predictions

    @cached_property
    def task_type(self) -> str | None:
        """The task type; "answers" of a model that answers questions, None of one that predicts nothing."""
        if isinstance(self.model, Bundle) and self.model.max_answer_tokens:
            return "answers"
        return task_type_for(self.model).name if self._predicts() else None

    def _predicts(self) -> bool:
        if isinstance(self.model, Stack):
            return True
        return self.model.max_answer_tokens is not None or isinstance(self.model.model.head, TaskHead)

    @property
    def reads_texts(self) -> bool:
        """True if it predicts from one vector of each text or pair, so that training texts can be compared by theirs."""
        return _FORMS.get(str(self.task_type)) is _TEXT and self.reader is not None

    @cached_property
    def several_texts(self) -> bool | None:
        """True if an input is several texts, such as a pair; None for a model that reads both if no record says what it learned."""
        if _FORMS.get(str(self.task_type)) is _TEXT:
            return trained_on_pairs(self.model)
        return False

    def fits(self, task: Task) -> bool:
        """True if the model predicts the labels of a task."""
        return self.reads_texts and self.task_type == task.type and set(self.model.labels) == set(task.labels)

    def check_inputs(self, inputs: Sequence[Input]) -> list[Any]:
        """The inputs in the form that the task takes. Raises ``DataError`` that names the first one of another form."""
        form = _FORMS[str(self.task_type)]
        if form is _TEXT and self.several_texts is not None:
            form = _PAIR if self.several_texts else _SINGLE
        wanted, fits, make = form
        for number, value in enumerate(inputs):
            if not fits(value):
                raise DataError(f"each input must be {wanted}, but input {number} is {json.dumps(value, ensure_ascii=False)[:80]}")
        require_one_form(inputs)
        return [make(value) for value in inputs]

    def threshold(self, target_error: float, confidence_level: float) -> Threshold:
        """The threshold for a guarantee. Raises ``ModelError`` if this model can give none."""
        key = target_error, confidence_level
        if key not in self._thresholds:
            if len(self._thresholds) >= KEPT_THRESHOLDS:
                self._thresholds.clear()
            self._thresholds[key] = self._find_threshold(*key)
        return self._thresholds[key]

    @cached_property
    def _thresholds(self) -> dict[tuple[float, float], Threshold]:
        """Those that were asked for; they go with the model when it is loaded again."""
        return {}

    def _find_threshold(self, target_error: float, confidence_level: float) -> Threshold:
        if self.task_type == "answers":
            return answer_threshold(self.bundle, target_error, confidence_level)
        if not task_type_for(self.model).one_label:
            raise ModelError("target_error is for models that answer questions or give one label per text; leave it out")
        return threshold_for(self.model, target_error, confidence_level)

    def _guarantees(self) -> bool:
        """True if it has examples that thresholds can be found on."""
        try:
            return bool(self._predicts() and self.threshold(0.5, LEVEL))
        except WarmstartError:
            return False

    def _generates(self) -> bool:
        return isinstance(self.model, Bundle) and self.model.generates

    def _embeds(self) -> bool:
        return isinstance(self.model, Bundle) and isinstance(self.model.model.head, EmbeddingHead)

    @cached_property
    def _characters_per_token(self) -> float:
        bundles = [self.model] if isinstance(self.model, Bundle) else self.model.networks
        rows = bundles[0].tokenizer.encode(SELFTEST_TEXTS) if bundles else []
        return sum(map(len, SELFTEST_TEXTS)) / sum(map(len, rows)) if rows else 4.0

    def count_tokens(self, inputs: Sequence[Any]) -> int:
        """About how many tokens inputs have."""
        characters = sum(len(value) if isinstance(value, str) else sum(map(len, value)) for value in inputs)
        return 2 * len(inputs) + int(characters / self._characters_per_token)

    def _explains(self) -> bool:
        if isinstance(self.model, Stack):
            return bool(self.model.labels)
        try:
            check_explainable(self.bundle)
        except WarmstartError:
            return False
        return True


def _reordered(bundle: Bundle) -> Bundle:
    """The network lies as is best for inference, and lets other requests go first between its products."""
    network = reordered_copy(bundle.model)
    for module in network.backbone.modules():
        if isinstance(module, Linear):
            module.register_forward_hook(make_way)
    return replace(bundle, model=network)


def _ready_member(model: Bundle | FittedBaseline) -> Bundle | FittedBaseline:
    if isinstance(model, Bundle):
        return _reordered(model)
    if model.backbone is None or not isinstance(model.rows, VectorRows):
        return model
    return replace(model, rows=replace(model.rows, vectors=BackboneVectors(_reordered(model.backbone))))


def _is_list(value: Input, least: int, most: int | None = None) -> bool:
    return isinstance(value, list) and least <= len(value) <= (most or len(value))


_TEXT = ("a text, or a list of two for tasks about pairs", lambda value: isinstance(value, str) or _is_list(value, 2, 2),
         lambda value: value if isinstance(value, str) else tuple(value))  # fmt: skip
_SINGLE = ("a text, since the model learned from single texts", lambda value: isinstance(value, str), str)
_PAIR = ("a list of two texts, since the model learned from pairs", lambda value: _is_list(value, 2, 2), tuple)
_FORMS: dict[str, tuple[str, Callable[[Any], bool], Callable[[Any], Any]]] = {
    "classification": _TEXT,
    "multilabel": _TEXT,
    "regression": _TEXT,
    "tagging": ("a list of words", lambda value: _is_list(value, 1), tuple),
    "answers": ("a question", lambda value: isinstance(value, str), str),
}
"""task type -> what an input must be, in words and as a test, and the value that the task takes"""


class ServedModels:
    """All models of a server, by name; one can be loaded again without that a request notices."""

    def __init__(self, models: Sequence[ServedModel], corpus: Corpus | None = None) -> None:
        self.corpus = corpus
        self._models = {model.name: model for model in models}
        if len(self._models) < len(models):
            names = ", ".join(model.name for model in models)
            raise ModelError(f"each model must have a name of its own, but they are {names}; write NAME=FOLDER")

    def __iter__(self) -> Any:
        return iter(tuple(self._models.values()))

    @property
    def verdict(self) -> Verdict | None:
        """The first screen of the only model that is served; None of several, or where none was kept beside it."""
        screen = read_verdict(Path(next(iter(self)).path)) if len(self._models) == 1 else None
        screen = with_columns_left_out(screen, next(iter(self)).model) if screen else None
        return screen if screen and any(step.name == "try" for step in screen.steps) else None

    def get(self, name: str | None) -> ServedModel | None:
        """The model of this name, the first if None; None if there is none."""
        return next(iter(self._models.values())) if name is None else self._models.get(name)

    def put(self, model: ServedModel) -> None:
        """Serve a model in place of that of the same name."""
        self._models[model.name] = model

    def reload(self, name: str) -> None:
        """Load a model again from its folder; on an error the old one stays. Requests that began go on with the old one."""
        old = self._models[name]
        new = ServedModel.open(old.path, old.name, [old.task] if old.task else [], self.corpus)
        if old.recorder:
            new = replace(new, recorder=Recorder(old.path, RECORD_SECONDS))
            old.recorder.end()
        self.put(new)
        console.print(f"loaded {name} again")


def open_models(paths: Sequence[str], tasks: Sequence[Task] = (), corpus: Corpus | None = None) -> ServedModels:
    """Load models: each a folder, or ``NAME=FOLDER``. Raises ``ConfigError`` for a task, or a corpus, that fits none of them."""
    models = list[ServedModel]()
    for path in paths:
        name, _, folder = path.rpartition("=") if "=" in path and not Path(path).exists() else ("", "", path)
        models.append(replace(ServedModel.open(folder, name or None, tasks, corpus), recorder=Recorder(folder, RECORD_SECONDS)))
    for task in tasks:
        if not any(model.fits(task) for model in models):
            raise ConfigError(
                f"--texts must be a task that one of the models was adapted to, but '{task.name}' ({task.type}: "
                f"{', '.join(task.labels) or 'numbers'}) has other labels than {', '.join(model.name for model in models)}"
            )
    if corpus and not any(model.counts for model in models):
        raise ConfigError(
            f"--corpus is for models that generate text, but none of {', '.join(model.name for model in models)} does"
        )
    return ServedModels(models, corpus)


class Corpus:
    """Files or a folder of text, of up to a few million tokens: all counts are in memory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._counts = dict[str, NgramCounts]()

    def counts(self, tokenizer: Tokenizer) -> NgramCounts:
        """Counts of the tokens after each context. Raises ``DataError`` if there is no text."""
        if tokenizer.digest not in self._counts:
            self._counts[tokenizer.digest] = NgramCounts(tokenizer, documents_of([Source(path=self.path)]))
        return self._counts[tokenizer.digest]


def checks_of(model: ServedModel) -> list[dict[str, Any]]:
    """The checks of ``warmstart doctor``."""
    return [check.to_dict() for check in examine(model.whole, model.path)]


def guarantees_of(model: ServedModel) -> list[dict[str, Any]]:
    """For error rates that can be guaranteed: the threshold, and the share of held-out examples that reach it."""
    thresholds = [model.threshold(target, LEVEL) for target in TARGETS]
    return [
        {"target_error": threshold.target, "threshold": threshold.threshold, "answered": threshold.answered / threshold.examples}
        for threshold in thresholds
        if np.isfinite(threshold.threshold)
    ]


def evidence_of(model: Bundle | Stack, path: str) -> dict[str, Any]:
    """``accuracy`` (``accuracy_of``); ``audit``: each finding, None without an audit; ``calibration`` (``calibration_of``)."""
    record = last_adaptation(model.history)
    findings = record.data[-1].audit if record else None
    return {
        "accuracy": accuracy_of(model, path),
        "audit": None if findings is None else [finding.to_dict() for finding in findings],
        "calibration": calibration_of(held_out_of(model)),
    }


def with_columns_left_out(verdict: Verdict, model: Bundle | Stack) -> Verdict:
    """The verdict with a sentence on other columns that are not read where there are texts alone."""
    if isinstance(model, Bundle) or not model.without:
        return verdict
    names = first_of(model.without, 3, "others")
    note = f"Here the text alone is read, without {names}; `warmstart predict` reads a table with them, and is right more often."
    return replace(verdict, use=(note, *verdict.use))


def accuracy_of(model: Bundle | Stack, path: str) -> str:
    """On how many of 100 new texts a model is right, as a sentence: by the verdict beside it, its record, or its held-out texts."""
    if verdict := read_verdict(Path(path)):
        return verdict.headline
    record = last_adaptation(model.history)
    share, count, what = None, None, "test"
    if record:
        share, count = record.scores.get(ACCURACY), record.data[-1].sizes.get("test")
    if share is None or not count:
        right = [correct for _, correct in held_out_of(model)]
        share, count, what = (float(np.mean(right)) if right else None), len(right), "held-out"
    if share is None:
        return "No record says how often it is right on new texts; warmstart evaluate measures it on labelled ones."
    interval = wilson_interval(share, count)
    if not interval.tells:
        return f"{count:,} {what} texts are too few to say how often it is right on new ones."
    likely = f"likely {of_100(interval.low)} to {of_100(interval.high)}"
    return f"Right on {of_100(share)} of 100 new texts ({likely}), by {count:,} {what} texts."


def held_out_of(model: Bundle | Stack) -> Sequence[tuple[float, bool]]:
    """Confidence and correctness of the predictions for texts, or questions, that chose nothing; empty if there are none."""
    return model.calibration.held_out if model.calibration else ()


def calibration_of(held_out: Sequence[tuple[float, bool]]) -> dict[str, Any] | None:
    """The agreement of confidence and accuracy; None without held-out texts.

    ``error`` is the expected calibration error, ``error_of_chance`` that of a perfectly calibrated model with the same confidences.
    """
    if not held_out:
        return None
    confidence, right = np.array(held_out, dtype=float).T
    return {
        "texts": len(right),
        "accuracy": float(right.mean()),
        "error": expected_calibration_error(confidence, right),
        "error_of_chance": perfect_calibration_error(confidence),
    }
