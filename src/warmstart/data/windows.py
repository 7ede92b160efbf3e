"""Windows: a text that is longer than a model reads is read in parts that overlap, so that no token is lost.

    10 tokens, 6 at a time, a third of them shared    ->    windows that begin at 0, 4: tokens 0 to 5 and 4 to 9

All windows of a text are as long as the model reads, and lie evenly: the first begins where the text does, the last ends there.
This file says where they are; ``data/encode.py`` makes rows of them, ``heads/pooled.py`` joins what the model makes of each.

Letters: N tokens of a text, W windows.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from warmstart.config import Advanced, Config, InFile

WindowPooling = Literal["none", "mean", "max", "attention"]


class WindowSettings(Config):
    """What becomes of texts that are longer than the model reads."""

    windows: Advanced[WindowPooling] = "none"
    """texts longer than the model reads: none, they are cut; mean, max or attention (learned weights), they are read in windows
    that overlap, and the windows' states are joined so"""
    window_overlap: InFile[float] = Field(0.25, ge=0, le=0.9)
    """windows: the fraction of a window that it shares with the next one, at least"""
    max_windows: InFile[int] = Field(0, ge=0)
    """windows: the most of a text, from its beginning; what comes after them is cut and counted; 0: no limit"""

    @model_serializer(mode="wrap")
    def _without_unused(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without windows these settings decide nothing: files and identities are as if there were none."""
        values: dict[str, Any] = handler(self)
        return values if self.windows != "none" else {key: one for key, one in values.items() if key not in _KEYS}

    @property
    def window_settings(self) -> WindowSettings:
        """These settings alone."""
        return WindowSettings(**{key: getattr(self, key) for key in _KEYS})

    @property
    def unweighted(self) -> WindowSettings:
        """The same where nothing is learned: the mean in place of attention."""
        return WindowSettings(**dict(self.window_settings) | ({"windows": "mean"} if self.windows == "attention" else {}))


READ_WHOLE = "Adapt with --windows mean to read them whole."
"""what to do about texts that are cut"""
_KEYS = tuple(WindowSettings.model_fields)
CUT = WindowSettings()
"""no windows: what does not fit is cut"""


def window_starts(tokens: int, room: int, settings: WindowSettings = CUT) -> tuple[np.ndarray, int]:
    """The first token of each window (W,) of a text of ``tokens`` tokens, and how many of its tokens no window holds.

    A window holds ``room`` tokens, or the whole text if that is shorter.
    """
    if settings.windows == "none" or tokens <= room or room < 1:
        return np.zeros(1, dtype=np.int64), max(0, tokens - room)
    step = room - int(settings.window_overlap * room)
    count = 1 + -(-(tokens - room) // step)
    most = settings.max_windows or count
    read = tokens if count <= most else room + (most - 1) * step
    count = min(count, most)
    return np.arange(count) * (read - room) // max(1, count - 1), tokens - read


def framed_windows(tokens: int, max_length: int, settings: WindowSettings, opening: int = 1) -> np.ndarray:
    """(W, min(tokens, max_length)) the positions that each window reads of a row of ``tokens`` tokens.

    The first ``opening`` tokens of the row and the last, which frame the text, are in every window.
    """
    inside = min(tokens, max_length) - opening - 1
    starts, _ = window_starts(tokens - opening - 1, max_length - opening - 1, settings)
    positions = starts[:, None] + np.arange(inside + opening + 1)
    positions[:, :opening], positions[:, -1] = np.arange(opening), tokens - 1
    return np.asarray(positions)
