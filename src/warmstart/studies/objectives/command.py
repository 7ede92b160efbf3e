"""``study objectives``: the same text and architecture by several pretraining objectives, over seeds, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Annotated, Literal

from pydantic import Field
from tyro.conf import Positional, arg

from warmstart.backbone.config import BackboneConfig
from warmstart.commands.pretrain.command import (
    NOTHING,
    PretrainConfig,
    check_sources,
    pretrain_on,
    tokenized,
)
from warmstart.config import Advanced, Effectless, FileInput
from warmstart.data.conllu import read_conllu
from warmstart.data.minimal_pairs import MinimalPair, read_minimal_pairs
from warmstart.data.probing import read_probing_tasks, word_tasks
from warmstart.data.source import Document, Source
from warmstart.data.token_store import DocumentSplit, TokenStores, documents_of
from warmstart.errors import ConfigError, DataError
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle, save
from warmstart.objectives.config import ObjectiveConfig
from warmstart.report.result import StudyResult
from warmstart.report.study import finish_study
from warmstart.runs.run import Run, ThreadsConfig
from warmstart.studies.objectives.measure import EvaluationData, measure_objective
from warmstart.studies.objectives.page import objectives_sections
from warmstart.studies.objectives.result import objectives_result
from warmstart.system.console import console
from warmstart.system.device import pick_device
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import TokenizerConfig
from warmstart.training.compiled import check_compiler
from warmstart.training.config import PretrainTrainConfig

MODELS_FOLDER = "models"
SPEED_ROUNDS, SPEED_STEPS = 5, 6
"""how often the speed of each objective is measured, and over how many steps"""


class StudyObjectivesConfig(ThreadsConfig):
    """Pretrain the same backbone on the same text by several objectives, and compare what they learn."""

    text: Positional[FileInput[tuple[str, ...]]]
    """files or folders of text"""
    out: Effectless[str] = "runs/objectives"
    """folder of the run; an interrupted study continues there, and trained models are not trained again"""
    seed: int = Field(0, ge=0)
    """the first seed"""
    seeds: int = Field(3, gt=0)
    """models of each objective"""
    objectives: tuple[str, ...] = ("causal", "masked", "span", "hybrid")
    """the pretraining objectives to compare"""
    equal: Advanced[Literal["tokens", "time"]] = "tokens"
    """what all models have alike: the tokens that they read, or the processor time that the first objective takes for --tokens,
    measured when the study begins"""
    held_out: FileInput[str] = "0.02"
    """held-out text: a file or folder, or a fraction of the documents"""
    document: Advanced[Document] = "paragraph"
    """what one document is: paragraph, sentence, line or file"""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """the tokenizer to train on the text, the same for all models"""
    backbone: Annotated[BackboneConfig, arg(name="")] = BackboneConfig()
    train: Annotated[PretrainTrainConfig, arg(name="")] = PretrainTrainConfig()
    tasks: FileInput[tuple[str, ...]] = ()
    """files or folders of sentence tasks in SentEval's format, probed at every layer"""
    words: FileInput[str | None] = None
    """a CoNLL-U file: each word's part of speech, position and previous word are probed too"""
    word_count: Advanced[int] = Field(4000, gt=99)
    """words to train those probes on"""
    pairs: FileInput[str | None] = None
    """minimal pairs: a file or folder, as `evaluate --pairs` reads them"""
    limit: Advanced[int] = Field(50, gt=0)
    """use only the first pairs of each group, up to this number"""
    passages: Advanced[int] = Field(100, gt=1)
    """held-out passages over which attention is measured; passages of the text itself if nothing is held out"""


def study_objectives(config: StudyObjectivesConfig) -> StudyResult:
    """Pretrain, measure, compare and write the page. The details are a list of ``ObjectiveMeasures``."""
    settings = {name: _pretrain_config(config, name, config.seed) for name in config.objectives}
    _check(config)
    sources = [Source(path=path, document=config.document) for path in config.text]
    check_sources(next(iter(settings.values())), sources)
    tasks = read_probing_tasks(config.tasks)
    if config.words:
        tasks += word_tasks(read_conllu(config.words), config.word_count, config.seed)
    pairs = read_minimal_pairs(config.pairs, config.limit) if config.pairs else []
    run = Run.open(config.out, config)
    tokenizer, stores = tokenized(settings[config.objectives[0]], sources, run.folder)
    data = EvaluationData(tasks, pairs, held_out_passages(config, sources))
    _check_lengths(pairs, tokenizer, config.backbone.max_length)
    if config.equal == "time":
        settings = _of_equal_time(settings, stores, tokenizer, run)
    objectives = [measure_objective(name, _models(one, config, (tokenizer, stores), run), data) for name, one in settings.items()]
    result = objectives_result(objectives, equal=config.equal)
    return finish_study(result, objectives_sections(objectives), config, run.folder)


