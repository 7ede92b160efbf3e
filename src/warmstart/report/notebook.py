"""A report as part of a notebook: its title, findings, tables and pictures, without a script and without anything from outside.

Text takes the notebook's own colours, light or dark; charts are the pictures of the reports, on white. This file also says what a
notebook shows of a task and its audit, a comparison, scores, a model with its checks, predictions, a generated text,
token shards and a study; commands say what it shows of their results.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from warmstart.data.audit import Audit
from warmstart.data.task import Task
from warmstart.generation.trace import Trace
from warmstart.model.bundle import Bundle
from warmstart.model.stack import Stack
from warmstart.report.charts import number_categories
from warmstart.report.drawing import NO_PICTURES, DrawingError, svg
from warmstart.report.page import FORBIDDEN, drawable
from warmstart.report.parts import Report, Section, Table, headline, paragraphs_once
from warmstart.report.result import StudyResult
from warmstart.report.sections import as_sentence, scores_section, shares_section, size_section
from warmstart.report.templates import page_template
from warmstart.stats.comparison import MethodTable
from warmstart.stats.formatting import percent, sentence_case
from warmstart.stats.scores import ClassificationScores, NamedFigures, Scores
from warmstart.tasks.predict import Predictions
from warmstart.tasks.shares import Shares
from warmstart.tokenizer.pieces import visible

if TYPE_CHECKING:
    from warmstart.corpora.store import ShardIndex
    from warmstart.model.checks import CheckResults

MOST_LABELS = 30
"""a task with more labels is shown with its most frequent ones"""
ROOM = {"padding": {"left": 24, "right": 24, "top": 5, "bottom": 5}}
"""around a chart: where its fonts are missing the reader's are used, and may be wider"""


def fragment(report: Report) -> str:
    """The HTML of one cell's output. All texts are escaped; characters that HTML cannot hold become U+FFFD."""
    report = paragraphs_once(report)
    specs = {figure.name: drawable(number_categories(figure.chart.to_dict())) | ROOM for figure in report.figures()}
    try:
        images, missing = {name: base64.b64encode(svg(spec).encode()).decode() for name, spec in specs.items()}, ""
    except DrawingError:
        images, missing = {}, NO_PICTURES
    page = page_template("notebook.html.jinja").render(report=report, images=images, missing=missing)
    return FORBIDDEN.sub("\ufffd", page)


def task_view(task: Task) -> Report:
    """The size of each split, and how many texts of each label it has."""
    sizes = [(name, f"{len(split):,}") for name, split in task.splits().items()]
    text = f"{as_sentence(task.type)} Metric: {task.metric}."
    tables = [Table(("split", "texts"), sizes)]
    notes = list[str]()
    if task.single_label:
        counts = [np.bincount(split.labels, minlength=len(task.labels)) for split in task.splits().values()]
        order = np.argsort(-np.sum(counts, axis=0), kind="stable")[:MOST_LABELS]
        tables.append(Table(("label", *task.splits()), [(task.labels[i], *(f"{count[i]:,}" for count in counts)) for i in order]))
        if len(task.labels) > len(order):
            notes.append(f"The table has the {len(order)} most frequent of {len(task.labels):,} labels.")
    return Report(f"Task: {task.name}", headline(text), (), (Section("Splits", notes, tables),))


def comparison_view(comparison: MethodTable) -> Report:
    """The chart, the table and the findings of the reports."""
    best = comparison.ranked()[0]
    section = scores_section(comparison, f"{comparison.metric} on the test split", comparison.metric)
    return Report("Comparison", headline(f"Best mean {comparison.metric}: {best.name}, {best.interval}."), (), (section,))


def shares_view(shares: Shares) -> Report:
    """The chart and the table of the shares among all texts; the shares of groups in tables."""
    return Report("Shares of labels", as_sentence(shares.sentence), (), (shares_section(shares),))


def bundle_view(bundle: Bundle) -> Report:
    """The head, the labels and the parameters."""
    labels = [f"Labels: {', '.join(bundle.labels)}."] if bundle.labels else []
    sentence = f"Head: {bundle.model.head.config.kind}; {bundle.tokenizer.vocab_size:,} tokens in the vocabulary."
    size = size_section(bundle)
    return Report("Model", headline(sentence), (), (Section(size.title, (*labels, *size.text), size.items),))


def stack_view(stack: Stack) -> Report:
    """The models that predict together."""
    labels = [f"Labels: {', '.join(stack.labels)}."] if stack.labels else []
    members = Table(("member",), [(member.name,) for member in stack.members])
    return Report(
        "Stack", headline(f"{len(stack.members)} models that predict together."), (), (Section("Members", labels, (members,)),)
    )


def study_view(result: StudyResult) -> Report:
    """The findings, then the tables and charts of the study's page; without them the table that the terminal shows."""
    table = [result.summary] if result.summary and not result.sections else []
    findings = Section("Findings", tuple(result.findings), table)
    return Report(result.title, headline(result.findings[0]), (), (findings, *result.sections), next_step=result.next_step)


