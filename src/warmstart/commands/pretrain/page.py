"""The report of a pretraining run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from warmstart.commands.pretrain.result import CORPORA_HEADER, TEXT_HEADER, PretrainResult, corpora_table, domain_sentences
from warmstart.config import Config
from warmstart.report.headline import headline
from warmstart.report.parts import Figure, Report, Section, Table
from warmstart.report.sections import size_section, write_run_page
from warmstart.report.training_charts import loss_chart


def write_pretrain_page(result: PretrainResult, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    tiles = tuple((name.replace("_", " "), f"{value:.4g}") for name, value in result.metrics.items())
    return write_run_page(replace(pretrain_view(result), tiles=tiles), config, folder)


def pretrain_view(result: PretrainResult) -> Report:
    """What a notebook shows: the loss, the text and the parameters."""
    sections = (*pretraining_sections(result), *domain_sections(result), size_section(result.bundle, result.training.seconds))
    return Report(f"Pretraining: {result.objective}", headline(result.findings[0]), (), sections)


def pretraining_sections(result: PretrainResult) -> tuple[Section, Section]:
    """The loss during training, and the text that was read."""
    training = result.training
    speed = f"{training.tokens_per_second:,.0f} tokens per second"
    read = f"{training.steps:,} steps, {training.tokens / result.stores[0].total_tokens:.1f} times the text, {speed}."
    chart = Figure("loss", result.loss_caption, loss_chart(training.log))
    return (
        Section("Training", (read,), (chart,)),
        Section("Text", tuple(filter(None, [result.little_held_out])), (Table(TEXT_HEADER, result.text_table()),)),
    )


def domain_sections(result: PretrainResult) -> tuple[Section, ...]:
    """What was read for a task, if the text was chosen for one."""
    if result.domain is None:
        return ()
    tables = (Table(CORPORA_HEADER, corpora_table(result.domain)),) if result.domain.corpora else ()
    return (Section(f"Text for {result.domain.task}", tuple(domain_sentences(result.domain)), tables),)
