"""The ASGI application of one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from hmac import compare_digest
from pathlib import Path
from tempfile import TemporaryDirectory

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.engine.cpus import available_cpus, useful_threads
from edgeformer_runtime.serve.access import Access
from edgeformer_runtime.serve.api import files, libretranslate, page, v1
from edgeformer_runtime.serve.context import Context, bearer_token, context_of, endpoint
from edgeformer_runtime.serve.errors import ApiError, json_response
from edgeformer_runtime.serve.metrics import CONTENT_TYPE, Metrics
from edgeformer_runtime.serve.middleware import Shell
from edgeformer_runtime.serve.service import Service
from edgeformer_runtime.serve.settings import ServeSettings
from edgeformer_runtime.translator import Translator
from edgeformer_runtime.workspace.workspace import Workspace


def make_workspace(settings: ServeSettings) -> Workspace:
    """Find the bundles of a server.

    Raises:
        EdgeformerError: see :class:`Workspace`.
    """
    cpus = available_cpus() // (settings.workers * settings.batch.parallel)

    def open_translator(bundle: Bundle) -> Translator:
        threads = settings.threads or useful_threads(bundle.nbytes, cpus)
        return Translator.open(bundle, device=settings.device, threads=threads)

    return Workspace.of(
        settings.bundles,
        memory=settings.memory,
        open_translator=open_translator,
        trusted_keys=settings.trusted_keys or None,
    )


def make_context(settings: ServeSettings) -> Context:
    """Make what the endpoints share.

    Raises:
        EdgeformerError: a bundle or the API keys cannot be read.
    """
    metrics = Metrics()
    limit = settings.rate_limit
    service = Service(
        make_workspace(settings),
        settings.batch,
        max_streams=settings.max_streams,
        report=metrics.add_batch,
        watch=metrics.watch_queue,
    )
    return Context(settings, service, Access.of(settings.api_keys, limit), metrics)


@endpoint
async def health(request: Request) -> Response:
    """``GET /health``: the process runs."""
    return json_response({"status": "ok"})


@endpoint
async def ready(request: Request) -> Response:
    """``GET /ready``: requests are taken."""
    if context_of(request).is_draining:
        return json_response({"status": "draining"}, 503)
    return json_response({"status": "ready"})


@endpoint
async def metrics(request: Request) -> Response:
    """``GET /metrics``, for Prometheus."""
    context = context_of(request)
    token = context.settings.metrics_token
    if token and not compare_digest(bearer_token(request).encode(), token.encode()):
        raise ApiError(401, "Unauthorized")
    return Response(await asyncio.to_thread(context.metrics.text), headers={"Content-Type": CONTENT_TYPE})


def make_app(context: Context) -> ASGIApp:
    """Make the application."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with TemporaryDirectory(prefix="edgeformer-files-") as folder:
            if context.settings.files and context.settings.files_folder is None:
                context.settings = replace(context.settings, files_folder=Path(folder))
            yield
            await asyncio.to_thread(context.service.close)

    routes = [
        *libretranslate.ROUTES,
        *files.ROUTES,
        *v1.ROUTES,
        *(page.ROUTES if context.settings.page else []),
        Route("/health", health, methods=["GET"]),
        Route("/ready", ready, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _http_error})
    app.state.context = context
    paths = frozenset(route.path.replace("/{name}", "") for route in routes)
    return Shell(app, context, paths)


async def _http_error(request: Request, error: Exception) -> Response:
    """Paths that do not exist, and methods that they do not have."""
    assert isinstance(error, HTTPException)
    return json_response({"error": error.detail}, error.status_code, error.headers)
