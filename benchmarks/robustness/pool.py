"""Worker processes with a time limit: a case that ends or hangs its process is a result, and the next gets another."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
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
        self._folder, self._done, self._deadline, self._prepared = Path(), 0, 0.0, False
        self.connection: Connection
        self.case: Case | None = None

    def begin(self, case: Case) -> None:
        """Send a case."""
        if self._process is None or self._done >= CASES_PER_PROCESS:
            self.close()
            self._start()
        self.case, self._prepared = case, False
        self._deadline = time.monotonic() + START_SECONDS
        self.connection.send(case)

    def result(self) -> Result | None:
        """The result of the case, or ``None`` if it is not over."""
        if self.connection.poll():
            try:
                message: Result | None = self.connection.recv()
            except (EOFError, ConnectionResetError):
                return self._crash()
            if message is not None:
                self._done += 1
                return message
            self._prepared, self._deadline = True, time.monotonic() + self._seconds
        if time.monotonic() < self._deadline:
            return None
        self.close()
        if not self._prepared:
            raise RuntimeError("A worker process does not start; see what it prints with --workers 1.")
        return Result(Outcome.HUNG, f"more than {self._seconds:g} seconds")

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._process.kill()
        self._process.join()
        self.connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._folder, self._done = Path(tempfile.mkdtemp(prefix="edgeformer-attack-")), 0
        self.connection, other = context.Pipe()
        arguments = other, self._folder / "log", self._folder / "bundles", self._memory_mib
        self._process = context.Process(target=self._entry, args=arguments, daemon=True)
        self._process.start()
        other.close()

    def _crash(self) -> Result:
        process, log = self._process, self._folder / "log"
        assert process is not None
        process.join()
        code = process.exitcode or 0
        printed = log.read_bytes()[-_LOG_TAIL:].decode("utf-8", "replace") if log.is_file() else ""
        self.close()
        if not self._prepared:
            raise RuntimeError(f"A worker process ended before its first case: {printed}")
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        memory = "memory allocation of" in printed or "bad_alloc" in printed  # Rust and C++ end the process
        return Result(Outcome.MEMORY if memory else Outcome.CRASHED, f"{name}; {printed}")


def results(
    cases: Iterable[Case], *, workers: int, seconds: float, memory_mib: int, entry: Serve = serve
) -> Iterator[tuple[Case, Result]]:
    """Run cases, and yield each with its result, in the order in which they end.

    Args:
        cases: the cases.
        workers: number of processes.
        seconds: time limit of a case.
        memory_mib: how far memory may rise during a case.
        entry: entry point of the processes.

    Raises:
        RuntimeError: a process does not start.
    """
    pending = iter(cases)
    idle, busy = [Worker(seconds, memory_mib, entry) for _ in range(workers)], list[Worker]()
    try:
        while True:
            for case in (next(pending, None) for _ in range(len(idle))):
                if case is not None:
                    busy.append(idle.pop())
                    busy[-1].begin(case)
            if not busy:
                return
            wait([worker.connection for worker in busy], timeout=0.5)
            for worker in list(busy):
                if (result := worker.result()) is not None:
                    busy.remove(worker)
                    idle.append(worker)
                    assert worker.case is not None
                    yield worker.case, result
    finally:
        for worker in (*idle, *busy):
            worker.close()
