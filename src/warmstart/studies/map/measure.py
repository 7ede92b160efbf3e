"""What ``study map`` measures: projections, nearest neighbours, self-similarity by layer, contexts of words, and analogies.

PCA (Pearson 1901) shows the two directions of most variance; t-SNE (van der Maaten and Hinton 2008) keeps near points near, while
its large distances mean nothing. Trustworthiness (Venna and Kaski 2001) is 1 if neighbours on the map are neighbours in the space.

Letters: N points, W words, D width, L depth, M words with neighbours, K neighbours, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.data.analogies import Analogy
from warmstart.inspection.activations import layer_names
from warmstart.inspection.lexicon import Lexicon, static_embeddings
from warmstart.inspection.neighbours import (
    AnalogyAnswers,
    answer_analogies,
    mean_cosines,
    nearest_neighbours,
    neighbour_overlap,
    random_pair_cosines,
    unit_vectors,
)
from warmstart.inspection.occurrences import Occurrences, mean_states, occurrence_states
from warmstart.inspection.projection import project_pca
from warmstart.model.bundle import Bundle
from warmstart.seeding import derive, rng

MIN_POINTS = 5
"""points of a map"""
_TRUST_NEIGHBOURS, _PERPLEXITY = 12, 30
_SHUFFLES = 20
_NEIGHBOURS = 10
_RANDOM_WORDS = 500
"""words for the cosines of random words, one occurrence each"""


@dataclass(frozen=True)
class MapInputs:
    """What is mapped."""

    lexicon: Lexicon
    shown: np.ndarray
    """(N,) the words on the map, as indices into the lexicon"""
    layer: int
    """of the hidden states in context"""
    contexts_of: Mapping[str, int]
    """words whose contexts are mapped, with their indices"""
    neighbours_of: Mapping[str, int]
    """words whose neighbours are listed, with their indices"""
    occurrences: Occurrences | None
    """None without a text"""
    questions: Sequence[Analogy]
    """analogies whose four words are in the lexicon"""
    all_questions: int
    """analogies of the file, with the others"""


@dataclass(frozen=True)
class Space:
    """Words as vectors."""

    name: str
    """static, or a layer"""
    words: np.ndarray
    """(W,) indices into the lexicon"""
    vectors: np.ndarray
    """(W, D)"""


@dataclass(frozen=True)
class Projection:
    """A map of N points in the plane."""

    method: str
    points: np.ndarray
    """(N, 2)"""
    trustworthiness: float
    shuffled: float
    """the highest trustworthiness of 20 random permutations of the points"""
    explained_variance: tuple[float, float] | None = None
    """the fraction of the variance on each axis of a PCA"""


@dataclass(frozen=True)
class WordMap:
    """The N shown words in one space."""

    space: str
    words: np.ndarray
    """(N,) indices into the lexicon"""
    tsne: Projection
    pca: Projection


@dataclass(frozen=True)
class WordNeighbours:
    """The nearest neighbours of M words in one space."""

    space: str
    searched: int
    """words among which neighbours were searched"""
    words: Sequence[str]
    """M words"""
    neighbours: np.ndarray
    """(M, K) indices into the lexicon, nearest first"""
    cosines: np.ndarray
    """(M, K)"""
    random_cosines: np.ndarray
    """(pairs,) of random pairs of words"""


@dataclass(frozen=True)
class Contexts:
    """The occurrences of one word."""

    word: str
    cosines: np.ndarray
    """(1 + R, L + 1) the mean cosine between its occurrences less that of random words, and on resamples"""
    texts: Sequence[tuple[str, str, str]]
    """N contexts: left of the word, its spelling, right of it"""
    points: np.ndarray
    """(N, 2) on the two axes of a PCA at the layer"""
    explained_variance: tuple[float, float]


@dataclass(frozen=True)
class MapMeasurement:
    """Everything that was measured."""

    inputs: MapInputs
    layers: Sequence[str]
    """L + 1 names"""
    maps: Sequence[WordMap]
    overlap: np.ndarray | None
    """(N,) the fraction of each shown word's nearest neighbours shared by both spaces; None without a text"""
    overlap_neighbours: int
    """neighbours in ``overlap``"""
    neighbours: Sequence[WordNeighbours]
    random_words: int
    random_cosines: np.ndarray | None
    """(1 + R, L + 1) the mean cosine of random words, and on resamples; None without a text"""
    contexts: Sequence[Contexts]
    analogies: AnalogyAnswers | None


