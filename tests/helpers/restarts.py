"""The record of an adaptation with three seeds, without running one."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.mutants import LABELS
from warmstart.model.history import DataRecord, FindingRecord, Record


def adapt_record(score: float, seed: int, settings: Mapping[str, str] = {}, *findings: tuple[str, str]) -> Record:
    """The test score of the saved model, the seed of the best run, and severity and sentence of what the audit found."""
    audit = tuple(FindingRecord(severity=severity, sentence=sentence) for severity, sentence in findings) or None
    sizes = {"train": 9, "test": 40}
    task = DataRecord(name="cups", with_labels=True, type="classification", labels=LABELS, sizes=sizes, audit=audit)
    return Record(command="adapt", settings=dict(settings), seed=seed, data=(task,), scores={"accuracy": score})
