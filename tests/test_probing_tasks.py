"""Probing tasks: SentEval's files, and tasks made from tagged sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmstart.data.probing import IGNORED, read_probing_files, word_tasks
from warmstart.errors import DataError


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
    with pytest.raises(DataError, match="ask for fewer words"):
        word_tasks(sentences[:2], 1000, seed=0)
    with pytest.raises(DataError, match="ask for fewer words"):
        word_tasks(sentences[:42], 120, seed=0)
    for bad in ([[(form, "_") for form, _ in sentence] for sentence in sentences], [sentence[:1] for sentence in sentences * 4]):
        with pytest.raises(DataError, match="at least two labels"):
            word_tasks(bad, 120, seed=0)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("tr\tA\n", "line 1"),
        ("tr\tA\ta b\nva\tA\tc\n", "none for test"),
        ("tr\tA\ta\nva\tB\tb\nte\tA\tc\n", "B does not"),
        ("tr\tA\ta\nva\tA\tb\nte\tA\tc\nte\tA\td\n", "has 1 and 2"),
        ("tr\tA\ta\ntr\tB\tb\nva\tA\tb\nte\tA\tc\n", "has 2 and 1"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str, match: str) -> None:
    """The error names the line, split or label that is wrong; one label or one test sentence can show nothing."""
    (tmp_path / "bad.txt").write_text(text)
    with pytest.raises(DataError, match=match):
        read_probing_files(tmp_path / "bad.txt")
