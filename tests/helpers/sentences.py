"""Every sentence that the program can print, read from its source: findings, errors, messages and help.

``python -m helpers.sentences`` (in ``tests``) writes the golden file anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import warmstart

ROOT = Path(warmstart.__file__).parent
GOLDEN = Path(__file__).parents[1] / "golden" / "sentences.txt"
WORDS = 3
"""a string of at least so many words is a sentence, or a part of one"""


def all_sentences() -> str:
    """One block per file: its path, then each sentence on a line of its own, in the order of the source."""
    blocks = []
    for path in sorted(ROOT.rglob("*.py")):
        lines = list(dict.fromkeys(sentences_of(ast.parse(path.read_text()))))
        if lines:
            blocks.append("\n".join([f"## {path.relative_to(ROOT).as_posix()}", *lines]))
    return "\n\n".join(blocks) + "\n"


def sentences_of(tree: ast.Module) -> Iterator[str]:
    """The sentences of one file: settings' help, and strings that are no docstring; what is filled in stands as ``{...}``."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    help_texts = {id(node) for settings in ast.walk(tree) if is_settings(settings) for node in help_of(settings)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node}
    for node in ast.walk(tree):
        if id(node) in inside or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        if id(node) in documentation and id(node) not in help_texts:
            continue
        text = template(node)
        if len([word for word in text.split() if any(map(str.isalpha, word))]) >= WORDS:
            yield " ".join(text.split())


def template(node: ast.expr) -> str:
    """``f"{count} texts"`` -> ``"{count} texts"``; nothing for other constants."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else filled_in(part) for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def filled_in(part: ast.expr) -> str:
    """A name that is filled in, or ``{...}`` for anything longer."""
    value = part.value if isinstance(part, ast.FormattedValue) else part
    return f"{{{ast.unparse(value)}}}" if isinstance(value, ast.Name | ast.Attribute) else "{...}"


def is_settings(node: ast.AST) -> bool:
    """Whether a class holds the settings of a command: its name ends so."""
    return isinstance(node, ast.ClassDef) and node.name.endswith(("Config", "Options", "Spec", "Command", "Source"))


def help_of(settings: ast.AST) -> Iterator[ast.expr]:
    """The strings under the fields of settings, and the help of each."""
    body = settings.body if isinstance(settings, ast.ClassDef) else []
    yield from (node.value for node in body if isinstance(node, ast.Expr))


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(all_sentences(), encoding="utf-8")
