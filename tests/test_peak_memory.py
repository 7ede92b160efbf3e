"""Peak memory: what a piece of work takes at its highest, on top of what was in use before."""

from __future__ import annotations

import pytest
import torch

from warmstart.processes import run_python
from warmstart.training.peak_memory import track_peak_memory

MEGABYTE = 1 << 20


WORK = f"""
import torch
from warmstart.training.peak_memory import track_peak_memory
before = torch.ones({64 * MEGABYTE}, dtype=torch.uint8)
with track_peak_memory(torch.device("cpu")) as peak:
    for _ in range(20):
        work = torch.ones({32 * MEGABYTE}, dtype=torch.uint8)
        del work
assert before.numel() == {64 * MEGABYTE}
print(peak.bytes)
"""


def test_the_peak_is_that_of_the_work_alone() -> None:
    """Memory that is free again at the end counts; what was in use before does not. Measured where nothing else runs."""
    run = run_python(WORK)
    assert run.returncode == 0, run.stderr
    assert 24 * MEGABYTE < int(run.stdout) < 48 * MEGABYTE


def test_work_that_fails_is_no_longer_tracked() -> None:
    """The error passes, and the reading of the memory stops."""
    with pytest.raises(KeyError), track_peak_memory(torch.device("cpu")) as peak:
        raise KeyError
    assert peak.bytes >= 0
