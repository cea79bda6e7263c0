"""The parent's side of a peer. Each peer runs in its own process, to isolate its libraries and settings."""

from __future__ import annotations

import os
import subprocess
import sys
from tempfile import TemporaryFile
from typing import Any

import msgspec

from edgeformer_bench.peers.base import PeerError, PeerSpec


class WorkerProcess:
    """A process that runs :mod:`edgeformer_bench.peers.worker`. Close it, for example with
    :func:`contextlib.closing`.

    Args:
        threads: CPU threads of the process's libraries.
        environment: environment variables that differ from those of this process.
    """

    def __init__(self, threads: int, environment: dict[str, str]) -> None:
        self._notes = TemporaryFile()  # noqa: SIM115  # closed with the process
        variables = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONIOENCODING": "utf-8", **environment}
        variables.pop("GOMP_SPINCOUNT", None)  # the command line's; an engine waits as it does by default
        variables.pop("PYTHONDONTWRITEBYTECODE", None)  # cache bytecode, as for installed packages
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "edgeformer_bench.peers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._notes,
            env=variables,
        )

    def ask(self, request: str, **arguments: Any) -> dict[str, Any]:
        """Send a request, a method of :class:`~edgeformer_bench.peers.worker.Worker`, and wait for the response.

        Raises:
            PeerError: the request failed, or the process died.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(msgspec.json.encode((request, arguments)) + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise PeerError(f"Its process ended with {self.process.wait()}: {self._last_note()}")
        answer: dict[str, Any] = msgspec.json.decode(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()
        self._notes.close()

    def _last_note(self) -> str:
        """Return the last line that the process wrote to standard error."""
        self._notes.seek(0)
        lines = self._notes.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it left no message."


class PeerProcess(WorkerProcess):
    """A peer, opened in its own process.

    Raises:
        PeerError: the peer cannot be opened.
    """

    def __init__(self, spec: PeerSpec) -> None:
        super().__init__(spec.threads, spec.environment)
        self.spec = spec
        try:
            opened = self.ask("open", spec=msgspec.to_builtins(spec))
        except BaseException:
            self.close()
            raise
        self.version: str = opened["version"]
        """The engine and its version."""
