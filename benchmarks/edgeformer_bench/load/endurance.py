"""Sends a server very many short requests, and watches whether its memory, open files or threads grow.

Usage: ``python -m edgeformer_bench.load.endurance BUNDLE``
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import click
import msgspec

from edgeformer_bench.growth import Limit, Sample, growth, quarters
from edgeformer_bench.load.connection import Pool
from edgeformer_bench.load.promises import Setup, logged, promise
from edgeformer_bench.load.serving import Phrases, Serving, document_bytes, translation_fields
from edgeformer_runtime.cli.output import counting

LIMITS = {
    "memory_mib": Limit("resident memory, MiB,", share=0.02),
    "files": Limit("open files"),
    "threads": Limit("threads"),
}
"""How much more the server may need at the end than after the warm-up."""
SAMPLES = 500
"""Number of samples."""
SECONDS = 60.0
"""Time limit of a request."""


class Endurance(msgspec.Struct, frozen=True):
    """What happened."""

    clients: int
    seconds: float
    outcomes: dict[str, int]
    """Number of requests by status, or by what happened instead."""
    samples: list[Sample]
    errors: list[str]
    """Errors in the server's log."""

    @property
    def problems(self) -> list[str]:
        """Broken promises."""
        failed = [f"{count} requests: {what}" for what, count in self.outcomes.items() if what != "200"]
        return [*failed, *growth(self.samples, LIMITS), *logged(self.errors)]

    def rows(self) -> list[tuple[str, str]]:
        """Figures for people."""
        return [
            ("clients", f"{self.clients}"),
            ("requests", f"{sum(self.outcomes.values()):,}"),
            ("requests/s", f"{self.outcomes.get('200', 0) / self.seconds:,.0f}"),
            ("failed", f"{sum(self.outcomes.values()) - self.outcomes.get('200', 0):,}"),
            *(
                (limit.what.strip(","), "{:.1f} → {:.1f}".format(*quarters(self.samples, name)))
                for name, limit in LIMITS.items()
            ),
        ]


async def endured(server: Serving, make: Callable[[], bytes], total: int, clients: int) -> Endurance:
    """Send requests and take samples.

    Args:
        server: the server.
        make: makes a request.
        total: number of requests.
        clients: number of clients, each of which waits for its answer.
    """
    outcomes, samples, left, began = Counter[str](), list[Sample](), total, time.monotonic()

    async def client() -> None:
        nonlocal left
        pool = Pool(server.port)
        while left > 0:
            left -= 1
            outcome, _ = await pool.outcome(make(), SECONDS)
            outcomes[outcome] += 1
        await pool.close()

    running = asyncio.gather(*(client() for _ in range(clients)))
    with counting("requests") as progress:
        progress(0, total)
        while not running.done():
            await asyncio.wait({running}, timeout=0.2)
            done = outcomes.total()
            if left and done >= total * (len(samples) + 1) / (SAMPLES + 1):
                samples.append(server.sample())
                progress(done, total)
    await running
    return Endurance(clients, time.monotonic() - began, dict(outcomes), samples or [server.sample()], server.errors())


@promise
@click.option("--requests", default=1_000_000, show_default=True, type=click.IntRange(1), help="Requests to send.")
@click.option(
    "--documents", default=0.0, show_default=True, type=click.FloatRange(0, 1), help="Share of them that are documents."
)
def main(setup: Setup, requests: int, documents: float) -> Endurance:
    """Send `edgeformer serve` very many short requests over connections that are kept alive.

    Resident memory, open files and threads of the server are compared between the first and the last quarter after a
    warm-up of a fifth of the requests. Exits with 1 if memory grew by more than 2 %, if another of them grew, or if a
    request fails.
    """
    phrases, random = Phrases(setup.source, setup.seed), Random(setup.seed)
    with setup.serving() as (server, make):
        fields = translation_fields(server)

        def make_any() -> bytes:
            return document_bytes(phrases.next(), fields) if random.random() < documents else make()

        return asyncio.run(endured(server, make_any, requests, setup.clients))


if __name__ == "__main__":
    main()
