"""A server's memory does not grow with the number of shapes that its batches have had."""

from __future__ import annotations

import os

import pytest
import torch

from warmstart.processes import run_python
from warmstart.serve.kernel_caches import CACHE_VARIABLES, KERNELS, bound_kernel_caches

GROWTH = """
import sys
if sys.argv[1] == "serve":
    from warmstart.cli import main
    assert main(["serve", "nothing"]) == 2
import psutil, torch
from warmstart.products import _onednn

weight = torch.randn(384, 384)
for rows in range(8, 408):
    _onednn(torch.randn(rows, 384), weight)
    if rows == 72:
        first = psutil.Process().memory_info().rss
print((psutil.Process().memory_info().rss - first) / 2**20)
"""


@pytest.fixture
def undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says nothing of the caches, and is afterwards what it was."""
    for name in CACHE_VARIABLES:
        monkeypatch.setenv(name, "1")
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("undecided")
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch is built without oneDNN")
def test_products_of_many_shapes_take_little_memory_in_a_server() -> None:
    """Of 400 numbers of rows at most a quarter of the memory is kept that another process keeps, which has no bound."""
    bounded, unbounded = (run_python(GROWTH, command) for command in ("serve", "other"))
    assert bounded.returncode == unbounded.returncode == 0, bounded.stderr + unbounded.stderr
    kept = float(unbounded.stdout.split()[-1])
    if kept < 64:
        pytest.skip(f"this processor's kernels are small: {kept:.0f} MiB for 336 of them")
    assert float(bounded.stdout.split()[-1]) < kept / 4


@pytest.mark.usefixtures("undecided")
def test_the_environment_decides_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has much memory may let more kernels be kept; the other cache gets its bound."""
    monkeypatch.setenv(CACHE_VARIABLES[0], "1024")
    bound_kernel_caches()
    assert [os.environ[name] for name in CACHE_VARIABLES] == ["1024", str(KERNELS)]
