"""A trace as tables, in the terminal and as a static page: one column for each generated token, the most probable ones below it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from warmstart.report.templates import page_template
from warmstart.stats.formatting import percent
from warmstart.system.outputs import write_output
from warmstart.tokenizer.pieces import visible

if TYPE_CHECKING:
    from warmstart.generation.trace import Step, Trace

COLUMN_WIDTH = 17
"""characters, in the terminal"""
COLOUR = "0072b2"
"""colour of probable tokens"""


def print_trace(one: Trace, console: Console) -> None:
    """Tables as wide as the terminal: one row for each rank, then what followed in the corpus."""
    console.print(Text(one.prompt, style="bold").append(one.text, style="not bold cyan"))
    columns = max(1, (console.width - 8) // COLUMN_WIDTH)
    for start in range(0, len(one.steps), columns):
        part = one.steps[start : start + columns]
        table = Table()
        table.add_column("rank", justify="right", no_wrap=True)
        for number, step in enumerate(part, start + 1):
            table.add_column(Text(f"{number} {visible(step.token)}"), no_wrap=True, overflow="ellipsis", max_width=COLUMN_WIDTH)
        for rank in range(len(part[0].candidates)):
            table.add_row(str(rank + 1), *(_candidate(step, rank) for step in part))
        if part[0].corpus is not None:
            table.add_section()
            for rank in range(max(len(step.corpus.most_common) for step in part if step.corpus)):
                table.add_row("corpus" if rank == 0 else "", *(_followed(step, rank) for step in part))
            table.add_row("KL", *(f"{step.corpus.kl_divergence:.3f} nats" if step.corpus else "" for step in part))
        console.print(table)


def write_trace(traces: Sequence[Trace], file: Path, footer: str) -> None:
    """Write the traces as a page that opens from disk and holds no script. Raises ``StorageError`` if it cannot be written."""
    page = page_template("trace.html.jinja").render(
        traces=traces, footer=footer, visible=visible, background=_background, percent=percent
    )
    write_output(file, page.encode(errors="replace"), "the trace")


def _candidate(step: Step, rank: int) -> Text:
    token, probability = step.candidates[rank]
    return Text(f"{visible(token)} {percent(probability)}", style="bold cyan" if token == step.token else "")


def _followed(step: Step, rank: int) -> str:
    if step.corpus is None or rank >= len(step.corpus.most_common):
        return ""
    token, count = step.corpus.most_common[rank]
    return f"{visible(token)} {count}/{step.corpus.count}"


def _background(probability: float) -> str:
    """A background colour, the more opaque the more probable."""
    return f"#{COLOUR}{round(20 + 150 * probability):02x}" if probability >= 0.005 else "transparent"
