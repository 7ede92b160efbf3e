"""Text and labelled tasks: read, split, audited, stored as tokens, cut into batches."""

from warmstart.data.audit import Audit, Finding, audit, drop_leaks
from warmstart.data.corpus import Corpus, Part, documents_of, prepare
from warmstart.data.read import Source, read_documents, read_examples
from warmstart.data.split import sample, stratified
from warmstart.data.task import Split, Task, TaskSpec, build_task, load_task, save_task, subsample

__all__ = [
    "Audit",
    "Corpus",
    "Finding",
    "Part",
    "Source",
    "Split",
    "Task",
    "TaskSpec",
    "audit",
    "build_task",
    "documents_of",
    "drop_leaks",
    "load_task",
    "prepare",
    "read_documents",
    "read_examples",
    "sample",
    "save_task",
    "stratified",
    "subsample",
]
