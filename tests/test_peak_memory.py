"""Peak memory: what a piece of work takes at its highest, on top of what was in use before."""

from __future__ import annotations

import pytest
import torch

from warmstart.training.peak_memory import track_peak_memory

MEGABYTE = 1 << 20


def test_the_peak_is_that_of_the_work_alone() -> None:
    """Memory that is free again at the end counts; what was in use before does not."""
    before = torch.ones(64 * MEGABYTE, dtype=torch.uint8)
    with track_peak_memory(torch.device("cpu")) as peak:
        for _ in range(20):
            work = torch.ones(32 * MEGABYTE, dtype=torch.uint8)
            del work
    # the system counts pages late, so two blocks may overlap; with the memory in use before it would be 96 or more
    assert 24 * MEGABYTE < peak.bytes < 80 * MEGABYTE
    assert before.numel() == 64 * MEGABYTE


def test_work_that_fails_is_no_longer_tracked() -> None:
    """The error passes, and the reading of the memory stops."""
    with pytest.raises(KeyError), track_peak_memory(torch.device("cpu")) as peak:
        raise KeyError
    assert peak.bytes >= 0
