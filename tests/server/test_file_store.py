"""Translated files: how many are kept, for how long, and where."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from edgeformer_server.errors import ApiError
from edgeformer_server.files import file_store
from edgeformer_server.files.file_store import FileStore, own_folder
from tests.server.http import Client, serving, wait_until
from tests.server.test_workspace import bundle_between


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*.*")}


def folder_of(client: Client) -> Path:
    wait_until(lambda: client.context.files)
    assert client.context.files is not None
    return client.context.files._folder


def is_there(files: FileStore, name: str) -> bool:
    try:
        files.path(name)
    except ApiError:
        return False
    return True


def test_the_oldest_files_of_a_client_and_of_all_make_room(tmp_path: Path) -> None:
    files = FileStore(tmp_path, quota=100, client_quota=40)
    stored = {}
    for number, client in enumerate(["first", "first", "second", "first", "second", "third", "third"]):
        stored[number] = files.store(client, "a.txt", "fr", b"x" * 20)
        os.utime(files.path(stored[number]), (time.time() - 100 + number,) * 2)
    assert [number for number, name in stored.items() if is_there(files, name)] == [2, 3, 4, 5, 6]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.*")) == 100
    files.store("fourth", "a.txt", "fr", b"x" * 20)
    assert [number for number, name in stored.items() if is_there(files, name)] == [3, 4, 5, 6]
    with pytest.raises(ApiError, match="more than 40 bytes") as refused:
        files.store("fifth", "a.txt", "fr", b"x" * 41)
    assert refused.value.status == 413


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("\x00.txt", "__fr.txt"),
        (f"{'語' * 100}.txt", f"{'語' * 38}_fr.txt"),
        ("\u202etxt.exe.txt", "_txt.exe_fr.txt"),
        ('a"; filename=b.txt', "a___filename_b_fr.txt"),
        ("a\r\nSet-Cookie: x=1.txt", "a__Set-Cookie__x_1_fr.txt"),
    ],
)
def test_names_have_letters_digits_and_few_signs(tmp_path: Path, name: str, kept: str) -> None:
    assert FileStore(tmp_path, 9, 9).store("client", name, "fr", b"x").partition(".")[2] == kept


def test_old_files_are_removed(tmp_path: Path) -> None:
    files = FileStore(tmp_path, 2**20, 2**20)
    old = files.store("client", "a.txt", "fr", b"x")
    assert files.path(old).read_bytes() == b"x"
    for seconds in (120, -1):
        before, time_of_change = names(tmp_path), time.time() - file_store.KEPT_SECONDS + seconds
        os.utime(files.path(old), (time_of_change, time_of_change))
        new = files.store("other", "a.txt", "fr", b"x")
        assert names(tmp_path) == ({*before, new} if seconds > 0 else {*before, new} - {old})


@pytest.mark.parametrize("seconds", [0.1, 3600])
def test_a_file_is_removed_and_unreadable_after_its_time_without_another_request(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(file_store, "REMOVAL_SECONDS", seconds)
    with serving(small_bundle) as client:
        folder = folder_of(client)
        answer = client.upload("/translate_file", "a.txt", b"7", source="en", target="fr")
        link = answer.json["translatedFileUrl"].removeprefix(client.url)
        assert client.get(link).status == 200
        monkeypatch.setattr(file_store, "KEPT_SECONDS", 0.0)
        if seconds < 1:
            wait_until(lambda: not names(folder))
        assert client.get(link).status == 404
        assert len(names(folder)) == (seconds > 1)


def test_old_files_are_removed_after_a_time_when_that_was_impossible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_store, "REMOVAL_SECONDS", 0.01)
    monkeypatch.setattr(file_store, "KEPT_SECONDS", 0.0)
    errors = iter([OSError(5, "Input/output error"), RuntimeError("can't start new thread")])
    in_thread = asyncio.to_thread

    async def failing(*work: Any) -> Any:
        for error in errors:
            raise error
        return await in_thread(*work)

    monkeypatch.setattr(asyncio, "to_thread", failing)
    files = FileStore(tmp_path, 1000, 1000)
    files.store("client", "a.txt", "fr", b"7")

    async def remove() -> None:
        removal = asyncio.create_task(files.remove_old())
        while names(tmp_path) and not removal.done():
            await asyncio.sleep(0.01)
        assert not removal.done()
        removal.cancel()

    asyncio.run(remove())


def test_a_folder_of_a_killed_server_is_removed_and_that_of_a_living_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os, sys; from edgeformer_server.files.file_store import own_folder\n"
    code += "with own_folder() as folder:\n"
    code += " (folder / 'a.txt').write_text('secret'); print(folder, flush=True); sys.stdin.read(); os._exit(1)"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        killed = Path(server.stdout.readline().strip())
        with own_folder() as other:
            assert (killed / "a.txt").exists()
            assert killed.stat().st_mode & 0o077 == 0
            server.kill()
            server.wait(60)
            with own_folder() as third:
                assert not killed.exists()
                assert other.exists()
                assert third != other
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_stored_for_equal_languages_and_links_name_this_server(small_bundle: Path, tmp_path: Path) -> None:
    bundle = bundle_between(small_bundle, tmp_path, "en-fr", "en", "fr")
    with serving(bundle, allowed_hosts=("my.server",)) as client:
        folder = folder_of(client)
        same = client.upload("/translate_file", "a.txt", b"7", source="en", target="en")
        assert (same.status, "in the target language already" in same.error) == (400, True)
        assert names(folder) == set()
        for host, expected in (
            ("my.server:80", "http://my.server:80/"),
            ("evil.example", client.url + "/"),
            ("10.1.2.3", "http://10.1.2.3/"),
        ):
            answer = client.upload("/translate_file", "a.txt", b"7", {"host": host}, source="en", target="fr")
            assert answer.json["translatedFileUrl"].startswith(expected)
        assert len(names(folder)) == 3
