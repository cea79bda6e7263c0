"""Translates and reopens for hours in one process, and watches whether memory, open files or threads grow.

Usage: ``python -m robustness.soak``, which is ``make soak``
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from random import Random

import click
import msgspec

from edgeformer.errors import ConfigError
from edgeformer.markdown import markdown_table
from edgeformer_bench import growth
from edgeformer_bench.commands import Command, command_line
from edgeformer_bench.growth import Limit
from edgeformer_runtime.cli.output import console, counting, print_json
from edgeformer_runtime.engine.onnx_session import ENGINE_VERSION, OnnxSession
from edgeformer_runtime.errors import SessionError
from edgeformer_runtime.files import write_atomically
from edgeformer_runtime.selfcheck.machine import machine_summary
from edgeformer_runtime.translator import Translator
from tests.store import COMMITTED, CPU_PRECISIONS

MIB = 2**20
SAMPLES = 200
"""Samples of a stage."""
LIMITS = {
    "memory_mib": Limit("resident memory, MiB,", share=0.1, amount=4.0),
    "allocated_mib": Limit("allocated memory, MiB,", share=0.01, amount=0.5),
    "files": Limit("open files"),
    "threads": Limit("threads"),
}
"""How far figures may grow. Allocated memory does not grow unless something is never freed. Resident memory approaches
its maximum slowly, since every thread has an arena of the allocator."""
BATCHES = (1, 1, 8, 64)
"""Sentences of a call."""
STEPS = 6
_MALLINFO = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
WORDS = ["The", "old", "dog", "turns", "2", "14", "times", "near", "the", "house", ".", "runs", "l'homme", "été"]


class Sample(growth.Sample, frozen=True, kw_only=True):
    """The state of this process at one moment."""

    allocated_mib: float
    """What Python and libraries allocated of the memory, which also has what the allocator keeps."""


class Stage(msgspec.Struct, frozen=True):
    """Samples while one kind of work was repeated."""

    what: str
    done: int
    """Repetitions."""
    samples: list[Sample]

    @property
    def problems(self) -> list[str]:
        """What grew."""
        return [f"{self.what}: {problem}" for problem in growth.growth(self.samples, LIMITS)]


class Report(msgspec.Struct, frozen=True):
    """The result of a run."""

    command: str
    machine: str
    engine: str
    stages: list[Stage]


Work = Callable[[int], int]
"""Does the work of a thread, number given, once; returns how many repetitions that was."""


def repeated(
    what: str, work: Work, total: int, threads: int, seconds: float, report: Callable[[int, int], None]
) -> Stage:
    """Repeat work in threads until it was done ``total`` times or the time is over, and take samples meanwhile.

    Raises:
        Exception: whatever the work raised first.
    """
    done, errors = [0] * threads, list[BaseException]()
    ended, running, busy = threading.Event(), threading.Event(), [threading.Lock() for _ in range(threads)]

    def run(thread: int) -> None:
        try:
            while not ended.is_set() and sum(done) < total:
                running.wait()
                with busy[thread]:
                    done[thread] += work(thread)
                if sum(done) >= due():
                    running.clear()  # until the sample is taken, however late that is
        except BaseException as error:
            errors.append(error)
            ended.set()

    def due() -> float:
        """Repetitions at which the next sample is taken."""
        return total * (len(samples) + 1) / (SAMPLES + 1)

    def look() -> None:
        """Take a sample between repetitions, when nothing is in use."""
        running.clear()
        with ExitStack() as stack:
            for lock in busy:
                stack.enter_context(lock)
            gc.collect()
            samples.append(sample())
        running.set()

    workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    samples, deadline = list[Sample](), time.monotonic() + seconds
    running.set()
    for worker in workers:
        worker.start()
    try:
        while all(worker.is_alive() for worker in workers) and not ended.is_set():
            ended.wait(0.001)
            if sum(done) >= due():
                look()
                report(sum(done), max(total, sum(done)))
            if time.monotonic() > deadline:
                ended.set()
    finally:
        ended.set()
        running.set()
        for worker in workers:
            worker.join()
    if errors:
        raise errors[0]
    return Stage(what, sum(done), samples or [sample()])


def sample() -> Sample:
    """Look at this process."""
    return Sample(allocated_mib=allocated() / MIB, **msgspec.structs.asdict(growth.Sample.of(os.getpid())))


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLINFO)


def allocated() -> int:
    """Bytes that are allocated, in all arenas; 0 where the C library cannot tell."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return 0
    library.mallinfo2.restype = _MallInfo
    found = library.mallinfo2()
    return int(found.uordblks + found.hblkhd)


def translating(translator: Translator[OnnxSession], threads: int) -> Work:
    """Translate batches of random sentences, greedily and with a beam."""
    randoms = [Random(thread) for thread in range(threads)]

    def work(thread: int) -> int:
        random = randoms[thread]
        size = random.choice(BATCHES)
        texts = [" ".join(random.choices(WORDS, k=random.randint(1, 12))) for _ in range(size)]
        beam_size = random.choice((1, 1, 1, 4))
        translations = translator.translate(texts, beam_size=beam_size, max_length=STEPS)
        assert len(translations) == size
        return size

    return work


