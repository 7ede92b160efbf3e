"""``study probe``: what every layer encodes, with control tasks, a bag of embeddings and random weights."""

from __future__ import annotations

import time
from dataclasses import replace

from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Advanced, Effectless, FileInput, InFile, ThreadsConfig
from warmstart.data.probing import read_probing_tasks, word_tasks
from warmstart.errors import ConfigError
from warmstart.inspection.probe_scores import MIX
from warmstart.report.result import StudyResult
from warmstart.runs.steps import attention_step
from warmstart.stats.formatting import model_name, percent
from warmstart.system.console import console


class StudyProbeConfig(ThreadsConfig):
    """Probe every layer for what it encodes about sentences and words, by small classifiers with controls."""

    models: Positional[FileInput[tuple[str, ...]]]
    """models to probe: bundles, folders of runs, or hf:FOLDER"""
    tasks: FileInput[tuple[str, ...]] = ()
    """files or folders of sentence tasks in SentEval's format"""
    words: FileInput[str | None] = None
    """a CoNLL-U file: each word's part of speech, position and previous word are probed"""
    word_count: Advanced[int] = Field(4000, gt=99)
    """words to train on; validation and test have a quarter as many each"""
    out: Effectless[str] = "runs/probe"
    """folder of the run"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""
    seeds: int = Field(3, gt=0)
    """fits of each probe"""
    mlp: Advanced[bool] = True
    """fit probes with a hidden layer too"""
    random: InFile[bool] = True
    """probe the same architecture with random weights too"""


def study_probe(config: StudyProbeConfig) -> StudyResult:
    """Probe, print and write the page. The details are a list of ``TaskProbes``, one per task and model."""
    from warmstart.data.conllu import read_conllu
    from warmstart.inspection.activations import layer_names
    from warmstart.interop.load import load_model
    from warmstart.report.study import finish_study
    from warmstart.runs.run import Run
    from warmstart.studies.probe.measure import TaskProbes, probe_models
    from warmstart.studies.probe.page import all_scores_section, compression_section, layers_section
    from warmstart.studies.probe.result import probe_result

    tasks = read_probing_tasks(config.tasks)
    if config.words:
        tasks += word_tasks(read_conllu(config.words), config.word_count, config.seed)
    if not tasks or not config.models:
        raise ConfigError("name at least one model, and --tasks (files in SentEval's format) or --words (a CoNLL-U file)")
    names = distinct_names(config.models)
    bundles = {name: load_model(path) for name, path in zip(names, config.models, strict=True)}
    folder = Run.open(config.out, config).folder
    probes, started = list[TaskProbes](), time.perf_counter()
    for one in probe_models(bundles, tasks, range(config.seed, config.seed + config.seeds), mlp=config.mlp, random=config.random):
        probes.append(one)
        now = time.perf_counter()
        console.print(f"{one.task.name}, {one.model}: {now - started:.0f} s")
        started = now
    layers = [*max((layer_names(bundle) for bundle in bundles.values()), key=len), MIX]
    result = probe_result(probes)
    tiles = [(name, percent(accuracy)) for name, accuracy in result.figures.items()]
    sections = [layers_section(probes, layers), compression_section(probes, layers), all_scores_section(probes)]
    step = attention_step(config.models[0], [" ".join(words) for words in tasks[0].test.texts])
    return finish_study(replace(result, next_step=step), sections, config, folder, tiles=tiles)


def distinct_names(paths: tuple[str, ...]) -> list[str]:
    """Short names of models: the folder's, or the whole path if two folders have the same name."""
    short = [model_name(path) for path in paths]
    return [path if short.count(name) > 1 else name for path, name in zip(paths, short, strict=True)]
