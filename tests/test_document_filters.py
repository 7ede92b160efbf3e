"""What is left out while text becomes shards: near-duplicates, and documents that hold test texts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from helpers.tasks import cats
from warmstart.commands.tokenize import TokenizeConfig, left_out_sentences, tokenize
from warmstart.corpora import pieces as pieces_module
from warmstart.corpora import sketches as module
from warmstart.corpora.index import LeftOut
from warmstart.corpora.open import shard_folders, text_of_shards
from warmstart.corpora.sketches import near_copies, sketch, write_sketches
from warmstart.data.near_duplicates import near_pairs
from warmstart.data.text_key import text_words
from warmstart.errors import DataError
from warmstart.seeding import rng
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer


def random_text(name: str, words: int) -> list[str]:
    """Words of a vocabulary of ten thousand."""
    return [f"w{number}" for number in rng(0, name).integers(0, 10_000, words)]


def copies_of(texts: list[str], folder: Path, parts: int = 1) -> list[bool]:
    """Which texts are nearly the same as an earlier one, in so many pieces."""
    bounds = [len(texts) * part // parts for part in range(parts + 1)]
    folders = [folder / f"{part}" for part in range(parts)]
    for place, start, end in zip(folders, bounds[:-1], bounds[1:], strict=True):
        write_sketches(texts[start:end], place)
    return [bool(one) for copies in near_copies(folders) for one in copies]


@settings(deadline=None, max_examples=30)
@given(texts=st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=14).map(" ".join), min_size=1, max_size=16))
def test_short_documents_are_compared_exactly(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """A document is a copy if an earlier one has J >= 1/2, as near_pairs finds; in one piece or in several."""
    words = [text_words(text) for text in texts]
    expected = [False] * len(texts)
    for rows, columns, _ in near_pairs(words, words):
        for row, column in zip(rows, columns, strict=True):
            expected[row] |= bool(column < row)
    assert copies_of(texts, tmp_path_factory.mktemp("sketches")) == expected
    assert copies_of(texts, tmp_path_factory.mktemp("sketches"), parts=3) == expected


def test_long_documents_are_found_by_their_sketches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 documents of 200 words, half of them copies with eight other words: all found, none wrongly, with little in memory."""
    monkeypatch.setattr(module, "HASHES_AT_ONCE", 100)
    monkeypatch.setattr(module, "DOCUMENTS_AT_ONCE", 40)
    monkeypatch.setattr(module, "CANDIDATES_AT_ONCE", 7)
    originals = [random_text(f"{number}", 200) for number in range(150)]
    changed = []
    for number, words in enumerate(originals):
        draw = rng(1, number)
        own = list(words)
        for at in draw.choice(200, 8, replace=False):
            own[at] = "other"
        changed.append(" ".join(own).upper() + "!")
    texts = [*map(" ".join, originals), *changed]
    assert copies_of(texts, tmp_path, parts=4) == [False] * 150 + [True] * 150


def test_sketches_by_example(tmp_path: Path) -> None:
    """Case, punctuation and white space change nothing; four words have no sketch; the smallest are in order; damage is named."""
    assert (sketch("The cat, the DOG and I.") == sketch("the  cat the dog and i")).all()
    assert (sketch("only four words here") == module.NO_HASH).all()
    found = sketch(" ".join(random_text("long", 500)))
    assert len(found) == module.SKETCH
    assert (np.diff(found.astype(object)) > 0).all()
    write_sketches(["a b c d e f"], tmp_path / "0")
    (tmp_path / "0" / "00000.sketches.npy").write_bytes(b"no array")
    refused(DataError, r"cannot be read: .*; remove .*0, and they are made again", near_copies, [tmp_path / "0"])


def test_many_pieces_take_few_file_handles(tmp_path: Path) -> None:
    """Of 60 pieces no more than ten are open at once."""
    resource = pytest.importorskip("resource")
    folders = [tmp_path / f"{number}" for number in range(60)]
    for folder in folders:
        write_sketches([" ".join(random_text("the same", 50))], folder)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 10, limits[1]))
    try:
        copies = near_copies(folders)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert [bool(one[0]) for one in copies] == [False, *[True] * 59]


def documents_in(folder: Path, tokenizer: Tokenizer) -> list[str]:
    """The documents of shards of which nothing is held out."""
    text = text_of_shards(shard_folders([str(folder)], folder), tokenizer, folder, held_out=False)
    assert text is not None
    assert text.documents is not None
    ids, lengths = text.documents_block(np.arange(text.documents), 4000, tokenizer.specials.pad)
    return [tokenizer.decode(row[1 : length - 1]) for row, length in zip(ids, lengths, strict=True)]


def test_what_is_left_out_is_counted_and_said(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copies after their originals, in other files too, and documents around a test text; the others stay."""
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 2000)
    task = cats()
    manifest = save_task(task, tmp_path / "task")
    tokenizer.save(tmp_path / "tokenizer.json")
    plain = [" ".join(random_text(f"{number}", 30)) for number in range(20)]
    scored = [text for split in (task.test, task.validation) for text in split.texts if len(text_words(text)) >= 5]
    holding = [f"Somebody said: {text} Nobody knew why." for text in scored[:3]]
    (tmp_path / "a.txt").write_text("\n\n".join([*plain[:10], *holding]))
    (tmp_path / "b.txt").write_text("\n\n".join([plain[2] + " more", *plain[10:], plain[3].upper(), plain[12]]))
    config = TokenizeConfig(
        text=(str(tmp_path / "a.txt"), str(tmp_path / "b.txt")),
        out=str(tmp_path / "out"),
        held_out="none",
        tokenizer_file=str(tmp_path / "tokenizer.json"),
        drop_near_duplicates=True,
        drop_test_texts_of=(str(manifest),),
    )
    index = tokenize(config)
    assert documents_in(tmp_path / "out", tokenizer) == plain
    assert index.left_out == LeftOut(near_duplicates=3, test_texts=3)
    assert index.filters == ("near-duplicates", f"test texts of {task.name}")
    printed = capsys.readouterr().err
    assert "3 documents are left out: each is nearly the same as an earlier one." in printed
    assert "3 documents are left out: a test or validation text of the task occurs in each." in printed
    assert left_out_sentences(LeftOut(), ()) == []
    assert left_out_sentences(LeftOut(empty=2), ()) == ["2 documents are left out: the tokenizer makes no token of them."]