def reopening(paths: list[Path]) -> Work:
    """Open a bundle, translate a sentence, and close it, or leave that to the garbage collector."""
    numbers = count()

    def work(thread: int) -> int:
        del thread
        number = next(numbers)
        translator = Translator.open(paths[number % len(paths)], threads=1 + number % 2)
        (translation,) = translator.translate(["The dog runs."], max_length=2)
        translator.attention([translation])
        if number % 4:
            translator.close()
        return 1

    return work


def forking(translator: Translator[OnnxSession]) -> Work:
    """Fork a process, in which the translator refuses to work."""

    def work(thread: int) -> int:
        del thread
        child = os.fork()
        if child == 0:
            status = 1
            try:
                translator.translate(["The dog runs."], max_length=2)
            except SessionError:
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        return 1

    return work


def table(report: Report) -> list[str]:
    """The report in Markdown."""
    columns = ["repeated", "times", "resident, MiB", "growth", "allocated, MiB", "growth", "open files", "threads"]
    rows = []
    for stage in report.stages:
        cells = [stage.what, f"{stage.done:,}"]
        for name, digits in (("memory_mib", 0), ("allocated_mib", 2)):
            first, last = growth.quarters(stage.samples, name)
            share = last / first - 1 if first else 0.0
            cells += [f"{first:.{digits}f} → {last:.{digits}f}", f"{share:+.1%}"]
        counts = (growth.quarters(stage.samples, name) for name in ("files", "threads"))
        rows.append([*cells, *(f"{first:.0f} → {last:.0f}" for first, last in counts)])
    return [
        *markdown_table(columns, rows),
        "",
        f"`make soak`; {report.machine}; onnxruntime {report.engine}.",
    ]


def stages(
    sentences: int, threads: int, opens: int, forks: int, seconds: float, *, before: Work | None = None
) -> Iterator[Stage]:
    """Do the work, one stage after the other.

    Args:
        sentences: number of sentences to translate.
        threads: number of threads that translate, and of those that open bundles.
        opens: number of translators to open.
        forks: number of processes to fork.
        seconds: time limit of a stage.
        before: more work to do in each repetition; for tests, which plant a leak.
    """

    def with_extra(work: Work) -> Work:
        return work if before is None else lambda thread: before(thread) + work(thread)

    paths = [COMMITTED / precision for precision in CPU_PRECISIONS]
    with Translator.open(COMMITTED / "int8", threads=1) as translator:
        work = with_extra(translating(translator, threads))
        what = f"sentence translated, {threads} threads share a translator"
        with counting("sentences") as progress:
            progress(0, sentences)
            yield repeated(what, work, sentences, threads, seconds, progress)
        with counting("forks") as progress:
            progress(0, forks)
            yield repeated("process forked and ended", with_extra(forking(translator)), forks, 1, seconds, progress)
    gc.collect()
    with counting("translators") as progress:
        progress(0, opens)
        work = with_extra(reopening(paths))
        yield repeated("bundle opened, used and closed", work, opens, 1, seconds, progress)


@click.command(cls=Command)
@click.option("--sentences", default=1_000_000, show_default=True, type=click.IntRange(1), help="To translate.")
@click.option("--threads", default=8, show_default=True, type=click.IntRange(1), help="Python threads that translate.")
@click.option("--opens", default=3000, show_default=True, type=click.IntRange(1), help="Translators to open and close.")
@click.option("--forks", default=1000, show_default=True, type=click.IntRange(1), help="Processes to fork.")
@click.option("--minutes", default=120.0, show_default=True, help="Time limit of each of the three stages.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/soak"),
    show_default=True,
    help="Folder for the report.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report, with all samples, as JSON.")
def main(
    sentences: int,
    threads: int,
    opens: int,
    forks: int,
    minutes: float,
    out: Path,
    as_json: bool,
) -> None:
    """Translate, fork, and open translators in one process for a long time, and watch what grows.

    Memory, open files and threads are compared between the first and the last quarter of each stage, after a
    warm-up of a fifth of it. 3,000 translators are those of a device that opens one every minute for two days.

    Writes OUT/soak.json. Exits with 1 if allocated memory grew by more than 1 % and 0.5 MiB, resident
    memory by more than 10 % and 4 MiB, or open files or threads at all.
    """
    if not sys.platform.startswith("linux"):
        raise ConfigError("This reads memory, open files and threads in a way that only Linux has.")
    report = Report(command_line(), machine_summary(), ENGINE_VERSION, [])
    interrupted = False
    try:
        for stage in stages(sentences, threads, opens, forks, minutes * 60):
            report.stages.append(stage)
            write_atomically(out / "soak.json", msgspec.json.format(msgspec.json.encode(report), indent=1))
    except KeyboardInterrupt:
        interrupted = True
    if as_json:
        print_json(report)
    elif report.stages:
        console().print("\n".join(table(report)))
    problems = [problem for stage in report.stages for problem in stage.problems]
    for problem in problems:
        console(stderr=True).print(f"LEAK {problem}", style="red")
    if interrupted:
        console(stderr=True).print("Interrupted.")
        sys.exit(128 + signal.SIGINT)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
