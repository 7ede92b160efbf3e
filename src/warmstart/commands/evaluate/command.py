"""``evaluate``: score a model on a task's test split, on a text, or on minimal pairs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from warmstart.commands.evaluate.result import TAKEN, against_result, pairs_result, pairs_section
from warmstart.commands.settings import EvaluateConfig
from warmstart.corpora.rows import PretrainingRows
from warmstart.corpora.write import tokenized_text
from warmstart.data.audit import audit
from warmstart.data.scorings import ScoredMethod, ScoringRun, read_ledger
from warmstart.data.source import LabelledTableFlags, Source
from warmstart.data.splits import NO_TEXTS
from warmstart.data.tables import Tables, reading_alike
from warmstart.data.task import Task, joined_splits
from warmstart.errors import ConfigError
from warmstart.heads.language_modeling import LMHead
from warmstart.inspection.minimal_pairs import read_minimal_pairs
from warmstart.inspection.sentence_scores import measure_pairs
from warmstart.interop.load import load_model, load_predictor
from warmstart.json_output import plain
from warmstart.model.bundle import Bundle
from warmstart.model.folder import model_digest
from warmstart.model.stack import Stack
from warmstart.report.result import StudyResult, finish_study
from warmstart.runs.run import Run
from warmstart.runs.steps import attention_step
from warmstart.stats.formatting import figure_interval, model_name, percent, percent_interval, percent_range
from warmstart.stats.intervals import Estimate
from warmstart.stats.proportions import proportion_in_units
from warmstart.stats.scores import HALF, ClassificationScores, NamedFigures, Scores, given_and_found, without_label
from warmstart.system.console import console, print_metrics, print_table
from warmstart.system.outputs import free_folder
from warmstart.system.storage import atomic_write
from warmstart.tasks import check_task_type, task_type_for
from warmstart.tasks.answers import AnswerTask, answer_questions, load_answer_task
from warmstart.tasks.gates import Gate, Gated, check_gate, check_gate_metric
from warmstart.tasks.load import is_manifest, load_task, load_whole_task, read_spec
from warmstart.tasks.predict import read
from warmstart.tasks.scoring import score_test, score_test_answers
from warmstart.tasks.thresholds import at_thresholds, has_thresholds, thresholds_of
from warmstart.tasks.trained_on import changed_data, known_texts_sentence, reading_of_model, unseen_only
from warmstart.tasks.two_models import as_model_numbers, check_rivals, measure_models
from warmstart.tasks.unknown import recognised_sentence, split_off_unknown
from warmstart.training.held_out import held_out_metrics

EXACT = "exact_match"
PAIRS_FOLDER, AGAINST_FOLDER = "runs/pairs", "runs/against"


def evaluate(config: EvaluateConfig) -> Scores | NamedFigures | StudyResult | Gated:
    """The ``evaluate`` command. Raises ``GateError`` for a model that does not pass its gate."""
    check_gate(config.gate, against=config.against is not None, pairs=config.pairs is not None)
    if (config.task is None) == (config.pairs is None):
        raise ConfigError("after the model, name a task or a text that it is scored on, or give minimal pairs with --pairs")
    if config.pairs is not None:
        return _judge(config, config.pairs)
    if config.threads:
        torch.set_num_threads(config.threads)
    if config.against:
        return _compare(config, str(config.task), config.against)
    folder = free_folder(config.out) if config.out else None
    scores, gate = _scored(config, str(config.task))
    result = Gated(scores, gate) if gate else scores
    if folder:
        atomic_write(folder / "scores.json", json.dumps(plain(result), indent=1).encode())
    if isinstance(result, Gated):
        console.print(result.passed().gate.sentence())
    return result


def _compare(config: EvaluateConfig, path: str, against: str) -> StudyResult | Gated:
    """Comparison of two models on texts like those of a task; the details are a ``ModelsCompared``."""
    models = {place: load_predictor(place) for place in (config.model, against)}
    check_rivals(models)
    first, second = models[config.model], models[against]
    names = _names(config.model, against)
    answering = isinstance(first, Bundle) and first.max_answer_tokens is not None
    task, left_out = (load_answer_task(path), "") if answering else _test_task(config, path, (first, second))
    check_gate_metric(config.gate, task.metric if isinstance(task, Task) else EXACT)
    methods = _methods(config)
    folder = Run.open(config.out or AGAINST_FOLDER, config).folder
    compared = measure_models(names, (first, second), task, methods)
    notes = [
        f"{name}: {sentence}" for name, model in zip(names, (first, second), strict=True) for sentence in _model_knows(model, task)
    ]
    notes += [left_out] if left_out else []
    difference = compared.difference
    score = Estimate(difference.mean, difference.low, difference.high)
    gate = Gate.of(config.gate, compared.metric, score, compared.units, names)
    notes += [*read_ledger(task).findings, *([gate.sentence()] if gate else [])]
    result = finish_study(against_result(task.name, compared, notes), [], config, folder)
    return Gated(result, gate).passed() if gate else result


def _names(first: str, second: str) -> tuple[str, str]:
    """The names of two models: by their folders' names, or by their paths if these are the same."""
    names = (model_name(first), model_name(second))
    return (first, second) if names[0] == names[1] else names


