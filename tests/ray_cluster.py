"""A Ray cluster of its own for tests, and commands that use it."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

MAIN = "from edgeformer.cli import main; main()"
_HEAD = """
import os, sys
os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0")
import ray
ray.init("local", num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


class Cluster(NamedTuple):
    """A cluster with two CPUs on this machine."""

    address: str
    process: int
    """Id of the process that started it."""

    def workers(self) -> list[int]:
        """Ids of the processes that translate."""
        parents, found = {}, []
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit():
                    stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
                    parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
                    if b"ray::_Worker" in (folder / "cmdline").read_bytes():
                        found.append(int(folder.name))
            except (FileNotFoundError, ProcessLookupError):  # it has ended
                continue
        return [process for process in found if self._started(process, parents)]

    def _started(self, process: int, parents: dict[int, int]) -> bool:
        while process > 1 and process != self.process:
            process = parents.get(process, 0)
        return process == self.process


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A cluster with a token of its own, which commands inherit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        with subprocess.Popen(
            [sys.executable, "-c", _HEAD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as head:
            assert head.stdout is not None
            assert head.stdin is not None
            yield Cluster(head.stdout.readline().strip(), head.pid)
            head.stdin.close()


def command(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run an edgeformer command in a process of its own, since Ray keeps state in its process."""
    return subprocess.run(
        [sys.executable, "-c", MAIN, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, timeout=300
    )


def interrupted(
    stop: Callable[[], bool], *arguments: str | Path, interrupt: Callable[[int], None], cwd: Path | None = None
) -> tuple[int, str]:
    """Run a command, call ``interrupt`` with its process id as soon as ``stop`` holds; returns status and messages."""
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, *map(str, arguments)], stderr=subprocess.PIPE, text=True, cwd=cwd
    ) as process:
        while not stop():
            assert process.poll() is None, "it ended before it was interrupted"
            time.sleep(0.02)
        interrupt(process.pid)
        assert process.stderr is not None
        messages = process.stderr.read()
    return process.returncode, messages


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
