"""Models by name, from servers with the interfaces of Remote Settings and of the Hugging Face Hub."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from edgeformer.errors import ConfigError, DataError
from edgeformer.importers.downloads import download_model, is_model_name
from edgeformer.importers.downloads.firefox import COLLECTION, Attachment, Record, newest
from edgeformer_runtime.files import locked_folder
from tests.commands import error
from tests.importers.marian_models import MARIAN
from tests.model_server import COMMIT, FirefoxPublisher, Server, publish_on_hub, serving

pytest.importorskip("zstandard", reason="the extra `import` is not installed")
MODEL = MARIAN / "ssru"


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
def firefox(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FirefoxPublisher:
    """Publish files as a version of a model."""
    monkeypatch.setenv("EDGEFORMER_FIREFOX_SERVER", f"{server.url}/v1")
    monkeypatch.setenv("EDGEFORMER_CACHE", str(tmp_path / "cache"))
    return FirefoxPublisher(server)


def test_a_model_of_firefox_is_fetched_once(server: Server, firefox: FirefoxPublisher) -> None:
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


def test_damaged_downloads_are_refused(firefox: FirefoxPublisher) -> None:
    firefox("1.0", {"model": ("model.bin", b"weights"), "vocab": ("vocab.spm", b"pieces")}, damaged="model.bin")
    with pytest.raises(DataError, match="is damaged: its SHA-256 is not"):
        download_model("firefox:enfr")


def test_an_interrupted_download_continues(server: Server, firefox: FirefoxPublisher, no_pauses: None) -> None:
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
    server: Server, firefox: FirefoxPublisher, knows_ranges: bool, no_pauses: None
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


def test_a_full_disk_keeps_what_there_is(firefox: FirefoxPublisher) -> None:
    resource = pytest.importorskip("resource", reason="this system has no limits of resources")
    firefox("1.0", {"model": ("model.bin", os.urandom(200_000)), "vocab": ("vocab.spm", b"pieces")})
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    try:
        with pytest.raises(OSError, match=r"File too large.*model\.bin\.part"):
            download_model("firefox:enfr")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert download_model("firefox:enfr").nbytes < 110_000


def test_a_model_is_fetched_by_one_process_at_a_time(firefox: FirefoxPublisher) -> None:
    firefox("1.0", {"model": ("model.bin", b"weights"), "vocab": ("vocab.spm", b"pieces")})
    with (
        locked_folder(download_model("firefox:enfr").path),
        pytest.raises(ConfigError, match="is being used by another process"),
    ):
        download_model("firefox:enfr")


def test_without_network_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, no_pauses: None) -> None:
    monkeypatch.setenv("EDGEFORMER_FIREFOX_SERVER", "http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"/records: \[Errno \d+\] Connection refused\. Check the network, or give the"):
        download_model("firefox:enfr")


def test_an_answer_of_another_form_is_an_error(server: Server, firefox: FirefoxPublisher) -> None:
    firefox("1.0", {"model": ("model.bin", b"weights")})
    server.add(f"/v1{COLLECTION}", {"data": [{"name": 1}]})
    with pytest.raises(DataError, match="is not what Firefox expects"):
        download_model("firefox:enfr")


# The Hugging Face Hub.


FETCH = """
import sys
from edgeformer.errors import DataError
from edgeformer.importers.downloads import download_model
for name in sys.argv[1:]:
    try:
        found = download_model(name)
    except DataError as error:
        print("refused:", error)
    else:
        files = sorted(path.name for path in found.path.iterdir())
        print(found.path, found.origin["revision"], found.nbytes, *files)
"""


def fetching(names: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start another process that fetches models, one after the other."""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", FETCH, *names], env=environment, stdout=pipe, stderr=pipe, text=True)


def fetched(environment: Mapping[str, str], *names: str) -> list[str]:
    """Fetch models in another process; what is said of each: its folder, its revision, the number of bytes that were
    downloaded, and its files, or why it is refused."""
    process = fetching(names, environment)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return out.splitlines()


