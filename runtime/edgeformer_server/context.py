"""What the endpoints of a process share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from edgeformer_server.access import Access, network
from edgeformer_server.errors import ApiError
from edgeformer_server.files.file_store import FileStore
from edgeformer_server.metrics import Metrics
from edgeformer_server.service import Service
from edgeformer_server.settings import ServeSettings

Result = TypeVar("Result")
LARGE_BODY = 16384
"""Bytes from which on it takes longer to read a body than to let a thread do it."""


@dataclass
class ServerContext:
    """Settings, service and state that all endpoints share."""

    settings: ServeSettings
    service: Service
    access: Access
    metrics: Metrics
    files: FileStore | None = None
    """Translated files; ``None`` if files are not translated."""
    is_draining: bool = False
    """Whether the server is shutting down."""


def context_of(request: Request) -> ServerContext:
    """The context of a request."""
    context: ServerContext = request.app.context
    return context


async def run_while_connected(request: Request, work: Coroutine[Any, Any, Result], seconds: float) -> Result:
    """Wait for work, but no longer than the client does; work that is not finished is canceled.

    Raises:
        ApiError: 499, the client went away.
        TimeoutError: the work took too long.
    """
    is_gone = False

    async def leave() -> None:
        nonlocal is_gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        if not deadline.expired():
            is_gone = True
            deadline.reschedule(0.0)

    try:
        async with asyncio.timeout(seconds) as deadline:
            watch = asyncio.ensure_future(leave())
            try:
                return await work
            finally:
                watch.cancel()
    except TimeoutError:
        if is_gone:
            raise ApiError(499, "The client closed the connection.") from None
        raise


async def decode_body(body: bytes, read: Callable[[bytes], Result]) -> Result:
    """Read something from a body, a large one in a thread, so that other requests do not wait for it."""
    return await asyncio.to_thread(read, body) if len(body) > LARGE_BODY else read(body)


def client_of(request: Request) -> str:
    """What tells the client from others: its address, or that of its network."""
    return network(request.client.host) if request.client else ""


def bearer_token(request: Request) -> str:
    """Token of the ``Authorization`` header, or empty."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""
