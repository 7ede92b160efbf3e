"""Which words of a sentence are code, where only its marks say so: ``python -m benchmarks.code_words [--runs runs]``.

    Return `x` if `y` is None   ->   text  Return x if y is None   tags  O B-code O B-code O O

The sentences are those of the docstrings of the installed libraries that mark code by backticks, with the marks removed; whole
libraries are held out. Pretraining reads the docstrings of all others, without marks and at most 100 words of each.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

from warmstart.data.docstrings import Docstring, read_docstrings
from warmstart.seeding import rng

HELD_OUT = {"test": ("sklearn", "networkx", "polars", "rich"), "validation": ("joblib", "narwhals", "altair", "pydantic")}
MARKED = re.compile(r"``([^`]+)``|(?<![`:])`([^`]+)`")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])|\n\s*\n")
LONGEST = 40


def main() -> None:
    """Write the task and the text under ``runs/tasks/code-words``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.code_words", description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    folder = parser.parse_args().runs / "tasks" / "code-words"
    folder.mkdir(parents=True, exist_ok=True)
    docstrings = read_docstrings()
    split_of = {name: part for part, names in HELD_OUT.items() for name in names}
    rows: dict[str, dict[str, str]] = {"train": {}, "validation": {}, "test": {}}
    text = []
    for one in docstrings:
        part = split_of.get(one.module.partition(".")[0], "train")
        for words, tags in tagged_sentences(one):
            rows[part].setdefault(" ".join(words), json.dumps({"words": words, "tags": tags}, ensure_ascii=False))
        if part == "train":
            text.append(" ".join(one.text.replace("`", "").split()[:100]))
    for part, found in rows.items():
        order = rng(0, f"sentences of {part}").permutation(len(found))
        lines = [*found.values()]
        kept = [lines[i] for i in order][: None if part == "train" else 2000]
        (folder / f"{part}.ndjson").write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
        print(f"{part}: {len(kept):,} of {len(found):,} sentences")
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    print(f"text: {len(text):,} docstrings, {sum(len(line.split()) for line in text):,} words")
    (folder / "task.yaml").write_text(
        "name: code-words\ntype: tagging\nmetric: span_f1\nsource: {text: words, label: tags}\ntrain: train.ndjson\n"
        "validation: validation.ndjson\ntest: test.ndjson\nunlabelled:\n  - {path: text.txt, document: line}\n",
        encoding="utf-8",
    )


def tagged_sentences(docstring: Docstring) -> Iterator[tuple[list[str], list[str]]]:
    """The words and tags of each sentence of prose with code in it."""
    for sentence in SENTENCE.split(docstring.text):
        if not MARKED.search(sentence) or ">>>" in sentence or "::" in sentence:
            continue
        plain, owner, end = "", list[int](), 0
        for number, found in enumerate(MARKED.finditer(sentence), 1):
            for piece, mark in ((sentence[end : found.start()], 0), (found[1] or found[2], number)):
                plain, owner = plain + piece, owner + [mark] * len(piece)
            end = found.end()
        plain, owner = plain + sentence[end:], owner + [0] * (len(sentence) - end)
        words, tags, before = list[str](), list[str](), 0
        for word in re.finditer(r"\S+", plain):
            mark = max(owner[word.start() : word.end()])
            words.append(word[0])
            tags.append("O" if not mark else "I-code" if mark == before else "B-code")
            before = mark
        if 5 <= len(words) <= LONGEST and "O" in tags and "`" not in plain:
            yield words, tags


if __name__ == "__main__":
    main()
