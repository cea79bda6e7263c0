"""Hostile clients against a server with little memory, and what another client notices of them.

Usage: ``python -m robustness.siege``
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import click
import msgspec
import numpy as np

from edgeformer_bench.commands import Command
from edgeformer_bench.load.report import Result, conclude, json_option
from edgeformer_bench.load.serving import Serving, serving, translation_fields, upload
from edgeformer_runtime.cli.output import counting
from edgeformer_runtime.cli.serve import Size
from edgeformer_runtime.limits import MIB
from edgeformer_runtime.serve.api.files import EXTENSIONS
from edgeformer_runtime.serve.server import descriptors
from robustness.requests import REQUESTS
from tests.runtime.serve.hostile_documents import PARAGRAPH, REFUSED, RUN, TRANSLATED, docx
from tests.store import COMMITTED

MORE = {
    "240,000 paragraphs": ("docx", lambda: docx(PARAGRAPH * 240_000)),
    "450,000 runs": ("docx", lambda: docx(f"<w:p>{RUN * 450_000}</w:p>")),
    "1,900,000 elements": ("docx", lambda: docx("<w:p/>" * 1_900_000)),
}
IDLE_CONNECTIONS = 1100
PAUSE_SECONDS = 0.02
"""Time between two requests of the client that is measured."""
MEMORY = Path("/sys/fs/cgroup/memory")
"""Where groups with limited memory are in version 1 of Linux's control groups."""


