"""The report of an adaptation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from warmstart.config import Config
from warmstart.experiment.adaptation_result import AdaptResult
from warmstart.experiment.choose import MAJORITY_LABEL
from warmstart.finetuning.answers_result import EXAMPLE_HEADER, AnswersResult
from warmstart.finetuning.runs import PRETRAINED, SCRATCH, curve_rows
from warmstart.inspection.confidence import THRESHOLD_HEADER, ConfidenceResult
from warmstart.report.parts import Figure, Report, Section, Table, headline
from warmstart.report.sections import (
    audit_section,
    scores_section,
    size_section,
    verdict_report,
    write_run_page,
)
from warmstart.runs.steps import RACE_FOLDER, NextStep, TaskPlace, command, label_step, out_words, steps_after
from warmstart.runs.verdict import (
    ACCURACY,
    CONSTANT,
    NOT_CLEAR,
    Verdict,
    about_task,
    failures_on_test,
    rows_of,
    score_words,
    use_sentence,
)
from warmstart.stats.comparison import MethodResult
from warmstart.stats.formatting import percent_interval, sentence_case, with_ends
from warmstart.stats.intervals import Estimate
from warmstart.stats.proportions import wilson_interval
from warmstart.stats.scores import ClassificationScores
from warmstart.stats.splits import THIS_SPLIT

if TYPE_CHECKING:
    from warmstart.model.bundle import Bundle


THIS_MODEL = "this model"
EXAMPLES = 40
"""test questions shown with their answers"""


def write_adapt_page(result: AdaptResult, bundle: Bundle, config: Config, folder: Path) -> Path:
    """Write the report of an adaptation run; returns its path. ``bundle`` is the network that is saved, or one of several."""
    sections = (
        *([_confidence_section(result.confidence, result.caution_of_choice)] if result.confidence else []),
        audit_section(result.audit),
        size_section(bundle),
    )
    return write_run_page(adapt_view(result, folder, config), config, folder, *sections)


def adapt_view(result: AdaptResult, folder: Path | None = None, config: Config | None = None) -> Report:
    """The report in a notebook: which model to use, the comparison, the scores of each label, and the use of the labels."""
    sections = (*comparison_sections(result), _labels_section(result))
    return verdict_report(f"Adaptation: {result.task.name}", adapt_verdict(result, folder, config), sections)


def adapt_verdict(result: AdaptResult, folder: Path | None = None, config: Config | None = None) -> Verdict:
    """The first screen: the adapted model beside its strongest rival; whichever scores higher on the test texts is named."""
    metric, gain, task = result.task.metric, result.transfer, result.task
    texts = len(np.unique(task.test.units))
    shown = {PRETRAINED: THIS_MODEL, MAJORITY_LABEL: CONSTANT}
    scores = {shown.get(row.name, row.name): _score(row, metric, texts) for row in result.comparison.ranked()}
    rival = shown.get(gain.names[1], gain.names[1]) if gain else ""
    own, other = scores[THIS_MODEL].value, scores[rival or THIS_MODEL].value
    loses = other > own and score_words(metric, other) != score_words(metric, own)
    first = [*filter(None, [rival, THIS_MODEL] if loses else [THIS_MODEL, rival])]
    rows = rows_of(metric, scores, first, {rival: "best rival"})
    headline = use_sentence(first[0], metric, scores[first[0]], f"{len(task.test):,} test texts")
    if loses:
        headline = f"{headline[:-1]}, not this model: {score_words(metric, own)}."
    mistakes, fails = failures_on_test(task, result.test_predictions)
    return Verdict(
        about_task(task.name, task.labels),
        f"{result.labels:,} labels",
        result.labels,
        headline,
        rows,
        len(scores) - len(rows),
        (*((NOT_CLEAR,) if gain and not gain.significant else ()), *_of_control(result, rival)),
        mistakes,
        fails,
        _steps(result, folder, config, loses=loses),
        result.audit.warnings,
    )


def _of_control(result: AdaptResult, rival: str) -> tuple[str, ...]:
    """A sentence about the fewer steps of the control, if it is the strongest rival."""
    return (result.control.sentence,) if result.control and rival == SCRATCH else ()


def _steps(result: AdaptResult, folder: Path | None, config: Config | None, *, loses: bool) -> tuple[NextStep, ...]:
    """To compare every method and to label more; a model that loses is neither tried, nor served, nor saved as a file."""
    place = TaskPlace.of(config)
    first = [label_step(place, result.task, "Label more")]
    if place and (model := getattr(config, "model", None)):
        labels = ["--labels", str(count)] if (count := getattr(config, "labels", None)) else []
        words = ["race", place.path, "--backbones", model, *labels, "--budget", "30m", *out_words(RACE_FOLDER)]
        race = command(*words, "--save", "recommended")
        first = [NextStep("race", "Compare every method and keep the best", race), *first]
    return steps_after(None if loses else folder, result.task, place, *first)


def _score(row: MethodResult, metric: str, texts: int) -> Estimate:
    """A method's score; its interval is over test texts alone where seeds are too few to say anything of others."""
    score = Estimate(row.interval.mean, row.interval.low, row.interval.high)
    return score if score.tells or metric != ACCURACY else wilson_interval(score.value, texts)


