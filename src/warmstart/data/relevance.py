"""Which passages of large corpora are most like the texts of a task (Yao et al. 2022, "NLP From Scratch", section 2).

A passage is a document of at least ``SHORTEST_FOUND`` words, or a piece of one with at most ``LONGEST_PASSAGE``. Its relevance is
the mean cosine of its TF-IDF row with those of the ``NEAREST`` most similar texts of the task: nearness to some texts, not to all,
so that every topic of a task finds passages. Rows are hashed, so there is no vocabulary to keep, and corpora are read in chunks.
Nothing is drawn at random but the texts that are compared, with a fixed seed: the same texts give the same ranking.

Letters: P passages, N texts, V columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from re import finditer

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

from warmstart.data.source import Source
from warmstart.data.text_key import text_key, text_words
from warmstart.data.text_overlap import SHORTEST_FOUND, documents_with
from warmstart.data.token_store import documents_of
from warmstart.seeding import rng

LONGEST_PASSAGE = 200
"""words of a passage; the fewest are ``SHORTEST_FOUND``, because of a shorter one it cannot be told whether it has a test text"""
NEAREST = 10
"""texts of the task over which similarity is averaged: one could have a rare word in common by chance"""
TEXTS_COMPARED = 1000
"""texts of the task that passages are compared with, at most; a random choice stands for more"""
WEIGHED = 20_000
"""passages of each corpus that the weights of words are taken from, beside the texts"""
PASSAGES_AT_ONCE = 4096
"""passages in memory at once"""
COLUMNS = 1 << 18
"""V: two words share a column with a probability of 4e-6"""
LEFT_OUT, KNOWN = -1.0, -2.0
"""in place of a relevance: the passage is like a scored text, or equal to a text of the task"""


@dataclass(frozen=True, eq=False)
class Relevances:
    """How relevant each passage of some corpora is. Letters: P passages."""

    values: np.ndarray
    """(P,) float32 from 0 to 1, or ``LEFT_OUT`` or ``KNOWN``"""
    words: np.ndarray
    """(P,) int32 words of each passage"""
    corpora: np.ndarray
    """(P,) int16 the corpus of each, as an index"""

    def most_relevant(self, words: int) -> np.ndarray:
        """The passages to keep, the most relevant first: all that are needed to reach so many words, and have a word in common."""
        order = np.argsort(-self.values, kind="stable")
        order = order[self.values[order] > 0]
        before = np.cumsum(self.words[order], dtype=np.int64) - self.words[order]
        return order[before < words]


def passages_of(sources: Sequence[Source]) -> Iterator[str]:
    """The passages of all documents, in order; shorter documents are passed over.

    A longer one is cut at white space into pieces of nearly the same number of words.
    """
    return (passage for document in documents_of(sources) for passage in _pieces(document))


def _pieces(document: str) -> Iterator[str]:
    words = [found.span() for found in finditer(r"\S+", document)]
    if len(words) < SHORTEST_FOUND:
        return
    count = -(-len(words) // LONGEST_PASSAGE)
    bounds = [len(words) * i // count for i in range(count + 1)]
    yield from (document[words[start][0] : words[end - 1][1]] for start, end in pairwise(bounds))


def relevances(corpora: Sequence[Source], texts: Sequence[str], scored: Sequence[str]) -> Relevances:
    """The relevance of every passage of ``corpora`` for the ``texts`` of a task; those like a ``scored`` text are left out.

    A passage is like a scored text if it is equal, or if it contains one, at least half of its 5-grams.
    """
    similarity = _Similarity.of(texts, [one for corpus in corpora for one in islice(passages_of([corpus]), WEIGHED)])
    known, words_of_scored = {*map(text_key, texts)}, [*map(text_words, scored)]
    keys, values, words, owners = {*map(text_key, scored)}, list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for number, corpus in enumerate(corpora):
        stream = passages_of([corpus])
        while chunk := [*islice(stream, PASSAGES_AT_ONCE)]:
            split, key_of = [*map(text_words, chunk)], [*map(text_key, chunk)]
            found = similarity.relevance(chunk)
            found[[key in known for key in key_of]] = KNOWN
            like = documents_with(words_of_scored, split) | np.array([key in keys for key in key_of])
            found[like] = LEFT_OUT
            values.append(found)
            words.append(np.array([len(passage.split()) for passage in chunk], dtype=np.int32))
            owners.append(np.full(len(chunk), number, dtype=np.int16))
    empty = np.zeros(0)
    return Relevances(*(np.concatenate([empty.astype(kind), *parts]) for kind, parts in
                        ((np.float32, values), (np.int32, words), (np.int16, owners))))  # fmt: skip


@dataclass(frozen=True)
class _Similarity:
    """TF-IDF with the weights of words in some texts, and the rows of the texts that passages are compared with."""

    weights: TfidfTransformer
    texts: csr_matrix
    """(N, V), each of length 1"""

    @classmethod
    def of(cls, texts: Sequence[str], others: Iterable[str]) -> _Similarity:
        chosen = np.sort(rng(0, "texts that passages are compared with").permutation(len(texts))[:TEXTS_COMPARED])
        weights = TfidfTransformer(sublinear_tf=True).fit(_counts([*texts, *others]))
        return cls(weights, weights.transform(_counts([texts[i] for i in chosen])))

    def relevance(self, passages: Sequence[str]) -> np.ndarray:
        """(P,) float32: the mean cosine with the nearest texts."""
        cosines = (self.weights.transform(_counts(passages)) @ self.texts.T).toarray()  # (P, N)
        nearest = min(NEAREST, cosines.shape[1])
        top = -np.partition(-cosines, nearest - 1, axis=1)[:, :nearest]
        mean: np.ndarray = top.mean(axis=1).astype(np.float32)
        return mean


def _counts(texts: Iterable[str]) -> csr_matrix:
    """(N, V) how often each text has a word of each column."""
    return HashingVectorizer(analyzer=text_words, n_features=COLUMNS, alternate_sign=False, norm=None).transform(texts)
