"""What a stream of tasks found: every task after every stage, what was forgotten, and what remembering bought.

Nothing is run and nothing is written here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from warmstart.evaluate import Row, compared
from warmstart.evaluate.forgetting import Forgetting, forgetting_of
from warmstart.evaluate.seeds import Interval, interval
from warmstart.schemes.several import Several

SHARES = {"average": "the average over tasks at the end", "learned": "the score on each new task"}
"""figures between 0 and 1, on which ways to remember are compared; the others lie between -1 and 1"""


@dataclass(frozen=True)
class Streamed:
    """One stream: one way to remember, one seed."""

    memory: str
    seed: int
    scores: tuple[tuple[float, ...], ...]
    """[k][j]: test score on task j after task k"""
    language: tuple[float, ...]
    """language-model loss before the stream and after each task; empty where no text was given"""
    seconds: float
    validation: float
    """mean over all tasks at the end"""
    model: Several

    @property
    def figures(self) -> Forgetting:
        """The usual figures."""
        return forgetting_of(self.scores)


@dataclass(frozen=True)
class Stream:
    """All streams of a run."""

    names: tuple[str, ...]
    """the tasks, in the order learned"""
    runs: dict[str, tuple[Streamed, ...]]
    """by way to remember, one a seed"""

    def cell(self, memory: str, stage: int, task: int) -> Interval:
        """Score on a task after a stage, over seeds."""
        return interval([run.scores[stage][task] for run in self.runs[memory]]).within(0, 1)

    def figure(self, memory: str, name: str) -> Interval:
        """One of the usual figures, over seeds."""
        return interval([getattr(run.figures, name) for run in self.runs[memory]]).within(0 if name in SHARES else -1, 1)

    def sentences(self) -> list[str]:
        """What was forgotten, and what remembering bought."""
        said, last = list[str](), len(self.names) - 1
        for memory in self.runs:
            for task, name in enumerate(self.names[:-1]):
                after, end = self.cell(memory, task, task), self.cell(memory, last, task)
                way = "fell" if end.mean < after.mean else "rose"
                moved = f"{way} from {100 * after.mean:.1f} to {100 * end.mean:.1f} %"
                said.append(
                    f"{memory}: {name} {moved if end.mean != after.mean else f'stayed at {100 * end.mean:.1f} %'} by the end"
                )
        base, *others = list(self.runs)
        asked = [(other, figure) for other in others for figure in SHARES]
        found = compared([(self._row(other, figure), self._row(base, figure)) for other, figure in asked])
        said += [f"{SHARES[figure]}: {one.sentence}" for (_, figure), one in zip(asked, found, strict=True)]
        for memory, runs in self.runs.items():
            if runs[0].language:
                loss = float(np.mean([run.language[-1] for run in runs]))
                said.append(f"{memory}: the language-model loss went from {runs[0].language[0]:.3f} to {loss:.3f} nats")
        return said

    def _row(self, memory: str, figure: str) -> Row:
        return Row(memory, tuple(getattr(run.figures, figure) for run in self.runs[memory]))

    def plain(self) -> dict[str, Any]:
        """All that was found, fit for JSON."""
        kept = ("seed", "scores", "language", "seconds")
        runs = {
            memory: [{name: getattr(run, name) for name in kept} | vars(run.figures) for run in done]
            for memory, done in self.runs.items()
        }
        return {"tasks": self.names, "runs": runs, "sentences": self.sentences()}

    HEADER: ClassVar = ("memory", "average at the end", "right after learning", "backward transfer", "forgetting", "seconds")
    """names the columns of ``table``"""

    def table(self) -> list[tuple[str, ...]]:
        """One row a way to remember."""
        return [
            (
                memory,
                *(str(self.figure(memory, name)) for name in ("average", "learned", "backward", "forgetting")),
                f"{np.mean([run.seconds for run in runs]):.1f}",
            )
            for memory, runs in self.runs.items()
        ]
