"""The report of a pretraining run."""

from __future__ import annotations

from pathlib import Path

from warmstart.commands.pretrain.result import (
    CORPORA_HEADER,
    METRICS_HEADER,
    TEXT_HEADER,
    PretrainResult,
    corpora_table,
    domain_sentences,
)
from warmstart.commands.settings import PretrainConfig
from warmstart.report.parts import Figure, Report, Section, Table
from warmstart.report.sections import size_section, verdict_report, write_run_page


def write_pretrain_page(result: PretrainResult, config: PretrainConfig, folder: Path) -> Path:
    """Write the report; returns its path."""
    return write_run_page(pretrain_view(result, config), config, folder)


def pretrain_view(result: PretrainResult, config: PretrainConfig | None = None) -> Report:
    """The report in a notebook: progress, loss, text and parameters; with commands for a run."""
    sections = (*_training_sections(result), *domain_sections(result), size_section(result.bundle, result.training.seconds))
    return verdict_report(f"Pretraining: {result.objective}", result.verdict(config), sections)


def _training_sections(result: PretrainResult) -> tuple[Section, Section]:
    """The loss during training, the metrics at its end, and the text that was read."""
    from warmstart.report.drawings import loss_chart

    training = result.training
    speed = f"{training.tokens_per_second:,.0f} tokens per second"
    read = f"{training.steps:,} steps, {training.tokens / result.stores[0].total_tokens:.1f} times the text, {speed}."
    chart = Figure("loss", result.loss_caption, loss_chart(training.log))
    metrics = Table(METRICS_HEADER, [(name.replace("_", " "), f"{value:.4g}") for name, value in result.metrics.items()])
    return (
        Section("Training", (read,), (chart, *([metrics] if result.metrics else []))),
        Section("Text", tuple(filter(None, [result.little_held_out])), (Table(TEXT_HEADER, result.text_table()),)),
    )


def domain_sections(result: PretrainResult) -> tuple[Section, ...]:
    """The text that was read for a task, if it was chosen for one."""
    if result.domain is None:
        return ()
    tables = (Table(CORPORA_HEADER, corpora_table(result.domain)),) if result.domain.corpora else ()
    return (Section(f"Text for {result.domain.task}", tuple(domain_sentences(result.domain)), tables),)
