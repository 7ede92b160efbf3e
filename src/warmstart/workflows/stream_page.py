"""The forgetting report: every task after every stage, for each way to remember."""

from __future__ import annotations

from pathlib import Path

from warmstart.config import Config
from warmstart.report import Figure, Report, Section, Table, write_report
from warmstart.report.stream import stream_chart
from warmstart.workflows.pages import as_sentence, closing_sections, footer
from warmstart.workflows.streamed import Stream

MEANING = (
    "Right after learning: mean over tasks of the score when each was just learned. Backward transfer: mean over all but the last "
    "task of (score at the end - score right after learning). Forgetting: mean over them of (best score before - at the end)."
)


def stream_page(found: Stream, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    said = found.sentences()
    sections = [Section("What was forgotten", (*map(as_sentence, said), MEANING), (Table(found.HEADER, found.table()),))]
    sections += [_memory_section(found, memory) for memory in found.runs]
    first = next(iter(found.runs))
    report = Report(
        f"Stream: {' → '.join(found.names)}",
        as_sentence(said[0]),
        tuple((f"average at the end, {memory}", f"{100 * found.figure(memory, 'average').mean:.1f} %") for memory in found.runs),
        (*sections, *closing_sections(config)),
        f"{footer()} {len(found.runs[first])} seeds.",
    )
    return write_report(report, folder)


def _memory_section(found: Stream, memory: str) -> Section:
    stages = range(len(found.names))
    cells = {(stage, task): found.cell(memory, stage, task) for stage in stages for task in range(stage + 1)}
    rows = [(found.names[task], stage, cell.mean, cell.low, cell.high) for (stage, task), cell in cells.items()]
    table = [(found.names[stage], *(str(cells[stage, task]) if task <= stage else "" for task in stages)) for stage in stages]
    course = " → ".join(f"{value:.3f}" for value in _means(found, memory))
    text = [f"Language-model loss before the stream and after each task, mean over seeds: {course} nats."] if course else []
    caption = "Test score of each task after every task learned; mean and 95 % interval over seeds."
    figure = Figure(f"stream-{memory}", caption, stream_chart(rows, found.names, "score"))
    return Section(f"Memory: {memory}", tuple(text), (figure, Table(("after learning", *found.names), table)))


def _means(found: Stream, memory: str) -> list[float]:
    runs = found.runs[memory]
    return [sum(run.language[stage] for run in runs) / len(runs) for stage in range(len(runs[0].language))]
