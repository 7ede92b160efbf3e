"""The token store: a large text as one flat array of token ids on disk, written once and memory-mapped.

    documents  "ab", "c"   ->   tokens.bin  [EOS] a b [EOS] c [EOS]      bounds.npy  0 3 5

``bounds`` holds the index of the [EOS] before each document, and of the last one. Notable:

- Memory use does not depend on the length of the text: it is read, encoded and written about an eighth of a megabyte at a time.
- Reading and writing are serial; meanwhile the next ``AHEAD`` batches are encoded in other threads, each of them on all cores. They
  are written in their order, so the bytes do not depend on the number of cores.
- The folder's name is a hash of the text, the source settings and the tokenizer, so the same text is never encoded twice.
- The folder is written under another name and renamed when it is complete, by one process at a time.
- A command that finds a store checks every byte of it, by hashes: about a second for a gigabyte.

It does not shuffle, mask or make tensors (``pretraining_rows.py``), and it does not look for duplicates (``audit.py``).

Letters: B rows, T predicted tokens of a row.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import numpy as np
from pydantic import Field

from warmstart.config import Config
from warmstart.data.read import count_documents, source_files, source_root
from warmstart.data.source import Source
from warmstart.errors import DataError
from warmstart.seeding import derive, rng
from warmstart.system.locks import discard_dead, hold, releasing_locks
from warmstart.system.storage import atomic_folder, file_sha256, sha256, sweep
from warmstart.tokenizer.tokenizer import Tokenizer

STORE_FORMAT = 3
"""raised whenever the same text would be stored differently"""
BATCH_CHARACTERS = 1 << 17
"""characters of a batch, and those of its last document that are over"""
AHEAD = 2
"""batches that are encoded while others are read and written"""


class RowOrder(Protocol):
    """The order in which an epoch reads rows."""

    def __getitem__(self, position: int, /) -> int:
        """The number of the row that is read at a position."""
        ...


class TokenizedText(Protocol):
    """A text as tokens, read by rows."""

    @property
    def digest(self) -> str:
        """A hash of the tokens."""
        ...

    @property
    def documents(self) -> int:
        """Number of documents."""
        ...

    @property
    def words(self) -> int:
        """Those between white space, and one for every line end."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of the text in UTF-8."""
        ...

    @property
    def unknown(self) -> int:
        """Number of unknown tokens."""
        ...

    @property
    def total_tokens(self) -> int:
        """All tokens, those between documents included."""
        ...

    @property
    def predicted_tokens(self) -> int:
        """The number of tokens that a language model predicts in it."""
        ...

    def rows(self, length: int, *, ragged: bool = False) -> int:
        """The number of rows of ``length`` predicted tokens; with ``ragged`` shorter last rows count too."""
        ...

    def row_block(self, indices: np.ndarray, length: int, pad_id: int, *, ragged: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Rows by number: ids (B, T + 1) int64, and the number of ids of each row that are not padding (B,)."""
        ...

    def documents_block(self, indices: np.ndarray, length: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """Documents by number: ids (B, ``length``) int64, and the number of ids of each row that are not padding (B,)."""
        ...

    def order(self, seed: int, epoch: int, length: int | None) -> RowOrder:
        """The order of an epoch, for rows of ``length`` predicted tokens; None: for rows of one document."""
        ...


class DocumentSplit(Config):
    """One side of a random split of documents into kept and held-out ones, of all documents or of a random sample of them."""

    fraction: float = Field(ge=0, lt=1)
    """fraction of the documents that is held out"""
    held_out: bool
    """this is the held-out side"""
    seed: int = 0
    """seed of the random choice"""
    sample: int | None = Field(None, gt=0)
    """documents whose random number is at least this are on neither side (``sample_of_words``)"""

    def contains(self, number: int) -> bool:
        """Whether the document with this number is on this side; each document of the sample is on exactly one side."""
        if self.sample is not None and _sample_number(number) >= self.sample:
            return False
        return (derive(self.seed, "held-out document", number) < self.fraction * 2**63) == self.held_out


def sample_of_words(sources: Sequence[Source], words: int) -> int | None:
    """The ``DocumentSplit.sample`` with which whole documents of at most so many words are left, drawn at random; None: all are.

    A larger number of words keeps the documents of a smaller one. Words are those of ``count_documents``. Raises ``DataError`` if
    the first document that would be kept is already longer.
    """
    drawn = sorted((_sample_number(number), count) for number, (_, count) in enumerate(counted_documents(sources)))
    totals = accumulate(count for _, count in drawn)
    sample = next((number for (number, _), total in zip(drawn, totals, strict=True) if total > words), None)
    if drawn and sample == drawn[0][0]:
        raise DataError(
            f"at most {words:,} words are to be read, but the first document drawn has {drawn[0][1]:,}; allow more words, "
            "or cut the text into shorter documents (--document)"
        )
    return sample


def _sample_number(document: int) -> int:
    return derive(0, "sampled document", document)


@dataclass
class _Counts:
    """What is counted while a store is written."""

    tokens: int = 0
    documents: int = 0
    words: int = 0
    bytes: int = 0
    unknown: int = 0


@dataclass(frozen=True, eq=False)
class TokenStore:
    """A token store opened for reading, by memory map."""

    folder: Path
    tokens: np.ndarray
    """(tokens,) memory map of all ids, uint16 or uint32"""
    bounds: np.ndarray
    """(documents + 1,) int64: the index of the [EOS] before each document, and of the last one"""
    documents: int
    """number of documents"""
    words: int
    """those between white space, and one for every line end (``data.read.count_documents``)"""
    bytes: int
    """bytes of the text in UTF-8"""
    unknown: int
    """number of unknown tokens"""
    digest: str
    """sha256 of the tokens"""

    @classmethod
    def open(cls, folder: Path) -> TokenStore:
        """The store in a folder. Raises ``DataError`` if it is none, or not whole."""
        try:
            entry = json.loads((folder / "store.json").read_bytes())
            if entry["dtype"] not in ("uint16", "uint32"):
                raise ValueError(f"tokens must be uint16 or uint32, but are {entry['dtype']!r}")
            tokens = np.memmap(folder / "tokens.bin", dtype=entry["dtype"], mode="r")
            bounds = np.load(folder / "bounds.npy", mmap_mode="r")
            counts = entry["counts"]
            for name, length, expected in (
                ("tokens.bin", len(tokens), counts["tokens"]),
                ("bounds.npy", len(bounds), counts["documents"] + 1),
            ):
                if length != expected:
                    raise ValueError(f"{name} must hold {expected} numbers, but holds {length}")
            counts.pop("tokens")
            return cls(folder, tokens, bounds, **counts, digest=entry["digest"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"the token store {folder} cannot be read: {error}") from None

    @property
    def total_tokens(self) -> int:
        """All tokens, the first [EOS] included."""
        return len(self.tokens)

    @property
    def predicted_tokens(self) -> int:
        """The number of tokens that a language model predicts in it: all but the first [EOS]."""
        return len(self.tokens) - 1

    def rows(self, length: int, *, ragged: bool = False) -> int:
        """The number of rows of ``length`` predicted tokens; with ``ragged`` a shorter last row counts too."""
        return -(-self.predicted_tokens // length) if ragged else self.predicted_tokens // length

    def row_block(self, indices: np.ndarray, length: int, pad_id: int, *, ragged: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Rows by number: ids (B, T + 1) int64, and the number of ids of each row that are not padding (B,).

        Each row begins with the last token of the row before it, so that every token is predicted exactly once. With
        T = 2 the tokens ``[0 1 2 3 4 5]`` are the rows ``[0 1 2]``, ``[2 3 4]``, and, if ``ragged``, ``[4 5 pad]``.
        """
        rows = self.rows(length, ragged=ragged)
        assert len(indices) == 0 or (np.min(indices) >= 0 and np.max(indices) < rows), f"rows must be below {rows}"
        starts = np.asarray(indices, dtype=np.int64) * length
        return gather(self.tokens, starts, np.minimum(length + 1, len(self.tokens) - starts), length + 1, pad_id)

    def documents_block(self, indices: np.ndarray, length: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """Documents by number: ids (B, ``length``) int64, and the number of ids of each row that are not padding (B,).

        A row is ``[EOS] text [EOS]``, cut at ``length`` and padded with ``pad_id``.
        """
        starts = np.asarray(self.bounds[indices])
        ends = np.asarray(self.bounds[np.asarray(indices) + 1]) + 1
        return gather(self.tokens, starts, np.minimum(length, ends - starts), length, pad_id)

    def order(self, seed: int, epoch: int, length: int | None) -> np.ndarray:
        """The order of an epoch: one permutation of all rows of ``length`` predicted tokens, or of all documents."""
        return rng(seed, "rows", epoch).permutation(self.documents if length is None else self.rows(length))

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenStore.open, (self.folder,)  # another process maps the same files instead of copying them


def documents_of(sources: Sequence[Source], side: DocumentSplit | None = None) -> Iterator[str]:
    """All documents in ``sources`` that are not blank, or those on one side of a split, in order."""
    return (text for text, _ in counted_documents(sources, side))


def counted_documents(sources: Sequence[Source], side: DocumentSplit | None = None) -> Iterator[tuple[str, int]]:
    """The same documents, each with its number of words."""
    stream = (one for source in sources for one in count_documents(source) if one[0] and not one[0].isspace())
    return (one for number, one in enumerate(stream) if side is None or side.contains(number))


def prepare_store(sources: Sequence[Source], tokenizer: Tokenizer, cache: Path, side: DocumentSplit | None = None) -> TokenStore:
    """The token store of all documents in ``sources`` (or of one side of a split), written unless ``cache`` has it already.

    One that cannot be read is written again. Raises ``DataError`` if there is no document, ``StorageError`` if the disk refuses
    or another process is writing the same store; nothing is left behind.
    """
    folder = Path(cache) / _key(sources, tokenizer, side)
    lock = folder.with_name(f".{folder.name}.lock")
    with suppress(DataError):
        found = TokenStore.open(folder)
        discard_dead(lock)
        return found
    with releasing_locks():
        folder.parent.mkdir(parents=True, exist_ok=True)
        hold(lock, f"the token store {folder}")
        sweep(folder.parent)
        with suppress(DataError):  # another process may have written it before the lock was free
            return TokenStore.open(folder)
        _make(folder, sources, tokenizer, side)
        return TokenStore.open(folder)


def _make(folder: Path, sources: Sequence[Source], tokenizer: Tokenizer, side: DocumentSplit | None) -> None:
    """Write a store."""
    documents = counted_documents(sources, side)
    with atomic_folder(folder) as aside:
        counts = _write(documents, tokenizer, aside)
        if not counts.documents:
            paths = ", ".join(source.path for source in sources) or "no source"
            where = "" if side is None else f"the {'held-out' if side.held_out else 'kept'} part (fraction {side.fraction}) of "
            raise DataError(
                f"there must be at least one document that is not empty, but {where}{paths} has none; "
                "give more text, or say --document line if each line is a document"
            )
        entry = {
            "dtype": tokens_dtype(tokenizer).name,
            "tokenizer": tokenizer.digest,
            "counts": asdict(counts),
            "digest": _sha256(aside / "tokens.bin"),
        }
        (aside / "store.json").write_text(json.dumps(entry, indent=2) + "\n", encoding="utf-8")


def _write(documents: Iterable[tuple[str, int]], tokenizer: Tokenizer, folder: Path) -> _Counts:
    """Write ``tokens.bin`` and ``bounds.npy``, and count."""
    eos, unk, dtype = tokenizer.specials.eos, tokenizer.specials.unk, tokens_dtype(tokenizer)
    counts = _Counts(tokens=1)
    with open(folder / "tokens.bin", "wb") as tokens, open(folder / "bounds.npy", "wb") as bounds:
        _npy_header(bounds, 0)  # numpy pads the header, so the true length fits into the same bytes at the end
        _append(tokens, np.array([eos], dtype))
        _append(bounds, np.array([0]))
        for batch, flat, lengths in _encoded(document_batches(documents, BATCH_CHARACTERS), tokenizer):
            _append(tokens, flat)
            _append(bounds, counts.tokens - 1 + np.cumsum(lengths))
            counts.tokens += len(flat)
            counts.documents += len(batch)
            counts.words += sum(words for _, words in batch)
            counts.bytes += sum(len(text.encode()) for text, _ in batch)
            counts.unknown += int((flat == unk).sum())
        bounds.seek(0)
        _npy_header(bounds, counts.documents + 1)
    return counts


_Documents = list[tuple[str, int]]
Counted = TypeVar("Counted", bound=tuple[Any, ...])
"""a document and what is known of it: its text comes first"""


def _encoded(batches: Iterable[_Documents], tokenizer: Tokenizer) -> Iterator[tuple[_Documents, np.ndarray, np.ndarray]]:
    """Each batch with its tokens and the number of tokens of each document, in order; the next ones are encoded meanwhile."""
    with ThreadPoolExecutor(AHEAD) as pool:
        ahead: deque[tuple[_Documents, Future[tuple[np.ndarray, np.ndarray]]]] = deque()
        for batch in batches:
            ahead.append((batch, pool.submit(encode_documents, batch, tokenizer)))
            if len(ahead) > AHEAD:
                first, tokens = ahead.popleft()
                yield first, *tokens.result()
        yield from ((first, *tokens.result()) for first, tokens in ahead)


def encode_documents(batch: _Documents, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of all documents, an [EOS] behind each, and their number for each document. The library lets other threads run."""
    rows = tokenizer.encode([text for text, _ in batch])
    for ids in rows:
        ids.append(tokenizer.specials.eos)
    lengths = np.array([len(ids) for ids in rows])
    return np.fromiter(chain.from_iterable(rows), tokens_dtype(tokenizer), int(lengths.sum())), lengths


def document_batches(documents: Iterable[Counted], characters: int) -> Iterator[list[Counted]]:
    """Documents in lists of about so many characters."""
    batch: list[Counted] = []
    size = 0
    for one in documents:
        batch.append(one)
        size += len(one[0])
        if size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _append(file: IO[bytes], values: np.ndarray) -> None:
    file.write(values.tobytes())


def _npy_header(file: IO[bytes], length: int) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.int64)), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, header)


def tokens_dtype(tokenizer: Tokenizer) -> np.dtype[Any]:
    """The type of stored tokens: two bytes for up to 65,536 pieces, else four."""
    return np.dtype(np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32)


def _key(sources: Sequence[Source], tokenizer: Tokenizer, side: DocumentSplit | None) -> str:
    """The folder's name: a hash of the files' content, how they are read, the tokenizer, the side of the split and the format."""
    read = [
        source.to_dict() | {"path": [(_name(source, file), _sha256(file)) for file in source_files(source)]} for source in sources
    ]
    identity = [STORE_FORMAT, tokenizer.digest, side.to_dict() if side else None, read]
    return sha256(json.dumps(identity, sort_keys=True).encode())[:32]


def _name(source: Source, file: Path) -> str:
    """A single file by its suffixes alone, since it may move; a file of a folder by its path in the folder."""
    folder = source_root(source)
    return "".join(file.suffixes) if file == folder else file.relative_to(folder).as_posix()


def _sha256(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; check the path and its permissions") from None


TokenStores = tuple[TokenizedText, TokenizedText | None]
"""training text and held-out text; None: nothing is held out"""


def gather(tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray, width: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
    """(B, ``width``) ids from each start, int64; after the first ``lengths`` ids there is padding. And the lengths."""
    steps = np.arange(width)
    indices = np.minimum(starts[:, None] + steps, len(tokens) - 1)  # (B, width)
    ids = tokens[indices].astype(np.int64)
    ids[steps >= lengths[:, None]] = pad_id
    return ids, lengths
