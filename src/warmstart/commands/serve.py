"""``serve``: an HTTP API for models, on this machine unless told otherwise."""

from __future__ import annotations

import os
from typing import Any

from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Advanced, Config
from warmstart.console import console
from warmstart.errors import ConfigError
from warmstart.serve.guard import LOOPBACK, AccessRules

TOKEN_VARIABLE = "WARMSTART_TOKEN"
"""environment variable of the token: other users of this machine see the flags of a process"""
EXPOSED_RATE = 20.0
"""requests per second of a client on another machine"""


class ServeConfig(Config):
    """Serve models over HTTP: predict, generate, embed, explain. The description is at /openapi.json."""

    models: Positional[tuple[str, ...]]
    """adapted or pretrained models: bundles, stacks or folders of runs; NAME=FOLDER gives a name"""
    texts: tuple[str, ...] = ()
    """tasks (YAML) that models were adapted to: their training texts are shown beside predictions for similar ones"""
    corpus: str | None = None
    """text of up to a few million tokens: while a model writes, what followed in this text stands beside what is probable"""
    host: str = "127.0.0.1"
    """address to listen at; any other than this machine's own needs a token"""
    port: int = Field(8000, ge=0, le=65535)
    """port; 0: any free one"""
    token: str | None = None
    """requests must carry it (Authorization: Bearer TOKEN); better in the environment, as WARMSTART_TOKEN"""
    allowed_hosts: Advanced[tuple[str, ...]] = ()
    """further names by which the server may be called"""
    rate: Advanced[float | None] = Field(None, gt=0)
    """requests per second of a client; default: any from this machine, 20 from others"""
    batch_tokens: Advanced[int] = Field(1024, gt=0)
    """tokens that are computed together, about; what fits into the cache of a processor is fastest"""
    wait_ms: Advanced[float] = Field(5.0, ge=0, le=1000)
    """milliseconds that a batch waits for more requests, at most"""
    queue: Advanced[int] = Field(256, gt=0)
    """requests that may wait; further ones get 429"""
    threads: Advanced[int | None] = Field(None, gt=0)
    """number of threads that compute; default: one for each core that is free"""
    max_body: Advanced[int] = Field(2 << 20, gt=0)
    """bytes of a request"""


def serve(config: ServeConfig) -> None:
    """The ``serve`` command: load the models, and answer requests until the process is asked to end."""
    if not config.models:
        raise ConfigError("there is nothing to serve; give at least one model")
    token = config.token or os.environ.get(TOKEN_VARIABLE) or None
    local = config.host in LOOPBACK
    if not local and token is None:
        raise ConfigError(
            f"with --host {config.host} others can reach the server, so it needs a token; set {TOKEN_VARIABLE}, or give --token"
        )
    if token is not None and (len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token):
        raise ConfigError("a token must have at least 16 characters of ASCII without spaces; `openssl rand -hex 16` makes one")
    try:
        from warmstart.serve.app import Server, make_app
        from warmstart.serve.running import run
    except ImportError as error:
        raise ConfigError(f"serve needs {error.name}, which is not installed; pip install 'warmstart[serve]'") from None
    import torch

    from warmstart.device import free_threads
    from warmstart.serve.corpus import Corpus
    from warmstart.serve.served import open_models
    from warmstart.tasks.load import load_task

    torch.set_num_threads(config.threads or free_threads())
    models = open_models(
        config.models, [load_task(path) for path in config.texts], Corpus(config.corpus) if config.corpus else None
    )
    server = Server(models, config.batch_tokens, config.wait_ms / 1000, config.queue)
    names: dict[str, Any] = dict.fromkeys((*LOOPBACK, config.host, *config.allowed_hosts))
    rules = AccessRules(tuple(names), token, config.max_body, config.rate if local else config.rate or EXPOSED_RATE)
    for one in models:
        console.print(f"{one.name}: {', '.join(one.abilities)}")
    run(make_app(server, rules), config.host, config.port, models)
