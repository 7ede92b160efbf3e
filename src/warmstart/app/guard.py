"""The rules of access: hosts, origins, the token, the size of a body and the rate of requests; and the headers of every answer.

A page on another site can make a browser send requests here, also under a name of its own that leads to this address (DNS
rebinding). So the ``Host`` header must be one of ours, and a request with another ``Origin`` is refused. No header allows other
origins (CORS).

It imports no more than settings need, since the command line reads it before it knows what it is asked for.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pydantic import Field

from warmstart.config import Advanced, Config, InFile
from warmstart.errors import ConfigError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
BODY_SECONDS = 30
"""in which a body must have arrived"""
LINGER_BYTES, LINGER_SECONDS, SILENT_SECONDS = 64 << 20, 30, 5
"""bytes of a refused body that are read and thrown away, so that a client which sends all first gets the answer; in how many
seconds, and after how many in which nothing came the connection is closed"""
CLIENTS = 10_000
"""clients whose rate is remembered"""
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""headers of every answer"""
OPEN = ("/health",)
"""paths that need no token and are answered by any name, so that a supervisor can ask"""


@dataclass(frozen=True)
class AccessRules:
    """The requests that a guard lets pass."""

    hosts: tuple[str, ...] = LOOPBACK
    """names and addresses by which the server may be called, without port"""
    token: str | None = None
    """requests must carry it (``Authorization: Bearer``, or as the password of a browser); None: none is needed"""
    most_bytes: int = 2 << 20
    """bytes of a body"""
    rate: float | None = None
    """requests per second of a client; None: any"""


class _RefusedError(Exception):
    def __init__(self, status: int, message: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        self.status, self.message, self.headers = status, message, tuple(headers)


class Guard:
    """Wraps an ASGI application."""

    def __init__(self, app: App, rules: AccessRules, clock: Callable[[], float] = time.monotonic) -> None:
        self.app, self.rules, self.clock = app, rules, clock
        self._allowance: OrderedDict[str, tuple[float, float]] = OrderedDict()  # network -> (requests left, when that was)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # there are no web sockets here

        begun = False

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                names = {name for name, _ in message["headers"]}
                added = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items() if name.encode() not in names]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, await self._whole_body(receive), send_with_headers)
        except _RefusedError as refused:
            if not begun:
                await self._refuse(refused, receive, send_with_headers)

    def _check(self, scope: Scope) -> None:
        headers = _headers(scope)
        host = headers.get("host", "")
        name = _address(f"//{host}").hostname
        if name not in self.rules.hosts and scope["path"] not in OPEN:
            known = " or ".join(self.rules.hosts)
            raise _RefusedError(421, f"this server must be called as {known}; start it with --allowed-hosts NAME for another one")
        origin = headers.get("origin")
        if origin is not None and _address(origin).netloc != host:
            raise _RefusedError(403, "requests from pages of other sites are refused")
        if self.rules.rate is not None:
            self._count(network_of((scope.get("client") or ("", 0))[0]), self.rules.rate)
        if not self._may_pass(scope["path"], headers.get("authorization", "")):
            asks = [("www-authenticate", 'Basic realm="warmstart: any name, the token as password", charset="UTF-8"')]
            raise _RefusedError(401, "a token is needed: Authorization: Bearer TOKEN", asks)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 20 or int(length) > self.rules.most_bytes:
            raise _RefusedError(413, f"a body must have at most {self.rules.most_bytes:,} bytes")

    def _may_pass(self, path: str, authorization: str) -> bool:
        """True if the token is right, or none is needed."""
        token = self.rules.token
        return token is None or path in OPEN or hmac.compare_digest(_token(authorization), token.encode())

    def _count(self, client: str, rate: float) -> None:
        """A bucket for each client: it holds a second's requests, at least ten, and fills steadily."""
        now, most = self.clock(), max(10.0, rate)
        left, then = self._allowance.pop(client, (most, now))
        left = min(most, left + (now - then) * rate)
        self._allowance[client] = (max(0.0, left - 1), now)
        while len(self._allowance) > CLIENTS:
            self._allowance.popitem(last=False)
        if left < 1:
            raise _RefusedError(429, f"at most {rate:g} requests per second are answered; send fewer", [("retry-after", "1")])

    async def _whole_body(self, receive: Receive) -> Receive:
        """``receive`` with the body read already, as one message; refused once it is too long or too slow."""
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more:
                    message = await receive()
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > self.rules.most_bytes:
                        raise _RefusedError(413, f"a body must have at most {self.rules.most_bytes:,} bytes")
                    if message["type"] == "http.disconnect":
                        raise _RefusedError(400, "the body must arrive whole")
        except TimeoutError:
            raise _RefusedError(408, f"a body must arrive within {BODY_SECONDS} seconds") from None
        messages = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replayed() -> MutableMapping[str, Any]:
            return messages.pop() if messages else await receive()

        return replayed

    async def _refuse(self, refused: _RefusedError, receive: Receive, send: Send) -> None:
        """Say why, read on a little, lest the answer be lost to a client that still sends, and close the connection."""
        body = json.dumps({"error": refused.message}).encode()
        fields = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        headers = [(name.encode(), value.encode()) for name, value in (*fields, *refused.headers)]
        await send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        left, more = LINGER_BYTES, True
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while more and left > 0:
                    message = await asyncio.wait_for(receive(), SILENT_SECONDS)
                    left, more = left - len(message.get("body", b"")), message.get("more_body", False)
        await send({"type": "http.response.body", "body": b""})


