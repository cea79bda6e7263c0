"""A server that many hostile clients attack at a time: it answers each, and another client too, in little memory."""

from __future__ import annotations

import gzip
import json
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
from tests.server.http import command
from tests.server.test_workspace import bundle_between
from tests.store import COMMITTED

if not sys.platform.startswith("linux"):
    pytest.skip("reads memory as only Linux can", allow_module_level=True)

MEMORY = 320 * MIB
"""Memory that the server's process may have; documents are read in others, whose memory is limited."""
CLIENTS = 8
ANSWERS = {200, 408, 503, 504, *range(400, 500)}
PAIR = {"source": "en", "target": "fr"}


def http(body: bytes = b"", *headers: str, to: str = "POST /translate", kind: str = "application/json") -> bytes:
    lines = [f"{to} HTTP/1.1", "Host: x", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def asked(**fields: object) -> bytes:
    """A request to translate, with other fields."""
    return http(json.dumps({"q": "a dog", **PAIR, **fields}).encode())


def form(*parts: tuple[str, bytes], boundary: str = "b", end: bytes = b"--b--\r\n") -> bytes:
    body = b"".join(
        b"--b\r\nContent-Disposition: form-data" + head.encode() + b"\r\n\r\n" + content + b"\r\n"
        for head, content in parts
    )
    return http(body + end, to="POST /translate_file", kind=f"multipart/form-data; boundary={boundary}")


def upload(content: bytes, name: str) -> bytes:
    fields = [(f'; name="{field}"', value.encode()) for field, value in PAIR.items()]
    return form(*fields, (f'; name="file"; filename="{name}"', content))


Q = ('; name="q"', b"x")
REQUESTS = {
    "one name again and again": http(b"{" + b",".join([b'"q":"a"'] * 100_000) + b"}"),
    "many names": http(json.dumps({str(number): 0 for number in range(60_000)}).encode()),
    "compressed zeros": http(gzip.compress(bytes(2**24)), "Content-Encoding: gzip"),
    "5,000 texts": asked(q=["a"] * 5000),
    "long language": asked(source="e" * 500_000),
    "large glossary": http(
        json.dumps({"texts": ["a"], **PAIR, "glossary": {f"{'(a+)+$' * 10}{n}": "x" for n in range(8000)}}).encode(),
        to="POST /v1/translate",
    ),
    "long text": asked(q="a dog " * 150_000),
    "long word": asked(q="a" * 900_000),
    "marks": asked(q="a" + "\u0301\u0489" * 4000),
    "directions": asked(q="\u202e\u2066\u200f" * 3000),
    "families": asked(q="👨‍👩‍👧‍👦" * 1000),
    "controls": asked(q="\0\x1b[2J\x07" * 2000),
    "brackets": asked(q="<" * 9000, format="html"),
    "entities": asked(q="&#x110000;&amp" * 600, format="html"),
    "form without boundary": http(b"x", kind="multipart/form-data"),
    "10,000 parts": form(*[Q] * 10_000),
    "long head of a part": form((f'; name="{"q" * 900_000}"', b"x")),
    "part without name": form(("", b"x")),
    "path as name of a file": upload(b"a dog", "../../../etc/passwd"),
    "100,000 fields": http(b"q=a&" * 100_000, kind="application/x-www-form-urlencoded"),
    "broken escapes": http(b"q=%zz%f&source=%&target=%ff", kind="application/x-www-form-urlencoded"),
    "long address": http(to="GET /" + "a" * 100_000),
    "header with zeros": http(b"{}", "X: \0"),
    "other method": http(b"{}", to="TRACE /translate"),
    "folded header": http(b"{}", "X: a\r\n b: c"),
    **{
        name: upload(make(), f"a.{suffix}")
        for name, (suffix, make) in {**REFUSED, **TRANSLATED}.items()
        if name not in SLOW
    },
}
"""Requests by what is special about each, beside those of the server's own tests."""


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
        yield status_of(port, http(json.dumps({"q": "The old dog runs near the river.", **PAIR}).encode()))
        time.sleep(0.02)


@pytest.mark.slow
def test_hostile_clients_leave_a_server_that_answers_another(tmp_path: Path) -> None:
    bundle, stop = bundle_between(COMMITTED / "int8", tmp_path, "en-fr", "en", "fr"), Event()
    with command(bundle, "--char-limit", "10000", "--no-log") as (process, client, _):
        port = int(client.url.rpartition(":")[2])
        with ThreadPoolExecutor(CLIENTS) as clients, ThreadPoolExecutor(1) as other:
            another = other.submit(lambda: Counter(translations(port, stop)))
            answers = {name: clients.submit(status_of, port, request) for name, request in REQUESTS.items()}
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
