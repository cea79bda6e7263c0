"""Writes the description of the server's APIs: ``openapi.json``, and ``docs.html``, which lists the same for readers.

Usage: ``python -m tests.describe_api``, from the root of the repository, whenever an endpoint, a field or the version
changes; ``tests/server/test_openapi.py`` compares both files with what this makes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.routing import Route

import edgeformer_runtime
from edgeformer_server.api.types import (
    Language,
    Models,
    Status,
    TranslatedFile,
    TranslateRequest,
    TranslateResponse,
)
from edgeformer_server.app import ROUTES
from edgeformer_text.options import Format

PAGE = Path(str(files("edgeformer_server") / "page"))
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
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
EVENT = 'event: token\ndata: {"text":0,"sentence":0,"token":"Un","log_probability":-0.1,"partial":"Un"}\n\n'
"""An event of a stream."""


class Pair(Struct, kw_only=True, omit_defaults=True):
    """Fields of LibreTranslate's requests that translate."""

    source: str
    target: str
    api_key: str = ""


class TranslateFields(Pair, kw_only=True):
    """Fields of ``POST /translate``: a text, or in JSON a list of texts."""

    q: str | list[str]
    format: Format = "text"
    alternatives: int = 0


class FileFields(Pair, kw_only=True):
    """Fields of ``POST /translate_file``."""

    file: Annotated[str, Meta(extra_json_schema={"format": "binary"})]


class DetectFields(Struct, omit_defaults=True):
    """Fields of ``POST /detect``."""

    q: str | list[str]
    api_key: str = ""


class Detection(Struct):
    """A language that a text may be in."""

    confidence: Annotated[float, Meta(ge=0, le=100)]
    language: str


class Translation(Struct, omit_defaults=True, rename="camel"):
    """Answer to ``POST /translate``, with lists for a list of texts."""

    translated_text: str | list[str]
    detected_language: Detection | list[Detection] | UnsetType = UNSET
    alternatives: list[str | list[str]] = []


class Error(Struct):
    """Body of every error."""

    error: str


@dataclass(frozen=True)
class Operation:
    """What is said of an endpoint, whose docstring says what it does."""

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

    def described(self, route: Route, schema: Callable[[Any], Any]) -> dict[str, Any]:
        """The description, with the schemas that a function returns for types."""
        answer = {JSON: {"schema": schema(self.answer)}} if self.answer else {}
        answer |= {kind: {"example": example} for kind, example in self.examples.items()}
        failure = {JSON: {"schema": schema(self.failure)}}
        responses = {"200": {"description": "Success", "content": answer}}
        responses |= {str(status): {"description": ERRORS[status], "content": failure} for status in self.errors}
        summary = (inspect.getdoc(route.endpoint) or "").partition("\n")[0].rstrip(".")
        description: dict[str, Any] = {"operationId": route.endpoint.__name__, "summary": summary}
        description |= {"tags": ["v1" if route.path.startswith("/v1/") else "LibreTranslate"], "responses": responses}
        if 401 in self.errors or 403 in self.errors:
            description["security"] = [{}, {"key": []}]
        if self.fields:
            content = {kind: {"schema": schema(self.fields)} for kind in self.kinds}
            description["requestBody"] = {"required": True, "content": content}
        if "{name}" in route.path:
            name = {"in": "path", "name": "name", "required": True, "schema": {"type": "string"}}
            description["parameters"] = [name]
        return description


OPERATIONS = {
    "/translate": Operation(Translation, TranslateFields, TRANSLATING, (JSON, FORM)),
    "/detect": Operation(list[Detection], DetectFields, READING, (JSON, FORM)),
    "/languages": Operation(list[Language]),
    "/frontend/settings": Operation(dict[str, Any]),
    "/translate_file": Operation(TranslatedFile, FileFields, TRANSLATING, ("multipart/form-data",)),
    "/download_file/{name}": Operation(errors=(400, 404), examples={"application/octet-stream": ""}),
    "/v1/translate": Operation(
        TranslateResponse, TranslateRequest, (*TRANSLATING, 401), examples={"text/event-stream": EVENT}
    ),
    "/v1/models": Operation(Models),
    "/health": Operation(Status, errors=()),
    "/ready": Operation(Status, errors=(503,), failure=Status),
    "/metrics": Operation(errors=(401,), examples={"text/plain": ""}),
}
"""All endpoints but those of the description itself."""


