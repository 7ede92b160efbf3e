"""The cores that this process may use, how busy they are, and how torch's threads wait on them. Needs no torch."""

from __future__ import annotations

import os
import sys


def allowed_cores() -> list[int]:
    """The cores that this process may use; all of them on systems that cannot restrict a process."""
    import psutil

    process = psutil.Process()
    return list(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else list(range(psutil.cpu_count() or 1))


def cores_used_by_others(seconds: float = 0.1) -> float:
    """Number of the cores that this process may use that are busy while it sleeps for ``seconds``."""
    import psutil

    percentages = psutil.cpu_percent(seconds, percpu=True)
    return sum(percentages[core] for core in allowed_cores() if core < len(percentages)) / 100


# How torch's threads wait for each other on a processor: chosen once, before torch is loaded.
#
# That is when the command line starts, or when the first name of the package is used.
#
# After every product the threads of a step wait until the last one is done. A thread that waits can spin (look again and again) or
# sleep. On free cores spinning is faster, since waking takes time. On a core that another program needs, it keeps the very thread
# from running that it waits for: a step takes several times as long. How threads wait changes no result.
#
# It chooses no number of threads (``runs/run.py``, ``device.py``), and says nothing: a run's note about a busy machine is
# ``device.py``'s.

SPINS = "10000"
"""number of looks of a thread of libgomp before it sleeps, a tenth of a millisecond; its own default is 300,000"""
VARIABLES = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
"""variables by which the user decides"""


def choose_waiting() -> None:
    """Let threads sleep at once beside other programs, and spin for a short time elsewhere; both unless the environment decides.

    It looks at the load for 50 ms. Processes that are started later inherit the choice.
    """
    if "torch" in sys.modules or VARIABLES & os.environ.keys():  # torch reads the environment when it is loaded
        return
    if _crowded():
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    else:
        os.environ["GOMP_SPINCOUNT"] = SPINS


def _crowded() -> bool:
    """True if torch's threads and other programs need more cores than this process may use."""
    count, threads = len(allowed_cores()), os.environ.get("OMP_NUM_THREADS", "")
    return cores_used_by_others(0.05) + (int(threads) if threads.isdigit() else count) > count + 0.5
