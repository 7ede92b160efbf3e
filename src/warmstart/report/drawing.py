"""Charts become pictures in a process of their own.

The drawing library reserves far more memory than it uses, and where that is refused it ends the process it runs in. So a child
draws: it starts with the first picture, serves this process until it ends, and takes no run with it when it dies.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from typing import Any

from warmstart.system.processes import isolated_children

NO_PICTURES = (
    "The figures are missing, because the program that draws them ended, as it does where a process may use little memory "
    "(`ulimit -v`); the tables hold what was measured."
)
"""sentence of a page in the place of its figures"""
_CODE = """
import json, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
import vl_convert
for line in sys.stdin:
    request = json.loads(line)
    try:
        if "script" in request:
            reply = {"made": vl_convert.javascript_bundle(request["script"])}
        else:
            reply = {"made": vl_convert.vegalite_to_svg(request["spec"], allowed_base_urls=[])}
    except ValueError as error:
        reply = {"refused": str(error)}
    print(json.dumps(reply), file=replies, flush=True)
"""
"""program of the child: a line of JSON for each line of JSON, until its standard input ends"""


class DrawingError(Exception):
    """The drawing process ended without a picture."""


def svg(spec: dict[str, Any]) -> str:
    """A Vega-Lite spec as an SVG picture; nothing is fetched. Raises ``DrawingError``."""
    return _PAINTER.make({"spec": spec})


def javascript_bundle(script: str) -> str:
    """Vega, Vega-Lite, Vega-Embed and a script that uses them in one script. Raises ``DrawingError``."""
    return _PAINTER.make({"script": script})


class _Painter:
    """The child that draws for this process; a process that was forked from this one starts its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: dict[int, subprocess.Popen[str]] = {}

    def make(self, request: dict[str, Any]) -> str:
        """The child's answer to a request. Raises ``DrawingError`` if it ends instead, ``ValueError`` if the spec is wrong."""
        with self._lock:
            try:
                answer = self._answer(json.dumps(request))
            except BaseException:
                self.end()
                raise
        reply: dict[str, str] = json.loads(answer)
        if "refused" in reply:
            raise ValueError(reply["refused"])
        return reply["made"]

    def end(self) -> None:
        """End the child of this process, if there is one."""
        if child := self._children.pop(os.getpid(), None):
            child.kill()
            child.communicate()

    def _answer(self, request: str) -> str:
        try:
            child = self._children.get(os.getpid()) or self._start()
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(request + "\n")
            child.stdin.flush()
            answer = child.stdout.readline()
        except OSError:
            answer = ""
        if not answer.endswith("\n"):
            raise DrawingError
        return answer

    def _start(self) -> subprocess.Popen[str]:
        with isolated_children():
            child = subprocess.Popen(
                [sys.executable, "-X", "utf8", "-c", _CODE],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8",
                cwd=tempfile.gettempdir(),
            )  # fmt: skip
        self._children[os.getpid()] = child
        atexit.register(self.end)
        return child


_PAINTER = _Painter()
