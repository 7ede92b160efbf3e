"""``study probe``: what every layer encodes, with control tasks, a bag of embeddings and random weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Advanced, Effectless, FileInput, ThreadsConfig
from warmstart.data.probing import BAG, MIX, RANDOM, read_probing_tasks, word_tasks
from warmstart.errors import ConfigError
from warmstart.report.parts import Figure, Section, Table
from warmstart.report.result import StudyResult, finish_study
from warmstart.runs.steps import attention_step
from warmstart.stats.comparison import limit_clause
from warmstart.stats.formatting import (
    first_of,
    layer_name,
    model_name,
    percent,
    percent_interval,
    percent_value,
    points,
    points_range,
    sentence_case,
)
from warmstart.system.console import console

if TYPE_CHECKING:
    from warmstart.inspection.probing import ProbeScores, TaskProbes

PROBES_HEADER = ("task", "model", "best layer", "linear (95% over sentences)", "MLP", BAG, RANDOM, "selectivity", "compression")
_SHORT_HEADER, _FEW_SENTENCES = ("task", "model", "layer", "linear", "MLP", "bag", "random", "selectivity", "compression"), 30
"""columns for the terminal, without intervals; test sentences below which a finding names their number"""
WORDS = 4000
"""words of a CoNLL-U file that train a probe; validation and test have a quarter as many each"""
_BEST_LAYERS = (
    "Best layers are chosen on validation. Selectivity: points above a control task with a random label for every word (for "
    "sentences: for their longest word). Compression: how many times shorter the labels are in the online code than in a "
    "uniform code; in brackets, what the frequencies of the labels alone give."
)
_CODES = (
    "How many times shorter the labels are in the online code than in a uniform code; dashed: what the frequencies of the "
    "labels alone give. It rewards what is learned from few items."
)


class StudyProbeConfig(ThreadsConfig):
    """Probe every layer for what it encodes about sentences and words, by small classifiers with controls."""

    models: Positional[FileInput[tuple[str, ...]]]
    """models to probe: bundles, folders of runs, or hf:FOLDER"""
    tasks: FileInput[tuple[str, ...]] = ()
    """files or folders of sentence tasks in SentEval's format"""
    words: FileInput[str | None] = None
    """a CoNLL-U file: each word's part of speech, position and previous word are probed"""
    out: Effectless[str] = "runs/probe"
    """folder of the run"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""
    seeds: int = Field(3, gt=0)
    """fits of each probe"""
    mlp: Advanced[bool] = True
    """fit probes with a hidden layer too"""


def study_probe(config: StudyProbeConfig) -> StudyResult:
    """Probe, print and write the page. The details are a list of ``TaskProbes``, one per task and model."""
    from warmstart.data.conllu import read_conllu
    from warmstart.inspection.activations import layer_names
    from warmstart.inspection.probing import probe_models
    from warmstart.interop.load import load_model
    from warmstart.runs.run import Run

    tasks = read_probing_tasks(config.tasks)
    if config.words:
        tasks += word_tasks(read_conllu(config.words), WORDS, config.seed)
    if not tasks or not config.models:
        raise ConfigError("name at least one model, and --tasks (files in SentEval's format) or --words (a CoNLL-U file)")
    bundles = {name: load_model(path) for name, path in zip(distinct_names(config.models), config.models, strict=True)}
    folder = Run.open(config.out, config).folder
    probes = list["TaskProbes"]()
    for probed in probe_models(bundles, tasks, range(config.seed, config.seed + config.seeds), mlp=config.mlp):
        probes.append(probed)
        console.print(f"{probed.task.name}, {probed.model}: probed")
    layers = [*max(map(layer_names, bundles.values()), key=len), MIX]
    result = probe_result(probes, attention_step(config.models[0], [" ".join(words) for words in tasks[0].test.texts]))
    tiles = [(name, percent(accuracy)) for name, accuracy in result.figures.items()]
    return finish_study(result, probe_sections(probes, layers), config, folder, tiles=tiles)


def distinct_names(paths: tuple[str, ...]) -> list[str]:
    """Short names of models: the folder's, or the whole path if two folders have the same name."""
    short = [model_name(path) for path in paths]
    return [path if short.count(name) > 1 else name for path, name in zip(paths, short, strict=True)]


