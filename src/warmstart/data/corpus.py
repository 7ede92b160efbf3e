"""The token store: much text as one flat row of ids on disk, made once and read by memory map.

    documents  "ab", "c"   ->   tokens.bin  [EOS] a b [EOS] c [EOS]      bounds.npy  0 3 5

``bounds`` holds the place of the [EOS] before each document, and of the last one. Notable:

- Memory stays flat however long the text is: texts are read, encoded and written about a megabyte at a time.
- The folder's name is a hash of what went in (text, source settings, tokenizer), so the same text is never prepared twice.
- It is built aside and renamed: a folder that bears the name is whole.

It does not shuffle, mask or make tensors (``batch.py``), and it does not look for repeated documents (``audit.py``).

Letters: B rows asked for, T predicted tokens of a row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from pydantic import Field

from warmstart.config import Config
from warmstart.data.read import read_documents, source_files
from warmstart.data.source import Source
from warmstart.errors import DataError
from warmstart.seeding import derive
from warmstart.storage import sha256, whole_folder
from warmstart.tokenizer import Tokenizer

FORMAT = 1
"""raised whenever the same text would be stored differently"""
BATCH_CHARACTERS = 1 << 20
"""characters encoded at once"""


class Part(Config):
    """One side of a random cut of the documents into kept and held-out ones."""

    share: float = Field(gt=0, lt=1)
    """share of the documents that is held out"""
    held_out: bool
    """this is the held-out side"""
    seed: int = 0
    """start of the random choice"""

    def takes(self, number: int) -> bool:
        """Whether the document with this number is on this side; each document is on exactly one side."""
        return (derive(self.seed, "held-out document", number) < self.share * 2**63) == self.held_out


@dataclass
class _Counts:
    """What is counted while a corpus is written."""

    tokens: int = 0
    documents: int = 0
    words: int = 0
    bytes: int = 0
    unknown: int = 0


@dataclass(frozen=True, eq=False)
class Corpus:
    """A token store that is open for reading; nothing is in memory before it is asked for."""

    folder: Path
    """where it lies"""
    tokens: np.ndarray
    """(tokens,) memory map of all ids, uint16 or uint32"""
    bounds: np.ndarray
    """(documents + 1,) int64: the place of the [EOS] before each document, and of the last one"""
    documents: int
    """how many documents"""
    words: int
    """white-space words, plus one per document for its end"""
    bytes: int
    """bytes of the text in UTF-8"""
    unknown: int
    """tokens that are unknown"""
    digest: str
    """sha256 of the tokens: equal digests hold the same tokens"""

    @classmethod
    def open(cls, folder: Path, *, verify: bool = False) -> Corpus:
        """The corpus in a folder; sizes are checked, and with ``verify`` every byte. Raises ``DataError`` if damaged."""
        try:
            entry = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
            if entry["format"] != FORMAT:
                raise DataError(f"the corpus in {folder} has format {entry['format']}, but {FORMAT} is read; {_AGAIN}")
            tokens = np.memmap(folder / "tokens.bin", dtype=entry["dtype"], mode="r")
            bounds = np.load(folder / "bounds.npy", mmap_mode="r")
            digest, counts = entry["sha256"], entry["counts"]
            for name, found, wanted in (
                ("tokens.bin", len(tokens), counts["tokens"]),
                ("bounds.npy", len(bounds), counts["documents"] + 1),
            ):
                if found != wanted:
                    raise DataError(f"{folder / name} must hold {wanted} numbers, but holds {found}; {_AGAIN}")
                if verify and _sha256(folder / name) != digest[name]:
                    raise DataError(f"{folder / name} was changed after it was written; {_AGAIN}")
            counts.pop("tokens")
            return cls(folder, tokens, bounds, **counts, digest=digest["tokens.bin"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"the corpus in {folder} cannot be read: {error}; {_AGAIN}") from None

    @property
    def predicted(self) -> int:
        """How many tokens a language model predicts in it: all but the first [EOS]."""
        return len(self.tokens) - 1

    def rows(self, length: int, *, ragged: bool = False) -> int:
        """How many rows of ``length`` predicted tokens there are; ``ragged`` counts a shorter last one too."""
        return -(-self.predicted // length) if ragged else self.predicted // length

    def row_block(self, indices: np.ndarray, length: int, pad_id: int, *, ragged: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Rows by number: ids (B, T + 1) int64, and how many ids of each row are real (B,).

        Each row begins with the last token of the row before it, so that every token is predicted exactly once. With
        T = 2 the tokens ``[0 1 2 3 4 5]`` are the rows ``[0 1 2]``, ``[2 3 4]``, and, if ``ragged``, ``[4 5 pad]``.
        """
        rows = self.rows(length, ragged=ragged)
        assert len(indices) == 0 or (np.min(indices) >= 0 and np.max(indices) < rows), f"rows must be below {rows}"
        starts = np.asarray(indices, dtype=np.int64) * length
        return self._gather(starts, np.minimum(length + 1, len(self.tokens) - starts), length + 1, pad_id)

    def documents_block(self, indices: np.ndarray, length: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """Documents by number: ids (B, ``length``) int64, and how many of each row are real (B,).

        A row is ``[EOS] text [EOS]``, cut at ``length``, filled with ``pad_id``.
        """
        starts = np.asarray(self.bounds[indices])
        ends = np.asarray(self.bounds[np.asarray(indices) + 1]) + 1
        return self._gather(starts, np.minimum(length, ends - starts), length, pad_id)

    def _gather(self, starts: np.ndarray, lengths: np.ndarray, width: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """``width`` ids from each start, of which the first ``lengths`` are real."""
        steps = np.arange(width)
        places = np.minimum(starts[:, None] + steps, len(self.tokens) - 1)  # (B, width)
        ids = self.tokens[places].astype(np.int64)
        ids[steps >= lengths[:, None]] = pad_id
        return ids, lengths

    def __reduce__(self) -> tuple[Any, ...]:
        return Corpus.open, (self.folder,)  # another process maps the same files instead of copying them


_AGAIN = "delete the folder, and it is prepared again"


def documents_of(sources: Sequence[Source], part: Part | None = None) -> Iterator[str]:
    """All documents in ``sources`` that are not blank, or those of one part of them, in order."""
    stream = (text for source in sources for text in read_documents(source) if text and not text.isspace())
    return (text for number, text in enumerate(stream) if part is None or part.takes(number))


def prepare(sources: Sequence[Source], tokenizer: Tokenizer, cache: Path, part: Part | None = None) -> Corpus:
    """The token store of all documents in ``sources`` (or of one part of them), made unless ``cache`` holds it already.

    Raises ``DataError`` if there is no document, ``StorageError`` if the disk refuses; either way nothing is left behind.
    """
    folder = Path(cache) / _key(sources, tokenizer, part)
    if folder.exists():
        return Corpus.open(folder)
    documents = documents_of(sources, part)
    with whole_folder(folder) as aside:
        counts = _write(documents, tokenizer, aside)
        if not counts.documents:
            where = ", ".join(source.path for source in sources) or "no source at all"
            which = "" if part is None else f" in the {'held-out' if part.held_out else 'kept'} part (share {part.share})"
            raise DataError(
                f"a corpus needs at least one document that is not empty, but found none{which}: {where}; give more text"
            )
        entry = {
            "format": FORMAT,
            "dtype": _dtype(tokenizer).name,
            "tokenizer": tokenizer.digest,
            "counts": asdict(counts),
            "sha256": {name: _sha256(aside / name) for name in ("tokens.bin", "bounds.npy")},
        }
        (aside / "corpus.json").write_text(json.dumps(entry, indent=2) + "\n", encoding="utf-8")
    return Corpus.open(folder)


def _write(documents: Iterable[str], tokenizer: Tokenizer, folder: Path) -> _Counts:
    """Write ``tokens.bin`` and ``bounds.npy``, and count."""
    eos, unk, dtype = tokenizer.specials.eos, tokenizer.specials.unk, _dtype(tokenizer)
    counts = _Counts(tokens=1)
    with open(folder / "tokens.bin", "wb") as tokens, open(folder / "bounds.npy", "wb") as bounds:
        _npy_header(bounds, 0)  # numpy leaves room in it, so that the true length fits in the same place at the end
        _append(tokens, np.array([eos], dtype))
        _append(bounds, np.array([0]))
        for texts in _batches(documents):
            rows = [[*ids, eos] for ids in tokenizer.encode(texts)]
            flat = np.concatenate([np.array(row, dtype) for row in rows])
            _append(tokens, flat)
            _append(bounds, counts.tokens - 1 + np.cumsum([len(row) for row in rows]))
            counts.tokens += len(flat)
            counts.documents += len(texts)
            counts.words += sum(len(text.split()) + 1 for text in texts)
            counts.bytes += sum(len(text.encode()) for text in texts)
            counts.unknown += int((flat == unk).sum())
        bounds.seek(0)
        _npy_header(bounds, counts.documents + 1)
    return counts


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """Documents in lists of about a megabyte."""
    batch: list[str] = []
    size = 0
    for text in documents:
        batch.append(text)
        size += len(text)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _append(file: IO[bytes], values: np.ndarray) -> None:
    file.write(values.tobytes())


def _npy_header(file: IO[bytes], length: int) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.int64)), "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, header)


def _dtype(tokenizer: Tokenizer) -> np.dtype[Any]:
    return np.dtype(np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32)


def _key(sources: Sequence[Source], tokenizer: Tokenizer, part: Part | None) -> str:
    """The folder's name: a hash of the files' content, how they are read, the tokenizer, the part and the format."""
    read = [
        source.plain() | {"path": [(_name(source, file), _sha256(file)) for file in source_files(source)]} for source in sources
    ]
    identity = [FORMAT, tokenizer.digest, part.plain() if part else None, read]
    return sha256(json.dumps(identity, sort_keys=True).encode())[:32]


def _name(source: Source, file: Path) -> str:
    """A file under its suffixes alone (it may move), or one of a folder under its name in it."""
    folder = Path(source.path)
    return "".join(file.suffixes) if file == folder else file.relative_to(folder).as_posix()


def _sha256(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; check the path and its permissions") from None
