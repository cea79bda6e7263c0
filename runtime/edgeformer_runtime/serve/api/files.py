"""Files: ``/translate_file`` and ``/download_file`` of LibreTranslate's API."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path, PurePath
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from edgeformer_runtime.errors import DataError
from edgeformer_runtime.serve.api.fields import read_fields
from edgeformer_runtime.serve.api.pairs import check_sizes, chosen_pair
from edgeformer_runtime.serve.context import Context, client_of, context_of, endpoint, finished
from edgeformer_runtime.serve.errors import ApiError, json_response
from edgeformer_runtime.text.block import Block
from edgeformer_runtime.text.documents.files import SUFFIXES

OFFICE = (".docx", ".odt")
"""Files that need lxml."""
EXTENSIONS = tuple(suffix for suffix in SUFFIXES if suffix not in OFFICE or find_spec("lxml"))
"""Files that can be translated."""
KEPT_SECONDS = 30 * 60
"""How long a translated file can be downloaded."""
MAX_NAME = 120
"""Bytes of the name of a translated file that come from that of the original."""
_NAME = re.compile(r"[0-9a-f-]{36}\.[\w.-]{1,150}")


@endpoint
async def translate_file(request: Request) -> Response:
    """``POST /translate_file``."""
    context = context_of(request)
    if context.settings.files_folder is None:
        raise ApiError(403, "Files translation are disabled on this server.")
    fields = await read_fields(request)
    context.access.check(fields.api_key, client_of(request))
    upload = fields.upload("file")
    source, target = fields.text("source"), fields.text("target")
    name = PurePath((upload.filename or "").replace("\\", "/")).name
    if not name:
        raise ApiError(400, "Invalid request: empty file")
    if PurePath(name).suffix.lower() not in EXTENSIONS:
        raise ApiError(400, "Invalid request: file format not supported")
    content = await upload.read()
    try:
        work = _translated(context, content, name, source, target)
        content, target = await finished(request, work, context.settings.request_seconds)
    except DataError as error:
        raise ApiError(400, f"Invalid request: {error}") from None
    path = PurePath(re.sub(r"[^\w.-]", "_", name).encode()[-MAX_NAME:].decode(errors="ignore"))
    stored = f"{uuid.uuid4()}.{path.stem.lstrip('.') or 'file'}_{target}{path.suffix}"
    await asyncio.to_thread(_store, context.settings.files_folder, stored, content)
    return json_response({"translatedFileUrl": str(request.url_for("download_file", name=quote(stored)))})


async def _translated(context: Context, content: bytes, name: str, source: str, target: str) -> tuple[bytes, str]:
    """Translate a document, and return the code of the target language too."""
    document = await context.service.documents.read(content, name)
    blocks = (part for piece in document.pieces for part in piece if isinstance(part, Block))
    texts = [text for block in blocks for text in block.texts]
    check_sizes(context, ["".join(texts)])
    source, target, _ = await asyncio.to_thread(chosen_pair, context.service, source, target, texts)
    if source != target:
        content = await context.service.translate_document(document, source, target)
    return content, target


@endpoint
async def download_file(request: Request) -> Response:
    """``GET /download_file/NAME``."""
    folder, name = context_of(request).settings.files_folder, request.path_params["name"]
    if folder is None:
        raise ApiError(400, "Files translation are disabled on this server.")
    if not _NAME.fullmatch(name):
        raise ApiError(400, "Invalid filename")
    if not (folder / name).is_file():
        raise ApiError(404, "There is no such file; translated files are kept for half an hour.")
    return FileResponse(folder / name, filename=name.partition(".")[2], media_type="application/octet-stream")


def _store(folder: Path, name: str, content: bytes) -> None:
    """Write a file, and remove old ones."""
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another process removed it
            if time.time() - path.stat().st_mtime > KEPT_SECONDS:
                path.unlink()
    (folder / name).write_bytes(content)


ROUTES = [
    Route("/translate_file", translate_file, methods=["POST"]),
    Route("/download_file/{name}", download_file, methods=["GET"], name="download_file"),
]
