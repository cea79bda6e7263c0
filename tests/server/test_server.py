"""A server as a whole: limits, signals, processes, reloading, measurements and logs."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from edgeformer_server.server import Server, bind, serve
from edgeformer_server.settings import BatchLimits, ServeSettings
from tests.commands import error, succeeded
from tests.server.http import command, half_a_request, logged_lines, serving, wait_until
from tests.server.test_workspace import bundle_between, replace_bundle

TEXT = "The old dog runs."


def body(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"texts": list(texts or (TEXT,)), "source": "en", "target": "fr", **fields}


def test_large_requests_are_refused_before_they_are_read(small_bundle: Path) -> None:
    with serving(small_bundle, max_body=1000, max_upload=1000) as client:
        for path in ("/translate", "/v1/translate", "/translate_file"):
            answer = client.ask(path, b"x" * 1001, content_type="application/json")
            assert answer.status == 413
            assert answer.error == "The request has more than 1000 bytes, the limit of this server."
            assert client.ask(path, b"x" * 20_000_000).status == 413  # while the client is still sending
        chunks = (b"x" * 400 for _ in range(3))
        request = urllib.request.Request(client.url + "/v1/translate", chunks, {"Content-Type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        assert refused.value.code == 413
        refused.value.close()
        assert client.json("/v1/translate", body()).status == 200


def test_a_full_queue_and_slow_requests_are_errors_of_their_own(small_bundle: Path) -> None:
    limits = BatchLimits(max_queue=1, max_sentences=1, delay=0)
    with serving(small_bundle, batch=limits, request_seconds=600) as client:
        long = body(*["A dog runs."] * 50)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(client.json, "/v1/translate", long)
            wait_until(lambda: client.waiting(small_bundle.name))
            busy = client.json("/v1/translate", body())
            assert busy.status == 503
            assert re.fullmatch(r"The server is busy; try again in \d+ s\.", busy.error)
            assert int(busy.headers["retry-after"]) >= 1
            assert first.result(120).status == 200
        late = client.json("/v1/translate", {**long, "timeout": 0.05})
        assert (late.status, late.error) == (
            504,
            "The translation took too long; send less text at a time, or try again later.",
        )


def test_a_bundle_is_replaced_without_a_failed_request(small_bundles: Any, tmp_path: Path) -> None:
    path = bundle_between(small_bundles["fp32"], tmp_path, "bundle", "en", "fr")
    with serving(path) as client:
        statuses: list[int] = []
        is_done = threading.Event()

        def ask() -> None:
            while not is_done.is_set():
                statuses.append(client.json("/v1/translate", body(alignments=True)).status)

        with ThreadPoolExecutor(2) as pool:
            waiting = [pool.submit(ask) for _ in range(2)]
            for number in range(4):
                answered, deadline = len(statuses), time.monotonic() + 60
                while len(statuses) < answered + 2 and time.monotonic() < deadline:
                    time.sleep(0.01)
                precision = ("int8", "fp32")[number % 2]
                replace_bundle(path, bundle_between(small_bundles[precision], tmp_path, f"new{number}", "en", "fr"))
            time.sleep(0.3)
            is_done.set()
            for each in waiting:
                each.result(120)
        assert len(statuses) >= 8
        assert set(statuses) == {200}


def test_measurements(small_bundle: Path) -> None:
    with serving(small_bundle, metrics_token="secret") as client:
        client.json("/v1/translate", body("one dog", "two dogs", "7"))
        client.get("/no/such/path")
        assert client.get("/metrics").status == 401

        def text() -> str:
            return client.get("/metrics", authorization="Bearer secret").body.decode()

        counted = ('path="other",status="404"', 'request_seconds_count{path="/v1/translate"}')
        wait_until(lambda: all(each in text() for each in counted))  # which is done just after the answer
        lines = text().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line and line[0] != "#")
    name = small_bundle.name
    assert values['edgeformer_requests_total{path="/v1/translate",status="200"}'] == "1.0"
    assert values['edgeformer_requests_total{path="other",status="404"}'] == "1.0"
    assert values[f'edgeformer_batch_sentences_sum{{model="{name}"}}'] == "2.0"
    assert values[f'edgeformer_queue_sentences{{model="{name}"}}'] == "0.0"
    assert float(values[f'edgeformer_tokens_total{{model="{name}",side="source"}}']) > 4
    assert values['edgeformer_request_seconds_count{path="/v1/translate"}'] == "1.0"


def test_a_thread_that_translates_waits_little_for_others(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    async def noted(self: Server, sockets: list[socket.socket]) -> None:
        found.append(sys.getswitchinterval())

    monkeypatch.setattr(Server, "serve", noted)
    before, settings = sys.getswitchinterval(), ServeSettings(bundles=(str(small_bundle),), port=0)
    try:
        with bind(settings) as listener:
            serve(settings, listener)
    finally:
        sys.setswitchinterval(before)
    assert found[0] <= 0.001 < before


def test_logs_are_lines_of_json_without_texts(small_bundle: Path) -> None:
    with logged_lines() as lines, serving(small_bundle, access_log=True) as client:
        client.json("/v1/translate", body("secret text"))
        client.get("/secret/path?q=secret")
    first, second = map(json.loads, lines)
    assert (first["event"], first["path"], first["status"]) == ("request", "/v1/translate", 200)
    assert (first["texts"], first["characters"], first["model"]) == (1, 11, small_bundle.name)
    assert (second["path"], second["status"]) == ("other", 404)
    assert not any("secret" in line for line in lines)


def test_wrong_options_are_one_clear_sentence(small_bundle: Path, tmp_path: Path) -> None:
    assert "does not exist" in error("serve", tmp_path / "missing")
    assert error("serve", small_bundle, "--memory", "many", code=2).startswith("Invalid value for '--memory'")
    with serving(small_bundle) as client:
        port = client.url.rpartition(":")[2]
        assert "(Address already in use); choose another address" in error("serve", small_bundle, "--port", port)
    keys = tmp_path / "keys"
    keys.write_text("a b c\n", encoding="utf-8")
    assert "API keys, line 1" in error("serve", small_bundle, "--api-keys", keys)
    assert "cannot be read" in error("serve", small_bundle, "--api-keys", tmp_path / "none")
    for option, value, message in (
        ("--host", "host.invalid", "Cannot listen on host.invalid, port 5000"),
        ("--device", "abacus", "`--device` must be one of cpu, cuda"),
    ):
        assert message in error("serve", small_bundle, option, value)
    assert "Two bundles have the name" in error("serve", small_bundle, small_bundle)
    assert error("serve", small_bundle, "--port", "70000", code=2).startswith("Invalid value for '--port'")


def test_a_trusted_key_that_cannot_be_read_is_an_error_at_the_start(small_bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed: pip install 'edgeformer[sign]'")
    assert "cannot be read" in error("serve", small_bundle, "--trusted-key", tmp_path / "none")


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What the command prints before it serves."""
    monkeypatch.setattr("edgeformer_server.server.serve", lambda settings, listener: None)
    return lambda *arguments: succeeded("serve", *arguments, "--port", "0").stdout.splitlines()


