"""Tasks: a manifest becomes the same splits every time, and says what is wrong with it; a task made from documentation."""

from __future__ import annotations

import gc
import itertools
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from warmstart.data import docstrings as reading
from warmstart.data.docstrings import (
    AREAS,
    MAX_PER_MODULE,
    MAX_WORDS,
    QUOTA,
    Docstring,
    docstring_task,
    read_docstrings,
)
from warmstart.data.source import Source
from warmstart.data.task import Split, Task, subsample
from warmstart.errors import ConfigError, DataError
from warmstart.tasks.answers import load_answer_task
from warmstart.tasks.load import load_task, save_task

RECIPES = Path(__file__).parents[1] / "recipes" / "tasks"


def tsv(folder: Path, name: str, labels: str) -> None:
    """A table with one text per letter of ``labels``."""
    rows = "".join(f"{label}\t{name} text {number}\n" for number, label in enumerate(labels))
    (folder / f"{name}.tsv").write_text("label\ttext\n" + rows)


def manifest(folder: Path, **changes: object) -> Path:
    """A manifest over 30 training and 6 test examples, with changes (None leaves a key out)."""
    tsv(folder, "train", "aab" * 10)
    tsv(folder, "test", "ababab")
    values = {"name": "toy", "train": "train.tsv", "validation": 0.2, "test": "test.tsv"} | changes
    file = folder / "toy.yaml"
    file.write_text(yaml.safe_dump({key: value for key, value in values.items() if value is not None}))
    return file


def same(one: Task, other: Task) -> bool:
    pairs = zip(one.splits().values(), other.splits().values(), strict=True)
    named = (one.name, one.labels, one.metric, one.unlabelled) == (other.name, other.labels, other.metric, other.unlabelled)
    return named and all(a.texts == b.texts and (a.labels == b.labels).all() for a, b in pairs)


def test_a_manifest_becomes_a_task(tmp_path: Path) -> None:
    """A share is cut from the training examples, stratified; paths start at the manifest's folder."""
    task = load_task(manifest(tmp_path, unlabelled=["more.txt", {"path": "/else/where.txt", "document": "line"}]))
    assert task.summary() == {
        "name": "toy", "type": "classification", "metric": "accuracy", "labels": ["a", "b"],
        "train": 24, "validation": 6, "test": 6,
    }  # fmt: skip
    assert np.bincount(task.validation.labels).tolist() == [4, 2]
    assert task.test.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert task.test.texts[1] == "test text 1"
    assert not set(task.train.texts) & set(task.validation.texts)
    assert [source.path for source in task.unlabelled] == [str(tmp_path / "more.txt"), "/else/where.txt"]
    assert task.unlabelled[1].document == "line"


def test_the_same_seed_gives_the_same_task(tmp_path: Path) -> None:
    """Splits depend on content and seed alone."""
    file = manifest(tmp_path, validation=5, test=0.2, limit=10)
    task = load_task(file, seed=3)
    assert [len(split) for split in task.splits().values()] == [10, 5, 6]
    assert same(task, load_task(file, seed=3))
    assert not same(task, load_task(file, seed=4))


def test_every_form_of_source(tmp_path: Path) -> None:
    """A path, a mapping and a list of both say the same; common settings hold where a source says nothing else."""
    tsv(tmp_path, "b", "xyxy")
    (tmp_path / "x.txt").write_text("one\ntwo\n")
    task = load_task(
        manifest(
            tmp_path,
            source={"document": "line", "text": "nothing"},
            train=[{"path": "b.tsv", "text": "text"}, {"path": "x.txt", "as_label": "x"}],
            validation={"path": "b.tsv", "text": "text"},
            test=[{"path": "x.txt", "as_label": "y"}],
        )
    )
    assert task.train.texts == ("b text 0", "b text 1", "b text 2", "b text 3", "one", "two")
    assert task.train.labels.tolist() == [0, 1, 0, 1, 0, 0]
    assert task.test.labels.tolist() == [1, 1]


