"""A worker process with a time limit: a case that ends or hangs its process is a result, and the next gets another."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from robustness.files import Case
from robustness.outcomes import Outcome, Result
from robustness.worker import serve

Serve = Callable[[Connection, Path, Path, int], None]
"""The entry point of a worker process; see :func:`~robustness.worker.serve`."""
START_SECONDS = 120.0
"""Time for a process to import and open what it needs, which is not part of a case."""
CASES_PER_PROCESS = 5000
_LOG_TAIL = 1000


class Worker:
    """One process, started again when it has ended."""

    def __init__(self, seconds: float, memory_mib: int, entry: Serve) -> None:
        self._seconds, self._memory_mib, self._entry = seconds, memory_mib, entry
        self._process: BaseProcess | None = None
        self._folder, self._done = Path(), 0
        self._connection: Connection

    def run(self, case: Case) -> Result:
        """Run a case.

        Raises:
            RuntimeError: the process does not start.
        """
        if self._process is None or self._done >= CASES_PER_PROCESS:
            self.close()
            self._start()
        self._connection.send(case)
        is_prepared = False
        for seconds in (START_SECONDS, self._seconds):
            if not self._connection.poll(seconds):
                self.close()
                if not is_prepared:
                    raise RuntimeError("A worker process does not start.")
                return Result(Outcome.HUNG, f"more than {seconds:g} seconds")
            try:
                message: Result = self._connection.recv()
            except (EOFError, ConnectionResetError):
                return self._crash(is_prepared)
            is_prepared = True
        self._done += 1
        return message

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._process.kill()
        self._process.join()
        self._connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._folder, self._done = Path(tempfile.mkdtemp(prefix="edgeformer-attack-")), 0
        self._connection, other = context.Pipe()
        arguments = other, self._folder / "log", self._folder / "bundles", self._memory_mib
        self._process = context.Process(target=self._entry, args=arguments, daemon=True)
        self._process.start()
        other.close()

    def _crash(self, is_prepared: bool) -> Result:
        process, log = self._process, self._folder / "log"
        assert process is not None
        process.join()
        code = process.exitcode or 0
        printed = log.read_bytes()[-_LOG_TAIL:].decode("utf-8", "replace") if log.is_file() else ""
        self.close()
        if not is_prepared:
            raise RuntimeError(f"A worker process ended before its first case: {printed}")
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        memory = "memory allocation of" in printed or "bad_alloc" in printed  # Rust and C++ end the process
        return Result(Outcome.MEMORY if memory else Outcome.CRASHED, f"{name}; {printed}")


def results(
    cases: Iterable[Case], *, seconds: float, memory_mib: int, entry: Serve = serve
) -> Iterator[tuple[Case, Result]]:
    """Run cases, and yield each with its result.

    Args:
        cases: the cases.
        seconds: time limit of a case.
        memory_mib: how far memory may rise during a case.
        entry: entry point of the process.

    Raises:
        RuntimeError: a process does not start.
    """
    worker = Worker(seconds, memory_mib, entry)
    try:
        for case in cases:
            yield case, worker.run(case)
    finally:
        worker.close()