def audit_view(audit: Audit) -> Report:
    """The findings, the most severe first, and the texts per label."""
    rows = [(finding.severity, finding.sentence) for finding in audit.findings()]
    sentence = rows[0][1] if rows else "Nothing is wrong with the data."
    sections = (Section("Findings", (), (Table(("severity", "finding"), rows),)),) if rows else ()
    counts = [(str(row["split"]), str(row["label"]), f"{row['count']:,}") for row in audit.balance()]
    labels = Section("Texts per label", (), (Table(("split", "label", "texts"), counts),))
    return Report(f"Audit of {audit.task}", headline(sentence), (), (*sections, labels))


def predictions_view(predictions: Predictions) -> Report:
    """One row per input, in their order."""
    columns = [*dict.fromkeys(name for row in predictions for name in row)]
    rows = [(str(i), *(_cell(row.get(name)) for name in columns)) for i, row in enumerate(predictions, 1)]
    table = Table(("input", *columns), rows)
    section = Section("Predictions", tuple(filter(None, [predictions.cut])), (table,))
    return Report("Predictions", headline(f"{len(rows):,} inputs."), (), (section,))


def _cell(value: Any) -> str:
    """A value of a prediction, for people."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {percent(probability, 0)}" for name, probability in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def trace_view(trace: Trace) -> Report:
    """One row for each generated token: its probability, and the most probable tokens at this step."""
    ranks = max((len(step.candidates) for step in trace.steps), default=0)
    header = ("token", "probability", *(f"{rank}." for rank in range(1, ranks + 1)))
    rows = [
        (
            visible(step.token),
            percent(step.probability),
            *(f"{visible(token)} {percent(chance)}" for token, chance in step.candidates),
        )
        for step in trace.steps
    ]
    section = Section("Most probable tokens at each step", (f"{trace.prompt} → {trace.text.strip()}",), (Table(header, rows),))
    return Report("Generated text", headline(f"{len(rows):,} tokens were generated."), (), (section,))


def scores_view(scores: Scores) -> Report:
    """Every metric; of a classifier also each label, and which labels are confused."""
    from warmstart.report.drawings import confusions

    sections = [Section("Scores", tuple(filter(None, [scores.note])), (Table(Scores.header, Scores.table(scores)),))]
    if isinstance(scores, ClassificationScores):
        names = [row.name for row in scores.per_class]
        sections.append(Section("Labels", (), (Table(scores.header, scores.table()), confusions(scores.confusion, names))))
    figures = [f"{name.replace('_', ' ')} {value:.3f}" for name, value in list(scores.values.items())[:3]]
    return Report("Scores on the test split", headline(f"{sentence_case(', '.join(figures))}."), (), sections)


def figures_view(figures: NamedFigures) -> Report:
    """One row for each figure."""
    shown = {name: str(figure) if isinstance(figure, str | bool | None) else f"{figure:.4g}" for name, figure in figures.items()}
    rows = [(name.replace("_", " "), figure) for name, figure in shown.items()]
    section = Section("Figures", (), (Table(("figure", "value"), rows),))
    return Report("Figures", headline(f"{sentence_case(' '.join(rows[0]))}."), (), (section,))


def checks_view(checks: CheckResults) -> Report:
    """One row for each check that says something of the model; the others by name."""
    applicable = [check for check in checks if check.status != "not applicable"]
    failed = [check.title for check in applicable if check.status == "fail"]
    rows = [(check.title, check.status, check.number, f"{check.check.limit:g}", check.note) for check in applicable]
    others = [check.title for check in checks if check.status == "not applicable"]
    sentence = (
        f"{len(failed)} of {len(applicable)} checks fail: {', '.join(failed)}."
        if failed
        else f"It passes {len(applicable)} checks."
    )
    text = [f"Not applicable: {', '.join(others)}."] if others else []
    section = Section("Checks", text, (Table(("check", "result", "found", "limit", "note"), rows),))
    return Report("Is this model sound?", headline(sentence), (), (section,))


def shards_view(index: ShardIndex) -> Report:
    """Sizes of the text for training and of the held-out text, and the documents left out."""
    names, rows = ("documents", "words", "tokens", "unknown"), []
    for name, held_out in (("training", False), ("held out", True)):
        counts = index.counts(held_out=held_out)
        rows.append((name, str(len(index.side(held_out=held_out))), *(f"{getattr(counts, field):,}" for field in names)))
    left_out = [f"Left out: {count:,} ({name.replace('_', ' ')})." for name, count in index.left_out.to_dict().items() if count]
    training = index.counts(held_out=False)
    sentence = f"{training.tokens:,} tokens of {training.documents:,} documents."
    table = Table(("text", "shards", *names[:3], "unknown tokens"), rows)
    return Report("Token shards", headline(sentence), (), (Section("Text", left_out, (table,)),))
