"""The parts of ``study map``: each says what it found, with figures, tables and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from warmstart.analysis.lexicon import Lexicon
from warmstart.analysis.neighbours import answer, mean_cosines, nearest, random_pairs, shared_neighbours, unit
from warmstart.analysis.occurrences import Occurrences
from warmstart.analysis.pairs import Judgement
from warmstart.analysis.projection import SHUFFLES, pca, project
from warmstart.data.analogies import Analogy
from warmstart.report import Figure, Section, Table
from warmstart.report.map import analogies_chart, contexts_chart, layers_chart, words_chart
from warmstart.workflows.studies.conclude import Part
from warmstart.workflows.studies.wording import around, layer_name, percent

STATIC, OFFSET, ALONE, ANY = "static", "offset (b - a + c)", "third word alone", "random words"
NEAREST = 10
"""neighbours of a word"""
ENDS = 3
"""contexts shown at each end of an axis"""
MAP = ("space", "words", "method", "trustworthiness", f"shuffled, highest of {SHUFFLES}", "variance shown")


@dataclass(frozen=True)
class Seen:
    """What was read of words in context."""

    found: Occurrences
    places: np.ndarray
    """(C,) the words met, as places in the lexicon"""
    means: np.ndarray
    """(C, D) the mean of each one's states at the layer"""
    random: np.ndarray
    """(M, L + 1, D) one occurrence each of random words"""
    deep: Mapping[str, np.ndarray]
    """of each word whose contexts are mapped (N, L + 1, D)"""
    asked: Mapping[str, int]
    """their places in the lexicon"""


