"""What the endpoints of a process share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from edgeformer_runtime.serve.access import Access
from edgeformer_runtime.serve.batching import ClosedError, QueueFullError
from edgeformer_runtime.serve.errors import ApiError, as_api_error, json_response
from edgeformer_runtime.serve.files.stored_files import StoredFiles
from edgeformer_runtime.serve.metrics import Metrics
from edgeformer_runtime.serve.service import Service
from edgeformer_runtime.serve.settings import ServeSettings

LOG = logging.getLogger("edgeformer.serve")
Result = TypeVar("Result")
Endpoint = Callable[[Request], Awaitable[Response]]


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
    lag: float = 0.0
    """Seconds by which the process is behind with what it has to do."""


def context_of(request: Request) -> Context:
    """The context of a request."""
    context: Context = request.app.state.context
    return context


def endpoint(answer: Endpoint) -> Endpoint:
    """Turn every error of an endpoint into a JSON response."""

    @wraps(answer)
    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except asyncio.CancelledError:
            if not context_of(request).is_draining:
                raise
            return error_response(ClosedError("The server is shutting down."))  # its time to do so is over
        except Exception as error:
            return error_response(error)
        finally:
            await request.close()  # uploaded files

    return answered


def error_response(error: Exception) -> Response:
    """The response to an error; one of the server is logged, without texts."""
    known = as_api_error(error)
    if known.status >= 500 and not isinstance(error, ApiError | QueueFullError | ClosedError | TimeoutError):
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else ""
        what = str(error) if known.status == 500 and type(error).__module__ == "edgeformer_runtime.errors" else ""
        LOG.error("request failed", extra={"fields": {"error": type(error).__name__, "what": what, "where": where}})
    return json_response({"error": known.message}, known.status, known.headers)


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
