"""Hostile clients, on connections of their own: what is not HTTP, what never arrives, and what nobody reads."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from edgeformer_server import protocol
from tests.server.http import Client, command, serving, wait_until

PAIR = b'"source":"en","target":"fr"'
POST = b"POST /translate HTTP/1.1\r\nHost: x\r\n"


def sent(client: Client, request: bytes) -> bytes:
    """Send bytes, and read until the server closes the connection."""
    answer = b""
    with client.connect() as connection:
        connection.sendall(request)
        while part := connection.recv(65536):
            answer += part
    return answer


def refused(answer: bytes, status: int) -> str:
    """The error of a refusal."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"application/json" in head
    content = json.loads(body)
    assert set(content) == {"error"}
    return str(content["error"])


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 1_000_000,
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 100_000,
        POST + b"Content-Length: -5\r\n\r\n",
        POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
    ],
    ids=lambda request: repr(request[:60]),
)
def test_what_is_not_http_is_refused_in_json(client: Client, request_: bytes) -> None:
    assert refused(sent(client, request_), 400) == "Invalid HTTP request received."


def test_clients_that_leave_before_they_are_refused_are_no_errors(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, errors = list[asyncio.Transport](), list[object]()

    def failing(transport: asyncio.Transport) -> None:
        left.append(transport)
        raise OSError(107, "Transport endpoint is not connected")

    monkeypatch.setattr(protocol, "LINGER_SECONDS", 0.2)
    monkeypatch.setattr(logging.getLogger("asyncio"), "error", lambda *message, **_: errors.append(message))
    monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.write_eof", failing)
    for request in (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000):
        refused(sent(client, request), 400)
    assert [transport.is_closing() for transport in left] == [True, True]
    assert not errors


def test_a_length_that_is_stated_twice_ends_the_connection(client: Client) -> None:
    request = (
        POST
        + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    assert refused(sent(client, request), 400) == "The request states its length in two ways."


def test_a_compressed_body_is_refused_as_such(client: Client) -> None:
    headers = (
        b"Content-Type: application/json\r\nContent-Encoding: gzip\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert refused(sent(client, POST + headers), 400).startswith("The encoding `gzip` is not supported")


@pytest.mark.parametrize("target", [b"/health", b"http://x/health", b"HTTPS://x:1/health?a=b"])
def test_a_target_may_be_a_whole_address(client: Client, target: bytes) -> None:
    request = b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert sent(client, request).endswith(b'\r\n\r\n{"status":"ok"}')


def test_other_protocols_are_not_offered(client: Client) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    assert sent(client, request).endswith(b'\r\n\r\n{"status":"ok"}')


def has_ended(connection: socket.socket) -> bool:
    """Whether the server has closed a connection that it did not answer on."""
    connection.settimeout(0.05)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("begin", [b"", POST + b"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"])
def test_connections_that_wait_for_their_client_make_room_for_others(bundle: Path, begin: bytes) -> None:
    """The oldest ones do, and none whose request is being answered."""
    with serving(bundle, max_connections=20) as client, ExitStack() as stack:
        content = json.dumps({"texts": ["A dog runs."] * 500, "source": "en", "target": "fr"}).encode()
        busy = stack.enter_context(client.connect())
        busy.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(content) + content)
        wait_until(lambda: client.waiting("en-fr"))
        waiting = []
        for _ in range(60):
            waiting.append(stack.enter_context(client.connect()))
            waiting[-1].sendall(begin)
            assert client.get("/health").status == 200
        assert all(map(has_ended, waiting[:30]))
        assert not any(map(has_ended, waiting[-10:]))
        assert busy.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_more_connections_than_descriptors_are_no_end_of_the_server(bundle: Path) -> None:
    resource = pytest.importorskip("resource", reason="needs limits of POSIX")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this process may not open enough files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    try:
        with command(bundle, shell="ulimit -n 1024") as (process, client, _), ExitStack() as stack:
            assert client.get("/ready").status == 200
            for _ in range(1100):
                stack.enter_context(client.connect())
            for _ in range(5):
                assert client.get("/health").json == {"status": "ok"}
            process.terminate()
            assert process.stderr is not None
            assert len(process.stderr.readlines()) < 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_a_client_that_does_not_read_is_dropped_but_a_slow_one_is_not(bundle: Path) -> None:
    text = "dog " * 5_000_000
    content = json.dumps({"texts": [text], "source": "fr", "target": "fr"}).encode()
    head = b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(content)
    with (
        serving(bundle, request_seconds=5, max_body=2**26) as client,
        client.connect() as slow,
        client.connect() as idle,
    ):
        for connection in (slow, idle):
            connection.sendall(head + content)
            assert connection.recv(1)
        received, began = 1, time.monotonic()
        while received <= len(text) and (part := slow.recv(2**21)):
            received += len(part)
            time.sleep(0.000_000_3 * len(part))
        assert received > len(text)
        assert time.monotonic() - began > 5.5
        arrived = sum(map(len, iter(lambda: idle.recv(2**21), b"")))
    assert 0 < arrived < len(text)  # what was on its way


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (b"NaN", 400),
        (b"-Infinity", 400),
        (b"1e999", 400),
        (b"1" * 5000, 400),
        (b'["\\ud800"]', 400),
        (b'["\xed\xa0\x80"]', 400),
        (b"[]", 400),
        (b'[["a"]]', 400),
        (b'[{"a":"b"}]', 400),
        (b"[null]", 400),
        (b"true", 400),
        (b"[" * 100_000 + b"]" * 100_000, 400),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400),
        (b"[" + b'"a",' * 9_999 + b'"a"]', 400),
        (b'[""]', 200),
        (b'["a\\u0000b", "\\uffff\\ufeff\\u202e"]', 200),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_hostile_json_is_no_error_of_the_server(client: Client, value: bytes, status: int) -> None:
    for path, name in (("/translate", b"q"), ("/v1/translate", b"texts")):
        answer = client.ask(path, b'{"%b":%b,%b}' % (name, value, PAIR), content_type="application/json")
        assert answer.status == status
        assert set(answer.json) >= ({"error"} if status == 400 else set())


def test_names_of_files_neither_leave_their_folder_nor_become_headers(client: Client) -> None:
    name = "../..\\..\\a%0d%0aSet-Cookie: x=1.txt"
    url = client.upload("/translate_file", name, b"7", source="en", target="fr").json["translatedFileUrl"]
    answer = client.get(url.removeprefix(client.url))
    assert answer.headers["content-disposition"] == 'attachment; filename="a_0d_0aSet-Cookie__x_1_fr.txt"'
    assert "set-cookie" not in answer.headers
    assert answer.headers["content-type"] == "application/octet-stream"
    for path in ("..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "%00", "%ff", "0" * 3000, f"{'0' * 36}.%2e%2e"):
        assert client.get(f"/download_file/{path}").status in (400, 404)
