"""Where to compute, in which arithmetic, and whether the machine is free for it."""

from __future__ import annotations

import os
import platform
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
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load < cores + 0.5:
        return None
    return f"the machine is busy (load {load:.1f} on {cores} cores): training may be several times slower, and times mean little"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
