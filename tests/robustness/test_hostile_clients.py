"""A server that many hostile clients attack at a time: it answers each, and another client too, in little memory."""

from __future__ import annotations

import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

from edgeformer_runtime.limits import MIB
from tests.robustness.outcomes import memory_of
from tests.server.hostile_documents import REFUSED, SLOW, TRANSLATED
from tests.server.hostile_requests import PIECES, REQUESTS, form, libre, parts
from tests.server.http import command
from tests.server.test_workspace import bundle_between
from tests.store import COMMITTED

if not sys.platform.startswith("linux"):
    pytest.skip("reads memory as only Linux can", allow_module_level=True)

MEMORY = 400 * MIB
"""Memory that the server's process may have; documents are read in others, whose memory is limited.
Eight of the largest requests are read at a time, and what is freed stays in the allocator's arenas."""
CLIENTS = 8
ANSWERS = {200, 408, 503, 504, *range(400, 500)}
TEXTS = {
    "marks": "a" + "\u0301\u0489" * 4000,
    "directions": "\u202e\u2066\u200f" * 3000,
    "families": "👨\u200d👩\u200d👧\u200d👦" * 1000,
    "controls": "\0\x1b[2J\x07" * 2000,
    "brackets": "<" * 9000,
    "entities": "&#x110000;&amp" * 600,
}


def http(address: str, body: bytes, kind: str) -> bytes:
    head = f"POST {address} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def requests() -> Iterator[tuple[str, bytes]]:
    """Requests by what is special about each."""
    yield from PIECES.items()
    for path in ("/v1/translate", "/translate", "/detect"):
        for name, make in REQUESTS[path].items():
            yield f"{name}, {path}", http(*make())
    for name, text in TEXTS.items():
        for format in ("text", "html"):
            yield f"{name}, {format}", http(*libre("/translate", q=text, format=format))
    yield "broken escapes", http(*form("/translate", b"%zz%f&x=%"))
    yield "long name of a file", http(*parts("/translate_file", b"a dog", "q" * 900_000))
    for name, (suffix, make_document) in {**REFUSED, **TRANSLATED}.items():
        if name not in SLOW:
            yield name, http(*parts("/translate_file", make_document(), f"../../../a.{suffix}"))


def status_of(port: int, request: bytes) -> int:
    """Send a request; 0 if there is no answer."""
    answer = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=300) as connection:
        with suppress(OSError):  # it may be refused before all of it is sent
            connection.sendall(request)
        answer = connection.recv(12)
    return int(answer[9:12] or 0)


def translations(port: int, stop: Event) -> Iterator[int]:
    """The statuses that another client gets."""
    while not stop.is_set():
        yield status_of(port, http(*libre("/translate", q="The old dog runs near the river.")))
        time.sleep(0.02)


@pytest.mark.slow
def test_hostile_clients_leave_a_server_that_answers_another(tmp_path: Path) -> None:
    bundle, stop = bundle_between(COMMITTED / "int8", tmp_path, "en-fr", "en", "fr"), Event()
    with command(bundle, "--char-limit", "10000", "--no-log") as (process, client, _):
        port = int(client.url.rpartition(":")[2])
        with ThreadPoolExecutor(CLIENTS) as clients, ThreadPoolExecutor(1) as other:
            another = other.submit(lambda: Counter(translations(port, stop)))
            answers = {name: clients.submit(status_of, port, request) for name, request in requests()}
            try:
                statuses = {name: answer.result() for name, answer in answers.items()}
            finally:
                stop.set()
        assert {name: status for name, status in statuses.items() if status not in ANSWERS} == {}
        assert another.result().keys() == {200}
        assert process.poll() is None
        assert memory_of(process.pid, "VmHWM") < MEMORY
        process.terminate()
        assert process.stderr is not None
        assert [line for line in process.stderr if '"level": "info"' not in line] == []
