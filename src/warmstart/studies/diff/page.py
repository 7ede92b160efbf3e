"""The page of ``study diff``: one section for each thing that was compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from warmstart.report.charts import BARE, Chart, chart_of, coloured, finish
from warmstart.report.page import Figure, Section, Table
from warmstart.report.result import StudyResult
from warmstart.report.study_charts import interval_chart, layers_chart, probe_chart
from warmstart.report.theme import BLUE, INK, SEQUENTIAL, THEME, WHITE
from warmstart.stats.formatting import figure_interval, percent, points_interval
from warmstart.studies.diff.result import DiffDetails, most_changed, weight_name

_SHOWN_WORDS, _SHOWN_NEIGHBOURS = 12, 5
_Row = Mapping[str, Any]


def diff_sections(result: StudyResult) -> list[Section]:
    """Everything that was compared, in the order of the findings."""
    details: DiffDetails = result.details
    tables, figures = result.tables, result.figures
    sections = [_states(details, tables["cka"], result)]
    if "language" in tables:
        sections.append(_language(tables["language"], figures))
    sections.append(_weights(tables["weights"]))
    if "attention" in tables:
        sections.append(_attention(tables["attention"]))
    if "neighbours" in tables:
        sections.append(_neighbours(details))
    if "probes" in tables:
        sections.append(_probes(tables["probes"], details))
    return sections


def diff_tiles(result: StudyResult) -> list[tuple[str, str]]:
    """The key figures at the top of the page."""
    figures = result.figures
    tiles = [
        ("CKA of the last layer", f"{figures['cka_last_layer']:.3f}"),
        ("random weights", f"{figures['random_cka_last_layer']:.3f}"),
    ]
    if "loss_before" in figures:
        tiles.append(("loss before, after", f"{figures['loss_before']:.3f}, {figures['loss_after']:.3f}"))
    if "neighbour_overlap_last_layer" in figures:
        tiles.append(("neighbours that remain, last layer", percent(figures["neighbour_overlap_last_layer"], 0)))
    return tiles


def _states(details: DiffDetails, cka: pl.DataFrame, result: StudyResult) -> Section:
    lines = [
        (name, layer.name, *estimate)
        for name, estimates in (
            ("before and after", [layer.cka for layer in details.layers]),
            ("before and random weights", [layer.random_cka for layer in details.layers]),
            ("cosine of a token with itself", [layer.cosine for layer in details.layers]),
        )
        for layer, estimate in zip(details.layers, estimates, strict=True)
    ]
    cells = [
        {"x": row["layer"], "y": row["before"], "value": row["cka"], "low": row["low"], "high": row["high"]}
        for row in cka.filter(pl.col("compared_with") == "after").iter_rows(named=True)
    ]
    caption = "Unbiased linear CKA with 95% intervals over passages (jackknife), and cosines."
    states = details.measured.states
    text = (
        f"{len(states.owners):,} tokens of {states.cka.shape[2] - 1:,} passages. CKA is 1 for states that were only rotated, "
        "mirrored or scaled; the cosine falls for these too. Random weights: untrained backbones of the same shape, the mean of "
        f"{states.random_draws} draws; the interval is over passages only.",
    )
    assert result.summary is not None
    items = (
        Figure("layers", caption, layers_chart(lines, "")),
        Figure("grid", "CKA of every layer before with every layer after.", grid_chart(cells, ("after", "before"), "CKA")),
        Table(*result.summary),
    )
    return Section("Hidden states", text, items)


def _language(passages: pl.DataFrame, figures: Mapping[str, float]) -> Section:
    rows = [("loss, nats per token", f"{figures['loss_before']:.4f}", f"{figures['loss_after']:.4f}")]
    if "word_perplexity_before" in figures:
        perplexities = (figures[f"word_perplexity_{when}"] for when in ("before", "after"))
        rows.append(("word perplexity", *(f"{value:,.1f}" for value in perplexities)))  # type: ignore[arg-type]
    chart = losses_chart(passages.to_dicts())
    figure = Figure("language", "Each passage's loss before and after; dashed: no change.", chart)
    return Section("Language loss", (), (figure, Table(("figure", "before", "after"), rows)))


def _weights(weights: pl.DataFrame) -> Section:
    rows = weights.to_dicts()
    cells = [
        (
            weight_name(row["part"], row["block"]),
            f"{row['norm']:.3f}",
            "nan" if (share := row["relative_change"]) is None else percent(share, 2),
        )
        for row in rows
    ]
    text = "||after - before|| / ||before||, LoRA merged. Adapters and other new parameters have no counterpart and are left out."
    figure = Figure("weights", "Relative change of the weights of each part.", weights_chart([row for row in rows if row["block"]]))
    return Section("Weights", (text,), (figure, Table(("part", "norm before", "change"), cells)))


def _attention(heads: pl.DataFrame) -> Section:
    rows = heads.to_dicts()
    cells = [
        {"x": row["head"], "y": row["layer"], "value": row["divergence"], "low": row["low"], "high": row["high"]} for row in rows
    ]
    table = []
    for layer in dict.fromkeys(row["layer"] for row in rows):
        of_layer = [row for row in rows if row["layer"] == layer]
        divergences = [row["divergence"] for row in of_layer]
        mean, largest = sum(divergences) / len(divergences), max(divergences)
        table.append((str(layer), f"{mean:.3f}", f"{largest:.3f}", _between_heads(of_layer[0])))
    top = max(*(row["divergence"] for row in rows), 0.05)
    text = "Jensen-Shannon divergence in bits over tokens that attend to more than one; bootstrap intervals over passages."
    figure = Figure("attention", "The change of each head's attention.", grid_chart(cells, ("head", "layer"), "bits", top))
    header = ("layer", "mean over heads", "largest", "between two heads (95%)")
    return Section("Attention", (text,), (figure, Table(header, table)))


def _between_heads(row: _Row) -> str:
    values = [row[name] for name in ("between_heads", "between_heads_low", "between_heads_high")]
    return "nan" if None in values else figure_interval(*values)


def _neighbours(details: DiffDetails) -> Section:
    words, last = details.measured.words.words, details.measured.neighbours[-1]

    def spelled(row: Sequence[int]) -> str:
        return " ".join(words[i] for i in row[:_SHOWN_NEIGHBOURS])

    overlap = last.overlap_of_all
    changed = [
        (words[i], percent(overlap[i], 0), spelled(last.before[i]), spelled(last.after[i]))
        for i in most_changed(last)[:_SHOWN_WORDS]
    ]
    text = (
        "A word in context is the mean over half of its occurrences, the same half in both models; other occurrences: the other "
        f"half, in the first model. The table is of {last.space} over all occurrences, with the five nearest neighbours.",
    )
    chart = interval_chart(details.neighbours, f"{last.before.shape[1]} nearest neighbours in common")
    items = (
        Figure("neighbours", "Neighbours that remain.", chart),
        Table(("word", "remain", "neighbours before", "after"), changed),
    )
    return Section("Neighbours", text, items)


def _probes(probes: pl.DataFrame, details: DiffDetails) -> Section:
    rows = probes.to_dicts()
    layers = details.measured.probes[0].layers
    points = [
        (row["task"], "after - before", row["layer"], row["difference"], row["low"], row["high"])
        for row in rows
        if row["layer"] in layers
    ]
    tasks = [(one.task, "no change", 0.0) for one in details.measured.probes]
    caption = "Accuracy of linear probes on test items, after minus before, with 95% intervals over sentences."
    cells = [
        (
            row["task"],
            row["layer"],
            percent(row["before"]),
            percent(row["after"]),
            points_interval(row["difference"], row["low"], row["high"]),
        )
        for row in rows
    ]
    figure = Figure("probes", caption, probe_chart(points, layers, tasks, "+.0%"))
    return Section("Probes", (), (figure, Table(("task", "layer", "before", "after", "difference (95%)"), cells)))


def grid_chart(rows: Sequence[_Row], axes: tuple[str, str], title: str, top: float = 1.0) -> Chart:
    """A cell for each row with ``x``, ``y`` (in their order), ``value``, ``low`` and ``high``; the shade goes from 0 to ``top``."""
    x, y = (list(dict.fromkeys(row[name] for row in rows)) for name in ("x", "y"))
    step = 44 if len(x) <= 13 else 26
    scale = alt.Scale(domain=[0, top], range=SEQUENTIAL, clamp=True, interpolate="rgb")
    tips = [alt.Tooltip("x:N", title=axes[0]), alt.Tooltip("y:N", title=axes[1])]
    base = chart_of(rows).encode(
        x=alt.X("x:N", sort=x, title=axes[0], axis=alt.Axis(labelAngle=0 if len(str(x[0])) < 4 else -40, **BARE)),
        y=alt.Y("y:N", sort=y[::-1], title=axes[1], axis=alt.Axis(**BARE)),
        tooltip=[*tips, *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("value", "low", "high"))],
    )
    legend = alt.Legend(title=title, titleLimit=300, orient="bottom", gradientLength=240)
    cells = base.mark_rect(stroke=WHITE, strokeWidth=1).encode(color=alt.Color("value:Q", scale=scale, legend=legend))
    ink = alt.condition(f"datum.value > {0.6 * top}", alt.value(WHITE), alt.value(INK))
    labels = base.mark_text(fontSize=11 if step > 30 else 8).encode(text=alt.Text("value:Q", format=".2f"), color=ink)
    # cells keep their size; a narrow screen scrolls
    return (cells + labels).properties(width=alt.Step(step), height=alt.Step(min(step, 30))).configure(**THEME)


def weights_chart(rows: Sequence[_Row]) -> Chart:
    """The relative change of each part in each block, from rows with ``part``, ``block`` and ``relative_change``."""
    values = [{"part": row["part"], "block": str(row["block"]), "change": row["relative_change"]} for row in rows]
    parts, blocks = (list(dict.fromkeys(row[name] for row in values)) for name in ("part", "block"))
    base = chart_of(values).encode(
        x=alt.X("block:N", sort=blocks, title="block", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("change:Q", title="relative change of the weights", axis=alt.Axis(format="~%")),
        color=coloured("part", parts),
        tooltip=["part:N", "block:N", alt.Tooltip("change:Q", format=".2%")],
    )
    return finish(base.mark_line(strokeWidth=2) + base.mark_point(filled=True, size=50, opacity=1), 260)


def losses_chart(rows: Sequence[_Row]) -> Chart:
    """One dot a passage, from rows with ``tokens`` and the losses ``before`` and ``after``; on the line nothing changed."""
    losses = [row[name] for row in rows for name in ("before", "after")]
    ends = [min(losses), max(losses)]
    scale = alt.Scale(domain=ends, nice=True, zero=False)
    line = chart_of([{"before": end, "after": end} for end in ends]).mark_line(strokeDash=[4, 4], color=INK, opacity=0.6)
    dots = chart_of(rows).mark_point(filled=True, size=34, opacity=0.55, color=BLUE)
    tips = [alt.Tooltip("tokens:Q", format=","), *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("before", "after"))]
    x = alt.X("before:Q", scale=scale, title="loss before (nats per token)")
    y = alt.Y("after:Q", scale=scale, title="loss after (nats per token)")
    return finish(line.encode(x=x, y=y) + dots.encode(x=x, y=y, tooltip=tips), 360)
