"""Adaptation: a bundle and a labelled task in; a bundle for the task, a comparison with baselines and a report out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field
from tyro.conf import Positional, arg

from warmstart.baselines import baselines_for
from warmstart.baselines.choice import run_baseline
from warmstart.baselines.simple import collapsed
from warmstart.commands.adapt.page import write_adapt_page, write_answers_page
from warmstart.commands.adapt.result import AdaptResult, ConfidenceResult, EnsembleResult, TeachingResult, head_swap_lines
from warmstart.config import Advanced, Effectless, FileInput, TaskInput, setting_paths
from warmstart.data.audit import Audit, audit, drop_leaks
from warmstart.data.budget import LabelBudget, SelectionName, label_budget, selection_or_default
from warmstart.data.pool import texts_to_read
from warmstart.data.task import Split, Task
from warmstart.data.test_ledger import ScoredMethod, ScoringRun, read_ledger
from warmstart.errors import ConfigError, DataError
from warmstart.experiment.trial import described_settings
from warmstart.finetuning.answering import AnswerOptions, adapt_to_answers
from warmstart.finetuning.answers_result import AnswersResult
from warmstart.finetuning.calibration import calibrate, split_calibration_texts
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.continued import continue_pretraining
from warmstart.finetuning.ensemble import (
    STACKABLE,
    FoldSoups,
    average_probabilities,
    average_weights,
    check_ensemble,
    seconds_per_text,
)
from warmstart.finetuning.estimate import Estimator, cost_sentence
from warmstart.finetuning.finetune import check_patience, check_scheme, head_config_for
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.runs import DISTILLED, PRETRAINED, SCRATCH, TEACHER
from warmstart.finetuning.saved import warn_of_other_predictions
from warmstart.finetuning.schemes import make_scheme
from warmstart.finetuning.selection import BudgetedRun, SelectionSettings, fine_tune_within
from warmstart.finetuning.teacher import Lesson, Teacher, TeacherChoice, TeacherConfig, teaching_pool
from warmstart.interop.load import load_model
from warmstart.model.already_read import already_read
from warmstart.model.bundle import Bundle
from warmstart.model.files import model_digest
from warmstart.model.history import AdaptRecord, ComparisonRecord, FindingRecord, ScoresRecord, TaskRecord, seen_labels
from warmstart.model.model import Model, parameter_counts, swap_head
from warmstart.report.after_saving import model_is_saved
from warmstart.runs.record import write_record
from warmstart.runs.run import Run, provenance
from warmstart.stack.files import save_model
from warmstart.stack.stack import Stack
from warmstart.stats.comparison import MethodResult, MethodTable
from warmstart.stats.formatting import merged_notes, percent
from warmstart.system.console import console, print_comparison
from warmstart.tasks import task_type_of
from warmstart.tasks.load import ANSWERS_TYPE, load_task, names_validation, read_spec
from warmstart.tasks.scoring import ScoredPredictions, score_test
from warmstart.training.distributed import world
from warmstart.training.trackers import TRACKERS, Mirror, check_trackers


class AdaptConfig(AnswerOptions):
    """Swap a model's head, fine-tune it on labels over several seeds, and compare it with methods that need no pretraining."""

    model: Positional[FileInput[str]]
    """the pretrained model: a bundle, the folder of a run, or the name of an encoder: minilm, e5 or smollm2"""
    task: Positional[TaskInput[str]]
    """the task: a manifest (YAML), a table of texts and labels, or a folder with a folder of texts per label"""
    out: Effectless[str] = "runs/adapt"
    """folder of the run"""
    tune: Annotated[FineTuneConfig, arg(name="")] = FineTuneConfig()
    seeds: int = Field(3, gt=0)
    """number of seeds; fewer than three give wide intervals"""
    seed: int = Field(0, ge=0)
    """the first seed"""
    scratch: bool = True
    """also train the same network from scratch"""
    baselines: bool = True
    """also run the majority label and TF-IDF + logistic regression"""
    labels: int | None = Field(None, gt=0)
    """number of labelled texts that anything may look at, to learn or to choose; each seed draws its own; default: all"""
    selection: SelectionName | None = None
    """what chooses the settings: cross-validation on the texts that learn; a holdout, with --labels a fifth of them; or none.
    default: cross-validation with --labels or without validation texts, also below 300, where a race takes none: out-of-fold
    predictions give the temperature; otherwise the validation split as a holdout"""
    calibration_fraction: float = Field(0.0, ge=0, lt=1)
    """fraction of the validation texts (with --labels: of the labels) that chooses nothing, so that `predict --target-error` can
    give a guarantee; of a task of answers 0 means a half"""
    ensemble: Advanced[Literal["none", "mean", "soup"]] = "none"
    """all seeds as one model, saved if it is no worse than a single seed on the texts that choose: the mean of their probabilities
    (a stack), or one network with the mean of their weights (a soup); with --labels all seeds then learn from those of the first"""
    distil: Advanced[Annotated[TeacherConfig, arg(name="")]] = TeacherConfig()
    drop_leaks: bool = False
    """drop training texts that are also in validation or test, and validation texts that are also in test"""
    drop_near_leaks: Advanced[bool] = False
    """drop these, and texts that are nearly the same as one of validation or test"""
    tracker: Effectless[Advanced[tuple[Annotated[str, AfterValidator(TRACKERS.known)], ...]]] = ()
    """show every training run in tensorboard, mlflow, wandb (offline) or trackio, too; it stays on this machine"""

    @property
    def one_draw(self) -> bool:
        """Whether all seeds learn from the same labels, even if ``labels`` are drawn."""
        return self.ensemble != "none" or self.distil.teacher is not None

    @property
    def chosen_selection(self) -> SelectionName:
        """What chooses the settings, by name."""
        return selection_or_default(self.selection, self.labels)


