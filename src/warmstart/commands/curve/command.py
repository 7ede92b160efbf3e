"""The curve: what each number of labels gives, what more would give, and where pretraining stops paying.

Every seed draws its own stratified subset of each size, the same for all methods, so that bands also say what another choice of
texts would have given. The number of labels counts training texts; the validation split, which chooses epochs and rates, stays
whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from warmstart.commands.curve.page import curve_page
from warmstart.commands.curve.result import Learned
from warmstart.commands.race.command import keep_runs
from warmstart.console import console, print_table
from warmstart.data.task import subsample
from warmstart.errors import ConfigError, DataError
from warmstart.storage import atomic_write
from warmstart.sweep.ranking import Standing
from warmstart.sweep.sweep import HeatsConfig, Scheme, line_up, open_heats, run_heats


def rising(labels: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers themselves, if each is larger than the one before."""
    if list(labels) != sorted(set(labels)) or labels[0] < 2:
        raise ValueError(f"must be rising numbers from 2 on; got {' '.join(map(str, labels))}")
    return labels


class CurveConfig(HeatsConfig):
    """Say what each number of labels gives, what more would give, and where pretraining stops paying."""

    schemes: Annotated[tuple[Scheme, ...], Field(min_length=1)] = ("lp-ft",)
    """ways to adapt each backbone, a+b does both"""
    out: str = "runs/curve"
    """folder of the run; the same folder goes on where it stopped"""
    labels: Annotated[tuple[int, ...], Field(min_length=1), AfterValidator(rising)] = (16, 32, 64, 128, 256, 512)
    """numbers of labelled training texts, rising"""
    target: float | None = Field(None, gt=0, lt=1)
    """a score to reach; default: half the error of the best at the largest number"""

    def fewest(self) -> int | None:
        """The smallest number of labelled texts."""
        return self.labels[0]


def curve(config: CurveConfig) -> Learned:
    """Run what is not done yet, and report what labels are worth; the ``curve`` command."""
    heats = open_heats(config)
    task = heats.task
    for count in (config.labels[0], config.labels[-1]):
        try:
            subsample(task, count, config.seed)
        except DataError as error:
            raise ConfigError(f"--labels {count}: {error}") from None
    runs = {}
    for count in config.labels:
        console.print(f"\n{count} labels")
        runs[count] = run_heats(heats, count)
    lines = {count: line_up(heats, ran) for count, ran in runs.items()}
    stood = {count: line.standings for count, line in lines.items() if line.whole}
    lost = dict.fromkeys(name for line in lines.values() for name in line.diverged)
    _check_stood(config, stood, lost)
    missing = tuple(count for count in config.labels if count not in stood)
    diverged = {name: tuple(count for count, line in lines.items() if name in line.diverged) for name in lost}
    result = Learned(task, stood, missing, diverged, config.target, heats.found)
    print_table(f"{task.name}: {task.metric} on {len(task.test)} test texts", result.table(), result.header())
    for sentence in result.sentences():
        console.print(sentence, markup=False)
    keep_runs([(count, standings, runs[count]) for count, standings in stood.items()], heats.folder)
    atomic_write(heats.folder / "curve.json", json.dumps(result.to_dict(), indent=1).encode())
    page = curve_page(result, config, heats.folder)
    console.print(f"every run: {heats.folder / 'runs.csv'}\nreport: {page}", markup=False)
    return result


def _check_stood(config: CurveConfig, stood: Mapping[int, Sequence[Standing]], lost: Iterable[str]) -> None:
    """Raise ``DataError`` where no pretrained method stands everywhere: there is then nothing to tell of labels."""
    if not stood and config.budget:
        raise DataError(f"the budget of {config.budget} did not suffice for every method at one number of labels; give more")
    everywhere = [{s.name for s in standings if s.entrant.kind == "adapted"} for standings in stood.values()]
    if not everywhere or not set.intersection(*everywhere):
        diverged = f" ({', '.join(lost)} diverged at every rate)" if lost else ""
        raise DataError(
            f"a curve needs a pretrained method that stands at every number of labels, but none does{diverged}; lower --rates"
        )
