"""Files as others publish them for studies: tagged sentences, probing tasks and minimal pairs; and samples of passages."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np

from helpers.refusals import refused
from warmstart.data.conllu import read_conllu
from warmstart.data.minimal_pairs import MinimalPair, read_minimal_pairs
from warmstart.data.probing import IGNORED, read_probing_files, word_tasks
from warmstart.errors import DataError
from warmstart.inspection.tokens import is_punctuation, sample_passages, word_boundaries
from warmstart.tokenizer.tokenizer import Tokenizer

# ------------------------------------------------------------------------------------------------ files

CONLLU = """# text = It doesn't.
1\tIt\tit\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2-3\tdoesn't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdoes\tdo\tAUX\tVBZ\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""


def test_words_stand_with_their_tags(tmp_path: Path) -> None:
    """Ranges, empty nodes and comments are passed over; a packed file reads alike; both columns of tags can be had."""
    (tmp_path / "a.conllu").write_text(CONLLU)
    (tmp_path / "a.conllu.gz").write_bytes(gzip.compress(CONLLU.encode()))
    wanted = [[("It", "PRON"), ("does", "AUX"), ("n't", "PART")], [("Yes", "INTJ")]]
    assert read_conllu(tmp_path / "a.conllu") == read_conllu(tmp_path / "a.conllu.gz") == wanted
    assert read_conllu(tmp_path / "a.conllu", "xpos")[0] == [("It", "PRP"), ("does", "VBZ"), ("n't", "RB")]
    (tmp_path / "b.conllu").write_text("1\tIt\n")
    (tmp_path / "c.conllu").write_text("# nothing\n")
    for name, message in (("a.txt", "conllu files"), ("b.conllu", "at least 4 columns"), ("c.conllu", "at least one")):
        refused(DataError, message, read_conllu, tmp_path / name)
    refused(DataError, "no such file", read_conllu, tmp_path / "d.conllu")


def test_word_tasks_have_the_targets_of_their_names() -> None:
    """The position in bins, the tag itself, and the frequent word before; splits share no sentence."""
    sentences = [[(f"w{i}", "X"), ("the", "DET"), (f"n{i}", "NOUN"), ("is", "VERB")] for i in range(60)]
    tags, positions, before = word_tasks(sentences, 120, seed=0)
    assert tags.labels == ("DET", "NOUN", "VERB", "X")
    assert [tags.labels[i] for i in tags.train.targets[0]] == ["X", "DET", "NOUN", "VERB"]
    assert positions.labels[:4] == ("1", "2", "3-4", "5-8")
    assert [positions.labels[i] for i in positions.train.targets[0]] == ["1", "2", "3-4", "3-4"]
    assert before.train.targets[0][0] == IGNORED
    assert before.labels[before.train.targets[0][2]] == "the"
    texts = [set(split.texts) for split in (tags.train, tags.validation, tags.test)]
    assert sum(map(len, texts)) == len(set.union(*texts))
    refused(DataError, "ask for fewer words", word_tasks, sentences[:2], 1000, seed=0)
    refused(DataError, "ask for fewer words", word_tasks, sentences[:42], 120, seed=0)
    for bad in ([[(form, "_") for form, _ in sentence] for sentence in sentences], [sentence[:1] for sentence in sentences * 4]):
        refused(DataError, "at least two labels", word_tasks, bad, 120, seed=0)


def test_a_probing_file_of_another_form_is_refused(tmp_path: Path) -> None:
    """The error names the line, split or label that is wrong; one label or one test sentence can show nothing."""
    for text, message in (
        ("tr\tA\n", "line 1"),
        ("tr\tA\ta b\nva\tA\tc\n", "none for test"),
        ("tr\tA\ta\nva\tB\tb\nte\tA\tc\n", "B does not"),
        ("tr\tA\ta\nva\tA\tb\nte\tA\tc\nte\tA\td\n", "has 1 and 2"),
        ("tr\tA\ta\ntr\tB\tb\nva\tA\tb\nte\tA\tc\n", "has 2 and 1"),
    ):
        (tmp_path / "bad.txt").write_text(text)
        refused(DataError, message, read_probing_files, tmp_path / "bad.txt")