def adapt(config: AdaptConfig) -> AdaptResult | AnswersResult:
    """Audit, fine-tune over seeds, compare, save the best run as a bundle, write the report; the ``adapt`` command.

    Several processes share the steps of every training run. Rank 0 alone writes the run's folder, predicts, scores and runs
    baselines; all return the same result. A task of type answers gives an ``AnswersResult``.
    """
    if read_spec(config.task)[1].type == ANSWERS_TYPE:
        return adapt_to_answers(config, write_answers_page)
    if config.selection is None and config.labels is None and not names_validation(config.task):
        config = config.model_copy(update={"selection": "cross-validation"})  # as with --labels
    here = world()
    here.require_equal({f"the setting {name}": value for name, value in setting_paths(config.to_dict())})
    ready = here.in_turns(lambda: _prepare(config))
    here.require_equal({**ready.run.made_of, "the model": model_digest(config.model)})
    bundle, budgets = ready.bundle, ready.budgets
    if make_scheme(config.tune.scheme).continued_pretraining:
        first = budgets[config.seed]  # its labels decide for all seeds
        text = texts_to_read(first, excluded=ready.calibration_texts)
        bundle = continue_pretraining(bundle, first, config.tune.options, text, ready.run).bundle
    result = compare_methods(bundle, budgets, config, (here.from_first(ready.scoring), ready.run), ready.lesson)
    result = replace(result, set_apart=ready.set_apart)
    return replace(result, confidence=here.first_alone(lambda: _finish(bundle, result, config, ready)))


@dataclass(frozen=True)
class _Ready:
    """What an adaptation begins with, checked."""

    run: Run
    bundle: Bundle
    loaded: Task
    """as it was read"""
    task: Task
    """without the texts that were dropped or set apart"""
    budgets: dict[int, LabelBudget]
    calibration_texts: Split | None
    lesson: Lesson | None
    scoring: ScoringRun

    @property
    def set_apart(self) -> int:
        """Labels that choose nothing."""
        return len(self.calibration_texts) if self.calibration_texts else 0


def _prepare(config: AdaptConfig) -> _Ready:
    """Read and check everything, and open the run's folder."""
    check_trackers(config.tracker)
    bundle = load_model(config.model)
    loaded = task = load_task(config.task)  # its splits never depend on the seed: `evaluate` must find the same test texts
    check_scheme(bundle, task, config.tune)
    teacher = Teacher.load(config.distil.teacher, task) if config.distil.teacher else None
    scoring = ScoringRun.of(config)
    if config.drop_leaks or config.drop_near_leaks:
        task = drop_leaks(task, near=config.drop_near_leaks)
    task, calibration_texts = split_calibration_texts(task, config.calibration_fraction, config.labels)
    budgets = draw_budgets(task, config, len(calibration_texts) if calibration_texts else 0)
    lesson = None
    if teacher:
        lesson = Lesson(teacher, teaching_pool(budgets[config.seed], config.distil.pool, calibration_texts), config.distil)
    run = Run.open(config.out, config)
    return _Ready(run, bundle, loaded, task, budgets, calibration_texts, lesson, scoring)


