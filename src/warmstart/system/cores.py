"""The cores that this process may use, and how busy they are. Needs no torch: it is asked before torch is loaded."""

from __future__ import annotations

import psutil


def allowed_cores() -> list[int]:
    """The cores that this process may use; all of them on systems that cannot restrict a process."""
    process = psutil.Process()
    return list(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else list(range(psutil.cpu_count() or 1))


def cores_used_by_others(seconds: float = 0.1) -> float:
    """How many of the cores that this process may use are busy while it sleeps for ``seconds``."""
    percentages = psutil.cpu_percent(seconds, percpu=True)
    return sum(percentages[core] for core in allowed_cores() if core < len(percentages)) / 100
