"""The page of ``study map``: neighbours, analogies, self-similarity, contexts of words, and the maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt
import polars as pl

from warmstart.report.charts import Chart, chart_of, finish
from warmstart.report.page import Figure, Section, Table
from warmstart.report.result import StudyResult
from warmstart.report.study_charts import interval_chart, layers_chart
from warmstart.report.theme import BLUE, INK
from warmstart.stats.formatting import figure_interval, percent, percent_interval
from warmstart.studies.map.result import OFFSET, THIRD_WORD, analogy_accuracies, random_pairs_text

if TYPE_CHECKING:
    from warmstart.studies.map.measure import Contexts, MapMeasurement, WordMap

_ENDS = 3
"""contexts listed from each end of the first axis"""


def map_sections(result: StudyResult) -> list[Section]:
    """Everything that was measured, in the order of the findings."""
    measured: MapMeasurement = result.details
    sections = _neighbours(measured, result.tables["neighbours"]) if "neighbours" in result.tables else []
    if "analogies" in result.tables:
        sections.append(_analogies(result.tables["analogies"]))
    if "layers" in result.tables:
        sections.append(_self_similarity(measured, result.tables["layers"]))
        sections += [_contexts(measured, number, one) for number, one in enumerate(measured.contexts, 1)]
    sections += [_map(one, result.tables["map"]) for one in measured.maps]
    assert result.summary is not None
    return [*sections, Section("Trustworthiness of the maps", (), (Table(*result.summary),))]


def map_tiles(result: StudyResult) -> list[tuple[str, str]]:
    """The key figures at the top of the page."""
    names = {"analogies_correct": "analogies correct", "third_word_alone_correct": THIRD_WORD}
    return [(names[name], percent(value)) for name, value in result.figures.items()]


def _neighbours(measured: MapMeasurement, table: pl.DataFrame) -> list[Section]:
    """One section for each space."""
    header = ("word", "rank", "neighbour", "cosine")
    sections = []
    for one in measured.neighbours:
        rows = [
            (row["word"], str(row["rank"]), row["neighbour"], f"{row['cosine']:.3f}")
            for row in table.filter(pl.col("space") == one.space).iter_rows(named=True)
        ]
        sections.append(Section(f"Neighbours: {one.space}", (f"Cosines; {random_pairs_text(one)}.",), (Table(header, rows),)))
    return sections


def _analogies(table: pl.DataFrame) -> Section:
    rows = analogy_accuracies(table)
    cells = {(method, section): percent_interval(*accuracy) for method, section, *accuracy in rows}
    sections = list(dict.fromkeys(section for _, section, *_ in rows))
    figure = Figure(
        "analogies", "Questions answered correctly, with 95% intervals over questions (Wilson).",
        interval_chart(rows, "questions answered correctly"),
    )  # fmt: skip
    table_rows = [(section, cells[OFFSET, section], cells[THIRD_WORD, section]) for section in sections]
    return Section("Analogies", (), (figure, Table(("section (questions)", OFFSET, THIRD_WORD), table_rows)))


def _self_similarity(measured: MapMeasurement, layers: pl.DataFrame) -> Section:
    rows = layers.rows()
    series = list(dict.fromkeys(row[0] for row in rows))
    cells = [[layer, *(figure_interval(*row[2:]) for row in rows if row[1] == layer)] for layer in measured.layers]
    text = (
        f"Mean cosine of {measured.random_words} random words, one occurrence each; for a given word, the mean cosine between its "
        "occurrences minus that of random words. 95% bootstrap intervals over occurrences.",
    )
    caption = "Cosines at each layer. The embedding includes positions, if the model adds them."
    return Section(
        "Self-similarity", text, (Figure("layers", caption, layers_chart(rows, "mean cosine")), Table(("layer", *series), cells))
    )


def _contexts(measured: MapMeasurement, number: int, one: Contexts) -> Section:
    """The occurrences of a word on two axes; a table lists those at both ends of the first axis."""
    rows = [(*text, x, y) for text, (x, y) in zip(one.texts, one.points.tolist(), strict=True)]
    ranked = sorted(rows, key=lambda row: row[3])
    ends = [("low", row) for row in ranked[:_ENDS]] + [("high", row) for row in ranked[_ENDS:][-_ENDS:]]
    table = Table(("end of axis 1", "left", "word", "right"), [(end, *row[:3]) for end, row in ends])
    caption = f"PCA of {len(rows)} occurrences of “{one.word}” at layer {measured.inputs.layer}; point at one to read its context."
    figure = Figure(f"contexts-{number}", caption, contexts_chart(rows, _axes(one.explained_variance)))
    return Section(f"Contexts of “{one.word}”", (), (figure, table))


def _map(one: WordMap, table: pl.DataFrame) -> Section:
    """A space by t-SNE and by PCA."""
    figures = []
    for projection in (one.tsne, one.pca):
        inside = table.filter(pl.col("space") == one.space, pl.col("method") == projection.method)
        name = f"{one.space}-{projection.method}".replace(" ", "-")
        caption = f"{projection.method}, trustworthiness {projection.trustworthiness:.3f}."
        figures.append(Figure(name, caption, words_chart(inside.to_dicts(), _axes(projection.explained_variance))))
    return Section(f"Map: {one.space}", (), figures)


def _axes(explained: tuple[float, float] | None) -> tuple[str, str]:
    """Titles of a map's axes; those of t-SNE mean nothing."""
    if explained is None:
        return "", ""
    first, second = (f"axis {i}: {percent(fraction)} of the variance" for i, fraction in enumerate(explained, 1))
    return first, second


def words_chart(rows: Sequence[dict[str, object]], axes: tuple[str, str]) -> Chart:
    """Words from rows with ``word``, ``count`` in the text or None, ``x`` and ``y``; the chart can be dragged and zoomed."""
    tips = [alt.Tooltip("word:N"), *([alt.Tooltip("count:Q", format=",")] if rows[0]["count"] is not None else [])]
    chart = chart_of(rows).mark_text(fontSize=10, color=INK).encode(*_plane(axes), text="word:N", tooltip=tips)
    return finish(chart.interactive(), 560)


def contexts_chart(rows: Sequence[tuple[str, str, str, float, float]], axes: tuple[str, str]) -> Chart:
    """Rows of (left of the word, the word, right of it, x, y)."""
    values = [{"context": f"{left} [{word}] {right}".strip(), "x": x, "y": y} for left, word, right, x, y in rows]
    dots = chart_of(values).mark_point(filled=True, size=60, opacity=0.6, color=BLUE)
    return finish(dots.encode(*_plane(axes), tooltip=alt.Tooltip("context:N")).interactive(), 360)


def _plane(axes: tuple[str, str]) -> tuple[alt.X, alt.Y]:
    """Two axes without numbers, since only which points are near means anything."""
    axis, scale = alt.Axis(labels=False, ticks=False, grid=False), alt.Scale(zero=False, nice=False, padding=20)
    return alt.X("x:Q", title=axes[0], axis=axis, scale=scale), alt.Y("y:Q", title=axes[1], axis=axis, scale=scale)
