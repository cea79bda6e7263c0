"""The ASGI application of one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.engines.cpus import available_cpus, useful_threads
from edgeformer_runtime.translator import Translator
from edgeformer_server.access import Access
from edgeformer_server.api import files, libretranslate, page, v1
from edgeformer_server.api.types import Status
from edgeformer_server.files.file_store import FileStore, own_folder
from edgeformer_server.metrics import CONTENT_TYPE, Metrics
from edgeformer_server.middleware import RequestMiddleware
from edgeformer_server.request import ServerContext, bearer_token, client_of, context_of, json_response
from edgeformer_server.service import Service
from edgeformer_server.settings import ServeSettings
from edgeformer_server.workspace import Workspace

ENGINE_THREADS = 64
"""Threads of operators of all models, besides one for each; ONNX Runtime starts them for each of a model's graphs."""


def make_workspace(settings: ServeSettings) -> Workspace:
    """Find the bundles of a server.

    Raises:
        EdgeformerError: see :class:`Workspace`.
    """
    cpus = available_cpus() // settings.batch.parallel

    def open_translator(bundle: Bundle) -> Translator:
        most = min(cpus, 1 + ENGINE_THREADS // max(1, len(workspace.catalog().models)))
        threads = settings.threads or useful_threads(bundle.nbytes, most)
        return Translator.open(bundle, device=settings.device, threads=threads)

    workspace = Workspace.of(
        settings.bundles,
        memory=settings.memory,
        open_translator=open_translator,
        trusted_keys=settings.trusted_keys or None,
    )
    return workspace


def make_context(settings: ServeSettings) -> ServerContext:
    """Make what the endpoints share.

    Raises:
        EdgeformerError: a bundle or the API keys cannot be read.
    """
    metrics = Metrics()
    service = Service(make_workspace(settings), settings, report=metrics.add_batch)
    return ServerContext(settings, service, Access.of(settings.api_keys, settings.rate_limit), metrics)


async def health(request: Request) -> Response:
    """Whether the server runs."""
    return json_response(Status("ok"))


async def ready(request: Request) -> Response:
    """Whether the server takes requests."""
    is_draining = context_of(request).is_draining
    return json_response(Status("draining"), 503) if is_draining else json_response(Status("ready"))


async def metrics(request: Request) -> Response:
    """Measurements for Prometheus."""
    context = context_of(request)
    if token := context.settings.metrics_token:
        context.access.check_token(bearer_token(request), token, client_of(request))
    text = await asyncio.to_thread(lambda: context.metrics.text(context.service.queue_lengths()))
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


ROUTES = [
    *libretranslate.ROUTES,
    *files.ROUTES,
    *v1.ROUTES,
    Route("/health", health, methods=["GET"]),
    Route("/ready", ready, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
]
"""The endpoints of the APIs."""


def make_app(context: ServerContext) -> RequestMiddleware:
    """Make the application."""

    @asynccontextmanager
    async def lifespan(app: object) -> AsyncIterator[None]:
        settings = context.settings
        with own_folder() as folder:
            if settings.files:
                context.files = FileStore(folder, settings.files_quota, settings.client_files_quota)
                removal = asyncio.create_task(context.files.remove_old())
            yield
            if settings.files:
                removal.cancel()
            await asyncio.to_thread(context.service.close)

    return RequestMiddleware(
        Router([*ROUTES, *page.routes(has_page=context.settings.page)], lifespan=lifespan), context
    )
