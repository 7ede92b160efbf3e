"""Near-duplicates: planted ones are found, others are not, and similarities are exact."""

from __future__ import annotations

import gzip
import lzma
import random
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from warmstart.data.near_duplicates import LONG, SHORTEST, SIMILAR, near_duplicates, near_pairs
from warmstart.data.text_key import text_key, text_words

PLANTED = 50
KINDS: dict[str, Callable[[str, random.Random], str]] = {}
Texts = list[str]


def kind(name: str) -> Callable[[Callable[[str, random.Random], str]], None]:
    """Registers a way in which copies differ."""
    return lambda function: KINDS.update({name: function})


@kind("punctuation stripped")
def without_punctuation(text: str, draw: random.Random) -> str:
    return re.sub(r"[^\w\s]", "", text)


@kind("one word changed")
def with_another_word(text: str, draw: random.Random) -> str:
    words = text.split()
    words[draw.randrange(len(words))] = "zebra"
    return " ".join(words)


@kind("one word appended")
def with_one_more_word(text: str, draw: random.Random) -> str:
    return f"{text} zebra"


@kind("cut to 80%")
def cut(text: str, draw: random.Random) -> str:
    return text[: len(text) * 4 // 5]


@kind("zero-width space")
def with_a_zero_width_space(text: str, draw: random.Random) -> str:
    place = draw.randrange(1, len(text))
    return f"{text[:place]}\u200b{text[place:]}"


@kind("look-alike letter")
def with_a_look_alike(text: str, draw: random.Random) -> str:
    places = [place for place, letter in enumerate(text) if letter in "aeopcx"]
    place = draw.choice(places) if places else 0
    return text[:place] + text[place].translate(str.maketrans("aeopcx", "аеорсх")) + text[place + 1 :]


def generated(count: int, words: tuple[int, int], seed: int) -> Texts:
    """Texts of words as frequent as in English (Zipf-Mandelbrot), with punctuation."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(*words, count)
    frequency = 1 / (np.arange(20_000) + 2.7)
    numbers = draw.choice(20_000, (count, int(lengths.max())), p=frequency / frequency.sum())
    return [", ".join(f"w{number}ae" for number in row[:length]) + "." for row, length in zip(numbers, lengths, strict=True)]


def found(texts: Texts, others: Texts) -> np.ndarray:
    """Which texts have a copy or a near-duplicate among the others."""
    keys = {text_key(other) for other in others}
    like = near_duplicates([text_words(text) for text in texts], [text_words(other) for other in others])
    return np.array([text_key(text) in keys for text in texts]) | (like >= 0)


def check_planted(texts: Texts) -> None:
    """At least 48 of 50 altered copies of each kind are found among all texts; altered are texts of at least six words."""
    draw = random.Random(0)
    sample = draw.sample([text for text in texts if len(text_words(text)) >= 6], PLANTED)
    counts = {name: int(found([alter(text, draw) for text in sample], texts).sum()) for name, alter in KINDS.items()}
    assert min(counts.values()) >= 48, counts


def check_false_alarms(texts: Texts, others: Texts) -> None:
    """At most one of 10,000 pairs is nearly the same, so that this holds for false alarms too."""
    parts = near_pairs([text_words(text) for text in texts], [text_words(other) for other in others])
    pairs = {pair for rows, columns, _ in parts for pair in zip(rows.tolist(), columns.tolist(), strict=True)}
    assert len(pairs) * 10_000 <= len(texts) * len(others)


@pytest.mark.parametrize("words", [(8, 14), (20, 50), (50, 70), (150, 300)])
def test_planted_copies_in_generated_texts(words: tuple[int, int]) -> None:
    """Each kind of altered copy is found in short and long texts, and no text has one by chance.

    Comparing texts in lower case without white space, as an earlier version did, found none of them.
    """
    texts, others = generated(1000, words, seed=0), generated(1000, words, seed=1)
    check_planted(texts)
    assert not found(texts, others).any()


def readers(folder: Path) -> dict[str, Callable[[], tuple[Texts, Texts]]]:
    """Training and test texts of four data sets."""

    def lines(path: str, encoding: str = "utf-8") -> Texts:
        opened = {".xz": lzma.open, ".gz": gzip.open}.get(Path(path).suffix, open)
        with opened(folder / path, "rt", encoding=encoding) as file:
            return [line.rstrip("\n") for line in file]

    def after(sign: str, times: int, rows: Texts) -> Texts:
        return [row.split(sign, times)[-1] for row in rows]

    return {
        "trec": lambda: (
            after(" ", 1, lines("trec/train_5500.label", "latin-1")),
            after(" ", 1, lines("trec/TREC_10.label", "latin-1")),
        ),
        "sst2": lambda: (after(" ", 1, lines("sst2/stsa.binary.train")), after(" ", 1, lines("sst2/stsa.binary.test"))),
        "ag_news": lambda: (after("\t", 1, lines("ag_news/train_sample.tsv")[1:]), after("\t", 1, lines("ag_news/test.tsv")[1:])),
        "imdb": lambda: (after("\t", 2, lines("imdb/train.tsv.xz")[1:2001]), after("\t", 2, lines("imdb/test.tsv.xz")[1:2001])),
    }


@pytest.mark.data
@pytest.mark.parametrize("name", ["trec", "sst2", "ag_news", "imdb"])
def test_planted_copies_in_real_texts(data_folder: Path, name: str) -> None:
    """Questions, sentences, news and reviews: altered copies are found, false alarms are rare."""
    if not (data_folder / name).is_dir():
        pytest.skip(f"no data set {name} in {data_folder}")
    texts, others = readers(data_folder)[name]()
    check_planted(texts)
    check_false_alarms(others, texts)


def jaccard(one: list[str], other: list[str]) -> float:
    """As the definition has it, by 5-grams or by 2-grams with the ends."""

    def similarity(size: int, *ends: str) -> float:
        one_set, other_set = (
            set(zip(*([*ends, *words, *ends][start:] for start in range(size)), strict=False)) for words in (one, other)
        )
        return len(one_set & other_set) / len(one_set | other_set)

    shorter, longer = sorted((len(one), len(other)))
    return max(
        similarity(2, "") if shorter >= SHORTEST and longer < LONG else 0.0,
        similarity(5) if shorter >= LONG // 2 else 0.0,
    )


@pytest.mark.parametrize("seed", range(20))
def test_similarities_are_exact(seed: int) -> None:
    """Nothing is missed and nothing is found too much: the result is that of comparing all pairs."""
    draw = random.Random(seed)
    base = [draw.choices("abcdefghijklmnop", k=draw.choice([3, 6, 12, 29, 58, 61, 90])) for _ in range(8)]

    def altered(words: list[str]) -> list[str]:
        words = list(words)
        for _ in range(draw.randrange(6)):
            words[draw.randrange(len(words))] = draw.choice("abcxyz")
        return words[draw.randrange(3) : len(words) - draw.randrange(3)]

    texts, others = ([altered(draw.choice(base)) for _ in range(30)] for _ in range(2))
    table = np.array([[jaccard(text, other) for other in others] for text in texts])
    like = near_duplicates(texts, others)
    assert ((like >= 0) == (table.max(axis=1) >= SIMILAR)).all()
    assert (like >= 0).any()
    assert all(table[text, other] == table[text].max() for text, other in enumerate(like.tolist()) if other >= 0)


def test_no_texts() -> None:
    """Nothing to compare gives nothing."""
    words = [["a", "b", "c", "d", "e", "f"]]
    assert near_duplicates([], words).tolist() == []
    assert near_duplicates(words, []).tolist() == [-1]
    assert near_duplicates(words, [[]]).tolist() == [-1]
    assert near_duplicates(words, words).tolist() == [0]


def test_many_copies_of_one_text() -> None:
    """Texts that are all alike are compared in parts."""
    texts = [f"the report of day {number} says that the market was quiet again".split() for number in range(400)]
    assert (near_duplicates(texts, texts[::-1]) >= 0).all()
    assert all(one != other for one, other in pairwise(texts))
