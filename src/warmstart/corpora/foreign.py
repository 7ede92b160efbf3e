"""Token shards that other programs wrote.

    NAME.ds + NAME.ds.index   datatrove: tokens of two or four bytes; the index holds the end of each document, uint64
    NAME.bin with a header    llm.c and modded-nanogpt: 256 int32 (magic number, version, number of tokens), then the tokens
    NAME.bin without          nanoGPT: tokens of two bytes, nothing else

They name no tokenizer: ``--tokenizer-file`` does. They hold no hashes either: a shard that changed is noticed by its size, and by
the bytes at its beginning and its end. Every token of a shard is checked against the vocabulary when the shard is first read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from warmstart.corpora.shards import Shard
from warmstart.data.read import source_files
from warmstart.data.source import Source
from warmstart.errors import ConfigError, DataError
from warmstart.system.storage import sha256
from warmstart.system.urls import is_url, read_range, remote_files

HEADER_INTS = 256
"""numbers of four bytes in the header of llm.c"""
LLM_C = {20240520: (1, "uint16"), 20240801: (7, "uint32")}
"""magic number -> version, and the type of the tokens"""
EDGE = 1 << 16
"""bytes at the beginning and at the end of a shard that its identity depends on"""
DTYPES = {2: "uint16", 4: "uint32"}
"""bytes of a token -> its type"""
BESIDE = (".index", ".metadata", ".loss", ".json", ".pkl", ".py", ".md", ".yaml")
"""endings of what programs write beside their shards, and which is no text to train on"""


@dataclass(frozen=True)
class ForeignFile:
    """A file with tokens, or with the ends of documents."""

    place: str
    """a path or a URL"""
    size: int

    def read(self, start: int, length: int) -> bytes:
        """Some of its bytes. Raises ``DataError`` if it cannot be read."""
        if is_url(self.place):
            return read_range(self.place, start, length)
        try:
            with open(self.place, "rb") as stream:
                stream.seek(start)
                return stream.read(length)
        except OSError as error:
            raise DataError(f"{self.place} cannot be read ({error.strerror}); check the path and its permissions") from None


def is_foreign(name: str) -> bool:
    """Whether a file has tokens of another program, by its name."""
    return name.endswith((".ds", ".bin"))


def foreign_shards(files: Sequence[ForeignFile], token_size: int) -> tuple[tuple[Shard, ...], str]:
    """The shards in some files, among which are the indexes of datatrove's; and a hash of them."""
    sizes = {file.place: file for file in files}
    shards, identity = list[Shard](), list[str]()
    for file in files:
        if file.place.endswith(".ds"):
            shards.append(_datatrove(file, sizes.get(f"{file.place}.index"), sizes.get(f"{file.place}.metadata"), token_size))
        elif file.place.endswith(".bin"):
            shards.append(_flat(file, token_size))
        elif file.place.endswith(BESIDE):
            continue
        else:
            raise ConfigError(
                f"train on text or on shards, but {file.place} lies among shards and is none; name the shards themselves, such as "
                "FOLDER/*.bin, or tokenize the text first"
            )
        identity += [sha256(file.read(0, EDGE)), sha256(file.read(max(0, file.size - EDGE), EDGE)), str(file.size)]
    for shard in shards:
        if shard.tokens < 2:
            raise DataError(f"a shard must hold at least two tokens, but {shard.place} holds {shard.tokens}; leave it out")
    return tuple(shards), sha256("/".join(identity).encode())


def _datatrove(file: ForeignFile, index: ForeignFile | None, metadata: ForeignFile | None, token_size: int) -> Shard:
    """A shard of datatrove; without its index it does not say where documents end."""
    if metadata is not None:
        _check_token_size(file.place, metadata.read(0, EDGE), token_size)
    tokens = _whole(file, 0, token_size, "--token-size 2 or 4 must be that with which it was written")
    if index is None:
        return Shard(file.place, tokens, DTYPES[token_size], None)
    documents = _whole(index, 0, 8, "it must hold the end of each document in eight bytes")
    last = int(np.frombuffer(index.read(index.size - 8, 8), "<u8")[0]) if documents else 0
    if last != tokens:
        raise DataError(
            f"the last document of {file.place} must end at its {tokens:,} tokens, but {index.place} says {last:,}; "
            "check --token-size, or copy both again"
        )
    return Shard(file.place, tokens, DTYPES[token_size], documents, ends=index.place)


def _check_token_size(place: str, metadata: bytes, token_size: int) -> None:
    """The first line of its metadata is ``TOKENIZER|SIZE``."""
    first = metadata.split(b"\n", 1)[0].decode(errors="replace")
    size = first.rpartition("|")[2]
    if size in ("2", "4") and int(size) != token_size:
        raise DataError(f"the tokens of {place} have {size} bytes, as its metadata says; use --token-size {size}, not {token_size}")


def _flat(file: ForeignFile, token_size: int) -> Shard:
    """A shard of llm.c, or of nanoGPT if it has no header."""
    start = np.frombuffer(file.read(0, 12).ljust(12, b"\0"), "<i4")
    if int(start[0]) not in LLM_C:
        tokens = _whole(file, 0, token_size, "--token-size 2 or 4 must be that with which it was written")
        return Shard(file.place, tokens, DTYPES[token_size], None)
    version, dtype = LLM_C[int(start[0])]
    tokens = _whole(file, 4 * HEADER_INTS, np.dtype(dtype).itemsize, "copy it again")
    if int(start[1]) != version or int(start[2]) != tokens:
        raise DataError(
            f"the header of {file.place} must name version {version} and its {tokens:,} tokens, but names version {start[1]} and "
            f"{start[2]:,}; copy it again"
        )
    return Shard(file.place, tokens, dtype, None, header=4 * HEADER_INTS)


def _whole(file: ForeignFile, header: int, size: int, advice: str) -> int:
    """How many numbers of ``size`` bytes stand behind the header. Raises ``DataError`` if the last one is cut off."""
    count, rest = divmod(file.size - header, size)
    if rest or count < 0:
        raise DataError(f"{file.place} must hold numbers of {size} bytes, but has {file.size:,} bytes; {advice}")
    return count


def foreign_files(path: str) -> list[ForeignFile]:
    """The files that a path, a glob or a URL names and that may belong to shards of another program; none if there is none."""
    if is_url(path):
        found = [(one.url, one.size) for one in remote_files(path)]
        if missing := [url for url, size in found if size is None]:
            raise DataError(f"the server must say how many bytes {missing[0]} has, but does not; download it first")
    else:
        found = [(str(file), file.stat().st_size) for file in source_files(Source(path=path))]
    files = [ForeignFile(place, size or 0) for place, size in found]
    if len(files) == 1 and files[0].place.endswith(".ds"):
        files += _beside(files[0].place)
    return files if any(is_foreign(file.place) for file in files) else []


def _beside(place: str) -> list[ForeignFile]:
    """The index and the metadata of a single shard of datatrove, if they are there."""
    found = list[ForeignFile]()
    for ending in (".index", ".metadata"):
        if is_url(place):
            try:
                found += [ForeignFile(one.url, one.size or 0) for one in remote_files(place + ending)]
            except DataError:
                continue
        elif (file := Path(place + ending)).is_file():
            found.append(ForeignFile(str(file), file.stat().st_size))
    return found
