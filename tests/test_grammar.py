"""The tiny language: its probabilities are exact, and its sentences follow them."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.grammar import entropy, next_word, sentences
from warmstart.errors import DataError

COUNT = 20_000


@pytest.fixture(scope="module")
def sentences_drawn() -> list[list[str]]:
    return [sentence.split() for sentence in sentences(COUNT, seed=7)]


@pytest.fixture(scope="module")
def all_sentences() -> dict[tuple[str, ...], float]:
    """Every sentence with its probability, by asking for the next word until the full stop."""
    whole, open_ = {}, {(): 1.0}
    while open_:
        longer = {(*prefix, word): p * q for prefix, p in open_.items() for word, q in next_word(prefix).items()}
        whole |= {prefix: p for prefix, p in longer.items() if prefix[-1] == "."}
        open_ = {prefix: p for prefix, p in longer.items() if prefix[-1] != "."}
    return whole


@given(st.data())
@settings(deadline=None, max_examples=100)
def test_every_distribution_sums_to_one(data: st.DataObject) -> None:
    """Whatever was said, the probabilities of the next word are positive and sum to one."""
    prefix: list[str] = []
    for _ in range(data.draw(st.integers(0, 25))):
        prefix.append(data.draw(st.sampled_from(sorted(next_word(prefix)))))
    choices = next_word(prefix)
    assert math.isclose(sum(choices.values()), 1)
    assert min(choices.values()) > 0


def test_all_sentences_together_are_certain(all_sentences: dict[tuple[str, ...], float]) -> None:
    """The language is finite, and the probabilities of its sentences sum to one."""
    assert math.isclose(sum(all_sentences.values()), 1)


def test_the_entropy_is_that_of_the_enumeration(all_sentences: dict[tuple[str, ...], float]) -> None:
    """Nats per word are the mean surprise of a sentence divided by its mean length, over all sentences there are."""
    surprise = sum(-p * math.log(p) for p in all_sentences.values())
    words = sum(p * len(sentence) for sentence, p in all_sentences.items())
    assert math.isclose(entropy(), surprise / words)


def test_the_entropy_is_the_loss_of_the_true_distribution(sentences_drawn: list[list[str]]) -> None:
    """Predicting drawn text with the exact distribution costs the entropy per word, within four standard errors."""
    sample = sentences_drawn[:4000]
    losses = np.array([[-sum(math.log(next_word(s[:i])[s[i]]) for i in range(len(s))), len(s)] for s in sample])  # (N, 2)
    gaps = losses[:, 0] - entropy() * losses[:, 1]
    assert abs(gaps.mean()) < 4 * gaps.std() / math.sqrt(len(sample))


@pytest.mark.parametrize("prefix", ["", "the", "she", "a cat", "the cats near", "they feed", "she reads", "he holds the"])
def test_drawn_words_are_as_frequent_as_they_should_be(sentences_drawn: list[list[str]], prefix: str) -> None:
    """The words after a beginning are drawn with their exact probabilities, within four and a half standard errors."""
    words = prefix.split()
    following = Counter(sentence[len(words)] for sentence in sentences_drawn if sentence[: len(words)] == words)
    total, choices = following.total(), next_word(words)
    assert total > 100
    assert following.keys() <= choices.keys()
    for word, p in choices.items():
        assert abs(following[word] / total - p) < 4.5 * math.sqrt(p * (1 - p) / total) + 1e-9


@pytest.mark.parametrize(
    ("singular", "plural"), [("she", "they"), ("the cat", "the cats"), ("a child near many dogs", "many children near a dog")]
)
def test_the_verb_agrees_with_its_subject(singular: str, plural: str) -> None:
    """One subject holds, many hold, also across another noun in between."""
    ones, many = next_word(singular.split()), next_word(plural.split())
    assert {"holds", "sees", "reads", "feeds"} == ones.keys() - {"near"}
    assert {"hold", "see", "read", "feed"} == many.keys() - {"near"}
    assert math.isclose(ones["holds"], many["hold"])


def test_the_object_suits_the_verb() -> None:
    """What is read is a book or a letter, one of them after "a" and several after "many"."""
    assert next_word(["she", "reads", "a"]) == {"book": 0.7, "letter": 0.3}
    assert next_word(["they", "read", "many"]) == {"books": 0.7, "letters": 0.3}
    assert next_word(["she", "feeds", "many"]) == {"cats": 0.5, "dogs": 0.4, "children": 0.1}


def test_a_new_sentence_begins_afresh() -> None:
    """After a full stop the words are those of a beginning, whatever was said before."""
    assert next_word(["she", "reads", "a", "book", "."]) == next_word([])
    assert next_word(["she", "reads", "a", "book", ".", "they"]) == next_word(["they"])


def test_the_seed_decides_what_is_said() -> None:
    """The same seed says the same, more of it begins the same, another seed says something else."""
    assert sentences(50, seed=1) == sentences(50, seed=1) == sentences(80, seed=1)[:50]
    assert sentences(50, seed=1) != sentences(50, seed=2)
    assert sentences(0) == []


def test_an_impossible_beginning_is_refused() -> None:
    """The error names the word, what stands before it, and what could have followed."""
    with pytest.raises(DataError, match="'hold' cannot follow 'she' in the grammar; one of these can: feeds, holds, reads, sees"):
        next_word(["she", "hold", "the"])
    with pytest.raises(DataError, match="'zebra' cannot follow 'the beginning' in the grammar"):
        next_word(["zebra"])


def test_what_is_returned_can_be_changed() -> None:
    """A caller may alter the distribution it got without altering the language."""
    next_word(["she"]).clear()
    assert next_word(["she"])
