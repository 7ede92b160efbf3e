"""Reading texts in the background: a few at a time, between the requests, until a model knows what it shows beside its answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from warmstart.errors import ModelError
from warmstart.serve.computing import BusyError, Computer

if TYPE_CHECKING:
    from warmstart.serve.served import ServedModel

_AT_ONCE = 32
"""texts that are read between two requests"""
_WAIT = 0.1
"""seconds until another attempt if too many requests wait"""


class NotReadyError(Exception):
    """The texts are still being read; the words say how far."""


class BackgroundTexts(Protocol):
    """What is made of texts as one model reads them."""

    reading: str
    """that it is being read, in words"""
    texts: Sequence[Any]
    """all that are to be read"""
    read: int
    """how many are"""
    ready: bool
    """whether it can be asked"""

    def read_on(self, texts: Sequence[Any]) -> list[None]:
        """Read the next texts; an answer for each."""

    def finish(self, closed: threading.Event) -> None:
        """What remains to be done once all are read; it ends early if the server is closed."""


Made = TypeVar("Made", bound=BackgroundTexts)


@dataclass(eq=False)
class _Known(Generic[Made]):
    """One model's texts."""

    model: ServedModel
    made: Made | None = None
    error: BaseException | None = None
    """why they could not be read"""


class BackgroundReader(Generic[Made]):
    """Reads texts for the models of a server, each in a thread that asks the computer for a few at a time."""

    def __init__(self, computer: Computer, make: Callable[[ServedModel], Made]) -> None:
        self._computer, self._make = computer, make
        self._closed, self._lock = threading.Event(), threading.Lock()
        self._of: dict[str, _Known[Made]] = {}

    def start(self, model: ServedModel) -> _Known[Made]:
        """Begin to read for a model, unless that has begun since it was loaded."""
        with self._lock:
            known = self._of.get(model.name)
            if known is None or known.model is not model:
                known = self._of[model.name] = _Known(model)
                threading.Thread(target=self._read, args=[known], name="background texts", daemon=True).start()
        return known

    def of(self, model: ServedModel) -> Made:
        """What was made for a model. Raises ``NotReadyError`` before it is ready, and ``ModelError`` if it failed."""
        known = self.start(model)
        if known.error is not None:
            raise ModelError(f"what the server reads for '{model.name}' could not be read: {known.error}")
        if known.made is None:
            raise NotReadyError("the server begins to read texts; try again soon")
        if not known.made.ready:
            made = known.made
            raise NotReadyError(f"{made.reading}, {made.read:,} of {len(made.texts):,}; try again soon")
        return known.made

    def close(self) -> None:
        """Read no further."""
        self._closed.set()

    def _read(self, known: _Known[Made]) -> None:
        try:
            made = known.made = self._make(known.model)
            while made.read < len(made.texts) and not self._closed.is_set():
                part = made.texts[made.read : made.read + _AT_ONCE]
                try:
                    self._computer.submit(id(made), part, known.model.count_tokens(part), made.read_on).result()
                except BusyError:
                    self._closed.wait(_WAIT)
            if made.read == len(made.texts):
                made.finish(self._closed)
        except BaseException as error:
            known.error = error
