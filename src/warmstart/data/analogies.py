"""Analogies: "Athens is to Greece as Baghdad is to what?", four words a line under headings (Mikolov et al. 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from warmstart.data.files import opened
from warmstart.errors import DataError


@dataclass(frozen=True)
class Analogy:
    """One question: the first word is to the second as the third is to the fourth, which is sought."""

    section: str
    words: tuple[str, str, str, str]


def read_analogies(path: str | Path) -> list[Analogy]:
    """The questions of a file like ``questions-words.txt``: headings ``: section``, and four words a line.

    Lines before any heading belong to a section with the file's name. Raises ``DataError`` where a line has another form.
    """
    file, found = Path(path), list[Analogy]()
    section = file.stem
    with opened(file, "utf-8") as lines:
        for number, line in enumerate(lines, 1):
            words = line.split()
            if words[:1] == [":"]:
                section = " ".join(words[1:])
            elif len(words) == 4:
                found.append(Analogy(section, (words[0], words[1], words[2], words[3])))
            elif words:
                said = f"line {number} is {line.strip()[:80]!r}"
                raise DataError(f"every line of {file} must be a heading (': capitals') or four words, but {said}")
    if not found:
        raise DataError(f"{file} must hold at least one question of four words, but holds none")
    return found
