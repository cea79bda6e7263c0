"""Processes, sockets and signals."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Timer
from types import FrameType

import uvicorn

from edgeformer_runtime.errors import ConfigError
from edgeformer_server.app import make_app, make_context
from edgeformer_server.errors import LOG
from edgeformer_server.middleware import log_to_stderr
from edgeformer_server.protocol import SLICE, HttpProtocol
from edgeformer_server.request import ServerContext
from edgeformer_server.settings import ServeSettings

BACKLOG = 2048
"""Connections that the system keeps until they are accepted."""
END_SECONDS = 1.0
"""Time after ``shutdown_seconds`` in which a process ends by itself."""
ACCEPTED_AT_ONCE = 64
"""Connections that are accepted before others are looked at, so that old ones can be closed for new ones in time."""
MOST_DESCRIPTORS = 65536
"""Maximum number of open files that the process asks the system for."""
SWITCH_SECONDS = 0.0005
"""Time after which a thread that splits a text lets one that translates go on. A decoder step waits for it several
times, and Python's own 5 ms are longer than a step."""
M_ARENA_MAX = -8
"""The number of arenas among the parameters of the C library's allocator, as ``malloc.h`` has it."""
ARENAS = 2
"""Arenas that threads take memory from. With one per thread, each keeps what its largest batch needed."""
GARBAGE = 10_000
"""New objects after which Python collects garbage. Most requests end before that, and those that wait are not scanned
again and again."""
MAX_HEAD = 16384
"""Bytes of the address and the headers of a request."""
TURNS = BACKLOG // ACCEPTED_AT_ONCE + 4 + MAX_HEAD // SLICE
"""Event-loop iterations to wait before shutting down, so that all requests that have arrived are read. A request on the
last new connection needs four to accept it, to set it up, to wait for data and to read them, and one for each slice."""


class Server(uvicorn.Server):
    """A uvicorn server that ends with status 0 after SIGTERM or SIGINT, when accepted requests are answered."""

    def __init__(self, context: ServerContext) -> None:
        settings = context.settings
        super().__init__(
            uvicorn.Config(
                make_app(context),
                log_config=None,
                access_log=False,
                lifespan="on",
                server_header=False,
                proxy_headers=False,
                backlog=ACCEPTED_AT_ONCE,
                timeout_graceful_shutdown=max(1, round(settings.shutdown_seconds)),
                http=type(
                    "LimitedProtocol",
                    (HttpProtocol,),
                    {
                        "seconds": max(settings.request_seconds, 5.0),
                        "max_connections": min(settings.max_connections, descriptors() * 3 // 4),
                    },
                ),
                ws="none",
                h11_max_incomplete_event_size=MAX_HEAD,
            )
        )
        self._context = context
        self.watchdog: Timer | None = None
        """Ends the process if it does not shut down in time."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Begin to shut down at the first signal, and stop at once at a second SIGINT."""
        try:
            previous = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        except ValueError:  # not in the main thread
            yield
            return
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # asyncio takes the number that it accepts at once for this one too

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Read what has arrived, which uvicorn would drop, and shut down."""
        self._context.is_draining = True
        for _ in range(TURNS):
            await asyncio.sleep(0)
        await super().shutdown(sockets)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if not self._context.is_draining:  # threads may be at work that nobody can stop
            seconds = self._context.settings.shutdown_seconds + END_SECONDS
            self.watchdog = Timer(seconds, _end_at_once)
            self.watchdog.daemon = True
            self.watchdog.start()
        self._context.is_draining = True
        self.handle_exit(number, frame)


def bind(settings: ServeSettings) -> socket.socket:
    """Open the port.

    Raises:
        ConfigError: the address is used by another program, or is not one of this machine.
    """
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]  # Python adds the address, which is named here
        raise ConfigError(
            f"Cannot listen on {settings.host}, port {settings.port} ({reason}); choose another address with --host or "
            "--port."
        ) from None


def descriptors() -> int:
    """Raise the number of files that this process may open as far as the system lets it, and return it."""
    if sys.platform == "win32":
        return MOST_DESCRIPTORS
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def _end_at_once() -> None:
    """End the process although a thread is at work."""
    LOG.error("shutdown took too long")
    os._exit(0)


def serve(settings: ServeSettings, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        EdgeformerError: a bundle or the API keys cannot be read.
    """
    log_to_stderr()
    sys.setswitchinterval(SWITCH_SECONDS)
    with suppress(OSError, AttributeError, TypeError):  # a system with another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
    server = Server(make_context(settings))
    gc.freeze()
    gc.set_threshold(GARBAGE)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:  # uvloop's, where it is installed
        runner.run(server.serve(sockets=[listener]))
    if server.watchdog is not None:
        server.watchdog.cancel()
