"""Around every request: errors, CORS, a limit on its size, measurements and a log line."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from edgeformer_server.access import client_behind
from edgeformer_server.errors import LOG, ApiError
from edgeformer_server.protocol import LINGER_SECONDS
from edgeformer_server.queue.batching import ClosedError, QueueFullError
from edgeformer_server.request import ServerContext, error_response, json_response

HEADERS = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-headers", b"Authorization, Content-Type"),
    (b"access-control-expose-headers", b"Authorization"),
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-max-age", b"%d" % (60 * 60 * 24 * 20)),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
"""Headers of every response. Those of CORS are LibreTranslate's, but for `Allow-Credentials`, which contradicts the
origin `*`."""
HELD_BODIES = 8
"""How many of the largest requests may be in memory or on the disk at a time."""


class RequestMiddleware:
    """The application: adds headers, answers ``OPTIONS`` and errors, limits requests, measures and logs.

    Args:
        router: the endpoints.
        context: what they share.
    """

    def __init__(self, router: Router, context: ServerContext) -> None:
        self._router, self.context = router, context
        self._settings, self._metrics = context.settings, context.metrics
        self._paths = {route.path.partition("/{")[0] for route in router.routes if isinstance(route, Route)}
        """Paths that are counted by name; others are counted together."""
        self._held = 0
        """Bytes of the requests that have not been answered."""
        self._max_held = HELD_BODIES * max(self._settings.max_body, self._settings.max_upload)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; see the ASGI specification."""
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        if not scope["path"].startswith("/"):  # http://host/path, which RFC 9112 lets clients send
            scope["path"] = "/" + scope["path"].partition("://")[2].partition("/")[2]
        began, status, request_id = time.monotonic(), 0, f"{random.getrandbits(128):032x}"
        first = "/" + scope["path"].lstrip("/").partition("/")[0]
        path = next((each for each in (scope["path"], first) if each in self._paths), "other")
        scope["app"] = self
        scope.setdefault("state", {})["log"] = fields = dict[str, object]()
        if self._settings.trusted_proxies:
            self._look_behind_proxies(scope)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS, (b"x-request-id", request_id.encode())]
                if self.context.is_draining:
                    MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        self._metrics.in_flight.inc()
        try:
            if scope["method"] == "OPTIONS":
                await json_response({})(scope, receive, send_with_headers)
            else:
                await self._limited(scope, receive, send_with_headers)
        except asyncio.CancelledError:
            if not self.context.is_draining:
                raise
            if not status:  # its time to shut down is over; a client that has a part of its answer knows
                await error_response(ClosedError("The server is shutting down."))(scope, receive, send_with_headers)
        except Exception as error:
            if status:
                raise
            await error_response(error)(scope, receive, send_with_headers)
        finally:
            seconds = time.monotonic() - began
            self._metrics.in_flight.dec()
            self._metrics.requests.labels(path, str(status or 499)).inc()
            self._metrics.latency.labels(path).observe(seconds)
            if self._settings.access_log:
                record = {"id": request_id, "method": scope["method"], "path": path, "status": status or 499}
                record |= {"ms": round(1000 * seconds, 1), **fields}
                LOG.info("request", extra={"fields": record})

    def _look_behind_proxies(self, scope: Scope) -> None:
        """Replace the address of the last proxy, and the scheme it was asked with, by those of the client."""
        headers, (peer, port) = Headers(scope=scope), scope.get("client") or ("", 0)
        forwarded = ",".join(headers.getlist("x-forwarded-for"))
        scope["client"] = client_behind(self._settings.trusted_proxies, peer, forwarded), port
        scheme = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        scope["scheme"] = scheme if scheme in ("http", "https") else scope["scheme"]

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and refuse it as soon as it is too large or takes too long to arrive."""
        settings, seconds = self._settings, self._settings.request_seconds
        limit = settings.max_upload if scope["path"] == "/translate_file" else settings.max_body
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        if "content-length" in headers and "transfer-encoding" in headers:  # a proxy may see another end than we do
            raise ApiError(400, "The request states its length in two ways.", {"Connection": "close"})
        if (encoding := headers.get("content-encoding", "identity")) != "identity":
            raise ApiError(400, f"The encoding `{encoding[:20]}` is not supported; send the body as it is.")
        if length.isascii() and length.isdigit() and int(length) > limit:
            await _answer_early(error_response(_too_large(limit)), receive, send)
            return
        total, is_complete, deadline = 0, False, asyncio.get_running_loop().time() + seconds

        async def receive_limited() -> Message:
            nonlocal total, is_complete
            if is_complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                what = f"The request did not arrive within {seconds:g} seconds."
                raise ApiError(408, what, {"Connection": "close"}) from None
            is_complete = not message.get("more_body", False)
            size = len(message.get("body", b""))
            total, self._held = total + size, self._held + size
            if total > limit:
                raise _too_large(limit)
            if self._held > self._max_held:
                raise QueueFullError(1)
            return message

        try:
            await self._router(scope, receive_limited, send)
        finally:
            self._held -= total


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"The request has more than {limit} bytes, the limit of this server.")


async def _answer_early(response: Response, receive: Receive, send: Send) -> None:
    """Answer, and read on for a while: a client that is still sending would otherwise not see the answer."""
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while (await receive()).get("more_body"):
                pass
    await send({"type": "http.response.body"})


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """See :meth:`logging.Formatter.format`."""
        line = {"time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")}
        line |= {"level": record.levelname.lower(), "event": record.getMessage().strip()}
        return json.dumps(line | getattr(record, "fields", {}))  # ASCII: nothing that a terminal would act on


class RepeatedMessageFilter(logging.Filter):
    """Drops messages that begin like one of the last minute."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See :meth:`logging.Filter.filter`."""
        begin, now = record.getMessage()[:40], time.monotonic()
        if now - self._logged.get(begin, float("-inf")) < 60:
            return False
        self._logged = {each: at for each, at in self._logged.items() if now - at < 60} | {begin: now}
        return True


def log_to_stderr() -> None:
    """Write the server's log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.getLogger("python_multipart").addHandler(logging.NullHandler())  # the client is told what is wrong
    levels = {"edgeformer.serve": logging.INFO, "uvicorn.error": logging.ERROR, "asyncio": logging.ERROR}
    for name, level in levels.items():
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(level)
    logging.getLogger("asyncio").addFilter(RepeatedMessageFilter())
