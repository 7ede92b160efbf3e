"""Text into a folder of token shards, piece by piece, in as many processes as one likes.

    write_tokens(plan, jobs)                  the pieces of a large text (``tokenize``)   ->   the index of the folder
    tokenized_sides(sources, tokenizer, cache)  a text that is one piece, kept in a cache   ->   its tokens, to read

Notable:

- Each piece becomes a folder of its own, written under another name and put in its place when it is complete; the index comes last.
  Whoever runs the same plan again goes on with the pieces that are missing.
- What a piece holds depends on the text and the settings alone, so the bytes are the same for any number of jobs or cores and after
  any interruption.
- Reading and writing are serial; meanwhile the next ``AHEAD`` batches are encoded in other threads. Memory holds a few batches of
  documents for each job.
- The name of a folder in a cache is a hash of the text, of how it is read and of the tokenizer: no text is encoded twice. A command
  that finds it checks every byte, about a second for a gigabyte, and writes a damaged one again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from warmstart.corpora.pieces import (
    BATCH_CHARACTERS,
    DocumentSplit,
    Part,
    Piece,
    document_batches,
    documents_of_piece,
    identity_of,
    name_in_text,
)
from warmstart.corpora.store import TOKENIZER, LeftOut, ShardEntry, ShardIndex, TokenFolder, TokenText, is_whole, text_of_shards
from warmstart.data.read import source_files, source_root
from warmstart.data.source import Source
from warmstart.errors import DataError
from warmstart.system.console import console
from warmstart.system.locks import discard_dead, hold, releasing_locks
from warmstart.system.processes import in_workers
from warmstart.system.storage import FORMAT, atomic_folder, atomic_write, digest_of, file_sha256, is_leftover, sha256, sweep
from warmstart.system.urls import bring, is_url, remote_files
from warmstart.tokenizer.tokenizer import Tokenizer

SHARD_TOKENS = 1 << 25
"""a shard has so many tokens, and those of its last batch that are over"""
AHEAD = 2
"""batches that are encoded while others are read and written"""
SHARDS, PIECE, WORK = "shards", "piece.json", "work"
"""names in the folder: shards of the pieces, record of each piece, and files that are removed at the end"""


# ------------------------------------------------------------------------------------------------ folders


@dataclass(frozen=True)
class TokenizePlan:
    """Pieces to tokenize, tokenizer and folder."""

    pieces: tuple[Piece, ...]
    tokenizer: Tokenizer
    folder: Path
    split: DocumentSplit | None = None
    """the documents that are held out; None: nothing is"""
    test_texts: tuple[tuple[str, ...], ...] = ()
    """the words of texts that no document may hold"""
    filters: tuple[str, ...] = ()
    """the filters in words, for the index"""
    one_shard: bool = False
    """the text is one piece, each side of which becomes one shard with all of its documents, also those that become no token"""

    @property
    def identity(self) -> str:
        """A hash of everything but the folder."""
        how = [part.source.model_copy(update={"path": ""}).to_dict() for piece in self.pieces[:1] for part in piece[:1]]
        split = self.split and self.split.to_dict()
        return digest_of([
            FORMAT, identity_of(self.pieces), how, self.tokenizer.digest, split, self.test_texts, self.filters, self.one_shard
        ])  # fmt: skip

    def place(self, number: int) -> Path:
        """The folder of a piece's shards."""
        return self.folder / SHARDS / f"{number:05}"

    def held_out(self, piece: int, document: int) -> bool | None:
        """Whether a document is held out, by its number in its piece; None: it is not in the sample of the split."""
        number = (document,) if self.one_shard else (piece, document)
        return False if self.split is None else self.split.held_out(*number)


