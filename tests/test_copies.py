"""When two texts count as the same, as nearly the same, as one inside another, and as independent: planted copies are found."""

from __future__ import annotations

import lzma
import random
import re
import string
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmstart.data import text_overlap
from warmstart.data.task import Split
from warmstart.data.text_key import CYRILLIC, GREEK, LATIN, text_key, text_words
from warmstart.data.text_overlap import documents_with, occurrences
from warmstart.data.units import independent_units
from warmstart.tasks.load import load_task

Texts = list[str]


def words_drawn(count: int, length: int, seed: int, vocabulary: int = 5000) -> list[list[str]]:
    """Texts of words as frequent as in English (Zipf-Mandelbrot)."""
    frequency = 1 / (np.arange(vocabulary) + 2.7)
    numbers = np.random.default_rng(seed).choice(vocabulary, (count, length), p=frequency / frequency.sum())
    return [[f"w{number}" for number in row] for row in numbers]


# ------------------------------------------------------------------------------------------------ the same


def test_the_same_text() -> None:
    """Case, white space, punctuation, tags, invisible, full-width and look-alike characters do not make another text."""
    for copy in (
        " The\tCAT sat\n", "The cat sat!", "\u201cThe cat\u201d \u2014 sat \u2026", "the c\u200bat sat", "the c\u00adat\ufeff sat",
        "the c\u0430t s\u0430t", "the c\u03b1t sat", "the \uff43\uff41\uff54 sat", "the cat\ufe0f sat", "thecat sat",
        '<p class="a">The <b>cat</b><br/>sat</p>',
    ):  # fmt: skip
        assert text_key(copy) == text_key("the cat sat"), copy
    for one, other in (
        ("the cat", "the cats"), ("1 23", "12 3"), (":)", ":("), ("", "!"), ("\u72ac", "\u732b"),
        ("\u043a\u043e\u0442", "\u043a\u0438\u0442"),  # Russian cat and whale
        ("\u0915\u093f", "\u0915\u0940"),  # Hindi vowel signs are marks, not letters
    ):  # fmt: skip
        assert text_key(one) != text_key(other), (one, other)
    assert (text_key(" \t\u200b"), text_key("...")) == ("", "..."), "only white space is empty"


def test_words() -> None:
    """An apostrophe does not end a word; Chinese characters are words; a word in another alphabet stays as it is, in lower case."""
    assert text_words("Don't PANIC, e-mail") == ["dont", "panic", "e", "mail"]
    assert text_words("\u732b\u597d a") == ["\u732b", "\u597d", "a"]
    assert text_words("\u0412\u043e\u0434\u0430 \u0432") == ["\u0432\u043e\u0434\u0430", "\u0432"]


@given(st.text(), st.sampled_from([".", " ", "\u200b", "!"]), st.integers(0, 20))
def test_ascii_or_not_is_the_same(text: str, sign: str, place: int) -> None:
    """What is added outside letters and digits does not matter, whatever the text; one digit more does."""
    if text_words(text):
        assert text_key(text + sign) == text_key(text)
    assert text_key(text + " x1") != text_key(text)


def test_look_alikes_are_letters_of_three_alphabets() -> None:
    """Each entry is one letter of the alphabet that it stands under, and what it looks like is a Latin one."""
    for script, table in (("CYRILLIC", CYRILLIC), ("GREEK", GREEK), ("LATIN", LATIN)):
        for letter, latin in table.items():
            assert unicodedata.name(letter).startswith(script)
            assert latin.isascii()
            assert latin.isalpha()
            assert letter.isupper() == latin.isupper()


# ------------------------------------------------------------------------------------------------ nearly the same


def without_punctuation(text: str, draw: random.Random) -> str:
    return re.sub(r"[^\w\s]", "", text)


def with_a_zero_width_space(text: str, draw: random.Random) -> str:
    place = draw.randrange(1, len(text))
    return f"{text[:place]}\u200b{text[place:]}"


def with_a_look_alike(text: str, draw: random.Random) -> str:
    places = [place for place, letter in enumerate(text) if letter in "aeopcx"]
    place = draw.choice(places) if places else 0
    return text[:place] + text[place].translate(str.maketrans("aeopcx", "аеорсх")) + text[place + 1 :]


