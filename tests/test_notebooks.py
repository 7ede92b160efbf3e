"""The notebooks: committed without outputs, complete as lessons, and every cell and every solution runs offline."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from helpers.notebooks import LESSONS, METADATA, NOTEBOOKS, OFFLINE, SHORTER, normal_form, read, run, solutions, with_solutions
from warmstart.training.progress import ProgressBar

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tutorials" / "notebooks.md"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short folder for a kernel's files; nothing is read from the user's settings, and nothing written there.

    A kernel computes with one thread, as all tests do: beside other tests, more would wait for each other.
    """
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="k") as place:
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
            monkeypatch.setenv(name, place)
        monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        yield Path(place)


def test_notebooks_are_committed_in_their_normal_form() -> None:
    """Without outputs, with numbered cells; ``python -m helpers.notebooks``, in ``tests``, writes it. The documents list each."""
    page = PAGE.read_text(encoding="utf-8")
    for file in NOTEBOOKS:
        notebook = read(file)
        assert file.read_text(encoding="utf-8") == normal_form(notebook), file
        assert notebook.cells[0].source.startswith("# ")
        assert all(cell.source for cell in notebook.cells)
        assert f"(../../notebooks/{file.name})" in page
    assert all(any(long in file.read_text().replace('\\"', '"') for file in NOTEBOOKS) for long in SHORTER)


def test_lessons_have_goals_questions_and_exercises() -> None:
    """Questions to answer before a cell is run, and three to five exercises, each with a folded solution."""
    for file in LESSONS:
        text = "\n\n".join(cell.source for cell in read(file).cells if cell.cell_type == "markdown")
        assert "## Goals" in text
        assert text.count("**Predict before you run.**") >= 3
        exercises = re.split(r"^### Exercise \d+: .+$", text, flags=re.MULTILINE)[1:]
        assert 3 <= len(exercises) <= 5
        assert all("<details>" in one and "<summary>Solution</summary>" in one for one in exercises)
        assert text.count("<details>") == text.count("</details>")
        assert sum(len(solutions(cell)) for cell in read(file).cells) >= 2


@pytest.mark.journeys
@pytest.mark.usefixtures("socket_enabled")  # of the event loop with itself
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(file: Path, tmp_path: Path, runtime: Path) -> None:
    """Every cell and the code of every solution, in an empty folder, offline, and nothing is written to standard error.

    The first result at full length, the others with fewer steps and seeds.
    """
    outputs = run(with_solutions(read(file), as_it_is=file.stem == "first_result"), tmp_path, runtime)
    assert [output["text"] for output in outputs if output.get("name") == "stderr"] == []
    assert not any("\x1b" in output.get("text", "") for output in outputs), "a progress bar or colours of a terminal"
    assert any("text/html" in output.get("data", {}) for output in outputs)


BARS = """
from warmstart.training import progress
progress.SECONDS_BETWEEN = 0
for title in ("one", "<b>two"):
    with progress.ProgressBar(title) as bar:
        bar.update(0.25, 3.0, 900)
        bar.update(0.5, 2.0, 900)
        if title != "one":
            bar.bar.close = lambda: None  # it stays
"""


@pytest.mark.usefixtures("socket_enabled")  # of the event loop with itself
def test_a_progress_bar_is_one_output_that_changes(tmp_path: Path, runtime: Path) -> None:
    """All bars of a cell share one output, which holds the last state, as HTML and as plain text; nothing is a failure on red."""
    cells = [OFFLINE, BARS, "with progress.ProgressBar('three') as bar:\n    bar.update(0.5, 1.0, 1)"]
    left_open, closed = run(
        nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, cells)], metadata=METADATA), tmp_path, runtime
    )
    assert left_open["output_type"] == closed["output_type"] == "display_data"
    assert re.fullmatch(r"<b>two: 50% · loss 2\.000 · 900 tokens/s · 0 seconds left", left_open["data"]["text/plain"])
    assert left_open["data"]["text/html"].startswith('<progress max="1" value="0.500" aria-label="&lt;b&gt;two: 50%')
    assert set(closed["data"].values()) == {""}


def test_a_short_run_and_a_log_file_have_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal and without a notebook nothing is printed, and an update costs nothing."""
    with ProgressBar("training") as bar:
        bar.update(0.5, 2.0, 900)
    assert capsys.readouterr() == ("", "")