def test_minimal_pairs_are_read(tmp_path: Path) -> None:
    """BLiMP's folder, and tables; ``limit`` keeps at most this many of each group."""
    blimp = tmp_path / "blimp"
    blimp.mkdir()
    rows = [{"sentence_good": f"g{i}", "sentence_bad": f"b{i}", "UID": "x", "linguistics_term": "y"} for i in range(3)]
    (blimp / "x.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    (blimp / "index.tsv").write_text("not\ta pair\n")
    assert read_minimal_pairs(blimp, limit=2) == [MinimalPair("g0", "b0", "x", "y"), MinimalPair("g1", "b1", "x", "y")]
    for name, text, wanted in (
        ("ml.tsv", 'group\tgood\tbad\nlong\tthe "cat runs\tthe "cat run\n', ('the "cat runs', 'the "cat run', "long")),
        # a group is a name whatever its value; without one it is "all", or in BLiMP's form that of the file
        ("a.tsv", "good\tbad\tgroup\na\tb\t\n", ("a", "b", "all")),
        ("a.jsonl", '{"good": "a", "bad": "b", "group": null}\n', ("a", "b", "all")),
        ("a.jsonl", '{"good": "a", "bad": "b", "group": 7}\n', ("a", "b", "7")),
        ("a.jsonl", '{"sentence_good": "a", "sentence_bad": "b", "UID": 7, "linguistics_term": null}\n', ("a", "b", "7")),
        ("a.jsonl", '{"sentence_good": "a", "sentence_bad": "b", "UID": null}\n', ("a", "b", "a")),
    ):
        (tmp_path / name).write_text(text)
        assert read_minimal_pairs(tmp_path / name) == [MinimalPair(*wanted)], text


def test_rows_that_are_no_pairs_are_refused(tmp_path: Path) -> None:
    """The error says what is wrong, and in which row."""
    for name, text, message in (
        ("a.tsv", "x\ty\n1\t2\n", "columns good and bad"),
        ("a.doc", "x", "one of the endings .jsonl"),
        ("a.tsv", "good\tbad\n", "at least one minimal pair, but .*a.tsv has none"),
        ("a.tsv", "good\tbad\na\tb\nc\t\n", "row 2 of a.tsv: .* the wrong one is empty"),
        ("a.tsv", "good\tbad\n \tb\n", "row 1 of a.tsv: .* the right one is empty"),
        ("a.jsonl", '{"good": "a", "bad": null}\n{"good": "a", "bad": "b"}\n', "row 1 of a.jsonl: .* the wrong one is empty"),
        ("a.jsonl", '{"sentence_good": 3, "sentence_bad": "b"}\n', "row 1 of a.jsonl: .* the right one is '3'"),
    ):
        (tmp_path / name).write_text(text)
        refused(DataError, message, read_minimal_pairs, tmp_path / name)


# ------------------------------------------------------------------------------------------------ passages and words


def test_passages_are_sampled_evenly() -> None:
    """All if there are few; else each equally likely, in their order; none at all is an error."""
    assert sample_passages(iter("abc"), 5, 0) == ["a", "b", "c"]
    samples = [sample_passages((str(i) for i in range(10)), 3, seed) for seed in range(2000)]
    assert all(sample == sorted(sample) and len(set(sample)) == 3 for sample in samples)
    counts = np.unique(samples, return_counts=True)[1]
    assert abs(counts - 600).max() < 100
    refused(DataError, "at least one passage", sample_passages, iter(()), 3, 0)


def test_words_end_at_punctuation(tokenizer: Tokenizer) -> None:
    """A token of punctuation begins and ends a word; special tokens do neither."""
    ids = np.array([*tokenizer.encode(["cat, dog."])[0], tokenizer.specials.eos])
    begins, ends = word_boundaries(tokenizer, ids)
    for token in ids[:-1]:
        assert begins[token] == ends[token] == is_punctuation(tokenizer.token(int(token)))
    assert not begins[tokenizer.specials.eos]
    assert not ends[tokenizer.specials.eos]
