"""Requests per second and latency of a server by number of clients, beside a plain CTranslate2 server.

Usage: ``python -m edgeformer_bench.load.study BUNDLE --checkpoint RUN --source FILE``
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import click

from edgeformer.data.text import read_lines
from edgeformer.train.run import Run
from edgeformer_bench.commands import Command
from edgeformer_bench.load.connection import Pool
from edgeformer_bench.load.promises import json_option
from edgeformer_bench.load.serving import Serving, posted, running, serving, translation_fields
from edgeformer_bench.peers.ctranslate2_model import convert_run
from edgeformer_bench.timer import Timing
from edgeformer_runtime.cli.output import console, print_json, table
from edgeformer_runtime.errors import ConfigError

SECONDS = 300.0
"""Time limit of a request."""


@dataclass(frozen=True)
class Load:
    """What clients measured."""

    server: str
    clients: int
    requests_per_second: float
    """Translations, without refused requests."""
    latency: Timing | None
    """Latency of the translations; ``None`` if there were none."""
    refused: int
    """Requests that got status 503 with ``Retry-After``."""
    failed: int
    """Requests that got neither this nor a translation."""
    memory_mib: float
    """Resident memory of the server afterwards."""


async def measure(name: str, server: Serving, requests: Sequence[bytes], clients: int, seconds: float) -> Load:
    """Let clients of LibreTranslate's API send requests, each one after the other, and wait for the answers.

    Args:
        name: name of the server.
        server: the server.
        requests: what is sent, drawn at random.
        clients: number of clients.
        seconds: for how long new requests are sent.
    """
    random, began = Random(clients), time.monotonic()
    latencies, refused, failed = list[float](), 0, 0

    async def client() -> None:
        nonlocal refused, failed
        pool = Pool(server.port)
        while (sent := time.monotonic()) < began + seconds:
            outcome, answer = await pool.outcome(random.choice(requests), SECONDS)
            if answer is not None and outcome == "200" and json.loads(answer.body)["translatedText"]:
                latencies.append(time.monotonic() - sent)
            elif outcome == "503":
                refused += 1
            else:
                failed += 1
        await pool.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    rate = len(latencies) / (time.monotonic() - began)
    latency = Timing.of(latencies) if latencies else None
    return Load(name, clients, rate, latency, refused, failed, server.sample().memory_mib)


def requests_of(texts: Sequence[str], source: str, target: str) -> list[bytes]:
    """Requests to translate texts with LibreTranslate's API."""
    bodies = [json.dumps({"q": text, "source": source, "target": target}) for text in texts]
    return [posted("/translate", "application/json", body) for body in bodies]


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--checkpoint", required=True, type=click.Path(path_type=Path), help="Run folder of the bundle.")
@click.option("--source", required=True, type=click.Path(path_type=Path), help="Text, one sentence per line.")
@click.option("--clients", multiple=True, default=(1, 16, 64, 256), type=click.IntRange(1), show_default=True)
@click.option("--seconds", default=20, type=click.IntRange(2), show_default=True, help="Time per number of clients.")
@click.option("--beam", default=4, type=click.IntRange(1), show_default=True, help="Beam size of the peer.")
@click.option("--queue", default=2048, type=click.IntRange(1), show_default=True, help="Sentences that may wait.")
@json_option
def main(
    bundle: Path,
    checkpoint: Path,
    source: Path,
    clients: tuple[int, ...],
    seconds: int,
    beam: int,
    queue: int,
    as_json: bool,
) -> None:
    """Measure `edgeformer serve` and a plain CTranslate2 server with the same weights, in turns."""
    texts, loads = [text for text in read_lines(source) if text.strip()], list[Load]()
    if not texts:
        raise ConfigError(f"`{source}` has no sentence to translate.")
    with tempfile.TemporaryDirectory() as folder:
        converted = Path(folder) / "model"
        convert_run(Run.open(checkpoint), converted, "int8")
        plain = [sys.executable, "-m", "edgeformer_bench.load.plain_server", str(converted), "--beam", str(beam)]
        with serving(bundle, "--threads", "1", "--queue", str(queue)) as ours, running(plain) as theirs:
            fields = translation_fields(ours)
            requests = requests_of(texts, fields["source"], fields["target"])
            for count in clients:
                for name, server in (("edgeformer", ours), ("CTranslate2, plain", theirs)):
                    loads.append(asyncio.run(measure(name, server, requests, count, seconds)))
    if as_json:
        print_json([asdict(load) for load in loads])
        return
    columns = ("server", "clients", "requests/s", "p50 ms", "p95 ms", "p99 ms", "refused", "failed", "MiB")
    rows = table(str(bundle), *columns)
    for load in loads:
        latency = load.latency
        times = (latency.median_ms, latency.p95_ms, latency.p99_ms) if latency else ()
        cells = [f"{value:,.0f}" for value in times] or ["–"] * 3
        counts = (load.refused, load.failed, round(load.memory_mib))
        rate = f"{load.requests_per_second:,.0f}"
        rows.add_row(load.server, f"{load.clients}", rate, *cells, *(f"{count:,}" for count in counts))
    console().print(rows)


if __name__ == "__main__":
    main()
