"""Running the application with uvicorn: SIGTERM and Ctrl-C let it answer what it has begun, SIGHUP loads the models again."""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import uvicorn

from warmstart.app.connections import limited_protocol
from warmstart.app.guard import App
from warmstart.errors import ConfigError, WarmstartError
from warmstart.system.console import console

if TYPE_CHECKING:
    from warmstart.app.models import ServedModels

BACKLOG = 1024
"""connections that wait to be accepted"""
ACCEPTED_AT_ONCE = 8
"""connections, before those that are too many are closed"""
LOG_SECONDS = 60
"""in which the same line is logged once"""
DRAIN_SECONDS = 30
"""in which answers that have begun must end once the server was asked to"""


def run(app: App, listening: socket.socket, host: str, models: ServedModels | None = None) -> None:
    """Answer requests at a socket (``listen``) until SIGTERM or Ctrl-C; SIGHUP loads the models again, if there are some."""
    settings = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=DRAIN_SECONDS, ws="none",
        timeout_keep_alive=30, h11_max_incomplete_event_size=64 << 10, backlog=ACCEPTED_AT_ONCE, loop="asyncio",
        http=cast("Any", limited_protocol()),
    )  # fmt: skip
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(OnceAMinute())
    if models is not None and hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=_reload, args=(models,), daemon=True).start())
    address = f"[{host}]" if ":" in host else host
    console.print(f"serving at http://{address}:{listening.getsockname()[1]} (Ctrl-C stops it)")
    _Server(settings).run([listening])


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address; who connects waits until ``run``. Raises ``ConfigError`` if the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            # Windows would let two servers share the address
            once = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
            listening.setsockopt(socket.SOL_SOCKET, once, 1)
            listening.bind(address)
            listening.listen(BACKLOG)  # who reads the address may connect at once
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"cannot listen at {host}, port {port}: {error.strerror or error}; choose another --port or --host"
        ) from None
    return listening


class _Server(uvicorn.Server):
    """As many connections may wait as before, though few are accepted at once: asyncio takes one number for both."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)


class OnceAMinute(logging.Filter):
    """Lets the same line pass once a minute, so that nobody fills a disk by what he sends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.clock, self.then = clock, dict[tuple[Any, ...], float]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is logged."""
        line, now = (str(record.msg).partition("\n")[0], record.exc_info and record.exc_info[0]), self.clock()
        passes = now - self.then.get(line, -LOG_SECONDS) >= LOG_SECONDS
        if passes:
            self.then[line] = now
        return passes


def _reload(models: ServedModels) -> None:
    for one in models:
        try:
            models.reload(one.name)
        except WarmstartError as error:
            console.print(f"{one.name} is served as before, for it cannot be loaded again: {error}")
