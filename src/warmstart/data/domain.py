"""The text of a task's domain, to pretrain on first: the task's own text, and the passages of other text that are most like it.

    pool   the task's own text without labels (``pool.py``): all that is read if no other text is given
    TEXT   of its passages the most relevant (``relevance.py``), up to a number of words; the more relevant are read more often

The kept passages, most relevant first, are cut into ``TIMES`` parts with as many words each. In one pass over the text the first
part is read ``TIMES`` times, the next one time less, and so on, the last part once; the pool is read ``TIMES`` times. Test and
validation texts are never read. The choice is a function of the texts and settings. It is kept in the folder of the run with a hash
of all that it depends on, so that a run is never resumed on other text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warmstart.config import Config
from warmstart.data.files import text_lines
from warmstart.data.pool import NO_POOL, Pool, scored_texts, task_pool
from warmstart.data.relevance import KNOWN, LEFT_OUT, Relevances, passages_of, relevances
from warmstart.data.source import DomainConfig, Source
from warmstart.data.task import Task
from warmstart.data.text_key import text_key
from warmstart.data.token_store import DocumentSplit, documents_of
from warmstart.errors import CheckpointError, ConfigError, DataError
from warmstart.system.storage import atomic_folder, json_or_none

DOMAIN = "domain"
"""folder of the chosen text, in the folder of the run"""
DOMAIN_FORMAT = 1
"""raised whenever the same texts would be chosen or written differently"""
TIMES = 4
"""how often the most relevant passages are read in one pass, and the pool beside them"""
KEPT_SHARE, KEPT_LEAST = 4, 500_000
"""words of passages that are kept: so many times those of the pool, but at least so many"""


class CorpusRead(Config):
    """What was read of one file or folder of text."""

    path: str
    passages: int
    kept: int
    words: int
    """of the kept passages, each counted once"""
    left_out: int
    """like a test or validation text"""
    known: int
    """equal to a text of the pool, or to another kept passage"""


class PassageExample(Config):
    """One kept passage."""

    text: str
    relevance: float
    times: int
    """how often it is read in one pass"""
    corpus: str


class DomainText(Config):
    """The text that was chosen for a task."""

    task: str
    """its name"""
    pool_texts: int
    pool_words: int
    pool_left_out: int
    """like a test or validation text"""
    pool_times: int
    """how often the pool is read in one pass"""
    held_out: int
    """texts of the pool that are held out"""
    corpora: tuple[CorpusRead, ...] = ()
    times: tuple[int, ...] = ()
    """kept passages that are read once, twice, and so on, in one pass"""
    most: PassageExample | None = None
    """the most relevant passage"""
    least: PassageExample | None = None
    """the least relevant one that is kept"""
    identity: str
    """a hash of all texts that it was chosen from, and of the settings"""

    @property
    def passages(self) -> int:
        """Kept passages of all corpora."""
        return sum(one.kept for one in self.corpora)

    @property
    def left_out(self) -> int:
        """Texts and passages like a test or validation text."""
        return self.pool_left_out + sum(one.left_out for one in self.corpora)


@dataclass(frozen=True)
class DomainSource:
    """What the text of a domain is chosen from."""

    task: Task
    pool: Pool
    text: tuple[Source, ...]
    """other text; none: the pool alone"""
    relevant_words: int | None
    fraction: float | None
    """of the pool's texts that are held out; None: nothing is"""

    @classmethod
    def of(cls, config: DomainConfig, task: Task, text: Sequence[Source], fraction: float | None) -> DomainSource:
        """The pool of a task; ``fraction`` of it is held out. Raises ``ConfigError`` if it is empty."""
        pool = task_pool(task, config.pool)
        if not len(pool):
            why = "--pool none leaves none" if config.pool == NO_POOL else "all of it is like a test or validation text"
            raise ConfigError(
                f"--for needs text of '{task.name}' without labels, but {why}; use --pool rest or a file of such texts"
            )
        return cls(task, pool, tuple(text), config.relevant_words, fraction)

    def identity(self) -> str:
        """A hash of all texts and settings that the choice depends on."""
        settings = [DOMAIN_FORMAT, self.pool.texts, scored_texts(self.task), self.relevant_words, self.fraction]
        found = hashlib.sha256(json.dumps(settings).encode())
        for source in self.text:
            found.update(json.dumps(["corpus", source.document]).encode())
            for document in documents_of([source]):
                found.update(json.dumps(document).encode())
        return found.hexdigest()


