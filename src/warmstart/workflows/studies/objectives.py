"""``study objectives``: the same text and size, causal against masked against span against hybrid, over seeds, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import Field
from tyro.conf import Positional, arg

from warmstart.analysis.activations import with_random_weights
from warmstart.analysis.probing import Reading, joined, probe
from warmstart.backbone import BackboneConfig
from warmstart.config import Config, read_yaml
from warmstart.data import Document, Part, Source, documents_of
from warmstart.data.conllu import read_conllu
from warmstart.data.pairs import Pair, read_pairs
from warmstart.data.probing import Probing, read_tasks, word_tasks
from warmstart.engine import console, pick_device
from warmstart.engine.compiled import check_compiler
from warmstart.errors import ConfigError, DataError
from warmstart.model import Bundle, load, save
from warmstart.objectives import ObjectiveConfig
from warmstart.tokenizer import Tokenizer, TokenizerConfig
from warmstart.workflows.outcome import Corpora
from warmstart.workflows.pretrain import (
    NOTHING,
    PretrainConfig,
    PretrainTrainConfig,
    check_text,
    make_tokenizer,
    pretrain_on,
    split_corpora,
)
from warmstart.workflows.run import open_run
from warmstart.workflows.studies.conclude import conclude
from warmstart.workflows.studies.probe import Found
from warmstart.workflows.studies.side_by_side import Insight, Side, insight_into, study_of

MODELS = "models"


class ObjectivesConfig(Config):
    """Pretrain the same backbone on the same text by several objectives, and look into all of them."""

    text: Positional[tuple[str, ...]]
    """files or folders of text"""
    out: str = "runs/objectives"
    """folder of the run; given again, models that are trained already are not trained anew"""
    seed: int = Field(0, ge=0)
    """the first seed"""
    seeds: int = Field(3, gt=0)
    """models of each objective; one alone says little"""
    objectives: tuple[str, ...] = ("causal", "masked", "span", "hybrid")
    """what they learn by"""
    held_out: str = "0.02"
    """held-out text: a file or folder, or a share of the documents"""
    document: Document = "paragraph"
    """what one document is: paragraph, sentence, line or file"""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """the tokenizer to train on the text, the same for all"""
    backbone: Annotated[BackboneConfig, arg(name="")] = BackboneConfig()
    train: Annotated[PretrainTrainConfig, arg(name="")] = PretrainTrainConfig()
    tasks: tuple[str, ...] = ()
    """files or folders of sentence tasks in SentEval's form, probed at every layer"""
    words: str | None = None
    """a CoNLL-U file: part of speech, place and the word before are probed too"""
    word_count: int = Field(4000, gt=99)
    """words to train those probes on"""
    pairs: str | None = None
    """minimal pairs: a file or folder, as `study pairs` reads them"""
    first: int = Field(50, gt=0)
    """so many pairs of each group"""
    passages: int = Field(100, gt=1)
    """held-out passages over which attention is measured; of the text itself where nothing is held out"""


@dataclass(frozen=True)
class Asked:
    """What all models are asked."""

    tasks: list[Probing]
    pairs: list[Pair]
    passages: list[str]


def objectives(config: ObjectivesConfig) -> list[Side]:
    """Pretrain, look, compare, write the page; the ``study objectives`` command."""
    settings = {name: _pretraining(config, name, config.seed) for name in config.objectives}
    _check(config)
    sources = [Source(path=path, document=config.document) for path in config.text]
    check_text(next(iter(settings.values())), sources)
    tasks = read_tasks(config.tasks)
    if config.words:
        tasks += word_tasks(read_conllu(config.words), config.word_count, config.seed)
    pairs = read_pairs(config.pairs, config.first) if config.pairs else []
    folder = open_run(config.out, config, resume=_begun(config))
    tokenizer = make_tokenizer(settings[config.objectives[0]], sources, folder)
    corpora = split_corpora(settings[config.objectives[0]], sources, tokenizer, folder / "text")
    asked = Asked(tasks, pairs, _passages(config, sources))
    _check_lengths(pairs, tokenizer, config.backbone.max_tokens)
    sides = [_side(name, config, corpora, tokenizer, asked) for name in config.objectives]
    conclude(study_of(sides), config, folder)
    return sides


