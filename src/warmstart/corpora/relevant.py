"""The text of a task's domain, to pretrain on first: the task's own text, and the passages of other text that are most like it.

    pool   the task's own text without labels (``data/pool.py``): all that is read if no other text is given
    TEXT   of its passages the most relevant, up to a number of words; the more relevant are read more often

The kept passages, most relevant first, are cut into ``TIMES`` parts with as many words each. In one pass over the text the first
part is read ``TIMES`` times, the next one time less, and so on, the last part once; the pool is read ``TIMES`` times. Test and
validation texts are never read. The choice is a function of the texts and settings. It is kept in the folder of the run with a hash
of all that it depends on, so that a run is never resumed on other text.

A passage is a document of at least ``SHORTEST_FOUND`` words, or a piece of one with at most ``LONGEST_PASSAGE``. Its relevance
(Yao et al. 2022, "NLP From Scratch", section 2) is the mean cosine of its TF-IDF row with those of the ``NEAREST`` most similar
texts of the task: nearness to some texts, not to all, so that every topic of a task finds passages. Rows are hashed, so there is
no vocabulary to keep, and the corpora are read in chunks. Nothing is drawn at random but the texts that are compared, with a
fixed seed: the same texts give the same ranking.

Letters: P passages, N texts, V columns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from re import finditer
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

from warmstart.config import Config
from warmstart.corpora.pieces import DocumentSplit
from warmstart.data.files import text_lines
from warmstart.data.pool import Pool, scored_texts, task_pool
from warmstart.data.read import documents_of
from warmstart.data.source import DomainConfig, Source
from warmstart.data.task import Task
from warmstart.data.text_key import text_key, text_words
from warmstart.data.text_overlap import SHORTEST_FOUND, documents_with
from warmstart.errors import CheckpointError, ConfigError, DataError
from warmstart.seeding import rng
from warmstart.system.storage import atomic_folder, json_or_none

DOMAIN = "domain"
"""folder of the chosen text, in the folder of the run"""
DOMAIN_FORMAT = 1
"""raised whenever the same texts would be chosen or written differently"""
TIMES = 4
"""readings of the most relevant passages in one pass, and of the pool beside them"""
KEPT_SHARE, KEPT_LEAST = 4, 500_000
"""words of passages that are kept: so many times those of the pool, but at least so many"""
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
"""values in place of a relevance: the passage is like a scored text, or equal to a text of the task"""


class CorpusRead(Config):
    """Figures of one file or folder of text."""

    path: str
    passages: int
    """passages of the text"""
    kept: int
    """passages kept"""
    words: int
    """words of the kept passages, each counted once"""
    left_out: int
    """passages like a test or validation text"""
    known: int
    """passages equal to a text of the pool, or to another kept one"""


class PassageExample(Config):
    """One kept passage."""

    text: str
    relevance: float
    times: int
    """readings in one pass"""
    corpus: str


class DomainText(Config):
    """The text that was chosen for a task."""

    task: str
    """name of the task"""
    pool_texts: int
    """texts of the pool"""
    pool_words: int
    """words of the pool"""
    pool_left_out: int
    """texts left out of the pool because they are like a test or validation text"""
    pool_times: int
    """readings of the pool in one pass"""
    held_out: int
    """texts of the pool that are held out"""
    corpora: tuple[CorpusRead, ...] = ()
    """figures of each file or folder of other text"""
    times: tuple[int, ...] = ()
    """numbers of kept passages that are read once, twice, and so on, in one pass"""
    most: PassageExample | None = None
    """the most relevant passage"""
    least: PassageExample | None = None
    """the least relevant one that is kept"""
    identity: str
    """hash of all texts that it was chosen from, and of the settings"""

    @property
    def passages(self) -> int:
        """Kept passages of all corpora."""
        return sum(corpus.kept for corpus in self.corpora)

    @property
    def left_out(self) -> int:
        """Texts and passages like a test or validation text."""
        return self.pool_left_out + sum(corpus.left_out for corpus in self.corpora)


@dataclass(frozen=True)
class DomainSource:
    """The texts that the text of a domain is chosen from."""

    task: Task
    pool: Pool
    text: tuple[Source, ...]
    """other text; none: the pool alone"""
    relevant_words: int | None
    fraction: float | None
    """fraction of the pool's texts that is held out; None: nothing is"""

    @classmethod
    def of(cls, config: DomainConfig, task: Task, text: Sequence[Source], fraction: float | None) -> DomainSource:
        """The pool of a task; ``fraction`` of it is held out. Raises ``ConfigError`` if it is empty."""
        pool = task_pool(task)
        if not len(pool):
            raise ConfigError(
                f"--for needs text of '{task.name}' without labels, but all of it is like a test or validation text; add such text "
                "under 'unlabelled' in the manifest"
            )
        return cls(task, pool, tuple(text), config.relevant_words, fraction)

    def identity(self) -> str:
        """A hash of all texts and settings that the choice depends on."""
        settings = [DOMAIN_FORMAT, self.pool.texts, scored_texts(self.task), self.relevant_words, self.fraction]
        digest = hashlib.sha256(json.dumps(settings).encode())
        for source in self.text:
            digest.update(json.dumps(["corpus", source.document]).encode())
            for document in documents_of([source]):
                digest.update(json.dumps(document).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class _Passages:
    """The passages that are kept, most relevant first."""

    texts: tuple[str, ...]
    relevance: np.ndarray
    """(K,)"""
    times: np.ndarray
    """(K,) readings of each in one pass"""
    corpora: np.ndarray
    """(K,) index of the corpus of each"""
    read: tuple[CorpusRead, ...]

    def example(self, number: int) -> PassageExample:
        """The passage of this number, for people."""
        values: dict[str, Any] = {"relevance": round(float(self.relevance[number]), 4), "times": int(self.times[number])}
        return PassageExample(text=self.texts[number], corpus=self.read[self.corpora[number]].path, **values)


def domain_text(source: DomainSource, folder: Path) -> tuple[DomainText, list[Source], Path | None]:
    """The chosen text, what is read in one pass, and the file of what is held out, all kept in the folder of a run.

    Chosen once: a resumed run finds the same. Raises ``CheckpointError`` if the texts or settings are no longer those it was chosen
    from, and ``DataError`` if no passage is like the task's texts.
    """
    place, identity = folder / DOMAIN, source.identity()
    text = _read(place)
    if text is None:
        passages = _kept_passages(source) if source.text else None
        with atomic_folder(place) as aside:
            text = _write(source, passages, identity, aside)
    if text.identity != identity:
        raise CheckpointError(
            f"{place} was chosen from other texts or with other settings: the task's text or TEXT changed since the run began; "
            "start a new run in another folder"
        )
    return text, [Source(path=str(place / "training.ndjson"))], place / "held_out.ndjson" if text.held_out else None


def _read(place: Path) -> DomainText | None:
    """The text that an earlier call chose; None if there is none, or it cannot be read."""
    try:
        return DomainText.build(json_or_none(place / "domain.json") or {}, str(place))
    except ConfigError:
        return None


def _kept_passages(source: DomainSource) -> _Passages:
    """Rank all passages, and collect those to keep."""
    texts = source.pool.texts
    ranked = relevances(source.text, texts, scored_texts(source.task))
    words = source.relevant_words or max(KEPT_LEAST, KEPT_SHARE * _words(texts))
    order = ranked.most_relevant(words)
    place_of, passages = {int(passage): place for place, passage in enumerate(order)}, dict[int, str]()
    for number, passage in enumerate(passages_of(source.text)):
        if number in place_of:
            passages[place_of[number]] = passage
    first: dict[str, int] = {}
    for place in range(len(order)):
        first.setdefault(text_key(passages[place]), place)
    kept = np.array(sorted(first.values()), dtype=np.int64)
    if not len(kept):
        raise DataError(
            f"TEXT must have passages with words of the texts of '{source.task.name}', but has none; give other text, or none"
        )
    chosen = order[kept]
    before = np.cumsum(ranked.words[chosen], dtype=np.int64) - ranked.words[chosen]
    times = TIMES - before * TIMES // ranked.words[chosen].sum()
    read = tuple(_corpus_read(number, source, ranked, order, chosen) for number in range(len(source.text)))
    return _Passages(tuple(passages[place] for place in kept), ranked.values[chosen], times, ranked.corpora[chosen], read)


def _corpus_read(number: int, source: DomainSource, ranked: Relevances, order: np.ndarray, chosen: np.ndarray) -> CorpusRead:
    """The figures of one corpus: of the passages in ``order``, those ``chosen`` are no repetitions."""
    values, own = ranked.values[ranked.corpora == number], chosen[ranked.corpora[chosen] == number]
    repeated = int((ranked.corpora[order] == number).sum()) - len(own)
    return CorpusRead(
        path=source.text[number].path,
        passages=len(values),
        kept=len(own),
        words=int(ranked.words[own].sum()),
        left_out=int((values == LEFT_OUT).sum()),
        known=int((values == KNOWN).sum()) + repeated,
    )


def _write(source: DomainSource, passages: _Passages | None, identity: str, folder: Path) -> DomainText:
    """Write the text of one pass, the held-out texts, the passages, and ``domain.json``; returns the contents of the last."""
    texts = source.pool.texts
    split = None if source.fraction is None else DocumentSplit(fraction=source.fraction)
    held = [split is not None and bool(split.held_out(number)) for number in range(len(texts))]
    own = [text for text, out in zip(texts, held, strict=True) if not out]
    if not own:
        raise DataError(f"text of '{source.task.name}' must be left to train on, but all is held out; hold out less (--held-out)")
    rounds = TIMES if passages else 1
    with open(folder / "training.ndjson", "w", encoding="utf-8", newline="\n") as file:
        for turn in range(rounds):  # copies of a text lie far apart, so that no row holds two
            file.writelines(text_lines(own))
            if passages:
                often = zip(passages.texts, passages.times, strict=True)
                file.writelines(text_lines(text for text, times in often if times > turn))
    if any(held):
        lines = text_lines(text for text, out in zip(texts, held, strict=True) if out)
        (folder / "held_out.ndjson").write_text("".join(lines), encoding="utf-8", newline="\n")
    values: dict[str, Any] = {}
    if passages:
        with open(folder / "passages.ndjson", "w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(passages.example(i).to_dict()) + "\n" for i in range(len(passages.texts)))
        counts = np.bincount(passages.times, minlength=TIMES + 1)[1:].tolist()
        ends = {"most": passages.example(0), "least": passages.example(-1)}
        values = {"corpora": passages.read, "times": tuple(counts), **ends}
    text = DomainText(
        task=source.task.name,
        pool_texts=len(texts),
        pool_words=_words(texts),
        pool_left_out=source.pool.left_out,
        pool_times=rounds,
        held_out=sum(held),
        identity=identity,
        **values,
    )
    (folder / "domain.json").write_text(json.dumps(text.to_dict(), indent=1), encoding="utf-8")
    return text


def _words(texts: Iterable[str]) -> int:
    return sum(len(text.split()) for text in texts)


# ------------------------------------------------------------------------------------------------ relevance


@dataclass(frozen=True, eq=False)
class Relevances:
    """Relevance of each passage of some corpora. Letters: P passages."""

    values: np.ndarray
    """(P,) float32 from 0 to 1, or ``LEFT_OUT`` or ``KNOWN``"""
    words: np.ndarray
    """(P,) int32 words of each passage"""
    corpora: np.ndarray
    """(P,) int16 index of the corpus of each"""

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
    words = [word.span() for word in finditer(r"\S+", document)]
    if len(words) < SHORTEST_FOUND:
        return
    count = -(-len(words) // LONGEST_PASSAGE)
    bounds = [len(words) * i // count for i in range(count + 1)]
    yield from (document[words[start][0] : words[end - 1][1]] for start, end in pairwise(bounds))


def relevances(corpora: Sequence[Source], texts: Sequence[str], scored: Sequence[str]) -> Relevances:
    """The relevance of every passage of ``corpora`` for the ``texts`` of a task; those like a ``scored`` text are left out.

    A passage is like a scored text if it is equal, or if it contains one, at least half of its 5-grams.
    """
    first = [passage for corpus in corpora for passage in islice(passages_of([corpus]), WEIGHED)]
    weights = TfidfTransformer(sublinear_tf=True).fit(_counts([*texts, *first]))
    compared = np.sort(rng(0, "texts that passages are compared with").permutation(len(texts))[:TEXTS_COMPARED])
    rows = weights.transform(_counts([texts[i] for i in compared])).T  # (V, N), each text of length 1
    known, scored_words, scored_keys = {*map(text_key, texts)}, [*map(text_words, scored)], {*map(text_key, scored)}
    values, words, owners = [np.zeros(0, np.float32)], [np.zeros(0, np.int32)], [np.zeros(0, np.int16)]
    for number, corpus in enumerate(corpora):
        stream = passages_of([corpus])
        while chunk := [*islice(stream, PASSAGES_AT_ONCE)]:
            keys, relevance = [*map(text_key, chunk)], _nearness((weights.transform(_counts(chunk)) @ rows).toarray())
            relevance[[key in known for key in keys]] = KNOWN
            like = documents_with(scored_words, [*map(text_words, chunk)]) | np.array([key in scored_keys for key in keys])
            relevance[like] = LEFT_OUT
            values.append(relevance)
            words.append(np.array([len(passage.split()) for passage in chunk], dtype=np.int32))
            owners.append(np.full(len(chunk), number, dtype=np.int16))
    return Relevances(np.concatenate(values), np.concatenate(words), np.concatenate(owners))


def _nearness(cosines: np.ndarray) -> np.ndarray:
    """(P,) float32: the mean of the cosines (P, N) with the nearest texts."""
    nearest = min(NEAREST, cosines.shape[1])
    top = -np.partition(-cosines, nearest - 1, axis=1)[:, :nearest]
    mean: np.ndarray = top.mean(axis=1).astype(np.float32)
    return mean


def _counts(texts: Iterable[str]) -> csr_matrix:
    """(N, V) how often each text has a word of each column."""
    return HashingVectorizer(analyzer=text_words, n_features=COLUMNS, alternate_sign=False, norm=None).transform(texts)
