"""The notebooks: committed without outputs, complete as lessons, and every cell and every solution runs offline."""

from __future__ import annotations

import functools
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from warmstart.system.processes import isolated_children
from warmstart.training.progress import ProgressBar

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tutorials" / "notebooks.md"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LESSONS = [file for file in NOTEBOOKS if file.stem.startswith("lesson_")]
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
OFFLINE = "import pytest_socket\npytest_socket.disable_socket(allow_unix_socket=True)"
"""run before the first cell"""
CHECKED_HERE = (
    "from contextlib import nullcontext\nfrom warmstart.model import files\n"
    "files._fresh_reader = lambda: nullcontext(lambda place: files.load_saved(place) and None)"
)
"""run with it: saved models are loaded and tested in the kernel, as a fresh process for each of some forty saves takes minutes"""
FEW = """
from warmstart.baselines import BASELINES
from warmstart.finetuning import finetune
finetune.MIN_STEPS = 1
BASELINES._rows = {name: BASELINES[name] for name in ("majority", "TF-IDF + logistic regression", "NBSVM", "naive Bayes + EM")}
"""
"""run with it: a run of no named length has no least number of steps, and races have four baselines"""
QUICK = '{"train": {"steps": 15}}'
"""the training of methods in a race, which searches its learning rates in any case"""
SHORTER = {
    '"steps": 300': '"steps": 60', '"steps": 500': '"steps": 60', '"scratch_epochs": 20': '"scratch_epochs": 5',
    '"epochs": 10}': '"epochs": 3}', '"epochs": 20}': '"epochs": 4}', '"epochs": 100': '"epochs": 40',
    '"seeds": 3': '"seeds": 1', "seeds=3": "seeds=1", '"labels": 48': f'"labels": 48, "tune": {QUICK}',
    "labels=(12, 36, 108)": f"labels=(12, 36, 108), tune={QUICK}",
}  # fmt: skip
"""less work in the same cells; their text speaks of results at full length, which nothing here reads"""
SECONDS = 600
"""the longest that a cell may take, on a machine that does other things too"""


def read(file: Path) -> NotebookNode:
    """A notebook, checked against the format."""
    found = nbformat.read(file, as_version=4)
    nbformat.validate(found)
    return found


def normal_form(notebook: NotebookNode) -> str:
    """The text that is committed: no outputs, no metadata but the kernel, cells ``cell-01``, ``cell-02`` and so on."""
    cells = []
    for number, cell in enumerate(notebook.cells, 1):
        given = {"id": f"cell-{number:02}", "source": cell.source.rstrip()}
        make = nbformat.v4.new_code_cell if cell.cell_type == "code" else nbformat.v4.new_markdown_cell
        cells.append(make(**given))
    made: NotebookNode = nbformat.v4.new_notebook(cells=cells, metadata=METADATA)
    made.nbformat_minor = 5
    return str(nbformat.writes(made)) + "\n"


def solutions(cell: NotebookNode) -> list[str]:
    """The Python blocks in the folded solutions of a cell of text."""
    folded = re.findall(r"<details>.*?</details>", cell.source, flags=re.DOTALL) if cell.cell_type == "markdown" else []
    return [code for text in folded for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)]


def with_solutions(notebook: NotebookNode, *, as_it_is: bool) -> NotebookNode:
    """The same notebook, offline, each solution as a cell after its text.

    Unless it runs as it is, it is shorter, and saved models are loaded in the kernel, not in a fresh process.
    """
    cells = [nbformat.v4.new_code_cell(OFFLINE if as_it_is else f"{OFFLINE}\n{CHECKED_HERE}\n{FEW}")]
    for cell in notebook.cells:
        cells += [cell, *map(nbformat.v4.new_code_cell, solutions(cell))]
    for cell in () if as_it_is else cells:
        cell.source = functools.reduce(lambda text, length: text.replace(*length), SHORTER.items(), cell.source)
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


def run(notebook: NotebookNode, folder: Path, runtime: Path) -> list[dict[str, Any]]:
    """Everything that the cells print and show, from a kernel in ``folder``. Raises ``CellExecutionError`` if a cell fails.

    ``runtime`` is an empty folder with a short path: the kernel is reached over Unix sockets there, where the system has them.
    """
    client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.create_kernel_manager()
    client.km.connection_file = str(runtime / "kernel.json")
    if sys.platform == "linux":
        client.km.transport = "ipc"
    with isolated_children():
        client.execute()
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


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
    """Without outputs, with numbered cells; ``python -m test_notebooks``, in ``tests``, writes it. The documents list each."""
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


if __name__ == "__main__":
    for one in NOTEBOOKS:
        one.write_text(normal_form(read(one)), encoding="utf-8")
