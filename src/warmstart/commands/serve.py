"""``serve``: an HTTP API for models, on this machine unless told otherwise."""

from __future__ import annotations

from contextlib import nullcontext

from pydantic import Field
from tyro.conf import Positional

from warmstart.app.batches import JOINED_TOKENS, QUEUE, WAIT_SECONDS, bound_kernel_caches
from warmstart.app.guard import AccessSettings, missing_extra
from warmstart.config import Advanced, Effectless, InFile
from warmstart.errors import ConfigError
from warmstart.system.console import console


class ServeConfig(AccessSettings):
    """Serve models over HTTP: predict, generate, embed, explain. The description is at /openapi.json."""

    models: Positional[tuple[str, ...]]
    """adapted or pretrained models: bundles, stacks or folders of runs; NAME=FOLDER gives a name"""
    texts: tuple[str, ...] = ()
    """tasks that models learned from, whose texts are shown beside predictions for similar ones; default: on this machine alone
    those of the run that made a model, where they are unchanged"""
    corpus: str | None = None
    """text of up to a few million tokens, whose actual continuations are shown beside those of the model"""
    label: str | None = None
    """labelling project on a second tab; a new one starts with the texts and labels that the model learned from"""
    queue: InFile[int] = Field(QUEUE, gt=0)
    """requests that may wait; further ones get 429"""
    threads: Effectless[Advanced[int | None]] = Field(None, gt=0)
    """number of threads that compute; default: one for each core that is free"""


def serve(config: ServeConfig) -> None:
    """The ``serve`` command: load the models, and answer requests until the process is asked to end."""
    if not config.models:
        raise ConfigError("there is nothing to serve; give at least one model")
    rules = config.rules()
    bound_kernel_caches()
    try:
        from warmstart.app.label_routes import labels_api
        from warmstart.app.routes import Server, make_app
        from warmstart.app.running import listen, run
    except ImportError as error:
        raise missing_extra("serve", error) from None
    import torch

    from warmstart.app.models import Corpus, open_models
    from warmstart.commands.label import labelling
    from warmstart.system.device import free_threads
    from warmstart.tasks.load import load_task

    torch.set_num_threads(config.threads or free_threads())
    with listen(config.host, config.port) as listening:  # an address that is taken is said before the models are loaded
        models = open_models(
            config.models, [load_task(path) for path in config.texts], Corpus(config.corpus) if config.corpus else None
        )
        for model in models:
            console.print(f"{model.name}: {', '.join(model.abilities)}")
        with labelling(config.label, next(iter(models)).path) if config.label else nullcontext() as session:
            server = Server(models, JOINED_TOKENS, WAIT_SECONDS, config.queue, config.alone)
            labels = labels_api(session, rules, "../") if session else None
            run(make_app(server, rules, labels), listening, config.host, models)
