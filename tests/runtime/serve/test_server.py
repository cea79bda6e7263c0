"""A server as a whole: limits, signals, processes, reloading, measurements and logs."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from edgeformer_runtime.engines.cpus import available_cpus
from edgeformer_runtime.serve.metrics import FOLDER_VARIABLE
from edgeformer_runtime.serve.server import Server, _serve_here, bind
from edgeformer_runtime.serve.settings import BatchLimits, ServeSettings
from tests.commands import error
from tests.runtime.serve.http import half_a_request, logged_lines, serving, wait_until
from tests.runtime.test_workspace import bundle_between, replace_bundle

TEXT = "The old dog runs."


def body(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"texts": list(texts or (TEXT,)), "source": "en", "target": "fr", **fields}


@contextmanager
def command(*arguments: str | Path, shell: str = "") -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """``edgeformer serve`` in a process of its own, in which a shell did something before: the process, its address,
    and its output so far."""
    code = "from edgeformer.cli import main; main()"
    words = [sys.executable, "-c", code, "serve", *map(str, arguments), "--port", "0", "--threads", "1"]
    process = subprocess.Popen(
        ["sh", "-c", f'{shell}; exec "$@"', "sh", *words] if shell else words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    deadline = threading.Timer(300, process.kill)  # ends every wait for its output
    deadline.start()
    try:
        lines = [process.stdout.readline()]
        found = re.search(r"http://\S+", lines[0])
        assert found, process.communicate()
        while not lines[-1].startswith("  curl"):
            lines.append(process.stdout.readline())
            assert lines[-1], process.communicate()
        yield process, found[0], lines
    finally:
        deadline.cancel()
        process.kill()
        process.communicate(timeout=60)


def post(url: str, content: object) -> Any:
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read())


def eventually(read: Callable[[], str], expected: str) -> str:
    """Read until the text has what is expected: a request is counted just after it is answered."""
    deadline = time.monotonic() + 5
    while expected not in (text := read()):
        assert time.monotonic() < deadline, text
        time.sleep(0.01)
    return text


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as response:
        return str(response.read().decode())


def wait_until_ready(url: str) -> None:
    for _ in range(300):
        try:
            with urllib.request.urlopen(url + "/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the server did not start")


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
        long = body(*["A dog runs."] * 150)
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


def test_a_client_that_goes_away_frees_its_place(small_bundle: Path) -> None:
    with serving(small_bundle, batch=BatchLimits(max_sentences=1, delay=0)) as client:
        name = small_bundle.name
        connection = HTTPConnection(client.url.removeprefix("http://"), timeout=60)
        content = json.dumps(body(*["A dog runs."] * 500))
        connection.request("POST", "/v1/translate", content, {"Content-Type": "application/json"})
        wait_until(lambda: client.waiting(name))
        connection.close()
        wait_until(lambda: not client.waiting(name), 2)
        assert client.json("/v1/translate", body()).status == 200


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
        for expected in ('path="other",status="404"', 'request_seconds_count{path="/v1/translate"}'):
            text = eventually(lambda: client.get("/metrics", authorization="Bearer secret").body.decode(), expected)
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")
    name = small_bundle.name
    assert values['edgeformer_requests_total{path="/v1/translate",status="200"}'] == "1.0"
    assert values['edgeformer_requests_total{path="other",status="404"}'] == "1.0"
    assert values[f'edgeformer_batch_sentences_sum{{model="{name}"}}'] == "2.0"
    assert values[f'edgeformer_queue_sentences{{model="{name}"}}'] == "0.0"
    assert float(values[f'edgeformer_tokens_total{{model="{name}",side="source"}}']) > 4
    assert values['edgeformer_request_seconds_count{path="/v1/translate"}'] == "1.0"


def test_a_process_that_ended_is_not_measured_any_more(tmp_path: Path) -> None:
    """Of several processes, each tells the length of its queue whenever it changes, not only when it is asked."""
    code = (
        "import os, sys; from edgeformer_runtime.serve.metrics import Metrics; metrics = Metrics()\n"
        "metrics.in_flight.inc(); metrics.set_queue('m', int(sys.argv[1])); metrics.requests.labels('/', '200').inc()\n"
        "print(os.getpid(), flush=True); sys.stdin.read(); os._exit(137)"
    )
    environment = {**os.environ, FOLDER_VARIABLE: str(tmp_path)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(length)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for length in (7, 5)
    ]
    show = "import os, sys; from edgeformer_runtime.serve.metrics import Metrics, forget_process\n"
    show += "[forget_process(int(number)) for number in sys.argv[1:]]; print(Metrics().text().decode())"

    def values(*ended: str) -> list[str]:
        words = [sys.executable, "-c", show, *ended]
        text = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
        measured = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")
        names = ('queue_sentences{model="m"}', "requests_in_flight", 'requests_total{path="/",status="200"}')
        return [measured[f"edgeformer_{name}"] for name in names]

    numbers = [worker.stdout.readline().strip() for worker in workers if worker.stdout is not None]
    assert values() == ["12.0", "2.0", "2.0"]
    with workers[0], workers[1]:
        workers[0].kill()
        workers[0].wait(60)
        assert values(numbers[0]) == ["5.0", "1.0", "2.0"]
        workers[1].kill()


def test_a_thread_that_translates_waits_little_for_others(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    async def serve(self: Server, sockets: list[socket.socket]) -> None:
        found.append(sys.getswitchinterval())

    monkeypatch.setattr(Server, "serve", serve)
    before, settings = sys.getswitchinterval(), ServeSettings(bundles=(str(small_bundle),), port=0)
    try:
        with bind(settings) as listener:
            _serve_here(settings, listener)
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


def test_sigterm_answers_what_was_accepted(small_bundle: Path) -> None:
    with command(small_bundle, "--batch-sentences", "1") as (process, url, lines):
        wait_until_ready(url)
        assert "en -> fr, fp32" in lines[1]
        assert lines[-1].startswith(f"  curl {url}/translate")
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(post, url + "/v1/translate", body(*["A dog runs."] * 100))
            wait_until(lambda: "edgeformer_requests_in_flight 2.0" in get(url + "/metrics"))
            process.send_signal(signal.SIGTERM)
            assert len(answer.result(120)["translations"]) == 100
        assert process.wait(120) == 0
        assert process.stderr is not None
        logged = [json.loads(line) for line in process.stderr]
        assert logged[-1]["texts"] == 100


@pytest.mark.slow
def test_several_processes_share_the_port_and_their_measurements(small_bundle: Path) -> None:
    with command(small_bundle, "--workers", "2") as (process, url, _):
        wait_until_ready(url)
        answers = [post(url + "/translate", {"q": TEXT, "source": "en", "target": "fr"}) for _ in range(6)]
        assert all(answer == answers[0] for answer in answers)
        eventually(lambda: get(url + "/metrics"), 'edgeformer_requests_total{path="/translate",status="200"} 6.0')
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds processes in /proc")
def test_a_process_that_dies_is_replaced(small_bundle: Path) -> None:
    def workers(process: subprocess.Popen[str]) -> set[int]:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return {
            int(child) for child in children if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes()
        }

    with command(small_bundle, "--workers", "2") as (process, url, _):
        wait_until_ready(url)
        first = min(before := workers(process))
        os.kill(first, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while (len(now := workers(process)) < 2 or first in now) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(now) == len(before) == 2
        assert first not in now
        wait_until_ready(url)
        assert post(url + "/v1/translate", body())["translations"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


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
        ("--suggestions", tmp_path, "Suggestions cannot be written to"),
        ("--suggestions", tmp_path / "none" / "file", "(No such file or directory)"),
    ):
        assert message in error("serve", small_bundle, option, value)
    assert "Two bundles have the name" in error("serve", small_bundle, small_bundle)
    assert error("serve", small_bundle, "--port", "70000", code=2).startswith("Invalid value for '--port'")


def test_a_trusted_key_that_cannot_be_read_is_an_error_at_the_start(small_bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed: pip install 'edgeformer[sign]'")
    assert "cannot be read" in error("serve", small_bundle, "--trusted-key", tmp_path / "none")


@pytest.mark.slow
def test_the_command_says_what_is_of_no_use(small_bundles: Any) -> None:
    bundles = [f"first={small_bundles['fp32']}", f"second={small_bundles['int8']}"]
    with command(*bundles, "--workers", str(available_cpus() + 1)) as (process, url, lines):
        assert lines[1] == "  first: en -> fr, fp32\n"
        assert lines[2] == "  second: en -> fr, int8; used only if a request names it\n"
        wait_until_ready(url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Note: there are more workers than CPUs")


def test_addresses_of_ipv6_are_written_in_brackets(small_bundle: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("needs IPv6")
    with command(small_bundle, "--host", "::1") as (_, url, lines):
        wait_until_ready(url)
        assert re.fullmatch(r"http://\[::1\]:\d+", url)
        assert lines[-1].startswith(f"  curl {url}/translate")


def test_ready_says_no_while_the_server_shuts_down(small_bundle: Path) -> None:
    with serving(small_bundle) as client:
        assert client.get("/ready").json == {"status": "ready"}
        client.context.is_draining = True
        answer = client.get("/ready")
        assert (answer.status, answer.json) == (503, {"status": "draining"})


def test_a_request_that_does_not_arrive_ends(small_bundle: Path) -> None:
    with serving(small_bundle, request_seconds=0.2) as client, half_a_request(client.url) as connection:
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"did not arrive within 0.2 seconds" in answer + connection.recv(65536)


def test_malformed_requests_leave_no_traceback_in_the_log(small_bundle: Path) -> None:
    with command(small_bundle) as (process, url, _):
        half_a_request(url).close()
        for junk in (
            b"nonsense\r\n\r\n",
            b"POST /translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
            b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
            b"POST /none HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
            b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n"
            b"Content-Length: 2\r\n\r\nno",
        ):
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=60) as connection:
                connection.sendall(junk)
                assert connection.recv(65536).startswith(b"HTTP/1.1 400")
        post(f"{url}/v1/translate", body("A dog."))
        process.terminate()
        assert process.stderr is not None
        lines = [json.loads(line) for line in process.stderr]
        assert [line["status"] for line in lines if "status" in line].count(499) >= 1
        assert {line["event"] for line in lines} == {"request"}


def test_clients_that_leave_a_stream_leave_nothing_but_json_in_the_log(small_bundle: Path) -> None:
    with command(small_bundle) as (process, url, _):
        content = json.dumps(body(*["A dog runs."] * 300, stream=True))
        for _ in range(3):
            connection = HTTPConnection(url.removeprefix("http://"))
            connection.request("POST", "/v1/translate", content, {"Content-Type": "application/json"})
            with connection.getresponse() as response:
                response.fp.readline()
            connection.close()
        process.terminate()
        assert process.stderr is not None
        assert [json.loads(line)["event"] for line in process.stderr] == ["request"] * 3