def test_order_of_labels(tmp_path: Path) -> None:
    """Labels are sorted, as numbers where they are numbers, unless the manifest orders them."""
    file = manifest(tmp_path, labels=["b", "a"])
    assert load_task(file).labels == ("b", "a")
    assert load_task(file).test.labels.tolist() == [1, 0, 1, 0, 1, 0]
    (tmp_path / "train.tsv").write_text("label\ttext\n" + "".join(f"10\tx{i}\n2\ty{i}\n-2\tz{i}\n" for i in range(3)))
    (tmp_path / "numbers.yaml").write_text("{name: numbers, train: train.tsv, validation: 3, test: 3}")
    assert load_task(tmp_path / "numbers.yaml").labels == ("-2", "2", "10")


def test_subsample(tmp_path: Path) -> None:
    """A subsample is part of the training examples, with some of every label; other splits stay as they are."""
    task = load_task(manifest(tmp_path))
    small = subsample(task, 3, seed=1)
    assert len(small.train) == 3
    assert set(small.train.labels.tolist()) == {0, 1}
    assert set(small.train.texts) < set(task.train.texts)
    assert small.test is task.test
    refused(DataError, "at least one example of each of the 2 classes", subsample, task, 1, seed=1)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@settings(deadline=None, max_examples=25)
@given(st.lists(TEXT, min_size=2, max_size=6), st.sets(st.text("ab0:é-", min_size=1, max_size=4), min_size=2, max_size=4))
def test_saved_tasks_come_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str], names: set[str]) -> None:
    """save_task and load_task are inverse for any text and any label, even for names that YAML would read as numbers."""
    folder = tmp_path_factory.mktemp("saved")
    texts = texts * 2  # at least one example of every label
    split = Split(tuple(texts), np.arange(len(texts)) % len(names))
    source = Source(path="/some/text.txt", document="line")
    task = Task("2024", tuple(sorted(names, reverse=True)), split, split.take(np.array([1, 0])), split, "macro_f1", (source,))
    assert same(load_task(save_task(task, folder / "task").parent), task)
    lines = (folder / "task" / "validation.ndjson").read_text("utf-8").split("\n")
    assert json.loads(lines[0]) == {"text": texts[1], "label": task.labels[1]}
    assert sorted(path.name for path in folder.iterdir()) == ["task"]


WRONG: list[tuple[dict[str, object], type[Exception], str]] = [
    ({"test": None}, ConfigError, r"toy\.yaml: key 'test' is required; .* give a fraction, such as test: 0\.2"),
    ({"train": None}, ConfigError, r"toy\.yaml: key 'train' is required"),
    ({"validate": 1}, ConfigError, r"toy\.yaml: unknown key 'validate'; did you mean 'validation'\?"),
    (
        {"train": {"path": "train.tsv", "lable": "x"}},
        ConfigError,
        r"toy\.yaml: source of 'train': unknown key 'lable'; did you mean 'label'\?",
    ),
    ({"source": {"lable": "x"}}, ConfigError, "source of 'train': unknown key 'lable'"),
    ({"source": "latin-1"}, ConfigError, "'source' must hold settings common to all sources, .* got 'latin-1'"),
    ({"validation": True}, ConfigError, "'validation' must be a path, .* a fraction .*; got True"),
    ({"train": []}, ConfigError, r"'train' must be a path, a source with a path, a list of these; got \[\]"),
    ({"metric": "f1"}, ConfigError, "a classification task is scored by accuracy, macro_f1, but 'metric' is f1"),
    ({"type": "regresion"}, ConfigError, "unknown task type 'regresion'; did you mean 'regression'"),
    ({"limit": 1}, ConfigError, "'limit' must be greater than 1"),
    ({"labels": ["a", "b", "a"]}, ConfigError, "must name each label once, but repeats 'a'"),
    ({"validation": 1.5}, DataError, r"toy\.yaml: a held-out part must be a fraction .* got 1\.5 of 30 examples"),
    ({"validation": 15, "test": 15}, DataError, r"leave some on both sides; got 15 of 15 examples"),
    ({"train": "one.tsv"}, DataError, r"toy\.yaml: a task needs at least two labels, but all 4 .* have 'a'"),
    (
        {"test": "new.tsv"},
        DataError,
        r"every label of the test split must be one of a, b, but it has 'c' \(2×\), 'd' \(1×\); correct",
    ),
    ({"labels": ["a", "c"]}, DataError, r"every label of the train split must be .* has 'b' \(10×\)"),
    (
        {"labels": ["a", "b", "c"]},
        DataError,
        r"every label needs a training example, but 'c' has none \(examples elsewhere: test 0, validation 0\)",
    ),
    ({"test": "absent.tsv"}, DataError, r"toy\.yaml: no such file or folder: .*absent\.tsv"),
    ({"test": "empty.tsv"}, DataError, r"empty\.tsv must hold at least one example, but is empty"),
]