def _finish(bundle: Bundle, result: AdaptResult, config: AdaptConfig, ready: _Ready) -> ConfidenceResult | None:
    """Save the bundle, print what was found, write the report."""
    folder, task = ready.run.folder, ready.task
    adapted = adapted_bundle(bundle, result, config, ready.loaded, ready.calibration_texts)
    with model_is_saved(save_model(adapted, folder / "bundle")):
        warn_of_other_predictions(folder / "bundle", task, result.test_predictions)
        print_comparison(f"{task.name}: {task.metric} on {len(task.test)} test texts", result.comparison)
        for sentence in (*result.one_split_caution, *result.label_findings, *result.model_findings, *result.ledger.findings):
            console.print(sentence)
        confidence = None
        if adapted.calibration:
            texts = task.test.labels, task.test.units
            confidence = ConfidenceResult(adapted.calibration, result.test_predictions, *texts, config.chosen_selection)
        network = adapted if isinstance(adapted, Bundle) else adapted.networks[0]
        write_record(folder, score=(result.comparison.rows[0].name, result.comparison.rows[0].interval.mean))
        page = write_adapt_page(replace(result, confidence=confidence), confidence, network, config, folder)
    console.print(f"{result.saved}\nbundle: {folder / 'bundle'}\nreport: {page}")
    return confidence


def draw_budgets(task: Task, config: AdaptConfig, set_apart: int = 0) -> dict[int, LabelBudget]:
    """The labels that each seed may look at, beside those ``set_apart``; with ``--labels`` each draws its own.

    So the intervals also cover other choices of texts. With ``one_draw`` all have the labels and the folds of the first. Raises
    ``ConfigError`` or ``DataError`` if the labels cannot choose.
    """
    labels, seeds = config.labels and config.labels - set_apart, range(config.seed, config.seed + config.seeds)
    if config.ensemble != "none":
        check_ensemble(config.ensemble, task.type, config.seeds, chooses=config.chosen_selection != "none")
    if config.distil.teacher and config.chosen_selection == "none":
        raise ConfigError(
            "--teacher needs texts that choose, because a teacher can make a student worse; use --selection holdout or "
            "cross-validation"
        )
    try:
        draws = {seed: config.seed if config.one_draw else seed for seed in seeds}
        budgets = {seed: label_budget(task, labels, config.chosen_selection, draw) for seed, draw in draws.items()}
        if config.one_draw:
            budgets = {seed: budget.for_seed(seed) for seed, budget in budgets.items()}
        if config.chosen_selection != "none" or config.baselines:
            for budget in budgets.values():
                budget.folds  # noqa: B018  too few labels are refused before training, not after
    except DataError as error:
        apart = f", of which {set_apart} are set apart for calibration" if set_apart else ""
        without = "; with --no-baselines nothing has to choose" if config.chosen_selection == "none" and config.baselines else ""
        raise ConfigError(f"--labels {config.labels}{apart}: {error}{without}" if labels else str(error)) from None
    check_patience(budgets[config.seed].task, config.tune)
    return budgets


