"""Models by name, from servers with the interfaces of Remote Settings and of the Hugging Face Hub."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgeformer.cli import main
from edgeformer.errors import ConfigError, DataError
from edgeformer.importers.downloads import download_model, is_model_name
from edgeformer.importers.downloads.firefox import COLLECTION, Attachment, Record, newest
from edgeformer.train.run import Run
from edgeformer_runtime.files import locked_folder
from tests.importers.bergamot_models import bergamot_files
from tests.importers.marian_models import MARIAN

zstandard = pytest.importorskip("zstandard", reason="the extra `import` is not installed")
MODEL = MARIAN / "ssru"
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
        self.stalled: dict[str, threading.Event] = {}
        """Paths whose responses stop in the middle for as long as a test lasts; set when one does."""
        self.knows_ranges = True

    def add(self, path: str, content: Any, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.contents[path] = data, headers or {}


@contextmanager
def serving() -> Iterator[Server]:
    served, done = Server(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            served.requests.append(path)
            if path not in served.contents:
                self.send_response(404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data, headers = served.contents[path]
            begin = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) if served.knows_ranges else None
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
            breaks, stalled = served.breaks.get(path), served.stalled.get(path)
            if breaks:
                data = data[: breaks.pop(0)]
            if stalled is not None:
                data = data[: len(data) // 2]
            self.wfile.write(data)
            self.wfile.flush()
            served.sent[path] += len(data)
            if stalled is not None:
                stalled.set()
                done.wait()
            self.close_connection = True

        do_HEAD = do_GET  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        done.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let attempts follow each other at once."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as served:
        yield served


# Firefox.


def record(kind: str, version: str, architecture: str | None = "base", languages: str = "en fr") -> Record:
    source, target = languages.split()
    name = f"{kind}.{source}{target}.bin"
    attachment = Attachment(location=f"x/{name}.{version}.zst", hash="")
    return Record(
        name=name,
        file_type=kind,
        source_language=source,
        target_language=target,
        version=version,
        attachment=attachment,
        architecture=architecture,
    )


def test_the_newest_complete_version_is_taken() -> None:
    records = [record(kind, version) for version in ("1.0", "2.1", "10.0a1") for kind in ("model", "vocab", "lex")]
    assert {file.version for file in newest(records)} == {"10.0a1"}
    assert [file.file_type for file in newest(records)] == ["model", "vocab", "lex"]
    assert {file.version for file in newest([*records, record("model", "11.0"), record("lex", "11.0")])} == {"10.0a1"}
    split = [record(kind, "10.0") for kind in ("model", "srcvocab", "trgvocab")]
    assert [file.file_type for file in newest([*records, *split])] == ["model", "srcvocab", "trgvocab"]
    assert newest([record("model", "1.0"), record("vocab", "nonsense")]) == []


@pytest.fixture
def firefox(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Publish files as a version of a model."""
    monkeypatch.setenv("EDGEFORMER_FIREFOX_SERVER", f"{server.url}/v1")
    monkeypatch.setenv("EDGEFORMER_CACHE", str(tmp_path / "cache"))
    server.add("/v1/", {"capabilities": {"attachments": {"base_url": f"{server.url}/cdn/"}}})
    records: list[dict[str, Any]] = []

    def publish(version: str, files: dict[str, tuple[str, bytes]], *, damaged: str = "") -> None:
        for kind, (name, data) in files.items():
            packed = zstandard.ZstdCompressor().compress(data)
            location = f"main/{version}/{name}.zst"
            server.add(f"/cdn/{location}", packed if name != damaged else packed[:-1] + b"\0")
            records.append(
                {
                    "name": name,
                    "fileType": kind,
                    "sourceLanguage": "en",
                    "targetLanguage": "fr",
                    "version": version,
                    "architecture": "tiny",
                    "decompressedHash": hashlib.sha256(data).hexdigest(),
                    "attachment": {"location": location, "hash": hashlib.sha256(packed).hexdigest(), "size": 1},
                }
            )
        server.add(f"/v1{COLLECTION}", {"data": records})

    return publish


