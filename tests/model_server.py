"""A server with the interfaces of Remote Settings, as Firefox reads it, and of the Hugging Face Hub."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from edgeformer.importers.downloads.firefox import COLLECTION

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Server:
    """Serves given contents, whole or in parts, and counts requests and bytes."""

    def __init__(self) -> None:
        self.url = ""
        self.contents: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.requests: list[str] = []
        self.sent: Counter[str] = Counter()
        """Bytes of each path."""
        self.breaks: dict[str, list[int]] = {}
        """After how many bytes the next responses for a path end."""
        self.failures: dict[str, list[int]] = {}
        """Statuses of the next responses for a path."""

    def add(self, path: str, content: Any, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.contents[path] = data, headers or {}


@contextmanager
def serving() -> Iterator[Server]:
    served = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            served.requests.append(path)
            failures = served.failures.get(path)
            if failures or path not in served.contents:
                self.send_response(failures.pop(0) if failures else 404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data, headers = served.contents[path]
            begin = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            first, size = int(begin[1]) if begin else 0, len(data)
            if first >= size > 0:
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if begin else 200)
            headers = headers | ({"Content-Range": f"bytes {first}-{size - 1}/{size}"} if begin else {})
            for name, value in {"Content-Length": str(size - first), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.send(path, data[first:])

        def send(self, path: str, data: bytes) -> None:
            breaks = served.breaks.get(path)
            if breaks:
                data = data[: breaks.pop(0)]
            self.wfile.write(data)
            self.wfile.flush()
            served.sent[path] += len(data)
            self.close_connection = True

        do_HEAD = do_GET  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


class FirefoxPublisher:
    """Publishes models as Firefox has them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._records: list[dict[str, Any]] = []
        server.add("/v1/", {"capabilities": {"attachments": {"base_url": f"{server.url}/cdn/"}}})

    def __call__(
        self, version: str, files: Mapping[str, tuple[str, bytes]], *, pair: str = "en fr", damaged: str = ""
    ) -> None:
        """Publish a version of a model: name and content of each type of file."""
        import zstandard

        source, target = pair.split()
        for kind, (name, data) in files.items():
            packed = zstandard.ZstdCompressor().compress(data)
            location = f"main/{version}/{name}.zst"
            self._server.add(f"/cdn/{location}", packed if name != damaged else packed[:-1] + b"\0")
            self._records.append(
                {
                    "name": name,
                    "fileType": kind,
                    "sourceLanguage": source,
                    "targetLanguage": target,
                    "version": version,
                    "architecture": "tiny",
                    "decompressedHash": hashlib.sha256(data).hexdigest(),
                    "attachment": {"location": location, "hash": hashlib.sha256(packed).hexdigest(), "size": 1},
                }
            )
        self._server.add(f"/v1{COLLECTION}", {"data": self._records})


def publish_on_hub(server: Server, repository: str, folder: Path) -> None:
    """Publish the files of a folder."""
    files = sorted(path.name for path in folder.iterdir() if path.is_file())
    about = {"id": repository, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files], "tags": []}
    for revision in ("main", COMMIT):
        server.add(f"/api/models/{repository}/revision/{revision}", about)
    server.add(f"/api/models/{repository}", about)
    tree = [{"type": "file", "path": name, "size": (folder / name).stat().st_size, "oid": "0" * 40} for name in files]
    server.add(f"/api/models/{repository}/tree/{COMMIT}", tree)
    for name in files:
        data = (folder / name).read_bytes()
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": COMMIT}
        server.add(f"/{repository}/resolve/{COMMIT}/{name}", data, headers)
