"""The model of a project's last training, served by the process that labels, under the path of a page of its own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from warmstart.app.batches import JOINED_TOKENS, QUEUE, WAIT_SECONDS
from warmstart.app.guard import AccessRules, App, Receive, Scope, Send
from warmstart.app.training import TrainedModel, Training
from warmstart.tasks.load import load_task

if TYPE_CHECKING:
    from warmstart.app.routes import Server


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
            raise HTTPException(404, "there is no model yet; train one on the page of the labels")
        await app(scope, receive, send)

    def _newest(self) -> App | None:
        from warmstart.app.models import ServedModel, ServedModels
        from warmstart.app.routes import Server, models_api

        found = self.training.model
        if found is None:
            return None
        if found != self._opened:
            opened = ServedModel.open(str(found.bundle), self.training.project.name, [load_task(str(found.task))])
            self.close()
            self._server, self._opened = Server(ServedModels([opened]), JOINED_TOKENS, WAIT_SECONDS, QUEUE), found
            self._app = models_api(self._server, self.rules, labels="../")
        return self._app

    def close(self) -> None:
        """Finish what has begun."""
        if self._server is not None:
            self._server.close()
