"""What is not tested is said: skipped tests are listed, and those of the browser are not skipped where there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = {
    "test_many.py": """
import pytest
@pytest.mark.parametrize("number", range(3))
def test_many(number):
    pytest.skip("no cups")
@pytest.mark.skipif(True, reason="no GPU")
def test_one():
    pass
@pytest.mark.browser
@pytest.mark.xfail
def test_known():
    raise KeyError
""",
    "test_marked.py": """
import pytest
from helpers.browser import IN_A_BROWSER
pytestmark = IN_A_BROWSER[0]
def test_page():
    pytest.skip("no server")
""",
    "test_whole.py": """
import pytest
pytest.importorskip("no_such_module", reason="no module")
from helpers.browser import IN_A_BROWSER
pytestmark = IN_A_BROWSER
""",
}


@pytest.mark.journeys
@pytest.mark.parametrize("chromium", [True, False])
def test_skipped_tests_are_listed_and_those_of_the_browser_fail(chromium: bool, tmp_path: Path) -> None:
    """Each reason once, with its number; tests in a browser, and whole files of them, fail where there is one."""
    for name, content in TESTS.items():
        (tmp_path / name).write_text(content)
    (programs := tmp_path / "programs").mkdir()
    if chromium:
        (programs / "chromium").touch(0o755)
    environment = os.environ | {"PATH": str(programs), "PYTHONPATH": str(HERE)}
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n browser: in a browser\n journeys: long\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "helpers.skips", "--continue-on-collection-errors"]
    found = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    listed = [line for line in found.stdout.splitlines() if line[1:].startswith(" skipped: no ")]
    assert (listed[0], "1 skipped: no GPU" in listed) == ("3 skipped: no cups", True)
    for reason in ("no server", "no module"):
        assert (f"so its tests must run, but one was skipped: {reason}; run `make setup`" in found.stdout) == chromium
        assert (f"1 skipped: {reason}" in found.stdout) != chromium
    assert found.returncode == int(chromium), found.stdout
