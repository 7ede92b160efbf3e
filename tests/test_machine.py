"""Processes that we start run nothing of the user's; threads, memory, products of matrices."""

from __future__ import annotations

import ast
import ctypes
import json
import os
import site
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import torch.nn.functional as F
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import warmstart
from helpers.models import make_language_model
from helpers.training import job
from warmstart.app.batches import CACHE_VARIABLES, KERNELS, bound_kernel_caches
from warmstart.commands import COMMANDS
from warmstart.config import ThreadsConfig
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.registry import OBJECTIVES
from warmstart.runs import run
from warmstart.runs.run import Run
from warmstart.seeding import rng
from warmstart.system import cores, device, products
from warmstart.system.machine import describe_machine
from warmstart.system.processes import isolated_children, run_python
from warmstart.system.products import Linear, multiply, outer, product_library, use_product_library
from warmstart.training.arithmetic import keep_freed_memory
from warmstart.training.config import TrainConfig
from warmstart.training.loop import train
from warmstart.types import Vocabulary

SOURCE = Path(warmstart.__file__).parent
STARTERS = {
    "subprocess.run", "subprocess.Popen", "multiprocessing.Process", "multiprocessing.Pool", "joblib.Parallel", "os.fork",
    "os.system", "os.execv", "torch.multiprocessing",
}  # fmt: skip
"""what starts a process"""
PLANTED = ("random", "torch", "joblib", "warnings", "tempfile", "threading", "usercustomize", "sitecustomize")
LOKY = """
import joblib
def square(i): import random; return i * i
with isolated_children():
    print(joblib.Parallel(n_jobs=2)(joblib.delayed(square)(i) for i in range(4)))
"""