def test_a_model_of_firefox_is_fetched_once(server: Server, firefox: Callable[..., None]) -> None:
    firefox("1.0", {"model": ("model.bin", b"old"), "vocab": ("vocab.spm", b"old")})
    firefox("2.0", {"model": ("model.bin", b"weights"), "vocab": ("vocab.spm", b"pieces")})
    for pair in ("enfr", "en-fr"):
        found = download_model(f"firefox:{pair}")
        assert (found.path / "model.bin").read_bytes() == b"weights"
        assert found.origin == {"name": "firefox:en-fr", "revision": "2.0 (tiny)"}
        assert (found.languages, found.license) == (("en", "fr"), "MPL-2.0")
    assert sum(path.startswith("/cdn/") for path in server.requests) == 2
    (found.path / "model.bin").write_bytes(b"damaged")
    assert (download_model("firefox:enfr").path / "model.bin").read_bytes() == b"weights"
    with pytest.raises(DataError, match="no model `frde`"):
        download_model("firefox:frde")


def test_damaged_downloads_are_refused(firefox: Callable[..., None]) -> None:
    firefox("1.0", {"model": ("model.bin", b"weights"), "vocab": ("vocab.spm", b"pieces")}, damaged="model.bin")
    with pytest.raises(DataError, match="is damaged: its SHA-256 is not"):
        download_model("firefox:enfr")


def test_an_interrupted_download_continues(server: Server, firefox: Callable[..., None], no_pauses: None) -> None:
    weights = os.urandom(1_000_000)
    firefox("1.0", {"model": ("model.bin", weights), "vocab": ("vocab.spm", b"pieces")})
    path = "/cdn/main/1.0/model.bin.zst"
    size = len(server.contents[path][0])
    server.breaks[path] = [100_000, 200_000, 300_000]
    with pytest.raises(DataError, match=r"`model\.bin\.zst` cannot be downloaded from .* give the folder of a model"):
        download_model("firefox:enfr")
    server.breaks[path] = [150_000]
    found = download_model("firefox:enfr")
    assert (found.path / "model.bin").read_bytes() == weights
    assert server.sent[path] < size + 100_000, "little was sent twice"
    assert size - 600_000 <= found.nbytes < size - 500_000
    assert sorted(file.name for file in found.path.iterdir()) == ["model.bin", "vocab.spm"]
    assert download_model("firefox:enfr").nbytes == 0


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_what_an_interrupted_download_left_may_be_anything(
    server: Server, firefox: Callable[..., None], knows_ranges: bool, no_pauses: None
) -> None:
    server.knows_ranges = knows_ranges
    weights = os.urandom(10_000)
    firefox("1.0", {"model": ("model.bin", weights), "vocab": ("vocab.spm", b"pieces")})
    folder = download_model("firefox:enfr").path
    packed = server.contents["/cdn/main/1.0/model.bin.zst"][0]
    for left in (b"", packed[:99], packed, bytes(99), bytes(20_000)):
        (folder / "model.bin").unlink(missing_ok=True)
        (folder / "model.bin.part").write_bytes(left)
        if knows_ranges and not packed.startswith(left):
            with pytest.raises(DataError, match="Download it again"):
                download_model("firefox:enfr")
        assert (download_model("firefox:enfr").path / "model.bin").read_bytes() == weights
        assert not (folder / "model.bin.part").exists()


def test_a_full_disk_keeps_what_there_is(firefox: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    firefox("1.0", {"model": ("model.bin", os.urandom(200_000)), "vocab": ("vocab.spm", b"pieces")})
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    try:
        with pytest.raises(OSError, match=r"File too large.*model\.bin\.part"):
            download_model("firefox:enfr")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert download_model("firefox:enfr").nbytes < 110_000


def test_a_model_is_fetched_by_one_process_at_a_time(firefox: Callable[..., None]) -> None:
    firefox("1.0", {"model": ("model.bin", b"weights"), "vocab": ("vocab.spm", b"pieces")})
    with (
        locked_folder(download_model("firefox:enfr").path),
        pytest.raises(ConfigError, match="is being used by another process"),
    ):
        download_model("firefox:enfr")


def test_without_network_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, no_pauses: None) -> None:
    monkeypatch.setenv("EDGEFORMER_FIREFOX_SERVER", "http://127.0.0.1:9")
    with pytest.raises(DataError, match="Check the network, or give the folder of a model that was downloaded"):
        download_model("firefox:enfr")


