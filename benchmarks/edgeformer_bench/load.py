"""Loads a server, and checks whether it keeps its promises: ``python -m edgeformer_bench.load BUNDLE``."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from random import Random

import click

from edgeformer.errors import ConfigError
from edgeformer_bench.commands import Command
from edgeformer_bench.growth import GrowthLimit, ProcessState, growth, quarters
from edgeformer_bench.timer import Timing
from edgeformer_runtime.check.machine import machine_summary
from edgeformer_runtime.cli.output import console, table

LIMITS = {
    "memory_mib": GrowthLimit("memory, MiB", share=0.02),
    "files": GrowthLimit("open files"),
    "threads": GrowthLimit("threads"),
}
OVERLOAD_LIMITS = {"memory_mib": GrowthLimit("memory, MiB", share=0.1)}
SAMPLES = 60
"""Limits on the growth of the server from the warm-up to the end, and the number of samples needed to judge it."""
DEADLINE, GRACE, RECOVERY = 2.0, 5.0, 2.0
"""Seconds that a request of an overload gives the server; that it may be late; and after which one is as fast again."""


class LoadGenerator:
    """Requests to a server, what became of them, and how the server was meanwhile."""

    def __init__(self, server: subprocess.Popen[str], port: int) -> None:
        self.outcomes, self.latencies, self.samples = Counter[str](), list[float](), list[ProcessState]()
        self._server, self._port, self._random = server, port, Random(0)

    async def ask(self, deadline: float, count: int = 1) -> None:
        """Send requests with a deadline in seconds, one after the other over one connection."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            with closing(writer):
                for _ in range(count):
                    fields = {"texts": [f"Dog {self._random.random()}."], "model": "bench", "timeout": deadline}
                    body = json.dumps(fields).encode()
                    began = time.monotonic()
                    writer.write(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
                    writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
                    async with asyncio.timeout(deadline + GRACE):
                        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
                        length = re.search(rb"\r\ncontent-length: *(\d+)", answer)
                        await reader.readexactly(int(length[1]) if length else 0)
                    status = answer[9:12].decode()
                    if status == "503" and b"\r\nretry-after:" not in answer:
                        status = "503 without Retry-After"
                    self.outcomes[status] += 1
                    self.latencies += [time.monotonic() - began] if status == "200" else []
        except (OSError, EOFError) as error:  # EOFError is that of an incomplete answer
            self.outcomes[f"no answer ({type(error).__name__})"] += 1

    async def wait(self, clients: int, seconds: float) -> None:
        """Let clients send one request after the other."""
        end = time.monotonic() + seconds

        async def client() -> None:
            while time.monotonic() < end:
                await self.ask(60.0, count=10)

        await asyncio.gather(*(client() for _ in range(clients)))

    async def overload(self, rate: float, seconds: float, after: LoadGenerator, usual: float) -> None:
        """Send so many requests a second, at random times, without waiting for answers; and then, as another load, one
        at a time until one is translated in the usual time, or until that must have happened."""
        due, end = time.monotonic(), time.monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            while due < end:
                tasks.create_task(self.ask(DEADLINE))
                due += self._random.expovariate(rate)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            end = time.monotonic() + RECOVERY
            while min(after.latencies, default=usual) >= usual and time.monotonic() < end:
                await after.ask(usual)

    async def watch(self, work: Coroutine[object, None, None]) -> None:
        """Take a sample of the server every second until something is done."""
        task = asyncio.ensure_future(work)
        while not task.done():
            self.samples += [ProcessState.of(self._server.pid)] if self._server.poll() is None else []
            await asyncio.wait({task}, timeout=1)
        await task

    def problems(self, allowed: set[str], limits: dict[str, GrowthLimit]) -> list[str]:
        """Broken promises: outcomes that are not allowed, growth, and the end of the server."""
        found = [f"{count:,} requests: {what}" for what, count in self.outcomes.items() if what not in allowed]
        found += growth(self.samples, limits) if len(self.samples) >= SAMPLES else []
        return [*found, *["the server ended"] * (self._server.poll() is not None)]

    def figures(self) -> dict[str, str]:
        """Counts and measurements by name."""
        figures = {f"requests: {what}": f"{count:,}" for what, count in sorted(self.outcomes.items())}
        if self.latencies:
            times = Timing.of(self.latencies)
            figures["p50, p95, p99, ms"] = f"{times.median_ms:,.0f}, {times.p95_ms:,.0f}, {times.p99_ms:,.0f}"
        grown = {limit.what: quarters(self.samples, name) for name, limit in LIMITS.items() if self.samples}
        return figures | {what: "{:.0f} → {:.0f}".format(*values) for what, values in grown.items()}


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--minutes", default=5.0, show_default=True, type=click.FloatRange(min=0.02), help="Time of each load.")
@click.option("--clients", default=32, show_default=True, type=click.IntRange(1), help="Clients that wait.")
@click.option("--times", default=4.0, show_default=True, help="Multiple of the capacity to send afterwards.")
def main(bundle: Path, minutes: float, clients: int, times: float) -> None:
    """Load `edgeformer serve` with clients that wait for their answers, then with more requests than it can answer.

    Exits with 1 unless each request is translated (or, of too many, refused with 503 and Retry-After, or 504), the
    server does not grow, and it answers as usual 2 seconds after too many requests. Loads of less than a minute do not
    say whether the server grows. Linux only.
    """
    words = ("-u", "-m", "edgeformer", "serve", f"bench={bundle}", "--port", "0", "--threads", "1", "--no-log")
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r":(\d+)$", server.stdout.readline().rstrip()) if server.stdout else None
            if address is None:
                raise ConfigError(f"No server of `{bundle}` could be started.")
            seconds = 60 * minutes
            waiting, overloaded, after = (LoadGenerator(server, int(address[1])) for _ in range(3))
            asyncio.run(waiting.watch(waiting.wait(clients, seconds)))
            usual, rate = 2 * max(waiting.latencies, default=30.0), times * len(waiting.latencies) / seconds + 1
            asyncio.run(overloaded.watch(overloaded.overload(rate, seconds, after, usual)))
            problems = waiting.problems({"200"}, LIMITS) + overloaded.problems({"200", "503", "504"}, OVERLOAD_LIMITS)
        finally:
            server.terminate()
    if min(after.latencies, default=usual) >= usual:
        problems.append(f"no request was translated as fast as before within {RECOVERY:g} s of the overload's end")
    figures = [load.figures() for load in (waiting, overloaded)]
    rows = table(f"{bundle}; {machine_summary()}", "", "waiting", "overloaded")
    for name in {**figures[0], **figures[1]}:
        rows.add_row(name, *(column.get(name, "–") for column in figures))
    console().print(rows)
    for problem in problems:
        console(stderr=True).print(f"BROKEN {problem}", style="red")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
