"""Sends a server very many short requests, and watches whether its memory, open files or threads grow.

Usage: ``python -m edgeformer_bench.load.endurance BUNDLE``
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import linear_regression

import click
import msgspec

from edgeformer_bench.commands import Command, command_line
from edgeformer_bench.load.connection import NoAnswerError, Pool, ask
from edgeformer_bench.load.serving import (
    Phrases,
    Sample,
    Serving,
    document_bytes,
    request_bytes,
    serving,
    translation_fields,
)
from edgeformer_bench.load.verdict import conclude, json_option, seed_option, source_option
from edgeformer_runtime.cli.output import counting

WARM_UP = 0.2
"""Share of the requests during which memory may still grow."""
GROWTH = 0.02
"""How much more the server may need at the end than after the warm-up."""
SAMPLES = 500
"""Number of samples."""
FIGURES = {"memory_mib": "resident memory", "files": "open files", "threads": "threads"}
SECONDS = 60.0
"""Time limit of a request."""


class Fit(msgspec.Struct, frozen=True):
    """A line through the samples after the warm-up."""

    start: float
    end: float
    per_hour: float
    """Growth in an hour."""

    @property
    def growth(self) -> float:
        """Growth as a share of the start."""
        return self.end / self.start - 1 if self.start else 0.0

    @classmethod
    def of(cls, samples: list[Sample], name: str) -> Fit:
        """Fit a figure of samples."""
        times, values = [each.seconds for each in samples], [float(getattr(each, name)) for each in samples]
        if len(set(times)) < 2:
            return cls(values[0], values[-1], 0.0)
        slope, intercept = linear_regression(times, values)
        return cls(intercept + slope * times[0], intercept + slope * times[-1], 3600 * slope)


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
    def fits(self) -> dict[str, Fit]:
        """Lines through the figures after the warm-up."""
        warm = self.samples[int(len(self.samples) * WARM_UP) :]
        return {name: Fit.of(warm, name) for name in FIGURES}

    @property
    def problems(self) -> list[str]:
        """Broken promises."""
        problems = [f"{count} requests: {what}" for what, count in self.outcomes.items() if what != "200"]
        for name, fit in self.fits.items():
            if fit.growth >= GROWTH:
                problems.append(f"{FIGURES[name]} grew from {fit.start:.1f} to {fit.end:.1f} ({fit.growth:+.1%})")
        return problems + [f"the server logged {error}" for error in self.errors[:5]]

    def rows(self) -> list[tuple[str, str]]:
        """Figures for people."""
        fits = self.fits
        return [
            ("clients", f"{self.clients}"),
            ("requests", f"{sum(self.outcomes.values()):,}"),
            ("requests/s", f"{self.outcomes.get('200', 0) / self.seconds:,.0f}"),
            ("failed", f"{sum(self.outcomes.values()) - self.outcomes.get('200', 0):,}"),
            *(
                (f"{what}{', MiB' * (name == 'memory_mib')}", f"{fit.start:.1f} → {fit.end:.1f} ({fit.growth:+.2%})")
                for (name, what), fit in zip(FIGURES.items(), fits.values(), strict=True)
            ),
            ("growth of memory, MiB per hour", f"{fits['memory_mib'].per_hour:+.2f}"),
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
            try:
                outcomes[str((await ask(pool, make(), SECONDS)).status)] += 1
            except (NoAnswerError, OSError) as error:  # of which TimeoutError is one
                outcomes[str(error) or "no answer"] += 1
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


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--requests", default=1_000_000, show_default=True, type=click.IntRange(1), help="Requests to send.")
@click.option("--clients", default=16, show_default=True, type=click.IntRange(1), help="Connections that are kept.")
@click.option(
    "--documents", default=0.0, show_default=True, type=click.FloatRange(0, 1), help="Share of them that are documents."
)
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Processes of the server.")
@source_option
@seed_option
@json_option
def main(
    bundle: Path,
    requests: int,
    clients: int,
    documents: float,
    workers: int,
    source: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Send `edgeformer serve` very many short requests over connections that are kept alive.

    After a warm-up of a fifth of them, a line is fitted through the server's resident memory, its open files and
    its threads. Exits with 1 if one of them grows by 2 % or more, or if a request fails.
    """
    phrases, random = Phrases(source, seed), Random(seed)

    def make() -> bytes:
        is_document = random.random() < documents
        return document_bytes(phrases.next(), fields) if is_document else request_bytes([phrases.next()], fields)

    with serving(bundle, "--threads", "1", "--workers", str(workers)) as server:
        fields = translation_fields(server)
        result = asyncio.run(endured(server, make, requests, clients))
    conclude(command_line(), {"": result}, as_json=as_json)


if __name__ == "__main__":
    main()
