"""From the labels so far to a model, while people go on: an export of the project, and ``warmstart fit`` beside the server."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from warmstart.labelling.exporting import export
from warmstart.labelling.project import Project
from warmstart.system.processes import isolated_children
from warmstart.tasks.load import learning_command

EXPORTED, LEARNED, TRAINED = "task", "model-task", "model"
"""folders in that of the project: its task, which people may edit, the task of the last training, and the run of that"""
MINUTES = 1
"""of a training"""
_PATIENCE = 10.0
"""seconds that a training has to end once it is asked to"""


def after_labelling(project: Project) -> str:
    """What comes after labelling, as a line of a terminal."""
    folder, task = shlex.quote(str(project.folder)), project.folder / EXPORTED
    writes = f"warmstart label --out {folder} --export {shlex.quote(str(task))}"
    return f"next: {writes} && {learning_command(project.type, task / 'task.yaml')}"


class Training:
    """The export and the model of a project; methods may be called from several threads."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._folder = project.folder.resolve()
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None

    def export(self, name: str = EXPORTED) -> dict[str, str]:
        """Write the task into a folder of the project, over an earlier one: where it is, and the command that learns from it.

        Raises ``DataError`` if there are not yet labels that a model could learn from.
        """
        form = "ndjson" if self.project.type == "tagging" else "csv"
        with self._lock:
            manifest = export(self.project, self._folder / name, form)["task"]  # type: ignore[arg-type]
        return {"task": manifest, "command": learning_command(self.project.type, manifest)}

    def start(self) -> None:
        """Train, unless a training is under way. Raises ``DataError`` as ``export``."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            manifest = self.export(LEARNED)["task"]
            command = [sys.executable, "-m", "warmstart", "fit", manifest, "--minutes", str(MINUTES), "--out", str(self._run)]
            with isolated_children(), (self._folder / "model.log").open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=os.environ | {"COLUMNS": "1000"}
                )

    def status(self) -> dict[str, Any] | None:
        """Whether a model is being trained, what it is worth, and the command that serves it; None if none was asked for."""
        if self._process is None:
            return None
        if (code := self._process.poll()) is None:
            words = "A model learns from the labels so far, for a minute or two; labelling goes on meanwhile."
            return {"state": "running", "sentence": words, "command": ""}
        if code:
            lines = list[str]()
            with suppress(OSError):
                lines = (self._folder / "model.log").read_text("utf-8", "replace").strip().splitlines()
            return {"state": "failed", "sentence": " ".join(lines[-1:]) or f"The training ended with {code}.", "command": ""}
        try:
            found = json.loads((self._run / "fit.json").read_text("utf-8"))
        except (OSError, ValueError):
            return {"state": "failed", "sentence": f"The model is no longer in {self._run}.", "command": ""}
        serve = f"warmstart serve {shlex.quote(str(self._run / 'bundle'))}" if found["recommended"] else ""
        return {"state": "done", "sentence": " ".join(found["findings"][:2]), "command": serve}

    def close(self) -> None:
        """End a training that is under way."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()

    @property
    def _run(self) -> Path:
        return self._folder / TRAINED
