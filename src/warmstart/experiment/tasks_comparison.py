"""The result of races on several tasks: the methods ranked over all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from warmstart.experiment.comparison import Comparison, plain_frame
from warmstart.notebook import Shown
from warmstart.stats.comparison import SIGNIFICANT
from warmstart.stats.formatting import sentence_case
from warmstart.stats.task_ranks import TaskRanks, rank_over_tasks


@dataclass(frozen=True)
class TasksComparison(Shown, view="commands.race.page:tasks_view"):
    """The same methods on several tasks. Each task counts once, and only the order of the methods on it counts."""

    races: tuple[Comparison, ...]

    @cached_property
    def names(self) -> dict[str, str]:
        """Display name by identity, of the methods that every task has ranked; best mean rank first."""
        known = [{one.method.id_over_tasks: one.name for one in race.ranking.methods} for race in self.races]
        shared = {key: name for key, name in known[0].items() if all(key in other for other in known)}
        order = np.argsort(rank_over_tasks(self._scores(shared)).mean, kind="stable") if len(shared) > 1 else range(len(shared))
        return {key: shared[key] for key in [[*shared][int(i)] for i in order]}

    @cached_property
    def ranks(self) -> TaskRanks:
        """The ranks of the methods of ``names``, in their order."""
        return rank_over_tasks(self._scores(self.names))

    def _scores(self, keys: Iterable[str]) -> list[list[float]]:
        """(N, K) mean test score on each task of each method."""
        means = [{one.method.id_over_tasks: one.test_scores.over_seeds.mean for one in race.ranking.methods} for race in self.races]
        return [[task[key] for key in keys] for task in means]

    @property
    def findings(self) -> list[str]:
        """Which methods differ over all tasks, then for each task the recommendation, then how often each test split was scored."""
        names, ranks, tasks = [*self.names.values()], self.ranks, len(self.races)
        worse = [name for name, p in zip(names[1:], ranks.p_pairs[0, 1:], strict=True) if p < SIGNIFICANT]
        test = f"sign-flip tests on signed ranks, corrected for {ranks.pairs} pairs"
        findings = [
            f"{sentence_case(names[0])} has the best mean rank, {ranks.mean[0]:.1f} of {len(names)} methods, over {tasks} tasks.",
            f"Significantly worse than {names[0]}: {', '.join(worse)} ({test})."
            if worse
            else f"No method is significantly worse than {names[0]} ({test})."
            + f" With so many methods that takes at least {ranks.fewest_tasks} tasks." * (tasks < ranks.fewest_tasks),
        ]
        if left_out := sorted({one.name for race in self.races for one in race.ranking.methods} - {*names}):
            findings.append(f"Left out, because not every task has a score for them: {', '.join(left_out)}.")
        findings += [f"{race.task.name}: {race.findings[0]}" for race in self.races]
        return findings + [f"{race.task.name}: {finding}" for race in self.races for finding in race.ledger.findings]

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """``methods``: mean rank and the score on each task; ``pairs``: wins, ties and losses of each pair with its p-value."""
        names, ranks, scores = [*self.names.values()], self.ranks, np.array(self._scores(self.names))
        methods = [
            {"method": name, "mean_rank": float(ranks.mean[i])}
            | {race.task.name: float(score) for race, score in zip(self.races, scores[:, i], strict=True)}
            for i, name in enumerate(names)
        ]
        pairs = [
            dict(zip(("method", "other", "wins", "ties", "losses", "p_corrected"), row, strict=True))
            for i, one in enumerate(names)
            for j, other in enumerate(names[:i])
            for row in [(other, one, *ranks.wins(j, i), float(ranks.p_pairs[j, i]))]
        ]
        return {"methods": plain_frame(methods), "pairs": plain_frame(pairs)}

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON."""
        return {
            "findings": self.findings,
            **{name: table.to_dicts() for name, table in self.tables.items()},
            "tasks": [race.to_dict() for race in self.races],
        }
