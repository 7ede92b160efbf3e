"""Running the application with uvicorn: SIGTERM and Ctrl-C let it answer what it has begun, SIGHUP loads the models again."""

from __future__ import annotations

import signal
import socket
import threading
from typing import TYPE_CHECKING

import uvicorn

from warmstart.console import console
from warmstart.errors import ConfigError, WarmstartError
from warmstart.serve.guard import App

if TYPE_CHECKING:
    from warmstart.serve.served import ServedModels

BACKLOG = 1024
"""connections that wait to be accepted"""
DRAIN_SECONDS = 30
"""in which answers that have begun must end once the server was asked to"""


def run(app: App, listening: socket.socket, host: str, models: ServedModels | None = None) -> None:
    """Answer requests at a socket (``listen``) until SIGTERM or Ctrl-C; SIGHUP loads the models again, if there are some."""
    settings = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=DRAIN_SECONDS, ws="none",
        timeout_keep_alive=30, h11_max_incomplete_event_size=64 << 10,
    )  # fmt: skip
    if models is not None and hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=_reload, args=(models,), daemon=True).start())
    address = f"[{host}]" if ":" in host else host
    console.print(f"serving at http://{address}:{listening.getsockname()[1]} (Ctrl-C stops it)")
    uvicorn.Server(settings).run([listening])


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


def _reload(models: ServedModels) -> None:
    for one in models:
        try:
            models.reload(one.name)
        except WarmstartError as error:
            console.print(f"{one.name} is served as before, for it cannot be loaded again: {error}")
