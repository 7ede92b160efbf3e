"""The scores of tasks that ask for more than one label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from warmstart.errors import ConfigError, suggest


@dataclass(frozen=True)
class Figures:
    """Named figures on one split; for each that can be chosen as a metric, higher is better."""

    values: dict[str, float]
    """by name"""
    note: str = ""
    """what should be known beside them"""

    def score(self, metric: str) -> float:
        """The figure named ``metric``; raises ``ConfigError`` for an unknown one."""
        if metric not in self.values:
            raise ConfigError(f"unknown metric '{metric}'; {suggest(metric, self.values)}")
        return self.values[metric]

    HEADER: ClassVar = ("figure", "value")
    """names the columns of ``table``"""

    def table(self) -> list[tuple[str, str]]:
        """One row a figure."""
        return [(name.replace("_", " "), f"{value:.4f}") for name, value in self.values.items()]

    def plain(self) -> dict[str, Any]:
        """All figures, fit for JSON."""
        return {**self.values, "note": self.note}
