"""The server's own API in the format of OpenAPI 3.1; schemas come from the types of requests and answers."""

from __future__ import annotations

from typing import Any

import msgspec

import edgeformer_runtime
from edgeformer_runtime.serve.api.types import Error, Models, Status, TranslateRequest, TranslateResponse

_TYPES = (TranslateRequest, TranslateResponse, Models, Error, Status)
_REFERENCES, _SCHEMAS = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
_SCHEMA: dict[type, Any] = dict(zip(_TYPES, _REFERENCES, strict=True))
_ERRORS = {
    400: "The request is not valid; the error says why.",
    401: "An API key is required.",
    403: "The API key is not valid.",
    408: "The request did not arrive in time.",
    413: "The request is too large.",
    429: "Too many requests; Retry-After has the seconds to wait.",
    500: "The server failed; its log says why.",
    503: "Too many sentences wait; Retry-After has the seconds to wait.",
    504: "The translation took too long.",
}


def _content(type_: type) -> dict[str, Any]:
    return {"application/json": {"schema": _SCHEMA[type_]}}


def _responses(type_: type, *errors: int) -> dict[str, Any]:
    responses = {"200": {"description": "Success", "content": _content(type_)}}
    return responses | {str(status): {"description": _ERRORS[status], "content": _content(Error)} for status in errors}


_TRANSLATE = {
    "operationId": "translate",
    "summary": "Translate texts",
    "security": [{}, {"key": []}],
    "requestBody": {"required": True, "content": _content(TranslateRequest)},
    "responses": _responses(TranslateResponse, *_ERRORS),
}
_TRANSLATE["responses"]["200"]["content"]["text/event-stream"] = {  # type: ignore[index]  # a tree of dictionaries
    "example": 'event: token\ndata: {"text":0,"sentence":0,"token":"Un","log_probability":-0.1,"partial":"Un"}\n\n',
}

OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "edgeformer", "version": edgeformer_runtime.__version__},
    "paths": {
        "/v1/translate": {"post": _TRANSLATE},
        "/v1/models": {
            "get": {"operationId": "models", "summary": "List the models", "responses": _responses(Models, 500)},
        },
        "/health": {
            "get": {"operationId": "health", "summary": "Whether the server runs", "responses": _responses(Status)},
        },
        "/metrics": {
            "get": {
                "operationId": "metrics",
                "summary": "Measurements for Prometheus",
                "security": [{}, {"key": []}],
                "responses": {
                    "200": {"description": "Success", "content": {"text/plain": {"schema": {"type": "string"}}}},
                    "401": {"description": "The server's token is required.", "content": _content(Error)},
                },
            },
        },
        "/ready": {
            "get": {
                "operationId": "ready",
                "summary": "Whether the server takes requests",
                "responses": _responses(Status)
                | {"503": {"description": "It does not; it is shutting down.", "content": _content(Status)}},
            },
        },
    },
    "components": {
        "schemas": _SCHEMAS,
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
    },
}
"""The document."""