class Group:
    """A group of processes whose memory is limited.

    Args:
        size: bytes that they may have together.

    Raises:
        OSError: this system does not let this user make one.
    """

    def __init__(self, size: int) -> None:
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
        names = {kinds: path.lstrip("/") for _, kinds, path in (line.split(":", 2) for line in lines)}
        self._is_first = MEMORY.is_dir()
        self._home = MEMORY / names["memory"] if self._is_first else Path("/sys/fs/cgroup") / names[""]
        self._folder = self._home / f"siege-{os.getpid()}"
        self._folder.mkdir()
        try:
            limit = "memory.limit_in_bytes" if self._is_first else "memory.max"
            (self._folder / limit).write_text(str(size), encoding="ascii")
        except OSError:
            self._folder.rmdir()
            raise

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Let processes that are started within the block be in the group."""
        for folder in (self._folder, self._home):
            (folder / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
            if folder is self._folder:
                yield

    def memory_mib(self) -> float:
        """Memory that is not of files."""
        return self._figure("stat", "total_rss" if self._is_first else "anon") / MIB

    def killed(self) -> int:
        """Number of processes that were killed for their memory."""
        return self._figure("oom_control" if self._is_first else "events", "oom_kill")

    def _figure(self, file: str, name: str) -> int:
        words = (self._folder / f"memory.{file}").read_text(encoding="ascii").split()
        return int(words[words.index(name) + 1])

    def close(self) -> None:
        """Remove the group, whose processes must have ended."""
        with suppress(OSError):
            self._folder.rmdir()


class Shot(msgspec.Struct, frozen=True):
    """A hostile request, and the answer."""

    name: str
    status: int
    """0 if there was none."""
    seconds: float


class Phase(msgspec.Struct, frozen=True):
    """What the other client measured, and what became of hostile requests meanwhile."""

    seconds: list[float]
    """Latencies of its requests; infinite without a translation."""
    shots: list[Shot]
    memory_mib: float
    """Largest memory of all processes of the server together."""
    killed: int
    """Processes that were killed for their memory so far."""
    is_alive: bool

    @property
    def problems(self) -> list[str]:
        """Broken promises."""
        problems = [] if self.is_alive else ["the server has ended"]
        failed = sum(map(math.isinf, self.seconds))
        problems += [f"{failed} requests of the other client failed"] if failed else []
        problems += [f"{self.killed} processes were killed for their memory"] if self.killed else []
        answers = (200, *range(400, 499), 503, 504)
        return problems + [f"`{shot.name}`: status {shot.status}" for shot in self.shots if shot.status not in answers]

    def rows(self) -> list[tuple[str, str]]:
        """Figures for people."""
        p50, p99, most = (1000 * float(np.quantile(self.seconds, share)) for share in (0.5, 0.99, 1))
        times = [shot.seconds for shot in self.shots]
        slowest = sorted(self.shots, key=lambda shot: -shot.seconds)[:3]
        counts = sorted(Counter(shot.status for shot in self.shots).items())
        return [
            ("requests of the other client", f"{len(self.seconds):,}"),
            ("  p50, p99, longest, ms", f"{p50:,.0f}, {p99:,.0f}, {most:,.0f}"),
            ("hostile requests", f"{len(self.shots):,}"),
            ("  by status", ", ".join(f"{status}: {count}" for status, count in counts) or "–"),
            ("  median, longest, s", f"{np.median(times):.2f}, {max(times):.2f}" if times else "–"),
            ("  answered within a second", f"{sum(seconds < 1 for seconds in times):,}"),
            ("  slowest", ", ".join(f"{shot.name} ({shot.seconds:.1f})" for shot in slowest) or "–"),
            ("memory of the server, MiB", f"{self.memory_mib:.0f}"),
        ]


def watch(port: int, pair: dict[str, str], stop: Event) -> list[float]:
    """Translate a sentence again and again, in a process that has nothing else to do; see :attr:`Phase.seconds`."""
    body = json.dumps({"q": "The old dog runs near the river.", **pair})
    latencies = []
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        while not stop.is_set():
            began, status = time.perf_counter(), 0
            with suppress(OSError, HTTPException):
                connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                status = answer.status
            latencies.append(time.perf_counter() - began if status == 200 else math.inf)
            time.sleep(PAUSE_SECONDS)
    return latencies


def attack(port: int, pair: dict[str, str], paths: Sequence[Path], clients: int) -> list[Shot]:
    """Send documents and other requests, and if there are several clients, whatever else keeps a server busy or fills
    it."""
    stop = Event()
    descriptors()
    with ThreadPoolExecutor(clients) as pool, ThreadPoolExecutor() as others:
        if clients > 1:
            for other in (hold_connections, leave_early, send_equal_languages):
                others.submit(other, port, pair, stop)
        try:
            return list(pool.map(lambda path: sent(port, path.stem, request_of(path, pair)), paths))
        finally:
            stop.set()


def request_of(path: Path, pair: dict[str, str]) -> bytes:
    """The request in a file, or one that uploads a document."""
    return path.read_bytes() if path.suffix == ".http" else upload(path.read_bytes(), path.name, pair)


def sent(port: int, name: str, request: bytes) -> Shot:
    """Send a request."""
    began, answer = time.perf_counter(), b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        with suppress(OSError):  # it may be refused before all of it is sent
            connection.sendall(request)
        answer = connection.recv(12)
    return Shot(name, int(answer[9:12] or 0), time.perf_counter() - began)


def hold_connections(port: int, pair: dict[str, str], stop: Event) -> None:
    """Open connections and send a byte now and then."""
    with ExitStack() as stack:
        connections = []
        for _ in range(IDLE_CONNECTIONS):
            with suppress(OSError):
                connections.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10)))
                connections[-1].sendall(b"GET /health HTTP/1.1\r\nX: ")
        while not stop.wait(1):
            for connection in connections[::10]:
                with suppress(OSError):
                    connection.send(b"a")


def leave_early(port: int, pair: dict[str, str], stop: Event) -> None:
    """Ask for very much, and leave."""
    options = {"beam_size": 8, "min_length": 128}
    texts = [f"A dog runs in the snow with {number} men and a red ball." for number in range(500)]
    body = json.dumps({"texts": texts, **pair, "options": options})
    while not stop.wait(0.3):
        with suppress(OSError), closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
            stop.wait(0.3)


def send_equal_languages(port: int, pair: dict[str, str], stop: Event) -> None:
    """Send large files that need no translation."""
    equal = {"source": pair["source"], "target": pair["source"]}
    while not stop.wait(0.1):
        sent(port, "equal", upload(b"7" * 1_040_000, "equal.txt", equal))


def measured(
    server: Serving, group: Group, pool: ProcessPoolExecutor, stop: Event, pair: dict[str, str], work: Any
) -> Phase:
    """Let another client measure while something happens: ``work`` starts it and returns its future, or is the seconds
    that nothing happens."""
    stop.clear()
    client = pool.submit(watch, server.port, pair, stop)
    attacking = None if isinstance(work, float) else work()
    memory, end = 0.0, time.monotonic() + (work if isinstance(work, float) else math.inf)
    try:
        while time.monotonic() < end and not (attacking and attacking.done()) and server.is_alive:
            memory = max(memory, group.memory_mib())
            time.sleep(0.05)
    finally:
        stop.set()
    return Phase(client.result(), attacking.result() if attacking else [], memory, group.killed(), server.is_alive)


def written(folder: Path, others: Path | None) -> list[Path]:
    """Write the documents and requests, before anything is measured."""
    documents: dict[str, tuple[str, Callable[[], bytes]]] = {**REFUSED, **TRANSLATED, **MORE}
    for name, (suffix, make) in documents.items():
        (folder / f"{name}.{suffix}").write_bytes(make())
    for name, request in REQUESTS.items():
        (folder / f"{name.replace('/', ' ')}.http").write_bytes(request)
    paths = [*folder.iterdir(), *(others.iterdir() if others else ())]
    return sorted(path for path in paths if path.suffix in (*EXTENSIONS, ".http"))


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path), default=COMMITTED / "int8")
@click.option("--memory", type=Size(), default="512M", show_default=True, help="Memory of the server, all of it.")
@click.option("--seconds", default=20.0, show_default=True, help="Time without an attack, before and after.")
@click.option("--clients", default=8, show_default=True, type=click.IntRange(2), help="Clients that attack together.")
@click.option("--documents", type=click.Path(path_type=Path, exists=True), help="Folder of further documents.")
@json_option
def main(bundle: Path, memory: int, seconds: float, clients: int, documents: Path | None, as_json: bool) -> None:
    """Send `edgeformer serve` hostile documents and other requests, first one by one, then by many clients who also
    open connections that they hardly use, leave requests alone, and upload for nothing. Another client measures its
    latency.

    Exits with 1 if the server ends, has more memory than it may, fails another client's request, or gives
    a hostile one no answer or an internal error. Limiting memory needs Linux and rights on its control groups.
    """
    results: dict[str, Result] = {}
    spawn = get_context("spawn")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        paths = written(folder, documents)
        stop = stack.enter_context(spawn.Manager()).Event()
        pool = stack.enter_context(ProcessPoolExecutor(2, mp_context=spawn))
        pool.submit(int).result()
        try:
            group = Group(memory)
        except (OSError, KeyError) as error:
            raise click.ClickException(f"This system does not let you limit memory ({error}).") from None
        stack.callback(group.close)
        arguments = ("--threads", "1", "--char-limit", "10000")
        with group.joined():
            server = stack.enter_context(serving(f"en-fr={bundle}", *arguments))
        pair = {name: value for name, value in translation_fields(server).items() if name != "model"}
        measured(server, group, pool, stop, pair, 2.0)  # opens the model
        phases = {
            "before": seconds,
            "one by one": lambda: pool.submit(attack, server.port, pair, paths, 1),
            "together": lambda: pool.submit(attack, server.port, pair, paths, clients),
            "after": seconds,
        }
        progress = stack.enter_context(counting("phases"))
        for number, (name, work) in enumerate(phases.items()):
            progress(number, len(phases))
            results[name] = measured(server, group, pool, stop, pair, work)
        errors = server.errors()
    for line in errors:
        click.echo(line, err=True)
    conclude(results, as_json=as_json)


if __name__ == "__main__":
    main()
