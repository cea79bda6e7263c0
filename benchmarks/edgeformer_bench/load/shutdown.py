"""Ends a server at random moments while clients send, and counts requests that get no answer.

Usage: ``python -m edgeformer_bench.load.shutdown BUNDLE``
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import click
import msgspec

from edgeformer_bench.load.connection import Answer, Connection, NoAnswerError
from edgeformer_bench.load.promises import Setup, logged, promise
from edgeformer_bench.load.serving import Serving
from edgeformer_runtime.cli.output import counting

LIMIT_SECONDS = 30
"""Time that the server has to end."""
SLACK_SECONDS = 6.0
"""How much longer its processes may take to do so."""


class Round(msgspec.Struct, frozen=True):
    """One end of a server."""

    after_seconds: float
    """Time from the first request to the signal."""
    before: dict[str, int]
    """Requests that were sent completely before the signal, by what became of them."""
    in_flight: int
    """How many of them were not answered yet at the signal."""
    after: dict[str, int]
    """Requests that were sent after the signal."""
    end_seconds: float
    """Time from the signal to the end of the process."""
    exit_code: int | None
    """Exit code of the process; ``None`` if it had to be killed."""
    errors: list[str]
    """Errors in the server's log."""

    @property
    def problems(self) -> list[str]:
        """Broken promises."""
        problems = [f"{count} lost requests: {what}" for what, count in self.before.items() if what != "200"]
        allowed = {"200", "503", "refused"}
        problems += [f"{count} late requests: {what}" for what, count in self.after.items() if what not in allowed]
        if self.exit_code != 0:
            problems.append(f"exit code {self.exit_code}")
        return problems + logged(self.errors)


class Shutdown(msgspec.Struct, frozen=True):
    """All rounds."""

    clients: int
    rounds: list[Round]

    @property
    def problems(self) -> list[str]:
        """Broken promises."""
        return [f"round {number}: {each}" for number, one in enumerate(self.rounds, 1) for each in one.problems]

    def rows(self) -> list[tuple[str, str]]:
        """Figures for people."""
        before, after = Counter[str](), Counter[str]()
        for each in self.rounds:
            before.update(each.before)
            after.update(each.after)
        slowest = max((each.end_seconds for each in self.rounds), default=0.0)
        return [
            ("rounds", f"{len(self.rounds)}"),
            ("clients", f"{self.clients}"),
            ("sent before the signal", f"{before.total():,}"),
            ("  of these in flight", f"{sum(each.in_flight for each in self.rounds):,}"),
            ("  translated", f"{before['200']:,}"),
            ("  lost", f"{before.total() - before['200']:,}"),
            ("sent after it", f"{after.total():,}"),
            ("  translated, too", f"{after['200']:,}"),
            ("  refused", f"{after['503'] + after['refused']:,}"),
            ("slowest end, s", f"{slowest:.2f}"),
        ]


class _Clients:
    """Clients that send one request after the other; half of them on a new connection each time."""

    def __init__(self, port: int, make: Callable[[], bytes]) -> None:
        self._port, self._make = port, make
        self.signaled = float("inf")
        """When the signal was sent."""
        self.before, self.after = Counter[str](), Counter[str]()
        self.in_flight = 0

    async def run(self, count: int) -> None:
        """Run clients until none of them reaches the server any more."""
        await asyncio.gather(*(self._client(keeps=number % 2 == 0) for number in range(count)))

    async def _client(self, keeps: bool) -> None:
        connection: Connection | None = None
        while True:
            request = self._make()
            try:
                if connection is None:
                    connection = await Connection.open(self._port)
            except OSError:
                if self.signaled == float("inf"):
                    self.before["no connection"] += 1
                else:
                    self.after["refused"] += 1
                return
            answer = connection.send(request)
            sent = time.monotonic()
            await self._count(answer, sent)
            if not keeps or not connection.is_usable:
                connection.close()
                connection = None

    async def _count(self, waiting: asyncio.Future[Answer], sent: float) -> None:
        """Wait for an answer, and count it."""
        try:
            async with asyncio.timeout(LIMIT_SECONDS + SLACK_SECONDS):
                what = (await waiting).outcome
        except NoAnswerError as error:
            what = "refused" if sent > self.signaled and error.is_refusal else str(error)
        except TimeoutError:
            what = "no answer"
        if sent > self.signaled:
            self.after[what] += 1
        else:
            self.before[what] += 1
            self.in_flight += time.monotonic() > self.signaled


async def ended(server: Serving, make: Callable[[], bytes], clients: int, delay: float) -> Round:
    """Let clients send, end the server, and count what became of the requests.

    Args:
        server: a running server.
        make: makes a request.
        clients: number of clients.
        delay: seconds from the start of the clients to the signal.
    """
    counts = _Clients(server.port, make)
    running = asyncio.ensure_future(counts.run(clients))
    await asyncio.sleep(delay)
    counts.signaled = time.monotonic()  # everything happens in this thread: what was sent was sent before
    server.process.send_signal(signal.SIGTERM)
    limit = counts.signaled + LIMIT_SECONDS + SLACK_SECONDS
    while server.is_alive and time.monotonic() < limit:
        await asyncio.sleep(0.01)
    took, code = time.monotonic() - counts.signaled, server.process.poll()
    if code is None:
        server.process.kill()
    await running
    await asyncio.sleep(0)  # when the event loop closes the sockets
    return Round(delay, dict(counts.before), counts.in_flight, dict(counts.after), took, code, server.errors())


@promise
@click.option("--rounds", default=20, show_default=True, type=click.IntRange(1), help="Servers to end.")
def main(setup: Setup, rounds: int) -> Shutdown:
    """End `edgeformer serve` with SIGTERM at random moments while clients send.

    Exits with 1 unless each request that was sent completely before the signal is translated, each later one
    is translated or refused, and the process ends with status 0 in time.
    """
    random, done = Random(setup.seed), list[Round]()
    with counting("servers") as progress:
        for number in range(rounds):
            progress(number, rounds)
            with setup.serving("--shutdown-timeout", str(LIMIT_SECONDS)) as (server, make):
                done.append(asyncio.run(ended(server, make, setup.clients, random.uniform(0.2, 3.0))))
    return Shutdown(setup.clients, done)


if __name__ == "__main__":
    main()
