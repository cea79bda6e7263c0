"""Limits on connections: their number, and how long an idle or slow one is kept."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress

import h11
import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.h11_impl import H11Protocol

LINGER_SECONDS = 2.0
"""Time for which a connection is read after a refusal; a client that is still sending would otherwise not see it."""


SLICE = 4096
"""Bytes that are read without letting others go on: in chunks of one byte each, 256 KiB take a third of a second."""


class HttpProtocol(H11Protocol):
    """A connection that makes room for a new one while it waits for its client, and ends if the client does not read.

    Once the head of a request has arrived, its time is limited by
    :class:`~edgeformer_server.middleware.RequestMiddleware`.
    """

    max_connections: int = 512
    """Connections at a time."""
    seconds: float = 60.0
    """Time in which a client must read :data:`~uvicorn.protocols.http.flow_control.HIGH_WATER_LIMIT` bytes, or what
    there is."""
    _waiting_since = 0.0
    _is_refused = False
    _unread: asyncio.TimerHandle | None = None
    _rest = b""
    """What has arrived but has not been read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """See :class:`asyncio.Protocol`. If there are too many connections, the one that has waited longest ends."""
        super().connection_made(transport)
        self._waiting_since = time.monotonic()
        if len(self.connections) > self.max_connections:
            waiting = [each for each in self.connections if isinstance(each, HttpProtocol) and each.is_waiting]
            oldest = min(waiting, key=lambda each: each._waiting_since)
            self.connections.discard(oldest)
            oldest.transport.abort()

    @property
    def is_waiting(self) -> bool:
        """Whether the next step is the client's: to send a request or the rest of it, or to read."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`. Each slice of it is read in another turn of the event loop."""
        self._rest += data
        if len(self._rest) == len(data):
            self._read_slice()
        else:
            self.transport.pause_reading()

    def _read_slice(self) -> None:
        data, self._rest = self._rest[:SLICE], self._rest[SLICE:]
        if self._is_refused:
            self._rest = b""
        elif not self.transport.is_closing():
            super().data_received(data)
        if self.transport.is_closing():
            return
        if self._rest:
            self.transport.pause_reading()
            self.loop.call_soon(self._read_slice)
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._waiting_since = time.monotonic()

    def pause_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        super().pause_writing()
        self._expect_reader()

    def resume_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, in JSON, unless an answer has begun."""
        self._is_refused = True
        if self.cycle is not None:
            self.cycle.disconnected = True  # nobody can be answered any more
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
        else:
            body = msgspec.json.encode({"error": msg})
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
            head = h11.Response(status_code=400, headers=list(headers.items()), reason=b"Bad Request")
            for event in (head, h11.Data(body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            with suppress(OSError):  # the client has gone
                self.transport.write_eof()
            self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _expect_reader(self, unread: float = math.inf) -> None:
        """Drop the connection if the client reads too slowly."""
        size = self.transport.get_write_buffer_size()
        if size <= unread - HIGH_WATER_LIMIT:
            self._unread = self.loop.call_later(self.seconds, self._expect_reader, size)
        else:
            self.transport.abort()
