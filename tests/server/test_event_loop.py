"""Nothing that a request may send keeps the event loop from other requests for long.

Both of what can do so is measured in processor time, which other programs do not change: callbacks of the loop, and
threads that run between two of its turns, such as those that hold Python's lock.
"""

from __future__ import annotations

import asyncio.events
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from edgeformer_runtime.limits import MIB
from edgeformer_server.api.page import DESCRIPTION, FILES
from edgeformer_server.app import ROUTES
from edgeformer_server.server import GARBAGE, SWITCH_SECONDS
from tests.server.hostile_requests import PIECES, REQUESTS, form, libre, v1
from tests.server.http import Client, serving

SECONDS = 0.08
"""10 ms on a core of its own takes several times as long where other programs share the core and its caches."""
SLOWER = {"attributes": 0.6, "paragraphs": 0.25, "parts": 0.25, "an attribute": 0.25, "a paragraph": 0.25}
"""What is known to take longer, by name: 211, 42, 58, 35 and 28 ms on two cores. Reading the answer of the process
that takes a document apart, and the fields of a form, holds the interpreter's lock."""
ATTEMPTS = 4
"""A thread may also run for long because the loop's has no core; not each time."""
PATHS = {*(route.path for route in ROUTES), *DESCRIPTION, *FILES}
CASES = REQUESTS | {path: {"": lambda path=path: (path, b"", "")} for path in sorted(PATHS) if path not in REQUESTS}


class Monitor:
    """The longest time for which the event loop of a server was kept from others."""

    def __init__(self) -> None:
        self.longest, self.what = 0.0, ""
        self._loops = set[object]()

    def note(self, seconds: float, what: str) -> None:
        if seconds > self.longest:
            self.longest, self.what = seconds, what

    @contextmanager
    def watching(self) -> Iterator[None]:
        run, note = asyncio.events.Handle._run, self.note

        def timed(handle: asyncio.events.Handle) -> None:
            if (loop := asyncio.get_running_loop()) not in self._loops:
                self._loops.add(loop)
                loop.create_task(self.beat())
            what, began = repr(handle), time.thread_time()
            try:
                run(handle)
            finally:
                note(time.thread_time() - began, what)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.events.Handle, "_run", timed)
            yield

    async def beat(self) -> None:
        """Note for how long other threads that Python runs were at work between two turns of the loop."""
        before: dict[int, float] = {}
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.001)
            wall, now = time.monotonic() - began, dict[int, float]()
            for thread in threading.enumerate():
                if thread.ident and thread.name.startswith(("texts", "large-texts", "asyncio", "open", "stream")):
                    with suppress(OSError):  # it has ended
                        now[thread.ident] = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
                        self.note(
                            min(wall, now[thread.ident] - before.get(thread.ident, now[thread.ident])), thread.name
                        )
            before = now


@pytest.fixture(scope="module")
def monitor() -> Iterator[Monitor]:
    """A monitor of all loops, in a process with the server's settings."""
    interval, threshold, monitor = sys.getswitchinterval(), gc.get_threshold(), Monitor()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)
    with monitor.watching():
        yield monitor
    sys.setswitchinterval(interval)
    gc.set_threshold(*threshold)
    gc.unfreeze()


@pytest.fixture(scope="module")
def client(folder: Path, monitor: Monitor) -> Iterator[Client]:
    with serving(folder, request_seconds=10.0) as client:
        for path, body, kind in (
            v1(texts=["A {dog}."]),
            v1(texts=["A dog."], stream=True),
            libre("/detect", q="A dog runs."),
            form("/detect", b"A dog runs."),
        ):
            client.ask(path, body, content_type=kind)
        client.get("/metrics")
        yield client


def longest(monitor: Monitor, send: Callable[[], object]) -> tuple[float, str]:
    """The longest time in any attempt."""
    found = []
    for _ in range(ATTEMPTS):
        monitor.longest, monitor.what = 0.0, ""
        send()
        time.sleep(0.02)
        found.append((monitor.longest, monitor.what))
        if monitor.longest <= SECONDS:
            break
    return min(found)


def test_every_endpoint_is_tried(client: Client) -> None:
    assert set(CASES) == PATHS


FAST = {
    ("/v1/translate", "glossary"),
    ("/v1/translate", "blank texts"),
    ("/detect", "escapes"),
    ("/detect", "parts"),
    ("/translate", "fields of a query"),
}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        pytest.param(path, name, marks=[pytest.mark.slow] * (len(cases) > 1 and (path, name) not in FAST))
        for path, cases in CASES.items()
        for name in cases
    ],
)
def test_the_largest_request_keeps_no_other_waiting(client: Client, monitor: Monitor, path: str, name: str) -> None:
    address, body, kind = CASES[path][name]()
    assert len(body) <= (MIB if path != "/translate_file" else 10 * MIB)
    seconds, what = longest(monitor, lambda: client.ask(address, body or None, content_type=kind))
    assert seconds <= SLOWER.get(name, SECONDS), what


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in ("chunks", "allowed headers"))) for name in PIECES],
)
def test_nothing_that_is_written_to_a_connection_keeps_others_waiting(
    client: Client, monitor: Monitor, name: str
) -> None:
    def send() -> None:
        with client.connect() as connection:
            connection.settimeout(3)
            with suppress(OSError):  # it is refused, or its time is up
                connection.sendall(PIECES[name])
                connection.recv(100)

    seconds, what = longest(monitor, send)
    assert seconds <= SECONDS, what
