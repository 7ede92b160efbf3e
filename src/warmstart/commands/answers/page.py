"""The report of ``answers``: how many answers are correct, and what abstaining brings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from warmstart.commands.answers.result import EXAMPLE_HEADER, AnswersResult
from warmstart.config import Config
from warmstart.finetuning.runs import curve_rows
from warmstart.report.confidence_charts import risk_chart
from warmstart.report.headline import headline
from warmstart.report.page import Figure, Report, Section, Table, write_report
from warmstart.report.score_charts import tuning_chart
from warmstart.report.sections import closing_sections, footer, scores_section
from warmstart.stats.formatting import percent_interval, with_ends
from warmstart.stats.splits import THIS_SPLIT

EXAMPLES = 40
"""test questions shown with their answers"""


def write_answers_page(result: AnswersResult, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    first, task = result.comparison.rows[0], result.task
    report = Report(
        f"Answers: {task.name}",
        headline(result.comparison.findings()[0]),
        (
            (f"{result.comparison.metric}, {first.name}", with_ends(first.interval, percent_interval)),
            ("training questions", f"{len(task.train):,}"),
            ("validation questions", f"{len(task.validation):,}"),
            ("calibration questions", f"{len(result.held_out.correct):,}"),
            ("test questions", f"{len(task.test):,}"),
            ("seeds", str(len(first.scores))),
        ),
        (*_sections(result), *closing_sections(config)),
        f"{footer()} The saved model is that of seed {result.best.seed}.",
    )
    return write_report(report, folder)


def answers_view(result: AnswersResult) -> Report:
    """What a notebook shows: the comparison, the training, when to abstain, and some answers."""
    title, first = f"Answers: {result.task.name}", headline(result.comparison.findings()[0])
    return Report(title, first, (), tuple(_sections(result)))


def _sections(result: AnswersResult) -> Iterator[Section]:
    yield scores_section(result.comparison, "Correct answers to the test questions", "correct")
    yield training_section(result)
    yield abstention_section(result)
    yield examples_section(result)
    yield Section("What was looked at", (THIS_SPLIT, *result.ledger.findings))


def training_section(result: AnswersResult) -> Section:
    """The validation scores during training, by the progress of each run: the one from scratch takes more steps."""
    text = "Correct answers to the validation questions at each of about ten evaluations; the weights of the best one are kept."
    chart = tuning_chart(curve_rows(result.runs), "correct")
    return Section("Training", (text,), (Figure("training", "Mean over seeds; the band spans lowest to highest.", chart),))


def abstention_section(result: AnswersResult) -> Section:
    """The error rate against the fraction of questions answered."""
    caption = "Error rate among the answers given to the test questions, from the most confident answer down."
    chart = risk_chart(result.risk_coverage(), result.coverage())
    return Section("When to abstain", result.abstention_findings(), (Figure("risk", caption, chart),))


def examples_section(result: AnswersResult) -> Section:
    """Some test questions with their answers."""
    rows = result.example_table(EXAMPLES)
    seed = next(iter(result.runs.values()))[0].seed
    text = f"The first {len(rows)} test questions, seed {seed}."
    return Section("Questions and answers", (text,), (Table(EXAMPLE_HEADER, rows),))