def sentences(count: int, seed: int, words: tuple[int, int] = (7, 16)) -> Texts:
    """Texts with punctuation, of so many words."""
    lengths = np.random.default_rng(seed).integers(*words, count)
    drawn = words_drawn(count, int(lengths.max()), seed, 20_000)
    letters = str.maketrans("0123456789", "bcdfghjklm")
    return [
        ", ".join(f"{word}ae".translate(letters) for word in row[:length]) + "." for row, length in zip(drawn, lengths, strict=True)
    ]


# ------------------------------------------------------------------------------------------------ one inside another


def changed(text: list[str], draw: np.random.Generator) -> list[str]:
    """One other word in the text."""
    place = int(draw.integers(len(text)))
    return [*text[:place], "zebra", *text[place + 1 :]]


def test_planted_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of 50 texts and 50 changed ones are told from 100 that do not occur, however the plain text is cut."""
    for length, at_once in ((5, 1000), (14, 1), (40, 1 << 20), (200, 1000)):
        monkeypatch.setattr(text_overlap, "WORDS_AT_ONCE", at_once)
        draw = np.random.default_rng(0)
        texts, filler = words_drawn(200, length, 1), words_drawn(100, 97, 2)
        planted = [*texts[:50], *(changed(text, draw) for text in texts[50:100])]
        documents = [document for both in zip(filler, planted, strict=True) for document in both]
        exact, near = occurrences(texts, documents)
        assert exact[:50].all()
        assert not exact[50:].any()
        assert near[50:100].mean() >= (0.96 if length >= 14 else 0)
        assert not near[:50].any()
        assert not near[100:].any()


def test_cut_and_joined_texts() -> None:
    """A text cut to 80%, and one over the border of two documents, are found; one whose parts lie far apart is not."""
    texts = words_drawn(3, 60, 1)
    filler = words_drawn(1, 5000, 2)[0]
    exact, near = occurrences(texts, [texts[0][:48], filler, texts[1][:20], texts[1][20:], texts[2][:25], filler, texts[2][35:]])
    assert (exact.tolist(), near.tolist()) == ([False, True, False], [True, False, False])


def test_short_texts_are_not_looked_for() -> None:
    """Four words occur anywhere; no text and no document give nothing."""
    exact, near = occurrences([["a", "b", "c", "d"], []], [["a", "b", "c", "d", "e"]])
    assert not exact.any()
    assert not near.any()
    assert occurrences([], [["a"]])[0].tolist() == []
    assert occurrences([["a"] * 6], [])[0].tolist() == [False]
    assert occurrences([["a"] * 6], [["a"] * 40])[0].tolist() == [True]


def test_documents_with_a_text_are_told_one_by_one() -> None:
    """However many documents are read at once; one whose half is in a document and half in the next is in neither."""
    texts, filler = words_drawn(60, 20, 1), words_drawn(2000, 30, 2)
    documents = [
        *filler[:1500],
        *([*filler[1500 + n], *text, "end"] for n, text in enumerate(texts[:30])),
        texts[30][:10],
        texts[30][10:],
    ]
    assert np.flatnonzero(documents_with(texts, documents)).tolist() == [*range(1500, 1530)]
    changed_ones = [changed(text, np.random.default_rng(n)) for n, text in enumerate(texts)]
    assert documents_with(texts, changed_ones).mean() >= 0.9
    assert not documents_with(texts, changed_ones, shortest_near=21).any()


SYLLABLES = re.findall(r"\w+", "mar ren mi lin tal wes lil har sil nor ko dan bre vi tor el as un pa gri")
TEMPLATES = (
    "Dear {name}, your order {number} of {thing} was sent to {city} on {day} and will arrive soon.",
    "Hello, I ordered {thing} for {city} last {day} and it has still not arrived, please help. {name}",
    "The meeting with {name} about {thing} in {city} has been moved to {day} at {number}.",
    "I cannot log in to my account {number} since {day}, the page for {city} says the password is wrong. Regards {name}",
    "We would like to invite {name} to our shop in {city} to see the new {thing} next {day}.",
    "{name} from {city} asked us to cancel the subscription for {thing} as of {day}, please confirm by mail.",
)
SLOTS = {
    "thing": ["lamps", "blue chairs", "a coffee machine", "garden tools", "the red kettle", "two tents", "phone cases"],
    "city": ["Hamburg", "Lyon", "Leeds", "Porto", "Krakow", "Oslo", "Graz", "Turin", "Ghent"],
    "day": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"],
}


def name(draw: random.Random) -> str:
    return "".join(draw.choices(SYLLABLES, k=draw.choice([2, 3]))).capitalize()


def with_number(text: str, draw: random.Random) -> str:
    number, letters = draw.randrange(10**4, 10**6), "".join(draw.choices(string.ascii_uppercase, k=2))
    numbered = f"[#{number}] {text}", f"{text} (ref. {letters}-{number})", f"Case {letters}{number} {text}"
    return draw.choice((f"Ticket {number}: {text}", *numbered))


def with_typo(text: str, draw: random.Random) -> str:
    words = text.split()
    place = draw.choice([number for number, word in enumerate(words) if len(word) >= 4] or [0])
    word, at = words[place], draw.randrange(max(1, len(words[place]) - 1))
    forms = (
        word[:at] + word[at + 1 :],
        word[:at] + word[at] + word[at:],
        word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :],
    )
    return " ".join([*words[:place], draw.choice(forms), *words[place + 1 :]])


def signed(text: str, draw: random.Random) -> str:
    who, firm = f"{name(draw)} {name(draw)}", f"{name(draw)} Ltd"
    forms = (
        f"\n-- \n{who}, {firm}, +44 {draw.randrange(10**4)}",
        f"\nBest regards,\n{who}",
        f"\nThanks,\n{who}\n{firm}",
        f"\nCheers {who}",
    )
    return text + draw.choice(
        (*forms, f" Kind regards, {who}, {firm}", f"\n{who}\nHead of {name(draw)} | {firm} | www.{name(draw)}.com")
    )


def greeted(text: str, draw: random.Random) -> str:
    named = f"Hello {name(draw)}, ", f"Dear Mrs {name(draw)}, ", f"Hey {name(draw)} "
    return draw.choice((*named, "Good morning, ", "To whom it may concern: ")) + text


def quoted(text: str, draw: random.Random) -> str:
    new = draw.choice(["Thank you, that helps.", "I still wait for an answer", "could you look at this again please"])
    forms = (f"{new}\n> {text}", f"{new}\n\nOn Monday {name(draw)} wrote:\n> {text}", f"> {text}\n{new}")
    return draw.choice((*forms, f"{new}\n-----Original Message-----\nFrom: {name(draw)}\n{text}"))


KINDS: dict[str, Callable[[str, random.Random], str]] = {
    "number": with_number, "typo": with_typo, "two typos": lambda text, draw: with_typo(with_typo(text, draw), draw),
    "signature": signed, "greeting": greeted, "quote": quoted, "punctuation stripped": without_punctuation,
    "one word appended": lambda text, draw: f"{text} zebra", "zero-width space": with_a_zero_width_space,
    "look-alike letter": with_a_look_alike,
}  # fmt: skip
"""ways in which copies differ"""
OF_LONG: dict[str, Callable[[str, random.Random], str]] = {
    "one word changed": lambda text, draw: " ".join(changed(text.split(), np.random.default_rng(draw.randrange(99)))),
    "cut to 80%": lambda text, draw: text[: len(text) * 4 // 5],
}
"""ways that make another text of a question or a sentence"""


def filled(template: str, draw: random.Random) -> str:
    some = {slot: draw.choice(values) for slot, values in SLOTS.items()}
    return template.format(name=name(draw), number=draw.randrange(10**4, 10**5), **some)


def share_found(rows: Sequence[tuple[str, int]]) -> tuple[float, int]:
    """The share of texts that are in the largest unit of their family; and how many units have texts of several families."""
    texts, families = zip(*rows, strict=True)
    units, of = independent_units(texts, None), np.array(families)
    largest = sum(np.bincount(units[of == family]).max() for family in set(families))
    return largest / len(texts), sum(len(set(of[units == unit].tolist())) > 1 for unit in set(units.tolist()))


def check_planted(texts: Sequence[str], kinds: Mapping[str, Callable[[str, random.Random], str]]) -> None:
    """Of forty texts among others, two copies each, altered in one way: 95% are in its unit; 90% if they differ in two words."""
    for kind, alter in kinds.items():
        draw = random.Random(kind)
        base = draw.sample([text for text in texts if len(text_words(text)) >= 6], 40)
        copies = [alter(text, draw) for _ in range(2) for text in base]
        units = independent_units([*base, *copies, *draw.sample([*texts], 200)], None)
        found = units[:120].reshape(3, 40)
        assert (found[1:] == found[0]).mean() >= (0.9 if kind in ("two typos", "one word changed") else 0.95), kind
        assert len({*found[0].tolist()}) >= 39, kind


def test_planted_copies_of_generated_texts() -> None:
    """Whatever a copy adds or leaves out; of long ones also another word or the end; and no text has a copy by chance."""
    for words, kinds in (((7, 16), KINDS), ((150, 300), OF_LONG)):
        texts = sentences(1000, 0, words)
        check_planted(texts[:500], kinds)
        assert len({*independent_units(texts, None).tolist()}) >= 990, words


def test_what_fills_a_template_is_one_unit() -> None:
    """Also among other texts; but not where all texts are of one template, as new ones will be too."""
    draw = random.Random(0)
    rows = [(filled(template, draw), family) for family, template in enumerate(TEMPLATES) for _ in range(4)]
    assert share_found(rows)[0] >= 0.95
    assert share_found(rows + [(text, 100 + number) for number, text in enumerate(sentences(200, seed=1))])[0] >= 0.95
    words = sentences(300, seed=2)
    for short in ("What is the capital of {}?", "What is the origin of the word {}?"):
        units = independent_units([short.format(" ".join(text.split()[:2])) for text in words], None)
        assert np.bincount(units).max() <= 15, short


def test_what_replies_have_in_common_joins_nothing() -> None:
    """Two replies that quote the same text are one unit; twenty that quote an automatic answer, or say the same words, are not."""
    thanks = [f"Thank you very much for that.\n> {text}" for text in sentences(20, seed=5)]
    assert len(set(independent_units(thanks, None).tolist())) == 20
    texts = [f"{text}\n> Thank you, your message was passed on to the sales team." for text in sentences(20, seed=3)]
    assert len(set(independent_units(texts, None).tolist())) == 20
    assert len(set(independent_units(texts[:2], None).tolist())) == 1


def test_long_texts_are_compared_in_parts_that_bound_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of 200 words with every tenth one replaced is found among long texts of the same words, also a feature at a time."""
    draw, words = random.Random(0), [one + other for one in SYLLABLES for other in SYLLABLES]
    texts = [" ".join(draw.choices(words, k=200)) for _ in range(60)]
    copies = [" ".join("changed" if place % 10 == 0 else word for place, word in enumerate(one.split())) for one in texts[:5]]
    found = independent_units([*texts, *copies], None)
    assert (list(found[60:]), len({*found})) == (list(found[:5]), 60)
    monkeypatch.setattr("warmstart.data.units.AT_ONCE", 1)
    assert np.array_equal(independent_units([*texts, *copies], None), found)