def _labels_section(result: AdaptResult) -> Section:
    """Use of the labels, all seeds as one model, and scorings of the test split."""
    text = (*result.one_split_caution, *result.label_findings, *result.ensemble_findings, *result.ledger.findings)
    return Section("How the labels were used", text)


def comparison_sections(result: AdaptResult) -> Iterator[Section]:
    """The comparison, validation scores during fine-tuning, scores of each label, confusions."""
    from warmstart.report.drawings import MOST_CLASSES, class_scores_chart, confusions, tuning_chart

    metric, task = result.task.metric, result.task
    compared = scores_section(result.comparison, f"{metric} on the test split", metric)
    yield replace(compared, text=(*compared.text, *([result.control.sentence] if result.control else [])))
    if rows := curve_rows(result.runs):
        where = "on the validation split at each evaluation; the weights of the best one are kept."
        if result.selection == "cross-validation":
            where = "out of fold at each evaluation, mean over folds; where it is best, the final model's training ends."
        yield Section(
            "Fine-tuning",
            (f"{sentence_case(metric)} {where}",),
            (Figure("tuning", "Mean over seeds; the band spans lowest to highest.", tuning_chart(rows, metric)),),
        )
    saved, best = result.saved, result.best_scores
    if not isinstance(best, ClassificationScores):
        yield Section("Scores", (saved, best.note, *result.caution_of_choice), (Table(best.header, best.table()),))
        return
    methods = {name: scores[0] for name, scores in result.scores.items()}
    known = {name: scores for name, scores in methods.items() if name != "majority" and isinstance(scores, ClassificationScores)}
    first = f", of the first {MOST_CLASSES}" * (len(task.labels) > MOST_CLASSES)
    classes = [(name, row.name, row.f1) for name, scores in known.items() for row in scores.per_class]
    yield Section(
        "Labels",
        (f"{saved} The chart shows the first seed of each method.", *result.caution_of_choice),
        (
            Figure("classes", f"F1 of each label on the test split{first}.", class_scores_chart(classes)),
            Table(best.header, best.table()),
            confusions(best.confusion, task.labels),
        ),
    )


def _confidence_section(confidence: ConfidenceResult, cautions: Sequence[str]) -> Section:
    """Reliability, risk against coverage, and thresholds with a guarantee; then ``cautions``."""
    from warmstart.report.drawings import reliability_chart, risk_chart

    bins = {name: [(part.confidence, part.accuracy, part.count) for part in bins] for name, bins in confidence.bins().items()}
    items: list[Figure | Table] = [
        Figure(
            "reliability",
            "Test texts in bins of equal size by confidence; on the diagonal, confidence and accuracy agree.",
            reliability_chart(bins),
        ),
        Figure(
            "risk",
            "Error rate among the predicted labels, from the most confident prediction down.",
            risk_chart({"saved model": confidence.risk_coverage()}),
        ),
    ]
    if confidence.calibration.held_out:
        items.append(Table(THRESHOLD_HEADER, confidence.threshold_table()))
    return Section("Can its confidence be trusted?", (*confidence.findings, *cautions), items)


def write_answers_page(result: AnswersResult, config: Config, folder: Path) -> Path:
    """Write the report of an adaptation to a task of answers; returns its path."""
    first, task = result.comparison.rows[0], result.task
    tiles = (
        (f"{result.comparison.metric}, {first.name}", with_ends(first.interval, percent_interval)),
        ("training questions", f"{len(task.train):,}"),
        ("validation questions", f"{len(task.validation):,}"),
        ("calibration questions", f"{len(result.held_out.correct):,}"),
        ("test questions", f"{len(task.test):,}"),
        ("seeds", str(len(first.scores))),
    )
    return write_run_page(replace(answers_view(result), tiles=tiles), config, folder, note=f" {result.saved}")


def answers_view(result: AnswersResult) -> Report:
    """The report on generated answers in a notebook: the comparison, the training, when to abstain, and some answers."""
    title, first = f"Answers: {result.task.name}", headline(result.comparison.findings()[0])
    return Report(title, first, (), _answers_sections(result))


def _answers_sections(result: AnswersResult) -> tuple[Section, ...]:
    """The comparison, the validation scores by the progress of each run, when to abstain, some answers, and what was looked at."""
    from warmstart.report.drawings import risk_chart, tuning_chart

    training = "Correct answers to the validation questions at each of about ten evaluations; the weights of the best one are kept."
    scores = tuning_chart(curve_rows(result.runs), "correct")
    caption = "Error rate among the answers given to the test questions, from the most confident answer down."
    risk = Figure("risk", caption, risk_chart(result.risk_coverage(), result.coverage()))
    rows, seed = result.example_table(EXAMPLES), next(iter(result.runs.values()))[0].seed
    return (
        scores_section(result.comparison, "Correct answers to the test questions", "correct"),
        Section("Training", (training,), (Figure("training", "Mean over seeds; the band spans lowest to highest.", scores),)),
        Section("When to abstain", result.abstention_findings(), (risk,)),
        Section("Questions and answers", (f"The first {len(rows)} test questions, seed {seed}.",), (Table(EXAMPLE_HEADER, rows),)),
        Section("What was looked at", (THIS_SPLIT, *result.ledger.findings)),
    )
