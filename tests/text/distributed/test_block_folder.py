"""The folder that keeps the blocks that are done."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest import mock

import pytest

from edgeformer_runtime.errors import ConfigError
from edgeformer_text.distributed.block_folder import BlockFolder, block_folder

JOB = {"input": "a", "beam_size": 4, "suppress_tokens": ("x", "y")}


def stopped(output: Path, *blocks: int) -> None:
    """Do some blocks and stop."""
    with block_folder(output, JOB) as folder:
        for number in blocks:
            folder.write(number, b"b\n")
        (folder.path / ".00000002.abc").write_bytes(b"half")
        raise KeyboardInterrupt


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An output of which the second of three blocks is done."""
    path = tmp_path / "out.fr"
    with pytest.raises(KeyboardInterrupt):
        stopped(path, 1)
    return path


def test_what_is_done_is_kept_until_all_is_done(output: Path) -> None:
    with block_folder(output, JOB) as folder:
        assert folder.done(3) == {1}
        folder.write(2, b"c\n")
        folder.write(0, b"a\n")
        assert [folder.read(number) for number in range(3)] == [b"a\n", b"b\n", b"c\n"]
    assert list(output.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("job", "keys"),
    [({**JOB, "input": "b"}, "`input`"), ({**JOB, "beam_size": 1, "glossary": {}}, "`beam_size`, `glossary`")],
)
def test_another_job_is_refused(output: Path, job: dict[str, object], keys: str) -> None:
    with pytest.raises(ConfigError, match=f"part of another translation, which differs in {keys}; repeat"):
        block_folder(output, job).__enter__()
    with block_folder(output, JOB) as folder:
        assert folder.done(3) == {1}


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out.blocks").mkdir()
    (tmp_path / "out.blocks/notes").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="was not written by this command; move it away"):
        block_folder(tmp_path / "out", JOB).__enter__()
    assert (tmp_path / "out.blocks/notes").read_text(encoding="utf-8") == "mine"


def test_a_damaged_folder_is_refused(output: Path) -> None:
    (output.parent / "out.fr.blocks/job.json").write_bytes(b"{")
    with pytest.raises(ConfigError, match=r"job\.json` is damaged; delete"):
        block_folder(output, JOB).__enter__()


@pytest.mark.parametrize("done", [0, 10, 3000])
def test_no_write_lists_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int) -> None:
    """Otherwise the time of a block would grow with the number of those that are done."""
    for number in range(done):
        (tmp_path / f"{number:08}").touch()
    folder, listing = BlockFolder(tmp_path), mock.Mock(side_effect=AssertionError)
    monkeypatch.setattr(os, "listdir", listing)
    monkeypatch.setattr(os, "scandir", listing)
    for number in range(done, done + 5):
        folder.write(number, b"text")
    assert not listing.called
    assert folder.done(done + 6) == set(range(done + 5))


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks")
def test_what_a_dead_process_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / f".00000001.{0:016x}.tmp").touch()
    BlockFolder(tmp_path).write(1, b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["00000001"]
