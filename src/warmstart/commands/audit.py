"""``audit``: look for leakage, duplicates and conflicts in a task's data."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from warmstart.commands.settings import AuditConfig
from warmstart.data.audit import Audit, audit, drop_leaks
from warmstart.data.read import documents_of
from warmstart.data.scorings import ledger_file, read_ledger
from warmstart.data.source import Source
from warmstart.data.task import Task
from warmstart.heads.settings import WindowSettings
from warmstart.interop.load import load_model
from warmstart.model.already_read import already_read
from warmstart.model.bundle import Bundle
from warmstart.stats.formatting import percent
from warmstart.system.console import console, print_table
from warmstart.tasks import task_type_of
from warmstart.tasks.load import load_task


def audit_task(config: AuditConfig) -> Audit:
    """The ``audit`` command."""
    task = load_task(config.task, flags=config)
    if config.drop_leaks or config.drop_near_leaks:
        task = drop_leaks(task, near=config.drop_near_leaks)
    pretraining = documents_of([Source(path=path) for path in config.text]) if config.text else None
    bundle = load_model(config.model) if config.model else None
    tokenizer, max_length = (bundle.tokenizer, bundle.model.backbone.config.max_length) if bundle else (None, None)
    windows = _windows(task, bundle)
    result = audit(task, tokenizer, max_length, pretraining, windows)
    if bundle and config.model:
        result = replace(result, already_read=already_read(bundle.history, config.model, task.name))
    rows = [(row["split"], row["label"], row["count"], percent(float(row["fraction"]))) for row in result.balance()]
    print_table(f"{task.name}: texts per label", rows, ("split", "label", "texts", "percent"))
    for finding in result.findings():
        console.print(f"{finding.severity}: {finding.sentence}")
    ledger = read_ledger(task)
    if models := Counter((entry.name, entry.command) for entry in ledger.entries):
        scored = [(name, command, str(count)) for (name, command), count in models.items()]
        print_table(f"{task.name}: scored on test, as {ledger_file(task)} says", scored, ("settings", "command", "models"))
    for sentence in ledger.findings or [ledger.sentence]:
        console.print(sentence)
    return result


def _windows(task: Task, bundle: Bundle | None) -> WindowSettings | None:
    """Windows or a cut for texts that are too long, as the model was adapted; None: they can only be cut."""
    settings = bundle.model.head.config.window_settings if bundle else WindowSettings()
    return settings if settings.windows != "none" or task_type_of(task).pooled else None
