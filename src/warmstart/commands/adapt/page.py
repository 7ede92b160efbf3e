"""The report of an adaptation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from warmstart.config import Config
from warmstart.experiment.adaptation_result import ENSEMBLE_HEADER, TEACHING_HEADER, AdaptResult
from warmstart.experiment.confidence_result import THRESHOLD_HEADER, ConfidenceResult
from warmstart.finetuning.answers_result import EXAMPLE_HEADER, AnswersResult
from warmstart.finetuning.runs import curve_rows
from warmstart.report.confidence_charts import reliability_chart, risk_chart
from warmstart.report.headline import headline
from warmstart.report.page import Figure, Report, Section, Table, write_report
from warmstart.report.score_charts import MOST_CLASSES, class_scores_chart, confusions, tuning_chart
from warmstart.report.sections import audit_section, closing_sections, footer, scores_section, size_section
from warmstart.stats.formatting import p_value, percent, percent_interval, points_interval, sentence_case, with_ends
from warmstart.stats.scores import ClassificationScores
from warmstart.stats.splits import THIS_SPLIT

if TYPE_CHECKING:
    from warmstart.model.bundle import Bundle
    from warmstart.model.history import ContinuedPretrainingRecord


EXAMPLES = 40
"""test questions shown with their answers"""


def write_adapt_page(result: AdaptResult, bundle: Bundle, config: Config, folder: Path) -> Path:
    """Write the report of an adaptation run; returns its path. ``bundle`` is the network that is saved, or one of several."""
    shown = adapt_view(result)
    sections = (
        *shown.sections,
        *([_teaching_section(result)] if result.teaching else []),
        *([_ensemble_section(result)] if result.ensemble else []),
        *([_confidence_section(result.confidence, result.caution_of_choice)] if result.confidence else []),
        *[_continued_pretraining(record) for record in bundle.continued_pretraining[-1:]],
        audit_section(result.audit),
        size_section(bundle),
        *closing_sections(config),
    )
    following = next_step(result, f"`warmstart serve {folder}` shows the model in a browser")
    report = replace(shown, tiles=result_tiles(result), sections=sections, footer=footer(), next_step=following)
    return write_report(report, folder)


def result_tiles(result: AdaptResult) -> list[tuple[str, str]]:
    """The score, what transfer bought against the strongest rival and how sure that is, then the size of the experiment."""
    first, task = result.comparison.rows[0], result.task
    tiles = [(f"{task.metric}, {first.name}", with_ends(first.interval, percent_interval))]
    if gain := result.transfer:
        tiles.append((f"transfer against {gain.names[1]}, the strongest rival", with_ends(gain.difference, points_interval)))
        tiles.append(("p-value of that difference", p_value(gain.p)))
    return [
        *tiles,
        ("labels", f"{result.labels:,}"),
        ("test texts", f"{len(task.test):,}"),
        *([("classes", str(len(task.labels)))] if task.labels else []),
        ("seeds", str(len(first.scores))),
    ]


def next_step(result: AdaptResult, use: str = "`warmstart serve` shows the model in a browser") -> str:
    """To ``use`` the model if transfer helped; otherwise to look for a better method."""
    gain = result.transfer
    if gain and gain.significant and gain.difference.mean < 0:
        return f"{gain.names[1]} is better with these labels: `warmstart race` compares every method, and keeps the best one."
    if gain and not gain.significant:
        return f"{use}; `warmstart race` compares it with every other way to adapt, and with more labels."
    return f"{use}; `warmstart race` compares it with every other way to adapt."


def adapt_view(result: AdaptResult) -> Report:
    """What a notebook shows: the comparison, the scores of each label, and what the labels were for."""
    sections = (*comparison_sections(result), _labels_section(result))
    title, first = f"Adaptation: {result.task.name}", headline(result.findings[0])
    return Report(title, first, (), sections, next_step=next_step(result))


def _labels_section(result: AdaptResult) -> Section:
    """What the labels were for, and how often the test split was scored."""
    return Section("How the labels were used", (*result.one_split_caution, *result.label_findings, *result.ledger.findings))


def comparison_sections(result: AdaptResult, *, findings: bool = True) -> Iterator[Section]:
    """The comparison, with its ``findings`` or without, validation scores during fine-tuning, scores of each label, confusions."""
    metric, task = result.task.metric, result.task
    yield scores_section(result.comparison, f"{metric} on the test split", metric, findings=findings)
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


def _teaching_section(result: AdaptResult) -> Section:
    """The teacher beside the student without and with it."""
    assert result.teaching
    text = f"The teacher labelled {result.teaching.record.texts:,} texts; none is like a labelled or held-out text."
    return Section("Teacher and student", (text, *result.teaching.findings), (Table(TEACHING_HEADER, result.teaching_rows),))


def _ensemble_section(result: AdaptResult) -> Section:
    """Single seeds, their mean and their soup side by side."""
    return Section("All seeds as one model", tuple(result.ensemble_findings), (Table(ENSEMBLE_HEADER, result.ensemble_rows),))


def _confidence_section(confidence: ConfidenceResult, cautions: Sequence[str]) -> Section:
    """Reliability, risk against coverage, and thresholds with a guarantee; then ``cautions``."""
    bins = {name: [(one.confidence, one.accuracy, one.count) for one in bins] for name, bins in confidence.bins().items()}
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


def _continued_pretraining(record: ContinuedPretrainingRecord) -> Section:
    """What continued pretraining changed."""
    text = f"{record.texts:,} texts of {record.task}; {record.left_out} that are in validation or test were left out."
    rows = [(one.stage, f"{one.loss:.3f}", percent(one.probe_accuracy), f"{one.seconds:.1f}") for one in record.evaluations]
    header = ("stage", "held-out loss, nats", "probe on frozen features", "seconds of training")
    return Section("Continued pretraining", (text, record.decision), (Table(header, rows),))


def write_answers_page(result: AnswersResult, config: Config, folder: Path) -> Path:
    """Write the report of an adaptation to a task of answers; returns its path."""
    first, task, shown = result.comparison.rows[0], result.task, answers_view(result)
    tiles = (
        (f"{result.comparison.metric}, {first.name}", with_ends(first.interval, percent_interval)),
        ("training questions", f"{len(task.train):,}"),
        ("validation questions", f"{len(task.validation):,}"),
        ("calibration questions", f"{len(result.held_out.correct):,}"),
        ("test questions", f"{len(task.test):,}"),
        ("seeds", str(len(first.scores))),
    )
    sections = (*shown.sections, *closing_sections(config))
    return write_report(replace(shown, tiles=tiles, sections=sections, footer=f"{footer()} {result.saved}"), folder)


def answers_view(result: AnswersResult) -> Report:
    """What a notebook shows of generated answers: the comparison, the training, when to abstain, and some answers."""
    title, first = f"Answers: {result.task.name}", headline(result.comparison.findings()[0])
    return Report(title, first, (), tuple(_answers_sections(result)))


def _answers_sections(result: AnswersResult) -> Iterator[Section]:
    yield scores_section(result.comparison, "Correct answers to the test questions", "correct")
    yield _answers_training(result)
    yield _abstention_section(result)
    yield _examples_section(result)
    yield Section("What was looked at", (THIS_SPLIT, *result.ledger.findings))


def _answers_training(result: AnswersResult) -> Section:
    """The validation scores during training, by the progress of each run: the one from scratch takes more steps."""
    text = "Correct answers to the validation questions at each of about ten evaluations; the weights of the best one are kept."
    chart = tuning_chart(curve_rows(result.runs), "correct")
    return Section("Training", (text,), (Figure("training", "Mean over seeds; the band spans lowest to highest.", chart),))


def _abstention_section(result: AnswersResult) -> Section:
    """The error rate against the fraction of questions answered."""
    caption = "Error rate among the answers given to the test questions, from the most confident answer down."
    chart = risk_chart(result.risk_coverage(), result.coverage())
    return Section("When to abstain", result.abstention_findings(), (Figure("risk", caption, chart),))


def _examples_section(result: AnswersResult) -> Section:
    """Some test questions with their answers."""
    rows = result.example_table(EXAMPLES)
    seed = next(iter(result.runs.values()))[0].seed
    text = f"The first {len(rows)} test questions, seed {seed}."
    return Section("Questions and answers", (text,), (Table(EXAMPLE_HEADER, rows),))
