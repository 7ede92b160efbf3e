"""Every statistic has one home: ``warmstart.stats``. Elsewhere it is called, never written again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import warmstart

ROOT = Path(warmstart.__file__).parent
ELSEWHERE = [path for path in sorted(ROOT.rglob("*.py")) if path.parent != ROOT / "stats"]
CALLS = {"multinomial", "quantile", "nanquantile", "percentile", "nanpercentile", "ppf", "isf", "false_discovery_control"}
"""methods that resample, take the ends of an interval, or look up a distribution"""
ALLOWED = {("data/audit.py", "quantile"), ("serve/errors_by_class.py", "quantile")}
"""no interval: the length of the 95% longest texts, and thirds of lengths"""


def name_of(path: Path) -> str:
    """``stats/intervals.py``."""
    return path.relative_to(ROOT).as_posix()


def statistics_in(tree: ast.AST) -> Iterator[str]:
    """Names of what belongs to ``stats`` in one file; torch's own functions are no statistics of results."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in CALLS and ast.unparse(node.value) != "torch":
            yield node.attr
        elif isinstance(node, ast.Constant) and node.value == 1.96:
            yield "1.96"
        elif isinstance(node, ast.Import) and any(alias.name.startswith("scipy.stats") for alias in node.names):
            yield "scipy.stats"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scipy"):
            named = node.module == "scipy" and "stats" in [alias.name for alias in node.names]
            yield from ["scipy.stats"] if named or (node.module or "").startswith("scipy.stats") else []


def test_statistics_are_written_in_stats_only() -> None:
    """No bootstrap, quantile of an interval, distribution or test stands in another package."""
    found = {(name_of(path), what) for path in ELSEWHERE for what in statistics_in(ast.parse(path.read_text()))}
    assert found == ALLOWED


@pytest.mark.parametrize("code", ["rng(0).multinomial(3, p)", "np.quantile(x, 0.5)", "from scipy import stats", "1.96 * error"])
def test_a_statistic_is_recognised(code: str) -> None:
    """The check above is not blind."""
    assert list(statistics_in(ast.parse(code)))


def test_percentages_are_written_by_one_file() -> None:
    """``f"{100 * x}"`` stands in ``stats/formatting.py`` alone, so that all percentages look alike."""
    found = {name_of(path) for path in ROOT.rglob("*.py") if "{100 *" in path.read_text()}
    assert found == {"stats/formatting.py"}
