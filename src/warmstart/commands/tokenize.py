"""``tokenize``: text of any size, from anywhere, into a folder of token shards that ``pretrain`` reads as often as one likes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, takewhile
from pathlib import Path

from warmstart.commands.settings import TokenizeConfig
from warmstart.config import command_name, result_key
from warmstart.corpora.pieces import PIECE_BYTES, DocumentSplit, Piece, documents_of_piece, identity_of, pieces_of
from warmstart.corpora.store import SHARD_INDEX, TOKENIZER, LeftOut, ShardIndex, is_whole, read_index
from warmstart.corpora.write import WORK, TokenizePlan, write_tokens
from warmstart.data.text_key import plain_text, text_words
from warmstart.data.text_overlap import SHORTEST_FOUND
from warmstart.errors import ConfigError, DataError
from warmstart.runs.record import end_record, read_record_of, write_record
from warmstart.runs.steps import NextStep, command, free_name, terminal_lines
from warmstart.seeding import rng
from warmstart.stats.formatting import percent
from warmstart.system.console import console, print_table
from warmstart.system.locks import LOCK, hold
from warmstart.system.storage import RUN_FILE, is_leftover, make_folder, sweep
from warmstart.tasks.load import load_task
from warmstart.tokenizer.load import load_tokenizer
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer

SAMPLE_BYTES = 1 << 28
"""characters of text, as it lies on the disk, that a tokenizer is trained on"""
HEADER = ("text", "shards", "documents", "words", "tokens", "tokens per word", "unknown")


def tokenize(config: TokenizeConfig) -> ShardIndex:
    """Tokenize, and print what the shards hold; the ``tokenize`` command."""
    folder = Path(config.out)
    texts, filters = _test_texts(config)
    pieces = tuple(pieces_of(config.text, config.how))
    _refuse_text_inside(folder, pieces)
    named = load_tokenizer(config.tokenizer_file) if config.tokenizer_file else None
    _begin(folder, config, pieces, texts, named)
    tokenizer = _tokenizer(config, folder, pieces, named, texts)
    plan = TokenizePlan(pieces, tokenizer, folder, _split(config), texts, filters)
    index = _complete(folder, tokenizer) or write_tokens(plan, config.jobs)
    end_record(folder, f"{sum(shard.tokens for shard in index.shards):,} tokens of text are written.")
    print_table(f"{folder}: token shards", shard_table(index), HEADER)
    for sentence in left_out_sentences(index.left_out, filters):
        console.print(sentence)
    for line in terminal_lines([NextStep("pretrain", "Train on them", command("pretrain", folder, "--out", free_name("runs/lm")))]):
        console.print(line)
    return index


def shard_table(index: ShardIndex) -> list[tuple[str, ...]]:
    """One row per side under ``HEADER``."""
    rows = []
    for name, held_out in (("training", False), ("held out", True)):
        side, counts = index.side(held_out=held_out), index.counts(held_out=held_out)
        if side:
            per_word, unknown = f"{counts.tokens / counts.words:.2f}", percent(counts.unknown / counts.tokens, 2)
            figures = (len(side), counts.documents, counts.words, counts.tokens)
            rows.append((name, *(f"{figure:,}" for figure in figures), per_word, unknown))
    return rows


def left_out_sentences(left_out: LeftOut, filters: Sequence[str]) -> list[str]:
    """Sentences about the text that the filters left out."""
    sentences = []
    if filters:
        sentences.append(f"{left_out.test_texts:,} documents are left out: a test or validation text of the task occurs in each.")
    if left_out.empty:
        sentences.append(f"{left_out.empty:,} documents are left out: the tokenizer makes no token of them.")
    return sentences


def _split(config: TokenizeConfig) -> DocumentSplit | None:
    fraction = config.held_out_fraction
    return None if fraction is None else DocumentSplit(fraction=fraction)


def _test_texts(config: TokenizeConfig) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """The words of all texts that no document may hold, each once, and what is said of them."""
    words, filters = dict[tuple[str, ...], None](), []
    for manifest in config.drop_test_texts_of:
        task = load_task(manifest)
        texts = [tuple(text_words(plain_text(text))) for split in task.held_out().values() for text in split.texts]
        long = [text for text in texts if len(text) >= SHORTEST_FOUND]
        words.update(dict.fromkeys(long))
        filters.append(f"test texts of {task.name}")
        console.print(
            f"{len(long):,} test and validation texts of '{task.name}' are looked for; the {len(texts) - len(long):,} of fewer "
            f"than {SHORTEST_FOUND} words occur anywhere, and are not."
        )
    return tuple(words), tuple(filters)


def _refuse_text_inside(folder: Path, pieces: Sequence[Piece]) -> None:
    """The shards must not become text of the next run."""
    for part in (part for piece in pieces for part in piece):
        if folder.exists() and Path(part.source.path).resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"the text {part.source.path} lies inside the folder of the shards, {folder}; choose another --out")


def _begin(
    folder: Path, config: TokenizeConfig, pieces: Sequence[Piece], texts: tuple[tuple[str, ...], ...], given: Tokenizer | None
) -> None:
    """Make the folder, lock it, and refuse one that holds anything but this very text with these settings."""
    how = config.model_copy(update={"text": (), "tokenizer_file": None})  # their contents count, not their names
    identity = result_key(how, given.digest if given else "", identity_of(pieces), texts)
    make_folder(folder)
    hold(folder / LOCK, str(folder))
    sweep(folder, RUN_FILE)
    known = read_record_of(folder)
    others = [file.name for file in folder.iterdir() if file.name != LOCK and not is_leftover(file.name)]
    if known:
        if known.get("identity") != identity:
            raise ConfigError(
                f"{folder} was begun with other text or other settings (a file that changed is other text); choose another --out, "
                "or remove it"
            )
    elif others:
        raise ConfigError(f"{folder} exists and is not empty; choose another --out, or remove it")
    write_record(folder, command=command_name(config), state="running", identity=identity)


def _complete(folder: Path, tokenizer: Tokenizer) -> ShardIndex | None:
    """The index of a folder that was finished before; None if there is none, or if a part of the folder is to be written again."""
    if not (folder / SHARD_INDEX).is_file():
        return None
    try:
        index = read_index((folder / SHARD_INDEX).read_bytes(), str(folder / SHARD_INDEX))
    except DataError:
        console.print(f"the index of {folder} is damaged; it is written again")
        return None
    if index.tokenizer != tokenizer.digest:
        raise DataError(
            f"{folder / TOKENIZER} was changed after the text was tokenized; remove it: the same command makes it again"
        )
    if missing := [shard.name for shard in index.shards if not is_whole(folder, shard)]:
        more = f", like {len(missing) - 1:,} more" if len(missing) > 1 else ""
        console.print(f"the shard {missing[0]} of {folder} is gone or was changed{more}; it is written again")
        return None
    console.print(f"{folder} is complete already")
    return index


def _tokenizer(
    config: TokenizeConfig,
    folder: Path,
    pieces: Sequence[Piece],
    given: Tokenizer | None,
    test_texts: Sequence[tuple[str, ...]],
) -> Tokenizer:
    """The tokenizer that is given, or one that is trained on the text, without test texts; kept in the folder."""
    if given is None and (folder / TOKENIZER).is_file():
        return load_tokenizer(folder / TOKENIZER)
    if given is None:
        console.print(f"Training a tokenizer ({config.tokenizer.type}, {config.tokenizer.vocab_size} tokens).")
    tokenizer = given or train_tokenizer(_sample(config, folder, pieces, test_texts), config.tokenizer)
    tokenizer.save(folder / TOKENIZER)
    return tokenizer


def _sample(config: TokenizeConfig, folder: Path, pieces: Sequence[Piece], test_texts: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Documents to train a tokenizer on: all that are not held out and hold no test text, up to ``SAMPLE_BYTES``.

    Of a larger text they are those of pieces drawn at random.
    """
    split, size = _split(config), sum(part.bytes for piece in pieces for part in piece)
    order = range(len(pieces)) if size <= SAMPLE_BYTES else rng(0, "tokenizer").permutation(len(pieces))
    drawn = [pieces[number] for number in order[: max(1, SAMPLE_BYTES // PIECE_BYTES)]] if size > SAMPLE_BYTES else pieces
    if size > SAMPLE_BYTES:
        console.print(f"The tokenizer is trained on {len(drawn)} of {len(pieces)} pieces of the text, drawn at random.")
    scratch = folder / WORK / "sample"
    texts = (
        text
        for number, piece in zip(order, drawn, strict=False)
        for document, (text, _, has_test) in enumerate(documents_of_piece(piece, scratch, test_texts))
        if not has_test and not (split and split.held_out(int(number), document))
    )
    sizes = accumulate(texts, lambda seen, text: (seen[0] + len(text), text), initial=(0, ""))
    return (text for _, text in takewhile(lambda one: one[0] <= SAMPLE_BYTES, sizes) if text)
