"""Requests as nobody should send them: whole and wrong, broken, and bytes of any kind."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

HOST = "Host: 127.0.0.1\r\n"
BODIES = (
    b"{", b"[" * 50_000, b"\x00\xff" * 200, b'{"inputs": 1e999}', b'{"inputs": ["\\ud800"]}', b'{"inputs": [[[["a"]]]]}',
    b'{"inputs": []}', b'{"inputs": ["a"], "top": -1}', b'{"inputs": ["a"], "model": "../../etc/passwd"}', b"null",
    b'{"inputs": ["' + b"a" * 150_000 + b'"]}', b'{"inputs": ["a"], "target_error": NaN}', b'{"text": "' + b"a " * 2_000 + b'"}',
)  # fmt: skip
HEADERS = (
    *[""] * 6, "Origin: http://[\r\n", "Origin: http://127.0.0.1\r\n", "Origin: null\r\n" * 2, f"Origin: {'[' * 9_000}\r\n",
    "Authorization: Basic =\r\n", "Authorization: Bearer \x7f\r\n", "Authorization: Basic Og==\r\n" * 2,
)  # fmt: skip
PATHS = ("predict", "tokens", "explain", "generate", "nearest", "embed", "reload", "nothing")


def hostile_request(draw: random.Random) -> bytes:
    """One of them."""
    body = draw.choice(BODIES)
    head = f"POST /api/{draw.choice(PATHS)} HTTP/1.1\r\n{HOST}{draw.choice(HEADERS)}Content-Type: application/json\r\n"
    whole = f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    return draw.choice(
        [
            *[whole] * 6,
            draw.randbytes(draw.randrange(1, 2_000)),
            whole[: draw.randrange(1, len(whole))],
            f"{head}Content-Length: {10**18}\r\n\r\n".encode() + body,
            f"{head}Content-Length: -1\r\n\r\n".encode() + body,
            f"{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode() + body,
            f"GET /{'../' * draw.randrange(1, 40)}etc/passwd HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n".encode(),
            f"GET /page/%2e%2e%2fapp.py%00 HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n".encode(),
            b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
            f"GET / HTTP/1.1\r\n{HOST}X: {'a' * 100_000}\r\n\r\n".encode(),
            f"{draw.choice(['TRACE', 'PUT', chr(127)])} /api/predict HTTP/1.1\r\n{HOST}\r\n".encode(),
        ]
    )


async def send_hostile(port: int, content: bytes) -> str:
    """Send it; the first digit of its status as "4xx", or "closed" if none comes.

    Who sends half a request closes the connection after half a second.
    """
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(content)
            line = await asyncio.wait_for(reader.readline(), 0.5 if b"Connection: close" not in content else 20.0)
            if line.startswith(b"HTTP/1.1 "):
                return f"{chr(line[9])}xx"
        finally:
            writer.close()
    return "closed"
