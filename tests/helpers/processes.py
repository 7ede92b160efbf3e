"""Functions that run in several connected processes, as a launcher would start them."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist

from warmstart.training import distributed

SECONDS = 50
"""plenty, also where other programs keep all cores busy; processes that hang for longer are killed, and the test fails"""


def run_processes(
    count: int,
    folder: Path,
    work: Callable[..., Any],
    *arguments: Any,
    start: Literal["fork", "spawn"] = "fork",
    seconds: float = SECONDS,
) -> list[Any]:
    """What ``work(*arguments)`` returns in each of ``count`` processes of one group, in the order of their ranks.

    Results are exchanged by files in ``folder``. One that raises fails the test; so do processes that hang, which say where. By
    "fork" they start with all that is imported here; by "spawn" anew, for work that reads tables: polars hangs in a fork.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False)
    port = store.port
    del store  # its thread: a process that is forked while that works may wait for ever; rank 0 opens one on the same port
    context = multiprocessing.get_context(start)
    files = [folder / f"result-{rank}-of-{count}.pt" for rank in range(count)]
    until = time.monotonic() + seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
        workers = [
            context.Process(target=_worker, args=(rank, count, port, file, seconds, work, arguments))
            for rank, file in enumerate(files)
        ]
        for worker in workers:
            worker.start()
    for worker in workers:
        worker.join(max(0.0, until - time.monotonic()))
    hanging = [rank for rank, worker in enumerate(workers) if worker.is_alive()]
    for worker in workers:
        worker.kill()
        worker.join()
    places = "\n\n".join(f"rank {rank} stood here:\n{files[rank].with_suffix('.stack').read_text()}" for rank in hanging)
    assert not hanging, f"ranks {hanging} of {count} hang\n{places}"
    assert all(file.exists() for file in files), [worker.exitcode for worker in workers]
    return [torch.load(file, weights_only=False) for file in files]


def _worker(
    rank: int, count: int, port: int, file: Path, seconds: float, work: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "USE_LIBUV": "0",
    }  # fmt: skip
    torch.set_num_threads(1)
    distributed.PATIENCE = timedelta(seconds=seconds - 5)  # of a collective
    with file.with_suffix(".stack").open("w", encoding="utf-8") as stack:
        faulthandler.dump_traceback_later(seconds - 8, file=stack)
        with distributed.joined():
            result = work(*arguments)
        faulthandler.cancel_dump_traceback_later()
    aside = file.with_suffix(".part")
    torch.save(result, aside)
    aside.rename(file)
