"""A client of HTTP/1.1 that costs little, so that the server is what is measured: prepared requests, one at a time per
connection, on connections that are kept alive."""

from __future__ import annotations

import asyncio
import re
import time
from typing import NamedTuple, Self

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_RETRY = re.compile(rb"\r\nretry-after: *\d+", re.IGNORECASE)
IDLE_SECONDS = 3.0
"""How long a connection may have been idle to be used again; servers close those that are idle for longer."""


class Answer(NamedTuple):
    """A response."""

    status: int
    body: bytes
    can_retry: bool
    """Whether it has ``Retry-After``."""


class NoAnswerError(Exception):
    """A connection ended before there was a complete answer.

    Attributes:
        is_refusal: whether nothing of an answer had arrived.
    """

    def __init__(self, what: str, is_refusal: bool) -> None:
        super().__init__(what)
        self.is_refusal = is_refusal


class Connection(asyncio.Protocol):
    """A connection to a server. Use :meth:`open`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._buffer = b""
        self._is_open = True
        self.used = time.monotonic()
        """When it last had something to do."""

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to a port of this machine.

        Raises:
            OSError: nobody listens there.
        """
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent."""
        return self._is_open and time.monotonic() - self.used < IDLE_SECONDS

    def send(self, request: bytes) -> asyncio.Future[Answer]:
        """Send a request, which is handed to the operating system before this returns.

        Returns:
            The answer, or :class:`NoAnswerError`.
        """
        self._answer = asyncio.get_running_loop().create_future()
        if self._transport is None or not self._is_open:
            self._fail("the connection was closed before the request")
        else:
            self._transport.write(request)
            if self._transport.get_write_buffer_size():
                self._fail("the request is too large for this client")
        return self._answer

    def close(self) -> None:
        """Close the connection."""
        self._is_open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`."""
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        length = _LENGTH.search(head)
        if length is None:
            self._fail("the answer has no length")
        elif len(body) >= int(length[1]):
            self._buffer, self.used = b"", time.monotonic()
            self._is_open = self._is_open and _CLOSE.search(head) is None
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(Answer(int(head[9:12]), body, _RETRY.search(head) is not None))

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        self._is_open = False
        how = "closed" if exc is None else "reset"
        self._fail(f"the connection was {how} {'within' if self._buffer else 'without'} an answer")

    def _fail(self, what: str) -> None:
        self._is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(NoAnswerError(what, is_refusal=not self._buffer))


class Pool:
    """Connections that are idle, and as many new ones as are needed beside.

    Args:
        port: port of the server.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[Connection] = []

    async def take(self) -> Connection:
        """Return the connection that was used last, or a new one.

        Raises:
            OSError: see :meth:`Connection.open`.
        """
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return await Connection.open(self._port)

    def give_back(self, connection: Connection) -> None:
        """Let a connection be used again."""
        self._idle.append(connection)

    async def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # when the event loop closes their sockets


async def ask(pool: Pool, request: bytes, seconds: float) -> Answer:
    """Send a request and wait for the answer.

    Raises:
        TimeoutError: there is none in time.
        NoAnswerError: the connection ended without one.
        OSError: the server cannot be reached.
    """
    connection = await pool.take()
    try:
        async with asyncio.timeout(seconds):
            answer = await connection.send(request)
    except BaseException:
        connection.close()
        raise
    pool.give_back(connection)
    return answer