@pytest.fixture
def planted(tmp_path: Path) -> dict[str, str]:
    """The current folder, and the site packages of a user whose Python has them, hold files that betray their execution.

    Returns the environment of a process there.
    """
    user = Path(sysconfig.get_path("purelib", "posix_user", {"userbase": str(tmp_path / "user")}))
    here = tmp_path / "here"
    for folder in (user, here):
        folder.mkdir(parents=True)
        for name in PLANTED:
            (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write(__file__ + '\\n')\n")
    paths = [str(SOURCE.parent), sysconfig.get_path("purelib")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUSERBASE": str(tmp_path / "user"), "HERE": str(here)}


@pytest.mark.journeys
@pytest.mark.parametrize("code", ["print(run_python('import random, torch; print(torch.__file__)'))", LOKY], ids=["ours", "joblib"])
def test_planted_modules_are_never_executed(code: str, planted: dict[str, str], tmp_path: Path) -> None:
    """Neither by our own processes nor by workers of joblib, although the user's shell names the current folder in PYTHONPATH."""
    first = (
        "import os; os.environ['PYTHONPATH'] = os.pathsep + os.environ['PYTHONPATH']\n"
        "from warmstart.system.processes import isolated_children, run_python\n"
    )
    python = getattr(sys, "_base_executable", sys.executable)  # that of a virtual environment never reads user site packages
    command = [python, "-P", "-s", "-c", first + code]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=planted["HERE"], env=planted)
    assert run.returncode == 0, run.stderr
    assert "returncode=0" in run.stdout or "[0, 1, 4, 9]" in run.stdout, run.stdout
    assert not (tmp_path / "executed").exists(), (tmp_path / "executed").read_text()


@pytest.mark.journeys
def test_the_module_form_does_not_run_the_current_folder_either(planted: dict[str, str], tmp_path: Path) -> None:
    """``python -m warmstart`` puts the current folder first on its path; no module of ours is imported from there."""
    for name in ("warnings", "threading", "usercustomize", "sitecustomize"):  # read by Python itself before any line of ours
        (Path(planted["HERE"]) / f"{name}.py").unlink()
    environment = planted | {"PYTHONPATH": str(SOURCE.parent), "PYTHONNOUSERSITE": "1"}
    command = [sys.executable, "-m", "warmstart", "doctor", "nothing"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=planted["HERE"], env=environment)
    assert run.returncode == 2, run.stderr
    assert "there is no bundle at nothing" in run.stderr
    assert not (tmp_path / "executed").exists(), (tmp_path / "executed").read_text()


def test_isolation_ends_with_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's environment is afterwards what it was; an empty entry of PYTHONPATH, the current folder, is not handed on."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "lib"]))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with isolated_children():
        assert os.environ["PYTHONPATH"] == str(Path("lib").resolve())
        assert os.environ["PYTHONSAFEPATH"] == os.environ["PYTHONNOUSERSITE"] == "1"
    assert os.environ["PYTHONPATH"] == f"{os.pathsep}lib"
    assert "PYTHONSAFEPATH" not in os.environ


def test_user_site_packages_that_hold_torch_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever installed with ``pip install --user`` can still save a model."""
    import torch

    monkeypatch.setattr(site, "getusersitepackages", lambda: str(Path(torch.__file__).parents[1]))
    monkeypatch.delenv("PYTHONNOUSERSITE", raising=False)
    with isolated_children():
        assert "PYTHONNOUSERSITE" not in os.environ


def test_a_process_works_in_an_empty_folder() -> None:
    """No file of the user is within its reach by a relative name."""
    assert run_python("import os; print(os.listdir())").stdout.strip() == "[]"


def _calls(node: ast.AST, isolated: bool = False) -> Iterator[tuple[str, bool]]:
    """(dotted name, whether it stands inside ``with isolated_children()``) of every call below a node."""
    if isinstance(node, ast.With):
        names = "".join(ast.unparse(item.context_expr) for item in node.items)
        isolated = isolated or "isolated_children" in names or "isolated_workers" in names
    if isinstance(node, ast.Call):
        yield ast.unparse(node.func), isolated
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, isolated)


def test_every_start_of_a_process_is_isolated() -> None:
    """One anywhere in the package, and a command itself, as torch.compile starts processes, is inside ``isolated_children``."""
    texts = {file: file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py")}
    starting = {file for file, text in texts.items() if any(starter in text for starter in STARTERS)}
    files = {file: ast.parse(texts[file]) for file in {*starting, SOURCE / "cli.py"}}
    found = [(file, name, isolated) for file, tree in files.items() for name, isolated in _calls(tree) if name in STARTERS]
    assert [one for one in found if not one[2]] == []
    assert len(found) >= 2
    assert ("run", True) in set(_calls(files[SOURCE / "cli.py"]))


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of threads that torch is told to use; three cores are free."""
    numbers: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    monkeypatch.setattr(run, "free_threads", lambda: 3)
    return numbers


def recorded(folder: Path) -> int:
    return int(yaml.safe_load((folder / "config.yaml").read_text())["threads"])


def test_threads_fit_the_free_cores_and_are_recorded(used: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The user is told how to repeat the run exactly."""
    Run.open(str(tmp_path / "run"), ThreadsConfig())
    assert used == [recorded(tmp_path / "run")] == [3]
    assert "computing with 3 threads; --threads 3 repeats this run exactly" in capsys.readouterr().err


def test_a_resumed_run_keeps_its_threads(used: list[int], tmp_path: Path) -> None:
    """The number asked for is used, whatever else the machine does, and again on resuming; a number that is given anew wins."""
    Run.open(str(tmp_path / "run"), ThreadsConfig(threads=2))
    Run.open(str(tmp_path / "run"), ThreadsConfig())
    assert recorded(tmp_path / "run") == 2
    Run.open(str(tmp_path / "run"), ThreadsConfig(threads=4))
    assert used == [2, 2, 4]


def test_the_quickstart_and_studies_choose_their_threads() -> None:
    """Every one of them."""
    for name, command in COMMANDS.items():
        if name.startswith("study ") or name == "quickstart":
            assert issubclass(command.load_settings(), ThreadsConfig), name


WAITS: list[tuple[list[float], dict[str, str], dict[str, str]]] = [
    ([0.0, 20.0], {}, {"GOMP_SPINCOUNT": cores.SPINS}),
    ([90.0, 10.0], {}, {"OMP_WAIT_POLICY": "PASSIVE"}),
    ([90.0, 10.0], {"OMP_NUM_THREADS": "1"}, {"GOMP_SPINCOUNT": cores.SPINS}),
    ([90.0, 80.0], {"OMP_NUM_THREADS": "1"}, {"OMP_WAIT_POLICY": "PASSIVE"}),
    ([90.0, 10.0], {"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "ACTIVE"}),
    ([90.0, 10.0], {"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
]
"""how busy two cores are, the variables of the user, and what is chosen"""


def test_threads_sleep_while_they_wait_on_busy_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the threads and other programs need more cores than there are; else they look for a while. The user's word wins."""
    monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: [0, 1], raising=False)
    for busy, variables, chosen in WAITS:
        monkeypatch.setattr(os, "environ", dict(variables))
        monkeypatch.setattr(psutil, "cpu_percent", lambda *args, busy=busy, **named: busy)
        cores.choose_waiting()  # torch is loaded in this process: too late
        assert os.environ == variables
        with monkeypatch.context() as patch:
            patch.setattr(cores, "sys", SimpleNamespace(modules={}))
            cores.choose_waiting()
        assert {name: value for name, value in os.environ.items() if name in cores.VARIABLES} == chosen


@pytest.mark.journeys
def test_the_package_chooses_how_threads_wait_as_well() -> None:
    """When its first name is used, in a program or a notebook: before torch is loaded."""
    code = "import os, sys, warmstart as ws; ws.load; print('torch' in sys.modules, len(os.environ.keys() & set(sys.argv[1:])))"
    environment = {name: value for name, value in os.environ.items() if name not in cores.VARIABLES}
    command = [sys.executable, "-c", code, *cores.VARIABLES]
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == "True 1\n"


@pytest.mark.journeys
@pytest.mark.skipif(sys.platform != "linux", reason="torch has libgomp on Linux")
@pytest.mark.parametrize(("given", "shown"), [({}, ("0", cores.SPINS)), ({"OMP_WAIT_POLICY": "ACTIVE"}, ("30000000000",))])
def test_torch_hears_how_threads_wait(given: dict[str, str], shown: tuple[str, ...], tmp_path: Path) -> None:
    """The command line chooses before torch is loaded: libgomp itself says how often its threads look before they sleep."""
    environment = {name: value for name, value in os.environ.items() if name not in cores.VARIABLES}
    command = [sys.executable, "-m", "warmstart", "predict", str(tmp_path), "a text"]
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE", **given}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr
    assert any(f"GOMP_SPINCOUNT = '{spins}'" in said for spins in shown)


def test_a_busy_machine_gets_a_warning_with_the_right_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads beside a busy core wait for each other; one thread has a core of its own and gets no warning."""
    monkeypatch.setattr(cores, "allowed_cores", lambda: [0, 1])
    monkeypatch.setattr(psutil, "cpu_percent", lambda seconds, percpu: [80.0, 20.0, 100.0])  # the third core is not ours
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    warning = str(device.busy_warning())
    assert "other programs use 1.0 of 2 cores, and this one runs 2 threads" in warning
    assert warning.endswith("set OMP_NUM_THREADS=1 to wait less")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert device.busy_warning() is None


def test_this_machine_is_described() -> None:
    """Its cores, of which others use no more than there are, and torch's version."""
    assert 0 <= cores.cores_used_by_others(0.05) <= len(cores.allowed_cores())
    assert f"{psutil.cpu_count()} cores" in describe_machine(torch.device("cpu"))
    assert torch.__version__ in describe_machine(torch.device("cpu"))


def test_as_many_threads_as_cores_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more than torch would use, never none."""
    monkeypatch.setattr(cores, "allowed_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    for used, threads in ((0.1, 4), (1.2, 3), (2.6, 1), (4.0, 1)):
        monkeypatch.setattr(cores, "cores_used_by_others", lambda used=used: used)
        assert device.free_threads() == threads
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(cores, "cores_used_by_others", lambda: 0.0)
    assert device.free_threads() == 2


class NoFloat64(TorchDispatchMode):
    """Raises wherever an operation gives float64."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        assert not any(isinstance(one, Tensor) and one.dtype is torch.float64 for one in tree_leaves(found)), func
        return found


def test_training_needs_no_float64(vocabulary: Vocabulary) -> None:
    """By any objective and optimiser: Apple's MPS has none, and an operation that gives it fails there."""
    for number, (name, objective) in enumerate(OBJECTIVES.items()):
        config = ObjectiveConfig(name=name)
        rows = rng(0, "rows").integers(21, 60, (4, objective.stride(24, config) + 1))
        batch = objective.make(rows, np.full(4, rows.shape[1]), rng(0, "test"), vocabulary, config)
        model = make_language_model(causal=objective.causal, dropout=0.1)
        with NoFloat64():
            train(model, job(batches=lambda _, batch=batch: [batch], steps=3), TrainConfig(optimizer=("adamw", "muon")[number % 2]))


def no_library(name: str) -> ctypes.CDLL:
    raise OSError(f"{name}: cannot open shared object file")


def test_training_is_the_same_without_mallopt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without glibc, or without ``mallopt`` and ``heap_trim``, a run ends with the same weights; a GPU never asks for it."""
    usual = make_language_model()
    train(usual, job(), TrainConfig())
    monkeypatch.delattr(psutil, "heap_trim", raising=False)
    for load in (lambda name: object(), no_library):
        monkeypatch.setattr(ctypes, "CDLL", load)
        bare = make_language_model()
        train(bare, job(), TrainConfig())
        assert all(torch.equal(tensor, bare.weights()[name]) for name, tensor in usual.weights().items())
    with keep_freed_memory(torch.device("cuda")):
        pass


def test_the_defaults_come_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting that was changed is set back, and free memory is returned to the system."""
    calls: list[tuple[int, ...]] = []

    class Library:
        def mallopt(self, setting: int, value: int) -> None:
            calls.append((setting, value))

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    monkeypatch.setattr(psutil, "heap_trim", lambda: calls.append(()), raising=False)
    with pytest.raises(KeyError), keep_freed_memory(torch.device("cpu")):
        raise KeyError
    assert calls == [(-4, 0), (-1, -1), (-4, 65_536), (-1, 131_072), ()]


def test_the_environment_decides_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has much memory may let a server keep more kernels; the other cache gets its bound."""
    for name in CACHE_VARIABLES:
        monkeypatch.setenv(name, "1024")
    monkeypatch.delenv(CACHE_VARIABLES[1])
    bound_kernel_caches()
    assert [os.environ[name] for name in CACHE_VARIABLES] == ["1024", str(KERNELS)]


ROOM = torch.randn(4096, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def small_too(onednn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN multiplies everything, however small."""
    monkeypatch.setattr(products, "ENOUGH", 0)


def gradients(layer: torch.nn.Linear, x: Tensor) -> list[Tensor]:
    """The output, and the gradients of input, weight and bias."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    output = layer(x)
    output.square().sum().backward()
    return [output.detach(), x.grad, *(parameter.grad.clone() for parameter in layer.parameters())]  # type: ignore[list-item, union-attr]


@pytest.mark.usefixtures("small_too")
def test_a_layer_and_its_gradients_are_torchs() -> None:
    """Up to the order of the sums."""
    torch.manual_seed(0)
    for shape in ((3, 5, 8), (7, 8), (1, 8), (2, 1, 8)):
        for outputs, bias in ((1, True), (6, False), (20, True)):
            layer, plain = Linear(8, outputs, bias=bias), torch.nn.Linear(8, outputs, bias=bias)
            plain.load_state_dict(layer.state_dict())
            x = torch.randn(shape)
            for ours, theirs in zip(gradients(layer, x), gradients(plain, x), strict=True):
                torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("small_too")
def test_only_the_gradients_that_are_wanted_are_computed() -> None:
    """A frozen layer gets none, and passes that of its input on."""
    layer = Linear(8, 4).requires_grad_(False)
    x = torch.randn(5, 8, requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.weight.sum(dim=0).expand(5, 8))
    assert layer.weight.grad is layer.bias.grad is None
    assert not layer(x.detach()).requires_grad


@pytest.mark.usefixtures("small_too")
@settings(max_examples=40)
@given(rows=st.integers(1, 9), inputs=st.integers(1, 9), outputs=st.integers(1, 9), stride=st.integers(1, 3), flip=st.booleans())
def test_operands_may_lie_in_memory_in_any_way(rows: int, inputs: int, outputs: int, stride: int, *, flip: bool) -> None:
    """Transposed, or every second or third number: the product is the same."""
    x = ROOM[: rows * inputs * stride].view(rows, -1)[:, ::stride]
    x = x.T.contiguous().T if flip else x
    weight, grad = (
        ROOM[1000 : 1000 + outputs * inputs].view(outputs, inputs),
        ROOM[2000 : 2000 + rows * outputs].view(rows, outputs),
    )
    torch.testing.assert_close(multiply(x, weight), x @ weight.T, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(multiply(grad, weight.T), grad @ weight, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(outer(grad, x), grad.T @ x, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("small_too")
def test_under_autocast_torch_multiplies() -> None:
    """In bfloat16: the choice of a library concerns float32 alone."""
    layer, x = Linear(8, 4), torch.randn(5, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype is torch.bfloat16
        torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias), atol=0, rtol=0)


def test_a_library_is_chosen_once_for_a_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured is kept; a damaged file is measured again; what a run recorded is used."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(products, "_in_use", None)
    measured = iter(["onednn", "default"])
    monkeypatch.setattr(products, "_measure", lambda: next(measured))
    file = tmp_path / "warmstart" / "products.json"
    for content, expected in ((None, "onednn"), (None, "onednn"), ("{", "default")):
        if content:
            file.write_text(content)
        products._faster_library.cache_clear()
        assert product_library() == expected
        assert [*json.loads(file.read_text()).values()] == [expected]
    use_product_library("onednn")
    assert product_library() == "onednn"
    products._faster_library.cache_clear()


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is measured again by the next process."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(products, "_in_use", None)
    monkeypatch.setattr(products, "_measure", lambda: "default")
    products._faster_library.cache_clear()
    assert product_library() == "default"
    products._faster_library.cache_clear()


@pytest.mark.journeys
@pytest.mark.skipif(sys.platform == "win32", reason="limits of processor time are Unix's")
def test_a_limit_of_processor_time_is_no_trouble() -> None:
    """Under ``ulimit -t`` Linux counts the time of a process in ticks, longer than a product takes."""
    imported = "import torch; from warmstart.system.products import product_rate"
    code = f"{imported}; torch.set_num_threads(1); print(product_rate(torch.float32))"
    command = ["bash", "-c", f"ulimit -t 600; exec {sys.executable} -c '{code}'"]
    rate = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert 1e8 < float(rate) < 1e14
