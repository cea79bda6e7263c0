"""LibreTranslate's part of the API in the format of Swagger 2, which its clients read from ``/spec``."""

from __future__ import annotations

from typing import Any

import edgeformer_runtime

_STRING = {"type": "string"}
_TEXTS = {"description": "a string, or in JSON a list of strings"}
_ERRORS = {
    "400": "Invalid request",
    "403": "Forbidden",
    "404": "Not found",
    "408": "The request did not arrive in time",
    "413": "The request is too large",
    "429": "Slow down",
    "500": "Translation error",
    "503": "Busy",
    "504": "The translation took too long",
}
_READING = ("400", "403", "408", "413", "429", "500")
"""Errors of an operation that reads fields."""
_TRANSLATING = (*_READING, "503", "504")
_FILE = {"type": "file"}
_DETECTION = {
    "type": "object",
    "properties": {"confidence": {"type": "number", "minimum": 0, "maximum": 100}, "language": _STRING},
}
_LANGUAGE = {
    "type": "object",
    "properties": {"code": _STRING, "name": _STRING, "targets": {"type": "array", "items": _STRING}},
}
_TRANSLATION = {
    "type": "object",
    "required": ["translatedText"],
    "properties": {"translatedText": _TEXTS, "detectedLanguage": _DETECTION, "alternatives": {"type": "array"}},
}


def _operation(
    summary: str, answer: dict[str, Any], *fields: str, errors: tuple[str, ...] = ("500",), consumes: str = ""
) -> dict[str, Any]:
    """An operation; names of required fields end with ``!``."""
    parameters = [
        {
            "in": "formData",
            "name": field.rstrip("!"),
            "required": field.endswith("!"),
            "type": {"file": "file", "alternatives": "integer"}.get(field.rstrip("!"), "string"),
        }
        for field in fields
    ]
    failures = {
        status: {"description": _ERRORS[status], "schema": {"type": "object", "properties": {"error": _STRING}}}
        for status in errors
    }
    operation: dict[str, Any] = {
        "summary": summary,
        "tags": ["translate"],
        "responses": {"200": {"description": "Success", "schema": answer}, **failures},
    }
    if fields:
        operation |= {"parameters": parameters, "consumes": [consumes or "application/x-www-form-urlencoded"]}
    return operation


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


SWAGGER: dict[str, Any] = {
    "swagger": "2.0",
    "info": {
        "title": "edgeformer",
        "description": "LibreTranslate's API. The server's own API is described by /openapi.json.",
        "version": edgeformer_runtime.__version__,
    },
    "basePath": "/",
    "paths": {
        "/translate": {
            "post": _operation(
                "Translate text",
                _TRANSLATION,
                *("q!", "source!", "target!", "format", "alternatives", "api_key"),
                errors=_TRANSLATING,
            )
        },
        "/detect": {
            "post": _operation(
                "Detect the language of a text",
                {"type": "array", "items": _DETECTION},
                *("q!", "api_key"),
                errors=_READING,
            )
        },
        "/languages": {"get": _operation("List languages", {"type": "array", "items": _LANGUAGE})},
        "/translate_file": {
            "post": _operation(
                "Translate a file",
                _object(translatedFileUrl=_STRING),
                *("file!", "source!", "target!", "api_key"),
                errors=_TRANSLATING,
                consumes="multipart/form-data",
            )
        },
        "/download_file/{name}": {
            "get": _operation("Download a translated file", _FILE, errors=("400", "404"))
            | {"parameters": [{"in": "path", "name": "name", "required": True, "type": "string"}]}
        },
        "/suggest": {
            "post": _operation(
                "Suggest a translation",
                _object(success={"type": "boolean"}),
                *("q!", "s!", "source!", "target!", "api_key"),
                errors=_READING,
            )
        },
        "/frontend/settings": {"get": _operation("Settings for a page", {"type": "object"})},
        "/health": {"get": _operation("Tell whether the server runs", _object(status=_STRING), errors=())},
    },
}
"""The document."""
