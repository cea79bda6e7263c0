"""Sends a server several times as many requests as it can answer, and looks at what it does.

Usage: ``python -m edgeformer_bench.load.overload BUNDLE``
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

import click
import msgspec

from edgeformer_bench.growth import Limit, Sample, growth
from edgeformer_bench.load.connection import NoAnswerError, Pool
from edgeformer_bench.load.promises import Setup, logged, promise
from edgeformer_bench.load.serving import Serving
from edgeformer_bench.timer import Timing
from edgeformer_runtime.cli.output import counting

PROBES = 20
"""Requests, one after the other, whose latency is the usual one."""
INTERVAL = 2.0
"""Seconds between two looks at the capacity."""
GRACE_SECONDS = 5.0
"""How long after its deadline a request may be answered."""
RECOVERY_SECONDS = 2.0
"""How soon after the load a request must be answered as usual."""
LIMITS = {"memory_mib": Limit("memory under load, MiB,", share=0.1)}
"""How far the server may grow under load."""
SHARE = 0.8
"""Share of the planned requests that must have been sent for the test to be one."""
ALLOWED = {"200", "503", "504", "408"}


class Overload(msgspec.Struct, frozen=True):
    """What happened."""

    capacity: float
    """Requests per second that were answered when each client waited for its answer."""
    times: float
    """Multiple of the capacity that was planned."""
    seconds: float
    """Time under load."""
    outcomes: dict[str, int]
    """Number of requests by status, or by what happened instead."""
    usual_ms: float
    """Largest latency without load."""
    latency_ms: list[float]
    """Latency of translations under load: median, 95th and 99th percentile."""
    recovered_seconds: float | None
    """Time from the end of the load to the first request that was answered within twice the usual latency."""
    samples: list[Sample]
    """The server's processes: before the load, under load, and after it."""
    errors: list[str]
    """Errors in the server's log."""
    is_alive: bool
    """Whether the server was still there at the end."""
    pause_seconds: float
    """Longest time for which this program itself could not run; the figures mean little if it is long."""

    @property
    def sent(self) -> float:
        """Requests per second."""
        return sum(self.outcomes.values()) / self.seconds

    @property
    def problems(self) -> list[str]:
        """Broken promises."""
        problems = [f"{count} requests: {what}" for what, count in self.outcomes.items() if what not in ALLOWED]
        problems += growth(self.samples[1:-1] or self.samples, LIMITS)
        if not self.is_alive:
            problems.append("the server ended")
        elif self.recovered_seconds is None or self.recovered_seconds > RECOVERY_SECONDS:
            problems.append(f"no request was answered as usual within {RECOVERY_SECONDS:g} s of the end of the load")
        if self.sent < SHARE * self.times * self.capacity:
            problems.append(f"only {self.sent:.0f} requests/s could be sent, which says little; use a slower model")
        return problems + logged(self.errors)

    def rows(self) -> list[tuple[str, str]]:
        """Figures for people."""
        memory = [sample.memory_mib for sample in self.samples]
        return [
            ("capacity, requests/s", f"{self.capacity:,.0f}"),
            ("sent, requests/s", f"{self.sent:,.0f}"),
            ("translated, requests/s", f"{self.outcomes.get('200', 0) / self.seconds:,.0f}"),
            *((f"requests: {what}", f"{count:,}") for what, count in sorted(self.outcomes.items())),
            ("usual latency at most, ms", f"{self.usual_ms:,.0f}"),
            ("under load p50, p95, p99, ms", ", ".join(f"{value:,.0f}" for value in self.latency_ms)),
            ("usual again after, s", "never" if self.recovered_seconds is None else f"{self.recovered_seconds:.2f}"),
            ("memory at start, peak, end, MiB", f"{memory[0]:.0f}, {max(memory):.0f}, {memory[-1]:.0f}"),
            ("longest pause of the clients, ms", f"{1000 * self.pause_seconds:,.0f}"),
        ]