def _check(config: StudyObjectivesConfig) -> None:
    """Before anything is trained. Raises ``ConfigError``."""
    if len(set(config.objectives)) < max(2, len(config.objectives)) or not config.text:
        raise ConfigError(f"name some text, and at least two different --objectives, but got {list(config.objectives)}")
    if config.backbone.depth < 1:
        raise ConfigError(f"attention is measured in at least one block, but --depth is {config.backbone.depth}")
    if config.train.compile:
        check_compiler(pick_device())
    if config.equal == "time" and config.train.tokens is None:
        raise ConfigError("equal time needs a budget in tokens, that of the first objective; name --tokens")


def _check_lengths(pairs: Sequence[MinimalPair], tokenizer: Tokenizer, longest: int) -> None:
    """Raises ``DataError`` if a sentence of the pairs does not fit: before the models are trained, not after."""
    sentences = [text for pair in pairs for text in (pair.good, pair.bad)]
    for sentence, ids in zip(sentences, tokenizer.encode(sentences), strict=True):
        if len(ids) + 2 > longest:
            raise DataError(
                f"every sentence of --pairs must fit into {longest} tokens, but this one takes {len(ids) + 2}: '{sentence[:60]}'; "
                "remove it, or give a larger --max-length"
            )


def _pretrain_config(config: StudyObjectivesConfig, objective: str, seed: int) -> PretrainConfig:
    """The settings of ``pretrain`` for one model."""
    return PretrainConfig(
        text=config.text, out=config.out, held_out=config.held_out, document=config.document, tokenizer=config.tokenizer,
        objective=ObjectiveConfig(name=objective), backbone=config.backbone, train=config.train, seed=seed,
    )  # fmt: skip


def _of_equal_time(
    settings: dict[str, PretrainConfig], stores: TokenStores, tokenizer: Tokenizer, run: Run
) -> dict[str, PretrainConfig]:
    """The settings of each objective, with the tokens that take the processor time of the first one's; measured once."""
    speeds = run.step("speeds", lambda _: measure_speeds(settings, stores, tokenizer))
    first = next(iter(settings))
    tokens = {name: (settings[first].train.tokens or 0) * speed / speeds[first] for name, speed in speeds.items()}
    return {name: _with_training(one, {"tokens": round(tokens[name])}) for name, one in settings.items()}


def measure_speeds(settings: dict[str, PretrainConfig], stores: TokenStores, tokenizer: Tokenizer) -> dict[str, float]:
    """Tokens that each objective reads in a second of a processor core.

    They are measured in turn, so that whatever else the machine does slows all of them alike.
    """
    console.print("Measuring the speed of each objective.")
    short = [_with_training(one, {"tokens": None, "steps": SPEED_STEPS}) for one in settings.values()]
    rounds = [[pretrain_on((stores[0], None), tokenizer, one, None).training for one in short] for _ in range(SPEED_ROUNDS)]
    each = [[output.tokens / output.processor_seconds for output in outputs] for outputs in zip(*rounds, strict=True)]
    return dict(zip(settings, map(median, each), strict=True))


def _with_training(config: PretrainConfig, changes: dict[str, int | None]) -> PretrainConfig:
    return config.model_copy(update={"train": config.train.model_copy(update=changes)})


def held_out_passages(config: StudyObjectivesConfig, sources: list[Source]) -> list[str]:
    """Passages that no model is trained on, if any are held out."""
    plan = _pretrain_config(config, config.objectives[0], config.seed)
    fraction, nothing = plan.held_out_fraction(), plan.held_out == NOTHING
    own = sources if fraction or nothing else [Source(path=config.held_out, document=config.document)]
    return list(islice(documents_of(own, DocumentSplit(fraction=fraction, held_out=True) if fraction else None), config.passages))


def _models(
    settings: PretrainConfig, config: StudyObjectivesConfig, text: tuple[Tokenizer, TokenStores], run: Run
) -> Iterator[tuple[int, Bundle]]:
    """The models of one objective with their seeds, one after the other; each is trained in a step of the run, and kept."""
    name, (tokenizer, stores) = settings.objective.name, text
    for seed in range(config.seed, config.seed + config.seeds):
        place = run.folder / MODELS_FOLDER / f"{name}-{seed}" / "bundle"

        def make(step: Run, seed: int = seed, place: Path = place) -> bool:
            console.print(f"pretraining: {name}, seed {seed}")
            save(pretrain_on(stores, tokenizer, settings.model_copy(update={"seed": seed}), step.place).bundle, place)
            return True

        run.step(f"{name}, seed {seed}", make)
        yield seed, load_bundle(place)
        console.print(f"measured: {name}, seed {seed}")