def test_wrong_manifests(tmp_path: Path) -> None:
    """A mistake in a manifest or in its files is reported with the manifest, the position and the remedy."""
    for name, labels in (("one", "aaaa"), ("new", "abccd"), ("empty", "")):
        tsv(tmp_path, name, labels)
    for changes, kind, message in WRONG:
        refused(kind, message, load_task, manifest(tmp_path, **changes))


RECIPE_SIZES = {
    "trec": (6, 5452, 545, 500, True),
    "sst2": (2, 6920, 872, 1821, False),
    "ag_news": (4, 4999, 500, 7600, True),
    "cls_books": (2, 1600, 400, 2000, False),
    "cls_books_text": (2, 1600, 400, 2000, False),
    "mr": (2, 10662, 1066, 1066, True),
    "sst2_first": (2, 1200, 95, 240, True),  # 8% are 96, but copies stay together
}


@pytest.mark.data
def test_recipes(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shipped task loads, with the published number of labels and examples; a new one must be added to the table above."""
    monkeypatch.setenv("WARMSTART_DATA", str(data_folder.resolve()))
    assert {file.stem for file in RECIPES.glob("*.yaml")} == {*RECIPE_SIZES, "birthplace", "ewt"}
    for name, (classes, read, validation, test, cut) in RECIPE_SIZES.items():
        task = load_task(RECIPES / f"{name}.yaml")
        held_out = (validation if cut else 0) + (test if name in ("mr", "sst2_first") else 0)
        assert (task.name, len(task.labels)) == (name, classes)
        assert [len(split) for split in task.splits().values()] == [read - held_out, validation, test], name
        assert all(text and text == text.strip("\r\n") for split in task.splits().values() for text in split.texts), name
    tagging = load_task(RECIPES / "ewt.yaml")  # the first 2,000 sentences, the official development and test sentences
    assert [len(tagging.labels), *map(len, tagging.splits().values())] == [17, 2000, 2001, 2077]
    asked = load_answer_task(RECIPES / "birthplace.yaml")  # a tenth of the questions for training is held out
    assert [len(split) for split in (asked.train, asked.validation, asked.test)] == [1800, 200, 500]
    assert (asked.train.questions[0], asked.train.answers[0]) == ("Where was Khatchig Mouradian born?", "Lebanon")


def test_only_what_reads_back_is_written(tmp_path: Path) -> None:
    """Tasks of other kinds than one label for a single text are refused, not mangled."""
    labels = np.array([0, 1])
    pairs = Split((("a", "b"), ("c", "d")), labels)
    refused(DataError, "one label per single text", save_task, Task("t", ("x", "y"), pairs, pairs, pairs), tmp_path / "t")


PACKAGES = ("json", "statistics", "asyncio", "email", "joblib")
SYLLABLES = [a + b for a in "bdfglmnprt" for b in "aeiou"]
WORDS = [word for word in map("".join, itertools.product(SYLLABLES, repeat=2)) if reading._stem(word) not in reading._GIVEAWAY]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty package named ``toybox`` that Python can find."""
    folder = tmp_path / "toybox"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def invented(areas: tuple[str, ...] = ("networkx", "statistics", "sympy.physics"), modules: int = 30) -> list[Docstring]:
    """Ten docstrings of invented words in each module of each area."""
    draw = np.random.default_rng(0)
    places = itertools.product(areas, range(modules), range(10))
    return [
        Docstring(f"{area}.m{module}", f"f{owner}", f"{' '.join(draw.choice(WORDS, 14))}.\n\nParameters\n----------\nx : int")
        for area, module, owner in places
    ]


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
    [example] = reading._examples([Docstring(module, "superpose", text)])
    assert example.text == "Superpose two _ of equal frequency and return the sum, a third _."  # as the file's documentation says
    assert example.area == "physics"
    for module, area in (
        ("torch.nn.functional", "neural networks"),
        ("torch.nn.parallel.comm", "distributed training"),
        ("statistics", "statistics"),
        ("torch", None),
        ("jsonschema", None),
    ):
        assert reading._area(module) == area, module
    for text, opening in (
        ("Add two waves.\n\nThey may\ndiffer.\n\n>>> add(a, b)", "Add two waves. They may differ."),
        ("Add waves.\n\nParameters\n----------\na : Wave", "Add waves."),
        ("Add waves.\n\nArgs:\n    a (Wave): one", "Add waves."),
        ("Add waves.\n\n- one\n- two", "Add waves."),
        ("Add a :class:`Wave` to ``b``.\n\n:param b: another", "Add a Wave to b."),
        ("Add waves.\n\nNote that this\nis slow.\n\n.. math:: a", "Add waves. Note that this is slow."),
    ):
        assert reading._opening(Docstring("sympy", "add", text)) == opening


def test_names_that_give_the_answer_away_are_masked() -> None:
    """Words of every area's name and modules, singular or plural, and of the docstring's own module are hidden."""
    text = "Plot a Graph with scipy.stats and zeta_tools: statistic, statistics, ZETA, zetas, etas."
    assert reading._masked(Docstring("sympy.zeta_tools", "plot", text)) == "Plot a _ with _ and _: _, _, _, _, etas."


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
    assert [(e.module, e.text) for e in reading._examples([*shared, *twice, *never])] == [("networkx.a", long + " more")]


def test_splits_are_fair(found: list[Docstring], task: Task) -> None:
    """Areas are of equal size in each split; no module speaks in two or more than its share; the seed alone decides."""
    assert task.labels == ("graph theory", "physics", "statistics")
    module_of = {example.text: example.module for example in reading._examples(found)}
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


def test_areas_that_are_too_few_or_too_small() -> None:
    """Which areas there are depends on the docstrings alone; one is no task; the table of areas names each module once."""
    few = invented(modules=30) + invented(("asyncio",), modules=12)
    assert {docstring_task(few, seed).labels for seed in range(3)} == {("graph theory", "physics", "statistics")}
    said = r"at least two areas, but among 300 docstrings only physics has enough; pass read_docstrings\(\) of"
    refused(DataError, said, docstring_task, invented(("sympy.physics",)))
    refused(DataError, "among 0 docstrings only no area has enough", docstring_task, [])
    dotted = r"whole packages such as 'json', but got 'json\.decoder'; name the top-level package"
    refused(DataError, dotted, read_docstrings, ["json.decoder"])
    modules = [module for named in AREAS.values() for module in named.split()]
    assert len(modules) == len(set(modules))
    assert {module.split(".")[0] for module in modules} <= {*sys.stdlib_module_names, *reading.PACKAGES}


@pytest.mark.journeys
def test_the_installed_libraries_make_a_task() -> None:
    """What is installed here yields a dozen areas or more, and enough examples of each."""
    task = docstring_task(read_docstrings())
    assert len(task.labels) >= 12
    assert len(task.test) >= 12 * QUOTA["test"]
    assert len(task.train) >= 480
    assert max(len(text.split()) for text in task.test.texts) <= MAX_WORDS