async def measured(
    server: Serving,
    make: Callable[[], bytes],
    clients: int,
    times: float,
    seconds: float,
    deadline: float,
    random: Random,
) -> Overload:
    """Measure the capacity, send more than that, and see how the server recovers.

    Args:
        server: the server.
        make: makes a request.
        clients: number of clients that measure the capacity.
        times: multiple of the capacity to send.
        seconds: how long to send.
        deadline: seconds that the requests give the server.
        random: draws the times of requests.
    """
    pool = Pool(server.port)
    await _probed(pool, make, PROBES)  # opens the model
    usual = max(await _probed(pool, make, PROBES))
    capacity = await _capacity(pool, make, clients, max(3 * INTERVAL, min(10 * INTERVAL, seconds / 4)))
    await asyncio.sleep(1)
    samples, outcomes, latencies = [server.sample()], Counter[str](), list[float]()

    async def one() -> None:
        began = time.monotonic()
        outcome, _ = await pool.outcome(make(), deadline + GRACE_SECONDS)
        outcomes[outcome] += 1
        if outcome == "200":
            latencies.append(time.monotonic() - began)

    took, pause, tasks = await _sent(server, one, times * capacity, seconds, samples, random)
    ended = time.monotonic()
    recovered = await _recovered(pool, make, 2 * usual, ended) if server.is_alive else None
    await asyncio.gather(*tasks)
    if server.is_alive:
        samples.append(server.sample())
    await pool.close()
    timing = Timing.of(latencies or [0.0])
    spread = [timing.median_ms, timing.p95_ms, timing.p99_ms]
    return Overload(
        capacity,
        times,
        took,
        dict(outcomes),
        1000 * usual,
        spread,
        recovered,
        samples,
        server.errors(),
        server.is_alive,
        pause,
    )


async def _probed(pool: Pool, make: Callable[[], bytes], count: int) -> list[float]:
    """Latencies of requests one after the other, in seconds."""
    latencies = []
    for _ in range(count):
        began = time.monotonic()
        answer = await pool.ask(make(), 60)
        if answer.status != 200:
            raise click.ClickException(f"The server answers {answer.status}: {answer.body[:300].decode()}")
        latencies.append(time.monotonic() - began)
    return latencies


async def _capacity(pool: Pool, make: Callable[[], bytes], clients: int, seconds: float) -> float:
    """Requests per second of clients that wait for their answers."""
    per_interval, end = Counter[int](), time.monotonic() + seconds

    async def client() -> None:
        while time.monotonic() < end:
            is_answered = (await pool.ask(make(), 60)).status == 200
            per_interval[int((time.monotonic() - began) / INTERVAL)] += is_answered
            if not is_answered:  # as Retry-After says
                await asyncio.sleep(1)

    began = time.monotonic()
    await asyncio.gather(*(client() for _ in range(clients)))
    whole = [per_interval[number] for number in range(int(seconds / INTERVAL)) if number in per_interval]
    return statistics.median(whole) / INTERVAL  # which a pause of the machine does not change


async def _sent(
    server: Serving,
    one: Callable[[], Coroutine[Any, Any, None]],
    rate: float,
    seconds: float,
    samples: list[Sample],
    random: Random,
) -> tuple[float, float, set[asyncio.Task[None]]]:
    """Send requests at random times, whether earlier ones are answered or not.

    Returns:
        How long that took, the longest pause, and requests that are not answered yet.
    """
    tasks = set[asyncio.Task[None]]()
    began = due = looked = time.monotonic()
    pause = 0.0
    with counting("seconds") as progress:
        while (now := time.monotonic()) < began + seconds and server.is_alive:
            while due <= now:
                task = asyncio.create_task(one())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                due += random.expovariate(rate)
            if now - looked >= 1:
                looked = now
                samples.append(server.sample())
                progress(round(now - began), round(seconds))
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            pause = max(pause, time.monotonic() - max(due, now))
    return time.monotonic() - began, pause, tasks


async def _recovered(pool: Pool, make: Callable[[], bytes], limit: float, ended: float) -> float | None:
    """Seconds from the end of the load to the end of the first request that took no longer than usual."""
    while time.monotonic() < ended + 10 * RECOVERY_SECONDS:
        began = time.monotonic()
        try:
            answer = await pool.ask(make(), limit)
        except (TimeoutError, NoAnswerError, OSError):
            continue
        if answer.status == 200 and time.monotonic() - began <= limit:
            return time.monotonic() - ended
        await asyncio.sleep(0.05)
    return None


@promise
@click.option("--minutes", default=5.0, show_default=True, type=click.FloatRange(min=0.05), help="Time under load.")
@click.option("--times", default=4.0, show_default=True, help="Multiple of the capacity that is sent.")
@click.option("--deadline", default=2.0, show_default=True, help="Seconds that each request gives the server.")
def main(setup: Setup, minutes: float, times: float, deadline: float) -> Overload:
    """Send `edgeformer serve` more requests than it can answer, without waiting for answers.

    Exits with 1 unless the server lives, every answer is a translation, a 503 with Retry-After or a 504,
    no connection ends without an answer, memory does not keep growing, and a request is answered within
    twice the usual latency 2 seconds after the load. The capacity is what CLIENTS get that wait for their answers.
    """
    with setup.serving() as (server, make):
        random = Random(setup.seed)
        with_deadline = partial(make, timeout=deadline)
        return asyncio.run(measured(server, with_deadline, setup.clients, times, 60 * minutes, deadline, random))


if __name__ == "__main__":
    main()
