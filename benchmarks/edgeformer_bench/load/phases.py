"""What clients do to a server, and what must hold meanwhile: they wait for their answers, or they do not."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from edgeformer_bench.growth import Limit, Sample, growth, quarters
from edgeformer_bench.load.connection import Answer, Pool
from edgeformer_bench.load.serving import Serving
from edgeformer_bench.timer import Timing

LIMITS = {
    "memory_mib": Limit("resident memory, MiB,", share=0.02),
    "files": Limit("open files"),
    "threads": Limit("threads"),
}
"""How much more the server may need at the end than after the warm-up, while clients wait for their answers."""
OVERLOAD_LIMITS = {"memory_mib": Limit("resident memory, MiB,", share=0.1)}
"""The same while they do not wait."""
SECONDS = 60.0
"""Time limit of a request that states none."""
GRACE_SECONDS = 5.0
"""How long after its deadline a request may be answered."""
RECOVERY_SECONDS = 2.0
"""How soon after too many requests one must be answered as usual."""
SHARE = 0.8
"""Share of the planned requests that must have been sent for there to be too many."""
OVERLOAD_STATUSES = frozenset({"200", "408", "503", "504"})
SAMPLES = 60
"""Samples, one a second, from which on it can be told whether the server grows; before, it warms up."""

Make = Callable[..., bytes]
"""Makes a request; keywords are further fields of it."""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to requests."""

    seconds: float
    """How long clients sent."""
    outcomes: dict[str, int]
    """Number of requests by status, or by what happened instead."""
    latency: Timing | None
    """Of the requests that were translated; ``None`` if there are none."""
    samples: list[Sample]
    """The server's processes meanwhile."""
    figures: dict[str, float]
    """What else was measured or counted, by name."""
    problems: list[str]
    """Broken promises."""

    def rows(self) -> list[tuple[str, str]]:
        """Figures for people."""
        rows = [("translated, requests/s", f"{self.outcomes.get('200', 0) / self.seconds:,.0f}")]
        rows += [(f"requests: {what}", f"{count:,}") for what, count in sorted(self.outcomes.items())]
        if self.latency is not None:
            times = (self.latency.median_ms, self.latency.p95_ms, self.latency.p99_ms)
            rows.append(("p50, p95, p99, ms", ", ".join(f"{value:,.0f}" for value in times)))
        if self.samples:
            rows += [
                (limit.what.strip(","), "{:.1f} → {:.1f}".format(*quarters(self.samples, name)))
                for name, limit in LIMITS.items()
            ]
        return rows + [(name, f"{value:,.2f}".removesuffix(".00")) for name, value in self.figures.items()]


class Watch:
    """Counts what becomes of requests, and looks at the server meanwhile."""

    def __init__(self, server: Serving) -> None:
        self.server = server
        self.outcomes, self.latencies, self.samples = Counter[str](), list[float](), list[Sample]()
        self._began = time.monotonic()

    async def ask(self, pool: Pool, request: bytes, seconds: float = SECONDS) -> Answer | None:
        """Send a request; returns the answer, if it is a translation."""
        began = time.monotonic()
        outcome, answer = await pool.outcome(request, seconds)
        self.outcomes[outcome] += 1
        if outcome != "200":
            return None
        self.latencies.append(time.monotonic() - began)
        return answer

    async def until_done(self, running: asyncio.Future[Any]) -> None:
        """Take a sample every second until something is done."""
        while not running.done():
            if self.server.is_alive:
                self.samples.append(self.server.sample())
            await asyncio.wait({running}, timeout=1)
        await running

    def phase(
        self,
        limits: Mapping[str, Limit],
        figures: Mapping[str, float],
        problems: Sequence[str],
        allowed: frozenset[str] = frozenset({"200"}),
    ) -> Phase:
        """Conclude; requests may only have the outcomes in ``allowed``, and the server must live and log no error."""
        found = [f"{count} requests: {what}" for what, count in self.outcomes.items() if what not in allowed]
        found += [*problems, *(growth(self.samples, limits) if len(self.samples) >= SAMPLES else [])]
        if not self.server.is_alive:
            found.append("the server ended")
        found += [f"the server logged {error}" for error in self.server.errors()[:5]]
        return Phase(
            seconds=time.monotonic() - self._began,
            outcomes=dict(self.outcomes),
            latency=Timing.of(self.latencies) if self.latencies else None,
            samples=self.samples,
            figures=dict(figures),
            problems=found,
        )


async def steady(server: Serving, make: Make, clients: int, seconds: float) -> Phase:
    """Let each client send one request after the other and wait for the answers, over connections that are kept alive.

    All must be translated; memory, open files and threads must not grow.
    """
    watch, end = Watch(server), time.monotonic() + seconds

    async def client() -> None:
        pool = Pool(server.port)
        while time.monotonic() < end:
            await watch.ask(pool, make())
        await pool.close()

    await watch.until_done(asyncio.gather(*(client() for _ in range(clients))))
    return watch.phase(LIMITS, {}, [])


async def overloaded(
    server: Serving, make: Make, usual: Phase, times: float, seconds: float, deadline: float, random: Random
) -> Phase:
    """Send more requests than the server can answer, at random times, without waiting for answers.

    Each must be translated or refused, memory must stop growing, and soon after, latency must be as before.

    Args:
        server: the server.
        make: makes a request that states the deadline.
        usual: what clients got that waited.
        times: multiple of the requests that were translated then.
        seconds: how long to send.
        deadline: seconds that a request gives the server.
        random: draws the times.
    """
    rate = times * usual.outcomes.get("200", 0) / usual.seconds
    limit = 2 * usual.latency.max_ms / 1000 if usual.latency else SECONDS
    watch, pool, tasks = Watch(server), Pool(server.port), set[asyncio.Task[Any]]()

    async def send() -> None:
        due = time.monotonic()
        while (now := time.monotonic()) < end and server.is_alive:
            while due <= now:
                task = asyncio.create_task(watch.ask(pool, make(), deadline + GRACE_SECONDS))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                due += random.expovariate(rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    end = time.monotonic() + seconds
    await watch.until_done(asyncio.ensure_future(send()))
    recovered = await _recovered(pool, make, limit)
    await asyncio.gather(*tasks)
    await pool.close()
    sent = watch.outcomes.total() / seconds
    problems = []
    if recovered > RECOVERY_SECONDS:
        problems.append(f"no request was answered as usual within {RECOVERY_SECONDS:g} s of the end of the load")
    if sent < SHARE * rate:
        problems.append(f"only {sent:.0f} requests/s could be sent, which says little; use a slower model")
    figures = {"sent, requests/s": sent, "usual again after, s": recovered}
    return watch.phase(OVERLOAD_LIMITS, figures, problems, OVERLOAD_STATUSES)


async def _recovered(pool: Pool, make: Make, limit: float) -> float:
    """Seconds until a request is translated within ``limit`` seconds."""
    began = now = time.monotonic()
    while now < began + 10 * RECOVERY_SECONDS:
        outcome, _ = await pool.outcome(make(), limit)
        now = time.monotonic()
        if outcome == "200":
            break
        await asyncio.sleep(0.05)
    return now - began
