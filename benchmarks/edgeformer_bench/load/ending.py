"""The end of a server while clients send: it is told to end, or killed."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter

from edgeformer_bench.load.connection import Connection, NoAnswerError
from edgeformer_bench.load.phases import Make, Phase
from edgeformer_bench.load.serving import Serving, is_running

END_SECONDS = 36.0
"""Time that the server has to end: its ``--shutdown-timeout``, 30 s, and what its processes need to do so."""


class _Clients:
    """What clients of a server send, and get.

    Args:
        server: the server.
        make: makes requests.
    """

    def __init__(self, server: Serving, make: Make) -> None:
        self._server, self._make = server, make
        self.before, self.after = Counter[str](), Counter[str]()
        """Requests by outcome: those that were sent completely before the signal, and later ones."""
        self.in_flight = 0
        """How many of the former had no answer then."""
        self.signaled = float("inf")

    async def send(self, keeps: bool) -> None:
        """Send one request after the other until the server is gone, each on a new connection unless ``keeps``."""
        connection: Connection | None = None
        while True:
            request = self._make()
            try:
                if connection is None:
                    connection = await Connection.open(self._server.port)
            except OSError:
                (self.before if self.signaled == float("inf") else self.after)["no connection"] += 1
                return
            answer, sent = connection.send(request), time.monotonic()
            try:
                async with asyncio.timeout(END_SECONDS):
                    what = (await answer).outcome
            except NoAnswerError as error:
                what = "no connection" if sent > self.signaled and error.is_refusal else str(error)
            except TimeoutError:
                what = "no answer"
            (self.after if sent > self.signaled else self.before)[what] += 1
            self.in_flight += sent <= self.signaled < time.monotonic()
            if not keeps or not connection.is_usable:
                connection.close()
                connection = None


async def ended(server: Serving, make: Make, clients: int, delay: float, number: int = signal.SIGTERM) -> Phase:
    """Send a signal to a server while clients send, half of them on a new connection each time.

    Each request that was sent completely before must be translated, each later one translated or refused, and the
    process must end with status 0. After SIGKILL, the requests in flight may be lost; no process may outlive it.
    """
    sending, processes, began = _Clients(server, make), server.processes(), time.monotonic()
    running = asyncio.gather(*(sending.send(keeps=client % 2 == 0) for client in range(clients)))
    await asyncio.sleep(delay)
    sending.signaled = time.monotonic()  # everything happens in this thread: what was sent was sent before
    server.process.send_signal(number)
    while server.is_alive and time.monotonic() < sending.signaled + END_SECONDS:
        await asyncio.sleep(0.01)
    took, code = time.monotonic() - sending.signaled, server.process.poll()
    if code is None:
        server.process.kill()
    await running
    while any(map(is_running, processes)) and time.monotonic() < sending.signaled + END_SECONDS:
        await asyncio.sleep(0.01)
    is_kill = number == signal.SIGKILL
    lost = {what: count for what, count in sending.before.items() if what != "200"}
    problems = [] if is_kill else [f"{count} requests before the signal: {what}" for what, count in lost.items()]
    if sum(lost.values()) > sending.in_flight:
        problems.append(f"{sum(lost.values())} requests were lost, but only {sending.in_flight} were in flight")
    allowed = {"200", "503", "no connection"}
    problems += [f"{count} requests after it: {what}" for what, count in sending.after.items() if what not in allowed]
    problems += [f"exit status {code}"] if code != (-signal.SIGKILL if is_kill else 0) else []
    problems += [f"{sum(map(is_running, processes))} processes outlived it"] * any(map(is_running, processes))
    problems += [f"the server logged {error}" for error in server.errors()[:5]]
    return Phase(
        seconds=sending.signaled - began,
        outcomes=dict(sending.before),
        latency=None,
        samples=[],
        figures={
            "in flight at the signal": sending.in_flight,
            "sent after it": sending.after.total(),
            "ended after, s": took,
        },
        problems=problems,
    )
