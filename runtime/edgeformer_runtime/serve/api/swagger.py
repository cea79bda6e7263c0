"""LibreTranslate's part of the API in the format of Swagger 2, which its clients read from ``/spec``."""

from __future__ import annotations

from typing import Any

import edgeformer_runtime

_STRING = {"type": "string"}
_TEXTS = {"description": "a string, or in JSON a list of strings"}
_ERRORS = {"400": "Invalid request", "403": "Forbidden", "429": "Slow down", "500": "Translation error", "503": "Busy"}
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


def _operation(summary: str, answer: dict[str, Any], *fields: str, consumes: str = "") -> dict[str, Any]:
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
    errors = {
        status: {"description": text, "schema": {"type": "object", "properties": {"error": _STRING}}}
        for status, text in (_ERRORS.items() if fields else ())
    }
    operation: dict[str, Any] = {
        "summary": summary,
        "tags": ["translate"],
        "responses": {"200": {"description": "Success", "schema": answer}, **errors},
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
                "Translate text", _TRANSLATION, "q!", "source!", "target!", "format", "alternatives", "api_key"
            )
        },
        "/detect": {
            "post": _operation("Detect the language of a text", {"type": "array", "items": _DETECTION}, "q!", "api_key")
        },
        "/languages": {"get": _operation("List languages", {"type": "array", "items": _LANGUAGE})},
        "/translate_file": {
            "post": _operation(
                "Translate a file",
                _object(translatedFileUrl=_STRING),
                "file!",
                "source!",
                "target!",
                "api_key",
                consumes="multipart/form-data",
            )
        },
        "/suggest": {
            "post": _operation(
                "Suggest a translation", _object(success={"type": "boolean"}), "q!", "s!", "source!", "target!"
            )
        },
        "/frontend/settings": {"get": _operation("Settings for a page", {"type": "object"})},
        "/health": {"get": _operation("Tell whether the server runs", _object(status=_STRING))},
    },
}
"""The document."""