def _check(config: ObjectivesConfig) -> None:
    """Before anything is trained. Raises ``ConfigError``."""
    if len(set(config.objectives)) < max(2, len(config.objectives)) or not config.text:
        raise ConfigError(f"name some text, and at least two different --objectives, but {list(config.objectives)} came")
    if config.backbone.depth < 1:
        raise ConfigError(f"attention is looked at in at least one block, but --depth is {config.backbone.depth}")
    if config.train.compile:
        check_compiler(pick_device())


def _check_lengths(pairs: Sequence[Pair], tokenizer: Tokenizer, longest: int) -> None:
    """Raises ``DataError`` where a sentence of the pairs does not fit: better now than when all models are trained."""
    sentences = [text for pair in pairs for text in (pair.good, pair.bad)]
    for sentence, ids in zip(sentences, tokenizer.encode(sentences), strict=True):
        if len(ids) + 2 > longest:
            raise DataError(
                f"every sentence of --pairs must fit into {longest} tokens, but this takes {len(ids) + 2}: '{sentence[:60]}'; "
                "take it out, or give a larger --max-tokens"
            )


def _pretraining(config: ObjectivesConfig, objective: str, seed: int) -> PretrainConfig:
    """As ``pretrain`` would be asked."""
    return PretrainConfig(
        text=config.text, out=config.out, held_out=config.held_out, document=config.document, tokenizer=config.tokenizer,
        objective=ObjectiveConfig(name=objective), backbone=config.backbone, train=config.train, seed=seed,
    )  # fmt: skip


def _begun(config: ObjectivesConfig) -> bool:
    """Whether the folder holds models of this very study. Raises ``ConfigError`` where it holds those of another."""
    place = Path(config.out)
    if not (place / MODELS).is_dir() or (place / "report.html").exists():
        return False
    kept = ObjectivesConfig.build(read_yaml(place / "config.yaml"), str(place / "config.yaml"))
    if kept != config:
        raise ConfigError(f"{place} holds models of a study with other settings; choose another --out, or remove it")
    return True


def _passages(config: ObjectivesConfig, sources: list[Source]) -> list[str]:
    """Passages that no model learned from, where any are held out."""
    plan = _pretraining(config, config.objectives[0], config.seed)
    share, whole = plan.held_out_share(), plan.held_out == NOTHING
    own = sources if share or whole else [Source(path=config.held_out, document=config.document)]
    return list(islice(documents_of(own, Part(share=share, held_out=True) if share else None), config.passages))


def _side(name: str, config: ObjectivesConfig, corpora: Corpora, tokenizer: Tokenizer, asked: Asked) -> Side:
    """All models of one objective, trained and looked into, one after the other."""
    insights, probed, random = list[Insight](), _nothing(asked), _nothing(asked)
    for seed in range(config.seed, config.seed + config.seeds):
        bundle = _model(name, seed, config, corpora, tokenizer)
        insights.append(insight_into(bundle, asked.pairs, asked.passages))
        for task in asked.tasks:
            probed[task.name].append(probe(bundle, task, "linear", [seed]))
            random[task.name].append(probe(with_random_weights(bundle, seed), task, "linear", [seed]))
        console.print(f"{name}, seed {seed}: looked into", markup=False, highlight=False)
    found = [Found(task, name, joined(probed[task.name]), {}, joined(random[task.name])) for task in asked.tasks]
    return Side(name, insights, found)


def _nothing(asked: Asked) -> dict[str, list[list[Reading]]]:
    return {task.name: [] for task in asked.tasks}


def _model(name: str, seed: int, config: ObjectivesConfig, corpora: Corpora, tokenizer: Tokenizer) -> Bundle:
    """One model: read where it lies trained already, gone on with where it was stopped, else trained."""
    folder = Path(config.out) / MODELS / f"{name}-{seed}"
    if (folder / "bundle").is_dir():
        return load(folder / "bundle")
    folder.mkdir(parents=True, exist_ok=True)
    console.print(f"pretraining: {name}, seed {seed}", markup=False, highlight=False)
    done = pretrain_on(corpora, tokenizer, _pretraining(config, name, seed), folder)
    save(done.bundle, folder / "bundle")
    return done.bundle
