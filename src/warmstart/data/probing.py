"""Probing tasks: properties of sentences and words that a model's states may encode.

- Sentences: files in SentEval's form, ``tr|va|te<TAB>label<TAB>sentence`` (Conneau et al. 2018).
- Words, from sentences whose words have a part of speech (CoNLL-U): the part of speech, the word's position in its sentence, and
  the word before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from warmstart.data.files import open_text
from warmstart.errors import DataError
from warmstart.seeding import rng

SPLIT_NAMES = {"tr": "train", "va": "validation", "te": "test"}
POSITION_BINS = (1, 2, 3, 5, 9, 17)
"""the first position of each bin"""
FREQUENT_WORDS = 30
"""number of most frequent words that the task "word before" distinguishes"""
IGNORED = -1
"""target of a word that a task leaves out"""

BAG, MIX, RANDOM = "bag of embeddings", "mix", "random weights"
"""rivals of the layers: the mean embedding of an item's tokens, without context, a mix of layers, and an untrained model"""

TaggedSentence = Sequence[tuple[str, str]]
"""(word, part of speech) pairs"""


@dataclass(frozen=True)
class ProbingSplit:
    """One split of a probing task."""

    texts: tuple[tuple[str, ...], ...]
    """each sentence as its words"""
    targets: tuple[np.ndarray, ...]
    """for each sentence its label number, (1,), or those of its words, (W,), with ``IGNORED`` for words that are left out"""


@dataclass(frozen=True)
class ProbingTask:
    """One property with its labels."""

    name: str
    labels: tuple[str, ...]
    train: ProbingSplit
    validation: ProbingSplit
    test: ProbingSplit
    words: bool = False
    """targets are of words, not of sentences"""


def read_probing_tasks(paths: Sequence[str]) -> list[ProbingTask]:
    """The tasks of several files or folders. Raises ``DataError`` if two have the same name, since charts name them."""
    tasks = [task for path in paths for task in read_probing_files(path)]
    if repeated := [name for name, count in Counter(task.name for task in tasks).items() if count > 1]:
        raise DataError(f"every probing task must have its own name, but {repeated[0]!r} occurs twice; rename one of the files")
    return tasks


def read_probing_files(path: str | Path) -> list[ProbingTask]:
    """The sentence tasks of a file, or of all ``.txt`` and ``.txt.gz`` files of a folder. Raises ``DataError`` for another form."""
    source = Path(path)
    files = sorted([*source.glob("*.txt"), *source.glob("*.txt.gz")]) if source.is_dir() else [source]
    if not files or not source.exists():
        raise DataError(f"probing tasks must be a file or a folder of .txt files in SentEval's form, but {path} is neither")
    return [_read(file) for file in files]


def _read(file: Path) -> ProbingTask:
    examples: dict[str, list[tuple[str, tuple[str, ...]]]] = {name: [] for name in SPLIT_NAMES.values()}
    with open_text(file, "utf-8") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.rstrip("\n").split("\t")
            if len(fields) != 3 or fields[0] not in SPLIT_NAMES:
                raise DataError(
                    f"line {number} of {file} must be tr, va or te, a label and a sentence, with tabs between, "
                    f"but is {line.strip()[:60]!r}"
                )
            examples[SPLIT_NAMES[fields[0]]].append((fields[1], tuple(fields[2].split())))
    labels = _labels(file, examples)
    splits = {
        name: ProbingSplit(tuple(words for _, words in rows), tuple(np.array([labels.index(label)]) for label, _ in rows))
        for name, rows in examples.items()
    }
    name = file.name.split(".")[0].replace("_", " ")
    return ProbingTask(name, labels, splits["train"], splits["validation"], splits["test"])


