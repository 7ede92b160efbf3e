"""A tiny language whose every probability is known, so that a trained model's loss can be held against the truth.

    she holds the ball .        the cats near a dog see many letters .        he reads a book .

Notable: a word depends on words far before it. The verb agrees with its subject across another noun ("the cats near a dog
see"), and the object is one that suits the verb ("reads" a book, "feeds" a cat). Sentences are drawn one after the other, each
without regard to the last, and a word determines what may follow exactly, so the next-word distribution and the entropy are
exact, not estimates. It has no meaning, no ambiguity and no recursion.

As every sentence is independent and the end of one is seen, the loss of the best possible model, per word, is Shannon's
entropy rate: the entropy of a sentence divided by its mean length (Shannon 1948, "A Mathematical Theory of Communication").
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from warmstart.errors import DataError
from warmstart.seeding import rng


class State(NamedTuple):
    """All that matters of the words so far."""

    place: str
    """what comes next: subject, noun, after, near, other, verb, determiner, object or end"""
    plural: bool | None = None
    """number of the subject; None where it is open"""
    verb: str = ""
    """the verb without its ending, once it was drawn"""
    many: bool | None = None
    """number of the object or of the noun after "near"; None where it is open"""


Step = dict[str, tuple[float, State]]

START = State("subject")
PRONOUNS = {"she": (0.2, False), "he": (0.15, False), "they": (0.15, True)}
DETERMINERS: dict[str, tuple[float, bool | None]] = {"a": (0.4, False), "the": (0.4, None), "many": (0.2, True)}
NOUNS = {"cat": 0.4, "dog": 0.3, "child": 0.2, "teacher": 0.1}
NEAR = 0.25
VERBS = {"hold": 0.3, "see": 0.3, "read": 0.25, "feed": 0.15}
OBJECTS = {
    "hold": {"ball": 0.6, "book": 0.3, "cat": 0.1},
    "see": {"cat": 0.3, "dog": 0.3, "ball": 0.2, "book": 0.1, "letter": 0.1},
    "read": {"book": 0.7, "letter": 0.3},
    "feed": {"cat": 0.5, "dog": 0.4, "child": 0.1},
}
PLURALS = {"child": "children"}


@lru_cache(maxsize=1024)
def _step(state: State) -> Step:
    """What may follow: word -> (probability, the state it leads to)."""
    place, plural, verb, many = state
    if place == "subject":
        pronouns: Step = {word: (p, State("verb", is_plural)) for word, (p, is_plural) in PRONOUNS.items()}
        rest = 1 - sum(p for p, _ in pronouns.values())
        return pronouns | {word: (rest * p, State("noun", number)) for word, (p, number) in DETERMINERS.items()}
    if place == "noun":
        return {word: (p, State("after", number)) for word, (p, number) in _nouns(NOUNS, plural).items()}
    if place == "after":  # right after the subject's noun: its verb, or another noun in between
        verbs = {word: ((1 - NEAR) * p, to) for word, (p, to) in _step(State("verb", plural)).items()}
        return {"near": (NEAR, State("near", plural)), **verbs}
    if place == "near":
        return {word: (p, State("other", plural, "", number)) for word, (p, number) in DETERMINERS.items()}
    if place == "other":
        return {word: (p, State("verb", plural)) for word, (p, _) in _nouns(NOUNS, many).items()}
    if place == "verb":
        return {word if plural else word + "s": (p, State("determiner", None, word)) for word, p in VERBS.items()}
    if place == "determiner":
        return {word: (p, State("object", None, verb, number)) for word, (p, number) in DETERMINERS.items()}
    if place == "object":
        return {word: (p, State("end")) for word, (p, _) in _nouns(OBJECTS[verb], many).items()}
    return {".": (1.0, START)}


def _nouns(weights: dict[str, float], plural: bool | None) -> dict[str, tuple[float, bool]]:
    """Nouns with their number: one number if it is settled, else either with half the weight."""
    numbers = (False, True) if plural is None else (plural,)
    return {
        PLURALS.get(noun, noun + "s") if number else noun: (weight / len(numbers), number)
        for number in numbers
        for noun, weight in weights.items()
    }


def next_word(prefix_words: Sequence[str]) -> dict[str, float]:
    """The exact distribution of the word after ``prefix_words``, which may hold several sentences; nothing else can follow.

    ``next_word(["she", "reads", "a"])`` -> ``{"book": 0.7, "letter": 0.3}``. Raises ``DataError`` if the prefix is impossible.
    """
    state = START
    for number, word in enumerate(prefix_words):
        choices = _step(state)
        if word not in choices:
            before = " ".join(prefix_words[:number]) or "the beginning"
            raise DataError(f"{word!r} cannot follow {before!r} in the grammar; one of these can: {', '.join(sorted(choices))}")
        state = choices[word][1]
    return {word: p for word, (p, _) in _step(state).items()}


def sentences(count: int, seed: int = 0) -> list[str]:
    """``count`` sentences, words apart by one space: ``"she holds the cat ."``. More of the same seed begin with the same ones."""
    draw = rng(seed, "grammar")
    return [_sentence(draw.random) for _ in range(count)]


def _sentence(uniform: Callable[[], float]) -> str:
    words: list[str] = []
    state = START
    while not words or state != START:
        choices = _step(state)
        ladder = list(accumulate(p for p, _ in choices.values()))
        word = list(choices)[bisect(ladder, uniform(), hi=len(ladder) - 1)]
        words.append(word)
        state = choices[word][1]
    return " ".join(words)


def entropy() -> float:
    """The loss in nats per word, the full stop counted, below which no model of this language can come on average."""
    surprise, words = _rest(START)
    return surprise / words


@lru_cache(maxsize=1024)
def _rest(state: State) -> tuple[float, float]:
    """From here to the end of the sentence: the expected surprise in nats, and the expected number of words."""
    surprise, words = 0.0, 0.0
    for p, following in _step(state).values():
        rest = _rest(following) if following != START else (0.0, 0.0)
        surprise += p * (-math.log(p) + rest[0])
        words += p * (1 + rest[1])
    return surprise, words