def write_tokens(plan: TokenizePlan, jobs: int = 1) -> ShardIndex:
    """Write the shards that are missing, then the index. Raises ``DataError`` if there is no document, or a worker was killed."""
    for place in (plan.folder / SHARDS, plan.folder / WORK):
        place.mkdir(parents=True, exist_ok=True)
        sweep(place)
    identity, numbers = plan.identity, range(len(plan.pieces))
    done_before = {number: piece for number in numbers if (piece := _finished(plan, number, identity)) is not None}
    todo = [number for number in numbers if number not in done_before]
    if done_before:
        console.print(f"{len(done_before)} of {len(numbers)} pieces of the text are done already")
    tasks = [(replace(plan, pieces=()), identity, number, plan.pieces[number]) for number in todo]
    for done, (number, _) in enumerate(in_workers(write_piece, tasks, min(jobs, len(tasks)), DataError), 1):
        if not plan.one_shard:
            console.print(f"{done} of {len(todo)}: piece {todo[number]} is tokenized")
    pieces = [done_before.get(number) or _finished(plan, number, identity) for number in numbers]
    entries = tuple(entry for piece in pieces if piece for entry in piece[0])
    _refuse_nothing(plan, entries)
    index = ShardIndex(
        format=FORMAT,
        tokenizer=plan.tokenizer.digest,
        dtype=tokens_dtype(plan.tokenizer).name,
        document=plan.pieces[0][0].source.document,
        held_out=(plan.split and plan.split.fraction) or None,
        one_shard=plan.one_shard,
        filters=plan.filters,
        left_out=LeftOut(**{name: sum(getattr(piece[1], name) for piece in pieces if piece) for name in LeftOut.model_fields}),
        shards=entries,
    )
    index.write(plan.folder)
    shutil.rmtree(plan.folder / WORK, ignore_errors=True)
    return index


def _refuse_nothing(plan: TokenizePlan, entries: Sequence[ShardEntry]) -> None:
    """Raise ``DataError`` if a side that must hold documents has none; what is held out of a large text may be none."""
    sides = {False, bool(plan.one_shard and plan.split and plan.split.fraction)} - {entry.held_out for entry in entries}
    if sides and not plan.one_shard:
        raise DataError("there must be at least one document that is kept and not empty, but the text has none; give more text")
    for held_out in sorted(sides):
        side = "held-out" if held_out else "kept"
        where = "" if plan.split is None else f"the {side} part (fraction {plan.split.fraction}) of "
        paths = ", ".join(part.source.path for part in plan.pieces[0]) or "no source"
        raise DataError(
            f"there must be at least one document that is not empty, but {where}{paths} has none; "
            "give more text, or say --document line if each line is a document"
        )


