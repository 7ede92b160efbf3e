"""A task and its pretraining text without a data file: to tell which area a passage of documentation speaks of.

    sympy.physics.optics.waves: "Superpose two waves of     ->   text   "Superpose two _ of equal frequency and return
    equal frequency and return the sum, a third wave."                   the sum, a third _."     label  physics

Notable:

- Names that give the answer away are masked: all words of ``AREAS``, and of the passage's own module. What is left is meaning.
- Splits are cut by module, so no file speaks on two sides, and pretraining reads nothing of the files that are tested on.
- Every area has the same number of examples in each split, so plain accuracy is fair.

The passages are those of the libraries as installed: other versions give another task of the same kind, so compare scores on
one machine only. An area for which too little is installed is left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from warmstart.data.passages import Passage, passages
from warmstart.data.task import Split, Task
from warmstart.errors import DataError
from warmstart.seeding import rng

__all__ = ["AREAS", "Passage", "docstring_task", "passages", "pretraining_text"]

AREAS: dict[str, str] = {
    "concurrency": "asyncio concurrent joblib multiprocessing queue sched selectors signal subprocess threading",
    "distributed training": "torch.distributed torch.nn.parallel",
    "file formats": "bz2 configparser csv email gzip json lzma mailbox netrc plistlib scipy.io tarfile wave xml zipfile",
    "geometry": "scipy.spatial sympy.geometry sympy.vector",
    "graph theory": "networkx",
    "integration and interpolation": "mpmath.calculus numpy.polynomial scipy.integrate scipy.interpolate sympy.integrals",
    "linear algebra": "mpmath.matrices numpy.linalg scipy.linalg scipy.sparse sympy.matrices torch.sparse",
    "machine learning": "sklearn.cluster sklearn.decomposition sklearn.ensemble sklearn.gaussian_process sklearn.linear_model "
    "sklearn.metrics sklearn.mixture sklearn.model_selection sklearn.neighbors sklearn.svm sklearn.tree",
    "networking": "ftplib http imaplib ipaddress poplib smtplib socket socketserver ssl urllib webbrowser wsgiref xmlrpc",
    "neural networks": "torch.ao.nn torch.nn torch.optim",
    "optimisation": "scipy.optimize",
    "physics": "sympy.physics",
    "signal and image processing": "numpy.fft scipy.fft scipy.ndimage scipy.signal torch.signal",
    "statistics": "scipy.stats statistics sympy.stats torch.distributions",
    "text processing": "difflib gettext html jinja2 re shlex sklearn.feature_extraction.text string textwrap tokenize",
    "user interface": "cmd curses idlelib rich tkinter turtle",
}
"""Area -> the modules that speak of it, with all that lies in them; the longest dotted path decides."""

QUOTA = {"test": 66, "validation": 19, "train": 80}
"""Examples of each area in each split, filled in this order; only training may get less, down to ``FEWEST``."""
FEWEST = 32
"""An area that leaves fewer training examples than this is left out."""
PER_MODULE = 15
"""Examples that one module may give, so that no big file is an area's face."""
SHORTEST, LONGEST = 10, 40
"""Words of an example: shorter texts are no examples, longer ones lose their end."""
READ = 100
"""Words of a passage that pretraining reads."""
MASK = "_"
"""Stands where a name was."""
COPIED = 8
"""So many words in a row that a text shares with a held-out one make it a near copy."""

_AREA_OF = {module: area for area, modules in AREAS.items() for module in modules.split()}


@dataclass(frozen=True)
class _Example:
    module: str
    area: str
    text: str


def docstring_task(found: Sequence[Passage], seed: int = 0) -> Task:
    """The task "which area does this passage document?", with 80 / 19 / 66 examples (``QUOTA``) of each of some 15 areas.

    The seed decides which modules are trained and which are tested on; the areas depend on the passages alone. Raises
    ``DataError`` if fewer than two areas have enough passages.
    """
    areas: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for example in _examples(found):
        areas[example.area][example.module].append(example.text)
    kept = sorted(area for area, modules in areas.items() if _is_enough(modules))
    if len(kept) < 2:
        raise DataError(
            f"the documentation task needs passages of at least two areas, but of {len(found)} passages only "
            f"{', '.join(kept) or 'no area'} has enough; give it passages() of all installed libraries"
        )
    parts: dict[str, list[tuple[str, int]]] = {name: [] for name in QUOTA}
    for number, area in enumerate(kept):
        for name, texts in _split(areas[area], area, seed).items():
            parts[name].extend((text, number) for text in texts)
    splits = {name: _shuffled(part, rng(seed, "documentation", name)) for name, part in parts.items()}
    return Task("documentation", tuple(kept), splits["train"], splits["validation"], splits["test"])


