"""Models by name, from servers with the interfaces of Remote Settings and of the Hugging Face Hub."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from edgeformer.errors import ConfigError, DataError
from edgeformer.importers.downloads import download_model, is_model_name
from edgeformer.importers.downloads.firefox import COLLECTION, Attachment, FirefoxFile, newest
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


def record(kind: str, version: str, architecture: str | None = "base", languages: str = "en fr") -> FirefoxFile:
    source, target = languages.split()
    name = f"{kind}.{source}{target}.bin"
    attachment = Attachment(location=f"x/{name}.{version}.zst", hash="")
    return FirefoxFile(
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


def test_a_download_that_breaks_off_is_tried_again(server: Server, firefox: FirefoxPublisher, no_pauses: None) -> None:
    weights = os.urandom(1_000_000)
    firefox("1.0", {"model": ("model.bin", weights), "vocab": ("vocab.spm", b"pieces")})
    path = "/cdn/main/1.0/model.bin.zst"
    server.breaks[path] = [100_000, 200_000, 300_000]
    with pytest.raises(DataError, match=r"`model\.bin\.zst` cannot be downloaded from .* give the folder of a model"):
        download_model("firefox:enfr")
    server.breaks[path] = [150_000]
    found = download_model("firefox:enfr")
    assert (found.path / "model.bin").read_bytes() == weights
    assert sorted(file.name for file in found.path.iterdir()) == ["model.bin", "vocab.spm"]


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
        print(found.path, found.origin["revision"], *files)
"""


def fetched(environment: Mapping[str, str], *names: str) -> list[str]:
    """Fetch models in another process; what is said of each: its folder, its revision and its files, or why it is
    refused."""
    command = [sys.executable, "-c", FETCH, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


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
    weights = (MODEL / "model.npz").read_bytes()
    server.breaks[f"/some/model/resolve/{COMMIT}/model.npz"] = [len(weights) // 2]  # the connection, which is resumed
    first, again, other = fetched(hub, "hf:some/model", f"hf:some/model@{COMMIT}", "hf:other/model")
    folder, revision, *names = first.split()
    assert revision == COMMIT
    assert names == ["decoder.yml", "model.npz", "vocab.spm"]
    assert (Path(folder) / "model.npz").read_bytes() == weights
    assert again.split()[:2] == [folder, COMMIT]
    assert "has no model `other/model`" in other
    assert server.sent[f"/some/model/resolve/{COMMIT}/model.npz"] < 2 * len(weights), "it is fetched once"
    without = {**hub, "HF_ENDPOINT": "http://127.0.0.1:9"}  # nothing is there
    again, other = fetched(without, f"hf:some/model@{COMMIT}", "hf:other/model")
    assert again.split()[0] == folder
    assert "cannot be reached" in other
    assert "give the folder of a model" in other


def test_names_are_told_from_paths() -> None:
    assert is_model_name("hf:some/model")
    assert is_model_name("firefox:enfr")
    assert not is_model_name("C:/models/opus")
    assert not is_model_name("folder")
    assert "is not a model name" in error("import", "hf:no name", "--out", "run")
