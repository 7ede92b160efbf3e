"""The notebooks in their committed form, and how they are run.

``python -m helpers.notebooks`` (in ``tests``) writes them anew after an edit in Jupyter: without outputs, with numbered cells.
"""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from warmstart.system.processes import isolated_children

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LESSONS = [file for file in NOTEBOOKS if file.stem.startswith("lesson_")]
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
OFFLINE = "import pytest_socket\npytest_socket.disable_socket(allow_unix_socket=True)"
"""run before the first cell"""
CHECKED_HERE = (
    "from contextlib import nullcontext\nfrom warmstart.model import files\n"
    "files._fresh_reader = lambda: nullcontext(lambda place: files.load_bundle(place) and None)"
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


if __name__ == "__main__":
    for one in NOTEBOOKS:
        one.write_text(normal_form(read(one)), encoding="utf-8")