def probe_result(probes: Sequence[TaskProbes], step: Any = None) -> StudyResult:
    """All findings about the probes of all models on all tasks."""
    import polars as pl

    rows = [*map(probe_row, probes)]
    return StudyResult(
        "What each layer encodes",
        [learned_finding(probes), *map(probe_finding, probes), *coverage_findings(probes)],
        {"probes": pl.DataFrame(score_rows(probes), infer_schema_length=None)},
        {f"{probed.task.name}, {probed.model}": probed.best.accuracy.value for probed in probes},
        Table(_SHORT_HEADER, [(*row[:3], row[3].split(" (")[0], *row[4:]) for row in rows]),
        list(probes),
        step,
    )


def learned_finding(probes: Sequence[TaskProbes]) -> str:
    """Properties that a model tells significantly better than its control, random weights."""
    from warmstart.inspection.probing import learned_by

    tasks, learned = len({probed.task.name for probed in probes}), learned_by(probes)
    if len(learned) > 1:
        counts = ", ".join(f"{model} {len(names)}" for model, names in learned.items())
        properties = "property" if tasks == 1 else "properties"
        return f"Learned, of {tasks} {properties}: {counts} (an untrained network would tell them less well)."
    ((model, names),) = learned.items()
    if not names:
        return f"Nothing shows that {model} has learned more than an untrained network would tell."
    them = "it" if len(names) == 1 else "them"
    return f"What {model} has learned: {first_of(names, 3)}; an untrained network would tell {them} less well."


def probe_finding(probes: TaskProbes) -> str:
    """The accuracy of the best layer, and its difference to a bag of embeddings and to random weights."""
    best, random = probes.best, probes.best_random
    alone = ", for this draw alone" if len(random.correct) == 1 else ""
    comparisons = [_comparison(best, probes.bag, f"a {BAG}"), _comparison(best, random, draws_of(random), alone)]
    items, sentences = len(best.sentences), len(np.unique(best.sentences))
    few = f" on {items} test items of only {sentences} sentences" if sentences < _FEW_SENTENCES else ""
    return (
        f"{sentence_case(probes.task.name)}: a linear probe of {layer_name(best.layer)} of {probes.model} has an accuracy of "
        f"{percent_interval(*best.accuracy)}{few}: {' and '.join(comparisons)}."
    )


def _comparison(best: ProbeScores, other: ProbeScores, name: str, note: str = "") -> str:
    difference, low, high = best.difference(other)
    significance = "" if low > 0 or high < 0 else ", not significant" + limit_clause(low, high)
    return f"{points(difference)} ({points_range(low, high)}{note}{significance}) against {name}"


def draws_of(random: ProbeScores) -> str:
    """``3 draws of random weights``."""
    return f"{len(random.correct)} draws of {RANDOM}" if len(random.correct) > 1 else f"one draw of {RANDOM}"


def coverage_findings(probes: Sequence[TaskProbes]) -> list[str]:
    """Sentences about words that did not fit into the models, and tasks of which they therefore have different items."""
    findings = list[str]()
    for probed in probes:
        if probed.items.dropped:
            what = f"{sentence_case(probed.task.name)}: {probed.items.dropped:,} of {probed.items.total:,}"
            end = f"words do not fit into {probed.model} and are left out" if probed.task.words else ""
            findings.append(f"{what} {end or f'sentences are cut to what fits into {probed.model}'}.")
    for task in dict.fromkeys(probed.task.name for probed in probes if probed.task.words):
        same = [probed for probed in probes if probed.task.name == task]
        if len({(probed.items.dropped, probed.best.sentences.tobytes()) for probed in same}) > 1:
            counts = ", ".join(f"{probed.model}: {len(probed.best.sentences):,}" for probed in same)
            findings.append(
                f"{sentence_case(task)}: the models have different test items, as not all words fit ({counts}), so their "
                "accuracies cannot be compared."
            )
    return findings


