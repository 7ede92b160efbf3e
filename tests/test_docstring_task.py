"""Text and a labelled task from documentation: what is read, what is masked, and that nothing leaks."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from helpers.refusals import refused
from warmstart.data import docstring_task as module_file
from warmstart.data import docstrings as reading
from warmstart.data.docstring_task import (
    AREAS,
    MAX_PER_MODULE,
    MAX_WORDS,
    PRETRAINING_WORDS,
    QUOTA,
    docstring_task,
    pretraining_text,
)
from warmstart.data.docstrings import Docstring, read_docstrings
from warmstart.data.task import Task, subsample
from warmstart.errors import DataError

PACKAGES = ("json", "statistics", "asyncio", "email", "joblib")
SYLLABLES = [a + b for a in "bdfglmnprt" for b in "aeiou"]
WORDS = [
    word for word in map("".join, itertools.product(SYLLABLES, repeat=2)) if module_file._stem(word) not in module_file._GIVEAWAY
]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty package named ``toybox`` that Python can find."""
    folder = tmp_path / "toybox"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def invented(areas: tuple[str, ...] = ("networkx", "statistics", "sympy.physics"), modules: int = 30) -> list[Docstring]:
    """Ten docstrings of invented words in each module of each area, and one outside the areas that copies each tenth one."""
    draw = np.random.default_rng(0)
    made = []
    for area, module, owner in itertools.product(areas, range(modules), range(10)):
        text = " ".join(draw.choice(WORDS, 14))
        made.append(Docstring(f"{area}.m{module}", f"f{owner}", f"{text}.\n\nParameters\n----------\nx : int of {area} {module}"))
        if owner == 0:
            made.append(Docstring("elsewhere", f"g{len(made)}", f"An introduction.\n\n{text}, and so on."))
            made.append(Docstring("elsewhere", f"h{len(made)}", " ".join(draw.choice(WORDS, 30))))
    return made


@pytest.fixture(scope="module")
def found() -> list[Docstring]:
    return invented()


@pytest.fixture(scope="module")
def task(found: list[Docstring]) -> Task:
    return docstring_task(found, seed=3)


def test_documentation_of_modules_classes_functions_and_methods_is_read(package: Path) -> None:
    """Each docstring tells its module, what it documents, and its text without indentation; nothing is imported."""
    (package / "shapes.py").write_text(
        '"""Shapes and their areas."""\n\nclass Square:\n    """A square in the plane.\n\n    With\n        corners.\n    """\n\n'
        '    async def area(self):\n        """The area of it."""\n        def inner():\n            """Never seen, but read."""\n'
    )
    assert read_docstrings(["toybox"]) == [
        Docstring("toybox.shapes", "shapes", "Shapes and their areas."),
        Docstring("toybox.shapes", "Square", "A square in the plane.\n\nWith\n    corners."),
        Docstring("toybox.shapes", "Square.area", "The area of it."),
        Docstring("toybox.shapes", "Square.area.inner", "Never seen, but read."),
    ]
    assert "toybox" not in sys.modules


def test_tests_copies_fragments_and_broken_files_are_left_out(package: Path) -> None:
    """Test folders, repeated texts, texts of two words and files that do not parse yield nothing, and no warning either."""
    (package / "a.py").write_text('"""Said once or twice."""\nPATTERN = "\\d"\ndef f():\n    """Too short."""\n')
    (package / "b.py").write_text('"""Said once or twice."""\n')
    (package / "broken.py").write_text('"""This does not parse."""\ndef f(:\n')
    (package / "null.py").write_bytes(b'"""This has a null byte."""\0\n')
    (package / "test_a.py").write_text('"""This is a test."""\n')
    (package / "tests").mkdir()
    (package / "tests" / "c.py").write_text('"""This is a test too."""\n')
    assert read_docstrings(["toybox"]) == [Docstring("toybox.a", "a", "Said once or twice.")]


