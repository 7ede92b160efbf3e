"""``study probe``: what can be read from every layer, against controls, a bag of embeddings and random weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from pydantic import Field
from tyro.conf import Positional

from warmstart.analysis.activations import layer_names, with_random_weights
from warmstart.analysis.probing import BAG, MIX, Asked, Form, Reading, joined, probe
from warmstart.config import Config
from warmstart.data.conllu import read_conllu
from warmstart.data.probing import Probing, read_tasks, word_tasks
from warmstart.engine import console
from warmstart.errors import ConfigError
from warmstart.model import Bundle
from warmstart.report import Figure, Section, Table
from warmstart.report.probe import Point, probe_chart
from warmstart.workflows.run import load_model, open_run
from warmstart.workflows.studies.conclude import Study, conclude
from warmstart.workflows.studies.wording import layer_name, model_name, percent

RANDOM = "random weights"
SURE = 30
"""test sentences below which an interval is told with their number"""
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
    """linear probes of random weights, every fit on a draw of its own"""

    @property
    def asked(self) -> Asked:
        """What the model could be asked."""
        return self.linear[BAG].asked

    @property
    def best(self) -> Reading:
        """The layer that is best on validation; the mix and the bag are none."""
        return _best(self.linear)

    def sentence(self) -> str:
        """What can be read, and how sure that is."""
        best, (mean, low, high) = self.best, self.best.share
        said = f"{self.task.name}: {layer_name(best.layer)} of {self.model} tells {percent(mean, low, high)} of test items"
        others = [(BAG, "", self.linear[BAG])]
        if self.random:
            drawn = _best(self.random)
            others.append((draws_of(drawn), ", for this draw alone" if len(drawn.right) == 1 else "", drawn))
        parts = []
        for name, alone, other in others:
            gap, low, high = best.above(other)
            sure = "" if low > 0 or high < 0 else ", which shows nothing"
            parts.append(f"{100 * gap:+.1f} points against {name} ({100 * low:+.1f} to {100 * high:+.1f}{alone}{sure})")
        sentences = len(np.unique(best.groups))
        few = f"; over {len(best.groups)} items of {sentences} sentences" if sentences < SURE else ""
        return f"{said}; {', '.join(parts)}{few}"

    def row(self) -> tuple[str, ...]:
        """A line of the table."""
        best = self.best
        return (
            self.task.name, self.model, best.layer, percent(*best.share),
            f"{100 * _best(self.mlp).share[0]:.1f} %" if self.mlp else "-",
            f"{100 * self.linear[BAG].share[0]:.1f} %",
            f"{100 * _best(self.random).share[0]:.1f} %" if self.random else "-",
            f"{100 * best.selectivity:.1f}",
            f"{np.mean(best.compression):.2f} ({np.mean(self.asked.frequencies):.2f})" if best.compression else "-",
        )  # fmt: skip


def study_probe(config: ProbeConfig) -> list[Found]:
    """Probe, print and write the page; the ``study probe`` command."""
    tasks = read_tasks(config.tasks)
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
        [*(one.sentence() for one in found), *unfit(found)],
        sections,
        {"probes": readings_of(found)},
        tuple((f"{one.task.name}, {one.model}", f"{100 * one.best.share[0]:.1f} %") for one in found),
        ([(row[0], *row[1:3], row[3].split(" (")[0], *row[4:]) for row in (one.row() for one in found)], SHORT),
    )
    conclude(study, config, folder, config.models)
    return found


def _probed(bundles: dict[str, Bundle], tasks: list[Probing], config: ProbeConfig) -> Iterator[Found]:
    """Task by task, so that the terminal tells how far it is; random weights of one shape are probed once, every fit on a draw."""
    seeds = range(config.seed, config.seed + config.seeds)

    def read(bundle: Bundle, task: Probing, form: Form, *, coded: bool = False) -> dict[str, Reading]:
        return joined([probe(bundle, task, form, seeds, coded=coded)])

    def by_chance(bundle: Bundle, task: Probing) -> dict[str, Reading]:
        return joined([probe(with_random_weights(bundle, seed), task, "linear", [seed]) for seed in seeds])

    for task in tasks:
        drawn = dict[str, dict[str, Reading]]()
        for name, bundle in bundles.items():
            started = time.perf_counter()
            shape = f"{bundle.model.backbone.config} {bundle.model.causal} {bundle.tokenizer.digest}"
            if config.random and shape not in drawn:
                drawn[shape] = by_chance(bundle, task)
            mlp = read(bundle, task, "mlp") if config.mlp else {}
            one = Found(task, name, read(bundle, task, "linear", coded=True), mlp, drawn.get(shape, {}))
            console.print(f"{task.name}, {name}: {time.perf_counter() - started:.0f} s", markup=False, highlight=False)
            yield one


def by_layer(found: list[Found], layers: list[str]) -> Section:
    """The chart of layers against scores, one panel a task, and the table of best layers."""
    points = [point for task in dict.fromkeys(one.task.name for one in found) for point in _points(found, task)]
    floors = floors_of(found, BAG, lambda one: one.linear[BAG].share[0])
    floors += floors_of(found, "commonest label", lambda one: one.asked.commonest)
    caption = "Share of test items a linear probe tells, by layer, with 95 % intervals over sentences and the mean over seeds."
    if found[0].random:
        caption += f" Random weights: {draws_of(_best(found[0].random))}; intervals are over sentences, not over draws."
    figure = Figure("probes", caption, probe_chart(points, layers, floors))
    said = (
        "Best layers are chosen on validation. Selectivity: points above a control task with random labels for every word (of a "
        "sentence, for its longest word). Code: how many times shorter the labels are in the online code than in a uniform one; in "
        "brackets, by how frequent labels are alone, with nothing to read.",
    )
    return Section("By layer", said, (figure, Table(HEADER, [one.row() for one in found])))


def _points(found: Sequence[Found], task: str) -> list[Point]:
    """Every layer of every model for a task, and of random weights, under the names of the models that share them."""
    same = [one for one in found if one.task.name == task]
    points = [(task, one.model, layer, *one.linear[layer].share) for one in same for layer in one.linear if layer != BAG]
    drawn = dict[bytes, list[Found]]()
    for one in same:
        drawn.setdefault(b"".join(reading.right.tobytes() for reading in one.random.values()), []).append(one)
    for sharing in drawn.values():
        name = RANDOM if len(drawn) == 1 else f"{RANDOM}, {' and '.join(one.model for one in sharing)}"
        points += [(task, name, layer, *reading.share) for layer, reading in sharing[0].random.items() if layer != BAG]
    return points


def floors_of(found: Sequence[Found], name: str, value: Callable[[Found], float]) -> list[tuple[str, str, float]]:
    """The floor of every task: one where models have the same, else one a model, named after it."""
    each = [(one.task.name, one.model, value(one)) for one in found]
    first = {task: share for task, _, share in reversed(each)}
    if all(share == first[task] for task, _, share in each):
        return [(task, name, share) for task, share in first.items()]
    return [(task, f"{name}, {model}", share) for task, model, share in each]


def draws_of(random: Reading) -> str:
    """``3 draws of random weights``."""
    return f"{len(random.right)} draws of {RANDOM}" if len(random.right) > 1 else f"one draw of {RANDOM}"


def unfit(found: Sequence[Found]) -> list[str]:
    """What did not fit into the models, and where they were therefore asked different items: one sentence each."""
    said = list[str]()
    for one in found:
        if one.asked.lost:
            count = f"{one.task.name}: {one.asked.lost:,} of {one.asked.whole:,}"
            said.append(
                f"{count} words did not fit into {one.model} and are not asked" if one.task.words
                else f"{count} sentences are cut to what fits into {one.model}"
            )  # fmt: skip
    for task in dict.fromkeys(one.task.name for one in found if one.task.words):
        same = [one for one in found if one.task.name == task]
        if len({(one.asked.lost, one.best.groups.tobytes()) for one in same}) > 1:
            counts = ", ".join(f"{one.model} {len(one.best.groups):,}" for one in same)
            said.append(
                f"{task}: models were asked different items, as not all fit (in test: {counts}), so that shares do not compare"
            )
    return said


def _codes(found: list[Found], layers: list[str]) -> Section:
    points = [
        (one.task.name, one.model, layer, *_spread(reading.compression))
        for one in found
        for layer, reading in one.linear.items()
        if layer != BAG
    ]
    floors = floors_of(found, BAG, lambda one: float(np.mean(one.linear[BAG].compression)))
    floors += floors_of(found, "frequencies alone", lambda one: float(np.mean(one.asked.frequencies)))
    caption = (
        "Compression of the labels by the online code, beside what is gained by how frequent labels are alone, with nothing to "
        "read. It rewards what is learned from few items."
    )
    figure = Figure("codes", caption, probe_chart(points, layers, floors, form=".1f"))
    return Section("Description length", ("Bars span lowest to highest over seeds.",), (figure,))


def _all_readings(found: list[Found]) -> Section:
    rows = [
        (row["task"], row["model"], row["probe"], row["layer"], percent(row["share"], row["low"], row["high"]),
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
                code, alone = (float(np.mean(c)) if c else None for c in (reading.compression, reading.asked.frequencies))
                rows.append(
                    {
                        "task": one.task.name, "model": one.model, "probe": form, "layer": layer,
                        "share": mean, "low": low, "high": high,
                        "control": float(reading.control.mean()), "selectivity": reading.selectivity,
                        "validation": reading.validation, "compression": code, "compression_frequencies": alone,
                        "items": len(reading.groups),
                    }
                )  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


def _best(readings: dict[str, Reading]) -> Reading:
    return max((one for one in readings.values() if one.layer not in (BAG, MIX)), key=lambda one: one.validation)


def _spread(values: tuple[float, ...]) -> tuple[float, float, float]:
    return float(np.mean(values)), min(values), max(values)


def _names(paths: tuple[str, ...]) -> list[str]:
    """Short names of models: the folder's, or the whole path where two are alike."""
    short = [model_name(path) for path in paths]
    return [path if short.count(name) > 1 else name for path, name in zip(paths, short, strict=True)]