@pytest.mark.data
def test_planted_copies_of_real_texts(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions, sentences and short mails: altered copies are found; of 500 honest texts at most 1% are joined, in the mean.

    Of the test texts of two sets at most one in twenty has a copy in training.
    """
    monkeypatch.setenv("WARMSTART_DATA", str(data_folder.resolve()))
    recipes = Path(__file__).parents[1] / "recipes" / "tasks"
    tasks = {name: load_task(recipes / f"{name}.yaml") for name in ("trec", "sst2", "mr")}
    read = {name: task.train.texts for name, task in tasks.items()}
    with lzma.open(data_folder / "banking77" / "train.tsv.xz", "rt", encoding="utf-8") as file:
        read["banking77"] = tuple(row.split("\t", 1)[1] for row in file.read().splitlines()[1:])
    for name, all_texts in read.items():
        texts = [*{text_key(text): text for text in all_texts}.values()]
        check_planted(texts, KINDS)
        units = [independent_units(random.Random(seed).sample(texts, 500), None) for seed in range(10)]
        assert np.mean([np.bincount(one)[one] > 1 for one in units]) <= 0.01, name
    for name in ("trec", "sst2"):
        texts, others = ([*dict.fromkeys(split.texts)] for split in (tasks[name].train, tasks[name].test))
        units_of_both = independent_units([*others, *texts], None)
        assert np.isin(units_of_both[: len(others)], units_of_both[len(others) :]).mean() <= 0.05, name


def test_a_part_of_a_split_keeps_what_is_independent() -> None:
    """Units are decided once among all texts, whatever is drawn of them."""
    texts = tuple(with_number(text, random.Random(number)) for number, text in enumerate(sentences(10, seed=4) * 2))
    whole = Split(texts, np.zeros(20, dtype=np.int64))
    part = whole.take(np.array([3, 13, 4, 5, 15])).take(np.array([0, 1, 3]))
    assert [units.tolist() for units in (np.bincount(whole.units), np.bincount(part.units))] == [[2] * 10, [2, 1]]