def described() -> dict[str, Any]:
    """The description of all endpoints."""
    operations = [(route, OPERATIONS[route.path]) for route in ROUTES]
    used = (kind for _, operation in operations for kind in (operation.answer, operation.fields, operation.failure))
    types = [kind for kind in used if kind is not None]
    references, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for route, operation in operations:
        (method,) = (route.methods or set()) - {"HEAD"}
        paths[route.path] = {method.lower(): operation.described(route, lambda kind: references[types.index(kind)])}
    return {
        "openapi": "3.1.0",
        "info": {"title": "edgeformer", "version": edgeformer_runtime.__version__},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def kind_of(schema: Mapping[str, Any]) -> str:
    """What a value may be, in words and as HTML."""
    match schema:
        case {"$ref": reference}:
            name = escape(reference.rpartition("/")[2])
            return f'<a href="#{name}">{name}</a>'
        case {"anyOf": choices}:
            return " or ".join(map(kind_of, choices))
        case {"enum": values}:
            return ", ".join(f"<code>{escape(str(value))}</code>" for value in values)
        case {"type": "array", "prefixItems": items}:
            return f"list of {len(items)}: {', '.join(map(kind_of, items))}"
        case {"type": "array"}:
            return f"list of {kind_of(schema.get('items', {}))}"
    words = escape(str(schema.get("type", "anything")))
    limits = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "maxLength": "length at most"}
    return ", ".join([words, *(f"{text} {schema[name]:g}" for name, text in limits.items() if name in schema)])


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in HTML, whose first column has the names of its rows."""
    cells = "".join(f'<th scope="col">{each}</th>' for each in head)
    body = "\n".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{each}</td>" for each in rest)}</tr>' for first, *rest in rows
    )
    return f"<table>\n<caption>{caption}</caption>\n<tr>{cells}</tr>\n{body}\n</table>"


def listed(document: Mapping[str, Any]) -> str:
    """The page that lists the endpoints and types of a description."""
    parts = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2>{method.upper()} {escape(path)}</h2>\n<p>{escape(operation['summary'])}.</p>")
            contents = operation.get("requestBody", {}).get("content", {})
            sent = [[f"<code>{kind}</code>", kind_of(content["schema"])] for kind, content in contents.items()]
            parts += [table("Request", ["media type", "body"], sent)] if sent else []
            answers = [
                [status, escape(answer["description"]), escape(kind), kind_of(content.get("schema", {}))]
                for status, answer in operation["responses"].items()
                for kind, content in answer["content"].items()
            ]
            parts.append(table("Answers", ["status", "meaning", "media type", "body"], answers))
    parts.append("<h2>Types</h2>")
    for name, schema in document["components"]["schemas"].items():
        required = schema.get("required", ())
        rows = [
            [f"<code>{escape(field)}</code>", kind_of(kind), "yes" if field in required else "no"]
            for field, kind in schema.get("properties", {}).items()
        ]
        about = escape(schema.get("description", "").partition("\n")[0]).replace("``", "")
        parts.append(f'<h3 id="{escape(name)}">{escape(name)}</h3>\n<p>{about}</p>')
        parts += [table(f"Fields of {escape(name)}", ["field", "value", "always there"], rows)] if rows else []
    return HEAD.substitute(body="\n".join(parts))


HEAD = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>API</title>
<link rel="icon" href="logo.svg">
<link rel="stylesheet" href="page.css">
</head>
<body>
<header><img src="logo.svg" alt="" width="36" height="36"> <a href="./">← Translate</a></header>
<main class="docs">
<h1>API</h1>
<p>The same as <a href="openapi.json">openapi.json</a>, for readers. An API key is sent as a bearer token or as
<code>api_key</code>.</p>
$body
</main>
</body>
</html>
""")


def contents() -> dict[Path, str]:
    """What the files must contain."""
    document = described()
    text = msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"
    return {PAGE / "openapi.json": text, PAGE / "docs.html": listed(document)}


def main() -> None:
    """Write both files."""
    for path, text in contents().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
