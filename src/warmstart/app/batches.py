"""The order of computing: requests that wait are joined to batches, large ones are computed in parts, and generations take turns.

Requests wait in queues of bounded length, and never are two computed at once. Small ones that ask the same of the same model become
the next batch, up to about ``batch_tokens``. A batch that is not full waits at most ``wait_seconds`` for more, but not once every
open request is in it: a single client waits for nobody. A request of several texts with more than a quarter of ``batch_tokens`` is
large. Another thread computes it in parts of that size, and after each product of a network (``make_way``) lets go first who waits:
who asks about a text waits for one product of one part, however many texts others have sent, and however long they are. Between
two turns it computes for ``STRETCH`` at least, so that many short requests slow a large one down, but never stop it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

JOINED_TOKENS, WAIT_SECONDS, QUEUE = 1024, 0.005, 256
"""defaults of a server"""
STRETCH = 0.01
"""seconds that a large request computes before it lets others go first again"""
Compute = Callable[[Sequence[Any]], Sequence[Any]]
"""inputs -> an answer for each"""
_here = threading.local()


def make_way(*_: object) -> None:
    """A forward hook of the products of served networks: in a thread that computes large requests it lets go first who waits."""
    if (turns := getattr(_here, "turns", None)) and time.perf_counter() - _here.since >= STRETCH:
        turns.offer()
        _here.since = time.perf_counter()


class BusyError(Exception):
    """More requests wait than may."""


@dataclass(eq=False)
class _Job:
    """The inputs of one request."""

    key: Hashable
    inputs: Sequence[Any]
    tokens: int
    compute: Compute
    answers: Future[Sequence[Any]] = field(default_factory=Future)
    done: list[Any] = field(default_factory=list)
    """the first answers"""

    def part(self, tokens: int) -> Sequence[Any]:
        """The next inputs, with about so many tokens; at least one."""
        return self.inputs[len(self.done) :][: max(1, tokens * len(self.inputs) // self.tokens)]


class Turns:
    """A lock that is given in the order in which it was asked for; who holds it for long offers it in between."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._taken = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            turn = threading.Event()
            self._waiting.append(turn)
        turn.wait()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()  # it stays taken, by the next one
            else:
                self._taken = False

    def offer(self) -> None:
        """Let those who wait go first; called by who holds it."""
        if self._waiting:
            self.__exit__()
            self.__enter__()


class Computer:
    """Threads that answer requests in batches."""

    def __init__(self, batch_tokens: int, wait_seconds: float, queue: int) -> None:
        self.turns = Turns()
        self._batch_tokens, self._wait_seconds, self._queue = batch_tokens, wait_seconds, queue
        self._part_tokens, self._parted = max(1, batch_tokens // 4), False
        self._small, self._large = deque[_Job](), deque[_Job]()
        self._lock = threading.Lock()
        self._changed, self._large_came = threading.Condition(self._lock), threading.Condition(self._lock)
        self._open, self._stopped = 0, False
        works = (partial(self._work, self._next_batch), self._work_in_parts)
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._small) + len(self._large)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Counts a request as open: it may ask for something soon."""
        with self._lock:
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                self._wake()

    def submit(self, key: Hashable, inputs: Sequence[Any], tokens: int, compute: Compute) -> Future[Sequence[Any]]:
        """The answers to ``inputs``, later. Requests with an equal ``key`` may be computed together, by the first one's function.

        Raises ``BusyError`` if too many wait.
        """
        job = _Job(key, inputs, tokens, compute)
        with self._lock:
            if self._stopped or self.waiting >= self._queue:
                raise BusyError
            large = len(inputs) > 1 and tokens > self._part_tokens
            (self._large if large else self._small).append(job)
            if large:
                self._large_came.notify()
            else:
                self._wake()
        return job.answers

    def stop(self) -> None:
        """Compute what waits, and end."""
        with self._lock:
            self._stopped = True
            self._changed.notify()
            self._large_came.notify()
        for thread in self._threads:
            thread.join()

    def _work_in_parts(self) -> None:
        _here.turns, _here.since = self.turns, time.perf_counter()
        self._work(self._next_part)

    def _work(self, take: Callable[[], list[_Job]]) -> None:
        while batch := take():
            batch = [job for job in batch if job.done or job.answers.set_running_or_notify_cancel()]  # who left needs no answer
            if not batch:
                continue
            with self.turns:
                self._compute(batch)

    def _compute(self, batch: Sequence[_Job]) -> None:
        parts = [job.part(self._part_tokens) for job in batch]
        inputs = [value for part in parts for value in part]
        try:
            answers = batch[0].compute(inputs)
        except BaseException as error:
            if len(batch) > 1:  # the fault of one request must not be that of others
                for job in batch:
                    self._compute([job])
            else:
                batch[0].answers.set_exception(error)
            return
        start = 0
        for job, part in zip(batch, parts, strict=True):
            job.done += answers[start : start + len(part)]
            start += len(part)
            if len(job.done) == len(job.inputs):
                job.answers.set_result(job.done)
            else:
                with self._lock:
                    self._large.append(job)

    def _next_batch(self) -> list[_Job]:
        """The first small request and those like it, as many as fit; none once the computer has stopped and nothing waits."""
        with self._lock:
            self._changed.wait_for(lambda: self._small or self._stopped)
            self._changed.wait_for(self._is_full, self._wait_seconds)
            taken, left, tokens = list[_Job](), deque[_Job](), 0
            for job in self._small:
                if not taken or (job.key == taken[0].key and tokens + job.tokens <= self._batch_tokens):
                    taken.append(job)
                    tokens += job.tokens
                else:
                    left.append(job)
            self._small = left
            return taken

    def _next_part(self) -> list[_Job]:
        """The large request of which a part is next; none once the computer has stopped and nothing waits."""
        with self._lock:
            self._parted = False
            self._large_came.wait_for(lambda: self._large or self._stopped)
            self._parted = bool(self._large)
            return [self._large.popleft()] if self._large else []

    def _wake(self) -> None:
        """Let the thread look again, if what has changed lets it begin: each look takes time from those who ask."""
        if self._small and (len(self._small) == 1 or self._is_full()):
            self._changed.notify()

    def _is_full(self) -> bool:
        """True if waiting longer would not make the next batch larger."""
        if self._stopped or self._large or self._parted or len(self._small) >= self._open:
            return True
        first = self._small[0].key
        return sum(job.tokens for job in self._small if job.key == first) >= self._batch_tokens


KERNELS = 64
"""kept by each cache: about ten shapes of a network"""
CACHE_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""variables by which a user sizes oneDNN's cache and torch's own above it, each of which holds what the other would drop"""


def bound_kernel_caches() -> None:
    """Let both keep ``KERNELS``, unless the environment decides; before the first product, for then they read it.

    A server's batches have ever new numbers of rows, and for each number and each shape of weights oneDNN prepares machine code,
    some 0.7 MiB. By default 1,024 are kept, and their memory lies between that of the batches, which is then not given back
    (results/other.md has figures).
    """
    for name in CACHE_VARIABLES:
        os.environ.setdefault(name, str(KERNELS))
