"""Files of analogies: "Athens is to Greece as Baghdad is to what?", four words per line under headings (Mikolov et al. 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from warmstart.data.files import open_text
from warmstart.errors import DataError


@dataclass(frozen=True)
class Analogy:
    """The first word is to the second as the third is to the fourth, which is the answer."""

    section: str
    words: tuple[str, str, str, str]


def read_analogies(path: str | Path) -> list[Analogy]:
    """The analogies of a file like ``questions-words.txt``: headings ``: section``, and four words per line.

    Lines before the first heading belong to a section with the file's name. Raises ``DataError`` for a line in another form.
    """
    file, analogies = Path(path), list[Analogy]()
    section = file.stem
    with open_text(file, "utf-8") as lines:
        for number, line in enumerate(lines, 1):
            words = line.split()
            if words[:1] == [":"]:
                section = " ".join(words[1:])
            elif len(words) == 4:
                analogies.append(Analogy(section, (words[0], words[1], words[2], words[3])))
            elif words:
                raise DataError(
                    f"every line of {file} must be a heading (': capitals') or four words, "
                    f"but line {number} is {line.strip()[:80]!r}"
                )
    if not analogies:
        raise DataError(f"{file} must hold at least one line of four words, but holds none")
    return analogies
