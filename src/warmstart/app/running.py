"""Running the application with uvicorn: SIGTERM and Ctrl-C let it answer what it has begun, SIGHUP loads the models again.

Whoever connects costs an open file before any token is asked for. So the headers of a request must come soon, one address has a
share of the connections, and where too many are open, one that asks for nothing makes room for the next.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from warmstart.app.guard import App, network_of
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
        for bound in sockets or ():
            bound.listen(BACKLOG)


class OnceAMinute(logging.Filter):
    """Lets the same line pass once a minute, so that nobody fills a disk by what he sends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.clock, self.then = clock, dict[tuple[Any, ...], float]()

    def filter(self, record: logging.LogRecord) -> bool:
        """True if the line is logged."""
        line, now = (str(record.msg).partition("\n")[0], record.exc_info and record.exc_info[0]), self.clock()
        passes = now - self.then.get(line, -LOG_SECONDS) >= LOG_SECONDS
        if passes:
            self.then[line] = now
        return passes


def _reload(models: ServedModels) -> None:
    for model in models:
        try:
            models.reload(model.name)
        except WarmstartError as error:
            console.print(f"{model.name} is served as before, for it cannot be loaded again: {error}")


HEADER_SECONDS = 10
"""in which the headers of a request must have arrived"""
MOST_CONNECTIONS = 4096
"""connections that are open at once, where so many files may be open"""
MOST_OF_AN_ADDRESS = 256
"""connections from one address, or from one /64 network of IPv6; at most half of all"""
SPARE_FILES = 64
"""files that are left for what is no connection"""
FULL = b'{"error": "too many connections are open; close some, or send several requests over one"}'
REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"


class Closable(Protocol):
    """A connection."""

    @property
    def idle(self) -> bool:
        """True if no whole request has come that waits for its answer."""

    def close(self) -> None:
        """Close it."""


class Connections:
    """Those that are open, by network."""

    def __init__(self, files: int) -> None:
        self.most = max(2, min(MOST_CONNECTIONS, files - SPARE_FILES))
        self.most_of_one = min(MOST_OF_AN_ADDRESS, self.most // 2)
        self.open: dict[str, dict[Closable, None]] = {}

    def admit(self, connection: Closable, network: str) -> bool:
        """True if there is room for it, made where needed by closing the oldest one that asks for nothing."""
        if len(self.open.get(network, ())) >= self.most_of_one and not self._make_room(network):
            return False
        if sum(map(len, self.open.values())) >= self.most:
            largest = max(self.open, key=lambda network: len(self.open[network]))
            if not self._make_room(largest):
                return False
        self.open.setdefault(network, {})[connection] = None
        return True

    def forget(self, connection: Closable, network: str) -> None:
        """It is closed."""
        mine = self.open.get(network, {})
        mine.pop(connection, None)
        if not mine:
            self.open.pop(network, None)

    def _make_room(self, network: str) -> bool:
        idle = next((connection for connection in self.open[network] if connection.idle), None)
        if idle is not None:
            self.forget(idle, network)
            idle.close()
        return idle is not None


class _LimitedProtocol(H11Protocol):
    """HTTP/1.1 on a connection that must be admitted, and must not take long over its headers."""

    def __init__(self, connections: Connections, **named: Any) -> None:
        super().__init__(**named)
        self.admitted_to, self.network = connections, ""
        self.late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or say that there is no room."""
        self.transport, self.network = transport, network_of((transport.get_extra_info("peername") or ("",))[0])
        if not self.admitted_to.admit(self, self.network):
            transport.write(REFUSAL % (len(FULL), FULL))
            transport.close()
            return
        super().connection_made(transport)
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        """Part of a request."""
        super().data_received(data)
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self._stop_waiting()
        self.admitted_to.forget(self, self.network)
        super().connection_lost(exc)

    @property
    def idle(self) -> bool:
        """True if no whole request has come that waits for its answer."""
        return self.conn.their_state is h11.IDLE

    def close(self) -> None:
        """Close it."""
        self.transport.close()

    def _wait_for_headers(self) -> None:
        if not self.idle:
            self._stop_waiting()
        elif self.late is None:
            self.late = self.loop.call_later(HEADER_SECONDS, self.close)

    def _stop_waiting(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None


def limited_protocol() -> Callable[..., asyncio.Protocol]:
    """Makes the protocol of each connection of one server."""
    connections = Connections(_open_files())
    return lambda **named: _LimitedProtocol(connections, **named)


def _open_files() -> int:
    """Number of files that this process may open, after it raised that as far as connections need and the system lets it."""
    needed = MOST_CONNECTIONS + SPARE_FILES
    if sys.platform == "win32":
        return needed
    import resource

    endless = (resource.RLIM_INFINITY, -1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed if hard in endless else min(hard, needed)
    if soft not in endless and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return needed if soft in endless else soft