def compare_methods(
    bundle: Bundle,
    budgets: Mapping[int, LabelBudget],
    config: AdaptConfig,
    asks: tuple[ScoringRun, Run],
    lesson: Lesson | None = None,
) -> AdaptResult:
    """Run every method within the budget of each seed; ``asks`` is who scores, and the run that keeps what is trained.

    With a ``lesson`` the pretrained model also learns from its teacher, and the texts that choose say which of both is saved.
    Collective: several processes share the training runs.
    """
    task, first, (scoring, run) = budgets[config.seed].whole, budgets[config.seed].task, asks
    swapped = swap_head(bundle.model, head_config_for(first, config.tune), config.seed)
    encoded = EncodedTask.of(task, swapped, bundle.tokenizer)
    findings = _audit(first, bundle, config)
    for line in _head_swap(bundle.model, swapped):
        console.print(line)
    taught = {DISTILLED: replace(encoded, soft=lesson.soft_texts(swapped, bundle.tokenizer, task))} if lesson else {}
    # from scratch, all of the backbone must train: a frozen one would stay random
    settings = {PRETRAINED: config.tune} | dict.fromkeys(taught, config.tune)
    settings |= {SCRATCH: config.tune.model_copy(update={"scheme": "full"})} if config.scratch else {}
    reads = {name: taught.get(name, encoded) for name in settings}
    if len(budgets) > 1:
        _print_estimate(bundle, reads, settings, budgets[config.seed], config)
    mirror = Mirror(config.tracker, Path(config.out), dict(setting_paths(config.to_dict())))
    table, folds = _Table(task, scoring, config), {name: FoldSoups() for name in settings}
    for name, tune in settings.items():
        learner = _Learner(name, bundle, reads[name], tune, table.trained(name, tune))
        watch = folds[name].add if config.ensemble != "none" and name != SCRATCH else None
        choice = SelectionSettings(config.chosen_selection, watch=watch, run=run, mirror=mirror)
        table.add_runs(name, [learner.run(budget, choice) for budget in budgets.values()])
    teaching = _teaching(lesson, bundle, budgets[config.seed], table) if lesson else None
    method = DISTILLED if teaching and teaching.choice.kept else PRETRAINED
    ensemble = None
    if config.ensemble != "none":
        runs = table.runs[method]
        ensemble = _ensemble(bundle, reads[method], budgets[config.seed], config, (runs, folds[method]))
        for one in ensemble.models:
            table.add(one.name, one.test_predictions, ["ensemble", one.name, method, config.tune.to_dict()])
    if config.baselines:
        table.add_baselines(budgets)
    return AdaptResult(
        task=first,
        comparison=world().first_alone(lambda: MethodTable(task.metric, table.rows(method), rival=SCRATCH)),
        runs=table.runs,
        scores={name: tuple(one.scores for one in found) for name, found in table.scored.items()},
        audit=findings,
        available=len(task.train),
        budgets=budgets,
        selection=config.chosen_selection,
        ledger=world().first_alone(lambda: read_ledger(task)),
        method=method,
        ensemble=ensemble,
        teaching=teaching,
    )


def _print_estimate(
    bundle: Bundle,
    reads: Mapping[str, EncodedTask],
    settings: Mapping[str, FineTuneConfig],
    budget: LabelBudget,
    config: AdaptConfig,
) -> None:
    """What the runs of all seeds are expected to take."""
    choice = SelectionSettings(config.chosen_selection)
    costs = [
        Estimator(bundle, reads[name], config.tune).cost_within(tune.scheme, budget, choice) for name, tune in settings.items()
    ]
    seconds = sum(cost.once + cost.seconds * config.seeds for cost in costs)
    sentence = cost_sentence(f"{len(costs) * config.seeds} runs", seconds, max(cost.memory for cost in costs))
    console.print(sentence)


class _Table:
    """The methods of a comparison, in the order in which they were scored."""

    def __init__(self, task: Task, scoring: ScoringRun, config: AdaptConfig) -> None:
        self.task, self.scoring, self.config, self.origin = task, scoring, config, model_digest(config.model)
        self.runs = dict[str, tuple[BudgetedRun, ...]]()
        self.scored = dict[str, tuple[ScoredPredictions, ...]]()
        self._notes = dict[str, str]()

    def trained(self, name: str, tune: FineTuneConfig) -> ScoredMethod:
        """What the ledger calls a trained method."""
        families = {PRETRAINED: "adapted", SCRATCH: "scratch"}  # the words of a race
        short, rate = tune.scheme if name == PRETRAINED else name, tune.train.learning_rate
        return self._method(short, [families.get(name, name), self.origin, tune.to_dict()], rate)

    def _method(self, name: str, key: list[Any], rate: float = 0.0) -> ScoredMethod:
        described = described_settings(name, rate, self.config.labels, self.config.chosen_selection)
        return self.scoring.method(described, [*key, *_budget_key(self.config)])

    def add_runs(self, name: str, found: Sequence[tuple[BudgetedRun, ScoredPredictions]]) -> None:
        """The runs of a trained method, one per seed."""
        self.runs[name], self.scored[name] = zip(*found, strict=True)

    def add(self, name: str, predictions: Any, key: list[Any]) -> None:
        """A single model, by its predictions for the test texts."""
        self.scored[name] = (_scored_once(self.task, predictions, self._method(name, [*key, self.origin]), None),)

    def add_baselines(self, budgets: Mapping[int, LabelBudget]) -> None:
        """What needs no network."""
        drawn = self.config.labels is not None and not self.config.one_draw
        for name, predicted in world().first_alone(lambda: _baselines(budgets, drawn=drawn)).items():
            method = self._method(name, ["baseline", name])
            self.scored[name] = tuple(_scored_once(self.task, test, method, seed) for seed, (test, _) in predicted.items())
            self._notes[name] = "; ".join(merged_notes([note for _, note in predicted.values()]))

    def rows(self, first: str) -> tuple[MethodResult, ...]:
        """All methods, the one that is saved first."""
        names = [first, *(name for name in self.scored if name != first)]
        return tuple(
            _trained_row(name, self.runs[name], self.scored[name], self.task)
            if name in self.runs
            else replace(_row(name, self.scored[name], self.task), note=self._notes.get(name, ""))
            for name in names
        )