def _finished(plan: TokenizePlan, number: int, identity: str) -> tuple[tuple[ShardEntry, ...], LeftOut] | None:
    """Shards of a piece; None if it is not written, was changed since, or belongs to another plan."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        values = json.loads((plan.place(number) / PIECE).read_bytes())
        if values["identity"] == identity:
            entries = tuple(ShardEntry.build(shard) for shard in values["shards"])
            if all(is_whole(plan.folder, entry) for entry in entries):
                return entries, LeftOut.build(values["left_out"])
    return None


# ------------------------------------------------------------------------------------------------ one piece

_Document = tuple[str, int, bool]
"""a text, its number of words, and whether it is held out"""


def write_piece(plan: TokenizePlan, identity: str, number: int, piece: Piece) -> None:
    """Tokenize a piece into its folder."""
    place = plan.place(number)
    with atomic_folder(place) as aside:
        sides = {held_out: _ShardWriter(plan, aside, place.name, held_out=held_out) for held_out in (False, True)}
        left_out = dict.fromkeys(LeftOut.model_fields, 0)
        try:
            for batch, rows in _encoded(document_batches(_kept(plan, number, piece, left_out), BATCH_CHARACTERS), plan.tokenizer):
                for held_out, writer in sides.items():
                    writer.append([pair for pair in zip(batch, rows, strict=True) if pair[0][2] == held_out])
        finally:
            for writer in sides.values():
                writer.end()
        entries = [entry for writer in sides.values() for entry in writer.shards()]
        left_out["empty"] += sum(writer.empty for writer in sides.values())
        record = {"identity": identity, "shards": [entry.to_dict() for entry in entries], "left_out": left_out}
        atomic_write(aside / PIECE, json.dumps(record).encode())


def _kept(plan: TokenizePlan, piece: int, parts: Piece, left_out: dict[str, int]) -> Iterator[_Document]:
    """The documents of a piece that are not left out."""
    scratch = plan.folder / WORK / f"fetched-{os.getpid()}"
    for number, (text, words, has_test) in enumerate(documents_of_piece(parts, scratch, plan.test_texts)):
        held_out = plan.held_out(piece, number)
        if has_test:
            left_out["test_texts"] += 1
        elif held_out is not None:
            yield text, words, held_out


def _encoded(batches: Iterable[list[_Document]], tokenizer: Tokenizer) -> Iterator[tuple[list[_Document], list[list[int]]]]:
    """Each batch with the tokens of its documents, in order; the next ones are encoded meanwhile."""
    with ThreadPoolExecutor(AHEAD) as pool:
        ahead: deque[tuple[list[_Document], Future[list[list[int]]]]] = deque()
        for batch in batches:
            ahead.append((batch, pool.submit(tokenizer.encode, [text for text, *_ in batch])))
            if len(ahead) > AHEAD:
                first, rows = ahead.popleft()
                yield first, rows.result()
        yield from ((first, rows.result()) for first, rows in ahead)


def tokens_dtype(tokenizer: Tokenizer) -> np.dtype[Any]:
    """The type of stored tokens: two bytes for up to 65,536 pieces, else four."""
    return np.dtype(np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32)


class _ShardWriter:
    """Writes the documents of one side of a piece into shards, and counts."""

    def __init__(self, plan: TokenizePlan, folder: Path, piece: str, *, held_out: bool) -> None:
        self.plan, self.folder, self.piece, self.held_out = plan, folder, piece, held_out
        self.dtype = tokens_dtype(plan.tokenizer).newbyteorder("<")
        self.entries = list[dict[str, Any]]()
        self.file: IO[bytes] | None = None
        self.empty = 0

    def append(self, documents: list[tuple[_Document, list[int]]]) -> None:
        """Documents with their tokens; of a large text, those that become no token are left out."""
        specials = self.plan.tokenizer.specials
        kept = [document for document in documents if document[1] or self.plan.one_shard]
        self.empty += len(documents) - len(kept)
        if not kept:
            return
        flat = np.fromiter(chain.from_iterable((*ids, specials.eos) for _, ids in kept), self.dtype)
        assert int((flat == specials.eos).sum()) == len(kept), "no text is encoded to the token that ends a document"
        file, entry = self.file or self._begin(), self.entries[-1]
        file.write(flat.tobytes())
        entry["tokens"] += len(flat)
        entry["documents"] += len(kept)
        entry["words"] += sum(words for (_, words, _), _ in kept)
        entry["bytes"] += sum(len(text.encode()) for (text, *_), _ in kept)
        entry["unknown"] += int((flat == specials.unk).sum())
        if entry["tokens"] >= SHARD_TOKENS and not self.plan.one_shard:
            self.end()

    def _begin(self) -> IO[bytes]:
        name = f"{'held-out' if self.held_out else 'train'}-{len(self.entries):04}.bin"
        self.entries.append({"tokens": 1, "documents": 0, "words": 0, "bytes": 0, "unknown": 0, "name": name})
        self.file = open(self.folder / name, "wb")  # noqa: SIM115  (``end`` closes it)
        self.file.write(np.array([self.plan.tokenizer.specials.eos], self.dtype).tobytes())
        return self.file

    def end(self) -> None:
        """Close the shard that is being written."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def shards(self) -> list[ShardEntry]:
        """The shards that were written."""
        more = {"held_out": self.held_out}
        return [
            ShardEntry(**values | more | {"name": f"{SHARDS}/{self.piece}/{name}", "sha256": file_sha256(self.folder / name)})
            for values in self.entries
            for name in [values["name"]]
        ]


