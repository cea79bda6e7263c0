"""Connections: time limits where uvicorn has none, and JSON where it answers in plain text."""

from __future__ import annotations

import asyncio
import math
from http import HTTPStatus

import h11
import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.h11_impl import H11Protocol

MIN_SECONDS = 5.0
"""Least time that a client has to begin a request or to read, however short the time for its answer is."""
LINGER_SECONDS = 2.0
"""Time for which a connection is read after a refusal; a client that is still sending would otherwise not see it."""


class Protocol(H11Protocol):
    """A connection that ends if no request arrives, or if nobody reads what is sent.

    Once a request has begun to be answered, :class:`~edgeformer_runtime.serve.middleware.Shell` limits its time.
    """

    seconds: float = 60.0
    """Time within which the head of a request must arrive, and within which a client must read
    :data:`~uvicorn.protocols.http.flow_control.HIGH_WATER_LIMIT` bytes, or what there is."""
    _idle: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """See :class:`asyncio.Protocol`."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        for timer in (self._idle, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`."""
        if not self._is_refused:
            super().data_received(data)

    def handle_events(self) -> None:
        """Handle what has arrived."""
        super().handle_events()
        self._watch()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._watch()

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
        """Refuse what is not HTTP."""
        self._refuse(400, msg)

    def shutdown(self) -> None:
        """Begin to shut down. At the end, responses that nobody reads are dropped, or they could not be finished."""
        super().shutdown()
        self.loop.call_later(self.config.timeout_graceful_shutdown or 0, self._drop_unread)

    def _unsupported_upgrade_warning(self) -> None:
        """Answer requests for another protocol as if they were not, which HTTP permits."""

    @property
    def _limit(self) -> float:
        return max(self.seconds, MIN_SECONDS)

    def _watch(self) -> None:
        """Limit the time until the next request, unless one is being answered."""
        if self.cycle is not None and not self.cycle.response_complete:
            if self._idle is not None:
                self._idle.cancel()
                self._idle = None
        elif self._idle is None:
            self._idle = self.loop.call_later(self._limit, self._end)

    def _end(self, unread: float = math.inf) -> None:
        """End the connection, unless the client is still reading the last answer."""
        if size := self.transport.get_write_buffer_size():
            if self._has_read(unread):
                self._idle = self.loop.call_later(self._limit, self._end, size)
            else:
                self.transport.abort()
        elif self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(408, f"The request did not arrive within {self._limit:g} seconds.")
        else:
            self.transport.abort()

    def _expect_reader(self, unread: float = math.inf) -> None:
        """Drop the connection if the client reads too slowly."""
        if self._has_read(unread):
            size = self.transport.get_write_buffer_size()
            self._unread = self.loop.call_later(self._limit, self._expect_reader, size)
        else:
            self.transport.abort()

    def _has_read(self, unread: float) -> bool:
        """Whether the client has read enough since so many bytes were left."""
        return self.transport.get_write_buffer_size() <= unread - HIGH_WATER_LIMIT

    def _drop_unread(self) -> None:
        if self.flow.write_paused:
            self.transport.abort()

    def _refuse(self, status: int, message: str) -> None:
        """Answer with an error, unless another answer has begun, and close the connection."""
        self._is_refused = True
        if self.cycle is not None:
            self.cycle.disconnected = True  # nobody can be answered any more
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        body = msgspec.json.encode({"error": message})
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
        head = h11.Response(status_code=status, headers=list(headers.items()), reason=HTTPStatus(status).phrase)
        for event in (head, h11.Data(body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)
