"""``study explain``: which words a prediction depends on, by three methods, and how faithful each method is."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Advanced, Effectless, FileInput, InFile, ThreadsConfig
from warmstart.data.source import Source, TableFlags
from warmstart.errors import ConfigError
from warmstart.report.result import StudyResult
from warmstart.runs.steps import attention_step
from warmstart.seeding import rng
from warmstart.stats.formatting import model_name
from warmstart.system.console import console


class StudyExplainConfig(ThreadsConfig, TableFlags):
    """Measure how much each word contributes to a prediction, and test whether the explanation is faithful."""

    model: Positional[FileInput[str]]
    """a model that labels or generates text: a bundle, or the folder of a run"""
    text: Positional[str | None] = None
    """the text whose prediction is explained"""
    target: str | None = None
    """the label, or the next token (" the"), to be explained; default: the most probable one"""
    file: FileInput[str | None] = None
    """texts over which the faithfulness of the methods is measured: one per line, or a table"""
    limit: int = Field(50, gt=1)
    """number of texts of the file, drawn at random"""
    removal: Literal["delete", "mask"] = "delete"
    """how a word is removed: delete its tokens, or mask them (for models trained with mask tokens)"""
    max_phrase: InFile[int] = Field(3, gt=0, le=10)
    """number of words of the longest phrase that is erased"""
    random_orders: Advanced[int] = Field(20, gt=1)
    """number of random word orders that the methods are compared with"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""
    out: Effectless[str] = "runs/explain"
    """folder of the run"""


def study_explain(config: StudyExplainConfig) -> StudyResult:
    """Explain, test, print the findings and write the page; the ``study explain`` command."""
    from warmstart.data.read import given_file
    from warmstart.inspection.explanations import check_explainable, explain_text, explain_texts, prepare_text
    from warmstart.interop.load import load_model
    from warmstart.report.study import finish_study
    from warmstart.runs.run import Run
    from warmstart.studies.explain.page import explain_sections, heat_text
    from warmstart.studies.explain.result import explain_result

    if config.text is None and config.file is None:
        raise ConfigError("there is nothing to explain; give a text, or --file with texts over which the methods are tested")
    if config.text is not None and (file := given_file([config.text])):
        raise ConfigError(f"one text is explained, but {file} is a file; give --file {file}, or a text")
    bundle = load_model(config.model)
    check_explainable(bundle)
    texts = _texts(config) if config.file else []
    prepared = prepare_text(bundle, config.text, config.target, config.removal) if config.text is not None else None
    folder = Run.open(config.out, config).folder
    explanation = explain_text(prepared, config.random_orders, config.seed, config.max_phrase) if prepared else None
    if explanation:
        console.print(f"{explanation.target!r}, probability {explanation.probability:.3f}")
        for method, values in explanation.values.items():
            console.print(heat_text(explanation.words, values).append(f"  {method}", style="dim"))
    gaps = explain_texts(bundle, texts, config.random_orders, config.seed, config.removal) if texts else {}
    result = explain_result(model_name(config.model), explanation, gaps, len(texts), config.seed)
    step = attention_step(config.model, [config.text] if config.text else texts)
    return finish_study(replace(result, next_step=step), explain_sections(result), config, folder)


def _texts(config: StudyExplainConfig) -> list[str]:
    from warmstart.data.token_store import documents_of

    texts = list(documents_of([Source.build({"path": str(config.file), "document": "line", **config.reading})]))
    if len(texts) < 2:
        raise ConfigError(f"faithfulness needs at least two texts, but {config.file} has {len(texts)}")
    return [texts[i] for i in rng(config.seed, "texts to explain").permutation(len(texts))[: config.limit]]
