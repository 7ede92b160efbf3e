"""From the labels so far to a model, while people go on: an export of the project, and ``warmstart fit`` beside the server.

First a quick one, then one for which every method has time. An old model stays until there is a new one, also after a restart;
the process that labels serves it, under the path of a page of its own.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from warmstart.app.batches import JOINED_TOKENS, QUEUE, WAIT_SECONDS
from warmstart.app.exchange import export, suffices
from warmstart.app.guard import AccessRules, App, Receive, Scope, Send
from warmstart.app.project import Project
from warmstart.runs.steps import NextStep, command, learning_step, terminal_lines
from warmstart.runs.verdict import Verdict, read_verdict
from warmstart.system.processes import isolated_children
from warmstart.tasks.load import load_task

if TYPE_CHECKING:
    from warmstart.app.routes import Server

EXPORTED, LEARNED, TRAINED = "task", "model-task", "model"
"""folders in that of the project: its task, which people may edit, the task of the last training, and the run of that"""
QUICK, THOROUGH = 0.5, 15
"""minutes of a training: encoders are only read, or also fine-tuned"""
_PATIENCE = 10.0
"""seconds that a training has to end once it is asked to"""


class TrainedModel(NamedTuple):
    """The model of the last training."""

    bundle: Path
    task: Path
    """manifest of the texts that it learned from"""
    version: int
    """another for each training"""


def after_labelling(project: Project) -> list[str]:
    """The next commands after labelling, as lines of a terminal: to learn from the labels if they suffice, and to go on."""
    steps, task = [NextStep("label", "Go on", command("label", "--out", project.folder))], project.folder / EXPORTED
    if suffices(project):
        write = NextStep("export", "Write the labels", command("label", "--out", project.folder, "--export", task))
        steps = [write, learning_step(project.type, task / "task.yaml"), *steps]
    return terminal_lines(steps)


class Training:
    """The export and the model of a project; methods may be called from several threads."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._folder = project.folder.resolve()
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._minutes: float = QUICK

    def export(self, name: str = EXPORTED) -> dict[str, str]:
        """Write the task into a folder of the project, over an earlier one: where it is, and the command that learns from it.

        Raises ``DataError`` if there are not yet labels that a model could learn from.
        """
        form = "ndjson" if self.project.type == "tagging" else "csv"
        with self._lock:
            manifest = export(self.project, self._folder / name, form)["task"]  # type: ignore[arg-type]
        return {"task": manifest, "command": learning_step(self.project.type, manifest).command}

    def start(self, *, thorough: bool = False) -> None:
        """Train, unless a training is under way. Raises ``DataError`` as ``export``."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            manifest, self._minutes = self.export(LEARNED)["task"], THOROUGH if thorough else QUICK
            command = [sys.executable, "-m", "warmstart", "fit", manifest, "--minutes", str(self._minutes), "--out", str(self._run)]
            if self.project.settings.vectors:
                command += ["--encoders", self.project.settings.vectors]
            with isolated_children(), (self._folder / "model.log").open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=os.environ | {"COLUMNS": "1000"}
                )

    @property
    def model(self) -> TrainedModel | None:
        """The model of the last training; None without one."""
        with suppress(OSError):
            version = (self._run / "fit.json").stat().st_mtime_ns
            if (self._run / "bundle").is_dir():
                return TrainedModel(self._run / "bundle", self._folder / LEARNED / "task.yaml", version)
        return None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of the last training; None without one."""
        return read_verdict(self._run)

    @property
    def report(self) -> bytes | None:
        """The report of the last training; None without one."""
        with suppress(OSError):
            return (self._run / "report.html").read_bytes()
        return None

    def status(self) -> dict[str, Any] | None:
        """The state of the training, and the findings on the last model in the sentences of its report; None without any."""
        code = self._process.poll() if self._process is not None else 0
        verdict, model = self.verdict, self.model
        status = {"state": "done", "sentence": "", "findings": [*verdict.sentences] if verdict else [], "served": model is not None}
        if code is None:
            long = "half a minute to two minutes" if self._minutes == QUICK else f"about {THOROUGH} minutes"
            return status | {"state": "running", "sentence": f"A model learns, for {long}; labelling goes on meanwhile."}
        if code:
            lines = list[str]()
            with suppress(OSError):
                lines = (self._folder / "model.log").read_text("utf-8", "replace").strip().splitlines()
            return status | {"state": "failed", "sentence": " ".join(lines[-1:]) or f"The training ended with {code}."}
        if not verdict:
            return None
        more = len(self.project.labelled()) - verdict.count
        return status | {"sentence": f"{more:,} more label{'s' * (more != 1)} since." if more > 0 else ""}

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


class NewestModel:
    """The routes of ``warmstart serve``, behind the guard of the page of labels.

    They are made when they are first asked for, and anew after each training.
    """

    def __init__(self, training: Training, rules: AccessRules) -> None:
        self.training, self.rules = training, rules
        self._loader = ThreadPoolExecutor(1, "model")  # requests that wait for a model hold no thread that stores answers
        self._opened: TrainedModel | None = None
        self._server: Server | None = None
        self._app: App | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. Raises 404 as long as there is no model."""
        app = await asyncio.get_running_loop().run_in_executor(self._loader, self._newest)
        if app is None:
            from starlette.exceptions import HTTPException

            raise HTTPException(404, "there is no model yet; train one on the page of the labels")
        await app(scope, receive, send)

    def _newest(self) -> App | None:
        from warmstart.app.models import ServedModel, ServedModels
        from warmstart.app.routes import Server, models_api

        trained = self.training.model
        if trained is None:
            return None
        if trained != self._opened:
            opened = ServedModel.open(str(trained.bundle), self.training.project.name, [load_task(str(trained.task))])
            self.close()
            self._server, self._opened = Server(ServedModels([opened]), JOINED_TOKENS, WAIT_SECONDS, QUEUE), trained
            self._app = models_api(self._server, self.rules, labels="../")
        return self._app

    def close(self) -> None:
        """Finish what has begun."""
        if self._server is not None:
            self._server.close()
