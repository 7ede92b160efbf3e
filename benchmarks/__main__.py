"""Measures the tables of the documents.

    python -m benchmarks                    list them: page, date and minutes of the last measurement, commands
    python -m benchmarks NAME ... --write   measure these and write them into their pages; without --write, print them
    python -m benchmarks --all --write      all of them, in the order of the list

All of them take about 13 hours of one core. On two cores, two calls with half of the names each take one night; make the models
that both need first (``wikitext-2 minilm``), and leave the machine alone for the speed tables of results/performance.md.
In the environment, ``WARMSTART_DATA`` names the folder of data sets, ``NANOGPT`` the ``model.py`` of nanoGPT.

What a table needs from another one, such as a backbone, comes first. A result that exists is kept, under ``runs/tables``;
``--again`` deletes those of the tables named, to measure them anew. Races take up their finished trials, so that a second call
after a change of a statistic takes seconds; ``--render`` runs no command whose result exists.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import overview
from benchmarks.catalogue import TABLES
from benchmarks.command import Measured, forget, measure
from benchmarks.table import DOCS, Table, last_measured, with_block

BY_NAME = {one.name: one for one in TABLES}


def lines_of(table: Table) -> list[tuple[str, str]]:
    """Each command line of a table, and the name of its result."""
    return [(line, f"{table.name}-{number}") for number, line in enumerate(table.commands, 1)]


def measure_table(table: Table, runs: Path, *, render: bool) -> list[Measured]:
    """The results of a table's commands, after those of the tables that it needs."""
    for name in table.needs:
        measure_table(BY_NAME[name], runs, render=True)  # a backbone that exists is not made again
    return [measure(line, name, runs, render=render) for line, name in lines_of(table)]


def write(table: Table, content: str) -> None:
    """Put a table into its pages, and the overviews of reproductions into theirs."""
    for page in table.pages:
        file = DOCS / page
        file.write_text(with_block(file.read_text(encoding="utf-8"), table.name, content), encoding="utf-8")
    overview.write_pages()


def listing() -> str:
    """Every table with its pages, its last measurement and its commands."""
    lines = []
    for one in TABLES:
        if one.pages:
            lines.append(f"{one.name}: {', '.join(one.pages)}; {last_measured(one)}")
            lines += [f"    {line}" for line in one.commands]
    return "\n".join(lines)


def main() -> None:
    """List, or measure; each table is written as soon as it is ready."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[[], *BY_NAME], metavar="NAME", help="tables; none: list them")
    parser.add_argument("--all", action="store_true", help="all tables")
    parser.add_argument("--write", action="store_true", help="write them into their pages")
    parser.add_argument("--render", action="store_true", help="run no command whose result exists")
    parser.add_argument("--again", action="store_true", help="measure anew what has a result")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs")
    given = parser.parse_args()
    tables = TABLES if given.all else [BY_NAME[name] for name in given.names]
    if not tables:
        print(listing())
    for line, name in [pair for table in tables if given.again for pair in lines_of(table)]:
        forget(line, name, given.runs)
    for table in tables:
        content = table.block(measure_table(table, given.runs, render=given.render))
        print(content, end="\n\n", flush=True)
        if given.write:
            write(table, content)


if __name__ == "__main__":
    main()
