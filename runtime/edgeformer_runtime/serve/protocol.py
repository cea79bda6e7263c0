"""Connections: time limits where uvicorn has none, and JSON where it answers in plain text."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

MIN_SECONDS = 5.0
"""Least time that a client has to begin a request, however short the time for its answer is."""
LINGER_SECONDS = 2.0
"""Time for which a connection is read after a refusal; a client that is still sending would otherwise not see it."""


class Protocol(H11Protocol):
    """A connection that ends if no request arrives, or if nobody reads what is sent.

    Once a request has begun to be answered, :class:`~edgeformer_runtime.serve.middleware.Shell` limits its time.
    """

    seconds: float = 60.0
    """Time within which the head of a request must arrive, and within which a client must read."""
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
        self._unread = self.loop.call_later(self.seconds, self.transport.abort)

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
    def _idle_seconds(self) -> float:
        return max(self.seconds, MIN_SECONDS)

    def _watch(self) -> None:
        """Limit the time until the next request, unless one is being answered."""
        if self.cycle is not None and not self.cycle.response_complete:
            if self._idle is not None:
                self._idle.cancel()
                self._idle = None
        elif self._idle is None:
            self._idle = self.loop.call_later(self._idle_seconds, self._end)

    def _end(self) -> None:
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(408, f"The request did not arrive within {self._idle_seconds:g} seconds.")
        else:
            self.transport.abort()

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