def test_the_command_says_what_is_of_no_use(small_bundles: Any, announced: Callable[..., list[str]]) -> None:
    lines = announced(f"first={small_bundles['fp32']}", f"second={small_bundles['int8']}")
    assert lines[1] == "  first: en -> fr, fp32"
    assert lines[2] == "  second: en -> fr, int8; used only if a request names it"


def test_addresses_of_ipv6_are_written_in_brackets(small_bundle: Path, announced: Callable[..., list[str]]) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("needs IPv6")
    lines = announced(small_bundle, "--host", "::1")
    url = lines[0].removeprefix("Serving at ")
    assert re.fullmatch(r"http://\[::1\]:\d+", url)
    assert lines[-1].startswith(f"  curl {url}/translate")


def test_what_was_accepted_is_answered_at_the_end_and_the_log_is_json(small_bundle: Path) -> None:
    """After malformed requests, and clients that left."""
    chunks = b"Host: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"
    form = b"Host: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 2\r\n\r\nno"
    with command(small_bundle, "--batch-sentences", "1") as (process, client, lines):
        assert "en -> fr, fp32" in lines[1]
        assert lines[-1].startswith(f"  curl {client.url}/translate")
        half_a_request(client.url).close()
        junk = [b"POST /%b HTTP/1.1\r\n" % path + chunks for path in (b"translate", b"v1/translate", b"none")]
        for content in (b"nonsense\r\n\r\n", *junk, b"POST /translate HTTP/1.1\r\n" + form):
            with client.connect() as connection:
                connection.sendall(content)
                assert connection.recv(65536).startswith(b"HTTP/1.1 400")
        for _ in range(3):
            with client.open("/v1/translate", body(*["A dog runs."] * 300, stream=True)) as response:
                assert response.readline()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(client.json, "/v1/translate", body(*["A dog runs."] * 100))
            wait_until(lambda: b"edgeformer_requests_in_flight 2.0" in client.get("/metrics").body)
            process.send_signal(signal.SIGTERM)
            assert len(answer.result(120).json["translations"]) == 100
        assert process.wait(120) == 0
        assert process.stderr is not None
        logged = [json.loads(line) for line in process.stderr]
        assert logged[-1]["texts"] == 100
        assert [line["status"] for line in logged if "status" in line].count(499) >= 1
        assert {line["event"] for line in logged} == {"request"}
