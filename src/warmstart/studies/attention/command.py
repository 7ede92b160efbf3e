"""``study attention``: what every head attends to in one text, and in a corpus compared with uniform attention."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Advanced, Effectless, FileInput, ThreadsConfig
from warmstart.data.source import Source
from warmstart.errors import ConfigError
from warmstart.inspection.tokens import sample_passages
from warmstart.report.result import StudyResult
from warmstart.runs.steps import NextStep, own_text, study_step
from warmstart.stats.formatting import model_name
from warmstart.system.storage import atomic_write

if TYPE_CHECKING:
    from warmstart.model.bundle import Bundle
    from warmstart.studies.attention.measure import AttentionMeasured


class StudyAttentionConfig(ThreadsConfig):
    """Draw the attention of each head over a text, and compare all heads with uniform attention over a corpus."""

    model: Positional[FileInput[str]]
    """any model: a bundle, or the folder of a run"""
    sentence: Positional[str]
    """the text whose attention is drawn; what does not fit into the model is cut"""
    text: FileInput[tuple[str, ...]] = ()
    """files or folders of text: the corpus over which heads are compared; default: the one text"""
    passages: int = Field(200, gt=1)
    """passages of the corpus, drawn at random"""
    threshold: Advanced[float] = Field(0.2, gt=0, lt=1)
    """a head attends to something if it puts at least this much more weight there than uniform attention"""
    out: Effectless[str] = "runs/attention"
    """folder of the run"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""


def study_attention(config: StudyAttentionConfig) -> StudyResult:
    """Read, measure, print and write the page. The details are an ``AttentionMeasured``."""
    from warmstart.data.read import given_file
    from warmstart.data.token_store import documents_of
    from warmstart.interop.load import load_model
    from warmstart.report.study import finish_study
    from warmstart.runs.run import Run
    from warmstart.studies.attention.measure import measure_text_and_corpus
    from warmstart.studies.attention.page import all_heads_section, one_text_section
    from warmstart.studies.attention.result import attention_result

    if not config.sentence.strip():
        raise ConfigError("the text whose attention is drawn must have at least one character, but is blank")
    if file := given_file([config.sentence]):
        raise ConfigError(f"the attention of one text is drawn, but {file} is a file; give a text, and files with --text")
    bundle = load_model(config.model)
    documents = documents_of([Source(path=path) for path in config.text])
    passages = sample_passages(documents, config.passages, config.seed) if config.text else []
    measured = measure_text_and_corpus(bundle, config.sentence, passages, config.threshold, config.seed)
    folder = Run.open(config.out, config).folder
    _write_weights(measured, folder)
    result = attention_result(model_name(config.model), measured)
    depth, heads = measured.weights.shape[:2]
    tiles = [
        ("layers x heads", f"{depth} x {heads}"),
        ("attention", "causal" if measured.causal else "bidirectional"),
        ("passages", f"{len(measured.tests.attention.sums):,}"),
    ]
    sections = [one_text_section(measured), all_heads_section(measured.tests)]
    step = _next_step(bundle, config)
    return finish_study(replace(result, next_step=step), sections, config, folder, tiles=tiles)


def _next_step(bundle: Bundle, config: StudyAttentionConfig) -> NextStep | None:
    """How much a language model needs each head, or which words a prediction depends on."""
    from warmstart.heads.language_modeling import LMHead
    from warmstart.inspection.explanations import is_explainable

    if config.text and isinstance(bundle.model.head, LMHead):
        return study_step("ablate", "How much the model needs each head", config.model, "--text", *config.text)
    text = own_text([config.sentence])
    if text and is_explainable(bundle):
        return study_step("explain", "Which words its prediction depends on", config.model, text)
    return None


def _write_weights(measured: AttentionMeasured, folder: Path) -> None:
    """``weights.safetensors`` (L, H, T, T) float32, and ``tokens.json``."""
    from safetensors.numpy import save

    atomic_write(folder / "weights.safetensors", save({"weights": measured.weights}))
    listed = [
        {"position": i, "id": int(token_id), "token": token}
        for i, (token_id, token) in enumerate(zip(measured.ids, measured.tokens, strict=True))
    ]
    atomic_write(folder / "tokens.json", json.dumps(listed, ensure_ascii=False, indent=1).encode(errors="replace"))
