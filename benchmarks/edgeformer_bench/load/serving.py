"""``edgeformer serve`` in a process of its own: starting it, watching it, and what to ask it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from edgeformer_bench.growth import Sample
from edgeformer_runtime.errors import ConfigError

START_SECONDS = 120.0
"""How long a server may take to start."""
COMMAND = (sys.executable, "-c", "from edgeformer.cli import main; main()", "serve")
LINES = (
    "The old dog runs through the deep snow near the river.",
    "Two young women in red shirts talk to a man with a guitar.",
    "A group of children play football on the beach in the evening.",
    "An elderly man sits on a bench and reads the newspaper.",
    "Three people in white coats look at a small green machine.",
    "A boy with a blue hat jumps over a puddle in front of a house.",
)
"""Where phrases come from."""


class Serving:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.process, self.port, self._log = process, port, log

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def sample(self) -> Sample:
        """Look at all of the server's processes together, but for those that read a document each, and end soon.

        Raises:
            ConfigError: it has ended.
        """
        samples = []
        for pid in _processes(self.process.pid):
            try:
                if b"document_process" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                    samples.append(Sample.of(pid))
            except OSError:
                if pid == self.process.pid:
                    raise ConfigError("The server has ended unexpectedly.") from None
        return Sample(
            memory_mib=sum(sample.memory_mib for sample in samples),
            files=sum(sample.files for sample in samples),
            threads=sum(sample.threads for sample in samples),
        )

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=START_SECONDS) as response:
            return json.loads(response.read())

    def errors(self) -> list[str]:
        """Errors in the server's log."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line[:300] for line in lines if '"level": "info"' not in line]


@contextmanager
def serving(bundle: Path | str, *arguments: str) -> Iterator[Serving]:
    """Run ``edgeformer serve`` on a free port until it is no longer needed.

    Args:
        bundle: the bundle, ``NAME=PATH``, or a folder of bundles.
        arguments: further arguments of the command.

    Raises:
        ConfigError: the server does not start.
    """
    if not sys.platform.startswith("linux"):
        raise ConfigError("This looks at processes in a way that only Linux has.")
    with tempfile.TemporaryFile("w+") as output, tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(
            [*COMMAND, str(bundle), "--port", "0", "--no-log", *arguments],
            stdout=output,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            yield Serving(process, _port(process, output.fileno(), Path(log.name)), Path(log.name))
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(START_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
            process.wait()


def _port(process: subprocess.Popen[str], output: int, log: Path) -> int:
    """Wait until a server is ready."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
        found = re.search(rb"^Serving at http://[\d.]+:(\d+)", os.pread(output, 4096, 0))
        if found is not None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{int(found[1])}/ready", timeout=START_SECONDS):
                    return int(found[1])
            except OSError:
                pass
    raise ConfigError(f"The server did not start: {log.read_text(encoding='utf-8', errors='replace')[-300:]}")


def _processes(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    with suppress(OSError):  # it has ended, as those that read documents soon do
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            yield from _processes(int(child))


class Phrases:
    """Short texts, of which no two in a row are likely to be the same: 3 to 8 words of a random line."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)

    def next(self) -> str:
        """A phrase."""
        words, count = self._random.choice(LINES).split(), self._random.randint(3, 8)
        start = self._random.randint(0, max(0, len(words) - count))
        return " ".join(words[start : start + count])


def translation_fields(server: Serving) -> dict[str, str]:
    """Fields of a request to the first model of a server: its name and a pair of its languages.

    Raises:
        ConfigError: the model has no languages.
    """
    model = server.get("/v1/models")["models"][0]
    for source in model["sources"]:
        for target in model["targets"]:
            if source != target:
                return {"model": model["name"], "source": source, "target": target}
    raise ConfigError(f"The model `{model['name']}` does not say its languages.")


def request_bytes(texts: Sequence[str], fields: Mapping[str, Any]) -> bytes:
    """A request to ``/v1/translate``."""
    return posted("/v1/translate", "application/json", json.dumps({"texts": texts, **fields}).encode())


def posted(path: str, kind: str, body: bytes) -> bytes:
    """A request with a body of a media type."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def upload(content: bytes, name: str, fields: Mapping[str, Any]) -> bytes:
    """A request to ``/translate_file`` with a document, whatever else ``fields`` has beside its languages."""
    parts = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{fields[key]}\r\n' for key in ("source", "target")
    )
    head = f'{parts}--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = head.encode() + content + b"\r\n--b--\r\n"
    return posted("/translate_file", "multipart/form-data; boundary=b", body)
