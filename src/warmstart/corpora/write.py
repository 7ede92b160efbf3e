"""Text into a folder of token shards, piece by piece, in as many processes as one likes.

    tokenize_text(plan, jobs)   ->   the index of the folder

Each piece becomes a folder of its own, written under another name and put in its place when it is complete; the index comes last.
Whoever runs the same plan again goes on with the pieces that are missing. What a piece holds depends on the text and the settings
alone, so that the bytes are the same for any number of jobs and after any interruption. Memory holds one batch of documents for
each job.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from warmstart.corpora.index import LeftOut, ShardEntry, ShardIndex
from warmstart.corpora.pieces import Piece, documents_of_piece, identity_of
from warmstart.data.source import Source
from warmstart.data.text_key import text_words
from warmstart.data.text_overlap import documents_with
from warmstart.data.token_store import BATCH_CHARACTERS, document_batches, encode_documents, tokens_dtype
from warmstart.errors import DataError
from warmstart.seeding import derive
from warmstart.system.console import console
from warmstart.system.processes import in_workers
from warmstart.system.storage import FORMAT, atomic_folder, atomic_write, file_sha256, sha256, sweep
from warmstart.tokenizer.tokenizer import Tokenizer

SHARD_TOKENS = 1 << 25
"""a shard has so many tokens, and those of its last batch that are over"""
FILTER_CHARACTERS = 1 << 21
"""characters of documents in which test texts are looked for at once"""
SHARDS, PIECE, WORK = "shards", "piece.json", "work"
"""in the folder: the shards of the pieces, what each piece became, and what is removed at the end"""


@dataclass(frozen=True)
class TokenizePlan:
    """What is tokenized, how, and where to."""

    pieces: tuple[Piece, ...]
    how: Source
    """how each file is read, whatever the path here"""
    tokenizer: Tokenizer
    held_out: float | None
    """fraction of the documents that is held out"""
    folder: Path
    test_texts: tuple[tuple[str, ...], ...] = ()
    """the words of texts that no document may hold"""
    filters: tuple[str, ...] = ()
    """the filters in words, for the index"""

    @property
    def identity(self) -> str:
        """A hash of everything but the folder."""
        texts = [self.test_texts, self.filters]
        known = [FORMAT, identity_of(self.pieces), self.how.to_dict(), self.tokenizer.digest, self.held_out, texts]
        return sha256(json.dumps(known).encode())

    def place(self, number: int) -> Path:
        """The folder of a piece's shards."""
        return self.folder / SHARDS / f"{number:05}"

    def scratch(self) -> Path:
        """A folder for files from elsewhere, of this process."""
        return self.folder / WORK / f"fetched-{os.getpid()}"

    def documents(self, piece: Piece) -> Iterator[tuple[str, int]]:
        """The documents of a piece, each with its number of words."""
        return documents_of_piece(piece, self.how, self.scratch())

    @property
    def settings(self) -> TokenizePlan:
        """The plan without its pieces, for workers."""
        return replace(self, pieces=())

    def is_held_out(self, piece: int, document: int) -> bool:
        """Whether a document is held out; by its number in its piece."""
        return is_held_out(self.held_out, piece, document)


def is_held_out(fraction: float | None, piece: int, document: int) -> bool:
    """Whether a document is held out, by its number in its piece, where this fraction of all documents is."""
    return fraction is not None and derive(0, "held-out document", piece, document) < fraction * 2**63


def tokenize_text(plan: TokenizePlan, jobs: int) -> ShardIndex:
    """Write the shards that are missing, then the index. Raises ``DataError`` if there is no document, or a worker was killed."""
    for place in (plan.folder / SHARDS, plan.folder / WORK):
        place.mkdir(parents=True, exist_ok=True)
        sweep(place)
    identity, numbers = plan.identity, range(len(plan.pieces))
    done_before = {number: piece for number in numbers if (piece := _finished(plan, number, identity)) is not None}
    todo = [number for number in numbers if number not in done_before]
    if done_before:
        console.print(f"{len(done_before)} of {len(numbers)} pieces of the text are done already")
    tasks = [(plan.settings, identity, number, plan.pieces[number]) for number in todo]
    for done, (number, _) in enumerate(in_workers(write_piece, tasks, min(jobs, len(tasks)), DataError), 1):
        console.print(f"{done} of {len(todo)}: piece {todo[number]} is tokenized")
    found = [done_before.get(number) or _finished(plan, number, identity) for number in numbers]
    entries = tuple(entry for one in found if one for entry in one[0])
    if not any(not entry.held_out for entry in entries):
        raise DataError("there must be at least one document that is kept and not empty, but the text has none; give more text")
    index = ShardIndex(
        format=FORMAT,
        tokenizer=plan.tokenizer.digest,
        dtype=tokens_dtype(plan.tokenizer).name,
        document=plan.how.document,
        held_out=plan.held_out,
        filters=plan.filters,
        left_out=sum((one[1] for one in found if one), LeftOut()),
        shards=entries,
    )
    index.write(plan.folder)
    shutil.rmtree(plan.folder / WORK, ignore_errors=True)
    return index


