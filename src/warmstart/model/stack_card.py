"""The card of a saved stack: its README.md, written from the stack alone. It is for people: nothing reads it back."""

from __future__ import annotations

from warmstart.model.bundle import Bundle
from warmstart.model.card import code, escaped, markdown_table
from warmstart.model.fitted import FittedBaseline
from warmstart.model.history import AdaptRecord
from warmstart.model.rows import VectorRows, WordRows
from warmstart.model.stack import Member, Stack
from warmstart.stats.formatting import percent

WORDS_KEPT = (
    "It keeps words, pairs of words or parts of words of the texts that it learned from, in `baseline.json`, where two independent "
    "texts have them: names that recur are among them."
)
"""warning on the card of a model that keeps words of its texts"""


def stack_card(stack: Stack) -> str:
    """The card in Markdown."""
    several = len(stack.members) > 1
    what = (
        f"The mean of the calibrated probabilities of {len(stack.members)} models, with these weights."
        if several
        else "A model without a network of its own, as a stack of one."
    )
    total = sum(member.weight for member in stack.members)
    rows = [
        (number, member.name, _kind(member), f"{member.temperature:.4g}", percent(member.weight / total, 0))
        for number, member in enumerate(stack.members, 1)
    ]
    parts = [
        "---\nlibrary_name: warmstart\npipeline_tag: text-classification\n---",
        f"# {stack.names if several else stack.members[0].name}",
        what,
        markdown_table(("folder in members/", "method", "what it is", "temperature", "weight"), rows),
        *([WORDS_KEPT] if any(isinstance(getattr(member.model, "rows", None), WordRows) for member in stack.members) else []),
        *([f"Labels: {', '.join(map(code, stack.labels))}."] if stack.labels else []),
        "## Use",
        '```sh\nwarmstart doctor FOLDER\nwarmstart predict FOLDER "a text"\nwarmstart export FOLDER --to onnx --out EXPORTED\n```',
        *_origins(stack),
    ]
    return "\n\n".join(parts) + "\n"


def _kind(member: Member) -> str:
    model = member.model
    if isinstance(model, Bundle):
        return "a fine-tuned network (a bundle)"
    assert isinstance(model, FittedBaseline)
    if isinstance(model.rows, WordRows):
        words = f"words{' and word pairs' if model.rows.word_pairs else ''}"
        return f"{len(model.rows.vocabulary):,} {'character n-grams' if model.rows.characters else words}"
    return "vectors of a frozen backbone" if isinstance(model.rows, VectorRows) else "the same prediction for every text"


def _origins(stack: Stack) -> list[str]:
    """The scores, and the commands that made the stack."""
    parts = []
    for record in stack.history:
        if isinstance(record, AdaptRecord):
            scores = record.test.figures if record.test else {}
            named = [f"{name} {percent(value) if 0 <= value <= 1 else f'{value:.4g}'}" for name, value in scores.items()]
            if named:
                parts.append(
                    f"On the {record.task.test} test texts of {code(record.task.name)}, seed {record.seed}: {', '.join(named)}."
                )
            parts += map(escaped, record.budget)
        if record.provenance:
            origin = record.provenance
            parts.append(f"{origin.date}, {origin.machine}, warmstart {origin.warmstart}\n\n```sh\n{origin.command}\n```")
    return ["## How it was made", *parts] if parts else []
