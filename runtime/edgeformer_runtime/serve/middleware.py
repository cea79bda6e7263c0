"""Around every request: CORS, a limit on its size, measurements and a log line."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgeformer_runtime.serve.access import client_behind
from edgeformer_runtime.serve.batching import QueueFullError
from edgeformer_runtime.serve.context import Context, error_response
from edgeformer_runtime.serve.errors import ApiError, json_response
from edgeformer_runtime.serve.protocol import LINGER_SECONDS

CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Headers": "Authorization, Content-Type",
    "Access-Control-Expose-Headers": "Authorization",
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Max-Age": str(60 * 60 * 24 * 20),
}
"""What LibreTranslate sends with every response, but for `Allow-Credentials`, which contradicts the origin `*`."""
PLAIN_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


MAX_LAG = 0.25
"""Seconds by which a process may be behind before it refuses to begin with more requests."""
HELD_BODIES = 8
"""How many of the largest requests may be in memory or on the disk at a time."""


class Shell:
    """Adds headers, answers ``OPTIONS``, limits requests and their bodies, measures and logs.

    Args:
        app: the application within.
        context: what the endpoints share.
        paths: paths that are counted by name; others are counted together.
    """

    def __init__(self, app: ASGIApp, context: Context, paths: frozenset[str]) -> None:
        self._app, self._context, self._paths = app, context, paths
        self._metrics, self._logs = context.metrics, context.settings.access_log
        settings = context.settings
        self._settings = settings
        self._begun = 0
        """Requests that have not been answered."""
        self._held = 0
        """Bytes of the requests that have not been answered."""
        self._max_held = HELD_BODIES * max(settings.max_body, settings.max_upload)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; see the ASGI specification."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, request_id = time.monotonic(), 499, uuid.uuid4().hex
        first = "/" + scope["path"].lstrip("/").partition("/")[0]
        path = scope["path"] if scope["path"] in self._paths else first if first in self._paths else "other"
        scope.setdefault("state", {})["log"] = fields = dict[str, object]()
        self._look_behind_proxies(scope)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in {**CORS, **PLAIN_HEADERS, "X-Request-ID": request_id}.items():
                    headers.setdefault(name, value)
                if self._context.is_draining:
                    headers["Connection"] = "close"
            await send(message)

        self._metrics.in_flight.inc()
        self._begun += 1
        try:
            if scope["method"] == "OPTIONS":
                await json_response({})(scope, receive, send_with_headers)
            elif self._is_behind and scope["method"] == "POST":  # a refusal must cost little
                await error_response(QueueFullError(1))(scope, receive, send_with_headers)
            else:
                await self._limited(scope, receive, send_with_headers)
        except asyncio.CancelledError:
            if not self._context.is_draining:
                raise  # otherwise its time to shut down is over, and the client knows
        finally:
            seconds = time.monotonic() - began
            self._metrics.in_flight.dec()
            self._begun -= 1
            self._metrics.requests.labels(path, str(status)).inc()
            self._metrics.latency.labels(path).observe(seconds)
            if self._logs:
                record = {"id": request_id, "method": scope["method"], "path": path, "status": status}
                record |= {"ms": round(1000 * seconds, 1), **fields}
                logging.getLogger("edgeformer.serve").info("request", extra={"fields": record})

    @property
    def _is_behind(self) -> bool:
        """Whether there are more requests than the process can even look at. A few long ones may also keep it busy."""
        return self._context.lag > MAX_LAG and self._begun > self._settings.batch.max_sentences

    def _look_behind_proxies(self, scope: Scope) -> None:
        """Replace the address of the last proxy, and the scheme it was asked with, by those of the client."""
        if proxies := self._settings.trusted_proxies:
            headers, (peer, port) = Headers(scope=scope), scope.get("client") or ("", 0)
            scope["client"] = client_behind(proxies, peer, ",".join(headers.getlist("x-forwarded-for"))), port
            scheme = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
            scope["scheme"] = scheme if scheme in ("http", "https") else scope["scheme"]

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and refuse it as soon as it is too large or takes too long to arrive."""
        settings = self._settings
        limit, seconds = (
            settings.max_upload if scope["path"] == "/translate_file" else settings.max_body,
            settings.request_seconds,
        )
        too_large = ApiError(413, f"The request has more than {limit} bytes, the limit of this server.")
        length = Headers(scope=scope).get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > limit:
            await _answer_early(error_response(too_large), receive, send)
            return
        too_slow = ApiError(408, f"The request did not arrive within {seconds:g} seconds.", {"Connection": "close"})
        total, is_complete, deadline = 0, False, time.monotonic() + seconds

        async def receive_limited() -> Message:
            nonlocal total, is_complete
            if is_complete:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise too_slow from None
            is_complete = not message.get("more_body", False)
            size = len(message.get("body", b""))
            total, self._held = total + size, self._held + size
            if total > limit:
                raise too_large
            if self._held > self._max_held:
                raise QueueFullError(1)
            return message

        try:
            await self._app(scope, receive_limited, send)
        finally:
            self._held -= total


async def _answer_early(response: Response, receive: Receive, send: Send) -> None:
    """Answer, and read on for a while: a client that is still sending would otherwise not see the answer."""
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while (await receive()).get("more_body"):
                pass
    await send({"type": "http.response.body"})


class JsonLines(logging.Formatter):
    """Formats a log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """See :meth:`logging.Formatter.format`."""
        line = {"time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")}
        line |= {"level": record.levelname.lower(), "event": record.getMessage().strip()}
        return json.dumps(line | getattr(record, "fields", {}))  # ASCII: nothing that a terminal would act on


class OncePerMinute(logging.Filter):
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
    handler.setFormatter(JsonLines())
    logging.getLogger("python_multipart").addHandler(logging.NullHandler())  # the client is told what is wrong
    levels = {"edgeformer.serve": logging.INFO, "uvicorn.error": logging.ERROR, "asyncio": logging.ERROR}
    for name, level in levels.items():
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(level)
    logging.getLogger("asyncio").addFilter(OncePerMinute())