# ------------------------------------------------------------------------------------------------ text in one piece

TokenSides = tuple[TokenText, TokenText | None]
"""training text and held-out text; None: nothing is held out"""


def tokenized_text(sources: Sequence[Source], tokenizer: Tokenizer, cache: Path) -> TokenText:
    """The tokens of all documents in ``sources``, as ``tokenized_sides`` writes them."""
    return tokenized_sides(sources, tokenizer, cache)[0]


def tokenized_sides(sources: Sequence[Source], tokenizer: Tokenizer, cache: Path, split: DocumentSplit | None = None) -> TokenSides:
    """The tokens of all documents in ``sources``, or of both sides of a split, written unless ``cache`` has them already.

    Those that are damaged are written again. Raises ``DataError`` if there is no document, ``StorageError`` if the disk refuses or
    another process is writing the same text; nothing is left behind.
    """
    folder = Path(cache) / _key(sources, tokenizer, split)
    lock = folder.with_name(f".{folder.name}.lock")
    if sides := _whole_sides(folder, tokenizer):
        discard_dead(lock)
        return sides
    with releasing_locks():
        folder.parent.mkdir(parents=True, exist_ok=True)
        hold(lock, f"the tokenised text {folder}")
        sweep(folder.parent)
        sides = _whole_sides(folder, tokenizer)  # another process may have written it before the lock was free
        if not sides:
            with atomic_folder(folder) as aside:
                tokenizer.save(aside / TOKENIZER)
                write_tokens(TokenizePlan((tuple(map(Part, sources)),), tokenizer, aside, split, one_shard=True))
            sides = _whole_sides(folder, tokenizer)
        assert sides, "what was just written can be read"
        return sides


def _whole_sides(folder: Path, tokenizer: Tokenizer) -> TokenSides | None:
    """The sides of a folder; None if it is not there, or damaged."""
    with suppress(DataError, OSError):
        if (found := TokenFolder.open(folder)) and all(is_whole(folder, entry) for entry in found.index.shards):
            training, held_out = (text_of_shards([found], tokenizer, held_out=side) for side in (False, True))
            return (training, held_out) if training else None
    return None


def _key(sources: Sequence[Source], tokenizer: Tokenizer, split: DocumentSplit | None) -> str:
    """The folder's name: a hash of the files' content, how they are read, the tokenizer, the split and the format.

    A single file is known by its suffixes alone, since it may move; a file of a folder by its path in the folder.
    """
    read = []
    for source in sources:
        root = source_root(source)
        names = [("".join(file.suffixes) if file == root else name_in_text(source, file), file) for file in source_files(source)]
        read.append(source.to_dict() | {"path": [(name, _content(file)) for name, file in names]})
    return digest_of([FORMAT, tokenizer.digest, split.to_dict() if split else None, read])


def _content(file: Path) -> str:
    try:
        return file_sha256(file)
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}; check the path and its permissions") from None


def text_here(source: Source, cache: Path) -> Source:
    """Text as a source on this machine: a path as it is; the files of a URL are brought into ``cache``, where they stay."""
    path = source.path
    if not is_url(path):
        return source
    folder = cache / "fetched" / sha256(path.encode())[:24]
    files = remote_files(path)
    targets = [folder.joinpath(*file.name.split("/")) for file in files]
    for old in folder.rglob("*"):
        if old.is_file() and old not in targets and not is_leftover(old.name):
            old.unlink(missing_ok=True)  # it is not there any more
    for file, target in zip(files, targets, strict=True):
        if folder.resolve() not in target.resolve().parents:
            raise DataError(f"a file of {path} must lie in it, but {file.name} does not")
        if not (target.is_file() and target.stat().st_size == file.size):
            target.parent.mkdir(parents=True, exist_ok=True)
            bring(file.url, target, file.size)
    if len(files) == 1:
        return source.model_copy(update={"path": str(folder.joinpath(*files[0].name.split("/")))})
    return source.model_copy(update={"path": str(folder)})
