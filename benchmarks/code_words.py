"""Which words of a sentence are code, where only its marks say so: ``python -m benchmarks.code_words [--runs runs]``.

    Return `x` if `y` is None   ->   text  Return x if y is None   tags  O B-code O B-code O O

The sentences are those of the docstrings of the installed libraries that mark code by backticks, with the marks removed; whole
libraries are held out. Pretraining reads the docstrings of all others, without marks and at most 100 words of each, behind the
line that defines what they describe, so that names are read as names: ``def mean(data): Return the arithmetic mean of data.``
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sysconfig
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from warmstart.data.docstrings import Docstring, read_docstrings
from warmstart.seeding import rng

HELD_OUT = {"test": ("sklearn", "networkx", "polars", "rich"), "validation": ("joblib", "narwhals", "altair", "pydantic")}
MARKED = re.compile(r"``([^`]+)``|(?<![`:])`([^`]+)`")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])|\n\s*\n")
LONGEST = 40
SIGNATURE_WORDS, DOCSTRING_WORDS = 40, 100
"""words that pretraining reads of a definition and of its docstring, at most"""


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
            definition = definitions(one.module)[one.text].split()[:SIGNATURE_WORDS]
            definition[-1] += ":"
            text.append(" ".join((*definition, *one.text.replace("`", "").split()[:DOCSTRING_WORDS])))
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


@cache
def definitions(module: str) -> dict[str, str]:
    """The docstrings of a module, each with the line that defines what it describes: ``"def mean(data)"``."""
    folders = [Path(sysconfig.get_path(name), *module.split(".")) for name in ("stdlib", "purelib", "platlib")]
    path = next(path for folder in folders for path in (folder.with_suffix(".py"), folder / "__init__.py") if path.exists())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about invalid escapes in the files
        described = _described(ast.parse(path.read_bytes()), f"import {module}")
        return dict(reversed([*described]))  # the first of equal docstrings stays


def _described(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, line: str) -> Iterator[tuple[str, str]]:
    """Docstrings of a definition and of those in it, with their lines."""
    yield (ast.get_docstring(node) or "").encode("utf-8", "ignore").decode(), line
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from _described(child, f"class {child.name}({', '.join(map(ast.unparse, child.bases))})")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _described(child, f"def {child.name}({ast.unparse(child.args)})")


if __name__ == "__main__":
    main()