def _scored(config: EvaluateConfig, task: str) -> tuple[Scores | NamedFigures, Gate | None]:
    """Scores by the kind of the model's predictions, and the gate, if there is one."""
    bundle = load_predictor(config.model)
    if isinstance(bundle, Bundle) and bundle.max_answer_tokens:
        return _score_answers(bundle, config, load_answer_task(task))
    if isinstance(bundle, Bundle) and isinstance(bundle.model.head, LMHead):
        check_gate_metric(config.gate, None)
        return _read_text(bundle, config, task), None
    return _score(bundle, config, *_test_task(config, task, (bundle,)))


def _test_task(config: EvaluateConfig, path: str, models: Sequence[Bundle | Stack]) -> tuple[Task, str]:
    """The task whose test texts are scored, and which texts are not.

    A table is read as that from which the (first) model learned, with its labels. Of a table, or folders of texts, without a test
    split all texts are scored but those that a model has seen; if it has seen all, a part.
    """
    flags, model, tables = LabelledTableFlags.of(config), models[0], Tables()
    if not is_manifest(path):
        how = reading_alike(reading_of_model(model), path, flags.reading, tables)
        header = {True: "yes", False: "no"}.get(how.get("header"))  # type: ignore[arg-type]
        learned = {"type": flags.type or task_type_for(model).name, "header": header, "encoding": how.get("encoding")}
        learned |= {"text_column": None if "second" in how else how.get("text"), "delimiter": how.get("delimiter")}
        flags = flags.model_copy(update=learned)
    file, spec = read_spec(path, flags, tables)
    if isinstance(spec.test, tuple) or is_manifest(path):
        return load_task(path, flags=flags, tables=tables), ""
    columns = reading_of_model(model).get("columns")
    task = load_whole_task(Path(path), flags, labels=model.labels or None, tables=tables, columns=columns)
    test, left_out = unseen_only(models, joined_splits(task.splits()))
    none = test.take(NO_TEXTS)
    if not len(test):
        return load_task(path, flags=flags, tables=tables), ""
    return replace(task, name=file.name, train=none, validation=none, test=test), left_out


def _judge(config: EvaluateConfig, path: str) -> StudyResult:
    """Accuracy on minimal pairs, group by group; the details are a ``PairsMeasured``."""
    models = [config.model, *filter(None, [config.against])]
    (bundle, *rest), pairs = [load_model(model) for model in models], read_minimal_pairs(path, config.limit)
    folder = Run.open(config.out or PAIRS_FOLDER, config).folder
    name, rival = _names(config.model, config.against) if config.against else ("The model", "")
    others = {f"{rival} (against)" if rival in TAKEN else rival: other for other in rest}
    measured = measure_pairs(bundle, pairs, others, per_token=config.per_token)
    result = pairs_result(Path(path).name, measured, name)
    accuracy, low, high = (result.figures[name] for name in ("accuracy", "low", "high"))
    tiles = [("accuracy", percent(accuracy)), ("95% interval", percent_range(low, high))]
    step = attention_step(config.model, [pair.good for pair in pairs])
    return finish_study(replace(result, next_step=step), [pairs_section(measured)], config, folder, tiles=tiles)


