"""The tables of the documents: measured ones are written by one command, from the results of the command lines beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks import command, house, overview
from benchmarks.__main__ import lines_of, measure_table
from benchmarks.catalogue import TABLES
from benchmarks.command import measure, words_of
from benchmarks.table import DOCS, Table, blocks

from helpers.pages import PAGES
from warmstart.cli import read_command
from warmstart.stats.comparison import MethodResult, MethodTable

MEASURED = re.compile(r"\d%|\(-?[\d.,]+ to [\d.,+-]+\)")
"""a percentage or an interval that was measured"""
BY_HAND = {
    "adaptation-results.md": {"comparison": "equality of imported models, by tests", "form": "graphs, by onnxruntime"},
    "attention-lab.md": {"question": "closed forms that study lab checks"},
    "baselines.md": {"baseline": "the lines of Python below it"},
    "performance.md": {"step": "benchmarks/attention.py, a constant"},
    "ideas.md": {"you have": "the pages that each row links"},
    "how-sure.md": {"labelled texts": "the formula above it"},
    "other.md": {
        "model": "benchmarks/fixed_settings.py, which chose a default",
        "labelled texts of": "benchmarks/several_labels.py, of tables that are not in the repository",
        "data set": "the samples of tests/test_copies.py, now and at commit cc2be2b5",
        "labels": "benchmarks/fits.py, now and at commit 5cb677ad",
        "set, 100 labels": "the same",
        "vectors": "benchmarks/static.py at commit 5cb677ad, and the same with use",
    },
    "peers.md": {"against": "benchmarks/peers.py, from results/peers.ndjson", "method": "the same"},
    "scale.md": {"model, batch": "benchmarks/scale.py at commit 5cb677ad", "GPUs": "the same, by formula"},
    "study-results.md": {
        "": "study objectives, which commit 5cb677ad was the last to have",
        "method": "faithfulness on questions cut from their labels",
    },
}
"""tables with measured figures that the command does not write: page -> first cell -> where they come from"""
SIMULATED = {"statistics.md"}
"""pages whose figures are printed by the simulations that their rows name"""
LINES = [(one.name, line) for one in TABLES for line in one.commands]


def test_measured_tables_stand_where_the_command_writes_them() -> None:
    """Each in a block, once on each of its pages; others that hold percentages or intervals are named here, none in vain."""
    pages = {page: PAGES[page] for one in TABLES for page in one.pages}
    places = sorted((name, page) for page, text in pages.items() for name in blocks(text) if name != overview.IN_SHORT)
    assert places == sorted((one.name, page) for one in TABLES for page in one.pages)
    for page, text in pages.items():
        assert len(re.findall(r"<!-- [\w-]+ -->\n", text)) == 2 * len(blocks(text)), page
    assert len({one.name for one in TABLES}) == len(TABLES)
    by_hand: dict[str, set[str]] = {}
    for page, text in PAGES.items():
        outside = re.sub(r"<!-- [\w-]+ -->\n.*?<!-- end -->|```.*?```", "", text, flags=re.DOTALL)
        for table in re.findall(r"(?:^\|.*\n)+", outside, flags=re.MULTILINE):
            if MEASURED.search(table) and (name := page.rpartition("/")[2]) not in SIMULATED:
                by_hand.setdefault(name, set()).add(table.split("|")[1].strip())
    assert by_hand == {page: {*tables} for page, tables in BY_HAND.items()}


def test_the_overview_of_reproductions_holds_the_figures_of_their_pages() -> None:
    """Each row of every table, as the pages have it now; and each page begins with its system's own figures."""
    for place, text in overview.pages().items():
        assert place.read_text(encoding="utf-8") == text
    pages = {DOCS / page for one in TABLES for page in one.pages if "warmstart recipe" in one.commands[0]}
    assert pages == {overview.PAGE.parent / f"{name}.md" for name in overview.SYSTEMS}


def test_the_command_lines_of_tables_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their flags exist, their values are valid, and a module of the benchmarks or a simulation exists."""
    monkeypatch.setenv("WARMSTART_DATA", "data")
    for name, line in LINES:
        words = words_of(line, Path("runs"))
        if words[:3] == ["python", "-m", "pytest"]:
            file, test = words[3].split("::")
            assert f"def {test}(" in (DOCS / file).read_text(), name
            assert words[4:] == ["-m", "proofs", "-s"], name
        elif words[0] == "python":
            assert (DOCS / f"{words[-1].replace('.', '/')}.py").is_file(), name
        else:
            assert read_command(words), name


def test_what_a_table_needs_comes_first() -> None:
    """The models it names are made by the tables that it needs, each earlier in the list."""
    made = {
        name: words_of(line, Path("runs")) for name, line in LINES if line.startswith(("warmstart pretrain", "warmstart import"))
    }
    folders = {words[words.index("--out") + 1]: name for name, words in made.items()}
    names = [one.name for one in TABLES]
    for one in TABLES:
        used = {folders[word] for line in one.commands for word in words_of(line, Path("runs")) if word in folders}
        assert used - {one.name} <= {*one.needs}, one.name
        assert all(names.index(other) < names.index(one.name) for other in one.needs)


def test_a_result_that_exists_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless its command line has changed; a race takes up its trials again, but not to render."""
    calls: list[list[str]] = []

    def run(words: list[str], file: Path, kept: dict[str, Any]) -> None:
        calls.append(words)
        kept |= {"result": {"a": 1}, "seconds": 60.0, "date": "2026-11-22", "machine": "here"}
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(kept))

    monkeypatch.setattr(command, "_run", run)
    table = Table("t", (), ("warmstart race t.yaml --out runs/t", "warmstart audit t.yaml"), lambda found: f"{len(found)} results")
    measured = measure_table(table, tmp_path, render=False)
    assert calls == [["race", "t.yaml", "--out", str(tmp_path / "t")], ["audit", "t.yaml"]]
    measure_table(table, tmp_path, render=False)
    assert [words[0] for words in calls] == ["race", "audit", "race"]
    measure_table(table, tmp_path, render=True)
    measure("warmstart audit other.yaml", lines_of(table)[1][1], tmp_path, render=True)
    assert [words[0] for words in calls] == ["race", "audit", "race", "audit"]
    assert table.block(measured).endswith("2 results\n\nhere, 2026-11-22, 2.0 minutes, `python -m benchmarks t`")


def test_an_adaptation_can_stand_in_a_table() -> None:
    """What `adapt` prints is kept with its figures, as races are."""
    rows = tuple(MethodResult(name, (score, score)) for name, score in (("pretrained", 0.9), ("majority", 0.5)))
    kept = command.values_of(SimpleNamespace(comparison=MethodTable("accuracy", rows)))
    assert kept["printed"]["header"][0] == "method"
    assert [row[0] for row in kept["printed"]["rows"]] == ["pretrained", "majority"]


def test_no_room_is_above_its_row() -> None:
    """The table in docs/explanation/architecture.md is a limit: who brings something in takes something out.

    Lines of packages and tests, words of documents, commands and settings; `python -m benchmarks.house` prints them.
    """
    assert not house.problems(house.counts(), house.rows())


def test_a_room_that_grows_or_has_no_row_is_named() -> None:
    """With the count and the row."""
    assert house.problems({"heads": 700, "new": 1}, {"heads": 640, "gone": 5}) == [
        "'heads' has 700, above its row of 640",
        "'gone' has no row, or no room",
        "'new' has no row, or no room",
    ]
