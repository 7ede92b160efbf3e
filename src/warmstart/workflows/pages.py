"""The reports of the workflows: which figures and sentences stand on the page of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from warmstart.config import Config
from warmstart.data import Audit
from warmstart.evaluate import Comparison, Scores
from warmstart.model import Bundle, parameter_counts
from warmstart.report import Figure, Report, Section, Table, charts, write_report
from warmstart.workflows.calibration_page import calibration_section
from warmstart.workflows.outcome import Corpora, Outcome, Pretrained, R, Runs
from warmstart.workflows.run import provenance


def pretraining_page(done: Pretrained, corpora: Corpora, config: Config, folder: Path) -> Path:
    """Write the report of a pretraining run; returns its path."""
    figures = done.figures
    spent = f"After {done.trained.tokens:,} tokens in {done.trained.seconds / 60:.1f} minutes"
    found = "{} on held-out text is {}.".format(*headline_figure(figures)) if figures else "no text is held out to say how well."
    sections = (curves_section(done), text_section(corpora), size_section(done.bundle, done), *closing_sections(config))
    report = Report(
        f"Pretraining: {done.bundle.history[-1]['objective']['name']}",
        f"{spent}, {found}",
        tuple((key, f"{value:.4g}") for key, value in figures.items()),
        sections,
        footer(),
    )
    return write_report(report, folder)


def adaptation_page(outcome: Outcome, bundle: Bundle, config: Config, folder: Path) -> Path:
    """Write the report of an adaptation run; returns its path."""
    first = outcome.comparison.rows[0]
    task = outcome.task
    report = Report(
        f"Adaptation: {task.name}",
        first_sentence(outcome),
        (
            (f"{task.metric}, pretrained", f"{100 * first.interval.mean:.1f} %"),
            ("training texts", f"{len(task.train):,}"),
            ("test texts", f"{len(task.test):,}"),
            ("labels", str(len(task.labels))),
            ("seeds", str(len(first.scores))),
        ),
        (
            *comparison_sections(outcome),
            *_trust(outcome, bundle),
            *_continued(bundle),
            audit_section(outcome.audit),
            size_section(bundle, None),
            *closing_sections(config),
        ),
        footer(),
    )
    return write_report(report, folder)


def _trust(outcome: Outcome, bundle: Bundle) -> list[Section]:
    """Whether the saved model's confidence can be trusted, where it is calibrated."""
    if bundle.calibration is None:
        return []
    return [calibration_section(bundle.calibration, outcome.best.probabilities, outcome.task.test.labels)]


def _continued(bundle: Bundle) -> list[Section]:
    """What going on with pretraining bought, where it was tried."""
    tried = [entry for entry in bundle.history if entry.get("command") == "dapt"]
    header = ("when", "held-out loss, nats", "probe on validation", "seconds")
    sections = []
    for entry in tried[-1:]:
        text = f"On {entry['texts']:,} texts of {entry['task']}; {entry['dropped']} left out that stand in validation or test."
        rows = [(e["moment"], f"{e['loss']:.3f}", f"{100 * e['probe']:.1f} %", f"{e['seconds']:.1f}") for e in entry["evidence"]]
        sections.append(Section("Going on with pretraining", (text, as_sentence(entry["verdict"])), (Table(header, rows),)))
    return sections


def first_sentence(outcome: Outcome) -> str:
    """What transfer bought."""
    first = outcome.comparison.rows[0]
    said = outcome.comparison.sentences()
    return as_sentence("; ".join(said)) if said else f"{first.name}: {first.interval}."


def as_sentence(said: str) -> str:
    """With a capital and a full stop."""
    return said[:1].upper() + said[1:] + "."


def headline_figure(figures: dict[str, Any]) -> tuple[str, str]:
    """The figure that lets tokenizers compare, where the objective has one."""
    for key in ("word_perplexity", "causal word_perplexity"):
        if key in figures:
            return "word-level perplexity", f"{figures[key]:.1f}"
    return "the loss", f"{figures['loss']:.3f} nats"


def curves_section(done: Pretrained) -> Section:
    """The course of training."""
    return Section(
        "Course of pretraining",
        (f"{done.trained.steps:,} steps, {done.trained.tokens_per_second:,.0f} tokens per second.",),
        (Figure("loss", "Loss in nats per predicted token: training, and held-out text.", charts.loss_curves(done.trained.rows)),),
    )


def text_section(corpora: Corpora) -> Section:
    """What was read."""
    rows = [
        (
            name,
            f"{c.documents:,}",
            f"{c.words:,}",
            f"{len(c.tokens):,}",
            f"{c.predicted / c.words:.2f}",
            f"{100 * c.unknown / c.predicted:.2f} %",
        )
        for name, c in zip(("training", "held out"), corpora, strict=True)
        if c
    ]
    return Section("Text", items=(Table(("text", "documents", "words", "tokens", "tokens per word", "unknown"), rows),))


