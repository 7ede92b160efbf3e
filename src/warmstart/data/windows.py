"""Windows: a text that is longer than a model reads is read in parts that overlap, so that no token is lost.

    10 tokens, 6 at a time, a third of them shared    ->    windows that begin at 0, 4: tokens 0 to 5 and 4 to 9

All windows of a text are as long as the model reads, and lie evenly: the first begins where the text does, the last ends there.
This file says where they are; ``data/encode.py`` makes rows of them, ``heads/pooled.py`` joins what the model makes of each.

Letters: N tokens of a text, W windows.
"""

from __future__ import annotations

import numpy as np

from warmstart.heads.settings import CUT, WindowSettings

READ_WHOLE = "Adapt with --windows mean to read them whole."
"""what to do about texts that are cut"""


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
