"""What is left out while text becomes shards: documents that hold test texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.tasks import cats
from warmstart.commands.settings import TokenizeConfig
from warmstart.commands.tokenize import left_out_sentences, tokenize
from warmstart.corpora import pieces as pieces_module
from warmstart.corpora.index import LeftOut
from warmstart.corpora.open import shard_folders, text_of_shards
from warmstart.data.text_key import text_words
from warmstart.seeding import rng
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer


def random_text(name: str, words: int) -> list[str]:
    """Words of a vocabulary of ten thousand."""
    return [f"w{number}" for number in rng(0, name).integers(0, 10_000, words)]


def documents_in(folder: Path, tokenizer: Tokenizer) -> list[str]:
    """The documents of shards of which nothing is held out."""
    text = text_of_shards(shard_folders([str(folder)]), tokenizer, held_out=False)
    assert text is not None
    ids, lengths = text.documents_block(np.arange(text.documents), 4000, tokenizer.specials.pad)
    return [tokenizer.decode(row[1 : length - 1]) for row, length in zip(ids, lengths, strict=True)]


def test_what_is_left_out_is_counted_and_said(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Documents around a test text, in any file; the others stay."""
    monkeypatch.setattr(pieces_module, "PIECE_BYTES", 2000)
    task = cats()
    manifest = save_task(task, tmp_path / "task")
    tokenizer.save(tmp_path / "tokenizer.json")
    plain = [" ".join(random_text(f"{number}", 30)) for number in range(20)]
    scored = [text for split in (task.test, task.validation) for text in split.texts if len(text_words(text)) >= 5]
    holding = [f"Somebody said: {text} Nobody knew why." for text in scored[:3]]
    (tmp_path / "a.txt").write_text("\n\n".join([*plain[:10], *holding[:2]]))
    (tmp_path / "b.txt").write_text("\n\n".join([holding[2], *plain[10:]]))
    config = TokenizeConfig(
        text=(str(tmp_path / "a.txt"), str(tmp_path / "b.txt")),
        out=str(tmp_path / "out"),
        held_out="none",
        tokenizer_file=str(tmp_path / "tokenizer.json"),
        drop_test_texts_of=(str(manifest),),
    )
    index = tokenize(config)
    assert documents_in(tmp_path / "out", tokenizer) == plain
    assert index.left_out == LeftOut(test_texts=3)
    assert index.filters == (f"test texts of {task.name}",)
    printed = capsys.readouterr().err
    assert "3 documents are left out: a test or validation text of the task occurs in each." in printed
    assert left_out_sentences(LeftOut(), ()) == []
    assert left_out_sentences(LeftOut(empty=2), ()) == ["2 documents are left out: the tokenizer makes no token of them."]
