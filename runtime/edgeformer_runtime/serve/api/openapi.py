"""The endpoints, and their description in the format of OpenAPI 3.1."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import edgeformer_runtime
from edgeformer_runtime.serve.api.types import Error
from edgeformer_runtime.serve.errors import json_response

JSON = "application/json"
FORMS, FILE = (JSON, "application/x-www-form-urlencoded"), ("multipart/form-data",)
ERRORS = {
    400: "The request is not valid; the error says why.",
    401: "An API key or a token is required.",
    403: "The API key is missing or not valid, or this is disabled.",
    404: "The file no longer exists.",
    408: "The request did not arrive in time.",
    413: "The request is too large.",
    429: "Too many requests; Retry-After has the seconds to wait.",
    500: "The server failed; its log says why.",
    503: "Too many sentences wait, or the server is shutting down; Retry-After has the seconds to wait.",
    504: "The translation took too long.",
}
READING = (400, 403, 408, 413, 429, 500)
"""Errors of what reads a request."""
TRANSLATING = (*READING, 503, 504)


@dataclass(frozen=True)
class Operation:
    """An endpoint, and what is said about it; the first line of its docstring says what it does."""

    method: Literal["GET", "POST"]
    path: str
    endpoint: Callable[[Request], Awaitable[Response]]
    answer: Any = None
    """Type of its answer, if that is JSON."""
    fields: Any = None
    """Type of the fields of a request."""
    errors: Sequence[int] = (500,)
    kinds: Sequence[str] = (JSON,)
    """Media types of the fields."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Further media types of the answer."""
    failure: Any = Error
    """Type of the answer to what fails."""

    @property
    def route(self) -> Route:
        """What answers requests."""
        return Route(self.path, self.endpoint, methods=[self.method])

    @property
    def types(self) -> list[Any]:
        """What has a schema."""
        return [kind for kind in (self.answer, self.fields, self.failure) if kind is not None]

    def described(self, schema: Callable[[Any], Any]) -> dict[str, Any]:
        """The description, with the schemas that a function returns for types."""
        answer = {JSON: {"schema": schema(self.answer)}} if self.answer else {}
        answer |= {kind: {"example": example} for kind, example in self.examples.items()}
        failure = {JSON: {"schema": schema(self.failure)}}
        responses = {"200": {"description": "Success", "content": answer}}
        responses |= {str(status): {"description": ERRORS[status], "content": failure} for status in self.errors}
        summary = (inspect.getdoc(self.endpoint) or "").partition("\n")[0].rstrip(".")
        description: dict[str, Any] = {"operationId": self.endpoint.__name__, "summary": summary}
        description |= {"tags": ["v1" if self.path.startswith("/v1/") else "LibreTranslate"], "responses": responses}
        if 401 in self.errors or 403 in self.errors:
            description["security"] = [{}, {"key": []}]
        if self.fields:
            content = {kind: {"schema": schema(self.fields)} for kind in self.kinds}
            description["requestBody"] = {"required": True, "content": content}
        if "{name}" in self.path:
            name = {"in": "path", "name": "name", "required": True, "schema": {"type": "string"}}
            description["parameters"] = [name]
        return description


def described(operations: Sequence[Operation]) -> dict[str, Any]:
    """The description of all endpoints."""
    types = [kind for operation in operations for kind in operation.types]
    references, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {"title": "edgeformer", "version": edgeformer_runtime.__version__},
        "paths": {
            operation.path: {operation.method.lower(): operation.described(lambda kind: references[types.index(kind)])}
            for operation in operations
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def routes(operations: Sequence[Operation]) -> Iterator[Route]:
    """What answers requests for the endpoints, and for their description."""
    document = described(operations)

    async def openapi(request: Request) -> Response:
        return json_response(document)

    yield from (operation.route for operation in operations)
    for path in ("/openapi.json", "/spec"):  # the second one is LibreTranslate's
        yield Route(path, openapi, methods=["GET"])
