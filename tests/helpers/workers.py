"""What workers of joblib are told to do in tests; they import it by its name."""

from __future__ import annotations

import os
import signal
from typing import Any

from warmstart.corpora.write import write_piece


def killed_at_piece_2(plan: Any, identity: str, number: int, *rest: Any) -> None:
    """Tokenize a piece; the worker that is given the third one is killed."""
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    write_piece(plan, identity, number, *rest)
