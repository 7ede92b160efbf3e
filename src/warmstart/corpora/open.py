"""What a path given as text is, a folder of shards or text; and text from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from warmstart.corpora.index import INDEX_BYTES, SHARD_INDEX, TOKENIZER, ShardEntry, ShardIndex, looks_like_index, read_index
from warmstart.corpora.shards import Shard, TokenShards, same_tokenizer
from warmstart.data.source import Document, Source
from warmstart.data.token_store import TokenizedText, TokenStores, prepare_store
from warmstart.errors import ConfigError, DataError
from warmstart.system.storage import inside, is_leftover, sha256
from warmstart.system.urls import bring, is_url, remote_files
from warmstart.tokenizer.load import load_tokenizer
from warmstart.tokenizer.tokenizer import Tokenizer

USUALLY_HELD_OUT = 0.02
"""fraction of the documents that commands hold out if none is named"""


@dataclass(frozen=True)
class ShardFolder:
    """A folder of shards with its index."""

    place: Path
    index: ShardIndex

    def tokenizer(self) -> Tokenizer:
        """Its tokenizer. Raises ``DataError`` if it is not that of the index."""
        tokenizer = load_tokenizer(self.place / TOKENIZER)
        if tokenizer.digest != self.index.tokenizer:
            raise DataError(f"{self.place}/{TOKENIZER} must be the tokenizer of its shards, but is another; copy it again")
        return tokenizer

    def shard(self, entry: ShardEntry) -> Shard:
        """One of its shards."""
        try:
            place = inside(self.place, entry.name)
        except ValueError as error:
            raise DataError(f"the index of the shards of {self.place} cannot be used: {error}") from None
        return Shard(place, entry.tokens, self.index.dtype, entry.documents, entry.sha256, entry.unknown)


def shard_folders(paths: Sequence[str]) -> list[ShardFolder]:
    """The folders of shards that paths name. Raises ``DataError`` if only some of them do."""
    found = [(path, None if is_url(path) else _index_of(Path(path))) for path in paths]
    folders = [ShardFolder(Path(path), index) for path, index in found if index]
    if folders and len(folders) < len(paths):
        other = next(path for path, index in found if index is None)
        raise ConfigError(
            f"train on text or on shards, but {folders[0].place} is a folder of shards and {other} is not; tokenize it first"
        )
    same_tokenizer([one.index.tokenizer for one in folders], [str(one.place) for one in folders])
    return folders


def _index_of(folder: Path) -> ShardIndex | None:
    """The index of a folder of shards; None if it is none."""
    file = folder / SHARD_INDEX
    if not file.is_file():
        if (folder / "shards").is_dir() and (folder / TOKENIZER).is_file():
            raise DataError(
                f"{folder} holds shards without an {SHARD_INDEX}: they are not complete; run the same tokenize command again"
            )
        return None
    if file.stat().st_size > INDEX_BYTES:
        return None
    data = file.read_bytes()
    return read_index(data, str(file)) if looks_like_index(data) else None


def text_of_shards(folders: Sequence[ShardFolder], tokenizer: Tokenizer, *, held_out: bool) -> TokenShards | None:
    """One side of the shards of some folders; None if nothing is held out. Raises ``DataError`` if a shard is not there."""
    entries = [(folder, entry) for folder in folders for entry in folder.index.side(held_out=held_out)]
    if not entries:
        return None
    text = TokenShards(
        tuple(folder.shard(entry) for folder, entry in entries),
        tokenizer.vocab_size,
        tokenizer.specials.eos,
        tokenizer.specials.unk,
        sha256("/".join(entry.sha256 for _, entry in entries).encode()),
        words=sum(entry.words for _, entry in entries),
        bytes=sum(entry.bytes for _, entry in entries),
    )
    text.check_places()
    return text


@dataclass(frozen=True)
class ShardsToRead:
    """What training on shards needs to know."""

    text: tuple[str, ...]
    """paths and URLs: all of them folders of shards, or none"""
    held_out: str | float | None
    """shards or text, a fraction, or nothing"""
    tokenizer: Tokenizer | None
    """that was named, or that of the model to train further"""
    document: Document
    cache: Path

    def open(self) -> tuple[Tokenizer, TokenStores] | None:
        """The tokenizer, the training text and the held-out text; None if ``text`` is no shards.

        Raises ``ConfigError`` or ``DataError`` if shards are mixed with text, or do not fit each other or the tokenizer.
        """
        folders = shard_folders(self.text)
        if not folders:
            return None
        tokenizer = folders[0].tokenizer()
        if self.tokenizer is not None and self.tokenizer.digest != tokenizer.digest:
            raise ConfigError(
                f"the shards of {folders[0].place} were made with another tokenizer than the one that is named, or that of the "
                f"model to train further; tokenize the text again with that one (--tokenizer-file)"
            )
        training = text_of_shards(folders, tokenizer, held_out=False)
        if training is None:
            raise DataError(f"{folders[0].place} must hold shards to train on, but all documents are held out; hold out less")
        return tokenizer, (training, self._held_out(folders, tokenizer))

    def _held_out(self, folders: Sequence[ShardFolder], tokenizer: Tokenizer) -> TokenizedText | None:
        """The held-out text: documents of the shards, other shards, or text."""
        if self.held_out is None:
            return None
        if isinstance(self.held_out, float):
            return self._held_out_documents(folders, tokenizer)
        others = shard_folders([self.held_out])
        if others:
            same_tokenizer([tokenizer.digest, others[0].index.tokenizer], [self.text[0], self.held_out])
            return text_of_shards(others, tokenizer, held_out=False)
        return prepare_store([text_here(Source(path=self.held_out, document=self.document), self.cache)], tokenizer, self.cache)

    def _held_out_documents(self, folders: Sequence[ShardFolder], tokenizer: Tokenizer) -> TokenizedText:
        """Those that were held out when the text was tokenized."""
        text = text_of_shards(folders, tokenizer, held_out=True)
        if text is None:
            raise ConfigError(
                f"{self.text[0]} holds no documents out; name other shards or text (--held-out FILE), or --held-out none, or "
                "tokenize the text with a fraction to hold out"
            )
        fractions = {folder.index.held_out for folder in folders}
        if self.held_out not in {*fractions, USUALLY_HELD_OUT}:
            known = ", ".join(f"{one:g}" for one in sorted(one for one in fractions if one))
            raise ConfigError(
                f"which documents of {self.text[0]} are held out was decided when they were tokenized ({known}), so --held-out "
                f"must not be {self.held_out:g}; leave it out"
            )
        return text


def text_here(source: Source, cache: Path) -> Source:
    """Text as a source on this machine: a path as it is; the files of a URL are brought into ``cache``, where they stay."""
    path = source.path
    if not is_url(path):
        return source
    folder = cache / "fetched" / sha256(path.encode())[:24]
    files = remote_files(path)
    targets = [folder.joinpath(*one.name.split("/")) for one in files]
    for old in folder.rglob("*"):
        if old.is_file() and old not in targets and not is_leftover(old.name):
            old.unlink(missing_ok=True)  # it is not there any more
    for one, target in zip(files, targets, strict=True):
        if folder.resolve() not in target.resolve().parents:
            raise DataError(f"a file of {path} must lie in it, but {one.name} does not")
        if not (target.is_file() and target.stat().st_size == one.size):
            target.parent.mkdir(parents=True, exist_ok=True)
            bring(one.url, target, one.size)
    if len(files) == 1:
        return source.model_copy(update={"path": str(folder.joinpath(*files[0].name.split("/")))})
    return source.model_copy(update={"path": str(folder)})
