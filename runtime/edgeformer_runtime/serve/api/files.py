"""Files: ``/translate_file`` and ``/download_file`` of LibreTranslate's API."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from contextlib import suppress
from pathlib import Path, PurePath

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from edgeformer_runtime.serve.api.fields import read_fields
from edgeformer_runtime.serve.api.pairs import check_sizes, chosen_pair
from edgeformer_runtime.serve.context import client_of, context_of, endpoint, finished
from edgeformer_runtime.serve.errors import ApiError, json_response
from edgeformer_runtime.serve.service import Job

EXTENSIONS = (".txt",)
"""Files that can be translated."""
KEPT_SECONDS = 30 * 60
"""How long a translated file can be downloaded."""
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
    try:
        text = (await upload.read()).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ApiError(400, "Invalid request: the file is not UTF-8 text") from None
    check_sizes(context, [text])
    source, target, _ = await asyncio.to_thread(chosen_pair, context.service, source, target, [text])
    translated = text
    if source != target:
        work = context.service.translate(Job([text], source, target))
        translated = (await finished(request, work, context.settings.request_seconds))[0][0].text
    path = PurePath(re.sub(r"[^\w.-]", "_", name)[-100:])
    stored = f"{uuid.uuid4()}.{path.stem.lstrip('.') or 'file'}_{target}{path.suffix}"
    await asyncio.to_thread(_store, context.settings.files_folder, stored, translated)
    return json_response({"translatedFileUrl": str(request.url_for("download_file", name=stored))})


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


def _store(folder: Path, name: str, text: str) -> None:
    """Write a file, and remove old ones."""
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another process removed it
            if time.time() - path.stat().st_mtime > KEPT_SECONDS:
                path.unlink()
    (folder / name).write_text(text, encoding="utf-8", newline="")


ROUTES = [
    Route("/translate_file", translate_file, methods=["POST"]),
    Route("/download_file/{name}", download_file, methods=["GET"], name="download_file"),
]