def _finished(plan: TokenizePlan, number: int, identity: str) -> tuple[tuple[ShardEntry, ...], LeftOut] | None:
    """What a piece became; None if it is not written, was changed since, or belongs to another plan."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        values = json.loads((plan.place(number) / PIECE).read_bytes())
        if values["identity"] == identity:
            entries = tuple(ShardEntry.build(one) for one in values["shards"])
            if all(is_whole(plan.folder, one) for one in entries):
                return entries, LeftOut.build(values["left_out"])
    return None


def is_whole(folder: Path, entry: ShardEntry) -> bool:
    """Whether a shard is there, byte for byte as it was written."""
    file = folder / entry.name
    return file.is_file() and file_sha256(file) == entry.sha256


# ------------------------------------------------------------------------------------------------ one piece


def write_piece(plan: TokenizePlan, identity: str, number: int, piece: Piece) -> None:
    """Tokenize a piece into its folder."""
    place = plan.place(number)
    with atomic_folder(place) as aside:
        sides = {side: _ShardWriter(plan.tokenizer, aside, side, place) for side in ("train", "held-out")}
        left_out = dict.fromkeys(LeftOut.model_fields, 0)
        try:
            for batch in document_batches(_kept(plan, number, plan.documents(piece), left_out), BATCH_CHARACTERS):
                for side, writer in sides.items():
                    writer.append([(text, words) for text, words, held in batch if held == (side == "held-out")])
        finally:
            for writer in sides.values():
                writer.end()
        entries = [entry for writer in sides.values() for entry in writer.shards()]
        left_out["empty"] += sum(writer.empty for writer in sides.values())
        record = {"identity": identity, "shards": [one.to_dict() for one in entries], "left_out": left_out}
        atomic_write(aside / PIECE, json.dumps(record).encode())


def _kept(
    plan: TokenizePlan, piece: int, documents: Iterator[tuple[str, int]], left_out: dict[str, int]
) -> Iterator[tuple[str, int, bool]]:
    """The documents of a piece that are not left out, with their numbers of words, and whether they are held out."""
    for number, (text, words, holds_test) in enumerate(with_test_texts(documents, plan.test_texts)):
        if holds_test:
            left_out["test_texts"] += 1
        else:
            yield text, words, plan.is_held_out(piece, number)


def with_test_texts(documents: Iterator[tuple[str, int]], test_texts: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, int, bool]]:
    """The documents with their numbers of words, and whether one of the test texts, given by their words, occurs in each."""
    for batch in document_batches(documents, FILTER_CHARACTERS):
        known = documents_with(test_texts, [text_words(text) for text, _ in batch]) if test_texts else np.zeros(len(batch), bool)
        for (text, words), holds_test in zip(batch, known, strict=True):
            yield text, words, bool(holds_test)


class _ShardWriter:
    """Writes the documents of one side of a piece into shards, and counts."""

    def __init__(self, tokenizer: Tokenizer, folder: Path, side: str, place: Path) -> None:
        self.tokenizer, self.folder, self.side, self.place = tokenizer, folder, side, place
        self.entries = list[dict[str, Any]]()
        self.file: IO[bytes] | None = None
        self.empty = 0

    def append(self, documents: list[tuple[str, int]]) -> None:
        """Documents with their numbers of words; those that become no token are left out."""
        if not documents:
            return
        flat, lengths = encode_documents(documents, self.tokenizer)
        eos, unk = self.tokenizer.specials.eos, self.tokenizer.specials.unk
        assert int((flat == eos).sum()) == len(documents), "no text is encoded to the token that ends a document"
        full = lengths > 1
        self.empty += int((~full).sum())
        if not full.any():
            return
        flat = flat[np.repeat(full, lengths)]
        if self.file is None:
            self._begin(flat.dtype)
        assert self.file is not None
        self.file.write(flat.astype(flat.dtype.newbyteorder("<")).tobytes())
        entry = self.entries[-1]
        kept = [one for one, is_full in zip(documents, full, strict=True) if is_full]
        entry["tokens"] += len(flat)
        entry["documents"] += len(kept)
        entry["words"] += sum(words for _, words in kept)
        entry["bytes"] += sum(len(text.encode()) for text, _ in kept)
        entry["unknown"] += int((flat == unk).sum())
        if entry["tokens"] >= SHARD_TOKENS:
            self.end()

    def _begin(self, dtype: np.dtype[Any]) -> None:
        name = f"{self.side}-{len(self.entries):04}.bin"
        self.entries.append({"tokens": 1, "documents": 0, "words": 0, "bytes": 0, "unknown": 0, "file": name})
        self.file = open(self.folder / name, "wb")  # noqa: SIM115  (``end`` closes it)
        self.file.write(np.array([self.tokenizer.specials.eos], dtype.newbyteorder("<")).tobytes())

    def end(self) -> None:
        """Close the shard that is being written."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def shards(self) -> list[ShardEntry]:
        """The shards that were written."""
        return [self._entry(**values) for values in self.entries]

    def _entry(self, file: str, **counts: int) -> ShardEntry:
        name = f"{SHARDS}/{self.place.name}/{file}"
        return ShardEntry(name=name, held_out=self.side == "held-out", sha256=file_sha256(self.folder / file), **counts)
