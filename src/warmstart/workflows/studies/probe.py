"""``study probe``: what can be read from every layer, against controls, a bag of embeddings and random weights."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from pydantic import Field
from tyro.conf import Positional

from warmstart.analysis.activations import layer_names, with_random_weights
from warmstart.analysis.probing import BAG, MIX, Form, Reading, probe
from warmstart.config import Config
from warmstart.data.conllu import read_conllu
from warmstart.data.probing import Probing, read_probing, word_tasks
from warmstart.engine import console
from warmstart.errors import ConfigError
from warmstart.model import Bundle
from warmstart.report import Figure, Section, Table
from warmstart.report.probe import probe_chart
from warmstart.workflows.run import load_model, open_run
from warmstart.workflows.studies.conclude import Study, conclude

RANDOM = "random weights"
HEADER = ("task", "model", "best layer", "linear (95 %)", "MLP", BAG, RANDOM, "selectivity", "code")
SHORT = ("task", "model", "layer", "linear", "MLP", "bag", "random", "select.", "code")
"""the same for a terminal, without intervals"""


class ProbeConfig(Config):
    """Ask every layer what it tells of sentences and words, by small classifiers with controls."""

    models: Positional[tuple[str, ...]]
    """models to look into: bundles, runs' folders, or hf:FOLDER"""
    tasks: tuple[str, ...] = ()
    """files or folders of sentence tasks in SentEval's form"""
    words: str | None = None
    """a CoNLL-U file: part of speech, place and the word before are asked of every word"""
    word_count: int = Field(4000, gt=99)
    """words to train on; a fourth as many each for validation and test"""
    out: str = "runs/probe"
    """folder of the run"""
    seed: int = Field(0, ge=0)
    """start of every random choice"""
    seeds: int = Field(3, gt=0)
    """how many times each probe is fitted anew"""
    mlp: bool = True
    """probes with a hidden layer too"""
    random: bool = True
    """the same for a backbone of random weights"""


@dataclass(frozen=True)
class Found:
    """What one model's layers tell of one task."""

    task: Probing
    model: str
    linear: dict[str, Reading]
    mlp: dict[str, Reading]
    random: dict[str, Reading]
    """linear probes of random weights"""

    @property
    def best(self) -> Reading:
        """The layer that is best on validation; the mix and the bag are none."""
        return _best(self.linear)

    def sentence(self) -> str:
        """What can be read, and how sure that is."""
        best, (mean, low, high) = self.best, self.best.share
        said = f"{self.task.name}: {layer_name(best.layer)} of {self.model} tells {_percent(mean, low, high)} of test items"
        others = [(BAG, self.linear[BAG])]
        if self.random:
            others.append((RANDOM, _best(self.random)))
        parts = []
        for name, other in others:
            gap, low, high = best.above(other)
            sure = "" if low > 0 or high < 0 else ", which shows nothing"
            parts.append(f"{100 * gap:+.1f} points against {name} ({100 * low:+.1f} to {100 * high:+.1f}{sure})")
        return f"{said}; {', '.join(parts)}"

    def row(self) -> tuple[str, ...]:
        """A line of the table."""
        best = self.best
        return (
            self.task.name, self.model, best.layer, _percent(*best.share),
            f"{100 * _best(self.mlp).share[0]:.1f} %" if self.mlp else "-",
            f"{100 * self.linear[BAG].share[0]:.1f} %",
            f"{100 * _best(self.random).share[0]:.1f} %" if self.random else "-",
            f"{100 * best.selectivity:.1f}",
            f"{np.mean(best.compression):.2f}" if best.compression else "-",
        )  # fmt: skip


def study_probe(config: ProbeConfig) -> list[Found]:
    """Probe, print and write the page; the ``study probe`` command."""
    tasks = [task for path in config.tasks for task in read_probing(path)]
    if config.words:
        tasks += word_tasks(read_conllu(config.words), config.word_count, config.seed)
    if not tasks or not config.models:
        raise ConfigError("name at least one model, and --tasks (files in SentEval's form) or --words (a CoNLL-U file)")
    names = _names(config.models)
    bundles = {name: load_model(path) for name, path in zip(names, config.models, strict=True)}
    folder = open_run(config.out, config, resume=False)
    found = list(_probed(bundles, tasks, config))
    layers = max((layer_names(bundle) for bundle in bundles.values()), key=len)
    sections = [by_layer(found, [*layers, MIX]), _codes(found, [*layers, MIX]), _all_readings(found)]
    study = Study(
        "What each layer tells",
        [one.sentence() for one in found],
        sections,
        {"probes": readings_of(found)},
        tuple((f"{one.task.name}, {one.model}", f"{100 * one.best.share[0]:.1f} %") for one in found),
        ([(row[0], *row[1:3], row[3].split(" (")[0], *row[4:]) for row in (one.row() for one in found)], SHORT),
    )
    conclude(study, config, folder, config.models)
    return found