@pytest.fixture
def hub(server: Server, tmp_path: Path) -> dict[str, str]:
    """Publish ``some/model``; the environment that has the server as the hub."""
    folder = tmp_path / "published"
    folder.mkdir()
    for name in ("model.npz", "vocab.spm", "decoder.yml"):
        (folder / name).write_bytes((MODEL / name).read_bytes())
    (folder / "rust_model.ot").write_bytes(b"not needed")
    publish_on_hub(server, "some/model", folder)
    return {**os.environ, "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_DISABLE_XET": "1"}


def test_a_model_of_the_hub_is_fetched_once_and_pinned(server: Server, hub: dict[str, str]) -> None:
    (first,) = fetched(hub, "hf:some/model")
    folder, revision, nbytes, *names = first.split()
    assert revision == COMMIT
    assert names == ["decoder.yml", "model.npz", "vocab.spm"]
    assert int(nbytes) == sum((MODEL / name).stat().st_size for name in names)
    assert (Path(folder) / "model.npz").read_bytes() == (MODEL / "model.npz").read_bytes()
    downloads = sum("/resolve/" in request for request in server.requests)
    again, other = fetched(hub, f"hf:some/model@{COMMIT}", "hf:other/model")
    assert again.split()[:3] == [folder, COMMIT, "0"]
    assert "has no model `other/model`" in other
    assert sum("/resolve/" in request for request in server.requests) == downloads
    without = {**hub, "HF_ENDPOINT": "http://127.0.0.1:9"}  # nothing is there
    again, other = fetched(without, f"hf:some/model@{COMMIT}", "hf:other/model")
    assert again.split()[0] == folder
    assert "cannot be reached" in other
    assert "give the folder of a model" in other


@pytest.mark.slow
def test_a_download_from_the_hub_that_was_killed_continues(server: Server, hub: dict[str, str], tmp_path: Path) -> None:
    weights = os.urandom(32 << 20)  # of which the hub's client writes ten megabytes at a time
    (tmp_path / "published" / "model.npz").write_bytes(weights)
    publish_on_hub(server, "some/model", tmp_path / "published")
    path = f"/some/model/resolve/{COMMIT}/model.npz"
    kill_in_the_middle(server, path, fetching(["hf:some/model"], hub))
    without = {**hub, "HF_ENDPOINT": "http://127.0.0.1:9"}
    assert "cannot be reached" in fetched(without, "hf:some/model")[0]
    folder, _, nbytes, *_ = fetched(hub, "hf:some/model")[0].split()
    assert (Path(folder) / "model.npz").read_bytes() == weights
    assert int(nbytes) < 23 << 20
    assert server.sent[path] <= 39 << 20, "little was sent twice"
    damaged = Path(folder, "model.npz").resolve()
    Path(folder, "model.npz").unlink()
    damaged.rename(damaged.with_name(f"{damaged.name}.part")).write_bytes(bytes(1000))
    damaged_message, again = fetched(hub, "hf:some/model", "hf:some/model")
    assert "its SHA-256 is not what the hub states" in damaged_message
    assert (Path(again.split()[0]) / "model.npz").read_bytes() == weights


def kill_in_the_middle(server: Server, path: str, process: subprocess.Popen[str]) -> None:
    """Kill a process when it has half of a file."""
    stalled = server.stalled[path] = threading.Event()
    try:
        assert stalled.wait(60)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)  # for it to write what it has
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)
        del server.stalled[path]


def test_a_download_from_firefox_that_was_killed_continues(server: Server, firefox: FirefoxPublisher) -> None:
    weights = os.urandom(1_000_000)
    firefox("1.0", {"model": ("model.bin", weights), "vocab": ("vocab.spm", b"pieces")})
    path = "/cdn/main/1.0/model.bin.zst"
    kill_in_the_middle(server, path, fetching(["firefox:enfr"], os.environ))
    found = download_model("firefox:enfr")
    assert (found.path / "model.bin").read_bytes() == weights
    assert server.sent[path] <= len(weights) + (1 << 17), "little was sent twice"


def test_names_are_told_from_paths() -> None:
    assert is_model_name("hf:some/model")
    assert is_model_name("firefox:enfr")
    assert not is_model_name("C:/models/opus")
    assert not is_model_name("folder")
    assert "is not a model name" in error("import", "hf:no name", "--out", "run")
