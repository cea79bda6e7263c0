"""A real server in a thread, and a client."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from edgeformer_server.app import make_context
from edgeformer_server.middleware import JsonFormatter
from edgeformer_server.request import ServerContext
from edgeformer_server.server import Server, bind
from edgeformer_server.settings import ServeSettings


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The error of a response that must be one."""
        assert self.status >= 400, self.body
        assert set(self.json) == {"error"}
        return str(self.json["error"])


@dataclass(frozen=True)
class Client:
    """Asks a server."""

    url: str
    served: ServerContext | None = None
    """What the endpoints of a server in this process share."""

    @property
    def context(self) -> ServerContext:
        assert self.served is not None
        return self.served

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2])), timeout=60)

    def waiting(self, model: str) -> int:
        """Number of sentences that wait for a model."""
        batchers = self.context.service._batchers
        return batchers[model].queue_length if model in batchers else 0

    def ask(self, path: str, body: bytes | None = None, method: str | None = None, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, body, named, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                return Answer(response.status, dict(response.headers), response.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers), error.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask(path, None, None, **headers)

    def form(self, path: str, **fields: str) -> Answer:
        return self.ask(path, urllib.parse.urlencode(fields).encode())

    def json(self, path: str, content: object, **headers: str) -> Answer:
        return self.ask(path, json.dumps(content).encode(), content_type="application/json", **headers)

    @contextmanager
    def open(self, path: str, content: object) -> Iterator[HTTPResponse]:
        """Send JSON and read the answer piece by piece; leaving the block closes the connection."""
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=300)
        try:
            connection.request("POST", path, json.dumps(content), {"Content-Type": "application/json"})
            yield connection.getresponse()
        finally:
            if connection.sock:
                connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()

    def upload(
        self, path: str, name: str, content: bytes, headers: Mapping[str, str] | None = None, /, **fields: str
    ) -> Answer:
        return self.ask(path, multipart(fields, content, name), content_type=PARTS, **(headers or {}))


PARTS = "multipart/form-data; boundary=b"


def multipart(fields: Mapping[str, str], content: bytes, name: str | None = None) -> bytes:
    """A form of fields, and of a file of that name, or of the field ``q``."""
    head = "--b\r\nContent-Disposition: form-data; name="
    parts = "".join(f'{head}"{key}"\r\n\r\n{value}\r\n' for key, value in fields.items())
    last = f'"file"; filename="{name}"' if name is not None else '"q"'
    return f"{parts}{head}{last}\r\n\r\n".encode() + content + b"\r\n--b--\r\n"


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait for something that comes about, also on a machine that does a lot else."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "this has not come about"
        time.sleep(0.001)


@contextmanager
def logged_lines() -> Iterator[list[str]]:
    """Lines of the servers' log within the block."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(JsonFormatter().format(record))  # type: ignore[method-assign]  # the usual way
    log = logging.getLogger("edgeformer.serve")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        log.removeHandler(handler)


def half_a_request(url: str, path: str = "/translate") -> socket.socket:
    """Send a request without the end of its body."""
    connection = Client(url).connect()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    connection.sendall(head.encode())
    return connection


@contextmanager
def serving(*bundles: str | Path, **settings: Any) -> Iterator[Client]:
    """A server of bundles on a free port, which is shut down at the end."""
    values = {"port": 0, "threads": 1, "access_log": False, **settings}
    chosen = ServeSettings(bundles=tuple(map(str, bundles)), **values)
    context = make_context(chosen)
    with bind(chosen) as listener:
        server = Server(context)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield Client(f"http://127.0.0.1:{listener.getsockname()[1]}", context)
        finally:
            server.should_exit = True
            thread.join(120)
            assert not thread.is_alive()


@contextmanager
def command(*arguments: str | Path, shell: str = "") -> Iterator[tuple[subprocess.Popen[str], Client, list[str]]]:
    """``edgeformer serve`` in a process of its own, in which a shell did something before: the process, a client, and
    its output so far. It listens already; what is sent now is answered when it is ready."""
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
        yield process, Client(found[0]), lines
    finally:
        deadline.cancel()
        process.kill()
        process.communicate(timeout=60)
