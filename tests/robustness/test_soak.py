"""The program behind ``make soak``: it runs, and a planted leak of each kind is reported."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from robustness import soak
from robustness.allocated import allocated
from robustness.soak import Sample, Stage
from tests.commands import python

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read on Linux only")


def test_a_short_run() -> None:
    """In a process of its own, whose memory is measured in little time."""
    arguments = ["--sentences", "300", "--threads", "3", "--opens", "8", "--forks", "4"]
    done = python("from robustness.soak import main; main()", *arguments, "--json", check=False)
    report = json.loads(done.stdout)
    stages = [msgspec.convert(stage, Stage) for stage in report["results"].values()]
    assert done.returncode == any(stage.problems for stage in stages), done.stderr
    assert [stage.done >= least for stage, least in zip(stages, (300, 4, 8), strict=True)] == [True] * 3
    for stage in stages:
        assert len({entry.files for entry in stage.samples}) == 1
        assert all(entry.allocated_mib > 1 for entry in stage.samples)


def steady(**changes: Callable[[int], float]) -> Stage:
    """A stage in which only the given figures change, by the number of the sample."""
    figures = {"memory_mib": 100.0, "allocated_mib": 20.0, "files": 6, "threads": 9}
    samples = [
        Sample(**{name: changes[name](number) if name in changes else value for name, value in figures.items()})  # type: ignore[arg-type]  # as the fields are
        for number in range(200)
    ]
    return Stage("work", 200, samples)


def test_a_steady_process_has_no_problem() -> None:
    assert steady().problems == []
    noisy = steady(memory_mib=lambda number: 100 + 7 * (number % 5), threads=lambda number: 9 + number % 3)
    assert noisy.problems == []
    assert steady(memory_mib=lambda number: min(100 + number, 130)).problems == []  # within the warm-up


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"memory_mib": lambda number: 100 + 0.5 * number}, "resident memory, MiB, grew from 129.8 to 189.8"),
        ({"allocated_mib": lambda number: 20 + 0.02 * number}, "allocated memory, MiB, grew from 21.2 to 23.6"),
        ({"files": lambda number: 6 + number // 100}, "open files grew from 6.0 to 7.0"),
        ({"threads": lambda number: 9 + number // 150}, "threads grew from 9.0 to 10.0"),
    ],
)
def test_growth_is_reported(change: dict[str, Callable[[int], float]], problem: str) -> None:
    assert steady(**change).problems == [problem]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["allocated memory", "open files", "threads"])
def test_a_planted_leak_is_reported(kind: str) -> None:
    kept: list[bytes] = []
    size = 50_000 + allocated() // 500  # much beside what the tests before this one left
    files: list[int] = []
    ended = threading.Event()

    def leak(thread: int) -> int:
        del thread
        time.sleep(0.002)
        if kind == "allocated memory":
            kept.append(bytes(size))
        elif kind == "open files":
            files.append(os.open(os.devnull, os.O_RDONLY))
        else:
            threading.Thread(target=ended.wait, daemon=True).start()
        return 1

    try:
        stage = soak.repeated("leaking", leak, 200, 2, 60, lambda done, total: None)
    finally:
        ended.set()
        for descriptor in files:
            os.close(descriptor)
    assert [problem for problem in stage.problems if problem.startswith(kind)]


def test_an_error_of_a_thread_ends_the_run() -> None:
    def fail(thread: int) -> int:
        raise ZeroDivisionError(thread)

    with pytest.raises(ZeroDivisionError):
        soak.repeated("failing", fail, 10, 3, 60, lambda done, total: None)
