"""Reading texts in the background: a few at a time, between the requests, until a model knows what it shows beside its answers."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from warmstart.app.alike import TrainingTexts, task_of_run
from warmstart.app.batches import BusyError, Computer
from warmstart.errors import ModelError

if TYPE_CHECKING:
    from warmstart.app.models import ServedModel, ServedModels

_AT_ONCE = 32
"""texts that are read between two requests"""
READING = "the training texts are being read"
"""words of the answer until they are"""
_WAIT = 0.1
"""seconds until another attempt if too many requests wait"""


class NotReadyError(Exception):
    """The texts are still being read; the words say how far."""


@dataclass(eq=False)
class _Known:
    """One model's texts."""

    model: ServedModel
    texts: TrainingTexts | None = None
    error: BaseException | None = None
    """why they could not be read"""


class BackgroundReader:
    """Reads texts for the models of a server, each in a thread that asks the computer for a few at a time."""

    def __init__(self, computer: Computer) -> None:
        self._computer = computer
        self._closed, self._lock = threading.Event(), threading.Lock()
        self._of: dict[str, _Known] = {}
        self.looked = threading.Event()
        """set once it is known which models have texts"""

    def start_all(self, models: ServedModels, *, own: bool) -> None:
        """Begin to read for all models that have texts; with ``own`` also the texts of the run that made a model."""
        for model in models:
            if "nearest" in model.abilities:
                self.start(model)
        if own:
            threading.Thread(target=self._look, args=[models], name="texts of runs", daemon=True).start()
        else:
            self.looked.set()

    def _look(self, models: ServedModels) -> None:
        try:
            for model in models:
                task = task_of_run(model.path) if model.task is None and model.reads_texts else None
                loaded_again = models.get(model.name) is not model
                if task and model.fits(task) and not loaded_again:
                    models.put(reader := replace(model, task=task))
                    self.start(reader)
        finally:
            self.looked.set()

    def start(self, model: ServedModel) -> _Known:
        """Begin to read for a model, unless that has begun since it was loaded."""
        with self._lock:
            known = self._of.get(model.name)
            if known is None or known.model is not model:
                known = self._of[model.name] = _Known(model)
                threading.Thread(target=self._read, args=[known], name="background texts", daemon=True).start()
        return known

    def of(self, model: ServedModel) -> TrainingTexts:
        """The training texts as a model sees them. Raises ``NotReadyError`` before it is ready, and ``ModelError`` if it failed."""
        known = self.start(model)
        if known.error is not None:
            raise ModelError(f"what the server reads for '{model.name}' could not be read: {known.error}")
        if (texts := known.texts) is None:
            raise NotReadyError("the server begins to read texts; try again soon")
        if not texts.ready:
            raise NotReadyError(f"{READING}, {texts.read:,} of {len(texts.texts):,}; try again soon")
        return texts

    def close(self) -> None:
        """Read no further."""
        self._closed.set()

    def _read(self, known: _Known) -> None:
        try:
            texts = known.texts = TrainingTexts(known.model)
            while texts.read < len(texts.texts) and not self._closed.is_set():
                part = texts.texts[texts.read : texts.read + _AT_ONCE]
                try:
                    self._computer.submit(id(texts), part, known.model.count_tokens(part), texts.read_on).result()
                except BusyError:
                    self._closed.wait(_WAIT)
            if texts.read == len(texts.texts):
                texts.finish()
        except BaseException as error:
            known.error = error