def _read_text(bundle: Bundle, config: EvaluateConfig, text: str) -> NamedFigures:
    """Held-out metrics of a language model, under the objective that it was last trained on."""
    assert bundle.objective is not None
    with TemporaryDirectory() as cache:
        store = tokenized_text([Source(path=text, document=config.document)], bundle.tokenizer, Path(cache))
        figures = held_out_metrics(
            bundle.model,
            PretrainingRows(store, bundle.tokenizer.vocabulary(), bundle.objective, bundle.model.backbone.config.max_length),
        )
    title = f"{text}: {store.counts.words:,} words including line ends, {store.predicted_tokens:,} tokens"
    print_metrics(title, figures, bundle.likelihood)
    return NamedFigures(figures)


def _score_answers(bundle: Bundle, config: EvaluateConfig, task: AnswerTask) -> tuple[NamedFigures, Gate | None]:
    """Share of the test questions that a model answers exactly."""
    (method,) = _methods(config)
    right = score_test_answers(task, answer_questions(bundle, task.test.questions), method, None)
    exact = proportion_in_units(right, task.test.units)
    console.print(f"{int(right.sum())} of {len(task.test)} answers are right: {percent_interval(*exact)} over test questions")
    for sentence in (*_model_knows(bundle, task), *read_ledger(task).findings):
        console.print(sentence)
    return NamedFigures(exact_match=exact.value), Gate.of(config.gate, EXACT, exact, task.test.units)


def _score(bundle: Bundle | Stack, config: EvaluateConfig, task: Task, left_out: str) -> tuple[Scores, Gate | None]:
    """Score a fine-tuned model on the test split of its task, or of another one with the same labels."""
    check_task_type(bundle, task)
    check_gate_metric(config.gate, task.metric)
    alone, strange = split_off_unknown(bundle, task)
    known, (method,) = as_model_numbers(bundle, alone), _methods(config)
    test = known.test
    reading = read(bundle, test.texts)
    scored = score_test(known, at_thresholds(reading.values, thresholds_of(bundle)), method, None)
    scores = scored.scores
    print_table(f"{task.name}, {len(test)} test texts", scores.table(), scores.header)
    if isinstance(scores, ClassificationScores):
        right = proportion_in_units(scores.predicted == test.labels, test.units)
        accuracy, macro_f1 = percent_interval(*right), percent(scores.macro_f1)
        console.print(f"accuracy {accuracy} over test texts, macro F1 {macro_f1}, log loss {scores.log_loss:.3f} nats")
        console.print(_constant_sentence(scores.accuracy, known))
    else:
        console.print(f"{task.metric} {figure_interval(*scored.interval, digits=4).removesuffix(')')} over test texts)")
    if has_thresholds(task):
        reached = np.asarray(scored.predictions) >= HALF
        none = float(np.mean(~reached.any(axis=1))) if len(reached) else 0.0
        for sentence in filter(None, [given_and_found(test.labels, reached), without_label(none)]):
            console.print(sentence)
    notes = [reading.cut(), recognised_sentence(bundle, reading, strange, task.labels) if len(strange) else "", left_out]
    empty = test.take(NO_TEXTS)
    notes += audit(replace(known, train=empty, validation=empty)).dependent
    for sentence in (*filter(None, notes), *_model_knows(bundle, task), *read_ledger(task).findings):
        console.print(sentence)
    return scores, Gate.of(config.gate, task.metric, scored.interval, test.units)


def _constant_sentence(accuracy: float, task: Task) -> str:
    """The score of the same label for every test text."""
    counts = np.bincount(task.test.labels, minlength=len(task.labels))
    constant = float(counts.max() / counts.sum())
    better = "; the model is no better" if accuracy <= constant else ""
    return f"Always predicting '{task.labels[counts.argmax()]}', their most frequent label, scores {percent(constant)}{better}."


def _methods(config: EvaluateConfig) -> list[ScoredMethod]:
    """The names in the ledger of the model, and of the one it is compared with."""
    paths = [config.model] + ([config.against] if config.against else [])
    return [ScoringRun.of(config).method(f"evaluate {path}", ["evaluate", model_digest(path)]) for path in paths]


def _model_knows(model: Bundle | Stack, task: Task | AnswerTask) -> list[str]:
    """Sentences about changes of the task since the model was trained on it, and about test texts that it has seen."""
    texts = task.test.questions if isinstance(task, AnswerTask) else task.test.texts
    known = known_texts_sentence(model, texts, "test texts", "its score is too high")
    return [*changed_data(model, task.name, task.text_hashes()), *filter(None, [known])]
