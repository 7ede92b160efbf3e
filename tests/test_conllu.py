"""CoNLL-U: words with their tags, and what is no word passed over."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from warmstart.data.conllu import read_conllu
from warmstart.errors import DataError

LINES = """# text = It doesn't.
1\tIt\tit\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2-3\tdoesn't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdoes\tdo\tAUX\tVBZ\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""


def test_words_stand_with_their_tags(tmp_path: Path) -> None:
    """Ranges, empty nodes and comments are passed over; a packed file reads alike; both columns of tags can be had."""
    (tmp_path / "a.conllu").write_text(LINES)
    with gzip.open(tmp_path / "a.conllu.gz", "wt") as file:
        file.write(LINES)
    wanted = [[("It", "PRON"), ("does", "AUX"), ("n't", "PART")], [("Yes", "INTJ")]]
    assert read_conllu(tmp_path / "a.conllu") == read_conllu(tmp_path / "a.conllu.gz") == wanted
    assert read_conllu(tmp_path / "a.conllu", "xpos")[0] == [("It", "PRP"), ("does", "VBZ"), ("n't", "RB")]


def test_other_files_are_refused(tmp_path: Path) -> None:
    """By their name, by what they lack, and where there are none."""
    (tmp_path / "b.conllu").write_text("1\tIt\n")
    (tmp_path / "c.conllu").write_text("# nothing\n")
    for name, message in (
        ("a.txt", "conllu files"),
        ("b.conllu", "at least 4 columns"),
        ("c.conllu", "at least one"),
        ("d.conllu", "no such file"),
    ):
        with pytest.raises(DataError, match=message):
            read_conllu(tmp_path / name)
