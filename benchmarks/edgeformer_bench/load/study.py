"""Requests per second and latency of a server by number of clients, beside a plain CTranslate2 server.

Usage: ``python -m edgeformer_bench.load.study BUNDLE --checkpoint RUN --source FILE``. Needs locust.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import click

from edgeformer.train.run import Run
from edgeformer_bench.commands import Command
from edgeformer_bench.load import LANGUAGES, SOURCE
from edgeformer_bench.peers.ctranslate2_model import convert_run
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.cli.output import console, print_json, table
from edgeformer_runtime.errors import ConfigError

START_SECONDS = 60.0
"""How long a server may take to start."""


@dataclass(frozen=True)
class Load:
    """What clients measured."""

    server: str
    clients: int
    requests_per_second: float
    """Translations, without refused requests."""
    median_ms: float
    p95_ms: float
    p99_ms: float
    refused: int
    """Requests that got status 503 with ``Retry-After``."""
    failed: int
    """Requests that got neither this nor a translation."""
    peak_mb: float
    """Largest resident memory of the server so far, in 10^6 bytes."""


@contextmanager
def served(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until it is no longer needed.

    Raises:
        ConfigError: it does not start.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _is_ready(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise ConfigError(f"The server did not start: {' '.join(command)}")
            time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        process.wait()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1):
            return True
    except OSError:
        return False


def measure(name: str, pid: int, port: int, clients: int, seconds: int, environment: dict[str, str]) -> Load:
    """Run clients against a server.

    Args:
        name: name of the server.
        pid: its process.
        port: its port.
        clients: number of clients.
        seconds: for how long.
        environment: further environment variables for the clients.
    """
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "load"
        client = Path(__file__).with_name("client.py")
        subprocess.run(
            [
                *(sys.executable, "-m", "locust", "--headless", "--locustfile", str(client)),
                *("--host", f"http://127.0.0.1:{port}", "--users", str(clients), "--spawn-rate", str(clients)),
                *("--run-time", f"{seconds}s", "--csv", str(prefix), "--reset-stats", "--exit-code-on-error", "0"),
            ],
            check=True,
            capture_output=True,
            env={**os.environ, **environment},
        )
        with Path(f"{prefix}_stats.csv").open(encoding="utf-8", newline="") as file:
            rows = {row["Name"]: row for row in csv.DictReader(file)}
    answered, refused = rows.get("translated", {}), rows.get("refused", {})
    failed = int(answered.get("Failure Count", 0))
    median, p95, p99 = (float(answered.get(column) or "nan") for column in ("50%", "95%", "99%"))
    return Load(
        name,
        clients,
        (int(answered.get("Request Count", 0)) - failed) / seconds,
        median,
        p95,
        p99,
        refused=int(refused.get("Request Count", 0)),
        failed=failed,
        peak_mb=_peak_mb(pid),
    )


def _peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return float("nan")
    return int(status.read_text(encoding="ascii").partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--checkpoint", required=True, type=click.Path(path_type=Path), help="Run folder of the bundle.")
@click.option("--source", required=True, type=click.Path(path_type=Path), help="Text, one sentence per line.")
@click.option("--clients", multiple=True, default=(1, 16, 64, 256), type=click.IntRange(1), show_default=True)
@click.option("--seconds", default=20, type=click.IntRange(2), show_default=True, help="Time per number of clients.")
@click.option("--beam", default=4, type=click.IntRange(1), show_default=True, help="Beam size of the peer.")
@click.option("--queue", default=2048, type=click.IntRange(1), show_default=True, help="Sentences that may wait.")
@click.option("--port", default=5790, type=click.IntRange(1, 65534), show_default=True, help="This port and the next.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def main(
    bundle: Path,
    checkpoint: Path,
    source: Path,
    clients: tuple[int, ...],
    seconds: int,
    beam: int,
    queue: int,
    port: int,
    as_json: bool,
) -> None:
    """Measure `edgeformer serve` and a plain CTranslate2 server with the same weights, in turns."""
    if find_spec("locust") is None:
        raise ConfigError("This study needs locust: pip install locust.")
    manifest = open_bundle(bundle).manifest
    languages = f"{manifest.source_language}-{manifest.target_language}"
    environment = {SOURCE: str(source.absolute()), LANGUAGES: languages}
    loads = []
    with tempfile.TemporaryDirectory() as folder:
        converted = Path(folder) / "model"
        convert_run(Run.open(checkpoint), converted, "int8")
        command = [sys.executable, "-c", "from edgeformer.cli import main; main()"]
        own = [*command, "serve", str(bundle), "--port", str(port), "--threads", "1"]
        own += ["--no-log", "--queue", str(queue)]
        plain = [*(sys.executable, "-m", "edgeformer_bench.load.plain_server", str(converted))]
        plain += ["--port", str(port + 1), "--beam", str(beam)]
        with served(own, port) as ours, served(plain, port + 1) as theirs:
            for count in clients:
                loads.append(measure("edgeformer", ours.pid, port, count, seconds, environment))
                loads.append(measure("CTranslate2, plain", theirs.pid, port + 1, count, seconds, environment))
    if as_json:
        print_json([asdict(load) for load in loads])
        return
    rows = table(
        str(bundle), "server", "clients", "requests/s", "p50 ms", "p95 ms", "p99 ms", "refused", "failed", "MB"
    )
    for load in loads:
        numbers = (load.requests_per_second, load.median_ms, load.p95_ms, load.p99_ms)
        rows.add_row(
            load.server,
            str(load.clients),
            *(f"{number:,.0f}" for number in numbers),
            f"{load.refused:,}",
            f"{load.failed:,}",
            f"{load.peak_mb:,.0f}",
        )
    console().print(rows)


if __name__ == "__main__":
    main()
