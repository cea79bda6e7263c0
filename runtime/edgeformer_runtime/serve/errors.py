"""Errors of a request, as JSON: ``{"error": "…"}``."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from edgeformer_runtime.errors import EdgeformerError, InputError, InputTooLongError, OptionError
from edgeformer_runtime.serve.batching import ClosedError, QueueFullError


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


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Encode a response as JSON."""
    return Response(msgspec.json.encode(content), status, dict(headers or {}), "application/json")


def as_api_error(error: Exception) -> ApiError:
    """Turn any error into what the client is told. Errors that are not the client's say nothing about the server."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFullError):
        return ApiError(503, str(error), {"Retry-After": str(error.retry_after)})
    if isinstance(error, ClientDisconnect):
        return ApiError(499, "The client closed the connection.")
    if isinstance(error, ClosedError):
        return ApiError(503, str(error), {"Retry-After": "1"})
    if isinstance(error, InputTooLongError):
        return ApiError(
            400,
            f"Invalid request: a sentence has {error.length} tokens, but the model accepts at most {error.limit}; "
            "break it into lines.",
        )
    if isinstance(error, InputError):  # its position is one in a batch with sentences of others
        return ApiError(400, f"Invalid request: a sentence {error.problem}")
    if isinstance(error, OptionError):
        return ApiError(400, f"Invalid request: {error}")
    if isinstance(error, TimeoutError):
        return ApiError(504, "The translation took too long; send less text at a time, or try again later.")
    return ApiError(500, "Cannot translate text: the model could not be used; the server's log says why.")
