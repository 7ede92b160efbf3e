"""The log of a training run in TensorBoard: event files beside ``metrics.jsonl``, which stays the source.

Every line of the log is shown as numbers. If that fails, a sentence says so, and the run goes on without it. A resumed run goes on
in the same folder, and no step is there twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from warmstart.errors import ConfigError
from warmstart.system.console import console

FOLDER = "tensorboard"
"""in the folder of a run"""


def events_folder(out: str | Path, *, wanted: bool) -> Path | None:
    """Where the event files of a run lie; None if they are not wanted. Raises ``ConfigError`` if TensorBoard is not installed."""
    if wanted and find_spec("tensorboard") is None:
        raise ConfigError('--tensorboard needs tensorboard; pip install "warmstart[tensorboard]"')
    return Path(out) / FOLDER if wanted else None


@contextmanager
def shown(folder: Path | None, title: str = "") -> Iterator[Callable[[Mapping[str, Any]], None] | None]:
    """What to call with each new line of the log of one training run; of several each has a ``title``. None without a folder."""
    if folder is None:
        yield None
        return
    place, opened, failed = folder / re.sub(r"[^\w+-]+", "-", title), list[Any](), list[Exception]()

    def show(row: Mapping[str, Any]) -> None:
        try:
            if not opened and not failed:
                from torch.utils.tensorboard import SummaryWriter

                opened.append(SummaryWriter(str(place), purge_step=row["step"]))  # hides what an earlier process wrote later
            for name, value in numbers(row).items() if not failed else ():
                opened[0].add_scalar(name, value, row["step"])
        except Exception as error:  # a tool for watching must not end what is watched
            failed.append(error)
            console.print(f"TensorBoard gets no more of this run: {error}", markup=False)

    try:
        yield show
    finally:
        for writer in opened:
            writer.close()


def numbers(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a line but its step, those of groups with a path: ``{"held_out": {"loss": 2.0}}`` -> ``held_out/loss``."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "step":
            found[f"{prefix}{name}"] = float(value)
    return found