def _teaching(lesson: Lesson, origin: Bundle, budget: LabelBudget, table: _Table) -> TeachingResult:
    """The teacher beside the student without and with it; the teacher's predictions for the test texts are scored."""
    teacher, texts = lesson.teacher, budget.whole.test.texts
    table.add(TEACHER, world().first_alone(lambda: teacher.predict(texts)), [TEACHER, teacher.digest])
    without, taught = ([run.choosing for run in table.runs[name]] for name in (PRETRAINED, DISTILLED))
    choice = TeacherChoice.of(budget, without, taught, teacher.learned(budget))
    student = Bundle(table.runs[DISTILLED][0].final.model, origin.tokenizer, budget.whole.labels)
    costs = {
        TEACHER: (teacher.parameters, teacher.seconds(texts)),
        PRETRAINED: (parameter_counts(student.model)["total"], seconds_per_text(student, texts)),
    }
    return TeachingResult(choice, lesson.record(choice.learned), teacher.own_labels, costs)


def adapted_bundle(
    origin: Bundle, result: AdaptResult, config: AdaptConfig, loaded: Task, calibration_texts: Split | None = None
) -> Bundle | Stack:
    """The best run, or what was averaged over all, with its history; its confidence is calibrated.

    ``loaded`` is the task as it was read, before any text was dropped or set apart.
    """
    best, task = result.best, result.task
    record = AdaptRecord(
        task=TaskRecord.of(task, loaded, calibration_texts),
        audit=tuple(map(FindingRecord.of, result.audit.findings())),
        settings=config.tune.to_dict(),
        seed=best.seed,
        test=ScoresRecord.of(result.best_scores.to_dict()),
        validation=result.validation_scores,
        chosen=bool(result.caution_of_choice),
        budget=(*result.label_findings, *result.model_findings),
        comparison=ComparisonRecord.of(result.comparison, [*result.one_split_caution, *result.ledger.findings]),
        teacher=result.teaching.record if result.teaching and result.teaching.choice.kept else None,
        provenance=provenance(),
    )
    kept = result.averaged
    model = kept.model if kept else Bundle(best.final.model, origin.tokenizer, task.labels)
    history = (record,) if isinstance(model, Stack) else (*origin.history, record)
    model = replace(model, history=history)
    if not task_type_of(task).one_label:
        return model
    choosing = kept.choosing if kept else best.choosing
    return replace(model, calibration=calibrate(model, result.budgets[best.seed], choosing, calibration_texts))


def _ensemble(
    origin: Bundle,
    encoded: EncodedTask,
    budget: LabelBudget,
    config: AdaptConfig,
    trained: tuple[Sequence[BudgetedRun], FoldSoups],
) -> EnsembleResult:
    """What all seeds of the saved method predict together; ``trained`` are its runs, and those of folds averaged."""
    runs, folds = trained
    networks = [_network(origin, run, budget, config) for run in runs]
    models = [average_weights(encoded, budget, networks, folds)]
    if encoded.task.type in STACKABLE:
        models.insert(0, average_probabilities(encoded, budget, runs, networks))
    seconds = seconds_per_text(networks[0], encoded.task.test.texts)
    return EnsembleResult(config.ensemble, tuple(models), parameter_counts(networks[0].model)["total"], seconds)


