"""The report of ``answers``: how many answers are right, and what is to be gained by keeping silent."""

from __future__ import annotations

import math
from pathlib import Path

from warmstart.config import Config
from warmstart.evaluate.abstain import area, risk_coverage
from warmstart.report import Figure, Report, Section, Table, charts, write_report
from warmstart.report.risk import risk_chart
from warmstart.workflows.outcome import PRETRAINED, Answers
from warmstart.workflows.pages import as_sentence, closing_sections, curve_rows, footer, scores_section

SHOWN = 40
"""test questions shown with their answers"""


def answers_page(found: Answers, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    first, *others = found.comparison.rows
    best = found.best
    said = found.comparison.sentences()
    report = Report(
        f"Answers: {found.task.name}",
        as_sentence("; ".join(said)) if others else f"{first.name}: {first.interval}.",
        (
            (f"{found.comparison.metric}, pretrained", f"{100 * first.interval.mean:.1f} %"),
            ("training questions", f"{len(found.task.train):,}"),
            ("held out", f"{len(found.task.validation):,}"),
            ("test questions", f"{len(found.task.test):,}"),
            ("seeds", str(len(first.scores))),
        ),
        (
            scores_section(found.comparison, "Right answers to the test questions", "right"),
            course_section(found),
            silence_section(found),
            sample_section(found),
            *closing_sections(config),
        ),
        f"{footer()} The kept run is seed {best.seed}.",
    )
    return write_report(report, folder)


def course_section(found: Answers) -> Section:
    """The course of teaching, in shares of each run: the one from scratch takes more steps."""
    text = (
        "Right answers to the held-out questions at each evaluation, of which a run has about ten; the best one's weights are kept."
    )
    chart = charts.tuning_curves(curve_rows(found.runs), "right")
    return Section(
        "Course",
        (text,),
        (Figure("course", "Mean over seeds; the band spans lowest to highest.", chart),),
    )


def silence_section(found: Answers) -> Section:
    """Wrong answers against how much is answered, and what the bar did to the test questions, which it never saw."""
    curves = {f"{name}, seed {runs[0].seed}": risk_coverage(*runs[0].test) for name, runs in found.runs.items()}
    sure, right = found.best.test
    above = sure >= found.bar.threshold
    lines = [as_sentence(found.bar.sentence())]
    if above.any():
        wrong = int((~right[above]).sum())
        lines.append(
            f"On the {len(right)} test questions it answers {int(above.sum())} ({100 * above.mean():.0f} %), "
            f"{wrong} of them wrongly ({100 * wrong / above.sum():.1f} %)."
        )
    areas = [f"{name}: {area(*curve):.3f}" for name, curve in curves.items()]
    lines.append(f"Mean share of wrong answers over all bars (AURC), lower is better: {'; '.join(areas)}.")
    bar = None if math.isinf(found.bar.threshold) else float(above.mean())
    figure = Figure(
        "risk", "Share of wrong answers among those given, from the surest down, on the test questions.", risk_chart(curves, bar)
    )
    return Section("When not to answer", tuple(lines), (figure,))


def sample_section(found: Answers) -> Section:
    """Some test questions with what was answered."""
    run, test = found.runs[PRETRAINED][0], found.task.test
    rows = [
        (question, said, right, f"{100 * sure:.1f} %", "yes" if good else "no")
        for question, said, right, sure, good in zip(test.questions, run.said, test.answers, *run.test, strict=True)
    ]
    table = Table(("question", "answer", "right answer", "confidence", "right"), rows[:SHOWN])
    return Section("Questions and answers", (f"The first {min(SHOWN, len(rows))} test questions, seed {run.seed}.",), (table,))
