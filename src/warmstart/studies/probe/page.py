"""The page of ``study probe``: accuracy and compression by layer, and the scores of every probe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from warmstart.inspection.probe_scores import BAG, best_layer
from warmstart.report.parts import Figure, Section, Table
from warmstart.report.study_charts import ProbePoint, probe_chart
from warmstart.stats.formatting import percent, percent_interval, percent_value
from warmstart.studies.probe.result import PROBES_HEADER, RANDOM, draws_of, probe_row, scores_table

if TYPE_CHECKING:
    from warmstart.studies.probe.measure import TaskProbes


def layers_section(probes: Sequence[TaskProbes], layers: Sequence[str]) -> Section:
    """Accuracy by layer, one panel per task, and the table of best layers."""
    tasks = dict.fromkeys(one.task.name for one in probes)
    points = [point for task in tasks for point in accuracy_points(probes, task)]
    baselines = baselines_of(probes, BAG, lambda one: one.linear[BAG].accuracy.value)
    baselines += baselines_of(probes, "most frequent label", lambda one: one.items.majority)
    caption = "Accuracy of linear probes on the test items, by layer: mean over seeds, with 95% intervals over sentences."
    if probes[0].random:
        draws = draws_of(best_layer(probes[0].random))
        caption += f" {RANDOM.capitalize()}: {draws}; their intervals are over sentences, not over draws."
    text = (
        "Best layers are chosen on validation. Selectivity: points above a control task with a random label for every word (for "
        "sentences: for their longest word). Compression: how many times shorter the labels are in the online code than in a "
        "uniform code; in brackets, what the frequencies of the labels alone give."
    )
    figure = Figure("probes", caption, probe_chart(points, layers, baselines))
    return Section("By layer", (text,), (figure, Table(PROBES_HEADER, [probe_row(one) for one in probes])))


def accuracy_points(probes: Sequence[TaskProbes], task: str) -> list[ProbePoint]:
    """Every layer of every model on a task, and of random weights, named after the models that share them."""
    same = [one for one in probes if one.task.name == task]
    points = [(task, one.model, layer, *one.linear[layer].accuracy) for one in same for layer in one.linear if layer != BAG]
    sharing = dict[bytes, list["TaskProbes"]]()
    for one in same:
        sharing.setdefault(b"".join(scores.correct.tobytes() for scores in one.random.values()), []).append(one)
    for models in sharing.values():
        name = RANDOM if len(sharing) == 1 else f"{RANDOM}, {' and '.join(one.model for one in models)}"
        points += [(task, name, layer, *scores.accuracy) for layer, scores in models[0].random.items() if layer != BAG]
    return points


def baselines_of(probes: Sequence[TaskProbes], name: str, value: Callable[[TaskProbes], float]) -> list[tuple[str, str, float]]:
    """The baseline ``value`` of every task: one if all models have the same, else one per model, named after it."""
    each = [(one.task.name, one.model, value(one)) for one in probes]
    first = {task: figure for task, _, figure in reversed(each)}
    if all(figure == first[task] for task, _, figure in each):
        return [(task, name, figure) for task, figure in first.items()]
    return [(task, f"{name}, {model}", figure) for task, model, figure in each]


def compression_section(probes: Sequence[TaskProbes], layers: Sequence[str]) -> Section:
    """Compression by the online code, by layer."""
    points = [
        (one.task.name, one.model, layer, *_mean_and_range(scores.compression))
        for one in probes
        for layer, scores in one.linear.items()
        if layer != BAG
    ]
    baselines = baselines_of(probes, BAG, lambda one: float(np.mean(one.linear[BAG].compression)))
    baselines += baselines_of(probes, "label frequencies", lambda one: one.items.frequency_compression)
    caption = (
        "How many times shorter the labels are in the online code than in a uniform code; dashed: what the frequencies of the "
        "labels alone give. It rewards what is learned from few items."
    )
    figure = Figure("codes", caption, probe_chart(points, layers, baselines, form=".1f"))
    return Section("Description length", ("Bars span the lowest to the highest seed.",), (figure,))


def all_scores_section(probes: Sequence[TaskProbes]) -> Section:
    """The scores of every probe."""
    header = ("task", "model", "probe", "layer", "accuracy (95% over sentences)", "control", "selectivity")
    rows = [
        (row["task"], row["model"], row["probe"], row["layer"], percent_interval(row["accuracy"], row["low"], row["high"]),
         percent(row["control_accuracy"]), percent_value(row["selectivity"]))
        for row in scores_table(probes).iter_rows(named=True)
    ]  # fmt: skip
    return Section("All probes", (), (Table(header, rows),), folded=True)


def _mean_and_range(values: tuple[float, ...]) -> tuple[float, float, float]:
    return float(np.mean(values)), min(values), max(values)
