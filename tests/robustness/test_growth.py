"""Work that is repeated for a long time in one process: neither memory nor open files nor threads grow."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from threading import Event, Thread

import msgspec
import pytest

from edgeformer_bench.growth import GrowthLimit, ProcessState, growth
from edgeformer_runtime.limits import MIB
from edgeformer_runtime.translator import Translator
from tests.amounts import cases
from tests.robustness.outcomes import allocated
from tests.store import COMMITTED, CPU_PRECISIONS

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read on Linux only")

ROUNDS = 100
LIMITS = {
    "memory_mib": GrowthLimit("resident memory, MiB,", share=0.1, amount=4.0),
    "allocated_mib": GrowthLimit("allocated memory, MiB,", share=0.01, amount=0.5),
    "files": GrowthLimit("open files"),
    "threads": GrowthLimit("threads"),
}
"""How far figures may grow. Allocated memory does not grow unless something is never freed. Resident memory approaches
its maximum slowly, since every thread has an arena of the allocator."""
WORDS = ["The", "old", "dog", "turns", "2", "14", "times", "near", "the", "house", ".", "runs", "l'homme", "été"]


class ProcessSample(ProcessState, frozen=True, kw_only=True):
    """The state of this process at one moment."""

    allocated_mib: float
    """What Python and libraries allocated of the memory, which also has what the allocator keeps."""


def sample() -> ProcessSample:
    return ProcessSample(allocated_mib=allocated() / MIB, **msgspec.structs.asdict(ProcessState.of(os.getpid())))


def grown(work: Callable[[int], object], threads: int = 1, rounds: int = ROUNDS) -> list[str]:
    """Let threads work, number given, and look at the process between the rounds, when nothing is in use; returns what
    grew."""
    samples = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(rounds):
            list(pool.map(work, range(threads)))
            gc.collect()
            samples.append(sample())
    return growth(samples, LIMITS)


@pytest.mark.slow
def test_threads_that_share_a_translator() -> None:
    threads, count = 8, 20 * cases(0, 500)
    randoms = [Random(thread) for thread in range(threads)]

    def work(thread: int) -> None:
        random, done = randoms[thread], 0
        while done < count / ROUNDS / threads:
            size = random.choice((1, 1, 8, 64))
            texts = [" ".join(random.choices(WORDS, k=random.randint(1, 12))) for _ in range(size)]
            assert len(translator.translate(texts, beam_size=random.choice((1, 1, 1, 4)), max_length=6)) == size
            done += size

    with Translator.open(COMMITTED / "int8", threads=1) as translator:
        assert grown(work, threads) == []


@pytest.mark.slow
def test_bundles_that_are_opened_used_and_closed_or_left_to_the_garbage_collector() -> None:
    def work(_: int) -> None:
        for number in range(max(4, cases(0, 400) // ROUNDS)):
            path = COMMITTED / CPU_PRECISIONS[number % len(CPU_PRECISIONS)]
            translator = Translator.open(path, threads=1 + number % 2)
            translator.attention(translator.translate(["The dog runs."], max_length=2))
            if number % 3:
                translator.close()

    assert grown(work) == []


@pytest.mark.parametrize(
    "kind", ["open files", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("allocated memory", "threads"))]
)
def test_a_planted_leak_is_reported(kind: str) -> None:
    kept, ended, size = list[object](), Event(), 50_000 + allocated() // 500  # much beside what earlier tests left
    with ExitStack() as files:
        files.callback(ended.set)

        def leak(_: int) -> None:
            if kind == "allocated memory":
                kept.append(bytes(size))
            elif kind == "open files":
                files.enter_context(Path(os.devnull).open("rb"))
            else:
                Thread(target=ended.wait, daemon=True).start()

        assert [problem for problem in grown(leak, threads=2, rounds=10) if problem.startswith(kind)]