def measure_map(bundle: Bundle, inputs: MapInputs, seed: int) -> MapMeasurement:
    """Run the model over the occurrences, and measure everything."""
    static = static_embeddings(bundle, inputs.lexicon)
    spaces = [Space("static", np.arange(len(inputs.lexicon)), static)]
    random, contexts, chosen = None, list[Contexts](), list[int]()
    if inputs.occurrences is not None:
        words = np.unique(inputs.occurrences.words)
        draw = rng(seed, "random words")
        chosen = draw.permutation(words)[:_RANDOM_WORDS].tolist()
        rows = [np.array([draw.choice(inputs.occurrences.of(word)) for word in chosen])]
        rows += [inputs.occurrences.of(index) for index in inputs.contexts_of.values()]
        layers = range(bundle.model.backbone.config.depth + 1)
        states = occurrence_states(bundle, inputs.occurrences, np.concatenate(rows), layers)
        of_random, *of_words = np.split(states, np.cumsum([len(row) for row in rows])[:-1])
        random = mean_cosines(of_random, seed, "random words")
        contexts = [_contexts(inputs, word, one, random, seed) for word, one in zip(inputs.contexts_of, of_words, strict=True)]
        spaces = [
            Space("static", words, static[words]),
            Space(f"layer {inputs.layer}", words, mean_states(bundle, inputs.occurrences, words, inputs.layer)),
        ]
    shown = [one.vectors[np.isin(one.words, inputs.shown)] for one in spaces]
    count = min(_NEIGHBOURS, len(shown[0]) - 1)
    return MapMeasurement(
        inputs,
        layer_names(bundle),
        [_word_map(one, inputs.shown, seed) for one in spaces],
        neighbour_overlap(shown[0], shown[1], count) if len(shown) == 2 else None,
        count,
        [near for one in spaces if (near := _neighbours(one, inputs.neighbours_of, seed)) is not None],
        len(chosen),
        random,
        contexts,
        answer_analogies(static, inputs.lexicon, inputs.questions) if inputs.questions else None,
    )


def _contexts(inputs: MapInputs, word: str, states: np.ndarray, random: np.ndarray, seed: int) -> Contexts:
    """A word's occurrences, from their states (N, L + 1, D)."""
    assert inputs.occurrences is not None
    texts = [inputs.occurrences.context(number) for number in inputs.occurrences.of(inputs.contexts_of[word])]
    points, explained = project_pca(unit_vectors(states[:, inputs.layer]))
    return Contexts(word, mean_cosines(states, seed, word) - random, texts, points, explained)


def _word_map(space: Space, shown: np.ndarray, seed: int) -> WordMap:
    """At length 1, so that near points have a high cosine."""
    inside = np.isin(space.words, shown)
    tsne, pca = project(unit_vectors(space.vectors[inside]), seed)
    return WordMap(space.name, space.words[inside], tsne, pca)


def _neighbours(space: Space, words: Mapping[str, int], seed: int) -> WordNeighbours | None:
    """None if none of the words is in the space."""
    rows = {word: int(np.flatnonzero(space.words == index)[0]) for word, index in words.items() if index in space.words}
    if not rows:
        return None
    order, cosines = nearest_neighbours(space.vectors, np.array(list(rows.values())), _NEIGHBOURS)
    random = random_pair_cosines(space.vectors, seed)
    return WordNeighbours(space.name, len(space.words), list(rows), space.words[order], cosines, random)


def project(vectors: np.ndarray, seed: int) -> tuple[Projection, Projection]:
    """Maps of points (N, D), N at least 5, by t-SNE and by PCA; the same seed gives the same maps."""
    from sklearn.manifold import TSNE

    flat, explained = project_pca(vectors)
    perplexity = min(_PERPLEXITY, (len(vectors) - 1) / 3)
    spread = TSNE(perplexity=perplexity, init="pca", random_state=derive(seed, "t-SNE") % 2**32).fit_transform(vectors)
    return (
        Projection("t-SNE", spread, *_trustworthiness(vectors, spread, seed)),
        Projection("PCA", flat, *_trustworthiness(vectors, flat, seed), explained),
    )


def _trustworthiness(vectors: np.ndarray, points: np.ndarray, seed: int) -> tuple[float, float]:
    """Of a map (N, 2), and the highest of its random permutations."""
    from sklearn.manifold import trustworthiness

    near, draw = min(_TRUST_NEIGHBOURS, (len(vectors) - 1) // 2), rng(seed, "shuffles")
    shuffled = [trustworthiness(vectors, draw.permutation(points), n_neighbors=near) for _ in range(_SHUFFLES)]
    return float(trustworthiness(vectors, points, n_neighbors=near)), float(max(shuffled))
