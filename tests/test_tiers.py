"""`.ci/run` runs the tiers of tests that the last day's commits touched, and all of them where it cannot tell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / ".ci" / "tiers.py"
MARKED = "import pytest\nfrom helpers.cups import cup\n@pytest.mark.chaos\ndef test_one(): cup()\n"
ALL = ["proofs", "journeys", "chaos"]


def git(folder: Path, *words: str) -> None:
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True)


def test_the_tiers_that_a_commit_touches(tmp_path: Path) -> None:
    """By the table of paths, and the marks of tests and of those that use a helper; all for an unknown file, or without history."""
    for name, content in {"tests/test_cups.py": MARKED, "tests/helpers/cups.py": "", "src/warmstart/cli.py": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    expected = {
        "README.md": [], "src/warmstart/heads/a.py": [], "src/warmstart/stats/a.py": ["proofs"], "src/warmstart/cli.py": ALL[1:],
        "tests/test_cups.py": ["chaos"], "tests/helpers/cups.py": ["chaos"], "tests/helpers/new.py": [],
        "src/warmstart/new/a.py": ALL,
    }  # fmt: skip
    assert tiers(tmp_path) == ALL, "not a repository"
    for path, found in expected.items():
        git(tmp_path, "init", "-q")
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text((tmp_path / path).read_text() if (tmp_path / path).exists() else "")
        git(tmp_path, "add", path)
        git(tmp_path, "commit", "-qm", "a")
        assert tiers(tmp_path) == found, path
        subprocess.run(["rm", "-rf", ".git"], cwd=tmp_path, check=True)


def tiers(folder: Path) -> list[str]:
    return subprocess.run([sys.executable, SCRIPT], cwd=folder, check=True, capture_output=True, text=True).stdout.split()