def test_reading_imports_nothing_and_leaves_the_process_as_it_was(package: Path) -> None:
    """Also the cycle collector and the warning filters; a lone surrogate, which no tokenizer can take, is left out of its text."""
    (package / "__init__.py").write_text('"""One \\ud800 stray half character."""\n')
    before = list(warnings.filters)
    assert [docstring.text.encode() for docstring in read_docstrings(["toybox"])] == [b"One  stray half character."]
    assert gc.isenabled()
    assert warnings.filters == before
    code = (
        "import sys; from warmstart.data.docstrings import PACKAGES, _root, read_docstrings; before = set(sys.modules); "
        "[_root(name) for name in PACKAGES]; read_docstrings(['statistics', 'networkx']); "
        "new = set(sys.modules) - before; assert not new & {*PACKAGES, 'statistics'}, new"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_installed_libraries_are_read_in_the_same_order_every_time() -> None:
    """Frozen modules, single files and packages are found; absent ones are left out; two readings are equal."""
    read = read_docstrings((*PACKAGES, "os", "no_such_library"))
    assert read == read_docstrings((*PACKAGES, "os", "no_such_library"))
    assert {docstring.module.split(".")[0] for docstring in read} == {*PACKAGES, "os"}
    assert len(read) == len({docstring.text for docstring in read}) > 500
    by_name = {(docstring.module, docstring.name): docstring.text for docstring in read}
    assert "mean" in by_name["statistics", "mean"]
    assert ("json", "loads") in by_name


def test_an_opening_is_prose_of_an_area() -> None:
    """No lists, parameters, examples, headings or mark-up; the longest path that names a module decides its area."""
    module, text = "sympy.physics.optics.waves", "Superpose two waves of\nequal frequency and return the sum, a third wave."
    [example] = module_file._examples([Docstring(module, "superpose", text)])
    assert example.text == "Superpose two _ of equal frequency and return the sum, a third _."  # as the file's documentation says
    assert example.area == "physics"
    for module, area in (
        ("torch.nn.functional", "neural networks"),
        ("torch.nn.parallel.comm", "distributed training"),
        ("statistics", "statistics"),
        ("torch", None),
        ("jsonschema", None),
    ):
        assert module_file._area(module) == area, module
    for text, opening in (
        ("Add two waves.\n\nThey may\ndiffer.\n\n>>> add(a, b)", "Add two waves. They may differ."),
        ("Add waves.\n\nParameters\n----------\na : Wave", "Add waves."),
        ("Add waves.\n\nArgs:\n    a (Wave): one", "Add waves."),
        ("Add waves.\n\n- one\n- two", "Add waves."),
        ("Add a :class:`Wave` to ``b``.\n\n:param b: another", "Add a Wave to b."),
        ("Add waves.\n\nNote that this\nis slow.\n\n.. math:: a", "Add waves. Note that this is slow."),
    ):
        assert module_file._opening(Docstring("sympy", "add", text)) == opening


def test_names_that_give_the_answer_away_are_masked() -> None:
    """Words of every area's name and modules, singular or plural, and of the docstring's own module are hidden."""
    text = "Plot a Graph with scipy.stats and zeta_tools: statistic, statistics, ZETA, zetas, etas."
    assert module_file._masked(Docstring("sympy.zeta_tools", "plot", text)) == "Plot a _ with _ and _: _, _, _, _, etas."


def test_copies_and_disputed_texts_are_no_examples() -> None:
    """A text that two areas share is nobody's; one that an area repeats counts once; private names and short texts count never."""
    long = "one two three four five six seven eight nine ten"
    shared = [Docstring("networkx.a", "f", long), Docstring("statistics", "f", long.upper())]
    twice = [Docstring("networkx.a", "g", long + " more"), Docstring("networkx.b", "g", long + " more!")]
    never = [
        Docstring("networkx.a", "_h", long + " private"),
        Docstring("networkx.a", "C._h", long + " too"),
        Docstring("networkx.a", "i", "one two"),
    ]
    assert [(e.module, e.text) for e in module_file._examples([*shared, *twice, *never])] == [("networkx.a", long + " more")]


def test_splits_are_fair(found: list[Docstring], task: Task) -> None:
    """Areas are of equal size in each split; no module speaks in two or more than its share; the seed alone decides."""
    assert task.labels == ("graph theory", "physics", "statistics")
    module_of = {example.text: example.module for example in module_file._examples(found)}
    modules = {name: [module_of[text] for text in split.texts] for name, split in task.splits().items()}
    for name, split in task.splits().items():
        assert np.bincount(split.labels).tolist() == [QUOTA[name]] * 3
        assert split.labels.dtype == np.int64
    for one, other in itertools.combinations(modules.values(), 2):
        assert not set(one) & set(other)
    assert max(map(modules["test"].count, modules["test"])) <= MAX_PER_MODULE
    assert subsample(task, 120, 0).train.labels.tolist() != sorted(subsample(task, 120, 0).train.labels)
    again, other = docstring_task(found, seed=3), docstring_task(found, seed=4)
    assert again.test.texts == task.test.texts
    assert (again.test.labels == task.test.labels).all()
    assert (other.labels, other.test.texts == task.test.texts) == (task.labels, False)


def test_pretraining_reads_nothing_of_what_is_asked_and_all_the_rest(found: list[Docstring], task: Task) -> None:
    """No text of a validated or tested module, nor a near copy of one; training modules and others stay, whole and in order."""
    texts = pretraining_text(found, task)
    module_of = {example.text: example.module for example in module_file._examples(found)}
    asked = {module_of[text] for text in (*task.validation.texts, *task.test.texts)}
    assert not {docstring.text for docstring in found if docstring.module in asked} & set(texts)
    held_out = {run for text in (*task.validation.texts, *task.test.texts) for run in module_file._runs(text)}
    assert held_out.isdisjoint(run for text in texts for run in module_file._runs(text))
    assert {docstring.text for docstring in found if docstring.name.startswith("h")} <= set(texts)
    assert all(text.removesuffix(".") in " ".join(texts) for text in task.train.texts)
    assert texts == [docstring.text for docstring in found if docstring.text in set(texts)]


def test_areas_that_are_too_few_or_too_small() -> None:
    """Which areas there are depends on the docstrings alone; one is no task; the table of areas names each module once."""
    few = invented(modules=30) + invented(("asyncio",), modules=12)
    assert {docstring_task(few, seed).labels for seed in range(3)} == {("graph theory", "physics", "statistics")}
    said = r"at least two areas, but among 360 docstrings only physics has enough; pass read_docstrings\(\) of"
    refused(DataError, said, docstring_task, invented(("sympy.physics",)))
    refused(DataError, "among 0 docstrings only no area has enough", docstring_task, [])
    dotted = r"whole packages such as 'json', but got 'json\.decoder'; name the top-level package"
    refused(DataError, dotted, read_docstrings, ["json.decoder"])
    modules = [module for named in AREAS.values() for module in named.split()]
    assert len(modules) == len(set(modules))
    assert {module.split(".")[0] for module in modules} <= {*sys.stdlib_module_names, *reading.PACKAGES}


@pytest.mark.journeys
def test_the_installed_libraries_make_a_task() -> None:
    """What is installed here yields a dozen areas or more, enough examples of each, and millions of characters."""
    read = read_docstrings()
    task = docstring_task(read)
    assert len(task.labels) >= 12
    assert len(task.test) >= 12 * QUOTA["test"]
    assert len(task.train) >= 480
    assert max(len(text.split()) for text in task.test.texts) <= MAX_WORDS
    texts = pretraining_text(read, task)
    assert sum(map(len, texts)) > 5_000_000
    assert max(len(text.split()) for text in texts if "\n" in text) <= PRETRAINING_WORDS
