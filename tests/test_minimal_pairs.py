"""Files of minimal pairs: every published form is read, and a row that is not a pair is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from warmstart.data.minimal_pairs import MinimalPair, read_minimal_pairs
from warmstart.errors import DataError

GULORDAVA = "pattern\tconstr_id\tsent_id\tclass\ttype\tform\tlen_prefix\tsent\n"


def test_published_files_are_read(tmp_path: Path) -> None:
    """BLiMP's folder, Marvin and Linzen's table, Gulordava's and Linzen's; ``limit`` keeps at most this many of each group."""
    blimp = tmp_path / "blimp"
    blimp.mkdir()
    rows = [{"sentence_good": f"g{i}", "sentence_bad": f"b{i}", "UID": "x", "linguistics_term": "y"} for i in range(3)]
    with gzip.open(blimp / "x.jsonl.gz", "wt") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    (blimp / "index.tsv").write_text("not\ta pair\n")
    assert read_minimal_pairs(blimp, limit=2) == [MinimalPair("g0", "b0", "x", "y"), MinimalPair("g1", "b1", "x", "y")]
    (tmp_path / "ml.tsv").write_text('construction\tgood\tbad\nlong\tthe "cat runs\tthe "cat run\n')
    assert read_minimal_pairs(tmp_path / "ml.tsv") == [MinimalPair('the "cat runs', 'the "cat run', "long")]
    (tmp_path / "g.tab").write_text(
        f'{GULORDAVA}p\t1\t1\tcorrect\tx y\tholds\t2\t"the cat holds ,"\np\t1\t1\twrong\tx y\thold\t2\t"the cat holds"\n'
    )
    assert read_minimal_pairs(tmp_path / "g.tab") == [MinimalPair("the cat holds", "the cat hold", "x y")]
    (tmp_path / "l.text").write_text("the cats of the man run fast . <eos>\n")
    (tmp_path / "l.gold").write_text("5\trun\truns\t1\n")
    assert read_minimal_pairs(tmp_path / "l.gold") == [
        MinimalPair("the cats of the man run", "the cats of the man runs", "1 attractors")
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "x\ty\n1\t2\n", "columns good and bad"),
        ("a.doc", "x", "one of the endings .jsonl"),
        ("a.gold", "1\ta\tb\t0\n", "no a.text"),
        ("a.tsv", "good\tbad\n", "at least one minimal pair, but .*a.tsv has none"),
        ("a.tsv", "good\tbad\na\tb\nc\t\n", "row 2 of a.tsv: .* the wrong one is empty"),
        ("a.tsv", "good\tbad\n \tb\n", "row 1 of a.tsv: .* the right one is empty"),
        ("a.jsonl", '{"good": "a", "bad": null}\n{"good": "a", "bad": "b"}\n', "row 1 of a.jsonl: .* the wrong one is empty"),
        ("a.jsonl", '{"sentence_good": 3, "sentence_bad": "b"}\n', "row 1 of a.jsonl: .* the right one is '3'"),
        ("a.tab", "", "a.tab must be a table with tabs"),
        ("a.tab", "good\tbad\na\tb\tc\td\n", "a.tab must be a table with tabs"),
        ("a.tab", f"{GULORDAVA}p\t1\t1\tright\tx\tholds\t1\tthe cat\n", "row 1 of a.tab: the class must be correct or wrong"),
        ("a.tab", f"{GULORDAVA}p\t1\t1\twrong\tx\tholds\tone\tthe cat\n", "row 1 of a.tab: the position .* but is 'one'"),
        ("a.tab", f"{GULORDAVA}p\t1\t1\twrong\tx\tholds\t1\t\n", "row 1 of a.tab: .* but sent is;"),
        ("a.tab", "class\ttype\tform\tlen_prefix\tsent\nwrong\tx\tholds\t1\tthe cat\n", "columns good and bad"),
    ],
)
def test_other_files_are_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    """The error says what is wrong, and in which row."""
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_minimal_pairs(tmp_path / name)


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ("2\truns\trun\t0\n", "one row per line of a.text, but has 1 for 2"),
        ("2\truns\trun\t0\n2\truns\trun\n", "row 2 of a.gold: .* but it has 3 columns"),
        ("2\truns\trun\t0\ntwo\truns\trun\t0\n", "row 2 of a.gold: the position .* but is 'two'"),
        ("2\truns\trun\t0\n-1\truns\trun\t0\n", "row 2 of a.gold: the position .* but is '-1'"),
        ("2\truns\t\t0\n2\truns\trun\t0\n", "row 1 of a.gold: the form"),
    ],
)
def test_a_gold_file_fits_its_sentences(gold: str, message: str, tmp_path: Path) -> None:
    """One row per line, four columns, and a position within the line."""
    (tmp_path / "a.text").write_text("the cat runs .\nthe dog runs .\n")
    (tmp_path / "a.gold").write_text(gold)
    with pytest.raises(DataError, match=message):
        read_minimal_pairs(tmp_path / "a.gold")


@pytest.mark.parametrize(
    ("name", "text", "group"),
    [
        ("a.tsv", "good\tbad\tgroup\na\tb\t\n", "all"),
        ("a.jsonl", '{"good": "a", "bad": "b", "group": null}\n', "all"),
        ("a.jsonl", '{"good": "a", "bad": "b", "group": 7}\n', "7"),
        ("a.jsonl", '{"sentence_good": "a", "sentence_bad": "b", "UID": 7, "linguistics_term": null}\n', "7"),
        ("a.jsonl", '{"sentence_good": "a", "sentence_bad": "b", "UID": null}\n', "a"),
    ],
)
def test_groups_are_names_whatever_their_values(name: str, text: str, group: str, tmp_path: Path) -> None:
    """A number is its digits; a pair without a group is in the group "all", or in BLiMP's form in that of its file."""
    (tmp_path / name).write_text(text)
    assert read_minimal_pairs(tmp_path / name) == [MinimalPair("a", "b", group)]
