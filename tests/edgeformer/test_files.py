"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgeformer.staged_folder import staged_folder
from edgeformer_runtime.cli.output import atomic_text
from edgeformer_runtime.files import clear_stale, locked_folder, write_atomically

WRITE = """
import sys, time
from pathlib import Path
from edgeformer.staged_folder import staged_folder
from edgeformer_runtime.files import atomic_file

with atomic_file(Path(sys.argv[1]) / "last.ckpt") as file, staged_folder(Path(sys.argv[1]) / "bundle") as folder:
    (folder / "part").write_text("half", encoding="utf-8")
    print("ready", flush=True)
    time.sleep(120)
"""
SLOW_COMMAND = """
import sys, time
from pathlib import Path

import click

from edgeformer.cli import CommandGroup
from edgeformer.staged_folder import staged_folder


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
def slow(out):
    with staged_folder(out) as staged:
        (staged / "part").write_text("half", encoding="utf-8")
        print("ready", flush=True)
        time.sleep(120)


group = CommandGroup("edgeformer")
group.get_command = lambda ctx, name: slow
group()
"""


def test_an_error_names_the_file_and_not_the_one_that_was_to_become_it(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    with pytest.raises(OSError, match="directory") as caught:
        write_atomically(target, b"content")
    assert (caught.value.filename, caught.value.filename2) == (str(target), None)
    assert list(tmp_path.iterdir()) == [target]

    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left") as caught, atomic_text(tmp_path / "text"):
        raise full
    assert caught.value.filename == str(tmp_path / "text")

    with pytest.raises(FileNotFoundError) as caught, staged_folder(tmp_path / "folder") as staged:
        (staged / "absent" / "weights.bin").write_bytes(b"")
    assert caught.value.filename == str(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == [target]


def test_errors_about_other_files_are_left_alone(tmp_path: Path) -> None:
    other = str(tmp_path / "absent")
    with pytest.raises(FileNotFoundError) as caught, staged_folder(tmp_path / "folder"):
        Path(other).read_bytes()
    assert caught.value.filename == other
    with pytest.raises(OSError, match=r"^disk on fire$"), atomic_text(tmp_path / "text"):
        raise OSError("disk on fire")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process without a signal")
def test_a_command_that_is_ended_leaves_nothing_half_written(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW_COMMAND, "slow", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs locks")
def test_what_a_dead_process_left_is_cleared_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    own = [tmp_path / ".last.ckpt.backup.tmp", tmp_path / ".bundle.x"]
    for path in own:
        path.touch()
    command = [sys.executable, "-c", WRITE, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        write_atomically(tmp_path / "last.ckpt", b"other")
        clear_stale(tmp_path)
        assert len(list(tmp_path.iterdir())) == 5
        process.kill()
    assert len(list(tmp_path.iterdir())) == 5
    with staged_folder(tmp_path / "bundle"):
        pass
    assert len(list(tmp_path.iterdir())) == 5  # the bundle in place of its temporary
    with locked_folder(tmp_path):
        assert sorted(tmp_path.iterdir()) == sorted([*own, tmp_path / "last.ckpt", tmp_path / "bundle"])
