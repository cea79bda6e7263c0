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

    @property
    def outcome(self) -> str:
        """The status; or, of a refusal that does not say when to try again, that."""
        return "503 without Retry-After" if self.status == 503 and not self.can_retry else str(self.status)


class NoAnswerError(Exception):
    """A connection ended before there was a complete answer."""


class Connection:
    """A connection to a server. Use :meth:`open`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._keeps, self._used = True, time.monotonic()

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to a port of this machine.

        Raises:
            OSError: nobody listens there.
        """
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent."""
        return self._keeps and not self._reader.at_eof() and time.monotonic() - self._used < IDLE_SECONDS

    async def ask(self, request: bytes) -> Answer:
        """Send a request, and read until its answer is complete.

        Raises:
            NoAnswerError: the connection ended without one.
        """
        received, how = b"", "closed"
        self._writer.write(request)
        try:
            while part := await self._reader.read(2**16):
                received += part
                head, _, body = received.partition(b"\r\n\r\n")
                length = _LENGTH.search(head)
                if length is not None and len(body) >= int(length[1]):
                    self._keeps, self._used = _CLOSE.search(head) is None, time.monotonic()
                    return Answer(int(head[9:12]), body, _RETRY.search(head) is not None)
        except ConnectionError:
            how = "reset"
        self._keeps = False
        raise NoAnswerError(f"the connection was {how} {'within' if received else 'without'} an answer")

    def close(self) -> None:
        """Close the connection."""
        self._keeps = False
        self._writer.transport.abort()


class Pool:
    """Connections that are idle, and as many new ones as are needed beside."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[Connection] = []

    async def ask(self, request: bytes, seconds: float) -> Answer:
        """Send a request on the connection that was used last, or on a new one, and wait for the answer.

        Raises:
            TimeoutError: there is none in time.
            NoAnswerError: the connection ended without one.
            OSError: the server cannot be reached.
        """
        while self._idle and not self._idle[-1].is_usable:
            self._idle.pop().close()
        connection: Connection | None = None
        try:
            async with asyncio.timeout(seconds):
                connection = self._idle.pop() if self._idle else await Connection.open(self._port)
                answer = await connection.ask(request)
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        self._idle.append(connection)
        return answer

    async def outcome(self, request: bytes, seconds: float) -> tuple[str, Answer | None]:
        """What became of a request, in a few words, and the answer if there was one; see :meth:`ask`."""
        try:
            answer = await self.ask(request, seconds)
        except TimeoutError:
            return f"no answer within {seconds:g} s", None
        except NoAnswerError as error:
            return str(error), None
        except OSError as error:
            return f"no connection ({error.strerror})", None
        return answer.outcome, answer

    async def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().close()
        await asyncio.sleep(0)  # when the event loop closes their sockets
