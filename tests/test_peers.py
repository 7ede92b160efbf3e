"""The table of peers: cells that are measured once, and what its counts say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import peers
from benchmarks.peers import Cell, Row, by_case, compared, learning_seconds, measure, rendered, rows_of, set_of

SET = [(f"{word} {i}", word) for word in ("good", "bad") for i in range(40)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One set of forty texts a class, and a method that looks at the first letter."""
    monkeypatch.setattr(peers, "RUNS", tmp_path)
    monkeypatch.setattr(peers, "READ", {"one": lambda: (SET, SET)})
    monkeypatch.setitem(peers.METHODS, "contrast", lambda train, seed: lambda texts: np.array([text[0] == "g" for text in texts]))
    set_of.cache_clear()


def row(method: str, draw: int, right: np.ndarray, device: str = "cuda", seconds: float = 1.0) -> Row:
    """A row of the set ``one`` with ten labels."""
    return Row(
        Cell("one", 10, method, draw, device), len(right), float(right.mean()), 0.5, seconds, np.packbits(right).tobytes().hex()
    )


def test_a_cell_keeps_which_texts_were_right(small: None, tmp_path: Path) -> None:
    """A bit each, through a line of JSON; the same cell is known again."""
    found = measure(Cell("one", 10, "contrast", 0, "cpu"))
    assert found is not None
    assert found.accuracy == found.macro_f1 == 1.0
    assert found.bits().tolist() == [1] * 80
    file = tmp_path / "rows.ndjson"
    file.write_text(json.dumps(found._asdict()) + "\n")
    assert rows_of(file) == {found.cell: found}
    assert rows_of(tmp_path / "none.ndjson") == {}


def test_a_peer_that_is_not_installed_is_left_out(
    small: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a line that says so."""
    monkeypatch.setitem(peers.LIBRARIES, "SetFit", ("no_such_library",))
    assert measure(Cell("one", 10, "SetFit", 0, "cpu")) is None
    assert capsys.readouterr().out == "SetFit is not installed here\n"


def test_a_set_is_won_if_the_interval_over_draws_and_texts_excludes_zero(small: None) -> None:
    """Against a peer that is right half as often, and one that is right as often."""
    random = np.random.default_rng(0)
    rows = [
        row(name, draw, random.random(80) < share)
        for draw in range(5)
        for name, share in (("contrast", 0.9), ("SetFit", 0.88), ("Trainer", 0.45))
    ]
    lines = compared(by_case(rows)).splitlines()
    assert [line.split(" | ")[:7] for line in lines[2:]] == [
        ["| SetFit", "10", "1", "5", "1, 0, 0", "0, 1, 0", "0, 1, 0"],
        ["| Trainer", "10", "1", "5", "1, 0, 0", "1, 0, 0", "1, 0, 0"],
    ]
    assert "| 10 labels | contrast | SetFit | Trainer |" in rendered(rows)


def test_the_page_shows_the_rows_beside_it() -> None:
    """Each table, as ``python -m benchmarks.peers --draws`` prints it."""
    page = (peers.ROWS.parent / "peers.md").read_text(encoding="utf-8")
    for shown in rendered([*rows_of(peers.ROWS).values()]).split("\n\n"):
        assert shown in page


def test_seconds_are_those_of_the_processor_alone(small: None) -> None:
    """Rows of a GPU have none, and the ratio is taken set by set."""
    right = np.ones(80, dtype=bool)
    rows = [row("contrast", 0, right, "cpu", 2.0), row("SetFit", 0, right, "cpu", 20.0), row("SetFit", 1, right, "cuda", 99.0)]
    assert learning_seconds(rows).splitlines()[2:] == [
        "| contrast | 10 | 1 | 2.0 (2.0 to 2.0) | 1 |",
        "| SetFit | 10 | 1 | 20.0 (20.0 to 20.0) | 10 |",
    ]