def test_an_answer_of_another_form_is_an_error(server: Server, firefox: Callable[..., None]) -> None:
    firefox("1.0", {"model": ("model.bin", b"weights")})
    server.add(f"/v1{COLLECTION}", {"data": [{"name": 1}]})
    with pytest.raises(DataError, match="is not what Firefox expects"):
        download_model("firefox:enfr")


def test_the_command_imports_by_name(firefox: Callable[..., None], tmp_path: Path) -> None:
    files = bergamot_files("ssru").items()
    firefox("1.0", dict(zip(("model", "vocab"), files, strict=True)))
    text = tmp_path / "text"
    text.write_text("Tom is here.\n", encoding="utf-8")
    command = ["import", "firefox:enfr", "--out", str(tmp_path / "run"), "--text", str(text)]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    run = Run.open(tmp_path / "run")
    assert run.languages == ("en", "fr")
    assert run.info.provenance["name"] == "firefox:en-fr"
    assert run.info.provenance["revision"] == "1.0 (tiny)"
    assert run.info.provenance["licence"] == "MPL-2.0"


# The Hugging Face Hub.


def publish(server: Server, repository: str, folder: Path) -> None:
    files = sorted(path.name for path in folder.iterdir() if path.is_file())
    about = {"id": repository, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files], "tags": []}
    for revision in ("main", COMMIT):
        server.add(f"/api/models/{repository}/revision/{revision}", about)
    server.add(f"/api/models/{repository}", about)
    tree = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40} for name in files]
    server.add(f"/api/models/{repository}/tree/{COMMIT}", tree)
    for name in files:
        data = (folder / name).read_bytes()
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": COMMIT}
        server.add(f"/{repository}/resolve/{COMMIT}/{name}", data, headers)


def test_a_model_of_the_hub_is_fetched_once_and_pinned(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "published"
    folder.mkdir()
    for name in ("model.npz", "vocab.spm", "decoder.yml"):
        (folder / name).write_bytes((MODEL / name).read_bytes())
    (folder / "rust_model.ot").write_bytes(b"not needed")
    publish(server, "some/model", folder)
    environment = {**os.environ, "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_DISABLE_XET": "1"}
    code = "import sys; from edgeformer.importers.downloads import download_model as d; f = d(sys.argv[1]); "
    code += "print(f.path); print(f.origin['revision']); print(*sorted(p.name for p in f.path.iterdir()))"

    def fetch(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, name]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    found = fetch("hf:some/model")
    assert found.returncode == 0, found.stderr
    path, revision, names = found.stdout.splitlines()
    assert revision == COMMIT
    assert names.split() == ["decoder.yml", "model.npz", "vocab.spm"]
    assert (Path(path) / "model.npz").read_bytes() == (MODEL / "model.npz").read_bytes()
    downloads = sum("/resolve/" in request for request in server.requests)
    again = fetch(f"hf:some/model@{COMMIT}")
    assert again.stdout.splitlines()[:1] == [path], again.stderr
    assert sum("/resolve/" in request for request in server.requests) == downloads
    environment["HF_ENDPOINT"] = "http://127.0.0.1:9"  # nothing is there
    again = fetch(f"hf:some/model@{COMMIT}")
    assert again.stdout.splitlines()[:1] == [path], again.stderr
    refused = fetch("hf:other/model").stderr
    assert "cannot be reached" in refused
    assert "give the folder of a model" in refused
    environment["HF_ENDPOINT"] = server.url
    assert "has no model `other/model`" in fetch("hf:other/model").stderr


def test_names_are_told_from_paths() -> None:
    assert is_model_name("hf:some/model")
    assert is_model_name("firefox:enfr")
    assert not is_model_name("C:/models/opus")
    assert not is_model_name("folder")
    result = CliRunner().invoke(main, ["import", "hf:no name", "--out", "run"])
    assert result.exit_code == 1
    assert "is not a model name" in result.stderr
