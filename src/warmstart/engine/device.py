"""Where to compute, in which arithmetic, and whether the machine is free for it."""

from __future__ import annotations

import os
import platform
import time
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path

import torch


def pick_device(name: str = "auto") -> torch.device:
    """The device named, or the best there is: CUDA, else Apple's MPS, else the processor."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


@cache
def native_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 in hardware; elsewhere it would be slower than float32, not faster."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def in_bfloat16(precision: str, device: torch.device) -> bool:
    """Whether ``precision`` (auto, float32, bfloat16) means bfloat16 products on this device."""
    return precision == "bfloat16" or (precision == "auto" and native_bfloat16(device))


def arithmetic(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """The autocast context of a training step: bfloat16 products with float32 weights, or nothing."""
    if in_bfloat16(precision, device):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


def describe_machine(device: torch.device) -> str:
    """One line for reports: processor or GPU, cores, threads, torch's version."""
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    threads = torch.get_num_threads()
    return f"{where}, {os.cpu_count()} cores, {threads} thread{'s' * (threads > 1)}, torch {torch.__version__}"


def busy() -> str | None:
    """A warning when other programs use the cores: two threads that wait for each other run several times slower."""
    cores, threads, others = len(_allowed()), torch.get_num_threads(), used_by_others()
    if others + threads < cores + 0.5:
        return None
    fewer = max(1, cores - round(others))
    advice = f"; OMP_NUM_THREADS={fewer} makes it wait less" if fewer < threads else ""
    return (
        f"other programs keep {others:.1f} of {cores} core{'s' * (cores > 1)} busy, and this one runs {threads} "
        f"thread{'s' * (threads > 1)}: it may be several times slower, and times mean little{advice}"
    )


def used_by_others(seconds: float = 0.1) -> float:
    """How many of the cores that this process may use are busy while it sleeps; 0 where the system does not tell."""
    before = _ticks()
    time.sleep(seconds)
    spent = [after - start for after, start in zip(_ticks(), before, strict=True)]
    return len(_allowed()) * (1 - spent[1] / spent[0]) if spent[0] else 0.0


def _ticks() -> tuple[int, int]:
    """All the clock ticks of these cores since the machine started, and the idle ones."""
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return 0, 0
    names = {f"cpu{core}" for core in _allowed()}
    counts = [[int(count) for count in line[1:9]] for line in lines if line[0] in names]
    return sum(map(sum, counts)), sum(count[3] + count[4] for count in counts)  # idle, and idle until a disk answers


def _allowed() -> set[int]:
    """The cores that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
