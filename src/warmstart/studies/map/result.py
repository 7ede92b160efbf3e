"""What ``study map`` reports: how trustworthy the maps are, nearest neighbours, self-similarity by layer, and analogies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from warmstart.report.result import StudyResult, Summary, combine_results
from warmstart.stats.comparison import limit_clause
from warmstart.stats.formatting import figure_interval, layer_name, percent, percent_interval, percent_range, points_interval
from warmstart.stats.intervals import normal_interval, percentiles
from warmstart.stats.proportions import wilson_interval

if TYPE_CHECKING:
    from warmstart.inspection.neighbours import AnalogyAnswers
    from warmstart.studies.map.measure import Contexts, MapMeasurement, Projection, WordMap, WordNeighbours

RANDOM_WORDS = "random words"
OFFSET, THIRD_WORD = "offset (b - a + c)", "third word alone"


def map_result(measured: MapMeasurement, model: str, seed: int) -> StudyResult:
    """The result of ``study map`` of a model by its name."""
    parts = []
    if measured.inputs.neighbours_of:
        parts.append(_neighbours(measured))
    if measured.analogies is not None:
        parts.append(_analogies(measured, measured.analogies, seed))
    if measured.random_cosines is not None:
        parts.append(_cosines(measured, measured.random_cosines))
    near = "the same command with --neighbours-of WORD lists the nearest words of a word; --contexts-of WORD maps its contexts."
    next_step = "" if measured.inputs.neighbours_of else near
    return replace(combine_results(f"Map: {model}", [*parts, _maps(measured)]), details=measured, next_step=next_step)


def _maps(measured: MapMeasurement) -> StudyResult:
    header = ("space", "words", "method", "trustworthiness", "highest of shuffled maps", "variance explained")
    findings, cells, tables = list[str](), list[list[str]](), list[pl.DataFrame]()
    for one in measured.maps:
        findings.append(_map_finding(one))
        for projection in (one.tsne, one.pca):
            explained = "-" if projection.explained_variance is None else percent(sum(projection.explained_variance))
            trust = [f"{projection.trustworthiness:.3f}", f"{projection.shuffled:.3f}"]
            cells.append([one.space, f"{len(one.words):,}", projection.method, *trust, explained])
            tables.append(_points_table(measured, one, projection))
    if measured.overlap is not None:
        findings.append(_overlap_finding(measured, measured.overlap))
    return StudyResult("Maps", findings, {"map": pl.concat(tables)}, summary=Summary(header, cells))


def _points_table(measured: MapMeasurement, one: WordMap, projection: Projection) -> pl.DataFrame:
    lexicon, (x, y) = measured.inputs.lexicon, projection.points.astype(float).T
    counts = [lexicon.counts[i] if lexicon.counts else None for i in one.words]
    data = {"word": [lexicon.words[i] for i in one.words], "count": counts, "space": [one.space] * len(counts)}
    return pl.DataFrame(data | {"method": [projection.method] * len(counts), "x": x, "y": y}, schema_overrides={"count": pl.Int64})


def _map_finding(one: WordMap) -> str:
    space = "static vectors" if one.space == "static" else f"states at {one.space}"
    shuffled = max(one.tsne.shuffled, one.pca.shuffled)
    return (
        f"The trustworthiness of the map of {len(one.words):,} words by their {space} is {one.tsne.trustworthiness:.3f} for t-SNE "
        f"and {one.pca.trustworthiness:.3f} for PCA (1 is best; maps with shuffled points have at most {shuffled:.3f}). The two "
        f"axes of PCA explain {percent(sum(one.pca.explained_variance or ()))} of the variance."
    )


def _overlap_finding(measured: MapMeasurement, overlap: np.ndarray) -> str:
    """Whether the same words are near in the embedding and in context."""
    value, low, high = normal_interval(overlap)
    count = measured.overlap_neighbours
    return (
        f"Of each word's {count} nearest words, {percent(value, 0)} ({percent_range(low, high, digits=0)}, 95% over words) are the "
        f"same in the embedding and at layer {measured.inputs.layer}; by chance it would be {percent(count / (len(overlap) - 1))}."
    )


def random_pairs_text(neighbours: WordNeighbours) -> str:
    """The cosines of random pairs, for comparison with the cosines of neighbours."""
    low, high = percentiles(neighbours.random_cosines)
    return f"random pairs have a mean cosine of {neighbours.random_cosines.mean():.2f} (95% of them {low:.2f} to {high:.2f})"


def _neighbours(measured: MapMeasurement) -> StudyResult:
    words = measured.inputs.lexicon.words
    present = {word for one in measured.neighbours for word in one.words}
    findings = [f"'{word}' never fits into the model's context." for word in measured.inputs.neighbours_of if word not in present]
    rows = list[tuple[str, str, int, str, float]]()
    for one in measured.neighbours:
        for word, order, cosines in zip(one.words, one.neighbours, one.cosines, strict=True):
            named = [(words[other], float(cosine)) for other, cosine in zip(order, cosines, strict=True)]
            rows += [(word, one.space, rank, other, cosine) for rank, (other, cosine) in enumerate(named, 1)]
            nearest = ", ".join(f"{other} ({cosine:.2f})" for other, cosine in named[:3])
            findings.append(f"Nearest to '{word}' among {one.searched:,} words ({one.space}): {nearest}; {random_pairs_text(one)}.")
    header = ["word", "space", "rank", "neighbour", "cosine"]
    return StudyResult("Neighbours", findings, {"neighbours": pl.DataFrame(rows, schema=header, orient="row")})


def self_similarity_name(word: str) -> str:
    """The series of a word's own cosines: ``“cat” above random words``."""
    return f"“{word}” above {RANDOM_WORDS}"


