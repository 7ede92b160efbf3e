"""What the tests in a browser share; the browser itself is a fixture (``conftest.py``)."""

from __future__ import annotations

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IN_A_BROWSER = [
    pytest.mark.browser,
    pytest.mark.journeys,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; install Debian's package chromium to run the browser tests"),
    pytest.mark.usefixtures("socket_enabled"),
]
"""the marks of such a module"""
