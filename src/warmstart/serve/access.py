"""The settings of a server that this and other machines may reach: where it listens, and who may ask."""

from __future__ import annotations

import os

from pydantic import Field

from warmstart.config import Advanced, Config, InFile
from warmstart.errors import ConfigError
from warmstart.serve.guard import LOOPBACK, AccessRules

TOKEN_VARIABLE = "WARMSTART_TOKEN"
"""environment variable of the token: other users of this machine see the flags of a process"""
EXPOSED_RATE = 20.0
"""requests per second of a client on another machine"""


class AccessSettings(Config):
    """Where a server listens, and who may ask."""

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


def missing_extra(command: str, error: ImportError) -> ConfigError:
    """What to say where the extra of servers is not installed."""
    return ConfigError(f'{command} needs {error.name}, which is not installed; pip install "warmstart[app]"')
