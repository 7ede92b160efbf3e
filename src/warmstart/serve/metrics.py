"""Figures for Prometheus: requests, how long they took, batches and the queue."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from warmstart.serve.guard import App, Receive, Scope, Send


class Metrics:
    """What one server counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("path", "status")
        self.requests = Counter("warmstart_requests", "requests answered", labels, registry=self.registry)
        self.seconds = Histogram("warmstart_request_seconds", "seconds until the answer ended", ("path",), registry=self.registry)
        sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256)
        self.batch_requests = Histogram(
            "warmstart_batch_requests", "requests computed together", buckets=sizes, registry=self.registry
        )
        self.texts = Counter("warmstart_texts", "texts read in batches", registry=self.registry)
        self.tokens = Counter("warmstart_tokens", "tokens read in batches, about", registry=self.registry)
        self.generated = Counter("warmstart_generated_tokens", "tokens generated", registry=self.registry)
        self.waiting = Gauge("warmstart_waiting_requests", "requests in the queue", registry=self.registry)

    def observe_batch(self, requests: int, texts: int, tokens: int) -> None:
        """One batch was computed."""
        self.batch_requests.observe(requests)
        self.texts.inc(texts)
        self.tokens.inc(tokens)

    def text(self, waiting: int) -> bytes:
        """All figures in the text format of Prometheus."""
        self.waiting.set(waiting)
        return generate_latest(self.registry)


class Metered:
    """Wraps an ASGI application, and counts its answers by path. Paths that do not exist count as one."""

    def __init__(self, app: App, metrics: Metrics, known: Callable[[str], bool]) -> None:
        self.app, self.metrics, self.known = app, metrics, known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = perf_counter(), 500

        async def noting(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            path = scope["path"] if self.known(scope["path"]) else "other"
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(perf_counter() - started)
