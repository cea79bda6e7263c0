"""What the endpoints of a process share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from edgeformer_runtime.serve.access import Access
from edgeformer_runtime.serve.errors import ApiError
from edgeformer_runtime.serve.files.stored_files import StoredFiles
from edgeformer_runtime.serve.metrics import Metrics
from edgeformer_runtime.serve.service import Service
from edgeformer_runtime.serve.settings import ServeSettings

Result = TypeVar("Result")


@dataclass
class Context:
    """What the endpoints of a process share."""

    settings: ServeSettings
    service: Service
    access: Access
    metrics: Metrics
    files: StoredFiles | None = None
    """Translated files; ``None`` if files are not translated."""
    is_draining: bool = False
    """Whether the server is shutting down."""


def context_of(request: Request) -> Context:
    """The context of a request."""
    context: Context = request.app.context
    return context


async def finished(request: Request, work: Coroutine[Any, Any, Result], seconds: float) -> Result:
    """Wait for work, but no longer than the client does; work that is not finished is canceled.

    Raises:
        ApiError: 499, the client went away.
        TimeoutError: the work took too long.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        done, _ = await asyncio.wait({task, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task in done:
            return task.result()
        if gone in done:
            raise ApiError(499, "The client closed the connection.")
        raise TimeoutError
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


def client_of(request: Request) -> str:
    """Address of the client."""
    return request.client.host if request.client else ""


def bearer_token(request: Request) -> str:
    """Token of the ``Authorization`` header, or empty."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