def pretraining_text(found: Sequence[Passage], task: Task) -> list[str]:
    """The passages, areas or not, without any from a module that ``task`` validates or tests on.

    Of each passage the lines that hold its first ``READ`` words are kept: prose comes first, tables and examples later.
    A passage elsewhere that repeats ``COPIED`` words in a row of a held-out opening, or all of a shorter one, is left out too.
    """
    asked = {*task.validation.texts, *task.test.texts}
    modules = {example.module for example in _examples(found) if example.text in asked}
    held_out = {run for passage in found if passage.module in modules for run in _runs(_opening(passage))}
    others = (passage.text for passage in found if passage.module not in modules)
    return [_first_lines(text) for text in others if held_out.isdisjoint(_runs(text))]


def _first_lines(text: str) -> str:
    lines = text.split("\n")
    words = np.cumsum([len(line.split()) for line in lines])
    return "\n".join(lines[: max(1, int(np.searchsorted(words, READ, side="right")))])


def _examples(found: Sequence[Passage]) -> list[_Example]:
    """Every passage about a public name that is long enough, in order; copies count once, or not at all if areas share them."""
    kept: dict[str, _Example] = {}
    disputed = set()
    for passage in found:
        area = _area(passage.module) if _is_public(passage.owner) else None
        text = _masked(passage) if area else ""
        if area and sum(word != MASK for word in re.findall(r"\w+", text)) >= SHORTEST:
            first = kept.setdefault(_key(text), _Example(passage.module, area, text))
            if first.area != area:
                disputed.add(_key(text))
    return [example for key, example in kept.items() if key not in disputed]


def _is_public(owner: str) -> bool:
    return not any(part.startswith("_") for part in owner.split("."))


def _area(module: str) -> str | None:
    """The area of a dotted path: ``"torch.nn.parallel.comm"`` -> ``"distributed training"``."""
    while module:
        if module in _AREA_OF:
            return _AREA_OF[module]
        module = module.rpartition(".")[0]
    return None


def _opening(passage: Passage) -> str:
    r"""The prose that begins a passage, on one line and without its mark-up.

    ``"Add two waves.\n\nThey may differ.\n\n>>> add(a, b)"`` -> ``"Add two waves. They may differ."``
    """
    paragraphs = passage.text.split("\n\n")
    more = takewhile(lambda paragraph: not _NOT_PROSE.match(paragraph), paragraphs[1:])
    return re.sub(r":[a-z:]+:(?=`)|[`*]", "", " ".join(" ".join((paragraphs[0], *more)).split()))


_NOT_PROSE = re.compile(r"\s|>>>|\.\. |[-*] |[:@]\w|[A-Z][\w ]*(?::?\s*$|:\s*\n)|.*\n[-=~^]{3,}")
"""How an example, a list, a table of parameters or a heading begins."""


def _masked(passage: Passage) -> str:
    """The opening of at most ``LONGEST`` words, with names that give the area away as ``MASK``."""
    names = _GIVEAWAY | _stems(passage.module)
    text = re.sub("[A-Za-z]+", lambda word: MASK if _stem(word[0]) in names else word[0], _opening(passage))
    return " ".join(re.sub(r"(?<!\w)_[._]*_(?!\w)", MASK, text).split()[:LONGEST])


def _stem(word: str) -> str:
    return word.lower().removesuffix("s")


def _stems(text: str) -> set[str]:
    return {_stem(word) for word in re.findall("[A-Za-z]+", text)} - {"and"}


_GIVEAWAY = _stems(" ".join((*AREAS, *AREAS.values())))


def _key(text: str) -> str:
    """What near copies share: the letters."""
    return re.sub(r"[\W_\d]+", " ", text.lower()).strip()


def _runs(text: str) -> set[tuple[str, ...]]:
    """Every ``COPIED`` words in a row, and all words of a shorter text."""
    words = _key(text).split()
    return set(zip(*(words[i:] for i in range(COPIED)), strict=False)) or {tuple(words)}


def _is_enough(modules: Mapping[str, Sequence[str]]) -> bool:
    """Whether the quotas can be filled whatever the order of the modules: each filled split may waste part of a module."""
    wanted = QUOTA["test"] + QUOTA["validation"] + FEWEST + 2 * (PER_MODULE - 1)
    return sum(min(len(texts), PER_MODULE) for texts in modules.values()) >= wanted


def _split(modules: Mapping[str, list[str]], area: str, seed: int) -> dict[str, list[str]]:
    """One area's texts for each split: its modules in random order fill one split after the other, whole modules each."""
    draw = rng(seed, "documentation", area)
    names = sorted(modules)
    order = iter([names[i] for i in draw.permutation(len(names))])
    parts: dict[str, list[str]] = {}
    for part, quota in QUOTA.items():
        texts: list[str] = []
        while len(texts) < quota and (name := next(order, None)):
            texts.extend(modules[name][i] for i in draw.permutation(len(modules[name]))[:PER_MODULE])
        parts[part] = texts[:quota]
    return parts


def _shuffled(part: Sequence[tuple[str, int]], draw: np.random.Generator) -> Split:
    chosen = [part[i] for i in draw.permutation(len(part))]
    return Split(tuple(text for text, _ in chosen), np.array([label for _, label in chosen], dtype=np.int64))
