"""Errors of a request, as JSON: ``{"error": "…"}``."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from edgeformer_runtime.errors import DataError, EdgeformerError, InputError, InputTooLongError, OptionError
from edgeformer_server.queue.batching import ClosedError, QueueFullError

LOG = logging.getLogger("edgeformer.serve")


class ApiError(EdgeformerError):
    """A request cannot be answered.

    Attributes:
        status: HTTP status.
        message: one sentence for the client.
        headers: further headers of the response.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})


def as_api_error(error: BaseException) -> ApiError:
    """Turn any error into what the client is told. Errors that are not the client's say nothing about the server."""
    match error:
        case ApiError():
            return error
        case HTTPException():  # a path that does not exist, or a method that it does not have
            return ApiError(error.status_code, error.detail, error.headers)
        case ClientDisconnect():
            return ApiError(499, "The client closed the connection.")
        case InputTooLongError(length=length, limit=limit):
            return ApiError(
                400,
                f"Invalid request: a sentence has {length} tokens, but the model accepts at most {limit}; "
                "break it into lines.",
            )
        case InputError(problem=problem):  # its position is one in a batch with sentences of others
            return ApiError(400, f"Invalid request: a sentence {problem}")
        case OptionError() | DataError():
            return ApiError(400, f"Invalid request: {error}")
        case QueueFullError() | ClosedError():
            return ApiError(503, str(error), {"Retry-After": str(error.retry_after)})
        case TimeoutError():
            return ApiError(504, "The translation took too long; send less text at a time, or try again later.")
    return ApiError(500, "Cannot translate text: the model could not be used; the server's log says why.")
