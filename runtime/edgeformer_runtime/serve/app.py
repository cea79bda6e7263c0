"""The ASGI application of one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from tempfile import gettempdir

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
from edgeformer_runtime.serve.context import Context, bearer_token, client_of, context_of, endpoint
from edgeformer_runtime.serve.errors import json_response
from edgeformer_runtime.serve.files.stored_files import StoredFiles
from edgeformer_runtime.serve.metrics import CONTENT_TYPE, Metrics
from edgeformer_runtime.serve.middleware import Shell
from edgeformer_runtime.serve.service import Service
from edgeformer_runtime.serve.settings import ServeSettings
from edgeformer_runtime.temporaries import temporary
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
    service = Service(make_workspace(settings), settings, report=metrics.add_batch, watch=metrics.set_queue)
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
    if token := context.settings.metrics_token:
        context.access.check_token(bearer_token(request), token, client_of(request))
    return Response(await asyncio.to_thread(context.metrics.text), headers={"Content-Type": CONTENT_TYPE})


@contextmanager
def own_folder() -> Iterator[Path]:
    """A temporary folder of this server. Those of servers that were killed are removed."""
    with temporary(Path(gettempdir()) / "edgeformer-serve", lambda path: path.mkdir(mode=0o700)) as folder:
        yield folder


def make_app(context: Context) -> ASGIApp:
    """Make the application."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        settings = context.settings
        with own_folder() if settings.files_folder is None else nullcontext(settings.files_folder) as folder:
            if settings.files:
                context.files = StoredFiles(folder, settings.files_quota, settings.client_files_quota)
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