def _network(origin: Bundle, run: BudgetedRun, budget: LabelBudget, config: AdaptConfig) -> Bundle:
    """The network of one seed, as a member of a stack."""
    record = AdaptRecord(task=TaskRecord.of(budget.task), settings=config.tune.to_dict(), seed=run.seed, provenance=provenance())
    return Bundle(run.final.model, origin.tokenizer, budget.whole.labels, (*origin.history, record))


def _audit(task: Task, bundle: Bundle, config: AdaptConfig) -> Audit:
    """The audit of the data, printed; also whether the model has seen labels of the task before."""
    windows = config.tune.window_settings if task_type_of(task).pooled else None
    result = audit(task, bundle.tokenizer, bundle.model.backbone.config.max_length, windows=windows)
    known = already_read(bundle.history, config.model, task.name)
    trained = (config.model,) if seen_labels(bundle, task.name) else ()
    result = replace(result, already_trained=trained, already_read=known)
    for finding in result.findings():
        console.print(f"audit ({finding.severity}): {finding.sentence}")
    return result


def _head_swap(before: Model, after: Model) -> list[str]:
    old, new = before.weights(), after.weights()
    kept = [name for name in old if name.startswith("backbone.")]
    sizes = {name: tensor.numel() for name, tensor in new.items() if name not in kept}
    dropped = [name for name in old if name not in kept]
    return head_swap_lines(len(kept), sum(parameter.numel() for parameter in before.backbone.parameters()), sizes, dropped)


@dataclass(frozen=True)
class _Learner:
    """A trained method."""

    name: str
    bundle: Bundle
    encoded: EncodedTask
    config: FineTuneConfig
    method: ScoredMethod
    """what the ledger calls it"""

    def run(self, budget: LabelBudget, choice: SelectionSettings) -> tuple[BudgetedRun, ScoredPredictions]:
        """One run and its test scores."""
        task, seed = self.encoded.task, budget.seed
        choice = replace(choice, title=f"{self.name}, seed {seed}")
        found = fine_tune_within(self.bundle, self.encoded, budget, self.config, choice, scratch=self.name == SCRATCH)
        test = _scored_once(task, found.final.test_predictions, self.method, seed)
        console.print(f"{self.name}, seed {seed}: {task.metric} {percent(test.score)} in {found.seconds:.0f} s")
        return found, test


def _scored_once(task: Task, predictions: Any, method: ScoredMethod, seed: int | None) -> ScoredPredictions:
    """The scores of predictions that all processes have; one of them records that the test split is scored."""
    scores = world().first_alone(lambda: score_test(task, predictions, method, seed).scores)
    return ScoredPredictions(task, predictions, scores)


def _trained_row(name: str, runs: Sequence[BudgetedRun], scored: Sequence[ScoredPredictions], task: Task) -> MethodResult:
    """The row of a trained method."""
    lost = sum(collapsed(task, one.scores) for one in scored)
    note = f"{lost} of {len(runs)} runs collapsed" if lost else ""
    seconds = float(np.mean([run.seconds for run in runs]))
    row = _row(name, scored, task)
    return replace(row, seconds=seconds, trainable=runs[0].final.trainable, note=note, collapsed=lost > 0)


def _baselines(budgets: Mapping[int, LabelBudget], *, drawn: bool) -> dict[str, dict[int | None, tuple[Any, str]]]:
    """The test predictions of each baseline and its note, by the seed that drew its labels, or by None if all have the same."""
    first = next(iter(budgets.values()))
    apart = dict[int | None, LabelBudget](budgets.items() if drawn else [(None, first)])
    chosen = {name: baseline for name, baseline in baselines_for(first.whole).items() if not baseline.race_only}
    runs = {name: {seed: run_baseline(one, budget) for seed, budget in apart.items()} for name, one in chosen.items()}
    return {name: {seed: (run.test, run.note) for seed, run in found.items()} for name, found in runs.items()}


def _row(name: str, scored: Sequence[ScoredPredictions], task: Task) -> MethodResult:
    """The scores of each run, also on resamples of the test split."""
    resampled = np.array([one.resampled for one in scored])
    return MethodResult(name, tuple(one.score for one in scored), resampled=resampled, bounded=task_type_of(task).bounded)


def _budget_key(config: AdaptConfig) -> list[int | str | None]:
    """What tells budgets apart in the ledger."""
    return [config.labels, config.chosen_selection, *(["one draw"] if config.one_draw else [])]
