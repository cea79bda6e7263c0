"""The end of a server: nothing that was sent before it is lost, and nobody waits for a server that has ended."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from edgeformer_server.server import Server
from edgeformer_server.settings import BatchLimits
from tests.server.http import Client, serving, wait_until

PAIR = {"source": "en", "target": "fr"}


def send(connection: HTTPConnection, *texts: str, **fields: Any) -> None:
    content = {"texts": texts or ["The old dog runs."], **PAIR, **fields}
    connection.request("POST", "/v1/translate", json.dumps(content), {"Content-Type": "application/json"})


def answered(connection: HTTPConnection) -> tuple[int, HTTPResponse, dict[str, Any]]:
    response = connection.getresponse()
    content = json.loads(response.read())
    if response.headers["connection"] == "close":
        connection.close()
    return response.status, response, content


def test_what_arrives_just_before_the_end_is_answered(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may come while the server is busy, so that it has neither accepted nor read what was sent before."""
    is_busy, tick = Event(), Server.on_tick

    async def busy_tick(self: Server, counter: int) -> bool:
        is_ending = await tick(self, counter)
        if is_ending:
            is_busy.set()
            time.sleep(0.5)
        return is_ending

    monkeypatch.setattr(Server, "on_tick", busy_tick)
    with ThreadPoolExecutor(1) as pool:
        with serving(bundle) as client:
            address = client.url.removeprefix("http://")
            kept, new = HTTPConnection(address, timeout=60), HTTPConnection(address, timeout=60)
            send(kept)
            assert answered(kept)[0] == 200
            assert kept.sock  # the connection is still open

            def late() -> list[tuple[int, HTTPResponse, dict[str, Any]]]:
                is_busy.wait(60)
                for connection in (kept, new):
                    send(connection)
                return [answered(connection) for connection in (kept, new)]

            waiting = pool.submit(late)
        answers = waiting.result(60)
    assert [status for status, _, _ in answers] == [200, 200]
    assert [response.headers["connection"] for _, response, _ in answers] == ["close", "close"]


def test_what_takes_longer_than_the_time_to_shut_down_is_refused(
    bundle: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A stream ends with an error, and the log has a line of it at most."""
    limits, text = BatchLimits(max_sentences=1, delay=0), "The old dog runs near the house."
    stream = {"texts": [f"{text}\n" * 9] * 500, "stream": True, **PAIR}
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        with serving(bundle, batch=limits, shutdown_seconds=1, max_beam=32) as client:
            connection = HTTPConnection(client.url.removeprefix("http://"), timeout=60)
            send(connection, *[text] * 500, options={"beam_size": 32, "min_length": 30})
            wait_until(lambda: client.waiting("en-fr"))
            response = stack.enter_context(client.open("/v1/translate", stream))
            assert response.readline() == b"event: token\n"
            streamed = pool.submit(response.read)
            began = time.monotonic()
        assert time.monotonic() - began < 10
        status, refused, content = answered(connection)
        assert (status, refused.headers["retry-after"]) == (503, "1")
        assert content == {"error": "The server is shutting down."}
        assert streamed.result(120).endswith(b'event: error\ndata: {"error":"The server is shutting down."}\n\n')
    assert all("running task(s), timeout graceful shutdown" in line for line in capfd.readouterr().err.splitlines())


def test_the_end_waits_for_no_thread(bundle: Path, tmp_path: Path) -> None:
    """Neither one that translates nor one of the pools, whose threads Python waits for."""
    script = tmp_path / "stuck.py"
    script.write_text(
        "import sys, time\n"
        "from edgeformer_text import TextTranslator\n"
        "from edgeformer_runtime.translator import Translator\n"
        "split = TextTranslator.split\n"
        "def stuck(owner, text, *_, **options):\n"
        "    if text == 'whole':\n"
        "        return split(owner, text, **options)\n"
        "    print('stuck', flush=True)\n"
        "    time.sleep(600)\n"
        "TextTranslator.split = Translator.translate = stuck\n"
        "from edgeformer.cli import main\n"
        "main()\n",
        encoding="utf-8",
    )
    words = [sys.executable, str(script), "serve", str(bundle), "--port", "0", "--shutdown-timeout", "1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = re.findall(r"http://(\S+)", process.stdout.readline())[0]
        assert Client(f"http://{url}").get("/ready").status == 200
        one, two = HTTPConnection(url, timeout=60), HTTPConnection(url, timeout=60)
        with closing(one), closing(two):
            for connection, text in ((one, "whole"), (two, "split")):
                send(connection, text)
                while process.stdout.readline() != "stuck\n":
                    pass
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0
