"""One line that says on what something was computed or measured."""

from __future__ import annotations

from functools import cache

import psutil
import torch

from warmstart.system.device import instruction_sets, native_bfloat16, processor
from warmstart.system.products import product_library, product_rate

LIBRARIES = {"default": "torch's default library", "onednn": "oneDNN"}


def describe_machine(device: torch.device) -> str:
    """Processor or GPU, cores, threads, instruction set, the measured rate of matrix products, torch's version.

    -> ``"AMD EPYC (family 26, model 2), 2 cores, 1 thread, AVX512 with bfloat16, matrix products at 452 GFLOP/s in bfloat16 …"``
    """
    threads = torch.get_num_threads()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    parts = [name, f"{psutil.cpu_count()} cores", f"{threads} thread{'s' * (threads > 1)}"]
    parts += [_products(threads)] if device.type == "cpu" else []
    return ", ".join([*parts, f"torch {torch.__version__}"])


@cache
def _products(threads: int) -> str:
    """The instruction set, and how fast matrices are multiplied with so many threads; measured once in a process."""
    native, full = native_bfloat16(torch.device("cpu")), product_rate(torch.float32) / 1e9
    instructions = torch.backends.cpu.get_cpu_capability()
    half = f"{product_rate(torch.bfloat16) / 1e9:.0f} GFLOP/s in bfloat16 and " if native else ""
    amx = " and AMX" if "amx_tile" in instruction_sets() else ""
    known = f"{instructions} with bfloat16{amx}" if native else f"{instructions}{amx} without bfloat16"
    return f"{known}, matrix products at {half}{full:.0f} GFLOP/s in float32 ({LIBRARIES[product_library()]})"
