"""A trace as tables: one column for each written token, its likeliest rivals below it; in the terminal and as one static page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from warmstart.generation.tracing import Step, Trace
from warmstart.report.templates import template
from warmstart.storage import write_forced

CELL = 17
"""characters a column takes in the terminal"""
SHADE = "0072b2"
"""the colour of certainty"""


def visible(token: str) -> str:
    """A token with its spaces shown: ``" the"`` -> ``"␣the"``; a line end -> ``"⏎"``."""
    return token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")


def print_trace(one: Trace, console: Console) -> None:
    """Tables as wide as the terminal: a row per rank, then what followed in the corpus."""
    console.print(Text(one.prompt, style="bold").append(one.text, style="not bold cyan"))
    room = max(1, (console.width - 8) // CELL)
    for start in range(0, len(one.steps), room):
        part = one.steps[start : start + room]
        table = Table()
        table.add_column("rank", justify="right", no_wrap=True)
        for number, step in enumerate(part, start + 1):
            table.add_column(Text(f"{number} {visible(step.token)}"), no_wrap=True, overflow="ellipsis", max_width=CELL)
        for rank in range(len(part[0].candidates)):
            table.add_row(str(rank + 1), *(_candidate(step, rank) for step in part))
        if part[0].truth is not None:
            table.add_section()
            for rank in range(max(len(step.truth.likeliest) for step in part if step.truth)):
                table.add_row("seen" if rank == 0 else "", *(_seen(step, rank) for step in part))
            table.add_row("KL", *(f"{step.truth.divergence:.3f} nats" if step.truth else "" for step in part))
        console.print(table)


def write_trace(traces: Sequence[Trace], file: Path, footer: str) -> None:
    """The same as one HTML page that opens from disk and holds no script. Raises ``StorageError`` when the disk refuses."""
    page = template("trace.html.jinja").render(traces=traces, footer=footer, visible=visible, shade=_shade)
    write_forced(file, page.encode(errors="replace"), "the trace")


def _candidate(step: Step, rank: int) -> Text:
    token, probability = step.candidates[rank]
    return Text(f"{visible(token)} {100 * probability:.1f}%", style="bold cyan" if token == step.token else "")


def _seen(step: Step, rank: int) -> str:
    if step.truth is None or rank >= len(step.truth.likeliest):
        return ""
    token, count = step.truth.likeliest[rank]
    return f"{visible(token)} {count}/{step.truth.count}"


def _shade(probability: float) -> str:
    """A background whose depth is the probability."""
    return f"#{SHADE}{round(20 + 150 * probability):02x}" if probability >= 0.005 else "transparent"