def probe_row(probes: TaskProbes) -> tuple[str, ...]:
    """A row under ``PROBES_HEADER``."""
    best, mlp, random, frequency = probes.best, probes.best_mlp, probes.best_random, probes.items.frequency_compression
    return (
        probes.task.name, probes.model, best.layer, percent_interval(*best.accuracy),
        percent(mlp.accuracy.value) if mlp else "-", percent(probes.bag.accuracy.value),
        percent(random.accuracy.value), percent_value(best.selectivity),
        f"{np.mean(best.compression):.2f} ({frequency:.2f})" if best.compression else "-",
    )  # fmt: skip


def score_rows(probes: Sequence[TaskProbes]) -> list[dict[str, Any]]:
    """The scores of every probe of every model, one row each."""
    return [
        {"task": probed.task.name, "model": probed.model, "probe": probe, "layer": scores.layer}
        | dict(zip(("accuracy", "low", "high"), scores.accuracy, strict=True))
        | {
            "control_accuracy": float(scores.control.mean()), "selectivity": scores.selectivity,
            "validation_accuracy": scores.validation,
            "compression": float(np.mean(scores.compression)) if scores.compression else None,
            "frequency_compression": scores.items.frequency_compression, "items": len(scores.sentences),
        }
        for probed in probes
        for probe, by_layer in (("linear", probed.linear), ("mlp", probed.mlp), (f"linear, {RANDOM}", probed.random))
        for scores in by_layer.values()
    ]  # fmt: skip


def probe_sections(probes: Sequence[TaskProbes], layers: Sequence[str]) -> list[Section]:
    """Accuracy and compression by layer, one panel per task, and the scores of every probe."""
    from warmstart.report.study_charts import probe_chart, probe_points

    caption = "Accuracy of linear probes on the test items, by layer: mean over seeds, with 95% intervals over sentences."
    caption += f" {RANDOM.capitalize()}: {draws_of(probes[0].best_random)}; their intervals are over sentences, not over draws."
    points = [point for task in dict.fromkeys(probed.task.name for probed in probes) for point in probe_points(probes, task)]
    baselines = baselines_of(probes, BAG, lambda probed: probed.bag.accuracy.value)
    baselines += baselines_of(probes, "most frequent label", lambda probed: probed.items.majority)
    figure = Figure("probes", caption, probe_chart(points, layers, baselines))
    codes = [
        (
            probed.task.name,
            probed.model,
            layer,
            float(np.mean(scores.compression)),
            min(scores.compression),
            max(scores.compression),
        )
        for probed in probes
        for layer, scores in probed.linear.items()
        if layer != BAG
    ]
    lengths = baselines_of(probes, BAG, lambda probed: float(np.mean(probed.bag.compression)))
    lengths += baselines_of(probes, "label frequencies", lambda probed: probed.items.frequency_compression)
    header = ("task", "model", "probe", "layer", "accuracy (95% over sentences)", "control", "selectivity")
    rows = [
        (*(row[name] for name in header[:4]), percent_interval(row["accuracy"], row["low"], row["high"]),
         percent(row["control_accuracy"]), percent_value(row["selectivity"]))
        for row in score_rows(probes)
    ]  # fmt: skip
    coded = Figure("codes", _CODES, probe_chart(codes, layers, lengths, form=".1f"))
    return [
        Section("By layer", (_BEST_LAYERS,), (figure, Table(PROBES_HEADER, [probe_row(probed) for probed in probes]))),
        Section("Description length", ("Bars span the lowest to the highest seed.",), (coded,)),
        Section("All probes", (), (Table(header, rows),), folded=True),
    ]


def baselines_of(probes: Sequence[TaskProbes], name: str, value: Callable[[TaskProbes], float]) -> list[tuple[str, str, float]]:
    """The baseline ``value`` of every task: one if all models have the same, else one per model, named after it."""
    each = [(probed.task.name, probed.model, value(probed)) for probed in probes]
    first = {task: figure for task, _, figure in reversed(each)}
    if all(figure == first[task] for task, _, figure in each):
        return [(task, name, figure) for task, figure in first.items()]
    return [(task, f"{name}, {model}", figure) for task, model, figure in each]
