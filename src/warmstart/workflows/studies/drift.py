"""``study drift``: what adaptation, or going on with pretraining, changed inside a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field
from tyro.conf import Positional

from warmstart.analysis.ablate import Passages, passages_of
from warmstart.analysis.drift import check_alike, sample_of
from warmstart.analysis.moved import common_words
from warmstart.config import Config
from warmstart.data import Source, documents_of
from warmstart.data.probing import read_tasks
from warmstart.errors import ModelError
from warmstart.model import Bundle
from warmstart.workflows.run import load_model, open_run
from warmstart.workflows.studies.conclude import Study, conclude, joined
from warmstart.workflows.studies.drift_parts import attention_part, states_part, weights_part
from warmstart.workflows.studies.drift_words import language_part, neighbours_part, probes_part
from warmstart.workflows.studies.wording import model_name


class DriftConfig(Config):
    """Say what changed between two models of one shape: states, weights, attention, neighbours, probes, and language."""

    before: Positional[str]
    """the model that it began with: a bundle, or a run's folder"""
    after: Positional[str]
    """what became of it: same tokenizer and shape; adapters, LoRA or a layer mix may have come in"""
    text: tuple[str, ...]
    """files or folders of text on which both are read"""
    held_out: str | None = None
    """a file or folder of text on which language is measured, where BEFORE has a language head; default: the text"""
    tasks: tuple[str, ...] = ()
    """files or folders of sentence tasks in SentEval's form: linear probes, before and after"""
    passages: int = Field(200, ge=8)
    """so many passages of the text, drawn at random; of held-out text, the first so many"""
    tokens: int = Field(2000, ge=100)
    """about so many tokens of these are compared state by state"""
    words: int = Field(300, gt=0)
    """so many of the most frequent words, of three letters or more, are asked for their neighbours"""
    out: str = "runs/drift"
    """folder of the run"""
    seed: int = Field(0, ge=0)
    """start of every random choice"""


def drift(config: DriftConfig) -> Study:
    """Compare, print and write the page; the ``study drift`` command."""
    tasks = read_tasks(config.tasks)
    before, after = load_model(config.before), load_model(config.after)
    check_alike(before, after)
    shorter = min(before, after, key=lambda bundle: bundle.model.backbone.config.max_tokens)
    sample = sample_of(shorter, documents_of(_sources(config.text)), config.passages, config.tokens, config.seed)
    passages = _passages(shorter, before, config)
    folder = open_run(config.out, config, resume=False)
    common = common_words(shorter, list(documents_of(_sources(config.text, sentences=True))), config.words, config.seed)
    where = f"held-out text ({Path(config.held_out).name})" if config.held_out else "the text itself (no --held-out is given)"
    parts = [
        states_part(before, after, sample, config.seed),
        language_part(before, after, passages, where),
        weights_part(before, after),
        attention_part(before, after, sample, config.seed),
        neighbours_part(before, after, common),
        probes_part(before, after, tasks, config.seed),
    ]
    study = joined(f"Drift: from {model_name(config.before)} to {model_name(config.after)}", parts)
    conclude(study, config, folder, [config.before, config.after])
    return study


def _passages(shorter: Bundle, before: Bundle, config: DriftConfig) -> Passages | None:
    """What language is measured on; nothing where the first model never learned to predict text."""
    if before.likelihood is not None:
        sources = _sources((config.held_out,) if config.held_out else config.text)
        longest = shorter.model.backbone.config.max_tokens
        return passages_of(before, documents_of(sources), config.passages, config.seed, longest)
    if config.held_out:
        raise ModelError(
            f"--held-out needs a model in {config.before} that learned to predict text, but its head is of the kind "
            f"'{before.model.head.config.kind}', or it learned only spans behind sentinels; leave it out, or give the "
            "language model that it came from"
        )
    return None


def _sources(paths: Sequence[str], *, sentences: bool = False) -> list[Source]:
    return [Source(path=path, document="sentence" if sentences else "paragraph") for path in paths]