def comparison_sections(outcome: Outcome) -> Iterator[Section]:
    """The comparison, the course of fine-tuning, the classes and the confusions."""
    metric, task = outcome.task.metric, outcome.task
    yield scores_section(outcome.comparison, f"{metric} on the test split", metric)
    curves = curve_rows(outcome.runs)
    yield Section(
        "Course of fine-tuning",
        (f"{metric} on the validation split at each evaluation; the best one's weights are kept.",),
        (Figure("tuning", "Mean over seeds; the band spans lowest to highest.", charts.tuning_curves(curves, metric)),),
    )
    best = outcome.best.test
    said = f"Of the saved model (seed {outcome.best.seed}, best on validation)"
    if not isinstance(best, Scores):
        yield Section("Scores", (f"{said}. {best.note}",), (Table(best.HEADER, best.table()),))
        return
    methods = {name: runs[0].test for name, runs in outcome.runs.items()} | outcome.baselines
    known = {name: scores for name, scores in methods.items() if name != "majority" and isinstance(scores, Scores)}
    classes = [(name, row.name, row.f1) for name, scores in known.items() for row in scores.per_class]
    yield Section(
        "Labels",
        (f"{said}; beside it each other method's first seed.",),
        (
            Figure("classes", "F1 of each label on the test split.", charts.per_class(classes)),
            Table(best.HEADER, best.table()),
            Figure("confusion", "Rows: true label; columns: predicted label.", charts.confusion(best.confusion, task.labels)),
        ),
    )


def scores_section(comparison: Comparison, what: str, axis: str) -> Section:
    """Who scores what: every seed, mean and interval, and what can be said of the differences."""
    rows = [(row.name, row.scores, row.interval.mean, row.interval.low, row.interval.high) for row in comparison.ranked()]
    figure = Figure("comparison", f"{what}: each seed, mean and 95 % interval over seeds.", charts.comparison(rows, axis))
    said = tuple(as_sentence(sentence) for sentence in comparison.sentences())
    return Section("Comparison", said, (figure, Table(comparison.HEADER, comparison.table())))


def curve_rows(runs: Runs[R]) -> list[tuple[str, int, float, int]]:
    """(method, seed, validation score, number of the evaluation) of every evaluation."""
    return [
        (name, run.seed, score, place)
        for name, made in runs.items()
        for run in made
        for place, (_, score) in enumerate(run.curve, 1)
    ]


def audit_section(found: Audit) -> Section:
    """What the audit found before training."""
    lines = tuple(f"{finding.severity}: {finding.sentence}" for finding in found.findings())
    rows = [(str(row["split"]), str(row["label"]), int(row["count"])) for row in found.balance()]
    lengths = [(split.name, split.words["median"], split.words["p95"], split.words["longest"]) for split in found.splits]
    figures = (
        Figure("balance", "Texts of each label in each split.", charts.class_balance(rows)),
        Figure("lengths", "Words per text in each split.", charts.text_lengths(lengths)),
    )
    return Section("Audit of the data", lines or ("Nothing to report.",), figures)


def size_section(bundle: Bundle, done: Pretrained | None) -> Section:
    """Parameters, and time where there was pretraining."""
    rows = [(name, f"{count:,}") for name, count in parameter_counts(bundle.model).items()]
    text = (f"{done.trained.seconds:.0f} seconds of training.",) if done else ()
    return Section("Parameters", text, (Table(("part", "parameters"), rows),))


def closing_sections(config: Config) -> Sequence[Section]:
    """Settings and the exact command."""
    settings = yaml.safe_dump(config.plain(), sort_keys=False, allow_unicode=True)
    return (Section("Command", pre=provenance()["command"]), Section("Settings", pre=settings, folded=True))


def footer() -> str:
    """Where the figures come from."""
    origin = provenance()
    return f"Measured on {origin['machine']}, {origin['date']}, with warmstart {origin['warmstart']}."


def quickstart_page(pretrained: Pretrained, corpora: Corpora, outcomes: Sequence[Outcome], config: Config, folder: Path) -> Path:
    """Write the report of the quickstart; returns its path."""
    last = outcomes[-1]
    rows = [
        (row.name, len(outcome.task.train), row.interval.mean, row.interval.low, row.interval.high)
        for outcome in outcomes
        for row in outcome.comparison.rows
    ]
    metric = last.task.metric
    curve = Figure("by-labels", f"{metric} on the test split against the number of labels.", charts.by_labels(rows, metric))
    pairs = [(f"{name}, {count} labels", f"{100 * mean:.1f} %") for name, count, mean, _, _ in rows if name != "majority"]
    by_labels = [
        f"{len(outcome.task.train)} labels: {sentence}." for outcome in outcomes for sentence in outcome.comparison.sentences()
    ]
    report = Report(
        "What transfer bought: documentation areas",
        f"With {len(last.task.train)} labels: {last.comparison.sentences()[0]}.",
        tuple(pairs),
        (
            Section("By number of labels", tuple(by_labels), (curve,)),
            *comparison_sections(last),
            curves_section(pretrained),
            text_section(corpora),
            audit_section(last.audit),
            size_section(pretrained.bundle, pretrained),
            *closing_sections(config),
        ),
        footer(),
    )
    return write_report(report, folder)
