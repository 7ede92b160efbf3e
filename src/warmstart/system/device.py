"""The device and precision of computation, and a warning about busy cores."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path

import torch

from warmstart.system import cores


def pick_device(name: str = "auto") -> torch.device:
    """The named device; ``auto``: CUDA if there is one, else Apple's MPS, else the CPU."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


@cache
def native_bfloat16(device: torch.device) -> bool:
    """True if the device multiplies bfloat16 in hardware; without that, bfloat16 is slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    return bool({"avx512_bf16", "amx_bf16"} & instruction_sets())


def in_bfloat16(precision: str, device: torch.device) -> bool:
    """True if ``precision`` (auto, float32 or bfloat16) means bfloat16 matrix products on this device."""
    return precision == "bfloat16" or (precision == "auto" and native_bfloat16(device))


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """The autocast context of a training step: bfloat16 matrix products with float32 weights, or nothing."""
    if in_bfloat16(precision, device):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


@contextmanager
def exact_products() -> Iterator[None]:
    """Products in float32, whatever ``torch.set_float32_matmul_precision`` or an autocast of the caller says."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast("cpu", enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def processor() -> str:
    """The processor by name, and by the family and model that tell its generation: ``"AMD EPYC (family 26, model 2)"``."""
    name = _cpuinfo("model name") or platform.processor() or platform.machine()
    family, model = _cpuinfo("cpu family"), _cpuinfo("model\t")
    return f"{name} (family {family}, model {model})" if family and model else name


@cache
def instruction_sets() -> frozenset[str]:
    """The instruction sets of the processor, in the Linux kernel's words; empty elsewhere."""
    return frozenset(_cpuinfo("flags").split())


def busy_warning() -> str | None:
    """A warning if other programs use the cores: threads that wait for a core make a step several times slower."""
    count, threads, others = len(cores.allowed_cores()), torch.get_num_threads(), cores.cores_used_by_others()
    if others + threads < count + 0.5:
        return None
    fewer = max(1, count - round(others))
    advice = f"; set OMP_NUM_THREADS={fewer} to wait less" if fewer < threads else ""
    return (
        f"other programs use {others:.1f} of {count} core{'s' * (count > 1)}, and this one runs {threads} "
        f"thread{'s' * (threads > 1)}: it may be several times slower, and measured times mean little{advice}"
    )


def free_threads() -> int:
    """Number of threads that torch would use, but no more than there are cores without other work; at least one."""
    return max(1, min(torch.get_num_threads(), len(cores.allowed_cores()) - round(cores.cores_used_by_others())))


def _cpuinfo(key: str) -> str:
    """Linux's value of ``key`` for the first core; empty on other systems. Neither psutil nor platform knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")