@dataclass(frozen=True)
class View:
    """What the parts look at."""

    lexicon: Lexicon
    static: np.ndarray
    """(W, D) of every word of the lexicon"""
    shown: np.ndarray
    """places of the words on the map"""
    layer: int
    layers: Sequence[str]
    """their names"""
    seen: Seen | None = None
    """nothing where there is no text"""

    @cached_property
    def spaces(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Each space that neighbours are sought in: places of its words, and their vectors."""
        if self.seen is None:
            return {STATIC: (np.arange(len(self.lexicon)), self.static)}
        places = self.seen.places
        return {STATIC: (places, self.static[places]), f"layer {self.layer}": (places, self.seen.means)}


def map_part(view: View, seed: int) -> Part:
    """The most frequent words in each space, by PCA and by t-SNE; at length 1, so that to be near is to have a high cosine."""
    findings, sections, table, points = list[str](), list[Section](), list[list[str]](), list[dict[str, object]]()
    drawn = dict[str, np.ndarray]()
    for space, (places, vectors) in view.spaces.items():
        inside = np.flatnonzero(np.isin(places, view.shown))
        drawn[space] = vectors[inside]
        words = [view.lexicon.words[place] for place in places[inside]]
        counts = [view.lexicon.counts[place] if view.lexicon.counts else None for place in places[inside]]
        flat, spread = project(unit(vectors[inside]), seed)
        figures = []
        for made in (spread, flat):
            rows = list(zip(words, counts, made.points[:, 0].tolist(), made.points[:, 1].tolist(), strict=True))
            caption = f"{made.method}, trustworthiness {made.trust:.3f}."
            figures.append(Figure(f"{space}-{made.method}".replace(" ", "-"), caption, words_chart(rows, _axes(made.explained))))
            points += [{"word": w, "count": n, "space": space, "method": made.method, "x": x, "y": y} for w, n, x, y in rows]
            held = "-" if made.explained is None else f"{100 * sum(made.explained):.1f} %"
            table.append([space, f"{len(words):,}", made.method, f"{made.trust:.3f}", f"{made.shuffled:.3f}", held])
        sections.append(Section(f"Map: {space}", (), tuple(figures)))
        findings.append(
            f"{space}: trustworthiness of the map of {len(words):,} words is {spread.trust:.3f} by t-SNE and {flat.trust:.3f} by "
            f"PCA; 1 is best, and shuffled maps have at most {max(spread.shuffled, flat.shuffled):.3f} in {SHUFFLES} tries; "
            f"the two axes of PCA show {100 * sum(flat.explained or ()):.1f} % of the variance"
        )
    findings += _agreement(drawn, f"layer {view.layer}")
    sections.append(Section("How far the maps can be trusted", (), (Table(MAP, table),)))
    return Part(findings, sections, {"map": pl.DataFrame(points, schema_overrides={"count": pl.Int64})}, (), (table, MAP))


def _agreement(drawn: Mapping[str, np.ndarray], context: str) -> list[str]:
    """Whether the same words are near in the embedding and in context."""
    if context not in drawn:
        return []
    count = len(drawn[STATIC])
    most = min(NEAREST, count - 1)
    shares = shared_neighbours(drawn[STATIC], drawn[context], most)
    error = 1.96 * shares.std() / np.sqrt(count)
    low, high = max(0.0, shares.mean() - error), min(1.0, shares.mean() + error)
    return [
        f"of each word's {most} nearest words, {100 * shares.mean():.0f} % are the same in the embedding and at {context} "
        f"({100 * low:.0f} to {100 * high:.0f}, 95 % over words); chance is {100 * most / (count - 1):.1f} %"
    ]


def near_part(view: View, asked: Mapping[str, int], seed: int) -> Part:
    """The nearest words of some, in each space, beside the cosines of random pairs."""
    if not asked:
        return Part()
    findings, sections, rows = list[str](), list[Section](), list[tuple[str, str, int, str, float]]()
    for space, (places, vectors) in view.spaces.items():
        present = {word: int(np.flatnonzero(places == place)[0]) for word, place in asked.items() if place in places}
        findings += [f"'{word}' fits into the model nowhere in context" for word in asked if word not in present]
        if not present:
            continue
        pairs = random_pairs(vectors, seed)
        low, high = np.quantile(pairs, [0.025, 0.975])
        baseline = f"random pairs have {pairs.mean():.2f} (95 % of them {low:.2f} to {high:.2f})"
        found = zip(present, *nearest(vectors, np.array(list(present.values())), NEAREST), strict=True)
        for word, order, cosines in found:
            named = [(view.lexicon.words[places[other]], float(cosine)) for other, cosine in zip(order, cosines, strict=True)]
            rows += [(word, space, rank, other, cosine) for rank, (other, cosine) in enumerate(named, 1)]
            said = ", ".join(f"{other} {cosine:.2f}" for other, cosine in named[:3])
            findings.append(f"nearest to '{word}' among {len(places):,} words, {space}: {said}; {baseline}")
        here = [(word, str(rank), other, f"{cosine:.3f}") for word, name, rank, other, cosine in rows if name == space]
        sections.append(
            Section(f"Neighbours: {space}", (f"Cosines; {baseline}.",), (Table(("word", "rank", "neighbour", "cosine"), here),))
        )
    header = ["word", "space", "rank", "neighbour", "cosine"]
    return Part(findings, sections, {"neighbours": pl.DataFrame(rows, schema=header, orient="row")})


def word_part(view: View, seed: int) -> Part:
    """How near random words are at each layer, and words in many contexts: how alike each stays, and a map of its contexts."""
    if view.seen is None:
        return Part()
    random = mean_cosines(view.seen.random, seed, ANY)
    lines = {ANY: random} | {_above(word): mean_cosines(deep, seed, word) - random for word, deep in view.seen.deep.items()}
    rows = [
        (name, layer, float(cosines[0, i]), *np.quantile(cosines[1:, i], [0.025, 0.975]).tolist())
        for name, cosines in lines.items()
        for i, layer in enumerate(view.layers)
    ]
    table = [[layer, *(around(*row[2:]) for row in rows if row[1] == layer)] for layer in view.layers]
    text = (
        f"Mean cosine of {len(view.seen.random)} random words, one occurrence each; of a word asked for, mean cosine between its "
        "occurrences less that of random words. 95 % intervals over occurrences.",
    )
    figure = Figure(
        "layers",
        "Cosines at each layer; the embedding holds positions too, where the model adds them.",
        layers_chart(rows, "mean cosine"),
    )
    sections = [Section("Through the layers", text, (figure, Table(("layer", *lines), table)))]
    here = {row[0]: row[2:] for row in rows if row[1] == view.layers[view.layer]}
    findings, contexts = list[str](), list[dict[str, object]]()
    for word, deep in view.seen.deep.items():
        low, *_, high = sorted((row for row in rows if row[0] == _above(word)), key=lambda row: row[2])
        findings.append(
            f"'{word}' in {len(deep)} contexts: at layer {view.layer} the cosine between its occurrences is "
            f"{around(*here[_above(word)])} above that of random words; it is most itself at {layer_name(high[1])} "
            f"({high[2]:.2f}) and least at {layer_name(low[1])} ({low[2]:.2f})"
        )
        section, points = _contexts(view, word, deep[:, view.layer])
        sections.append(section)
        contexts += points
    mean, low, high = here[ANY]
    findings.append(
        f"at layer {view.layer} random words have a mean cosine of {around(mean, low, high)}; read any cosine there beside it"
    )
    header = ["line", "layer", "value", "low", "high"]
    data = {"layers": pl.DataFrame(rows, schema=header, orient="row")} | ({"contexts": pl.DataFrame(contexts)} if contexts else {})
    return Part(findings, sections, data)


def _contexts(view: View, word: str, states: np.ndarray) -> tuple[Section, list[dict[str, object]]]:
    """The occurrences of a word on the two axes of most variance; those at the ends of the first axis stand in a table."""
    assert view.seen is not None
    found, place = view.seen.found, view.seen.asked[word]
    points, explained = pca(unit(states))
    rows = [(*found.context(number), x, y) for number, (x, y) in zip(found.of(place), points.tolist(), strict=True)]
    data = [{"word": word, "left": left, "here": here, "right": right, "x": x, "y": y} for left, here, right, x, y in rows]
    ranked = sorted(rows, key=lambda row: row[3])
    ends = [("low", row) for row in ranked[:ENDS]] + [("high", row) for row in ranked[ENDS:][-ENDS:]]
    table = Table(("end of axis 1", "left", "word", "right"), [(end, *row[:3]) for end, row in ends])
    caption = f"PCA of {len(rows)} occurrences of “{word}” at layer {view.layer}; point at one to read its context."
    number = list(view.seen.asked).index(word) + 1
    return Section(
        f"Contexts of “{word}”", (), (Figure(f"contexts-{number}", caption, contexts_chart(rows, _axes(explained))), table)
    ), data


def analogies_part(view: View, questions: Sequence[Analogy], total: int, seed: int) -> Part:
    """Analogies answered by offsets in the embedding, section by section, beside the third word alone."""
    if not questions:
        return Part()
    made = answer(view.static, view.lexicon, questions)
    sections = np.array([one.section for one in questions])
    groups = [(f"{name} ({(sections == name).sum():,})", sections == name) for name in dict.fromkeys(sections.tolist())]
    points = [
        (method, label, (one := Judgement(label, "", right[inside].astype(float))).share, *one.ends())
        for method, right in ((OFFSET, made.right), (ALONE, made.floor))
        for label, inside in groups
    ]
    said = {(method, label): percent(share, low, high) for method, label, share, low, high in points}
    table = Table(("section (questions)", OFFSET, ALONE), [(label, said[OFFSET, label], said[ALONE, label]) for label, _ in groups])
    all_of_them = Judgement("all", "", made.right.astype(float))
    more, least, most = made.gain(seed)
    verb = "adds to" if least > 0 else "takes from" if most < 0 else "is not seen to add to"
    findings = [
        f"{percent(all_of_them.share, *all_of_them.ends())} of the {len(questions):,} analogies covered "
        f"(of {total:,}) are right among {len(view.lexicon):,} words by the offset b - a + c",
        f"the offset {verb} what the word nearest to the third alone gives, which is right on {100 * made.floor.mean():.1f} %: "
        f"{100 * more:+.1f} points ({100 * least:.1f} to {100 * most:.1f}, 95 % over pairs of words)",
        f"were the three given words not left out, {100 * made.given.mean():.0f} % of the answers would be one of them",
    ]
    columns = {name: [one.words[i] for one in questions] for i, name in enumerate("abcd")}
    answers = [view.lexicon.words[place] for place in made.answers]
    data = pl.DataFrame({"section": sections, **columns, "answer": answers, "right": made.right, "floor": made.floor})
    figure = Figure(
        "analogies", "Questions answered rightly, with 95 % intervals over questions (Wilson).", analogies_chart(points)
    )
    tiles = [("analogies right", f"{100 * all_of_them.share:.1f} %"), ("third word alone", f"{100 * made.floor.mean():.1f} %")]
    return Part(findings, [Section("Analogies", (), (figure, table))], {"analogies": data}, tiles)


def _above(word: str) -> str:
    return f"“{word}” above {ANY}"


def _axes(explained: tuple[float, float] | None) -> tuple[str, str]:
    """Titles of a map's axes; those of t-SNE mean nothing."""
    if explained is None:
        return "", ""
    first, second = (f"axis {i}: {100 * share:.1f} % of the variance" for i, share in enumerate(explained, 1))
    return first, second
