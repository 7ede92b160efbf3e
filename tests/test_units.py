"""Which texts are independent: planted copies of each kind are one unit, honest texts are units of their own."""

from __future__ import annotations

import lzma
import random
import string
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from warmstart.data.task import Split
from warmstart.data.text_key import text_key
from warmstart.data.units import independent_units
from warmstart.tasks.load import load_task

SYLLABLES = [
    "mar",
    "ren",
    "mi",
    "lin",
    "tal",
    "wes",
    "lil",
    "har",
    "sil",
    "nor",
    "ko",
    "dan",
    "bre",
    "vi",
    "tor",
    "el",
    "as",
    "un",
    "pa",
    "gri",
]
TEMPLATES = (
    "Dear {name}, your order {number} of {thing} was sent to {city} on {day} and will arrive soon.",
    "Hello, I ordered {thing} for {city} last {day} and it has still not arrived, please help. {name}",
    "The meeting with {name} about {thing} in {city} has been moved to {day} at {number}.",
    "I cannot log in to my account {number} since {day}, the page for {city} says the password is wrong. Regards {name}",
    "We would like to invite {name} to our shop in {city} to see the new {thing} next {day}.",
    "{name} from {city} asked us to cancel the subscription for {thing} as of {day}, please confirm by mail.",
)
SLOTS = {
    "thing": [
        "lamps",
        "blue chairs",
        "a coffee machine",
        "garden tools",
        "the red kettle",
        "two tents",
        "phone cases",
        "winter boots",
    ],
    "city": ["Hamburg", "Lyon", "Leeds", "Porto", "Krakow", "Oslo", "Graz", "Turin", "Ghent"],
    "day": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"],
}
Altered = Callable[[str, random.Random], str]


def name(draw: random.Random) -> str:
    return "".join(draw.choices(SYLLABLES, k=draw.choice([2, 3]))).capitalize()


def with_number(text: str, draw: random.Random) -> str:
    number, letters = draw.randrange(10**4, 10**6), "".join(draw.choices(string.ascii_uppercase, k=2))
    forms = (
        f"Ticket {number}: {text}",
        f"[#{number}] {text}",
        f"{text} (ref. {letters}-{number})",
        f"Case {letters}{number} {text}",
    )
    return draw.choice(forms)


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
    forms = (
        f"Hello {name(draw)}, ",
        f"Dear Mrs {name(draw)}, ",
        "Good morning, ",
        f"Hey {name(draw)} ",
        "To whom it may concern: ",
    )
    return draw.choice(forms) + text


def quoted(text: str, draw: random.Random) -> str:
    new = draw.choice(["Thank you, that helps.", "I still wait for an answer", "could you look at this again please"])
    forms = (f"{new}\n> {text}", f"{new}\n\nOn Monday {name(draw)} wrote:\n> {text}", f"> {text}\n{new}")
    return draw.choice((*forms, f"{new}\n-----Original Message-----\nFrom: {name(draw)}\n{text}"))


KINDS: dict[str, Altered] = {"number": with_number, "typo": with_typo, "signature": signed, "greeting": greeted, "quote": quoted}
KINDS["two typos"] = lambda text, draw: with_typo(with_typo(text, draw), draw)


def filled(template: str, draw: random.Random) -> str:
    some = {slot: draw.choice(values) for slot, values in SLOTS.items()}
    return template.format(name=name(draw), number=draw.randrange(10**4, 10**5), **some)


def share_found(rows: Sequence[tuple[str, int]]) -> tuple[float, int]:
    """The share of texts that are in the largest unit of their family; and how many units have texts of several families."""
    texts, families = zip(*rows, strict=True)
    units, of = independent_units(texts, None), np.array(families)
    largest = sum(np.bincount(units[of == family]).max() for family in set(families))
    return largest / len(texts), sum(len(set(of[units == unit].tolist())) > 1 for unit in set(units.tolist()))


def check_planted(texts: Sequence[str]) -> None:
    """Of forty texts, each three times with an alteration of one kind, 95% are found; 90% if two copies differ in four words."""
    for kind, alter in KINDS.items():
        draw = random.Random(kind)
        base = draw.sample([text for text in texts if len(text.split()) >= 6], 40)
        copies = [
            (text if kind == "quote" and not time else alter(text, draw), place)
            for place, text in enumerate(base)
            for time in range(3)
        ]
        found, mixed = share_found(copies)
        assert found >= (0.9 if kind == "two typos" else 0.95), (kind, found)
        assert mixed <= 1, (kind, mixed)


def sentences(count: int, seed: int) -> list[str]:
    """Of words as frequent as in English, each of another length."""
    chance = np.random.default_rng(seed)
    frequency = 1 / (np.arange(5000) + 2.7)
    drawn = chance.choice(5000, (count, 16), p=frequency / frequency.sum())
    letters = str.maketrans("0123456789", "abcdefghij")
    return [" ".join(f"w{number:04d}".translate(letters) for number in row[: chance.integers(7, 16)]) + "." for row in drawn]


def test_planted_copies_of_generated_texts() -> None:
    """Numbers, typing errors, signatures, greetings and quotes make no other unit; other texts do."""
    texts = sentences(1000, seed=0)
    check_planted(texts)
    assert len(set(independent_units(texts, None).tolist())) >= 990


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
    """Questions, sentences and short mails: planted copies are found; of 500 honest texts at most 1% are joined, in the mean."""
    monkeypatch.setenv("WARMSTART_DATA", str(data_folder.resolve()))
    recipes = Path(__file__).parents[1] / "recipes" / "tasks"
    read = {name: load_task(recipes / f"{name}.yaml").train.texts for name in ("trec", "sst2", "mr")}
    with lzma.open(data_folder / "banking77" / "train.tsv.xz", "rt", encoding="utf-8") as file:
        read["banking77"] = tuple(row.split("\t", 1)[1] for row in file.read().splitlines()[1:])
    for name, given in read.items():
        texts = [*{text_key(text): text for text in given}.values()]
        check_planted(texts)
        units = [independent_units(random.Random(seed).sample(texts, 500), None) for seed in range(10)]
        assert np.mean([np.bincount(one)[one] > 1 for one in units]) <= 0.01, name


def test_a_part_of_a_split_keeps_what_is_independent() -> None:
    """Units are decided once among all texts, whatever is drawn of them."""
    texts = tuple(with_number(text, random.Random(number)) for number, text in enumerate(sentences(10, seed=4) * 2))
    whole = Split(texts, np.zeros(20, dtype=np.int64))
    part = whole.take(np.array([3, 13, 4, 5, 15])).take(np.array([0, 1, 3]))
    assert [units.tolist() for units in (np.bincount(whole.units), np.bincount(part.units))] == [[2] * 10, [2, 1]]
