"""Text and labelled tasks: read, split, audited, stored as tokens, cut into batches."""

from warmstart.data.answers import Answered, AnswerTask, load_answers
from warmstart.data.audit import Audit, Finding, audit, drop_leaks
from warmstart.data.corpus import Corpus, Part, documents_of, prepare
from warmstart.data.read import read_documents, read_examples
from warmstart.data.source import Document, Source
from warmstart.data.split import sample, stratified
from warmstart.data.task import Split, Task, TaskSpec, build_task, load_task, save_task, subsample

__all__ = [
    "AnswerTask",
    "Answered",
    "Audit",
    "Corpus",
    "Document",
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
    "load_answers",
    "load_task",
    "prepare",
    "read_documents",
    "read_examples",
    "sample",
    "save_task",
    "stratified",
    "subsample",
]