def _headers(scope: Scope) -> dict[str, str]:
    """The headers; one that comes twice is refused if it decides who may pass."""
    headers: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1").lower()
        if name in headers and name in ("host", "origin", "authorization", "content-length"):
            raise _RefusedError(400, f"the header {name} must come once")
        headers[name] = value.decode("latin-1")
    return headers


def _token(authorization: str) -> bytes:
    """The token of a header: given as such, or as the password that a browser asks for."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "basic":
        with suppress(ValueError):
            return base64.b64decode(value, validate=True).partition(b":")[2]
    return value.encode("latin-1") if scheme.lower() == "bearer" else b""


def _address(url: str) -> SplitResult:
    """The parts of an address; of what is none, empty ones."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


def network_of(address: str) -> str:
    """The network of an address: of IPv6 the first half, since one client may have all of the other half."""
    if ":" not in address:
        return address
    network = IPv6Address(address)
    return str(network.ipv4_mapped or network.packed[:8].hex())


TOKEN_VARIABLE = "WARMSTART_TOKEN"
"""environment variable of the token: other users of this machine see the flags of a process"""
EXPOSED_RATE = 20.0
"""requests per second of a client on another machine"""


class AccessSettings(Config):
    """The address of a server, and the rules of access."""

    host: str = "127.0.0.1"
    """address to listen at; any other than this machine's own needs a token"""
    port: int = Field(8000, ge=0, le=65535)
    """port; 0: any free one"""
    token: str | None = None
    """requests must carry it (Authorization: Bearer TOKEN); better in the environment, as WARMSTART_TOKEN"""
    allowed_hosts: Advanced[tuple[str, ...]] = ()
    """further names by which the server may be called"""
    rate: InFile[float | None] = Field(None, gt=0)
    """requests per second of a client; default: any from this machine, 20 from others"""
    max_body: InFile[int] = Field(2 << 20, gt=0)
    """bytes of a request"""

    def rules(self) -> AccessRules:
        """Raises ``ConfigError`` for a token that is too short, or one that is missing where others can reach the server."""
        token = self.token or os.environ.get(TOKEN_VARIABLE) or None
        local = self.host in LOOPBACK
        if not local and token is None:
            raise ConfigError(
                f"with --host {self.host} others can reach the server, so it needs a token; set {TOKEN_VARIABLE}, or give --token"
            )
        if token is not None and (len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token):
            raise ConfigError("a token must have at least 16 characters of ASCII without spaces; `openssl rand -hex 16` makes one")
        names = tuple(dict.fromkeys((*LOOPBACK, self.host, *self.allowed_hosts)))
        return AccessRules(names, token, self.max_body, self.rate if local else self.rate or EXPOSED_RATE)

    @property
    def alone(self) -> bool:
        """True if only users of this machine can ask: no token and no other name says that anybody else does."""
        return self.host in LOOPBACK and not (self.token or os.environ.get(TOKEN_VARIABLE) or self.allowed_hosts)


def missing_extra(command: str, error: ImportError) -> ConfigError:
    """The error where the extra of servers is not installed."""
    return ConfigError(f'{command} needs {error.name}, which is not installed; pip install "warmstart[app]"')