@dataclass(frozen=True)
class _Passages:
    """The passages that are kept, most relevant first."""

    texts: tuple[str, ...]
    relevance: np.ndarray
    """(K,)"""
    times: np.ndarray
    """(K,) how often each is read in one pass"""
    corpora: np.ndarray
    """(K,) the corpus of each"""
    read: tuple[CorpusRead, ...]

    def example(self, number: int) -> PassageExample:
        """One of them, for people."""
        values: dict[str, Any] = {"relevance": round(float(self.relevance[number]), 4), "times": int(self.times[number])}
        return PassageExample(text=self.texts[number], corpus=self.read[self.corpora[number]].path, **values)


def domain_text(source: DomainSource, folder: Path) -> tuple[DomainText, list[Source], Path | None]:
    """The chosen text, what is read in one pass, and the file of what is held out, all kept in the folder of a run.

    Chosen once: a resumed run finds the same. Raises ``CheckpointError`` if the texts or settings are no longer those it was chosen
    from, and ``DataError`` if no passage is like the task's texts.
    """
    place, identity = folder / DOMAIN, source.identity()
    found = _read(place)
    if found is None:
        chosen = _kept_passages(source) if source.text else None
        with atomic_folder(place) as aside:
            found = _write(source, chosen, identity, aside)
    if found.identity != identity:
        raise CheckpointError(
            f"{place} was chosen from other texts or with other settings: the task's text or TEXT changed since the run began; "
            "start a new run in another folder"
        )
    return found, [Source(path=str(place / "training.ndjson"))], place / "held_out.ndjson" if found.held_out else None


def _read(place: Path) -> DomainText | None:
    """What was chosen before; None if nothing was, or it cannot be read."""
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
    place_of, found = {int(passage): place for place, passage in enumerate(order)}, dict[int, str]()
    for number, passage in enumerate(passages_of(source.text)):
        if number in place_of:
            found[place_of[number]] = passage
    first: dict[str, int] = {}
    for place in range(len(order)):
        first.setdefault(text_key(found[place]), place)
    kept = np.array(sorted(first.values()), dtype=np.int64)
    if not len(kept):
        raise DataError(
            f"TEXT must have passages with words of the texts of '{source.task.name}', but has none; give other text, or none"
        )
    chosen = order[kept]
    before = np.cumsum(ranked.words[chosen], dtype=np.int64) - ranked.words[chosen]
    times = TIMES - before * TIMES // ranked.words[chosen].sum()
    read = tuple(_corpus_read(number, source, ranked, order, chosen) for number in range(len(source.text)))
    return _Passages(tuple(found[place] for place in kept), ranked.values[chosen], times, ranked.corpora[chosen], read)


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
    """Write the text of one pass, what is held out, the passages, and ``domain.json``; returns what that says."""
    texts = source.pool.texts
    side = None if source.fraction is None else DocumentSplit(fraction=source.fraction, held_out=True)
    held = [side is not None and side.contains(number) for number in range(len(texts))]
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
    found = DomainText(
        task=source.task.name,
        pool_texts=len(texts),
        pool_words=_words(texts),
        pool_left_out=source.pool.left_out,
        pool_times=rounds,
        held_out=sum(held),
        identity=identity,
        **values,
    )
    (folder / "domain.json").write_text(json.dumps(found.to_dict(), indent=1), encoding="utf-8")
    return found


def _words(texts: Iterable[str]) -> int:
    return sum(len(text.split()) for text in texts)
