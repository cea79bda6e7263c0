"""The API of LibreTranslate 1.9: the same endpoints, fields, answers and errors."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgeformer_runtime.bundle.text_format import public_code
from edgeformer_server import languages
from edgeformer_server.api.files import EXTENSIONS
from edgeformer_server.api.types import Language
from edgeformer_server.errors import ApiError
from edgeformer_server.languages import chosen_pair, detected
from edgeformer_server.request import (
    Fields,
    ServerContext,
    check_sizes,
    client_of,
    context_of,
    json_response,
    read_fields,
    run_while_connected,
)
from edgeformer_server.service import Job
from edgeformer_text.languages import can_detect_languages
from edgeformer_text.options import Format


async def translate_text(request: Request) -> Response:
    """Translate text."""
    context, fields = context_of(request), await read_fields(request)
    context.access.check(fields.api_key, client_of(request), fields.length("q"))
    given = fields.texts("q")
    texts = [given] if isinstance(given, str) else given
    source, target = fields.text("source"), fields.text("target")
    count = _alternatives(context, fields)
    format = next((known for known in get_args(Format) if known == (fields.values.get("format") or "text")), None)
    check_sizes(context, texts, format or "text")
    request.state.log.update(texts=len(texts), characters=sum(map(len, texts)))
    choose = partial(chosen_pair, context.service.workspace.catalog(), source, target, texts, format or "text")
    *_, found, route = await asyncio.to_thread(choose) if source.lower() == "auto" else choose()
    if format is None:
        raise ApiError(400, f"{str(fields.values['format'])[:64]} format is not supported")
    changes = {"n_best": count + 1, "return_alternatives": True} if count and format == "text" else {}
    job = Job(texts, route, format, changes=changes, seconds=context.settings.request_seconds)
    results = await run_while_connected(request, context.service.translate(job), job.seconds)
    ranks = [[result.text for result in rank] for rank in results]
    answer: dict[str, Any] = {"translatedText": [rank[0] for rank in ranks]}
    if found:
        answer["detectedLanguage"] = [found] * len(texts)
    if count:
        answer["alternatives"] = [rank[1:] if format == "text" else [] for rank in ranks]
    return json_response({key: value[0] for key, value in answer.items()} if isinstance(given, str) else answer)


def _alternatives(context: ServerContext, fields: Fields) -> int:
    count, limit = fields.count("alternatives"), context.settings.max_alternatives
    if count > limit:
        raise ApiError(400, f"Invalid request: alternatives parameter must be <= {limit}")
    return count


async def detect(request: Request) -> Response:
    """Detect the language of a text."""
    context, fields = context_of(request), await read_fields(request)
    context.access.check(fields.api_key, client_of(request))
    given = fields.texts("q")
    texts = [given] if isinstance(given, str) else given
    return json_response(await asyncio.to_thread(detected, context.service.workspace.catalog(), texts))


async def list_languages(request: Request) -> Response:
    """List languages."""
    catalog = context_of(request).service.workspace.catalog()
    shown = {code for model in catalog.models for code in (model.sources | model.targets) - model.aliases}
    return json_response(
        [
            Language(
                public_code(code),
                languages.language_name(code),
                [public_code(target) for target in catalog.targets_of(code) if target in shown],
            )
            for code in sorted(shown)
        ]
    )


async def frontend_settings(request: Request) -> Response:
    """List LibreTranslate's settings, and the limits that a page needs."""
    context = context_of(request)
    settings, catalog = context.settings, context.service.workspace.catalog()
    source = "auto" if can_detect_languages() else min(catalog.sources, default="")
    target = min(catalog.targets, key=lambda code: (code == "en", code), default="")
    return json_response(
        {
            "charLimit": settings.max_characters or -1,
            "sizeLimit": settings.max_body,
            "fileSizeLimit": settings.max_upload,
            "alternativesLimit": settings.max_alternatives,
            "frontendTimeout": 500,
            "apiKeys": context.access.needs_key,
            "keyRequired": context.access.needs_key,
            "suggestions": False,
            "filesTranslation": settings.files,
            "supportedFilesFormat": list(EXTENSIONS) if settings.files else [],
            "language": {
                "source": _language(source),
                "target": _language(target),
            },
        }
    )


def _language(code: str) -> dict[str, str]:
    name = "Auto Detect" if code == "auto" else languages.language_name(code)
    return {"code": public_code(code), "name": name}


ROUTES = [
    Route("/translate", translate_text, methods=["POST"]),
    Route("/detect", detect, methods=["POST"]),
    Route("/languages", list_languages, methods=["GET"]),
    Route("/frontend/settings", frontend_settings, methods=["GET"]),
]