def _labels(file: Path, examples: dict[str, list[tuple[str, tuple[str, ...]]]]) -> tuple[str, ...]:
    """The labels of the training split, sorted. Raises ``DataError`` if a probe could not be trained and scored on the examples."""
    if empty := [name for name, rows in examples.items() if not rows]:
        raise DataError(f"{file} must have sentences for all three splits, but has none for {', '.join(empty)}")
    labels = tuple(sorted({label for label, _ in examples["train"]}))
    if unseen := {label for rows in examples.values() for label, _ in rows} - set(labels):
        raise DataError(f"every label of {file} must occur in its training split, but {', '.join(sorted(unseen))} does not")
    if len(labels) < 2 or len(examples["test"]) < 2:
        raise DataError(
            f"{file} must have at least two labels and two test sentences, but has {len(labels)} and {len(examples['test'])}"
        )
    return labels


def word_tasks(sentences: Sequence[TaggedSentence], words: int, seed: int) -> list[ProbingTask]:
    """Three tasks from tagged sentences: ``words`` words to train on, a fourth as many for each other split.

    The seed decides which sentences are in which split. Raises ``DataError`` if the text has fewer words, or a task has only one
    label (tags that are all ``_``).
    """
    splits = _drawn_sentences(sentences, (words, words // 4, words // 4), seed)
    counts = Counter(form.lower() for sentence in splits[0] for form, _ in sentence)
    frequent = {form: number for number, (form, _) in enumerate(counts.most_common(FREQUENT_WORDS))}
    tags = {tag: number for number, tag in enumerate(sorted({tag for sentence in splits[0] for _, tag in sentence}))}
    bins = [f"{start}-{end - 1}" if end > start + 1 else str(start) for start, end in pairwise(POSITION_BINS)]
    rules: dict[str, tuple[Sequence[str], Callable[[TaggedSentence], list[int]]]] = {
        "part of speech": (list(tags), lambda sentence: [tags.get(tag, IGNORED) for _, tag in sentence]),
        "position": ([*bins, f"{POSITION_BINS[-1]}+"], _position_bins),
        "word before": (
            list(frequent),
            lambda sentence: [IGNORED, *(frequent.get(form.lower(), IGNORED) for form, _ in sentence[:-1])],
        ),
    }
    tasks = []
    for name, (labels, targets) in rules.items():
        train, validation, test = (_word_split(chosen, targets) for chosen in splits)
        if len({label for row in train.targets for label in row} - {IGNORED}) < 2:
            raise DataError(f"'{name}' must have at least two labels, but all words have the same one, or none; give another text")
        tasks.append(ProbingTask(name, tuple(labels), train, validation, test, words=True))
    return tasks


def _drawn_sentences(sentences: Sequence[TaggedSentence], sizes: Sequence[int], seed: int) -> list[list[TaggedSentence]]:
    """For each size, random whole sentences with at least so many words; no sentence is drawn twice."""
    order = iter(rng(seed, "word tasks").permutation(len(sentences)))
    splits = list[list[TaggedSentence]]()
    for size in sizes:
        chosen, count = list[TaggedSentence](), 0
        while count < size and (index := next(order, None)) is not None:
            chosen.append(sentences[index])
            count += len(chosen[-1])
        splits.append(chosen)
    if any(sum(map(len, chosen)) < size for chosen, size in zip(splits, sizes, strict=True)) or len(splits[-1]) < 2:
        raise DataError(
            f"there must be {sizes[0]:,} words to train on and a fourth as many for each other split, in whole sentences, at least "
            f"two of them in test, but the text has {sum(map(len, sentences)):,} words in {len(sentences):,} sentences; "
            "ask for fewer words"
        )
    return splits


def _word_split(sentences: Sequence[TaggedSentence], targets: Callable[[TaggedSentence], list[int]]) -> ProbingSplit:
    return ProbingSplit(
        tuple(tuple(form for form, _ in sentence) for sentence in sentences),
        tuple(np.array(targets(sentence), dtype=np.int64) for sentence in sentences),
    )


def _position_bins(sentence: TaggedSentence) -> list[int]:
    """The bin of each word's position."""
    return [int(np.searchsorted(POSITION_BINS, number, side="right")) - 1 for number in range(1, len(sentence) + 1)]