def _probed(bundles: dict[str, Bundle], tasks: list[Probing], config: ProbeConfig) -> Iterator[Found]:
    """Task by task, so that the terminal tells how far it is; random weights of one shape are probed once."""
    seeds = range(config.seed, config.seed + config.seeds)

    def read(bundle: Bundle, task: Probing, form: Form, *, coded: bool = False) -> dict[str, Reading]:
        return {one.layer: one for one in probe(bundle, task, form, seeds, coded=coded)}

    for task in tasks:
        drawn = dict[str, dict[str, Reading]]()
        for name, bundle in bundles.items():
            started = time.perf_counter()
            shape = f"{bundle.model.backbone.config} {bundle.model.causal} {bundle.tokenizer.digest}"
            if config.random and shape not in drawn:
                drawn[shape] = read(with_random_weights(bundle, config.seed), task, "linear")
            mlp = read(bundle, task, "mlp") if config.mlp else {}
            one = Found(task, name, read(bundle, task, "linear", coded=True), mlp, drawn.get(shape, {}))
            console.print(f"{task.name}, {name}: {time.perf_counter() - started:.0f} s", markup=False, highlight=False)
            yield one


def by_layer(found: list[Found], layers: list[str]) -> Section:
    """The chart of layers against scores, one panel a task, and the table of best layers."""
    points, floors = [], list[tuple[str, str, float]]()
    for task in dict.fromkeys(one.task.name for one in found):
        same = [one for one in found if one.task.name == task]
        for one in same:
            points += [(task, one.model, layer, *one.linear[layer].share) for layer in one.linear if layer != BAG]
        if same[0].random:
            points += [(task, RANDOM, layer, *same[0].random[layer].share) for layer in same[0].random if layer != BAG]
        floors += [(task, BAG, same[0].linear[BAG].share[0]), (task, "commonest label", _commonest(same[0].task))]
    caption = "Share of test items a linear probe tells, by layer, with 95 % intervals over sentences and the mean over seeds."
    figure = Figure("probes", caption, probe_chart(points, layers, floors))
    said = (
        "Best layers are chosen on validation. Selectivity: points above a control task with random labels for every word (of a "
        "sentence, for its longest word). Code: how many times shorter the labels are in the online code than in a uniform one.",
    )
    return Section("By layer", said, (figure, Table(HEADER, [one.row() for one in found])))


def _codes(found: list[Found], layers: list[str]) -> Section:
    points = [
        (one.task.name, one.model, layer, *_spread(reading.compression))
        for one in found
        for layer, reading in one.linear.items()
        if layer != BAG
    ]
    floors = [(one.task.name, BAG, float(np.mean(one.linear[BAG].compression))) for one in found if one.model == found[0].model]
    caption = "Compression of the labels by the online code: 1 where nothing is learned; it rewards what is learned from few items."
    figure = Figure("codes", caption, probe_chart(points, layers, floors, form=".1f"))
    return Section("Description length", ("Bars span lowest to highest over seeds.",), (figure,))


def _all_readings(found: list[Found]) -> Section:
    rows = [
        (row["task"], row["model"], row["probe"], row["layer"], _percent(row["share"], row["low"], row["high"]),
         f"{100 * row['control']:.1f} %", f"{100 * row['selectivity']:.1f}")
        for row in readings_of(found).iter_rows(named=True)
    ]  # fmt: skip
    return Section(
        "All readings",
        (),
        (Table(("task", "model", "probe", "layer", "right (95 %)", "control", "selectivity"), rows),),
        folded=True,
    )


def readings_of(found: list[Found]) -> pl.DataFrame:
    """Every reading of every model, one row each."""
    rows = []
    for one in found:
        for form, readings in (("linear", one.linear), ("mlp", one.mlp), (f"linear, {RANDOM}", one.random)):
            for layer, reading in readings.items():
                mean, low, high = reading.share
                code = float(np.mean(reading.compression)) if reading.compression else None
                rows.append(
                    {
                        "task": one.task.name, "model": one.model, "probe": form, "layer": layer,
                        "share": mean, "low": low, "high": high,
                        "control": float(reading.control.mean()), "selectivity": reading.selectivity,
                        "validation": reading.validation, "compression": code, "items": len(reading.groups),
                    }
                )  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


def _best(readings: dict[str, Reading]) -> Reading:
    return max((one for one in readings.values() if one.layer not in (BAG, MIX)), key=lambda one: one.validation)


def layer_name(layer: str) -> str:
    """As a sentence has it."""
    return f"layer {layer}" if layer.isdigit() else f"the {layer}"


def _commonest(task: Probing) -> float:
    """The share of test items that have the commonest training label."""
    train, test = (np.concatenate(part.targets) for part in (task.train, task.test))
    label, _ = Counter(train[train >= 0].tolist()).most_common(1)[0]
    return float((test[test >= 0] == label).mean())


def _percent(mean: float, low: float, high: float) -> str:
    return f"{100 * mean:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def _spread(values: tuple[float, ...]) -> tuple[float, float, float]:
    return float(np.mean(values)), min(values), max(values)


def _names(paths: tuple[str, ...]) -> list[str]:
    """Short names of models: the folder's, or the whole path where two are alike."""
    short = [Path(path).parent.name if Path(path).name == "bundle" else Path(path).name for path in paths]
    return [path if short.count(name) > 1 else name for path, name in zip(paths, short, strict=True)]
