"""Commands as processes: closed and live streams, signals, locales."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgeformer_runtime.cli.text_input import line_blocks
from edgeformer_runtime.errors import EdgeformerError
from tests.commands import run

MAIN = "from edgeformer.cli import main; main()"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX shells and signals")


def shell(
    line: str, *arguments: str | Path, code: str = MAIN, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell in which ``"$@"`` is an edgeformer command."""
    return subprocess.run(
        ["/bin/sh", "-c", line, "sh", sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        env={**os.environ, **environment},
        timeout=120,
    )


@pytest.mark.parametrize(
    ("line", "arguments", "problem"),
    [
        ('"$@" <&-', (), "Standard input is closed; give TEXT, or a file with --input."),
        ('"$@" </dev/null >/dev/full', ("dog",), "No space left on device: standard output."),
    ],
)
def test_what_cannot_be_done_is_one_line(small_bundle: Path, line: str, arguments: Sequence[str], problem: str) -> None:
    done = shell(line, "translate", small_bundle, *arguments)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (1, b"", f"Error: {problem}\n")


@pytest.mark.parametrize("arguments", ["--version", pytest.param("models", marks=pytest.mark.slow)])
def test_whatever_is_printed_needs_a_place(arguments: str) -> None:
    for line, problem in (('"$@" >&-', "Standard output is closed"), ('"$@" >/dev/full', "No space left on device.")):
        done = shell(line, *arguments.split())
        assert done.returncode == 1
        assert done.stderr.decode().startswith(f"Error: {problem}")
        assert done.stderr.count(b"\n") == 1


@pytest.mark.slow
def test_closed_streams_that_are_not_needed_do_no_harm(small_bundle: Path, tmp_path: Path) -> None:
    done = shell('"$@" <&- 2>&-', "translate", small_bundle, "dog", "--output", tmp_path / "out")
    assert done.returncode == 0
    assert (tmp_path / "out").read_bytes() == run("translate", small_bundle, "dog").stdout_bytes


@pytest.mark.slow
def test_a_reader_that_has_enough_ends_the_command_quietly(small_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("dog\n" * 3000, encoding="utf-8")
    line = '("$@"; echo $? >&2) | head -1'
    done = shell(line, "translate", small_bundle, "--beam", "1", "--max-length", "2", "--input", tmp_path / "in")
    assert (done.stdout.count(b"\n"), done.stderr) == (1, b"1\n")


def test_the_module_is_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "edgeformer", "unknown"], capture_output=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.startswith(b"Usage: python -m edgeformer ")


@pytest.mark.slow
def test_arguments_are_utf8_in_a_locale_without(small_bundle: Path) -> None:
    done = shell('"$@"', "translate", small_bundle, "été", "--json", **ASCII)
    assert json.loads(done.stdout)["source"] == "été"
    done = shell('"$@"', "inspect", small_bundle, **ASCII)
    assert (done.returncode, done.stderr) == (0, b"")
    done = shell('"$@"', "inspect", "été", **ASCII)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)


def started(command: Sequence[str], **streams: int) -> subprocess.Popen[bytes]:
    """Start a process that heeds SIGINT, which a shell lets its background jobs ignore."""
    return subprocess.Popen(command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **streams)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("mode", [pytest.param((), marks=pytest.mark.slow), ("--lines",)])
def test_a_command_that_waits_for_input_answers_at_once_and_ends_with_a_signal(
    small_bundle: Path, mode: tuple[str, ...]
) -> None:
    command = [sys.executable, "-c", MAIN, "translate", *mode, str(small_bundle), "--input", "-"]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(2):
            process.stdin.write(b"dog\nriver")
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")  # while the pipe is open
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        process.wait(timeout=60)
        assert (process.returncode, process.stderr and process.stderr.read()) == (128 + signal.SIGINT, b"")
        assert time.monotonic() - begin < 30


def test_a_gzip_of_one_endless_line_is_refused_in_little_memory(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.gz"
    bomb.write_bytes(gzip.compress(bytes(1 << 24), 1) * 256)  # 4 GiB in all
    tracemalloc.start()
    problem = r"Line 1 of .*bomb\.gz has more than 1,048,576 bytes; give text with one sentence per line\."
    with pytest.raises(EdgeformerError, match=problem), line_blocks((), bomb) as blocks:
        next(iter(blocks))
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["lines", "lines.gz"])
def test_plentiful_input_comes_in_blocks(tmp_path: Path, name: str) -> None:
    lines = [f"line {number}" for number in range(1200)]
    content = "\n".join(lines).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with line_blocks((), tmp_path / name) as blocks:
        found = list(blocks)
    assert [len(block) for block in found] == [512, 512, 175, 1]  # the last line has no end
    assert [line for block in found for line in block] == lines
