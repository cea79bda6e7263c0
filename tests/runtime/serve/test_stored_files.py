"""Translated files: how many are kept, for how long, and where."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from edgeformer_runtime.serve.app import own_folder
from edgeformer_runtime.serve.errors import ApiError
from edgeformer_runtime.serve.files import stored_files
from edgeformer_runtime.serve.files.stored_files import StoredFiles
from tests.runtime.serve.http import serving, wait_until
from tests.runtime.test_workspace import bundle_between


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*.*")}


def is_there(files: StoredFiles, name: str) -> bool:
    try:
        files.path(name)
    except ApiError:
        return False
    return True


def test_the_oldest_files_of_a_client_and_of_all_make_room(tmp_path: Path) -> None:
    files = StoredFiles(tmp_path, quota=100, client_quota=40)
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
        ("\u202etxt.exe.txt", "_txt.exe_fr.txt"),
        ('a"; filename=b.txt', "a___filename_b_fr.txt"),
        ("a\r\nSet-Cookie: x=1.txt", "a__Set-Cookie__x_1_fr.txt"),
    ],
)
def test_names_have_letters_digits_and_few_signs(tmp_path: Path, name: str, kept: str) -> None:
    assert StoredFiles(tmp_path, 9, 9).store("client", name, "fr", b"x").partition(".")[2] == kept


def test_old_files_are_removed(tmp_path: Path) -> None:
    files = StoredFiles(tmp_path, 2**20, 2**20)
    old = files.store("client", "a.txt", "fr", b"x")
    assert files.path(old).read_bytes() == b"x"
    for seconds in (120, -1):
        before, time_of_change = names(tmp_path), time.time() - stored_files.KEPT_SECONDS + seconds
        os.utime(files.path(old), (time_of_change, time_of_change))
        new = files.store("other", "a.txt", "fr", b"x")
        assert names(tmp_path) == ({*before, new} if seconds > 0 else {*before, new} - {old})


@pytest.mark.parametrize("seconds", [0.1, 3600])
def test_a_file_is_removed_and_unreadable_after_its_time_without_another_request(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(stored_files, "REMOVAL_SECONDS", seconds)
    monkeypatch.setattr(stored_files, "KEPT_SECONDS", 1.0)
    (tmp_path / "files").mkdir()
    with serving(small_bundle, files_folder=tmp_path / "files") as client:
        answer = client.upload("/translate_file", "a.txt", b"7", source="en", target="fr")
        (path,) = (tmp_path / "files").rglob("*.txt")
        age = time.time() - path.stat().st_mtime
        link = answer.json["translatedFileUrl"].removeprefix(client.url)
        assert client.get(link).status == 200 or age > 0.5
        if seconds < 1:
            wait_until(lambda: not names(tmp_path / "files"))
        else:
            time.sleep(1)
        assert client.get(link).status == 404
        assert len(names(tmp_path / "files")) == (seconds > 1)


def test_a_folder_of_a_killed_server_is_removed_and_that_of_a_living_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os, sys; from edgeformer_runtime.serve.app import own_folder\nwith own_folder() as folder:\n"
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
    (tmp_path / "files").mkdir()
    bundle = bundle_between(small_bundle, tmp_path, "en-fr", "en", "fr")
    with serving(bundle, files_folder=tmp_path / "files", allowed_hosts=("my.server",)) as client:
        same = client.upload("/translate_file", "a.txt", b"7", source="en", target="en")
        assert (same.status, "in the target language already" in same.error) == (400, True)
        assert names(tmp_path / "files") == set()
        for host, expected in (
            ("my.server:80", "http://my.server:80/"),
            ("evil.example", client.url + "/"),
            ("localhost:99", "http://localhost:99/"),
            ("10.1.2.3", "http://10.1.2.3/"),
        ):
            answer = client.upload("/translate_file", "a.txt", b"7", {"host": host}, source="en", target="fr")
            assert answer.json["translatedFileUrl"].startswith(expected)
        assert len(names(tmp_path / "files")) == 4
