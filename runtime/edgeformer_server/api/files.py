"""Files: ``/translate_file`` and ``/download_file`` of LibreTranslate's API."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from edgeformer_server.access import is_address
from edgeformer_server.api.types import TranslatedFile
from edgeformer_server.errors import ApiError
from edgeformer_server.files.document_process import DocumentRequest
from edgeformer_server.languages import Hop, chosen_pair
from edgeformer_server.request import (
    ServerContext,
    check_sizes,
    client_of,
    context_of,
    json_response,
    read_fields,
    run_while_connected,
)
from edgeformer_text.block import Block
from edgeformer_text.documents.files import SUFFIXES

OFFICE = (".docx", ".odt")
"""Files that need lxml."""
EXTENSIONS = tuple(suffix for suffix in SUFFIXES if suffix not in OFFICE or find_spec("lxml"))
"""Files that can be translated."""


async def translate_file(request: Request) -> Response:
    """Translate a file."""
    context = context_of(request)
    if context.files is None:
        raise ApiError(403, "Files translation are disabled on this server.")
    fields = await read_fields(request)
    context.access.check(fields.api_key, client_of(request))
    upload = fields.upload("file")
    source, target = fields.text("source"), fields.text("target")
    name = PurePath(upload.name.replace("\\", "/")).name
    if not name:
        raise ApiError(400, "Invalid request: empty file")
    if PurePath(name).suffix.lower() not in EXTENSIONS:
        raise ApiError(400, "Invalid request: file format not supported")
    work = _translated(context, DocumentRequest(name, upload.content), source, target)
    content, target = await run_while_connected(request, work, context.settings.request_seconds)
    client = context.access.identity(fields.api_key, client_of(request))
    stored = await asyncio.to_thread(context.files.store, client, name, target, content)
    return json_response(TranslatedFile(f"{_address(request)}/download_file/{quote(stored)}"))


async def _translated(context: ServerContext, document: DocumentRequest, source: str, target: str) -> tuple[bytes, str]:
    """Translate a document, and return the code of the target language too."""
    pieces = (await context.service.documents.ask(document)).pieces

    def chosen() -> tuple[str, str, dict[str, Any], tuple[Hop, ...]]:
        blocks = (part for piece in pieces for part in piece if isinstance(part, Block))
        texts = [text for block in blocks for text in block.texts]
        check_sizes(context, ["".join(texts)])
        return chosen_pair(context.service.workspace.catalog(), source, target, texts)

    source, target, _, route = await asyncio.to_thread(chosen)
    if source == target:
        raise ApiError(400, "Invalid request: the file is in the target language already")
    return await context.service.translate_document(document, pieces, route), target


async def download_file(request: Request) -> Response:
    """Download a translated file."""
    stored, name = context_of(request).files, request.path_params["name"]
    if stored is None:
        raise ApiError(400, "Files translation are disabled on this server.")
    path = await asyncio.to_thread(stored.path, name)
    return FileResponse(path, filename=name.partition(".")[2], media_type="application/octet-stream")


def _address(request: Request) -> str:
    """The server's address as the client wrote it, unless that is a name that the server does not know."""
    url, (host, port) = request.url, request.scope["server"]
    name = (url.hostname or "").lower()
    if name not in ("localhost", *context_of(request).settings.allowed_hosts) and not is_address(name):
        return f"{url.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    return f"{url.scheme}://{url.netloc}"


ROUTES = [
    Route("/translate_file", translate_file, methods=["POST"]),
    Route("/download_file/{name}", download_file, methods=["GET"]),
]