def _cosines(measured: MapMeasurement, random: np.ndarray) -> StudyResult:
    """How similar random words are at each layer, and how similar a word's occurrences are beyond that."""
    series = {RANDOM_WORDS: random} | {self_similarity_name(one.word): one.cosines for one in measured.contexts}
    rows = [
        (name, layer, float(cosines[0, i]), *percentiles(cosines[1:, i]).tolist())
        for name, cosines in series.items()
        for i, layer in enumerate(measured.layers)
    ]
    layers = pl.DataFrame(rows, schema=["series", "layer", "value", "low", "high"], orient="row")
    here = {row[0]: row[2:] for row in rows if row[1] == measured.layers[measured.inputs.layer]}
    findings = [_context_finding(measured, one, layers) for one in measured.contexts]
    findings.append(
        f"At layer {measured.inputs.layer} random words have a mean cosine of {figure_interval(*here[RANDOM_WORDS])}; compare any "
        "cosine at this layer with it."
    )
    tables = {"layers": layers}
    if measured.contexts:
        tables["contexts"] = pl.DataFrame([row for one in measured.contexts for row in _context_rows(one)])
    return StudyResult("Self-similarity", findings, tables)


def _context_finding(measured: MapMeasurement, one: Contexts, layers: pl.DataFrame) -> str:
    rows = layers.filter(pl.col("series") == self_similarity_name(one.word)).to_dicts()
    low, *_, high = sorted(rows, key=lambda row: float(row["value"]))
    here = rows[measured.inputs.layer]
    values = {name: figure_interval(row["value"], row["low"], row["high"]) for name, row in (("low", low), ("high", high))}
    return (
        f"'{one.word}' in {len(one.texts)} contexts: at layer {measured.inputs.layer} the cosine between its occurrences is "
        f"{figure_interval(here['value'], here['low'], here['high'])} above that of random words. In these contexts it is "
        f"highest at {layer_name(high['layer'])}, {values['high']}, and lowest at {layer_name(low['layer'])}, {values['low']}."
    )


def _context_rows(one: Contexts) -> list[dict[str, object]]:
    return [
        {"word": one.word, "left": left, "form": form, "right": right, "x": x, "y": y}
        for (left, form, right), (x, y) in zip(one.texts, one.points.tolist(), strict=True)
    ]


def _analogies(measured: MapMeasurement, answers: AnalogyAnswers, seed: int) -> StudyResult:
    """Analogies answered by offsets in the embedding, compared with the third word alone."""
    count, total = len(answers.questions), measured.inputs.all_questions
    lexicon = measured.inputs.lexicon
    accuracy, baseline = float(answers.correct.mean()), float(answers.baseline_correct.mean())
    gain = answers.gain(seed)
    verdict = "is not significantly better than"
    if gain[1] > 0 or gain[2] < 0:
        verdict = f"is significantly {'better' if gain[1] > 0 else 'worse'} than"
    findings = [
        f"{percent_interval(*wilson_interval(accuracy, count))} of the {count:,} covered analogies (of {total:,}) are answered "
        f"correctly among {len(lexicon):,} words by the offset b - a + c.",
        f"The offset {verdict} the word nearest to the third alone, which is correct for {percent(baseline)}: "
        f"{points_interval(*gain)}, 95% over pairs of words{limit_clause(gain.low, gain.high)}.",
        f"If the given words were not left out, they would be {percent(answers.given_word_nearest.mean(), 0)} of the answers.",
    ]
    words = {name: [one.words[i] for one in answers.questions] for i, name in enumerate("abcd")}
    table = pl.DataFrame(
        {
            "section": [one.section for one in answers.questions], **words,
            "answer": [lexicon.words[i] for i in answers.answers], "correct": answers.correct,
            "baseline_correct": answers.baseline_correct,
        }
    )  # fmt: skip
    figures = {"analogies_correct": accuracy, "third_word_alone_correct": baseline}
    return StudyResult("Analogies", findings, {"analogies": table}, figures)


def analogy_accuracies(analogies: pl.DataFrame) -> list[tuple[str, str, float, float, float]]:
    """Rows of (method, section, accuracy, low, high), from the table of analogies."""
    sections = analogies["section"].unique(maintain_order=True).to_list()
    return [
        (method, f"{section} ({len(inside):,})", *wilson_interval(float(inside[column].mean()), len(inside)))  # type: ignore[arg-type]
        for method, column in ((OFFSET, "correct"), (THIRD_WORD, "baseline_correct"))
        for section in sections
        for inside in [analogies.filter(pl.col("section") == section)]
    ]
