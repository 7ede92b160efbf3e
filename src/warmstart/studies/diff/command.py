"""``study diff``: what fine-tuning or continued pretraining changed inside a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Advanced, Effectless, FileInput
from warmstart.data.probing import read_probing_tasks
from warmstart.data.source import Source
from warmstart.data.token_store import documents_of
from warmstart.errors import ModelError
from warmstart.inspection.passages import Passages, language_passages
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.report.result import StudyResult
from warmstart.report.study import LinkedConfig, finish_study
from warmstart.runs.run import Run
from warmstart.stats.formatting import model_name
from warmstart.studies.diff.measure import DiffInputs, check_comparable, compare_models, frequent_words, sample_tokens
from warmstart.studies.diff.page import diff_sections, diff_tiles
from warmstart.studies.diff.result import diff_result


class StudyDiffConfig(LinkedConfig):
    """Compare two models of one shape: hidden states, weights, attention, nearest neighbours, probes and language loss."""

    before: Positional[FileInput[str]]
    """the first model: a bundle, or the folder of a run"""
    after: Positional[FileInput[str]]
    """the second model, trained from the first: same tokenizer and shape; adapters, LoRA or a scalar mix may be added"""
    text: FileInput[tuple[str, ...]]
    """files or folders of text that both models read"""
    held_out: FileInput[str | None] = None
    """file or folder of text for the language loss, if BEFORE has a language head; default: the text"""
    tasks: FileInput[tuple[str, ...]] = ()
    """files or folders of sentence tasks in SentEval's format, for linear probes before and after"""
    passages: Advanced[int] = Field(200, ge=8)
    """number of passages: drawn at random from the text, or the first ones of the held-out text"""
    tokens: Advanced[int] = Field(2000, ge=100)
    """approximate number of tokens whose hidden states are compared"""
    words: Advanced[int] = Field(300, gt=0)
    """number of words whose neighbours are compared: the most frequent ones of three letters or more"""
    out: Effectless[str] = "runs/diff"
    """folder of the run"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""


def study_diff(config: StudyDiffConfig) -> StudyResult:
    """Compare two models, print the findings and write the page; the ``study diff`` command."""
    tasks = read_probing_tasks(config.tasks)
    before, after = load_model(config.before), load_model(config.after)
    check_comparable(before, after)
    shorter = min(before, after, key=lambda bundle: bundle.model.backbone.config.max_length)
    sample = sample_tokens(shorter, documents_of(_sources(config.text)), config.passages, config.tokens, config.seed)
    passages = _language_passages(shorter, before, config)
    folder = Run.open(config.out, config).folder
    sentences = list(documents_of(_sources(config.text, sentences=True)))
    inputs = DiffInputs(sample, passages, frequent_words(shorter, sentences, config.words, config.seed), tasks)
    measured = compare_models(before, after, inputs, config.seed)
    text_name = f"held-out text ({Path(config.held_out).name})" if config.held_out else "the text itself (without --held-out)"
    result = diff_result(measured, (model_name(config.before), model_name(config.after)), text_name, config.seed)
    return finish_study(
        result, diff_sections(result), config, folder, models=[config.before, config.after], tiles=diff_tiles(result)
    )


def _language_passages(shorter: Bundle, before: Bundle, config: StudyDiffConfig) -> Passages | None:
    """The passages for the language loss; None if the first model was not trained to predict text."""
    if before.likelihood is not None:
        sources = _sources((config.held_out,) if config.held_out else config.text)
        max_length = shorter.model.backbone.config.max_length
        return language_passages(before, documents_of(sources), config.passages, config.seed, max_length)
    if config.held_out:
        raise ModelError(
            f"--held-out needs a model in {config.before} that was trained to predict text, but this one has a head of type "
            f"'{before.model.head.config.kind}', or was trained on sentinel spans only; leave it out, or give the language model"
        )
    return None


def _sources(paths: Sequence[str], *, sentences: bool = False) -> list[Source]:
    return [Source(path=path, document="sentence" if sentences else "paragraph") for path in paths]
