"""Probing tasks: what a state might tell of a sentence, or of a word.

- Sentences: files in SentEval's form, ``tr|va|te<TAB>label<TAB>sentence`` (Conneau et al. 2018).
- Words, made from sentences whose words have a part of speech (CoNLL-U): the part of speech, the word's place in its sentence, and
  the word that stands before it.

Letters: N items (sentences or words).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from warmstart.data.files import opened
from warmstart.errors import DataError
from warmstart.seeding import rng

PARTS = {"tr": "train", "va": "validation", "te": "test"}
PLACES = (1, 2, 3, 5, 9, 17)
"""where the bins of a word's place begin"""
COMMON = 30
"""so many of the most frequent words are told apart as the word before"""
IGNORED = -1
"""a word that a task says nothing of"""


@dataclass(frozen=True)
class Part:
    """One split of a probing task."""

    texts: tuple[tuple[str, ...], ...]
    """each sentence as its words"""
    targets: tuple[np.ndarray, ...]
    """for each sentence the numbers of its labels: one of the sentence, or one a word (``IGNORED`` where none is asked)"""


@dataclass(frozen=True)
class Probing:
    """One question with its answers."""

    name: str
    labels: tuple[str, ...]
    train: Part
    validation: Part
    test: Part
    words: bool = False
    """asked of every word, not of the sentence"""


def read_tasks(paths: Sequence[str]) -> list[Probing]:
    """The tasks of several files or folders. Raises ``DataError`` where two have the same name, by which charts tell them apart."""
    tasks = [task for path in paths for task in read_probing(path)]
    if repeated := [name for name, count in Counter(task.name for task in tasks).items() if count > 1]:
        raise DataError(
            f"every task must have a name of its own, but {len(repeated)} come twice, such as {repeated[0]!r}; rename its file"
        )
    return tasks


def read_probing(path: str | Path) -> list[Probing]:
    """The sentence tasks of a file, or of all ``.txt`` and ``.txt.gz`` files of a folder; ``DataError`` for another form."""
    place = Path(path)
    files = sorted([*place.glob("*.txt"), *place.glob("*.txt.gz")]) if place.is_dir() else [place]
    if not files or not place.exists():
        raise DataError(f"probing tasks must be a file or a folder of .txt files in SentEval's form, but {path} is neither")
    return [_read(file) for file in files]


def _read(file: Path) -> Probing:
    found: dict[str, list[tuple[str, tuple[str, ...]]]] = {part: [] for part in PARTS.values()}
    with opened(file, "utf-8") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.rstrip("\n").split("\t")
            if len(fields) != 3 or fields[0] not in PARTS:
                raise DataError(
                    f"line {number} of {file} must be tr, va or te, a label and a sentence, with tabs between, "
                    f"but is {line.strip()[:60]!r}"
                )
            found[PARTS[fields[0]]].append((fields[1], tuple(fields[2].split())))
    if empty := [name for name, rows in found.items() if not rows]:
        raise DataError(f"{file} must have sentences of all three splits, but has none for {', '.join(empty)}")
    labels = tuple(sorted({label for label, _ in found["train"]}))
    if unseen := {label for rows in found.values() for label, _ in rows} - set(labels):
        raise DataError(f"every label of {file} must stand in its training split, but {', '.join(sorted(unseen))} does not")
    if len(labels) < 2 or len(found["test"]) < 2:
        raise DataError(
            f"{file} must have two labels and two test sentences at least, but has {len(labels)} and {len(found['test'])}: "
            "what has no alternative tells nothing, and one sentence has no interval"
        )
    parts = {
        name: Part(tuple(words for _, words in rows), tuple(np.array([labels.index(label)]) for label, _ in rows))
        for name, rows in found.items()
    }
    name = file.name.split(".")[0].replace("_", " ")
    return Probing(name, labels, parts["train"], parts["validation"], parts["test"])


def word_tasks(sentences: Sequence[Sequence[tuple[str, str]]], words: int, seed: int) -> list[Probing]:
    """Three tasks of sentences whose words have a part of speech: ``words`` of them to train, a fourth for each other split.

    Which sentences belong to which split is drawn from the seed. Raises ``DataError`` where the text has fewer words, or a task
    has one label only (tags that are all ``_``).
    """
    order = rng(seed, "word tasks").permutation(len(sentences))
    splits, place = list[list[Sequence[tuple[str, str]]]](), 0
    rooms = (words, words // 4, words // 4)
    for room in rooms:
        chosen = list[Sequence[tuple[str, str]]]()
        while place < len(order) and sum(map(len, chosen)) < room:
            chosen.append(sentences[order[place]])
            place += 1
        splits.append(chosen)
    if any(sum(map(len, chosen)) < room for chosen, room in zip(splits, rooms, strict=True)) or len(splits[-1]) < 2:
        raise DataError(
            f"{words:,} words to train and a fourth as many for each other split must be had in whole sentences, two or more in "
            f"test, but the text has {sum(map(len, sentences)):,} words in {len(sentences):,} sentences; ask for fewer"
        )
    forms = Counter(form.lower() for sentence in splits[0] for form, _ in sentence)
    common = {form: number for number, (form, _) in enumerate(forms.most_common(COMMON))}
    tags = {tag: number for number, tag in enumerate(sorted({tag for sentence in splits[0] for _, tag in sentence}))}
    bins = tuple(f"{start}-{end - 1}" if end > start + 1 else str(start) for start, end in pairwise(PLACES))

    def task(name: str, labels: Sequence[str], ask: str) -> Probing:
        parts = []
        for chosen in splits:
            targets = []
            for sentence in chosen:
                if ask == "tag":
                    row = [tags.get(tag, IGNORED) for _, tag in sentence]
                elif ask == "place":
                    row = [int(np.searchsorted(PLACES, number, side="right")) - 1 for number in range(1, len(sentence) + 1)]
                else:
                    row = [IGNORED, *(common.get(form.lower(), IGNORED) for form, _ in sentence[:-1])]
                targets.append(np.array(row, dtype=np.int64))
            parts.append(Part(tuple(tuple(form for form, _ in sentence) for sentence in chosen), tuple(targets)))
        if len({label for targets in parts[0].targets for label in targets} - {IGNORED}) < 2:
            raise DataError(
                f"'{name}' must have two labels at least, but every word asked has the same, or none is; give other text"
            )
        train, validation, test = parts
        return Probing(name, tuple(labels), train, validation, test, words=True)

    return [
        task("part of speech", list(tags), "tag"),
        task("place", [*bins, f"{PLACES[-1]}+"], "place"),
        task("word before", list(common), "before"),
    ]
